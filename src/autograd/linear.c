/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - y = x W^T + bias, and its gradients. */
#include "autograd/linear.h"

#include "autograd/ops.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/gradient_accumulation.h"

/* ---- Parts ------------------------------------------------------------ */

bt_linear bt_linear_of(const bt_tensor *w, bool transposed)
{
    return (bt_linear){ .inputs = transposed ? w->rows : w->columns,
                        .outputs = transposed ? w->columns : w->rows,
                        .w = w->data,
                        .stride = w->stride,
                        .transposed = transposed,
                        .packed = w->packed };
}

bool bt_linear_check(bt_tape *tape, const char *op, const bt_tensor *x,
                     const bt_tensor *w, bool transposed, const bt_tensor *bias)
{
    bt_linear l = bt_linear_of(w, transposed);
    if (x->columns != l.inputs)
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "%s: x has %zu columns, W takes %zu", op, x->columns,
                     l.inputs);
    else if (x->stride != x->columns)
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "%s: x is a part of a larger matrix, with rows %zu apart",
                     op, x->stride);
    else if (bias && (bias->rows != 1 || bias->columns != l.outputs))
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "%s: the bias is (%zu, %zu), W has %zu outputs", op,
                     bias->rows, bias->columns, l.outputs);
    return bt_tape_status(tape, NULL) == BAUTA_OK;
}

static bool multiply(bt_tape *tape, const bt_gemm *gemms, size_t count)
{
    bauta_error err;
    bauta_status status =
        bt_gemm_grouped_f32(bt_tape_kernels(tape), bt_tape_threads(tape), gemms,
                            count, bt_tape_workspace(tape), &err);
    if (status)
        bt_tape_fail(tape, status, "%s", err.message);
    return status == BAUTA_OK;
}

static bt_gemm gemm_y(const bt_linear *l, size_t rows, const float *x,
                      const float *bias, float *y)
{
    return (bt_gemm){ .m = rows,
                      .n = l->outputs,
                      .k = l->inputs,
                      .a = x,
                      .lda = l->inputs,
                      .b = l->w,
                      .ldb = l->stride,
                      .trans_b = !l->transposed,
                      .packed = l->packed,
                      .c = y,
                      .ldc = l->outputs,
                      .bias = bias };
}

bool bt_linear_forward(bt_tape *tape, const bt_linear *l, size_t rows,
                       const float *x, const float *bias, float *y)
{
    bt_gemm gemm = gemm_y(l, rows, x, bias, y);
    return multiply(tape, &gemm, 1);
}

bool bt_linear_dx(bt_tape *tape, const bt_linear *l, size_t rows,
                  const float *dy, float *dx, bool add)
{
    bt_gemm gemm = { .m = rows,
                     .n = l->inputs,
                     .k = l->outputs,
                     .a = dy,
                     .lda = l->outputs,
                     .b = l->w,
                     .ldb = l->stride,
                     .trans_b = l->transposed,
                     .c = dx,
                     .ldc = l->inputs,
                     .add = add };
    return multiply(tape, &gemm, 1);
}

bool bt_linear_dw(bt_tape *tape, const bt_linear *l, size_t rows,
                  const float *x, const float *dy, float *dw, size_t dw_stride,
                  bool add)
{
    size_t down = l->transposed ? l->inputs : l->outputs;
    size_t across = l->transposed ? l->outputs : l->inputs;
    bt_gemm gemm = { .m = down,
                     .n = across,
                     .k = rows,
                     .a = l->transposed ? x : dy,
                     .lda = down,
                     .trans_a = true,
                     .b = l->transposed ? dy : x,
                     .ldb = across,
                     .c = dw,
                     .ldc = dw_stride,
                     .add = add };
    return multiply(tape, &gemm, 1);
}

/* ---- The op ------------------------------------------------------------ */

typedef struct linear_record {
    bt_tensor *x, *w, *bias, *y;
    bool transposed;
} linear_record;

/* A step that fails for lack of memory makes the later ones useless, but not
 * wrong. */
static void backward(bt_tape *tape, void *saved)
{
    const linear_record *op = saved;
    const float *dy = op->y->grad;
    bt_linear l = bt_linear_of(op->w, op->transposed);
    size_t rows = op->x->rows;
    float *grad;
    bool add;
    if (!dy)
        return; // no gradient flows into y
    if ((grad = bt_tape_grad(tape, op->x, &add)))
        bt_linear_dx(tape, &l, rows, dy, grad, add);
    if ((grad = bt_tape_grad(tape, op->w, &add)))
        bt_linear_dw(tape, &l, rows, op->x->data, dy, grad, op->w->stride, add);
    if (op->bias && (grad = bt_tape_grad(tape, op->bias, &add)))
        bt_grad_accumulate_rows(bt_tape_threads(tape), grad, dy, rows,
                                l.outputs, add);
}

static void record(bt_tape *tape, const linear_record *op)
{
    linear_record *saved = bt_tape_alloc(tape, 1, sizeof(*saved));
    if (!saved)
        return;
    *saved = *op;
    bt_tape_record(tape, backward, saved);
}

bt_tensor *bt_op_linear(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                        bool transposed, bt_tensor *bias)
{
    linear_record op = { x, w, bias, NULL, transposed };
    if (bt_tape_status(tape, NULL) ||
        !bt_linear_check(tape, "linear", x, w, transposed, bias))
        return NULL;
    bt_linear l = bt_linear_of(w, transposed);
    op.y = bt_tape_output(tape, x->rows, l.outputs,
                          x->requires_grad || w->requires_grad ||
                              (bias && bias->requires_grad));
    if (!op.y || !bt_linear_forward(tape, &l, x->rows, x->data,
                                    bias ? bias->data : NULL, op.y->data))
        return NULL;
    if (op.y->requires_grad)
        record(tape, &op);
    return bt_tape_status(tape, NULL) ? NULL : op.y;
}

/* One group of products, without records. */
static bool run_grouped(bt_tape *tape, size_t count, const linear_record *ops)
{
    bt_gemm gemms[BT_GEMM_GROUP_MAX];
    for (size_t i = 0; i < count; i++) {
        const linear_record *op = &ops[i];
        bt_linear l = bt_linear_of(op->w, op->transposed);
        gemms[i] = gemm_y(&l, op->x->rows, op->x->data,
                          op->bias ? op->bias->data : NULL, op->y->data);
    }
    return multiply(tape, gemms, count);
}

bool bt_op_linears(bt_tape *tape, bt_tensor *x, size_t count,
                   const bt_linear_op *layers, bool transposed, bt_tensor **y)
{
    linear_record ops[BT_GEMM_GROUP_MAX];
    if (bt_tape_recording(tape) || count > BT_GEMM_GROUP_MAX) {
        for (size_t i = 0; i < count; i++)
            y[i] =
                bt_op_linear(tape, x, layers[i].w, transposed, layers[i].bias);
        return bt_tape_status(tape, NULL) == BAUTA_OK;
    }
    for (size_t i = 0; i < count; i++) {
        ops[i] =
            (linear_record){ x, layers[i].w, layers[i].bias, NULL, transposed };
        y[i] = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (bt_tape_status(tape, NULL) ||
            !bt_linear_check(tape, "linear", x, layers[i].w, transposed,
                             layers[i].bias))
            return false;
        bt_linear l = bt_linear_of(layers[i].w, transposed);
        y[i] = ops[i].y = bt_tape_output(tape, x->rows, l.outputs, false);
        if (!y[i])
            return false;
    }
    return run_grouped(tape, count, ops);
}
