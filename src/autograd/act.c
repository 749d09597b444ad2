/* SPDX-License-Identifier: Apache-2.0 */
/* act.c - element-wise activations, gated or not.
 *
 * Only the inputs are saved: the backward pass recomputes the activation, which
 * costs less than reading it from memory. */
#include "autograd/ops.h"

typedef struct act_record {
    bt_act act;
    bt_tensor *x, *up, *y; /* up is NULL if not gated */
} act_record;

static void backward(bt_tape *tape, void *saved)
{
    const act_record *r = saved;
    if (!r->y->grad)
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx, dup;
    bt_act_grad_args args = {
        .act = r->act, .x = r->x, .up = r->up, .dy = &dy
    };
    if (bt_tape_grad(tape, r->x, &args.add_dx)) {
        dx = bt_tensor_grad(r->x);
        args.dx = &dx;
    }
    // One after the other if gate and up are the same tensor.
    if (r->up == r->x && args.dx && BT_TAPE_RUN(tape, act_grad, &args))
        args.dx = NULL;
    if (r->up && bt_tape_grad(tape, r->up, &args.add_dup)) {
        dup = bt_tensor_grad(r->up);
        args.dup = &dup;
    }
    if (!bt_tape_status(tape, NULL) && (args.dx || args.dup))
        BT_TAPE_RUN(tape, act_grad, &args);
}

static bt_tensor *act_forward(bt_tape *tape, bt_tensor *x, bt_tensor *up,
                              bt_act act)
{
    bool wants = x->requires_grad || (up && up->requires_grad);
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, wants);
    act_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    if (!r)
        return NULL;
    *r = (act_record){ act, x, up, y };
    bt_act_args args = { act, x, up, y };
    if (!BT_TAPE_RUN(tape, act, &args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, backward, r, y);
    return y;
}

bt_tensor *bt_op_act(bt_tape *tape, bt_tensor *x, bt_act act)
{
    return x ? act_forward(tape, x, NULL, act) : NULL;
}

bt_tensor *bt_op_gated(bt_tape *tape, bt_tensor *gate, bt_tensor *up,
                       bt_act act)
{
    if (!gate || !up)
        return NULL;
    if (gate->rows != up->rows || gate->columns != up->columns)
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "gated: gate is %zu x %zu, up is %zu x %zu",
                            gate->rows, gate->columns, up->rows, up->columns);
    return act_forward(tape, gate, up, act);
}
