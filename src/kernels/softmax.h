/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.h - the exponential of an array, and the pieces of a row's softmax.
 *
 * One C source serves every instruction set: without fast-math a compiler may
 * widen these loops but not change their bits. Sums are kept in sixteen lanes,
 * element j in lane j % 16, and reduced by bt_lanes_sum(). */
#ifndef BT_SOFTMAX_H
#define BT_SOFTMAX_H

#include <stddef.h>

/* to[j] = bt_exp(x[j]); `to` may be x. */
typedef void bt_exp_fn(float *to, const float *x, size_t count);
/* The largest x[j], NaN passed over; -infinity for an empty row. */
typedef float bt_row_max_fn(const float *x, size_t count);
/* to[j] = bt_exp(x[j] - base), and their sum; `to` may be x. */
typedef float bt_row_exp_sum_fn(float *to, const float *x, size_t count,
                                float base);

bt_exp_fn bt_exp_f32_c;
bt_row_max_fn bt_row_max_f32_c;
bt_row_exp_sum_fn bt_row_exp_sum_f32_c;

#endif
