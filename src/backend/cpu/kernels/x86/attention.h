/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - the attention steps for AVX2 and AVX-512, one body for both;
 * attention_avx2.c and attention_avx512.c include it. Their products are in
 * attention_tiles.h. */
#include "backend/cpu/kernels/x86/attention_tiles.h"

/* ---- Score terms ------------------------------------------------------- */

INLINE vm row_lanes(uint64_t word, size_t v, int masked)
{
    return masked ? vm_bits(word >> v * VL) : vm_all();
}

/* Products to scores, vectors first to end - 1 of one row. `slope`, which may
 * be NULL, receives the derivative of the softcap. */
INLINE void terms_row(const bt_score_terms *terms, size_t row, float *p,
                      float *slope, uint64_t word, size_t first, size_t end)
{
    const float *bias = terms->bias ? terms->bias[row] : NULL;
    for (size_t v = first; v < end; v++) {
        vf x = vf_load(p + v * VL);
        if (terms->cap != 0.0f) {
            vf t = vf_tanh(x);
            x = vf_mul(vf_set(terms->cap), t);
            if (slope)
                vf_store(slope + v * VL,
                         vf_fma(vf_sub(vf_set(-0.0f), t), t, vf_set(1.0f)));
        }
        if (bias)
            x = vf_fma(vf_load_where(row_lanes(word, v, 1), bias + v * VL),
                       vf_set((float)BT_LOG2E), x);
        vf_store(p + v * VL, x);
    }
}

/* The same for the rows of a strip. */
static void terms_strip(const bt_score_terms *terms, size_t row, size_t rows,
                        float *p, const uint64_t *words, size_t first,
                        size_t end)
{
    for (size_t r = row; r < row + rows; r++)
        terms_row(terms, r, p + r * BLOCK, NULL,
                  words ? words[r] : ~(uint64_t)0, first, end);
}

/* ---- Forward ----------------------------------------------------------- */

/* The vectors of a strip: those from `first` to `end` - 1 hold keys that some
 * row sees, and every row sees all keys of those from `from` to `to` - 1. */
typedef struct strip_vecs {
    size_t first, from, to, end;
} strip_vecs;

static const strip_vecs all_vecs = { 0, 0, BLOCK_VECS, BLOCK_VECS };

INLINE strip_vecs strip_vecs_of(strip_mask m)
{
    return (strip_vecs){ m.lo / VL, (m.from + VL - 1) / VL, m.to / VL,
                         (m.hi + VL - 1) / VL };
}

/* The lanes of vector v that a row sees. */
INLINE vm vec_lanes(strip_vecs vecs, uint64_t word, size_t v, int masked)
{
    return row_lanes(word, v, masked && (v < vecs.from || v >= vecs.to));
}

/* The largest visible score of each row of a strip, one lane per row. */
INLINE vf strip_top(const float *p, const uint64_t *words, size_t rows,
                    strip_vecs vecs, int masked)
{
    const vf none = vf_set(-INFINITY);
    vf max[TILE_ROWS];
    UNROLLED_FOR (size_t r = 0; r < TILE_ROWS; r++)
        max[r] = none;
    UNROLLED_FOR (size_t r = 0; r < rows; r++) {
        vf top = none;
        UNROLLED_FOR (size_t v = vecs.first; v < vecs.end; v++) {
            vf s = vf_load(p + r * BLOCK + v * VL);
            if (masked && (v < vecs.from || v >= vecs.to))
                s = vf_select(row_lanes(words[r], v, masked), s, none);
            top = vf_max(s, top); // ignores NaN
        }
        max[r] = top;
    }
    return vf_max_of_six(max);
}

/* One vector of scores to probabilities. */
INLINE vf softmax_vec(float *p, float base, vm lanes)
{
    vf e = vf_exp2_where(lanes, vf_sub(vf_load(p), vf_set(base)));
    vf_store(p, e);
    return e;
}

