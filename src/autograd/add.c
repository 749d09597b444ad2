/* SPDX-License-Identifier: Apache-2.0 */
/* add.c - the sum of two tensors. The sum of two types is float32. */
#include "autograd/ops.h"

typedef struct add_record {
    bt_tensor *a, *b, *y;
} add_record;

static void backward(bt_tape *tape, void *saved)
{
    const add_record *r = saved;
    bt_tensor *inputs[] = { r->a, r->b };
    if (!r->y->grad)
        return;
    bt_tensor dy = bt_tensor_grad(r->y);
    // The first one takes dy over if it has no gradient yet, and the second one
    // shares it: a layer's output reads its gradient before anything is added
    // to that of the residual.
    bool passed = r->a != r->b && bt_tape_pass_grad(tape, r->y, r->a);
    if (passed && bt_tape_share_grad(tape, r->a, r->b))
        return;
    // One after the other: they may be the same tensor.
    for (int i = passed; i < 2; i++) {
        bool add;
        if (!bt_tape_grad(tape, inputs[i], &add))
            continue;
        bt_tensor to = bt_tensor_grad(inputs[i]);
        bt_accumulate_args args = { &dy, &to, add };
        BT_TAPE_RUN(tape, accumulate, &args);
    }
}

static bool shapes_agree(bt_tape *tape, const bt_tensor *a, const bt_tensor *b)
{
    if (a->rows == b->rows && a->columns == b->columns)
        return true;
    bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                 "add: %zu x %zu and %zu x %zu differ in shape", a->rows,
                 a->columns, b->rows, b->columns);
    return false;
}

/* y = a, then y += b, each from its own type. */
static bt_tensor *add_types(bt_tape *tape, const bt_tensor *a,
                            const bt_tensor *b)
{
    if (!shapes_agree(tape, a, b))
        return NULL;
    bt_tensor *y = bt_tape_scratch(tape, BAUTA_FLOAT32, a->rows, a->columns);
    if (!y)
        return NULL;
    bt_accumulate_args first = { a, y, false }, second = { b, y, true };
    y->requires_grad =
        (a->requires_grad || b->requires_grad) && bt_tape_recording(tape);
    return BT_TAPE_RUN(tape, accumulate, &first) &&
                   BT_TAPE_RUN(tape, accumulate, &second)
               ? y
               : NULL;
}

bt_tensor *bt_add_output(bt_tape *tape, const bt_tensor *a, const bt_tensor *b)
{
    if (!shapes_agree(tape, a, b))
        return NULL;
    return bt_tape_output(tape, a->rows, a->columns,
                          a->requires_grad || b->requires_grad);
}

void bt_add_record(bt_tape *tape, bt_tensor *a, bt_tensor *b, bt_tensor *y)
{
    add_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!r)
        return;
    *r = (add_record){ a, b, y };
    if (y->requires_grad)
        bt_tape_record(tape, backward, r, y);
}

static bt_tensor *add_same(bt_tape *tape, const bt_tensor *a,
                           const bt_tensor *b)
{
    bt_tensor *y = bt_add_output(tape, a, b);
    bt_add_args args = { a, b, y };
    return y && BT_TAPE_RUN(tape, add, &args) ? y : NULL;
}

bt_tensor *bt_op_add(bt_tape *tape, bt_tensor *a, bt_tensor *b)
{
    if (!a || !b)
        return NULL;
    bt_tensor *y =
        a->dtype == b->dtype ? add_same(tape, a, b) : add_types(tape, a, b);
    if (!y)
        return NULL;
    bt_add_record(tape, a, b, y);
    return bt_tape_status(tape, NULL) ? NULL : y;
}
