/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - dropout. The dropout mask is not stored: the backward pass draws
 * the same numbers again. */
#include "autograd/ops.h"
#include "backend/cpu/parallel_ranges.h"

#include <string.h>

typedef struct dropout_record {
    const bt_kernels *kernels;
    bt_tensor *x, *y;
    bt_dropout dropout;
} dropout_record;

static void drop(void *job, size_t first, size_t count)
{
    const dropout_record *r = job;
    r->kernels->dropout(&r->dropout, first, count);
}

static void dropout_backward(bt_tape *tape, void *saved)
{
    dropout_record *r = saved;
    if (!r->y->grad)
        return;
    r->dropout.x = r->y->grad;
    r->dropout.y = bt_tape_grad(tape, r->x, &r->dropout.add);
    if (r->dropout.y)
        bt_parallel_ranges(bt_tape_threads(tape), r->x->rows,
                           bt_rows_per_task(r->x->columns), drop, r);
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
    uint64_t *copy = bt_tape_alloc(tape, x->rows, sizeof(*copy));
    if (!copy)
        return NULL;
    if (x->rows)
        memcpy(copy, tokens, x->rows * sizeof(*copy));
    *r = (dropout_record){ .kernels = bt_tape_kernels(tape),
                           .x = x,
                           .y = y,
                           .dropout = {
                               .columns = x->columns,
                               .seed = seed,
                               .site = site,
                               .below = (uint32_t)((double)rate * 0x1p32),
                               .scale = (float)(1 / (1 - (double)rate)),
                               .tokens = copy,
                               .x = x->data,
                               .y = y->data } };
    bt_parallel_ranges(bt_tape_threads(tape), x->rows,
                       bt_rows_per_task(x->columns), drop, r);
    if (y->requires_grad)
        bt_tape_record(tape, dropout_backward, r);
    return y;
}
