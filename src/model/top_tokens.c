/* SPDX-License-Identifier: Apache-2.0 */
/* top_tokens.c - the most likely tokens of some rows of a batch.
 *
 * The head is applied to the requested rows only, a block of them at a time. */
#include "autograd/ops.h"
#include "base/size.h"
#include "base/sized.h"
#include "model/model_call.h"
#include "runtime/context.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ROWS = 64 };

typedef struct top_job {
    size_t vocab_size, candidates, top_k;
    const float *logits; /* (BLOCK_ROWS, vocab_size) of the current block */
    uint32_t *ids;       /* (BLOCK_ROWS, top_k) */
    double *probabilities;
    bool bad[BLOCK_ROWS]; /* not finite */
} top_job;

/* ---- checks ------------------------------------------------------------ */

static bauta_status options_check(const bauta_top_tokens_options *options,
                                  size_t vocab_size, bauta_error *err)
{
    if (options->vocab_size > vocab_size)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "vocab_size is %zu, but the model has %zu tokens",
                       options->vocab_size, vocab_size);
    return BAUTA_OK;
}

/* The packed row of a row of the batch; SIZE_MAX for padding. */
static size_t packed_row(const bt_token_axis *axis, size_t row)
{
    if (!axis->stride)
        return row;
    size_t sequence = row / axis->stride, at = row % axis->stride, before = 0;
    for (size_t s = 0; s < sequence; s++)
        before += axis->lengths[s];
    return at < axis->lengths[sequence] ? before + at : SIZE_MAX;
}

static bauta_status rows_check(const bauta_batch *batch, const size_t *rows,
                               size_t count, bauta_error *err)
{
    size_t all = bauta_batch_rows(batch);
    if (count)
        BT_NEED(rows, err);
    BT_NEED_COUNT("rows", count, sizeof(*rows), err);
    for (size_t i = 0; i < count; i++)
        if (rows[i] >= all)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "rows[%zu] is %zu, but the batch has %zu rows", i,
                           rows[i], all);
    return BAUTA_OK;
}

/* ---- one row ----------------------------------------------------------- */

/* Insert a candidate into the best `count` so far; returns their new number.
 * Candidates come in ascending order of id, so one of equal probability goes
 * after those that are there. */
static size_t insert(uint32_t *ids, double *probabilities, size_t count,
                     size_t top_k, uint32_t id, double probability)
{
    if (count == top_k && !(probability > probabilities[count - 1]))
        return count;
    size_t at = count < top_k ? count++ : count - 1;
    for (; at > 0 && probability > probabilities[at - 1]; at--) {
        ids[at] = ids[at - 1];
        probabilities[at] = probabilities[at - 1];
    }
    ids[at] = id;
    probabilities[at] = probability;
    return count;
}

static void row_top(void *user, size_t row, int thread)
{
    top_job *j = user;
    const float *z = j->logits + row * j->vocab_size;
    uint32_t *ids = j->ids + row * j->top_k;
    double *probabilities = j->probabilities + row * j->top_k;
    double max = -INFINITY, sum = 0.0;
    size_t count = 0;
    (void)thread;
    j->bad[row] = false;
    for (size_t i = 0; i < j->vocab_size; i++) {
        j->bad[row] |= isnan(z[i]) || z[i] == INFINITY;
        max = fmax(max, (double)z[i]);
    }
    j->bad[row] |= max == -INFINITY;
    for (size_t i = 0; i < j->vocab_size; i++)
        sum += exp((double)z[i] - max);
    for (size_t i = 0; !j->bad[row] && i < j->candidates; i++)
        count = insert(ids, probabilities, count, j->top_k, (uint32_t)i,
                       exp((double)z[i] - max) / sum);
}

/* ---- the call ---------------------------------------------------------- */

/* Run the head over the given rows of x. */
static bool block_logits(bt_model_call *call, bt_tensor *x,
                         const uint32_t *rows, size_t count, float *logits)
{
    const bt_tensor *inputs =
        bt_op_embedding(call->tape, x, rows, count, 1.0f, BT_IGNORE_INDEX);
    return inputs && bt_transformer_logits_to_host(call->tape, call->model,
                                                   inputs, logits);
}

