/* SPDX-License-Identifier: Apache-2.0 */
/* attention_weights.c - the attention weights of a forward pass.
 *
 * The kernels never hold a row of weights. The forward pass keeps the queries
 * and keys of its attentions on the tape, and the requested rows are recomputed
 * from them: scores in double, at the keys that the layer's own plan shows, and
 * their softmax. */
#include "base/size.h"
#include "base/sized.h"
#include "base/thread_pool.h"
#include "model/model_call.h"
#include "runtime/context.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- checks ------------------------------------------------------------ */

/* The stack that has this attention, or NULL. */
static const bt_stack_config *stack_of(const bt_model_config *config,
                                       bauta_attention_kind attention)
{
    bool both = config->stacks == BT_ENCODER_DECODER;
    switch (attention) {
    case BAUTA_ATTENTION_ENCODER:
        return config->stacks == BT_DECODER_ONLY ? NULL : &config->encoder;
    case BAUTA_ATTENTION_DECODER:
        return config->stacks == BT_ENCODER_ONLY ? NULL : &config->decoder;
    case BAUTA_ATTENTION_CROSS:
        return both ? &config->decoder : NULL;
    }
    return NULL;
}

size_t bauta_model_heads(const bauta_model *model,
                         bauta_attention_kind attention)
{
    if (!model)
        return 0;
    const bt_stack_config *stack =
        stack_of(&model->store->model->config, attention);
    return stack ? stack->heads : 0;
}

static bauta_status slot_check(const bt_model_config *config,
                               const bauta_attention_weights *request,
                               size_t index, bauta_error *err)
{
    static const char *const names[] = { "encoder", "decoder", "cross" };
    if ((size_t)request->attention >= BT_LEN(names))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "request %zu: attention is %d",
                       index, (int)request->attention);
    const bt_stack_config *stack = stack_of(config, request->attention);
    if (!stack)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "request %zu: the model has no %s attention", index,
                       names[request->attention]);
    if (request->layer >= stack->layers)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "request %zu: layer %zu of a stack of %zu", index,
                       request->layer, stack->layers);
    if (request->head >= stack->heads)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "request %zu: head %zu of a layer of %zu", index,
                       request->head, stack->heads);
    return BAUTA_OK;
}

static bauta_status request_check(const bt_model_call *call,
                                  const bauta_attention_weights *request,
                                  size_t index, bauta_error *err)
{
    bauta_status status = slot_check(&call->model->config, request, index, err);
    if (status)
        return status;
    bool encoder = request->attention == BAUTA_ATTENTION_ENCODER;
    size_t rows = bauta_batch_rows(encoder ? call->source : call->target);
    if (request->first > rows || request->rows > rows - request->first)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "request %zu: %zu rows from row %zu on, of %zu", index,
                       request->rows, request->first, rows);
    if (request->rows && !request->weights)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "request %zu: weights is NULL",
                       index);
    return BAUTA_OK;
}

static bauta_status request_read(bauta_attention_weights *to,
                                 const bauta_attention_weights *requests,
                                 size_t index, bauta_error *err)
{
    return BT_SIZED_ELEMENT(to, BAUTA_ATTENTION_WEIGHTS_INIT, requests, index,
                            "requests", err);
}

static bauta_status requests_check(const bt_model_call *call,
                                   const bauta_attention_weights *requests,
                                   size_t count, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (count == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "no requests are given");
    BT_NEED(requests, err);
    BT_NEED_COUNT("requests", count, BT_SIZED_MAX, err);
    for (size_t i = 0; !status && i < count; i++) {
        bauta_attention_weights request;
        status = request_read(&request, requests, i, err);
        if (!status)
            status = request_check(call, &request, i, err);
    }
    return status;
}

/* ---- rows -------------------------------------------------------------- */

/* One request, with everything that computing its rows needs. */
typedef struct weights_job {
    const bauta_attention_weights *request;
    const bauta_mask *mask;
    const float *q, *k; /* of the head, in host memory */
    size_t q_stride, k_stride, dim;
    double scale, softcap; /* softcap 0: none */
    double slope;          /* of ALiBi; 0: none */
    const float *table;    /* (distances, heads) of the head, or NULL */
    size_t distances, table_stride;
    ptrdiff_t first_distance;
    const size_t *row_at; /* (rows of the batch) packed row; NONE: padding */
    const size_t *key_at; /* (packed keys) row of the batch */
    size_t keys;          /* of the batch */
    double *scores;       /* (threads, packed keys) */
} weights_job;

#define NONE SIZE_MAX

