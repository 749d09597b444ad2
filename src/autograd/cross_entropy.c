/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c - cross-entropy over a vocabulary, in chunks of rows.
 *
 * Rows whose label is not ignored are processed in order, 256 at a time:
 *
 *     logits z = x W^T + bias                       (chunk, vocabulary)
 *     e[j]  = exp(z[j] - max z),  l = sum e         per row, softmax.h
 *     lse   = max z + log(l)
 *     loss  = (1 - s) (lse - z[label]) + s (lse - mean z)
 *     dz[j] = fma(e[j], g / l, -g s / vocabulary)   over the logits
 *     dz[label] -= g (1 - s)                        g = weight / counted
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
 * of the size of W and one addition of it, little compared to a product with W.
 */
#include "autograd/cross_entropy.h"

#include "autograd/linear.h"
#include "backend/cpu/gradient_accumulation.h"
#include "backend/cpu/kernels/exp2.h"
#include "backend/cpu/row_stats.h"
#include "base/size.h"
#include "base/threads.h"

enum {
    CHUNK_ROWS = 256, /* 128 is 20 % slower, more is hardly faster */
    SCATTER_ROWS = 16 /* in a task of the backward pass */
};

typedef struct loss {
    bt_tensor *x, *w, *bias;
    bt_linear l;
    const uint32_t *labels;  /* the caller's: valid until the op returns */
    const float *weights;    /* of the labels, likewise, or NULL */
    double smoothing, share; /* share: weight of a row in the loss, g above */
    size_t counted;
    size_t *rows;  /* (counted) their indices */
    double *each;  /* (counted) their losses */
    float *logits; /* (chunk, outputs) */
    float *inputs; /* (chunk, inputs) copies of rows that are not contiguous */
    /* Gradients for the backward pass, each NULL if not required. */
    float *dx; /* (counted, inputs) */
    float *dw; /* like W, but dense */
    float *dbias;
    float *logprobs; /* (rows) instead of a loss, or NULL */
} loss;

/* ---- A row --------------------------------------------------------------- */

typedef struct chunk {
    const loss *op;
    const bt_kernels *kernels;
    size_t first, count; /* of the counted rows */
    bool gradient;
} chunk;

/* log(l); NaN if a logit was NaN or the largest one infinite. */
static double logarithm(float l)
{
    return isfinite(l) ? bt_log2((double)l) * BT_LN2 : (double)l;
}

/* The loss of a row of logits, which its gradient overwrites. */
static double run_row(const chunk *c, float *z, size_t row)
{
    const loss *op = c->op;
    size_t count = op->l.outputs;
    uint32_t label = op->labels[row];
    double weight = op->weights ? (double)op->weights[row] : 1.0;
    double s = op->smoothing, share = op->share * weight, mean = 0.0;
    float max = c->kernels->row_max(z, count), picked = z[label];
    if (s > 0.0)
        mean = c->kernels->row_sum(z, count) / (double)count;
    float sum = c->kernels->row_exp_sum(z, z, count, max);
    double lse = (double)max + logarithm(sum);
    if (c->gradient) {
        c->kernels->row_affine(z, count, (float)(share / (double)sum),
                               (float)(-share * s / (double)count));
        z[label] -= (float)(share * (1.0 - s));
    }
    double value = lse - (double)picked;
    return weight * (s > 0.0 ? (1.0 - s) * value + s * (lse - mean) : value);
}

/* As the sampler computes it; the row of logits is overwritten. */
static void run_logprob(const chunk *c, float *z, size_t row)
{
    const loss *op = c->op;
    float picked = z[op->labels[row]];
    op->logprobs[row] =
        picked - bt_row_stats_of(c->kernels, z, op->l.outputs, z).lse;
}

static void run_task(void *job, size_t task, int thread)
{
    (void)thread;
    const chunk *c = job;
    size_t at = c->first + task, row = c->op->rows[at];
    float *z = c->op->logits + task * c->op->l.outputs;
    if (c->op->logprobs)
        run_logprob(c, z, row);
    else
        c->op->each[at] = run_row(c, z, row);
}

/* ---- A chunk ------------------------------------------------------------- */

