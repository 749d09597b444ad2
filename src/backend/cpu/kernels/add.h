/* SPDX-License-Identifier: Apache-2.0 */
/* add.h - sums and scaled copies of arrays. */
#ifndef BT_ADD_H
#define BT_ADD_H

#include <stdbool.h>
#include <stddef.h>

/* to[j] = a[j] + b[j]; `to` overlaps neither. */
typedef void bt_add_fn(float *to, const float *a, const float *b, size_t count);
/* to[j] = x[j] * scale or, with `add`, to[j] = fma(x[j], scale, to[j]). With a
 * scale of 1 that is the plain sum. `to` does not overlap x. */
typedef void bt_scale_fn(float *to, const float *x, float scale, size_t count,
                         bool add);

bt_add_fn bt_add_f32_c;
bt_scale_fn bt_scale_f32_c;

#endif
