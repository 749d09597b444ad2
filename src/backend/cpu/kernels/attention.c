/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - the reference of the attention steps, in plain C.
 *
 * It defines the bits: the order of operations in attention.h, one row at a
 * time. Twins may process many rows at once and reorder anything that is not a
 * sum, but may not change the order of any chain. */
#include "backend/cpu/kernels/attention.h"

#include "backend/cpu/kernels/tanh.h"

enum { BLOCK = 64 };

static int visible(const uint64_t *words, size_t row, size_t j)
{
    return !words || (words[row] >> j & 1);
}

void bt_transpose_f32_c(float *to, const float *from, size_t stride,
                        size_t keys, size_t columns)
{
    for (size_t c = 0; c < columns; c++)
        for (size_t j = 0; j < BLOCK; j++)
            to[bt_key_at(columns, j, c)] =
                j < keys ? from[j * stride + c] : 0.0f;
}

/* The dot product of a row and column j of a transposed block, as one chain. */
static float dot(const float *row, const float *block, size_t columns, size_t j)
{
    float sum = 0.0f;
    for (size_t c = 0; c < columns; c++)
        sum = fmaf(row[c], block[bt_key_at(columns, j, c)], sum);
    return sum;
}

/* The score of row and key j from their product x. */
static float score_of(const bt_score_terms *terms, float x, size_t row,
                      size_t j)
{
    if (terms && terms->cap != 0.0f)
        x = terms->cap * bt_tanh(x);
    if (terms && terms->bias)
        x = fmaf(terms->bias[row][j], (float)BT_LOG2E, x);
    return x;
}

/* Scores, then probabilities p of one row, and its new m and l. Returns the
 * factor that rescales the earlier blocks. */
static float forward_row(const bt_attention_step *s, size_t row)
{
    float *p = s->p + row * BLOCK, *l = s->l + row * BT_LANES;
    float max = s->m[row];
    for (size_t j = 0; j < BLOCK; j++) {
        if (!visible(s->words, row, j))
            continue;
        p[j] = score_of(s->terms,
                        dot(s->q + row * s->head_pad, s->kt, s->head_dim, j),
                        row, j);
        if (p[j] > max)
            max = p[j];
    }
    float base = max == -INFINITY ? 0.0f : max;
    float a = bt_exp2(s->m[row] - base);
    s->m[row] = max;
    for (size_t t = 0; t < BT_LANES; t++)
        l[t] *= a;
    for (size_t j = 0; j < BLOCK; j++) {
        if (!visible(s->words, row, j))
            continue;
        p[j] = bt_exp2(p[j] - base);
        l[j % BT_LANES] += p[j];
    }
    return a;
}

static void forward_head(const bt_attention_step *s)
{
    for (size_t row = 0; row < s->rows; row++) {
        float a = forward_row(s, row);
        float *o = s->o + row * s->value_pad;
        for (size_t e = 0; e < s->value_pad; e++) {
            size_t width = bt_value_panel_width(s->value_pad, e);
            const float *v =
                s->v + bt_value_panel_start(e) + e % BT_VALUE_PANEL;
            o[e] *= a;
            for (size_t j = 0; j < BLOCK; j++)
                if (visible(s->words, row, j))
                    o[e] = fmaf(s->p[row * BLOCK + j], v[j * width], o[e]);
        }
    }
}

void bt_attention_forward_f32_c(const bt_attention_step *step)
{
    for (size_t h = 0; h < step->heads; h++) {
        bt_attention_step one = bt_attention_step_of_head(step, h);
        forward_head(&one);
    }
}

/* p and ds of one row. */
static void backward_row(const bt_attention_grad *g, size_t row)
{
    float *p = g->p + row * BLOCK, *ds = g->ds + row * BLOCK;
    for (size_t j = 0; j < BLOCK; j++) {
        if (!visible(g->words, row, j))
            continue;
        float x = dot(g->q + row * g->head_pad, g->kt, g->head_dim, j);
        float dp = dot(g->dout + row * g->value_pad, g->vt, g->value_dim, j);
        p[j] = bt_exp2(score_of(g->terms, x, row, j) - g->lse[row]);
        ds[j] = p[j] * (dp - g->delta[row]);
        if (g->terms && g->terms->cap != 0.0f) {
            float t = bt_tanh(x);
            g->raw[row * BLOCK + j] = ds[j];
            ds[j] *= fmaf(-t, t, 1.0f);
        }
    }
}

/* to += weight * from, over the columns. */
static void add_row(float *to, float weight, const float *from, size_t columns)
{
    for (size_t c = 0; c < columns; c++)
        to[c] = fmaf(weight, from[c], to[c]);
}

void bt_attention_backward_f32_c(const bt_attention_grad *g)
{
    for (size_t row = 0; row < g->rows; row++) {
        backward_row(g, row);
        for (size_t j = 0; j < BLOCK; j++) {
            if (!visible(g->words, row, j))
                continue;
            float p = g->p[row * BLOCK + j], ds = g->ds[row * BLOCK + j];
            add_row(g->dq + row * g->head_pad, ds, g->k + j * g->head_pad,
                    g->head_pad);
            add_row(g->dk + j * g->head_pad, ds, g->q + row * g->head_pad,
                    g->head_pad);
            add_row(g->dv + j * g->value_pad, p, g->dout + row * g->value_pad,
                    g->value_pad);
        }
    }
}
