/* SPDX-License-Identifier: Apache-2.0 */
/* pointwise.c - the reference kernels of pointwise.h. x86/pointwise_*.c include
 * this file with another KERNEL to compile the twins. */
#include "backend/cpu/kernels/pointwise.h"

#include "backend/cpu/kernels/activations.h"
#include "backend/cpu/kernels/cos_sin.h"
#include "backend/cpu/kernels/lanes.h"
#include "backend/cpu/kernels/tanh.h"

#include <math.h>
#include <string.h>

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

/* ---- Activations -------------------------------------------------------- */

/* Values are computed into a local array of a few hundred elements and then
 * stored: so each function of activations.h is called in one plain loop, also
 * where the arguments overlap. The twins have functions of vectors. */

enum { ACT_CHUNK = 256 };

#ifndef BT_ACTIVATIONS_X86_H

#define APPLY(function)                \
    for (size_t j = 0; j < count; j++) \
        to[j] = function(x[j]);        \
    break

static void act_values(bt_act act, float *restrict to, const float *restrict x,
                       size_t count)
{
    switch (act) {
    case BT_ACT_RELU:
        APPLY(bt_relu);
    case BT_ACT_GELU_ERF:
        APPLY(bt_gelu_erf);
    case BT_ACT_GELU_TANH:
        APPLY(bt_gelu_tanh);
    case BT_ACT_SILU:
        APPLY(bt_silu);
    }
}

static void act_derivatives(bt_act act, float *restrict to,
                            const float *restrict x, size_t count)
{
    switch (act) {
    case BT_ACT_RELU:
        APPLY(bt_relu_grad);
    case BT_ACT_GELU_ERF:
        APPLY(bt_gelu_erf_grad);
    case BT_ACT_GELU_TANH:
        APPLY(bt_gelu_tanh_grad);
    case BT_ACT_SILU:
        APPLY(bt_silu_grad);
    }
}

#else

#define APPLY(function)                    \
    for (size_t j = 0; j < count; j += VL) \
    vf_store_lanes(to + j, function(vf_load_lanes(x + j, count - j)), count - j)

static void act_values(bt_act act, float *to, const float *x, size_t count)
{
    ACT_SWITCH(act, , APPLY)
}

static void act_derivatives(bt_act act, float *to, const float *x, size_t count)
{
    ACT_SWITCH(act, _grad, APPLY)
}

#endif

static void multiply_by(float *restrict v, const float *restrict by,
                        size_t count)
{
    for (size_t j = 0; j < count; j++)
        v[j] *= by[j];
}

static void store(float *restrict to, const float *restrict v, size_t count,
                  bool add)
{
    if (add)
        for (size_t j = 0; j < count; j++)
            to[j] += v[j];
    else
        for (size_t j = 0; j < count; j++)
            to[j] = v[j];
}

void KERNEL(bt_act_f32)(bt_act act, float *to, const float *x, const float *by,
                        size_t count, bool add)
{
    float v[ACT_CHUNK];
    for (size_t j = 0, n; j < count; j += n) {
        n = count - j < ACT_CHUNK ? count - j : ACT_CHUNK;
        act_values(act, v, x + j, n);
        if (by)
            multiply_by(v, by + j, n);
        store(to + j, v, n, add);
    }
}

void KERNEL(bt_act_backward_f32)(bt_act act, float *to, const float *x,
                                 const float *dy, const float *by, size_t count,
                                 bool add)
{
    float v[ACT_CHUNK];
    for (size_t j = 0, n; j < count; j += n) {
        n = count - j < ACT_CHUNK ? count - j : ACT_CHUNK;
        act_derivatives(act, v, x + j, n);
        multiply_by(v, dy + j, n);
        if (by)
            multiply_by(v, by + j, n);
        store(to + j, v, n, add);
    }
}

/* ---- Sums and scaled copies --------------------------------------------- */

void KERNEL(bt_add_f32)(float *restrict to, const float *a, const float *b,
                        size_t count)
{
    for (size_t j = 0; j < count; j++)
        to[j] = a[j] + b[j];
}

void KERNEL(bt_scale_f32)(float *restrict to, const float *restrict x,
                          float scale, size_t count, bool add)
{
    if (add)
        for (size_t j = 0; j < count; j++)
            to[j] = fmaf(x[j], scale, to[j]);
    else
        for (size_t j = 0; j < count; j++)
            to[j] = x[j] * scale;
}

/* Some columns, whose sums stay in registers. The parts of the rows are far
 * apart, so the hardware does not prefetch them. */
enum {
    SUM_VECTORS = 4,
    SUM_COLUMNS = SUM_VECTORS * BT_LANES,
    SUM_AHEAD = 8 /* rows */
};

