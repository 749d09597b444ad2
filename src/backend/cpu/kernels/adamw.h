/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.h - an AdamW step on an array, and the sum of squares of an array.
 *
 * Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, in
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
 * PyTorch's steps in tests/data/adamw.h round the same way. One C source serves
 * every instruction set, as in softmax.h: square root and division are
 * correctly rounded everywhere. root and step include the bias correction of
 * the moments.
 */
#ifndef BT_ADAMW_H
#define BT_ADAMW_H

#include <stddef.h>

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
