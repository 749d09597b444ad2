/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.h - the exponential of an array, and the parts of a row's softmax.
 *
 * One C source serves every instruction set: without fast-math a compiler can
 * vectorize these loops but not change their bits. Sums are kept in sixteen
 * lanes, element j in lane j % 16, and reduced by the tree of lanes.h. */
#ifndef BT_SOFTMAX_H
#define BT_SOFTMAX_H

#include <stddef.h>

/* to[j] = bt_exp(x[j]); `to` may be x. */
typedef void bt_exp_fn(float *to, const float *x, size_t count);
/* The largest x[j], ignoring NaN; -infinity for an empty row. */
typedef float bt_row_max_fn(const float *x, size_t count);
/* to[j] = bt_exp(x[j] - base), and their sum; `to` may be x. */
typedef float bt_row_exp_sum_fn(float *to, const float *x, size_t count,
                                float base);

/* The sum of x[j], in double. */
typedef double bt_row_sum_fn(const float *x, size_t count);
/* x[j] = fma(x[j], scale, shift) */
typedef void bt_row_affine_fn(float *x, size_t count, float scale, float shift);

bt_exp_fn bt_exp_f32_c;
bt_row_max_fn bt_row_max_f32_c;
bt_row_exp_sum_fn bt_row_exp_sum_f32_c;
bt_row_sum_fn bt_row_sum_f32_c;
bt_row_affine_fn bt_row_affine_f32_c;

#endif