/* Scores to probabilities and the new sums of one row. */
INLINE void softmax_row(float *p, float *l, float base, float scale,
                        uint64_t word, strip_vecs vecs, int masked)
{
    enum { VECS = BT_LANES / VL };
    vf lane[VECS];
    size_t v = vecs.first;
    UNROLLED_FOR (size_t t = 0; t < VECS; t++)
        lane[t] = vf_mul(vf_load(l + t * VL), vf_set(scale));
    if (VECS == 2 && v % 2) {
        vm lanes = vec_lanes(vecs, word, v, masked);
        lane[1] = vf_add(lane[1], softmax_vec(p + v * VL, base, lanes));
        v++;
    }
    UNROLLED_FOR (; v + VECS <= vecs.end; v += VECS)
        UNROLLED_FOR (size_t t = 0; t < VECS; t++) {
            vm lanes = vec_lanes(vecs, word, v + t, masked);
            lane[t] =
                vf_add(lane[t], softmax_vec(p + (v + t) * VL, base, lanes));
        }
    if (v < vecs.end) {
        vm lanes = vec_lanes(vecs, word, v, masked);
        lane[0] = vf_add(lane[0], softmax_vec(p + v * VL, base, lanes));
    }
    UNROLLED_FOR (size_t t = 0; t < VECS; t++)
        vf_store(l + t * VL, lane[t]);
}

/* What the online softmax of a strip's rows subtracts from their scores, and
 * the factors of their earlier sums. */
typedef struct strip_softmax {
    size_t row, rows;
    float base[VL], scale[VL];
} strip_softmax;

/* The new maxima of a strip, given those of its scores, one lane per row.
 * Writes the factors that rescale the earlier blocks; returns whether any is
 * not 1. */
INLINE int softmax_begin(const bt_attention_step *s, size_t row, size_t rows,
                         float *scale, vf top, strip_softmax *x)
{
    vm lanes = vm_bits(((uint64_t)1 << rows) - 1);
    vf old = vf_load_where(lanes, s->m + row);
    top = vf_max(old, top);
    vf base = vf_select(vf_is(top, -INFINITY), vf_set(0.0f), top);
    vf a = vf_exp2_where(lanes, vf_sub(old, base));
    x->row = row;
    x->rows = rows;
    vf_store(x->base, base);
    vf_store(x->scale, a);
    vf_store_where(lanes, s->m + row, top);
    vf_store_where(lanes, scale + row, a);
    return vf_differ(lanes, a, vf_set(1.0f));
}

/* Scores in p to probabilities, rows first to end - 1 of the strip. */
INLINE void softmax_rows(const bt_attention_step *s, const strip_softmax *x,
                         size_t first, size_t end, strip_vecs vecs, int masked)
{
    for (size_t r = first; r < end; r++) {
        size_t row = x->row + r;
        softmax_row(s->p + row * BLOCK, s->l + row * BT_LANES, x->base[r],
                    x->scale[r], masked ? s->words[row] : 0, vecs, masked);
    }
}

/* The online softmax of a strip. */
INLINE int softmax_strip(const bt_attention_step *s, size_t row, size_t rows,
                         float *scale, strip_vecs vecs, int masked)
{
    strip_softmax x;
    vf top = strip_top(s->p + row * BLOCK, masked ? s->words + row : NULL, rows,
                       vecs, masked);
    int rescale = softmax_begin(s, row, rows, scale, top, &x);
    softmax_rows(s, &x, 0, rows, vecs, masked);
    return rescale;
}

/* The strip's probabilities; whether any of its rows must be rescaled. */
static int forward_strip(const bt_attention_step *s, const dots *scores,
                         size_t row, size_t rows, strip_mask m, float *scale)
{
    if (m.lo == m.hi) {
        for (size_t r = row; r < row + rows; r++)
            scale[r] = 1.0f;
        return 0;
    }
    strip_vecs vecs = strip_vecs_of(m);
    dots_strip(scores, row, rows, vecs.first, vecs.end);
    if (s->terms)
        terms_strip(s->terms, row, rows, s->p, s->words, vecs.first, vecs.end);
    if (m.to - m.from < BLOCK)
        return softmax_strip(s, row, rows, scale, vecs, 1);
    return softmax_strip(s, row, rows, scale, all_vecs, 0);
}

/* The same for six rows that see all keys, as most do, but with the
 * exponentials of the strip before, a few rows after each tile: they depend on
 * nothing recent and run in the gaps of the multiply-adds. Those of this strip
 * are `late` afterwards. */
static int forward_full(const bt_attention_step *s, const dots *scores,
                        size_t row, float *scale, strip_softmax *late)
{
    enum { TILES = BLOCK_VECS / TILE_VECS };
    vf top[TILE_ROWS];
    UNROLLED_FOR (size_t r = 0; r < TILE_ROWS; r++)
        top[r] = vf_set(-INFINITY);
    for (size_t t = 0; t < TILES; t++) {
        dots_tile(scores, row, t * TILE_VECS, TILE_ROWS, TILE_VECS, top);
        softmax_rows(s, late, t * late->rows / TILES,
                     (t + 1) * late->rows / TILES, all_vecs, 0);
    }
    return softmax_begin(s, row, TILE_ROWS, scale, vf_max_of_six(top), late);
}

