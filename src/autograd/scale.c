/* SPDX-License-Identifier: Apache-2.0 */
/* scale.c - a tensor times a number. */
#include "autograd/ops.h"

typedef struct scale_record {
    bt_tensor *x, *y;
    float factor;
} scale_record;

static void backward(bt_tape *tape, void *saved)
{
    const scale_record *r = saved;
    bool add;
    if (!r->y->grad || !bt_tape_grad(tape, r->x, &add))
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx = bt_tensor_grad(r->x);
    bt_scale_args args = { &dy, &dx, r->factor, add };
    BT_TAPE_RUN(tape, scale, &args);
}

bt_tensor *bt_op_scale(bt_tape *tape, bt_tensor *x, float factor)
{
    if (!x)
        return NULL;
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, x->requires_grad);
    scale_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!y || !r)
        return NULL;
    *r = (scale_record){ x, y, factor };
    bt_scale_args args = { x, y, factor, false };
    if (!BT_TAPE_RUN(tape, scale, &args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, backward, r, y);
    return y;
}
