/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tiles.h - the products of attention's steps, for AVX2 and AVX-512:
 * two kinds, in register tiles of up to 6 rows x TILE_VECS vectors, each
 * accumulator one chain:
 *
 *   dots   lanes are keys:    sum over d of row[d] * block[d][lanes]
 *          (scores; dP)
 *   sums   lanes are columns: sum over t of weight[t] * x[t][lanes]
 *          (output and dQ, t over the keys; dK and dV, t over the rows)
 *
 * A partial block costs about as much as its visible part: vectors of keys that
 * none of the six rows sees are not computed, and a hidden (row, key) is left
 * out of a chain by predication. */
#ifndef BT_ATTENTION_TILES_X86_H
#define BT_ATTENTION_TILES_X86_H

#include "backend/cpu/kernels/attention.h"

#include "backend/cpu/kernels/x86/simd.h"
#include "backend/cpu/kernels/x86/transpose.h"

#include <stdbool.h>

/* The register tile: TILE_ROWS x TILE_VECS accumulators, TILE_VECS loaded
 * vectors and one broadcast, of 32 registers or 16. One or two rows take up to
 * WIDE_VECS vectors, since the chains of fewer would wait for each other. */
enum {
    BLOCK_VECS = BLOCK / VL,
    TILE_ROWS = 6,
    TILE_VECS = VL / 4,
    WIDE_VECS = VL == 8 ? 8 : TILE_VECS
};

/* The vectors of a tile of some rows, of `left` that are left. */
INLINE size_t tile_width(size_t rows, size_t left)
{
    size_t most = rows == 1 ? WIDE_VECS : rows == 2 ? 4 : TILE_VECS;
    if (left >= most)
        return most;
    return left < 4 || TILE_VECS == 4 ? left : 4;
}

/* Run CALL(R, V) with R and V as constants. R rows, 1 to 6; V vectors, as
 * tile_width() returns them. */
#define TILE_CASE(rows, vecs, CALL) \
    case (rows)*16 + (vecs):        \
        CALL(rows, vecs);           \
        break;
#define TILE_WIDE(rows, CALL) \
    TILE_CASE(rows, 1, CALL)  \
    TILE_CASE(rows, 2, CALL)  \
    TILE_CASE(rows, 3, CALL)  \
    TILE_CASE(rows, 4, CALL)
#if defined(__AVX512F__)
#define TILE_FEW(CALL) \
    TILE_WIDE(1, CALL) \
    TILE_WIDE(2, CALL)
#define TILE_CASES(rows, CALL) TILE_WIDE(rows, CALL)
#else
#define TILE_FEW(CALL)    \
    TILE_WIDE(1, CALL)    \
    TILE_CASE(1, 8, CALL) \
    TILE_WIDE(2, CALL)
#define TILE_CASES(rows, CALL) \
    TILE_CASE(rows, 1, CALL)   \
    TILE_CASE(rows, 2, CALL)
#endif
#define TILE_SWITCH(rows, vecs, CALL) \
    switch ((rows)*16 + (vecs)) {     \
        TILE_FEW(CALL)                \
        TILE_CASES(3, CALL)           \
        TILE_CASES(4, CALL)           \
        TILE_CASES(5, CALL)           \
        TILE_CASES(6, CALL)           \
    }

/* With few rows, in decoding, memory is the limit. So while a block's keys are
 * read, its values are prefetched, and while its values are read, the next
 * block's keys. */
INLINE void prefetch_stream(const float *next, size_t R, size_t V)
{
    enum { FEW = 4, LINE = 64 / sizeof(float) };
    for (size_t line = 0; R <= FEW && line < V * VL; line += LINE)
        prefetch(next + line);
}

/* ---- Dots: lanes are keys ---------------------------------------------- */

typedef struct dots {
    float *to;          /* (rows, 64) */
    const float *row;   /* (rows, pad) */
    const float *block; /* transposed */
    size_t pad, columns;
    const float *next; /* read after the block, if known; or NULL */
} dots;

/* prefetch_stream() of the lines that hold the vectors at[0] to at[V - 1]. */
INLINE void prefetch_groups(const float *next, const size_t *at, size_t R,
                            size_t V)
{
    UNROLLED_FOR (size_t v = 0; v < V; v++)
        if (v * VL % BT_KEY_GROUP == 0)
            prefetch_stream(next + at[v], R, 1);
}

/* `top`, which may be NULL, receives the largest dots of each row, lane by
 * lane; NaN is ignored. */
