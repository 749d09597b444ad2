/* SPDX-License-Identifier: Apache-2.0 */
/* linear.h - the parts of a linear layer, for the ops that contain one: linear
 * and the loss.
 *
 * W is (outputs, inputs), or (inputs, outputs) if `transposed`. */
#ifndef BT_LINEAR_H
#define BT_LINEAR_H

#include "autograd/tape.h"

static inline size_t bt_linear_inputs(const bt_tensor *w, bool transposed)
{
    return transposed ? w->rows : w->columns;
}

static inline size_t bt_linear_outputs(const bt_tensor *w, bool transposed)
{
    return transposed ? w->columns : w->rows;
}

/* Whether x, which must be dense, and bias (or NULL) match the shape of W. If
 * not, the tape fails with a message that begins with the op's name. */
bool bt_linear_check(bt_tape *tape, const char *op, const bt_tensor *x,
                     const bt_tensor *w, bool transposed,
                     const bt_tensor *bias);

/* y = x W^T + bias; false if the tape has failed. */
bool bt_linear_forward(bt_tape *tape, const bt_tensor *x, const bt_tensor *w,
                       bool transposed, const bt_tensor *bias,
                       const bt_tensor *y);

/* The same to host memory `to` (rows of x, outputs), which is written directly
 * if the backend is visible to the host. For logits, with their softcap (0:
 * none). */
bool bt_linear_to_host(bt_tape *tape, const bt_tensor *x, const bt_tensor *w,
                       bool transposed, const bt_tensor *bias, float softcap,
                       float *to);

/* Cap logits in place; a cap of 0 changes nothing. */
bool bt_softcap_logits(bt_tape *tape, const bt_tensor *logits, float cap);

#endif
