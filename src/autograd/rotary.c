/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c - rotary position embeddings. The backward pass rotates by the
 * negative angle. */
#include "autograd/ops.h"

typedef struct rotary_record {
    bt_tensor *x, *y;
    size_t heads;
    const bt_tensor *positions, *frequencies;
} rotary_record;

static void backward(bt_tape *tape, void *saved)
{
    const rotary_record *r = saved;
    bool add;
    if (!r->y->grad || !bt_tape_grad(tape, r->x, &add))
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx = bt_tensor_grad(r->x);
    bt_rotary_args args = { .heads = r->heads,
                            .x = &dy,
                            .y = &dx,
                            .positions = r->positions,
                            .frequencies = r->frequencies,
                            .back = true,
                            .add = add };
    BT_TAPE_RUN(tape, rotary, &args);
}

bt_tensor *bt_op_rotary(bt_tape *tape, bt_tensor *x, size_t heads,
                        const uint32_t *positions, const float *frequencies)
{
    if (!x)
        return NULL;
    if (heads == 0 || x->columns % heads || x->columns / heads % 2)
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "rotary: %zu columns are not %zu heads of pairs",
                            x->columns, heads);
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, x->requires_grad);
    rotary_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *at =
        bt_tape_input(tape, BAUTA_UINT32, x->rows, 1, positions);
    const bt_tensor *frequency = bt_tape_input(
        tape, BAUTA_FLOAT32, 1, x->columns / heads / 2, frequencies);
    if (!frequency)
        return NULL;
    *r = (rotary_record){ x, y, heads, at, frequency };
    bt_rotary_args args = { .heads = heads,
                            .x = x,
                            .y = y,
                            .positions = at,
                            .frequencies = frequency };
    if (!BT_TAPE_RUN(tape, rotary, &args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, backward, r, y);
    return y;
}