INLINE void dots_tile(const dots *a, size_t row, size_t vec, size_t R, size_t V,
                      vf *top)
{
    enum { GROUP = BT_KEY_GROUP };
    vf sum[TILE_ROWS][WIDE_VECS];
    size_t at[WIDE_VECS];
    const float *x = a->row + row * a->pad, *b = a->block;
    const float *next = a->next ? a->next : a->block;
    UNROLLED_FOR (size_t v = 0; v < V; v++)
        at[v] = bt_key_at(a->columns, (vec + v) * VL, 0);
    UNROLLED_FOR (size_t r = 0; r < R; r++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            sum[r][v] = vf_set(0.0f);
    FOUR_STEPS_FOR(size_t c = 0; c < a->columns; c++)
    {
        vf y[WIDE_VECS];
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            y[v] = vf_load(b + at[v] + c * GROUP);
        prefetch_groups(next + c * GROUP, at, R, V);
        UNROLLED_FOR (size_t r = 0; r < R; r++) {
            vf w = vf_set(x[r * a->pad + c]);
            UNROLLED_FOR (size_t v = 0; v < V; v++)
                sum[r][v] = vf_fma(w, y[v], sum[r][v]);
        }
    }
    float *to = a->to + row * BLOCK + vec * VL;
    UNROLLED_FOR (size_t r = 0; r < R; r++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            vf_store(to + r * BLOCK + v * VL, sum[r][v]);
    if (!top)
        return;
    UNROLLED_FOR (size_t r = 0; r < R; r++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            top[r] = vf_max(sum[r][v], top[r]);
}

/* The dots of a strip of rows with key vectors first to end - 1. */
static void dots_strip(const dots *a, size_t row, size_t rows, size_t first,
                       size_t end)
{
    for (size_t vec = first, vecs; vec < end; vec += vecs) {
        vecs = tile_width(rows, end - vec);
#define CALL(R, V) dots_tile(a, row, vec, R, V, NULL)
        TILE_SWITCH(rows, vecs, CALL)
#undef CALL
    }
}

/* ---- The mask of a strip ----------------------------------------------- */

/* Every key that some row of a strip sees is in [lo, hi). Every row sees all
 * keys in [from, to). */
typedef struct strip_mask {
    size_t lo, from, to, hi;
} strip_mask;

static const strip_mask strip_full = { 0, 0, BLOCK, BLOCK };

static strip_mask strip_mask_of(const uint64_t *words, size_t rows)
{
    uint64_t any = 0, all = ~(uint64_t)0;
    for (size_t r = 0; r < rows; r++) {
        any |= words[r];
        all &= words[r];
    }
    strip_mask m = { 0, 0, 0, 0 };
    if (!any)
        return m;
    m.lo = (size_t)__builtin_ctzll(any);
    m.hi = BLOCK - (size_t)__builtin_clzll(any);
    m.from = m.to = m.hi;
    if (all) {
        m.from = (size_t)__builtin_ctzll(all);
        uint64_t hidden = ~(all >> m.from); // 0 only if all is full
        m.to = hidden ? m.from + (size_t)__builtin_ctzll(hidden) : BLOCK;
    }
    return m;
}

/* The strip's dots with the keys that some row sees. */
static void dots_visible(const dots *a, size_t row, size_t rows, strip_mask m)
{
    if (m.hi > m.lo)
        dots_strip(a, row, rows, m.lo / VL, (m.hi + VL - 1) / VL);
}

/* ---- Sums: lanes are columns ------------------------------------------- */

/* to[r] = to[r] * scale[r] + sum over keys j of weight[r][j] * x[j]. */
typedef struct sums {
    float *to;           /* (rows, pad) */
    const float *weight; /* (rows, 64) */
    const float *x;      /* (64, pad), or the same in panels */
    bool panels;
    const float *scale;    /* (rows) or NULL */
    const uint64_t *words; /* (rows) or NULL */
    size_t pad;
    const float *next;  /* read after x, if known; or NULL */
    bt_prefetch *ahead; /* or NULL */
} sums;

INLINE void sums_load(vf sum[TILE_ROWS][WIDE_VECS], const float *from,
                      size_t pad, const float *scale, size_t R, size_t V)
{
    UNROLLED_FOR (size_t r = 0; r < R; r++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            sum[r][v] = vf_load(from + r * pad + v * VL);
    if (!scale)
        return;
    UNROLLED_FOR (size_t r = 0; r < R; r++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            sum[r][v] = vf_mul(sum[r][v], vf_set(scale[r]));
}

INLINE void sums_store(float *to, size_t pad, vf sum[TILE_ROWS][WIDE_VECS],
                       size_t R, size_t V)
{
    UNROLLED_FOR (size_t r = 0; r < R; r++)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            vf_store(to + r * pad + v * VL, sum[r][v]);
}

/* Keys from to end - 1, which all rows see. */
INLINE void sums_plain(vf sum[TILE_ROWS][WIDE_VECS], const float *weight,
                       const float *x, size_t pad, size_t from, size_t end,
                       const float *next, size_t R, size_t V)
{
    for (size_t j = from; j < end; j++) {
        vf y[WIDE_VECS];
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            y[v] = vf_load(x + j * pad + v * VL);
        prefetch_stream(next + j * pad, R, V);
        UNROLLED_FOR (size_t r = 0; r < R; r++) {
            vf w = vf_set(weight[r * BLOCK + j]);
            UNROLLED_FOR (size_t v = 0; v < V; v++)
                sum[r][v] = vf_fma(w, y[v], sum[r][v]);
        }
    }
}

/* Add w * x to the sums of a row if it sees the key. AVX2 branches: a blend
 * takes longer than a multiply-add, and rows that see a part of a block see it
 * in a regular pattern. */
INLINE void add_seen(vf *sum, float weight, const vf *x, uint64_t seen,
                     size_t V)
{
    vf w = vf_set(weight);
#if defined(__AVX512F__)
    vm m = vm_whole((int)seen);
    UNROLLED_FOR (size_t v = 0; v < V; v++)
        sum[v] = vf_fma_where(m, w, x[v], sum[v]);
#else
    if (seen)
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            sum[v] = vf_fma(w, x[v], sum[v]);
#endif
}

/* Keys from to end - 1, each seen by the rows whose bits are set. */
INLINE void sums_masked(vf sum[TILE_ROWS][WIDE_VECS], const float *weight,
                        const uint64_t *words, const float *x, size_t pad,
                        size_t from, size_t end, size_t R, size_t V)
{
    for (size_t j = from; j < end; j++) {
        vf y[WIDE_VECS];
        UNROLLED_FOR (size_t v = 0; v < V; v++)
            y[v] = vf_load(x + j * pad + v * VL);
        UNROLLED_FOR (size_t r = 0; r < R; r++)
            add_seen(sum[r], weight[r * BLOCK + j], y, words[r] >> j & 1, V);
    }
}

/* The columns that a tile takes: x points to them, rows `stride` apart. */
typedef struct sums_panel {
    size_t column, vecs;
    const float *x;
    size_t stride;
} sums_panel;

static sums_panel sums_panel_at(const sums *a, size_t column, size_t rows)
{
    sums_panel p = { column, tile_width(rows, (a->pad - column) / VL),
                     a->x + column, a->pad };
    if (a->panels) {
        p.x = a->x + bt_value_panel_start(column) + column % BT_VALUE_PANEL;
        p.stride = bt_value_panel_width(a->pad, column);
        size_t left = (p.stride - column % BT_VALUE_PANEL) / VL;
        p.vecs = tile_width(rows, left);
    }
    return p;
}

INLINE void sums_tile(const sums *a, const sums_panel *p, size_t row,
                      strip_mask m, size_t R, size_t V)
{
    vf sum[TILE_ROWS][WIDE_VECS];
    float *to = a->to + row * a->pad + p->column;
    const float *weight = a->weight + row * BLOCK;
    sums_load(sum, to, a->pad, a->scale ? a->scale + row : NULL, R, V);
    if (m.lo < m.from)
        sums_masked(sum, weight, a->words + row, p->x, p->stride, m.lo, m.from,
                    R, V);
    sums_plain(sum, weight, p->x, p->stride, m.from, m.to,
               (a->next ? a->next : a->x) + (p->x - a->x), R, V);
    if (m.to < m.hi)
        sums_masked(sum, weight, a->words + row, p->x, p->stride, m.to, m.hi, R,
                    V);
    sums_store(to, a->pad, sum, R, V);
}

/* Six rows that see all keys, as most do. With one loop instead of three, the
 * compiler spills no sums. */
static void sums_full(const sums *a, const sums_panel *p, size_t row)
{
    vf sum[TILE_ROWS][WIDE_VECS];
    float *to = a->to + row * a->pad + p->column;
    sums_load(sum, to, a->pad, a->scale ? a->scale + row : NULL, TILE_ROWS,
              TILE_VECS);
    sums_plain(sum, a->weight + row * BLOCK, p->x, p->stride, 0, BLOCK, p->x,
               TILE_ROWS, TILE_VECS);
    sums_store(to, a->pad, sum, TILE_ROWS, TILE_VECS);
}

static void sums_strip(const sums *a, const sums_panel *p, size_t row,
                       size_t rows, strip_mask m)
{
    if (rows == TILE_ROWS && p->vecs == TILE_VECS && m.to - m.from == BLOCK) {
        sums_full(a, p, row);
        return;
    }
#define CALL(R, V) sums_tile(a, p, row, m, R, V)
    TILE_SWITCH(rows, p->vecs, CALL)
#undef CALL
}

/* All rows, one panel of columns at a time so that x stays in the L1 cache. */
static void sums_rows(const sums *a, size_t rows)
{
    sums_panel p;
    for (size_t column = 0; column < a->pad; column += p.vecs * VL) {
        p = sums_panel_at(a, column, rows);
        for (size_t row = 0; row < rows; row += TILE_ROWS) {
            size_t n = rows - row < TILE_ROWS ? rows - row : TILE_ROWS;
            strip_mask m =
                a->words ? strip_mask_of(a->words + row, n) : strip_full;
            if (m.hi > m.lo)
                sums_strip(a, &p, row, n, m);
            bt_prefetch_some(a->ahead);
        }
    }
}

/* ---- Sums over rows: to[j] += sum over rows r of weight[r][j] * x[r] ---- */

typedef struct transposed_sums {
    float *to;             /* (64, pad) */
    const float *weight;   /* (rows, 64) */
    const float *x;        /* (rows, pad) */
    const uint64_t *words; /* (rows) or NULL */
    size_t pad, rows;
} transposed_sums;

/* Which of the R keys from `key` on row i sees, lowest bit first. */
INLINE uint64_t transposed_visible(const transposed_sums *a, size_t i,
                                   size_t key, size_t R)
{
    uint64_t whole = ((uint64_t)1 << R) - 1;
    return a->words ? a->words[i] >> key & whole : whole;
}

/* One row, with the keys whose bits are set. */
INLINE void transposed_masked(vf sum[TILE_ROWS][WIDE_VECS], const float *weight,
                              const float *x, uint64_t seen, size_t R, size_t V)
{
    vf y[WIDE_VECS];
    UNROLLED_FOR (size_t v = 0; v < V; v++)
        y[v] = vf_load(x + v * VL);
    UNROLLED_FOR (size_t r = 0; r < R; r++)
        add_seen(sum[r], weight[r], y, seen >> r & 1, V);
}

INLINE void transposed_tile(const transposed_sums *a, size_t key, size_t column,
                            size_t R, size_t V)
{
    vf sum[TILE_ROWS][WIDE_VECS];
    float *to = a->to + key * a->pad + column;
    const float *weight = a->weight + key, *x = a->x + column;
    const uint64_t whole = ((uint64_t)1 << R) - 1;
    sums_load(sum, to, a->pad, NULL, R, V);
    for (size_t i = 0; i < a->rows; i++) {
        uint64_t seen = 0;
        for (; i < a->rows; i++) { // rows that see all R keys
            seen = transposed_visible(a, i, key, R);
            if (seen != whole)
                break;
            vf y[WIDE_VECS];
            UNROLLED_FOR (size_t v = 0; v < V; v++)
                y[v] = vf_load(x + i * a->pad + v * VL);
            UNROLLED_FOR (size_t r = 0; r < R; r++) {
                vf w = vf_set(weight[i * BLOCK + r]);
                UNROLLED_FOR (size_t v = 0; v < V; v++)
                    sum[r][v] = vf_fma(w, y[v], sum[r][v]);
            }
        }
        if (i < a->rows && seen)
            transposed_masked(sum, weight + i * BLOCK, x + i * a->pad, seen, R,
                              V);
    }
    sums_store(to, a->pad, sum, R, V);
}

static void transposed_keys(const transposed_sums *a)
{
    for (size_t column = 0; column < a->pad; column += TILE_VECS * VL) {
        size_t vecs = (a->pad - column) / VL;
        if (vecs > TILE_VECS)
            vecs = TILE_VECS;
        for (size_t key = 0; key < BLOCK; key += TILE_ROWS) {
            size_t n = BLOCK - key < TILE_ROWS ? BLOCK - key : TILE_ROWS;
#define CALL(R, V) transposed_tile(a, key, column, R, V)
            TILE_SWITCH(n, vecs, CALL)
#undef CALL
        }
    }
}

#endif
