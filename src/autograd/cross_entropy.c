/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c - cross-entropy over a vocabulary, in chunks of rows.
 *
 * Rows whose label is not ignored are processed in order, some at a time (256
 * on the CPU):
 *
 *     logits z = x W^T + bias                       (chunk, vocabulary)
 *     z = c tanh(z / c)                             with a softcap c
 *     e[j]  = exp(z[j] - max z),  l = sum e         per row, softmax.h
 *     lse   = max z + log(l)
 *     loss  = (1 - s) (lse - z[label]) + s (lse - mean z)
 *     dz[j] = fma(e[j], g / l, -g s / vocabulary)   over the logits
 *     dz[label] -= g (1 - s)                        g = weight / counted
 *     dz = dz (1 - (z / c)^2)                       with a softcap
 *     dx = dz W,   dW += dz^T x,   dbias += sum of dz
 *
 * With a weight for each label, g and the loss of its row are multiplied by it
 * in double; a weight of 1 changes no bit.
 *
 * The losses of the rows are added in double in row order. dW and dbias are
 * chains over the counted rows in order, which continue across chunks. So
 * neither chunks nor threads change a bit.
 *
 * Gradients are computed here, while the logits exist: the backward pass would
 * have to compute all logits again. They are kept on the tape, and only
 * bt_tape_backward() adds them to those of x, W and bias. So a loss without a
 * backward pass leaves the parameters' gradients unchanged, several losses can
 * be on one tape in any order, and micro-batches add up. The cost is one array
 * of the size of W, which the backward pass then uses for other gradients, and
 * one addition of it, little compared to a product with W. */
#include "autograd/ops.h"

#include "base/size.h"

#include <string.h>

enum { LOGITS_ALIGN = 16 }; /* rows begin at multiples of it: GPUs need that */

typedef struct loss {
    bt_tensor *x, *w, *bias;
    bool transposed;
    float softcap;           /* of the logits; 0: none */
    const uint32_t *labels;  /* the caller's: valid until the op returns */
    const float *weights;    /* of the labels, likewise, or NULL */
    double smoothing, share; /* share: weight of a row in the loss, g above */
    bool exact;              /* float32 logits, as those of the sampler */
    size_t counted;
    uint32_t *rows; /* (counted) their indices */
    /* Tensors of the counted rows. */
    bt_tensor *index, *label, *weight; /* weight: NULL if all are 1 */
    bt_tensor *losses;                 /* float64 */
    bt_tensor *logits;                 /* (chunk, outputs) */
    bt_tensor *capped; /* the same after the softcap, for its gradient; or NULL
                        */
    bt_tensor *inputs; /* (chunk, inputs) copies of rows that are not contiguous
                        */
    /* Gradients for the backward pass, each NULL if not required. */
    bt_tensor *dx; /* (counted, inputs) */
    bt_tensor *dw; /* like W, but dense */
    bt_tensor *dbias;
    bt_tensor *logprobs; /* (counted) instead of a loss, or NULL */
} loss;

/* ---- A chunk ------------------------------------------------------------- */

/* Some of the counted rows. */
typedef struct chunk {
    const loss *op;
    size_t first, count;
    bool gradient;
} chunk;

/* The chunk's rows of x: in place if they are contiguous, else a copy. */
static bool gather(bt_tape *tape, const chunk *c, bt_tensor *x)
{
    const loss *op = c->op;
    const uint32_t *rows = op->rows + c->first;
    if (rows[c->count - 1] - rows[0] == c->count - 1) {
        *x = bt_tensor_rows(op->x, rows[0], c->count);
        return true;
    }
    bt_tensor index = bt_tensor_rows(op->index, c->first, c->count);
    *x = bt_tensor_rows(op->inputs, 0, c->count);
    bt_embedding_args args = { op->x, x, &index, 1.0f };
    return BT_TAPE_RUN(tape, embedding, &args);
}

