/* SPDX-License-Identifier: Apache-2.0 */
/* pointwise.h - kernels on the elements of arrays: activations, sums, rotary
 * positions, softcap, dropout, a step of AdamW.
 *
 * One C source (pointwise.c) serves every instruction set: without fast-math a
 * compiler can vectorize these loops but not change their bits. The twins take
 * the activations from x86/activations.h, operation by operation the same. */
#ifndef BT_POINTWISE_H
#define BT_POINTWISE_H

#include "backend/op_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Activations -------------------------------------------------------- */

/* The functions of one element are in activations.h. */

/* v = act(x[j]), times by[j] unless `by` is NULL. Then to[j] = v, or to[j] += v
 * with `add`. `to` may be x or `by`. */
typedef void bt_act_fn(bt_act act, float *to, const float *x, const float *by,
                       size_t count, bool add);
/* The same with v = act'(x[j]) * dy[j], times by[j] unless `by` is NULL. */
typedef void bt_act_backward_fn(bt_act act, float *to, const float *x,
                                const float *dy, const float *by, size_t count,
                                bool add);

bt_act_fn bt_act_f32_c;
bt_act_backward_fn bt_act_backward_f32_c;

/* ---- Sums and scaled copies --------------------------------------------- */

/* to[j] = a[j] + b[j]; `to` overlaps neither. */
typedef void bt_add_fn(float *to, const float *a, const float *b, size_t count);
/* to[j] = x[j] * scale or, with `add`, to[j] = fma(x[j], scale, to[j]). With a
 * scale of 1 that is the plain sum. `to` does not overlap x. */
typedef void bt_scale_fn(float *to, const float *x, float scale, size_t count,
                         bool add);

/* to[c] += from[row][c] for each of the rows, in order; rows are `stride`
 * apart. */
typedef void bt_column_sum_fn(float *to, const float *from, size_t stride,
                              size_t rows, size_t count);

bt_add_fn bt_add_f32_c;
bt_scale_fn bt_scale_f32_c;
bt_column_sum_fn bt_column_sum_f32_c;

/* ---- Rotary positions --------------------------------------------------- */

/* RoPE in the half-split layout. In each head of a row the pair (a, b) in
 * columns c and c + dim / 2 is rotated by the angle position * frequencies[c]:
 *
 *     a cos - b sin,  b cos + a sin
 *
 * each with one product and one fused multiply-add. The angle is a product of
 * doubles, exact for positions below 2^29. Its cosine and sine are computed in
 * double, within 2^-44, by polynomials, so that no bit depends on a C library,
 * and rounded to float. That is cheap compared to rotating all heads, so
 * nothing is saved for the backward pass. */
typedef struct bt_rotary {
    size_t heads, dim;         /* dim is even */
    const uint32_t *positions; /* (rows) */
    const float *frequencies;  /* (dim / 2) */
    const float *x;            /* (rows, heads * dim) */
    float *y;                  /* (rows, heads * dim); overlaps nothing */
    bool back;                 /* rotate by the negative angle */
    bool add;                  /* to what y holds */
    /* Another matrix, rotated by the same angles: keys beside queries. */
    size_t other_heads; /* 0: none */
    const float *other_x;
    float *other_y;
} bt_rotary;

/* Rows first to first + count - 1. */
typedef void bt_rotary_fn(const bt_rotary *rotary, size_t first, size_t count);
bt_rotary_fn bt_rotary_f32_c;

/* ---- Softcap ------------------------------------------------------------ */

/*     y = cap * tanh(x / cap)        t = y / cap        dx = dy * fma(-t, t, 1)
 */

/* y may be x. */
typedef void bt_softcap_fn(float *y, const float *x, float cap, size_t count);
/* dx may be dy; with `add` the result is added to dx, which is not dy. */
typedef void bt_softcap_backward_fn(float *dx, const float *y, const float *dy,
                                    float cap, size_t count, bool add);

bt_softcap_fn bt_softcap_f32_c;
bt_softcap_backward_fn bt_softcap_backward_f32_c;

/* ---- Dropout ------------------------------------------------------------ */

/* Which elements of a row are kept depends only on the seed, the site and the
 * row's token. Sixteen counters serve 64 columns: column c uses word c % 64 /
 * 16 of
 *
 *     bt_philox(counter = { c / 64 * 16 + c % 16, site, token low, high },
 *               key     = { seed low, high })
 *
 * and is kept if that word is not less than `below`. So equal words of
 * consecutive counters serve consecutive columns, which vectorizes. A dropped
 * element becomes 0, even if it was NaN. */
typedef struct bt_dropout {
    size_t columns;
    uint64_t seed;
    uint32_t site;
    uint32_t below;         /* dropout rate times 2^32 */
    float scale;            /* of kept elements */
    const uint64_t *tokens; /* (rows) */
    const float *x;         /* (rows, columns) */
    float *y;               /* (rows, columns); does not overlap x */
    bool add;               /* to what y holds */
} bt_dropout;

/* Rows first to first + count - 1. */
typedef void bt_dropout_fn(const bt_dropout *dropout, size_t first,
                           size_t count);
bt_dropout_fn bt_dropout_f32_c;

/* ---- AdamW -------------------------------------------------------------- */

/* Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in
 * the order of operations of torch.optim.AdamW. For every element, with the
 * constants of bt_adamw:
 *
 *     g = gradient * scale
 *     p = p * keep
 *     m = m + (1 - beta1) (g - m)
 *     v = v * beta2 + (1 - beta2) g g
 *     p = p - step * m / (sqrt(v) / root + epsilon)
 *
 * where the sums for m and v are fused multiply-adds and nothing else is fused.
 * PyTorch's steps in tests/data/adamw.h round the same way. Square root and
 * division are correctly rounded everywhere. root and step include the bias
 * correction of the moments. */

/* The constants of one step, each computed in double and rounded once. */
typedef struct bt_adamw {
    float scale;          /* of the gradient, for clipping; else 1 */
    float keep;           /* 1 - learning rate * weight decay */
    float beta1, weight1; /* weight: 1 - beta */
    float beta2, weight2;
    float root; /* sqrt(1 - beta2^t) */
    float epsilon;
    float step; /* learning rate / (1 - beta1^t) */
} bt_adamw;

/* Arrays of `count` floats that do not overlap. */
typedef void bt_adamw_fn(const bt_adamw *a, float *p, float *m, float *v,
                         const float *gradient, size_t count);
/* The sum of x[j]^2 in double, in which each square is exact: element j in lane
 * j % 16, reduced by bt_lanes_sum_double(). */
typedef double bt_squares_fn(const float *x, size_t count);

bt_adamw_fn bt_adamw_f32_c;
bt_squares_fn bt_squares_f32_c;

#endif