/* The chunk's rows of x: in place if they are contiguous, else a copy. */
static const float *gather(const chunk *c)
{
    const loss *op = c->op;
    const size_t *rows = op->rows + c->first;
    size_t width = op->l.inputs;
    if (rows[c->count - 1] - rows[0] == c->count - 1)
        return op->x->data + rows[0] * width;
    for (size_t i = 0; i < c->count; i++)
        memcpy(op->inputs + i * width, op->x->data + rows[i] * width,
               width * sizeof(float));
    return op->inputs;
}

static bool run_gradients(bt_tape *tape, const chunk *c, const float *x)
{
    const loss *op = c->op;
    const float *dz = op->logits;
    bool add = c->first > 0;
    if (op->dx && !bt_linear_dx(tape, &op->l, c->count, dz,
                                op->dx + c->first * op->l.inputs, false))
        return false;
    if (op->dw && !bt_linear_dw(tape, &op->l, c->count, x, dz, op->dw,
                                op->w->columns, add))
        return false;
    if (op->dbias)
        bt_grad_accumulate_rows(bt_tape_threads(tape), op->dbias, dz, c->count,
                                op->l.outputs, add);
    return true;
}

static bool run_chunk(bt_tape *tape, chunk *c)
{
    const loss *op = c->op;
    const float *x = gather(c);
    if (!bt_linear_forward(tape, &op->l, c->count, x,
                           op->bias ? op->bias->data : NULL, op->logits))
        return false;
    bt_parallel_for(bt_tape_threads(tape), c->count, run_task, c);
    return !c->gradient || run_gradients(tape, c, x);
}

/* ---- The op -------------------------------------------------------------- */

static bool fits(bt_tape *tape, const loss *op, bool transposed)
{
    if (!bt_linear_check(tape, "loss", op->x, op->w, transposed, op->bias))
        return false;
    if (!(op->smoothing >= 0.0 && op->smoothing <= 1.0))
        bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                     "loss: smoothing is %g, not from 0 to 1", op->smoothing);
    for (size_t row = 0; row < op->x->rows; row++)
        if (op->labels[row] != BT_IGNORE_INDEX &&
            op->labels[row] >= op->l.outputs)
            bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                         "loss: the label of row %zu is %u, the vocabulary "
                         "has %zu entries",
                         row, op->labels[row], op->l.outputs);
    return bt_tape_status(tape, NULL) == BAUTA_OK;
}

static void find_counted(loss *op)
{
    for (size_t row = 0; row < op->x->rows; row++)
        if (op->labels[row] != BT_IGNORE_INDEX)
            op->rows[op->counted++] = row;
}

static float *alloc_grad(bt_tape *tape, const bt_tensor *tensor)
{
    if (!tensor || !tensor->requires_grad || !bt_tape_recording(tape))
        return NULL;
    return bt_tape_alloc(tape, bt_size_mul(tensor->rows, tensor->columns),
                         sizeof(float));
}

/* All memory of the op except the list of rows; false if there is none. */
static bool alloc_memory(bt_tape *tape, loss *op, size_t rows)
{
    op->each = bt_tape_alloc(tape, op->counted, sizeof(double));
    op->logits =
        bt_tape_alloc(tape, bt_size_mul(rows, op->l.outputs), sizeof(float));
    if (op->counted < op->x->rows)
        op->inputs =
            bt_tape_alloc(tape, bt_size_mul(rows, op->l.inputs), sizeof(float));
    bt_tensor counted = *op->x;
    counted.rows = op->counted;
    op->dx = alloc_grad(tape, &counted);
    op->dw = alloc_grad(tape, op->w);
    op->dbias = alloc_grad(tape, op->bias);
    return bt_tape_status(tape, NULL) == BAUTA_OK;
}

static void scatter_task(void *job, size_t task, int thread)
{
    (void)thread;
    const loss *op = job;
    size_t width = op->l.inputs, first = task * SCATTER_ROWS;
    size_t last = bt_size_min(first + SCATTER_ROWS, op->counted);
    for (size_t i = first; i < last; i++)
        bt_grad_accumulate(1, op->x->grad + op->rows[i] * width, width,
                           op->dx + i * width, 1, width, true);
}

