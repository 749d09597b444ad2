/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - layer norm and RMS norm, of rows or of the heads of rows.
 *
 * The kernels treat each head as a row. Mean and scale of each row are saved
 * for the backward pass. */
#include "autograd/ops.h"
#include "backend/cpu/parallel_ranges.h"

typedef struct norm_record {
    const bt_kernels *kernels;
    bt_tensor *x, *gain, *bias, *y;
    bt_norm norm;
} norm_record;

static void forward(void *job, size_t first, size_t count)
{
    const norm_record *r = job;
    r->kernels->norm(&r->norm, first, count);
}

static void backward_rows(void *job, size_t first, size_t count)
{
    const norm_record *r = job;
    r->kernels->norm_backward(&r->norm, first, count);
}

static void backward_columns(void *job, size_t first, size_t count)
{
    const norm_record *r = job;
    r->kernels->norm_backward_gain(&r->norm, first, count);
}

static void norm_backward(bt_tape *tape, void *saved)
{
    norm_record *r = saved;
    bt_norm *n = &r->norm;
    int threads = bt_tape_threads(tape);
    if (!r->y->grad)
        return;
    n->dy = r->y->grad;
    n->dx = bt_tape_grad(tape, r->x, &n->add_dx);
    if (n->dx)
        bt_parallel_ranges(threads, n->rows, bt_rows_per_task(n->width),
                           backward_rows, r);
    n->dgain = bt_tape_grad(tape, r->gain, &n->add_dgain);
    n->dbias = r->bias ? bt_tape_grad(tape, r->bias, &n->add_dbias) : NULL;
    if (n->dgain || n->dbias)
        bt_parallel_ranges(threads, n->width,
                           bt_columns_per_task(threads, n->width),
                           backward_columns, r);
}

/* Whether the shapes fit; if not, the tape fails. */
static bool fits(bt_tape *tape, const bt_tensor *x, const bt_tensor *gain,
                 const bt_tensor *bias, size_t heads)
{
    if (heads == 0 || x->columns == 0 || x->columns % heads) {
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "norm: %zu columns are not %zu heads", x->columns, heads);
        return false;
    }
    size_t width = x->columns / heads;
    const bt_tensor *rows[] = { gain, bias ? bias : gain };
    for (int i = 0; i < 2; i++)
        if (rows[i]->rows != 1 || rows[i]->columns != width) {
            bt_tape_fail(
                tape, BAUTA_ERR_ARGUMENT, "norm: %s is %zu x %zu, not 1 x %zu",
                i ? "bias" : "gain", rows[i]->rows, rows[i]->columns, width);
            return false;
        }
    return true;
}

bt_tensor *bt_op_norm(bt_tape *tape, bt_tensor *x, bt_tensor *gain,
                      bt_tensor *bias, bt_norm_kind kind, float epsilon,
                      size_t heads)
{
    if (!x || !gain || !fits(tape, x, gain, bias, heads))
        return NULL;
    bool wants = x->requires_grad || gain->requires_grad ||
                 (bias && bias->requires_grad);
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, wants);
    norm_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    size_t rows = x->rows * heads;
    float *mean = bt_tape_alloc(tape, rows, sizeof(float));
    float *scale = bt_tape_alloc(tape, rows, sizeof(float));
    if (!scale)
        return NULL;
    *r = (norm_record){ .kernels = bt_tape_kernels(tape),
                        .x = x,
                        .gain = gain,
                        .bias = bias,
                        .y = y,
                        .norm = { .kind = kind,
                                  .rows = rows,
                                  .width = x->columns / heads,
                                  .epsilon = epsilon,
                                  .x = x->data,
                                  .gain = gain->data,
                                  .bias = bias ? bias->data : NULL,
                                  .mean = mean,
                                  .scale = scale,
                                  .y = y->data } };
    bt_parallel_ranges(bt_tape_threads(tape), rows,
                       bt_rows_per_task(r->norm.width), forward, r);
    if (y->requires_grad)
        bt_tape_record(tape, norm_backward, r);
    return y;
}
