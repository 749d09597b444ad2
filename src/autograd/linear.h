/* SPDX-License-Identifier: Apache-2.0 */
/* linear.h - the parts of a linear layer on plain arrays, for the ops that
 * contain one: linear and the loss.
 *
 * W is (outputs, inputs), or (inputs, outputs) if `transposed`. For a W that is
 * not transposed:
 *
 *     y     = x W^T + bias                (rows, outputs)
 *     dx    = dy W                        (rows, inputs)
 *     dW    = dy^T x                      like W
 *     dbias = the sum of the rows of dy   (1, outputs)
 *
 * Every element is one chain of fused multiply-adds in ascending order of
 * inputs, outputs or rows; dbias is a chain of additions over rows. With `add`
 * a chain starts from the value in memory, else from 0. So neither processing
 * the rows in several parts nor threads, which split the elements, change a
 * bit. */
#ifndef BT_LINEAR_H
#define BT_LINEAR_H

#include "autograd/tape.h"

typedef struct bt_linear {
    size_t inputs, outputs;
    const float *w; /* rows `stride` apart; everything else is dense */
    size_t stride;
    bool transposed;
    const bt_packed_weight *packed; /* used instead of w if not NULL; there is
                                  no dx then */
} bt_linear;

bt_linear bt_linear_of(const bt_tensor *w, bool transposed);

/* Whether x, which must be dense, and bias (or NULL) match the shape of W. If
 * not, the tape fails with a message that begins with the op's name. */
bool bt_linear_check(bt_tape *tape, const char *op, const bt_tensor *x,
                     const bt_tensor *w, bool transposed,
                     const bt_tensor *bias);

/* All return false, with a failed tape, when there is no memory. */
bool bt_linear_forward(bt_tape *tape, const bt_linear *l, size_t rows,
                       const float *x, const float *bias, float *y);
bool bt_linear_dx(bt_tape *tape, const bt_linear *l, size_t rows,
                  const float *dy, float *dx, bool add);
bool bt_linear_dw(bt_tape *tape, const bt_linear *l, size_t rows,
                  const float *x, const float *dy, float *dw, size_t dw_stride,
                  bool add);

#endif
