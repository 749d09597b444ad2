/* SPDX-License-Identifier: Apache-2.0 */
/* act.c - element-wise activations, gated or not.
 *
 * Only the inputs are saved: the backward pass recomputes the activation, which
 * costs less than reading it from memory. */
#include "autograd/ops.h"
#include "backend/cpu/parallel_ranges.h"

typedef struct activation {
    const bt_kernels *kernels;
    bt_act act;
    bt_tensor *x, *up, *y; /* up is NULL if not gated */
    float *to;             /* gradient of x or up, in the backward pass */
    bool add;
} activation;

static void forward(void *job, size_t first, size_t count)
{
    const activation *a = job;
    const float *up = a->up ? a->up->data + first : NULL;
    a->kernels->act(a->act, a->y->data + first, a->x->data + first, up, count,
                    false);
}

static void backward_x(void *job, size_t first, size_t count)
{
    const activation *a = job;
    const float *up = a->up ? a->up->data + first : NULL;
    a->kernels->act_backward(a->act, a->to + first, a->x->data + first,
                             a->y->grad + first, up, count, a->add);
}

static void backward_up(void *job, size_t first, size_t count)
{
    const activation *a = job;
    a->kernels->act(a->act, a->to + first, a->x->data + first,
                    a->y->grad + first, count, a->add);
}

static void run(const bt_tape *tape, bt_range_fn *range, activation *a)
{
    bt_parallel_ranges(bt_tape_threads(tape), a->y->rows * a->y->columns,
                       bt_rows_per_task(1), range, a);
}

static void act_backward(bt_tape *tape, void *saved)
{
    activation *a = saved;
    if (!a->y->grad)
        return;
    a->to = bt_tape_grad(tape, a->x, &a->add);
    if (a->to)
        run(tape, backward_x, a);
    // One after the other: gate and up may be the same tensor.
    a->to = a->up ? bt_tape_grad(tape, a->up, &a->add) : NULL;
    if (a->to)
        run(tape, backward_up, a);
}

static bt_tensor *act_forward(bt_tape *tape, bt_tensor *x, bt_tensor *up,
                              bt_act act)
{
    bool wants = x->requires_grad || (up && up->requires_grad);
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, wants);
    activation *a = bt_tape_alloc(tape, 1, sizeof(*a));
    if (!a)
        return NULL;
    *a = (activation){
        .kernels = bt_tape_kernels(tape), .act = act, .x = x, .up = up, .y = y
    };
    run(tape, forward, a);
    if (y->requires_grad)
        bt_tape_record(tape, act_backward, a);
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