static bool run_gradients(bt_tape *tape, const chunk *c, const bt_tensor *x,
                          const bt_tensor *dz)
{
    const loss *op = c->op;
    bool add = c->first > 0;
    if (op->dx) {
        bt_tensor dx = bt_tensor_rows(op->dx, c->first, c->count);
        bt_linear_dx_args args = {
            .dy = dz, .w = op->w, .dx = &dx, .transposed = op->transposed
        };
        if (!BT_TAPE_RUN(tape, linear_dx, &args))
            return false;
    }
    if (op->dw) {
        bt_linear_dw_args args = { x, dz, op->dw, op->transposed, add };
        if (!BT_TAPE_RUN(tape, linear_dw, &args))
            return false;
    }
    bt_sum_rows_args args = { dz, op->dbias, add };
    return !op->dbias || BT_TAPE_RUN(tape, sum_rows, &args);
}

static bool run_logprobs(bt_tape *tape, const chunk *c, const bt_tensor *logits,
                         const bt_tensor *labels)
{
    bt_tensor to = bt_tensor_rows(c->op->logprobs, c->first, c->count);
    bt_logprobs_args args = { logits, labels, &to };
    return BT_TAPE_RUN(tape, logprobs, &args);
}

static bool run_losses(bt_tape *tape, const chunk *c, const bt_tensor *logits,
                       const bt_tensor *labels)
{
    const loss *op = c->op;
    bt_tensor weights, losses = bt_tensor_rows(op->losses, c->first, c->count);
    if (op->weight)
        weights = bt_tensor_rows(op->weight, c->first, c->count);
    bt_cross_entropy_args args = { .logits = logits,
                                   .labels = labels,
                                   .weights = op->weight ? &weights : NULL,
                                   .smoothing = op->smoothing,
                                   .share = op->share,
                                   .gradient = c->gradient,
                                   .losses = &losses };
    return BT_TAPE_RUN(tape, cross_entropy, &args);
}

/* Cap the logits, and keep them if there will be gradients. */
static bool run_softcap(bt_tape *tape, const chunk *c, const bt_tensor *logits)
{
    const loss *op = c->op;
    bt_softcap_args args = { logits, logits, op->softcap };
    if (op->softcap == 0.0f)
        return true;
    if (!BT_TAPE_RUN(tape, softcap, &args))
        return false;
    if (!c->gradient)
        return true;
    bt_tensor capped = bt_tensor_rows(op->capped, 0, c->count);
    bt_accumulate_args keep = { logits, &capped, false };
    return BT_TAPE_RUN(tape, accumulate, &keep);
}

/* The gradient of the capped logits becomes that of the products. */
static bool run_softcap_grad(bt_tape *tape, const chunk *c,
                             const bt_tensor *logits)
{
    const loss *op = c->op;
    if (op->softcap == 0.0f)
        return true;
    bt_tensor capped = bt_tensor_rows(op->capped, 0, c->count);
    bt_softcap_grad_args args = { &capped, logits, logits, op->softcap, false };
    return BT_TAPE_RUN(tape, softcap_grad, &args);
}

static bool run_chunk(bt_tape *tape, const chunk *c)
{
    const loss *op = c->op;
    bt_tensor x, logits = bt_tensor_rows(op->logits, 0, c->count);
    bt_tensor labels = bt_tensor_rows(op->label, c->first, c->count);
    if (!gather(tape, c, &x) ||
        !bt_linear_forward(tape, &x, op->w, op->transposed, op->bias,
                           &logits) ||
        !run_softcap(tape, c, &logits))
        return false;
    if (op->logprobs)
        return run_logprobs(tape, c, &logits, &labels);
    return run_losses(tape, c, &logits, &labels) &&
           (!c->gradient || (run_softcap_grad(tape, c, &logits) &&
                             run_gradients(tape, c, &x, &logits)));
}

/* ---- The op -------------------------------------------------------------- */

static bool fits(bt_tape *tape, const loss *op)
{
    size_t outputs = bt_linear_outputs(op->w, op->transposed);
    if (!bt_linear_check(tape, "loss", op->x, op->w, op->transposed, op->bias))
        return false;
    if (!(op->smoothing >= 0.0 && op->smoothing <= 1.0))
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "loss: smoothing is %g, not from 0 to 1", op->smoothing);
    for (size_t row = 0; row < op->x->rows; row++)
        if (op->labels[row] != BT_IGNORE_INDEX && op->labels[row] >= outputs)
            bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                         "loss: the label of row %zu is %u, the vocabulary "
                         "has %zu entries",
                         row, op->labels[row], outputs);
    return bt_tape_status(tape, NULL) == BAUTA_OK;
}