static void sum_columns(float *to, const float *from, size_t stride,
                        size_t rows)
{
    bt_sixteen sum[SUM_VECTORS], x[SUM_VECTORS];
    memcpy(sum, to, sizeof(sum));
    for (size_t row = 0; row < rows; row++, from += stride) {
        const float *ahead = from + SUM_AHEAD * stride;
        memcpy(x, from, sizeof(x));
        for (size_t v = 0; v < SUM_VECTORS; v++) {
            __builtin_prefetch(ahead + v * BT_LANES);
            sum[v] += x[v];
        }
    }
    memcpy(to, sum, sizeof(sum));
}

void KERNEL(bt_column_sum_f32)(float *to, const float *from, size_t stride,
                               size_t rows, size_t count)
{
    size_t c = 0;
    for (; c + SUM_COLUMNS <= count; c += SUM_COLUMNS)
        sum_columns(to + c, from + c, stride, rows);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = c; i < count; i++)
            to[i] += from[row * stride + i];
}

/* ---- Rotary positions --------------------------------------------------- */

enum { ROTARY_CHUNK = 64 }; /* columns at a time */

static void cos_sin_of_position(float *restrict cosine, float *restrict sine,
                                double position,
                                const float *restrict frequencies, size_t count)
{
    for (size_t c = 0; c < count; c++)
        bt_cos_sin(position * (double)frequencies[c], &cosine[c], &sine[c]);
}

/* Rotate the pairs of some columns of one head. */
static void rotate(float *restrict y, const float *restrict x, size_t half,
                   const float *restrict cosine, const float *restrict sine,
                   size_t count, bool add)
{
    float *restrict y2 = y + half;
    const float *restrict x2 = x + half;
    for (size_t c = 0; c < count; c++) {
        float a = fmaf(-x2[c], sine[c], x[c] * cosine[c]);
        float b = fmaf(x[c], sine[c], x2[c] * cosine[c]);
        y[c] = add ? y[c] + a : a;
        y2[c] = add ? y2[c] + b : b;
    }
}

/* The same for all heads of a row. */
static void rotate_heads(float *y, const float *x, size_t heads, size_t dim,
                         const float *cosine, const float *sine, size_t count,
                         bool add)
{
    for (size_t h = 0; h < heads; h++)
        rotate(y + h * dim, x + h * dim, dim / 2, cosine, sine, count, add);
}

void KERNEL(bt_rotary_f32)(const bt_rotary *rotary, size_t first, size_t count)
{
    float cosine[ROTARY_CHUNK], sine[ROTARY_CHUNK];
    size_t dim = rotary->dim, half = dim / 2;
    for (size_t i = first; i < first + count; i++) {
        double position = (double)rotary->positions[i];
        if (rotary->back)
            position = -position;
        for (size_t c = 0, n; c < half; c += n) {
            n = half - c < ROTARY_CHUNK ? half - c : ROTARY_CHUNK;
            cos_sin_of_position(cosine, sine, position, rotary->frequencies + c,
                                n);
            size_t at = i * rotary->heads * dim + c;
            rotate_heads(rotary->y + at, rotary->x + at, rotary->heads, dim,
                         cosine, sine, n, rotary->add);
            at = i * rotary->other_heads * dim + c;
            if (rotary->other_heads)
                rotate_heads(rotary->other_y + at, rotary->other_x + at,
                             rotary->other_heads, dim, cosine, sine, n,
                             rotary->add);
        }
    }
}

/* ---- Softcap ------------------------------------------------------------ */

void KERNEL(bt_softcap_f32)(float *y, const float *x, float cap, size_t count)
{
    for (size_t j = 0; j < count; j++)
        y[j] = cap * bt_tanh(x[j] / cap);
}

void KERNEL(bt_softcap_backward_f32)(float *dx, const float *y, const float *dy,
                                     float cap, size_t count, bool add)
{
    for (size_t j = 0; j < count; j++) {
        float t = y[j] / cap;
        float d = dy[j] * fmaf(-t, t, 1.0f);
        dx[j] = add ? dx[j] + d : d;
    }
}

/* ---- Dropout ------------------------------------------------------------ */

enum { WAYS = 16, DROPOUT_CHUNK = 4 * WAYS };

/* One round of bt_philox(). */
#define PHILOX_ROUND(k0, k1)                     \
    do {                                         \
        uint64_t a = (uint64_t)c0 * 0xD2511F53u; \
        uint64_t b = (uint64_t)c2 * 0xCD9E8D57u; \
        c0 = (uint32_t)(b >> 32) ^ c1 ^ (k0);    \
        c1 = (uint32_t)b;                        \
        c2 = (uint32_t)(a >> 32) ^ c3 ^ (k1);    \
        c3 = (uint32_t)a;                        \
    } while (0)

/* bt_philox() of sixteen consecutive counters: word w of counter i is at
 * w * 16 + i. The rounds are unrolled by hand, which leaves one plain loop. */