/* Ignored rows of x get no gradient, or 0 if there was none yet. */
static void backward(bt_tape *tape, void *saved)
{
    loss *op = saved;
    int threads = bt_tape_threads(tape);
    float *grad;
    bool add;
    if (op->dx && (grad = bt_tape_grad(tape, op->x, &add))) {
        if (!add)
            memset(grad, 0, op->x->rows * op->l.inputs * sizeof(float));
        bt_parallel_for(threads,
                        bt_size_round(op->counted, SCATTER_ROWS) / SCATTER_ROWS,
                        scatter_task, op);
    }
    if (op->dw && (grad = bt_tape_grad(tape, op->w, &add)))
        bt_grad_accumulate(threads, grad, op->w->stride, op->dw, op->w->rows,
                           op->w->columns, add);
    if (op->dbias && (grad = bt_tape_grad(tape, op->bias, &add)))
        bt_grad_accumulate(threads, grad, op->l.outputs, op->dbias, 1,
                           op->l.outputs, add);
}

static void run(bt_tape *tape, const loss *op, size_t rows)
{
    chunk c = { .op = op,
                .kernels = bt_tape_kernels(tape),
                .gradient = op->dx || op->dw || op->dbias };
    for (; c.first < op->counted; c.first += c.count) {
        c.count = bt_size_min(rows, op->counted - c.first);
        if (!run_chunk(tape, &c))
            return;
    }
}

/* Everything up to the first logits: false if the tape has failed, or if no row
 * counts. */
static bool prepare(bt_tape *tape, loss *op, bool transposed, size_t *rows)
{
    op->rows = bt_tape_alloc(tape, op->x->rows, sizeof(*op->rows));
    if (!op->rows || !fits(tape, op, transposed))
        return false;
    find_counted(op);
    *rows = bt_size_min(*rows, op->counted);
    return op->counted && alloc_memory(tape, op, *rows);
}

bt_loss bt_op_cross_entropy_chunked(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                                    bool transposed, bt_tensor *bias,
                                    const uint32_t *labels,
                                    const float *label_weights,
                                    float label_smoothing, double weight,
                                    size_t chunk_rows)
{
    static const bt_loss none = { 0.0, 0 };
    if (bt_tape_status(tape, NULL))
        return none;
    loss op = { .x = x,
                .w = w,
                .bias = bias,
                .l = bt_linear_of(w, transposed),
                .labels = labels,
                .weights = label_weights,
                .smoothing = (double)label_smoothing };
    loss *saved = bt_tape_alloc(tape, 1, sizeof(*saved));
    if (!saved || !prepare(tape, &op, transposed, &chunk_rows))
        return none; // without a record all gradients are 0
    op.share = weight / (double)op.counted;
    run(tape, &op, chunk_rows);
    *saved = op;
    bt_tape_record(tape, backward, saved);
    if (bt_tape_status(tape, NULL))
        return none;
    double sum = 0.0;
    for (size_t i = 0; i < op.counted; i++)
        sum += op.each[i];
    return (bt_loss){ weight * (sum / (double)op.counted), op.counted };
}

bt_loss bt_op_cross_entropy(bt_tape *tape, bt_tensor *x, bt_tensor *w,
                            bool transposed, bt_tensor *bias,
                            const uint32_t *labels, const float *label_weights,
                            float label_smoothing, double weight)
{
    return bt_op_cross_entropy_chunked(tape, x, w, transposed, bias, labels,
                                       label_weights, label_smoothing, weight,
                                       CHUNK_ROWS);
}

void bt_op_logprobs(bt_tape *tape, bt_tensor *x, bt_tensor *w, bool transposed,
                    bt_tensor *bias, const uint32_t *labels, float *logprobs)
{
    size_t rows = CHUNK_ROWS;
    if (bt_tape_status(tape, NULL))
        return;
    loss op = { .x = x,
                .w = w,
                .bias = bias,
                .l = bt_linear_of(w, transposed),
                .labels = labels,
                .logprobs = logprobs };
    memset(logprobs, 0, x->rows * sizeof(*logprobs));
    if (prepare(tape, &op, transposed, &rows))
        run(tape, &op, rows);
}