/* At most this many rows at once, so that their probabilities stay cached. */
enum { FORWARD_ROWS = 96 };

/* The probabilities of all rows; whether any row must be rescaled. */
static int forward_scores(const bt_attention_step *s, float *scale)
{
    int rescale = 0;
    dots scores = { s->p, s->q, s->kt, s->head_pad, s->head_dim, s->v };
    strip_softmax late = { .rows = 0 };
    for (size_t row = 0; row < s->rows; row += TILE_ROWS) {
        size_t n = s->rows - row < TILE_ROWS ? s->rows - row : TILE_ROWS;
        strip_mask m = s->words ? strip_mask_of(s->words + row, n) : strip_full;
        if (n == TILE_ROWS && m.to - m.from == BLOCK && !s->terms)
            rescale |= forward_full(s, &scores, row, scale, &late);
        else
            rescale |= forward_strip(s, &scores, row, n, m, scale);
        bt_prefetch_some(s->prefetch);
    }
    softmax_rows(s, &late, 0, late.rows, all_vecs, 0);
    return rescale;
}

/* Add their products with the values to the output. */
static void forward_output(const bt_attention_step *s, const float *scale)
{
    sums output = { .to = s->o,
                    .weight = s->p,
                    .x = s->v,
                    .panels = true,
                    .scale = scale,
                    .words = s->words,
                    .pad = s->value_pad,
                    .next = s->next,
                    .ahead = s->prefetch };
    sums_rows(&output, s->rows);
}

static void forward_rows(const bt_attention_step *s)
{
    float scale[FORWARD_ROWS];
    int rescale = forward_scores(s, scale);
    forward_output(s, rescale ? scale : NULL);
}

static void forward_head(const bt_attention_step *step)
{
    bt_attention_step s;
    bt_score_terms terms;
    if (step->rows <= FORWARD_ROWS) {
        forward_rows(step);
        return;
    }
    s = *step;
    for (size_t row = 0; row < step->rows; row += FORWARD_ROWS) {
        s.rows = step->rows - row;
        if (s.rows > FORWARD_ROWS)
            s.rows = FORWARD_ROWS;
        s.q = step->q + row * s.head_pad;
        s.words = step->words ? step->words + row : NULL;
        s.m = step->m + row;
        s.l = step->l + row * BT_LANES;
        s.o = step->o + row * s.value_pad;
        s.p = step->p + row * BLOCK;
        if (step->terms) {
            terms = *step->terms;
            terms.bias = terms.bias ? terms.bias + row : NULL;
            s.terms = &terms;
        }
        forward_rows(&s);
    }
}

/* ---- Forward, several heads of few rows --------------------------------- */

/* The chains of one head with one or two rows wait for each other, so those of
 * several heads run together: H heads of R rows, V vectors of columns. */