static void philox_words(uint32_t *restrict words, const bt_dropout *dropout,
                         uint64_t token, uint32_t counter)
{
    uint32_t k[2][10];
    for (uint32_t r = 0; r < 10; r++) {
        k[0][r] = (uint32_t)dropout->seed + r * 0x9E3779B9u;
        k[1][r] = (uint32_t)(dropout->seed >> 32) + r * 0xBB67AE85u;
    }
    uint32_t site = dropout->site, low = (uint32_t)token;
    uint32_t high = (uint32_t)(token >> 32);
    for (uint32_t i = 0; i < WAYS; i++) {
        uint32_t c0 = counter + i, c1 = site, c2 = low, c3 = high;
        PHILOX_ROUND(k[0][0], k[1][0]);
        PHILOX_ROUND(k[0][1], k[1][1]);
        PHILOX_ROUND(k[0][2], k[1][2]);
        PHILOX_ROUND(k[0][3], k[1][3]);
        PHILOX_ROUND(k[0][4], k[1][4]);
        PHILOX_ROUND(k[0][5], k[1][5]);
        PHILOX_ROUND(k[0][6], k[1][6]);
        PHILOX_ROUND(k[0][7], k[1][7]);
        PHILOX_ROUND(k[0][8], k[1][8]);
        PHILOX_ROUND(k[0][9], k[1][9]);
        words[i] = c0;
        words[WAYS + i] = c1;
        words[2 * WAYS + i] = c2;
        words[3 * WAYS + i] = c3;
    }
}

static void dropout_apply(float *restrict y, const float *restrict x,
                          const uint32_t *restrict words,
                          const bt_dropout *dropout, size_t count)
{
    uint32_t below = dropout->below;
    float scale = dropout->scale;
    bool add = dropout->add;
    for (size_t c = 0; c < count; c++) {
        float scaled = x[c] * scale;
        float v = words[c] >= below ? scaled : 0.0f;
        y[c] = add ? y[c] + v : v;
    }
}

void KERNEL(bt_dropout_f32)(const bt_dropout *dropout, size_t first,
                            size_t count)
{
    uint32_t words[DROPOUT_CHUNK];
    size_t columns = dropout->columns;
    for (size_t i = first; i < first + count; i++)
        for (size_t c = 0, n; c < columns; c += n) {
            n = columns - c < DROPOUT_CHUNK ? columns - c : DROPOUT_CHUNK;
            philox_words(words, dropout, dropout->tokens[i], (uint32_t)(c / 4));
            dropout_apply(dropout->y + i * columns + c,
                          dropout->x + i * columns + c, words, dropout, n);
        }
}

/* ---- AdamW -------------------------------------------------------------- */

/* Parameters come from memory, and the hardware prefetches no further than to
 * the end of a page. */
enum { PAGE_FLOATS = 4096 / sizeof(float) };

/* Linear interpolation from m to g, computed from the nearer end as torch.lerp
 * does, so that beta1 = 0 gives g exactly. */
static inline float lerp_moment(const bt_adamw *a, float m, float g)
{
    return a->weight1 < 0.5f ? fmaf(a->weight1, g - m, m)
                             : fmaf(-a->beta1, g - m, g);
}

static inline void adamw_elements(bt_adamw c, float *restrict p,
                                  float *restrict m, float *restrict v,
                                  const float *restrict gradient, size_t count)
{
    for (size_t j = 0; j < count; j++) {
        float g = gradient[j] * c.scale;
        m[j] = lerp_moment(&c, m[j], g);
        v[j] = fmaf(c.weight2 * g, g, v[j] * c.beta2);
        float size = sqrtf(v[j]) / c.root + c.epsilon;
        p[j] = p[j] * c.keep - c.step * m[j] / size;
    }
}

void KERNEL(bt_adamw_f32)(const bt_adamw *a, float *restrict p,
                          float *restrict m, float *restrict v,
                          const float *restrict gradient, size_t count)
{
    const bt_adamw c = *a; // a copy that the stores cannot alias
    size_t j = 0;
    for (; j + BT_LANES <= count; j += BT_LANES) {
        __builtin_prefetch(p + j + PAGE_FLOATS);
        __builtin_prefetch(m + j + PAGE_FLOATS);
        __builtin_prefetch(v + j + PAGE_FLOATS);
        __builtin_prefetch(gradient + j + PAGE_FLOATS);
        adamw_elements(c, p + j, m + j, v + j, gradient + j, BT_LANES);
    }
    adamw_elements(c, p + j, m + j, v + j, gradient + j, count - j);
}

double KERNEL(bt_squares_f32)(const float *x, size_t count)
{
    double lanes[BT_LANES] = { 0 };
    size_t j = 0;
    for (; j + BT_LANES <= count; j += BT_LANES) {
        __builtin_prefetch(x + j + PAGE_FLOATS);
        for (size_t t = 0; t < BT_LANES; t++)
            lanes[t] += (double)x[j + t] * (double)x[j + t];
    }
    for (size_t t = 0; j < count; j++, t++)
        lanes[t] += (double)x[j] * (double)x[j];
    return bt_lanes_sum_double(lanes);
}