/* List the counted rows, their labels and weights. */
static bool find_counted(bt_tape *tape, loss *op)
{
    size_t rows = op->x->rows, count = 0;
    op->rows = bt_tape_alloc(tape, rows, sizeof(*op->rows));
    uint32_t *labels = bt_tape_alloc(tape, rows, sizeof(*labels));
    float *weights = bt_tape_alloc(tape, rows, sizeof(*weights));
    if (!weights)
        return false;
    for (size_t row = 0; row < rows; row++) {
        if (op->labels[row] == BT_IGNORE_INDEX)
            continue;
        op->rows[count] = (uint32_t)row;
        labels[count] = op->labels[row];
        weights[count++] = op->weights ? op->weights[row] : 1.0f;
    }
    op->counted = count;
    if (!count)
        return false;
    op->index = bt_tape_input(tape, BAUTA_UINT32, count, 1, op->rows);
    op->label = bt_tape_input(tape, BAUTA_UINT32, count, 1, labels);
    if (op->weights)
        op->weight = bt_tape_input(tape, BAUTA_FLOAT32, count, 1, weights);
    return bt_tape_status(tape, NULL) == BAUTA_OK;
}

static bt_tensor *alloc_grad(bt_tape *tape, const bt_tensor *tensor,
                             size_t rows)
{
    if (!tensor || !tensor->requires_grad || !bt_tape_recording(tape))
        return NULL;
    return bt_tape_scratch(tape, tensor->grad_dtype, rows, tensor->columns);
}

/* All other memory of the op; false if there is none. */
static bool alloc_memory(bt_tape *tape, loss *op, size_t rows)
{
    size_t outputs = bt_linear_outputs(op->w, op->transposed);
    op->losses = bt_tape_scratch(tape, BAUTA_FLOAT64, op->counted, 1);
    op->logits = bt_tape_scratch(
        tape, op->exact ? BAUTA_FLOAT32 : bt_tape_stream(tape)->dtype, rows,
        bt_size_round(outputs, LOGITS_ALIGN));
    if (op->logits)
        op->logits->columns = outputs;
    if (op->counted < op->x->rows)
        op->inputs = bt_tape_scratch(tape, op->x->dtype, rows, op->x->columns);
    if (op->softcap != 0.0f && bt_tape_recording(tape) && op->logits) {
        op->capped =
            bt_tape_scratch(tape, op->logits->dtype, rows, op->logits->stride);
        if (op->capped)
            op->capped->columns = outputs;
    }
    op->dx = alloc_grad(tape, op->x, op->counted);
    op->dw = alloc_grad(tape, op->w, op->w->rows);
    op->dbias = alloc_grad(tape, op->bias, 1);
    return bt_tape_status(tape, NULL) == BAUTA_OK;
}

/* Ignored rows of x get no gradient, or 0 if there was none yet. */
static void backward_x(bt_tape *tape, const loss *op)
{
    bool add;
    if (!op->dx || !bt_tape_grad(tape, op->x, &add))
        return;
    bt_tensor grad = bt_tensor_grad(op->x);
    bt_scatter_add_args args = { op->dx, &grad, op->index };
    if (add || bt_tape_check(tape, bt_tensor_zero(bt_tape_stream(tape), &grad,
                                                  bt_tape_error(tape))))
        BT_TAPE_RUN(tape, scatter_add, &args);
}

static void backward_parameter(bt_tape *tape, bt_tensor *parameter,
                               const bt_tensor *from)
{
    bool add;
    if (!from || !bt_tape_grad(tape, parameter, &add))
        return;
    bt_tensor grad = bt_tensor_grad(parameter);
    bt_accumulate_args args = { from, &grad, add };
    BT_TAPE_RUN(tape, accumulate, &args);
}