/* The batch row of each packed row. */
static size_t *unpacked_rows(bt_tape *tape, const bt_packed_batch *rows)
{
    size_t *to = bt_tape_alloc(tape, rows->tokens, sizeof(*to));
    size_t count = 0, start = 0;
    for (size_t s = 0; to && s < rows->axis.count; s++) {
        size_t length = rows->axis.lengths[s];
        for (size_t t = 0; t < length; t++)
            to[count++] = start + t;
        start += rows->axis.stride ? rows->axis.stride : length;
    }
    return to;
}

/* The packed row of each batch row. */
static size_t *packed_rows(bt_tape *tape, const bt_packed_batch *rows,
                           size_t all)
{
    size_t *out = unpacked_rows(tape, rows);
    size_t *in = bt_tape_alloc(tape, all, sizeof(*in));
    if (!out || !in)
        return NULL;
    for (size_t i = 0; i < all; i++)
        in[i] = NONE;
    for (size_t i = 0; i < rows->tokens; i++)
        in[out[i]] = i;
    return in;
}

/* The state of one row. */
typedef struct row {
    const weights_job *s;
    size_t index; /* packed */
    const float *q;
    double *scores, max, sum;
    float *to;
} row;

/* Called with each span of keys that the row sees, in order. */
typedef void keys_fn(row *r, bauta_span keys);

static void row_visit(row *r, size_t index, keys_fn *visit)
{
    bt_spans spans = bt_mask_spans(r->s->mask, index);
    for (size_t i = 0; i < spans.count; i++)
        visit(r, spans.at[i]);
}

/* The bias of a key by its distance; queries and keys are the same tokens. */
static double bias_of(const row *r, size_t key)
{
    const weights_job *s = r->s;
    ptrdiff_t distance = (ptrdiff_t)key - (ptrdiff_t)r->index;
    ptrdiff_t at = distance - s->first_distance;
    ptrdiff_t last = (ptrdiff_t)s->distances - 1;
    if (!s->table)
        return s->slope * (double)distance;
    at = at < 0 ? 0 : at > last ? last : at;
    return (double)s->table[(size_t)at * s->table_stride];
}

static void keys_score(row *r, bauta_span keys)
{
    const weights_job *s = r->s;
    for (size_t key = keys.lo; key < keys.hi; key++) {
        const float *k = s->k + key * s->k_stride;
        double sum = 0;
        for (size_t d = 0; d < s->dim; d++)
            sum += (double)r->q[d] * (double)k[d];
        sum *= s->scale;
        if (s->softcap != 0)
            sum = s->softcap * tanh(sum / s->softcap);
        r->scores[key] = sum + bias_of(r, key);
        r->max = fmax(r->max, r->scores[key]);
    }
}

static void keys_exp(row *r, bauta_span keys)
{
    for (size_t key = keys.lo; key < keys.hi; key++) {
        r->scores[key] = exp(r->scores[key] - r->max);
        r->sum += r->scores[key];
    }
}

/* A weight that underflows float becomes FLT_MIN, since 0 means masked. */
static void keys_write(row *r, bauta_span keys)
{
    for (size_t key = keys.lo; key < keys.hi; key++) {
        float weight = (float)(r->scores[key] / r->sum);
        r->to[r->s->key_at[key]] = weight < FLT_MIN ? FLT_MIN : weight;
    }
}

static void row_weights(void *job, size_t index, int thread)
{
    const weights_job *s = job;
    size_t packed = s->row_at[s->request->first + index];
    row r = { .s = s,
              .scores = s->scores + (size_t)thread * s->mask->keys,
              .max = -INFINITY,
              .to = s->request->weights + index * s->keys };
    memset(r.to, 0, s->keys * sizeof(*r.to));
    if (packed == NONE)
        return;
    r.q = s->q + packed * s->q_stride;
    r.index = packed;
    row_visit(&r, packed, keys_score);
    if (r.max == -INFINITY)
        r.max = 0; // as in the kernels: no NaN for a row without keys
    row_visit(&r, packed, keys_exp);
    if (r.sum != 0) // otherwise no key is visible
        row_visit(&r, packed, keys_write);
}

/* ---- the call ---------------------------------------------------------- */

static void save_qk(bt_model_call *call)
{
    const bt_model_config *config = &call->model->config;
    bt_saved_qk **to[] = { &call->encoder.saved_qk, &call->decoder.saved_qk,
                           &call->decoder.saved_cross_qk };
    for (size_t attention = 0; attention < BT_LEN(to); attention++) {
        const bt_stack_config *stack =
            stack_of(config, (bauta_attention_kind)attention);
        if (stack)
            *to[attention] =
                bt_tape_alloc(call->tape, stack->layers, sizeof(bt_saved_qk));
    }
}

