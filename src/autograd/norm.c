/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - layer norm and RMS norm, of rows or of the heads of rows. Mean and
 * scale of each row are saved for the backward pass. */
#include "autograd/ops.h"

typedef struct norm_record {
    bt_tensor *x, *gain, *bias, *y;
    const bt_tensor *mean, *scale;
    bt_norm_kind kind;
    float epsilon;
    size_t heads;
} norm_record;

static void backward(bt_tape *tape, void *saved)
{
    const norm_record *r = saved;
    if (!r->y->grad)
        return;
    bt_tensor dy = bt_tensor_grad(r->y), dx, dgain, dbias;
    bt_norm_grad_args args = { .kind = r->kind,
                               .epsilon = r->epsilon,
                               .heads = r->heads,
                               .x = r->x,
                               .gain = r->gain,
                               .mean = r->mean,
                               .scale = r->scale,
                               .dy = &dy };
    if (bt_tape_grad(tape, r->x, &args.add_dx)) {
        dx = bt_tensor_grad(r->x);
        args.dx = &dx;
    }
    if (bt_tape_grad(tape, r->gain, &args.add_dgain)) {
        dgain = bt_tensor_grad(r->gain);
        args.dgain = &dgain;
    }
    if (r->bias && bt_tape_grad(tape, r->bias, &args.add_dbias)) {
        dbias = bt_tensor_grad(r->bias);
        args.dbias = &dbias;
    }
    if (!bt_tape_status(tape, NULL))
        BT_TAPE_RUN(tape, norm_grad, &args);
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

/* The norm of x, or of x + residual, which is then `sum`. */
static bt_tensor *forward(bt_tape *tape, bt_norm_args *args, bt_tensor *x,
                          bt_tensor *gain, bt_tensor *bias)
{
    size_t rows = x->rows * args->heads;
    bool wants = x->requires_grad || gain->requires_grad ||
                 (bias && bias->requires_grad);
    bt_tensor *y = bt_tape_output(tape, x->rows, x->columns, wants);
    norm_record *r = bt_tape_alloc(tape, 1, sizeof(*r));
    const bt_tensor *mean = bt_tape_scratch(tape, BAUTA_FLOAT32, rows, 1);
    const bt_tensor *scale = bt_tape_scratch(tape, BAUTA_FLOAT32, rows, 1);
    if (!scale)
        return NULL;
    args->gain = gain;
    args->bias = bias;
    args->y = y;
    args->mean = mean;
    args->scale = scale;
    *r = (norm_record){ x,     gain,       bias,          y,          mean,
                        scale, args->kind, args->epsilon, args->heads };
    if (!BT_TAPE_RUN(tape, norm, args))
        return NULL;
    if (y->requires_grad)
        bt_tape_record(tape, backward, r, y);
    return y;
}

bt_tensor *bt_op_norm(bt_tape *tape, bt_tensor *x, bt_tensor *gain,
                      bt_tensor *bias, bt_norm_kind kind, float epsilon,
                      size_t heads)
{
    if (!x || !gain || !fits(tape, x, gain, bias, heads))
        return NULL;
    bt_norm_args args = {
        .kind = kind, .epsilon = epsilon, .heads = heads, .x = x
    };
    return forward(tape, &args, x, gain, bias);
}

bt_tensor *bt_op_add_norm(bt_tape *tape, bt_tensor *a, bt_tensor *b,
                          bt_tensor *gain, bt_tensor *bias, bt_norm_kind kind,
                          float epsilon, bt_tensor **sum)
{
    *sum = NULL;
    if (!(bt_tape_stream(tape)->backend->fusions & BT_FUSE_ADD_NORM)) {
        *sum = bt_op_add(tape, a, b);
        return bt_op_norm(tape, *sum, gain, bias, kind, epsilon, 1);
    }
    bt_tensor *x = a && b ? bt_add_output(tape, a, b) : NULL;
    if (!x || !gain || !fits(tape, x, gain, bias, 1))
        return NULL;
    // The record of the sum is first: its backward pass comes last.
    bt_add_record(tape, a, b, x);
    bt_norm_args args = { .kind = kind,
                          .epsilon = epsilon,
                          .heads = 1,
                          .x = a,
                          .residual = b,
                          .sum = x };
    *sum = x;
    return forward(tape, &args, x, gain, bias);
}