/* The memory of the loss then serves the gradients of the layers. */
static void backward(bt_tape *tape, void *saved)
{
    const loss *op = saved;
    backward_x(tape, op);
    backward_parameter(tape, op->w, op->dw);
    backward_parameter(tape, op->bias, op->dbias);
    bt_tape_release(tape, op->dx);
    bt_tape_release(tape, op->dw);
    bt_tape_release(tape, op->logits);
    bt_tape_release(tape, op->capped);
    bt_tape_release(tape, op->inputs);
}

static void run(bt_tape *tape, const loss *op, size_t rows)
{
    chunk c = { .op = op, .gradient = op->dx || op->dw || op->dbias };
    for (; c.first < op->counted; c.first += c.count) {
        c.count = bt_size_min(rows, op->counted - c.first);
        if (!run_chunk(tape, &c))
            return;
    }
}

/* Everything up to the first logits: false if the tape has failed, or if no row
 * counts. */
static bool prepare(bt_tape *tape, loss *op, size_t *rows)
{
    if (!fits(tape, op) || !find_counted(tape, op))
        return false;
    *rows = bt_size_min(*rows, op->counted);
    return alloc_memory(tape, op, *rows);
}

bt_loss bt_op_cross_entropy_chunked(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                                    bool transposed, bt_tensor *bias,
                                    float softcap, const uint32_t *labels,
                                    const float *label_weights,
                                    float label_smoothing, double weight,
                                    size_t chunk_rows)
{
    static const bt_loss none = { 0 };
    if (bt_tape_status(tape, NULL))
        return none;
    loss op = { .x = x,
                .w = w,
                .bias = bias,
                .transposed = transposed,
                .softcap = softcap,
                .labels = labels,
                .weights = label_weights,
                .smoothing = (double)label_smoothing };
    loss *saved = bt_tape_alloc(tape, 1, sizeof(*saved));
    if (!saved || !prepare(tape, &op, &chunk_rows))
        return none; // without a record all gradients are 0
    op.share = weight / (double)op.counted;
    run(tape, &op, chunk_rows);
    *saved = op;
    bt_tape_record(tape, backward, saved, NULL);
    if (bt_tape_status(tape, NULL))
        return none;
    return (bt_loss){ 0.0, op.counted, op.losses, weight };
}

double bt_loss_read(bt_tape *tape, bt_loss *of)
{
    const double *each = of->each ? bt_tape_read(tape, of->each) : NULL;
    double sum = 0.0;
    if (!each)
        return 0.0;
    for (size_t i = 0; i < of->counted; i++)
        sum += each[i];
    of->loss = of->weight * (sum / (double)of->counted);
    return of->loss;
}

bt_loss bt_op_cross_entropy(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                            bool transposed, bt_tensor *bias, float softcap,
                            const uint32_t *labels, const float *label_weights,
                            float label_smoothing, double weight)
{
    return bt_op_cross_entropy_chunked(
        tape, x, w, transposed, bias, softcap, labels, label_weights,
        label_smoothing, weight, bt_tape_stream(tape)->backend->logits_rows);
}

void bt_op_logprobs(bt_tape *tape, bt_tensor *x, bt_tensor *w, bool transposed,
                    bt_tensor *bias, float softcap, const uint32_t *labels,
                    float *logprobs)
{
    size_t rows = bt_tape_stream(tape)->backend->logits_rows;
    if (bt_tape_status(tape, NULL))
        return;
    loss op = { .x = x,
                .w = w,
                .bias = bias,
                .transposed = transposed,
                .softcap = softcap,
                .labels = labels,
                .exact = true };
    memset(logprobs, 0, x->rows * sizeof(*logprobs));
    if (!prepare(tape, &op, &rows))
        return;
    op.logprobs = bt_tape_scratch(tape, BAUTA_FLOAT32, op.counted, 1);
    if (!op.logprobs)
        return;
    run(tape, &op, rows);
    const float *each = bt_tape_read(tape, op.logprobs);
    for (size_t i = 0; each && i < op.counted; i++)
        logprobs[op.rows[i]] = each[i];
}
