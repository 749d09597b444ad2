/* SPDX-License-Identifier: Apache-2.0 */
/* act.h - activation functions on arrays, forward and backward.
 *
 * One C source serves every instruction set, as in softmax.h. The functions of
 * one element are in activations.h. */
#ifndef BT_ACT_H
#define BT_ACT_H

#include "backend/op_types.h"

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

#endif
