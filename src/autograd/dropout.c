/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - dropout. The dropout mask is not stored: the backward pass draws
 * the same numbers again. */
#include "autograd/ops.h"

typedef struct dropout_record {
    bt_tensor *x, *y;
    bt_dropout_args args;
} dropout_record;

static void backward(bt_tape *tape, void *saved)
{
    dropout_record *r = saved;
    if (!r->y->grad || !bt_tape_grad(tape, r->x, &r->args.add))
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx = bt_tensor_grad(r->x);
    r->args.x = &dy;
    r->args.y = &dx;
    BT_TAPE_RUN(tape, dropout, &r->args);
}

bt_tensor *bt_op_dropout(bt_tape *tape, bt_tensor *x, float rate, uint64_t seed,
                         uint32_t site, const uint64_t *tokens)
{
    if (!x || bt_tape_status(tape, NULL))
        return NULL;
    if (!(rate >= 0 && rate < 1))
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "dropout: the rate %g is not in [0, 1)",
                            (double)rate);
    if (rate == 0)
        return x;
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, x->requires_grad);
    dropout_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *keys =
        bt_tape_input(tape, BAUTA_UINT64, x->rows, 1, tokens);
    if (!keys)
        return NULL;
    *r = (dropout_record){ x,
                           y,
                           { .x = x,
                             .y = y,
                             .tokens = keys,
                             .rate = rate,
                             .seed = seed,
                             .site = site } };
    if (!BT_TAPE_RUN(tape, dropout, &r->args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, backward, r, y);
    return y;
}