INLINE void heads_tile(const bt_attention_step *s, const float *scale,
                       strip_mask m, size_t head, size_t H, size_t R, size_t V)
{
    enum { LINES = 8 };
    vf sum[LINES][WIDE_VECS];
    float *to = s->o + head * R * s->value_pad;
    const float *weight = s->p + head * R * BLOCK;
    const float *x = s->v + head * s->head_stride;
    const size_t stride = s->value_pad, next = s->head_stride;
    UNROLLED_FOR (size_t i = 0; i < H * R; i++)
        UNROLLED_FOR (size_t v = 0; v < V; v++) {
            sum[i][v] = vf_load(to + i * stride + v * VL);
            if (scale)
                sum[i][v] = vf_mul(sum[i][v], vf_set(scale[head * R + i]));
        }
    for (size_t j = m.lo; j < m.hi; j++)
        UNROLLED_FOR (size_t h = 0; h < H; h++) {
            vf y[WIDE_VECS];
            UNROLLED_FOR (size_t v = 0; v < V; v++)
                y[v] = vf_load(x + h * next + j * stride + v * VL);
            UNROLLED_FOR (size_t r = 0; r < R; r++) {
                vf w = vf_set(weight[(h * R + r) * BLOCK + j]);
                UNROLLED_FOR (size_t v = 0; v < V; v++)
                    sum[h * R + r][v] = vf_fma(w, y[v], sum[h * R + r][v]);
            }
        }
    UNROLLED_FOR (size_t i = 0; i < H * R; i++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            vf_store(to + i * stride + v * VL, sum[i][v]);
}

/* Heads from `head` on: how many ran together, or 0 if these do not. */
static size_t heads_together(const bt_attention_step *s, const float *scale,
                             strip_mask m, size_t head)
{
    size_t left = s->heads - head;
#define HEADS_CASE(H, R, V)                                        \
    if (left >= (H) && s->rows == (R) && s->value_pad == (V)*VL) { \
        heads_tile(s, scale, m, head, H, R, V);                    \
        return H;                                                  \
    }
    HEADS_CASE(4, 1, 1)
    HEADS_CASE(4, 1, 2)
    HEADS_CASE(4, 2, 1)
    HEADS_CASE(2, 2, 2)
    HEADS_CASE(2, 1, 4)
#undef HEADS_CASE
    return 0;
}

/* The dots of HEADS heads of one row each, as many vectors at a time as there
 * are registers for. */
enum { HEADS = 4, HEADS_VECS = TILE_VECS };

INLINE void heads_dots_tile(const bt_attention_step *s, size_t vec, size_t V)
{
    vf sum[HEADS][HEADS_VECS];
    size_t at[HEADS_VECS];
    const float *kt = s->kt;
    UNROLLED_FOR (size_t v = 0; v < V; v++)
        at[v] = bt_key_at(s->head_dim, (vec + v) * VL, 0);
    UNROLLED_FOR (size_t h = 0; h < HEADS; h++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            sum[h][v] = vf_set(0.0f);
    for (size_t c = 0; c < s->head_dim; c++, kt += BT_KEY_GROUP)
        UNROLLED_FOR (size_t h = 0; h < HEADS; h++) {
            vf w = vf_set(s->q[h * s->head_pad + c]);
            UNROLLED_FOR (size_t v = 0; v < V; v++)
                sum[h][v] = vf_fma(w, vf_load(kt + h * s->head_stride + at[v]),
                                   sum[h][v]);
        }
    UNROLLED_FOR (size_t h = 0; h < HEADS; h++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            vf_store(s->p + h * BLOCK + (vec + v) * VL, sum[h][v]);
}

static void heads_dots(const bt_attention_step *s, strip_vecs vecs)
{
    for (size_t vec = vecs.first; vec < vecs.end; vec += HEADS_VECS)
        switch (vecs.end - vec) {
        case 1:
            heads_dots_tile(s, vec, 1);
            break;
#if defined(__AVX512F__)
        case 2:
            heads_dots_tile(s, vec, 2);
            break;
        case 3:
            heads_dots_tile(s, vec, 3);
            break;
#endif
        default:
            heads_dots_tile(s, vec, HEADS_VECS);
        }
}

/* The probabilities of HEADS heads of one row each, whose lines are a strip. */
static int heads_strip(const bt_attention_step *step, size_t head, float *scale)
{
    bt_attention_step s = bt_attention_step_of_head(step, head);
    uint64_t words[HEADS];
    strip_mask m = s.words ? strip_mask_of(s.words, 1) : strip_full;
    strip_vecs vecs = strip_vecs_of(m);
    for (size_t h = 0; h < HEADS; h++) {
        scale[h] = 1.0f;
        words[h] = s.words ? *s.words : ~(uint64_t)0;
    }
    if (m.lo == m.hi)
        return 0;
    heads_dots(&s, vecs);
    s.words = words;
    return s.words[0] == ~(uint64_t)0
               ? softmax_strip(&s, 0, HEADS, scale, all_vecs, 0)
               : softmax_strip(&s, 0, HEADS, scale, vecs, 1);
}

/* The probabilities of all heads; whether any row must be rescaled. */
static int heads_scores(const bt_attention_step *step, float *scale)
{
    int rescale = 0;
    size_t h = 0;
    for (; step->rows == 1 && h + HEADS <= step->heads; h += HEADS)
        rescale |= heads_strip(step, h, scale + h);
    for (; h < step->heads; h++) {
        bt_attention_step one = bt_attention_step_of_head(step, h);
        rescale |= forward_scores(&one, scale + h * step->rows);
    }
    return rescale;
}

/* First the scores, then the outputs of several heads together, where all rows
 * see the same keys without a gap. */
static void forward_heads(const bt_attention_step *step)
{
    float scale[FORWARD_ROWS];
    size_t rows = step->rows, ran;
    strip_mask m = step->words ? strip_mask_of(step->words, rows) : strip_full;
    const float *factors = heads_scores(step, scale) ? scale : NULL;
    for (size_t h = 0; h < step->heads; h += ran) {
        ran = m.lo == m.from && m.to == m.hi && rows <= TILE_ROWS
                  ? heads_together(step, factors, m, h)
                  : 0;
        if (ran)
            continue;
        bt_attention_step one = bt_attention_step_of_head(step, h);
        forward_output(&one, factors ? factors + h * rows : NULL);
        ran = 1;
    }
}

void TWIN(bt_attention_forward_f32)(const bt_attention_step *step)
{
    if (step->heads == 1) {
        forward_head(step);
        return;
    }
    if (step->heads * step->rows <= FORWARD_ROWS) {
        forward_heads(step);
        return;
    }
    for (size_t h = 0; h < step->heads; h++) {
        bt_attention_step one = bt_attention_step_of_head(step, h);
        forward_head(&one);
    }
}

/* ---- Backward ---------------------------------------------------------- */

/* For one row: p from the scores in p, and ds from the dP in ds. */
INLINE void softmax_backward_row(float *p, float *ds, float lse, float delta,
                                 uint64_t word, int masked)
{
    UNROLLED_FOR (size_t v = 0; v < BLOCK_VECS; v++) {
        vf x = vf_sub(vf_load(p + v * VL), vf_set(lse));
        x = vf_min(vf_set(BT_EXP2_MAX), x); // x where x is NaN
        vf e = vf_exp2_where(row_lanes(word, v, masked), x);
        vf d = vf_sub(vf_load(ds + v * VL), vf_set(delta));
        vf_store(p + v * VL, e);
        vf_store(ds + v * VL, vf_mul(e, d));
    }
}

/* The gradients of the scores move to raw, and ds becomes that of the products;
 * raw holds the derivatives of the softcap before. */
INLINE void softcap_backward_row(float *ds, float *raw)
{
    for (size_t v = 0; v < BLOCK_VECS; v++) {
        vf d = vf_load(ds + v * VL);
        vf_store(ds + v * VL, vf_mul(d, vf_load(raw + v * VL)));
        vf_store(raw + v * VL, d);
    }
}

/* One product after the other, so that each keeps its block in the L1 cache. */
static void backward_weights(const bt_attention_grad *g)
{
    dots scores = { g->p, g->q, g->kt, g->head_pad, g->head_dim, NULL };
    dots dp = { g->ds, g->dout, g->vt, g->value_pad, g->value_dim, NULL };
    const dots *both[] = { &scores, &dp };
    for (size_t i = 0; i < 2; i++)
        for (size_t row = 0; row < g->rows; row += TILE_ROWS) {
            size_t n = g->rows - row < TILE_ROWS ? g->rows - row : TILE_ROWS;
            strip_mask m =
                g->words ? strip_mask_of(g->words + row, n) : strip_full;
            dots_visible(both[i], row, n, m);
            bt_prefetch_some(g->prefetch);
        }
    for (size_t row = 0; row < g->rows; row++) {
        float *p = g->p + row * BLOCK, *ds = g->ds + row * BLOCK;
        uint64_t word = g->words ? g->words[row] : ~(uint64_t)0;
        bool cap = g->terms && g->terms->cap != 0.0f;
        if (g->terms && word)
            terms_row(g->terms, row, p, cap ? g->raw + row * BLOCK : NULL, word,
                      0, BLOCK_VECS);
        if (word == ~(uint64_t)0)
            softmax_backward_row(p, ds, g->lse[row], g->delta[row], 0, 0);
        else if (word)
            softmax_backward_row(p, ds, g->lse[row], g->delta[row], word, 1);
        if (cap && word)
            softcap_backward_row(ds, g->raw + row * BLOCK);
    }
}

void TWIN(bt_attention_backward_f32)(const bt_attention_grad *g)
{
    backward_weights(g);
    transposed_sums dv = {
        g->dv, g->p, g->dout, g->words, g->value_pad, g->rows
    };
    transposed_sums dk = { g->dk, g->ds, g->q, g->words, g->head_pad, g->rows };
    sums dq = { .to = g->dq,
                .weight = g->ds,
                .x = g->k,
                .words = g->words,
                .pad = g->head_pad,
                .ahead = g->prefetch };
    transposed_keys(&dv);
    transposed_keys(&dk);
    sums_rows(&dq, g->rows);
}