/* *bad: a row has logits that are not finite. */
static bauta_status blocks_run(bt_model_call *call, bt_tensor *x,
                               const uint32_t *rows, size_t count, top_job *job,
                               bool *bad, bauta_error *err)
{
    float *logits = bt_tape_alloc(
        call->tape, bt_size_mul(BLOCK_ROWS, job->vocab_size), sizeof(*logits));
    job->logits = logits;
    for (size_t first = 0; logits && !*bad && first < count;
         first += BLOCK_ROWS) {
        size_t n = bt_size_min(BLOCK_ROWS, count - first);
        if (!block_logits(call, x, rows + first, n, logits))
            break;
        bt_parallel_for(call->context->pool, n, row_top, job);
        for (size_t i = 0; i < n; i++)
            *bad |= job->bad[i];
        job->ids += n * job->top_k;
        job->probabilities += n * job->top_k;
    }
    return bt_tape_status(call->tape, err);
}

static bauta_status run(bt_model_call *call, const size_t *rows, size_t count,
                        top_job *job, bool *bad, bauta_error *err)
{
    const bt_token_axis *axis =
        call->target ? &call->decoder_batch.axis : &call->encoder_batch.axis;
    uint32_t *packed = bt_tape_alloc(call->tape, count, sizeof(*packed));
    for (size_t i = 0; packed && i < count; i++) {
        size_t row = packed_row(axis, rows[i]);
        if (row == SIZE_MAX)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "rows[%zu] is %zu, which is padding", i, rows[i]);
        packed[i] = (uint32_t)row;
    }
    bt_tensor *x = bt_transformer_head_transform(call->tape, call->model,
                                                 bt_model_call_stacks(call));
    bauta_status status = bt_tape_status(call->tape, err);
    return status ? status : blocks_run(call, x, packed, count, job, bad, err);
}

static bauta_status top_tokens(bt_model_call *call, const bauta_model *model,
                               const size_t *rows, size_t count, top_job *job,
                               bauta_error *err)
{
    bool bad = false;
    bauta_status status = bt_model_call_prepare(call, false, err);
    if (!status)
        status = run(call, rows, count, job, &bad, err);
    if (status || !bad)
        return status;
    status = bauta_model_check_finite(call->context, model, call->source,
                                      call->target, err);
    return status ? status
                  : bt_fail(err, BAUTA_ERR_NOT_FINITE,
                            "the logits are not finite");
}

bauta_status
bauta_model_top_tokens(bauta_context *context, const bauta_model *model,
                       const bauta_batch *source, const bauta_batch *target,
                       const size_t *rows, size_t count,
                       const bauta_top_tokens_options *options, uint32_t *ids,
                       double *probabilities, bauta_error *err)
{
    bt_model_call call;
    bauta_top_tokens_options chosen;
    bauta_status status =
        bt_model_call_check(&call, context, model, source, target, err);
    if (status)
        return status;
    size_t vocab_size = bauta_model_vocab_size(model);
    status = BT_SIZED_READ(&chosen, BAUTA_TOP_TOKENS_OPTIONS_INIT, options,
                           "options", err);
    if (!status)
        status = options_check(&chosen, vocab_size, err);
    if (!status)
        status = rows_check(call.target ? call.target : call.source, rows,
                            count, err);
    if (status)
        return status;
    BT_NEED(ids, err);
    BT_NEED(probabilities, err);
    top_job job = { .vocab_size = vocab_size,
                    .candidates =
                        chosen.vocab_size ? chosen.vocab_size : vocab_size,
                    .top_k = chosen.top_k,
                    .ids = ids,
                    .probabilities = probabilities };
    if (job.top_k == 0 || job.top_k > job.candidates)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "top_k is %zu, not from 1 to %zu, the number of tokens",
                       job.top_k, job.candidates);
    return top_tokens(&call, model, rows, count, &job, err);
}
