/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c - one vector for each sequence: pooled hidden states. */
#include "base/sized.h"
#include "base/thread_pool.h"
#include "model/model_call.h"
#include "runtime/context.h"

#include <math.h>

/* Only the stack that is pooled runs: of an encoder-decoder, the encoder. */
static bauta_status call_start(bt_model_call *call, bauta_context *context,
                               const bauta_model *model,
                               const bauta_batch *batch, bauta_error *err)
{
    BT_NEED(context, err);
    BT_NEED(model, err);
    BT_NEED(batch, err);
    bool decoder = bauta_model_kind_of(model) == BAUTA_DECODER_ONLY;
    *call = (bt_model_call){ .context = context,
                             .model = model->store->model,
                             .source = decoder ? NULL : batch,
                             .target = decoder ? batch : NULL };
    bauta_status status =
        bt_batch_check(batch, "batch", &call->model->config, err);
    if (!status && batch->cross_mask)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "batch: a cross mask, where there is no "
                         "cross-attention");
    return status;
}

static bauta_status options_check(const bauta_embed_options *options,
                                  bauta_error *err)
{
    if ((unsigned)options->pooling > BAUTA_POOLING_LAST)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no pooling %d",
                       (int)options->pooling);
    return BAUTA_OK;
}

/* ---- pooling ----------------------------------------------------------- */

typedef struct pool_job {
    const bauta_embed_options *options;
    const bt_token_axis *axis;
    const size_t *starts; /* (sequences) first packed row of each */
    const float *states;  /* (packed rows, width) */
    size_t width;
    float *embeddings; /* (sequences, width) */
} pool_job;

static void pool(void *user, size_t sequence, int thread)
{
    const pool_job *j = user;
    bauta_pooling pooling = j->options->pooling;
    size_t width = j->width, rows = j->axis->lengths[sequence];
    const float *states = j->states + j->starts[sequence] * width;
    float *vector = j->embeddings + sequence * width;
    size_t first = pooling == BAUTA_POOLING_LAST ? rows - 1 : 0;
    size_t end = pooling == BAUTA_POOLING_CLS ? 1 : rows;
    double square = 0.0;
    (void)thread;
    for (size_t d = 0; d < width; d++) {
        double sum = 0.0;
        for (size_t i = first; i < end; i++)
            sum += (double)states[i * width + d];
        sum /= (double)(end - first);
        vector[d] = (float)sum;
        square += sum * sum;
    }
    if (!j->options->normalize || !(square > 0.0))
        return;
    double scale = 1.0 / sqrt(square);
    for (size_t d = 0; d < width; d++)
        vector[d] = (float)((double)vector[d] * scale);
}

/* The first packed row of each sequence; none may be empty. */
static bauta_status starts_find(size_t **out, bt_tape *tape,
                                const bt_token_axis *axis, bauta_error *err)
{
    size_t *starts = bt_tape_alloc(tape, axis->count, sizeof(*starts)), row = 0;
    for (size_t s = 0; starts && s < axis->count; s++) {
        if (axis->lengths[s] == 0)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "batch: sequence %zu has no tokens", s);
        starts[s] = row;
        row += axis->lengths[s];
    }
    *out = starts;
    return bt_tape_status(tape, err);
}

/* ---- the call ---------------------------------------------------------- */

static bool all_finite(const float *numbers, size_t count)
{
    size_t i = 0;
    while (i < count && isfinite(numbers[i]))
        i++;
    return i == count;
}

static bauta_status embed(bt_model_call *call, const bauta_model *model,
                          const bauta_embed_options *options, float *embeddings,
                          bauta_error *err)
{
    const bt_packed_batch *rows =
        call->target ? &call->decoder_batch : &call->encoder_batch;
    size_t *starts = NULL;
    bauta_status status = starts_find(&starts, call->tape, &rows->axis, err);
    if (status)
        return status;
    bt_tensor *x = bt_model_call_stacks(call);
    status = bt_tape_status(call->tape, err);
    if (status)
        return status;
    const float *states = bt_tape_read_f32(call->tape, x);
    if (!states)
        return bt_tape_status(call->tape, err);
    pool_job job = { options, &rows->axis, starts,
                     states,  x->columns,  embeddings };
    bt_parallel_for(call->context->pool, rows->axis.count, pool, &job);
    if (all_finite(embeddings, rows->axis.count * job.width))
        return BAUTA_OK;
    status = bt_model_call_prepare(call, false, err);
    if (!status)
        status = bt_model_call_check_states(call, model, &x, err);
    return status ? status
                  : bt_fail(err, BAUTA_ERR_NOT_FINITE,
                            "an embedding is not finite");
}

bauta_status bauta_model_embed(bauta_context *context, const bauta_model *model,
                               const bauta_batch *batch,
                               const bauta_embed_options *options,
                               float *embeddings, bauta_error *err)
{
    bt_model_call call;
    bauta_embed_options chosen;
    bauta_status status = call_start(&call, context, model, batch, err);
    if (!status)
        status = BT_SIZED_READ(&chosen, BAUTA_EMBED_OPTIONS_INIT, options,
                               "options", err);
    if (!status)
        status = options_check(&chosen, err);
    if (status)
        return status;
    BT_NEED(embeddings, err);
    status = bt_model_call_prepare(&call, false, err);
    return status ? status : embed(&call, model, &chosen, embeddings, err);
}
