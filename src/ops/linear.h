/* SPDX-License-Identifier: Apache-2.0 */
/* linear.h - a linear layer on plain arrays, piece by piece, for the ops that
 * hold one: linear itself and the loss.
 *
 * With W (outputs, inputs), or (inputs, outputs) if `turned`, and written here
 * as if it were not turned:
 *
 *     y     = x W^T + bias + residual     (rows, outputs)
 *     dx    = dy W                        (rows, inputs)
 *     dW    = dy^T x                      like W
 *     dbias = the sum of the rows of dy   (1, outputs)
 *
 * Every element is one chain in ascending order, of fused multiply-adds over
 * inputs, outputs or rows; dbias is a chain of additions over rows. With `add`
 * a chain starts from what is there, else from 0. So rows may come in any
 * number of parts, one behind the other, and threads split elements: neither
 * changes a bit. */
#ifndef BT_LINEAR_H
#define BT_LINEAR_H

#include "ops/tape.h"

typedef struct bt_linear {
    size_t inputs, outputs;
    const float *w; /* rows `stride` apart; all else here is dense */
    size_t stride;
    bool turned;
    const bt_compact *compact; /* stands for w where it is not NULL; then there
                                  is no dx */
} bt_linear;

bt_linear bt_linear_of(const bt_tensor *w, bool turned);

/* Whether x, which is dense, and bias (or NULL) are of the shapes that W takes;
 * if not, the tape fails with a sentence that begins with the op's name. */
bool bt_linear_fits(bt_tape *tape, const char *op, const bt_tensor *x,
                    const bt_tensor *w, bool turned, const bt_tensor *bias);

/* All return false, with a failed tape, when memory has run out. */
bool bt_linear_y(bt_tape *tape, const bt_linear *l, size_t rows, const float *x,
                 const float *bias, const float *residual, float *y);
bool bt_linear_dx(bt_tape *tape, const bt_linear *l, size_t rows,
                  const float *dy, float *dx, bool add);
bool bt_linear_dw(bt_tape *tape, const bt_linear *l, size_t rows,
                  const float *x, const float *dy, float *dw, size_t dw_stride,
                  bool add);

#endif
