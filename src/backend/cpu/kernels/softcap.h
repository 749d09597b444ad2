/* SPDX-License-Identifier: Apache-2.0 */
/* softcap.h - the tanh softcap of arrays, forward and backward.
 *
 *     y = cap * tanh(x / cap)        t = y / cap        dx = dy * fma(-t, t, 1)
 *
 * One C source serves every instruction set, as in softmax.h. */
#ifndef BT_SOFTCAP_H
#define BT_SOFTCAP_H

#include <stdbool.h>
#include <stddef.h>

/* y may be x. */
typedef void bt_softcap_fn(float *y, const float *x, float cap, size_t count);
/* dx may be dy; with `add` the result is added to dx, which is not dy. */
typedef void bt_softcap_backward_fn(float *dx, const float *y, const float *dy,
                                    float cap, size_t count, bool add);

bt_softcap_fn bt_softcap_f32_c;
bt_softcap_backward_fn bt_softcap_backward_f32_c;

#endif