static bt_saved_qk saved_of(const bt_model_call *call,
                            const bauta_attention_weights *request)
{
    if (request->attention == BAUTA_ATTENTION_ENCODER)
        return call->encoder.saved_qk[request->layer];
    return request->attention == BAUTA_ATTENTION_CROSS
               ? call->decoder.saved_cross_qk[request->layer]
               : call->decoder.saved_qk[request->layer];
}

static double scale_of(const bt_model_config *config)
{
    if (config->attention_scale != 0.0f)
        return (double)config->attention_scale;
    return (double)(float)(1.0 / sqrt((double)config->head_dim));
}

/* The table by distance of an attention that has one. */
static void bias_set(weights_job *s, const bt_model_call *call,
                     const bt_saved_qk *saved, bool encoder)
{
    const bt_stack *stack =
        encoder ? &call->model->encoder : &call->model->decoder;
    if (!saved->relative)
        return;
    s->table = bt_tape_read_f32(call->tape, saved->relative);
    if (s->table)
        s->table += s->request->head;
    s->distances = saved->relative->rows;
    s->table_stride = saved->relative->columns;
    s->first_distance = stack->first_distance;
}

static bauta_status weights_compute(bt_model_call *call,
                                    const bauta_attention_weights *request,
                                    bauta_error *err)
{
    const bt_model_config *config = &call->model->config;
    const bt_stack_config *stack = stack_of(config, request->attention);
    bool encoder = request->attention == BAUTA_ATTENTION_ENCODER;
    bool source = request->attention != BAUTA_ATTENTION_DECODER;
    const bt_packed_batch *queries =
        encoder ? &call->encoder_batch : &call->decoder_batch;
    const bt_packed_batch *keys =
        source ? &call->encoder_batch : &call->decoder_batch;
    size_t rows = bauta_batch_rows(encoder ? call->source : call->target);
    size_t dim = config->head_dim, group = stack->heads / stack->kv_heads;
    size_t threads = (size_t)call->context->threads;
    bt_saved_qk saved = saved_of(call, request);
    const float *q = bt_tape_read_f32(call->tape, saved.q);
    const float *k = bt_tape_read_f32(call->tape, saved.k);
    bt_batch_mask batch =
        bt_model_call_mask(call, request->attention, request->layer);
    bauta_mask *mask = NULL;
    bauta_status status = bt_tape_status(call->tape, err);
    if (!status)
        status = bt_batch_mask_create(&mask, &batch, err);
    if (status)
        return status;
    weights_job s = {
        .request = request,
        .mask = mask,
        .q = q + request->head * dim,
        .k = k + request->head / group * dim,
        .q_stride = saved.q->columns,
        .k_stride = saved.k->columns,
        .dim = dim,
        .scale = scale_of(config),
        .slope = !source && call->model->slopes
                     ? (double)call->model->slopes[request->head]
                     : 0,
        .softcap = source ? 0 : (double)config->attention_softcap,
        .row_at = packed_rows(call->tape, queries, rows),
        .key_at = unpacked_rows(call->tape, keys),
        .keys = bauta_batch_rows(source ? call->source : call->target),
        .scores = bt_tape_alloc(call->tape, bt_size_mul(threads, keys->tokens),
                                sizeof(double))
    };
    bias_set(&s, call, &saved, encoder);
    if (s.row_at && s.key_at && s.scores)
        bt_parallel_for(call->context->pool, request->rows, row_weights, &s);
    bauta_mask_free(mask);
    return bt_tape_status(call->tape, err);
}

bauta_status bauta_model_attention_weights(
    bauta_context *context, const bauta_model *model, const bauta_batch *source,
    const bauta_batch *target, const bauta_outputs *outputs,
    const bauta_attention_weights *requests, size_t count, bauta_error *err)
{
    bt_model_call call;
    bauta_outputs asked;
    bauta_status status =
        bt_model_call_check(&call, context, model, source, target, err);
    if (!status)
        status = bt_model_call_outputs(&asked, &call, outputs, err);
    if (!status)
        status = requests_check(&call, requests, count, err);
    if (!status)
        status = bt_model_call_prepare(&call, false, err);
    if (status)
        return status;
    save_qk(&call);
    status = bt_model_call_run(&call, &asked, err);
    for (size_t i = 0; !status && i < count; i++) {
        bauta_attention_weights request;
        status = request_read(&request, requests, i, err);
        if (!status)
            status = weights_compute(&call, &request, err);
    }
    return status;
}
