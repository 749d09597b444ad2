/* SPDX-License-Identifier: Apache-2.0 */
/* add.c - the sum of two tensors. */
#include "autograd/ops.h"
#include "backend/cpu/parallel_ranges.h"

typedef struct sum {
    const bt_kernels *kernels;
    bt_tensor *a, *b, *y;
    float *to; /* gradient of a or b, in the backward pass */
    bool add;
} sum;

static void forward(void *job, size_t first, size_t count)
{
    const sum *s = job;
    s->kernels->add(s->y->data + first, s->a->data + first, s->b->data + first,
                    count);
}

static void backward(void *job, size_t first, size_t count)
{
    const sum *s = job;
    s->kernels->scale(s->to + first, s->y->grad + first, 1.0f, count, s->add);
}

static void add_backward(bt_tape *tape, void *saved)
{
    sum *s = saved;
    bt_tensor *inputs[] = { s->a, s->b };
    // One after the other: they may be the same tensor.
    for (int i = 0; i < 2 && s->y->grad; i++) {
        s->to = bt_tape_grad(tape, inputs[i], &s->add);
        if (s->to)
            bt_parallel_ranges(bt_tape_threads(tape),
                               s->y->rows * s->y->columns, bt_rows_per_task(1),
                               backward, s);
    }
}

bt_tensor *bt_op_add(bt_tape *tape, bt_tensor *a, bt_tensor *b)
{
    if (!a || !b)
        return NULL;
    if (a->rows != b->rows || a->columns != b->columns)
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "add: %zu x %zu and %zu x %zu differ in shape",
                            a->rows, a->columns, b->rows, b->columns);
    bt_tensor *y = bt_tape_output(tape, a->rows, a->columns,
                                  a->requires_grad || b->requires_grad);
    sum *s = bt_tape_alloc(tape, 1, sizeof(*s));
    if (!s)
        return NULL;
    *s = (sum){ .kernels = bt_tape_kernels(tape), .a = a, .b = b, .y = y };
    bt_parallel_ranges(bt_tape_threads(tape), a->rows * a->columns,
                       bt_rows_per_task(1), forward, s);
    if (y->requires_grad)
        bt_tape_record(tape, add_backward, s);
    return y;
}
