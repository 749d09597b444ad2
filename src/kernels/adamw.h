/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.h - a step of AdamW on an array, and the sum of an array's squares.
 *
 * Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in
 * the order of operations of torch.optim.AdamW. For every element, with what
 * bt_adamw holds:
 *
 *     g = gradient * scale
 *     p = p * keep
 *     m = m + (1 - beta1) (g - m)
 *     v = v * beta2 + (1 - beta2) g g
 *     p = p - step * m / (sqrt(v) / root + epsilon)
 *
 * where the sums for m and v are fused multiply-adds and nothing else fuses.
 * PyTorch's steps in tests/data/adamw.h round alike. One C source serves every
 * instruction set, as in softmax.h: square root and division round correctly
 * everywhere. root and step hold what corrects the bias of the moments. */
#ifndef BT_ADAMW_H
#define BT_ADAMW_H

#include <stddef.h>

/* The constants of one step, each computed in double and rounded once. */
typedef struct bt_adamw {
    float scale;          /* of the gradient: what clipping says, or 1 */
    float keep;           /* 1 - rate * weight decay */
    float beta1, weight1; /* weight: 1 - beta */
    float beta2, weight2;
    float root; /* sqrt(1 - beta2^t) */
    float epsilon;
    float step; /* rate / (1 - beta1^t) */
} bt_adamw;

/* All of `count` floats; none overlaps another. */
typedef void bt_adamw_fn(const bt_adamw *a, float *p, float *m, float *v,
                         const float *gradient, size_t count);
/* The sum of x[j]^2 in double, where the squares are exact: element j in lane
 * j % 16, reduced by bt_lanes_sum_double(). */
typedef double bt_squares_fn(const float *x, size_t count);

bt_adamw_fn bt_adamw_f32_c;
bt_squares_fn bt_squares_f32_c;

#endif
