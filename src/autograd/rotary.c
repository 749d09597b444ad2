/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c - rotary position embeddings. The backward pass rotates by the
 * negative angle. */
#include "autograd/ops.h"
#include "backend/cpu/parallel_ranges.h"

#include <string.h>

typedef struct rotary_record {
    const bt_kernels *kernels;
    bt_tensor *x, *y;
    bt_rotary rotary;
} rotary_record;

static void rotate(void *job, size_t first, size_t count)
{
    const rotary_record *r = job;
    r->kernels->rotary(&r->rotary, first, count);
}

static void rotary_backward(bt_tape *tape, void *saved)
{
    rotary_record *r = saved;
    if (!r->y->grad)
        return;
    r->rotary.back = true;
    r->rotary.x = r->y->grad;
    r->rotary.y = bt_tape_grad(tape, r->x, &r->rotary.add);
    if (r->rotary.y)
        bt_parallel_ranges(bt_tape_threads(tape), r->x->rows,
                           bt_rows_per_task(r->x->columns), rotate, r);
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
    size_t half = x->columns / heads / 2;
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, x->requires_grad);
    rotary_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    uint32_t *position = bt_tape_alloc(tape, x->rows, sizeof(*position));
    float *frequency = bt_tape_alloc(tape, half, sizeof(*frequency));
    if (!frequency)
        return NULL;
    if (x->rows)
        memcpy(position, positions, x->rows * sizeof(*position));
    if (half)
        memcpy(frequency, frequencies, half * sizeof(*frequency));
    *r = (rotary_record){ .kernels = bt_tape_kernels(tape),
                          .x = x,
                          .y = y,
                          .rotary = { .heads = heads,
                                      .dim = 2 * half,
                                      .positions = position,
                                      .frequencies = frequency,
                                      .x = x->data,
                                      .y = y->data } };
    bt_parallel_ranges(bt_tape_threads(tape), x->rows,
                       bt_rows_per_task(x->columns), rotate, r);
    if (y->requires_grad)
        bt_tape_record(tape, rotary_backward, r);
    return y;
}
