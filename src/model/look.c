/* SPDX-License-Identifier: Apache-2.0 */
/* look.c - the weights of attention, for whoever wants to see them.
 *
 * The kernels never hold a row of weights. So the forward pass leaves the
 * queries and keys of its attentions where they are, on the tape, and the rows
 * that were asked for are computed again from them: scores in double, at the
 * keys that the very plan of that layer shows, and the softmax of those. */
#include "base/error.h"
#include "base/size.h"
#include "base/threads.h"
#include "model/call.h"
#include "ops/context.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- what is asked for -------------------------------------------------- */

/* The stack that such an attention is part of, or NULL. */
static const bt_stack_print *stack_of(const bt_blueprint *print,
                                      bauta_look_at at)
{
    bool both = print->stacks == BT_ENCODER_DECODER;
    switch (at) {
    case BAUTA_LOOK_ENCODER:
        return print->stacks == BT_DECODER_ONLY ? NULL : &print->encoder;
    case BAUTA_LOOK_DECODER:
        return print->stacks == BT_ENCODER_ONLY ? NULL : &print->decoder;
    case BAUTA_LOOK_CROSS:
        return both ? &print->decoder : NULL;
    }
    return NULL;
}

size_t bauta_model_heads(const bauta_model *model, bauta_look_at at)
{
    if (!model)
        return 0;
    const bt_stack_print *stack = stack_of(&model->folder->model->print, at);
    return stack ? stack->heads : 0;
}

static bauta_status place_check(const bt_blueprint *print,
                                const bauta_look *look, size_t index,
                                bauta_error *err)
{
    static const char *const names[] = { "encoder", "decoder", "cross" };
    if ((size_t)look->at >= BT_LEN(names))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "look %zu: at is %d", index,
                       (int)look->at);
    const bt_stack_print *stack = stack_of(print, look->at);
    if (!stack)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "look %zu: the model has no %s attention", index,
                       names[look->at]);
    if (look->layer >= stack->layers)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "look %zu: layer %zu of a stack of %zu", index,
                       look->layer, stack->layers);
    if (look->head >= stack->heads)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "look %zu: head %zu of a layer of %zu", index,
                       look->head, stack->heads);
    return BAUTA_OK;
}

static bauta_status look_check(const bt_call *call, const bauta_look *look,
                               size_t index, bauta_error *err)
{
    BT_NEED_SIZE(look, bauta_look, "BAUTA_LOOK_INIT", err);
    bauta_status status = place_check(&call->model->print, look, index, err);
    if (status)
        return status;
    bool encoder = look->at == BAUTA_LOOK_ENCODER;
    size_t rows = bauta_batch_rows(encoder ? call->source : call->target);
    if (look->first > rows || look->rows > rows - look->first)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "look %zu: %zu rows from row %zu on, of %zu", index,
                       look->rows, look->first, rows);
    if (look->rows && !look->weights)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "look %zu: weights is NULL",
                       index);
    return BAUTA_OK;
}

static bauta_status looks_check(const bt_call *call, const bauta_look *looks,
                                size_t count, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (count == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "no looks are given");
    BT_NEED(looks, err);
    BT_NEED_COUNT("looks", count, sizeof(*looks), err);
    for (size_t i = 0; !status && i < count; i++)
        status = look_check(call, &looks[i], i, err);
    return status;
}

/* ---- rows --------------------------------------------------------------- */

/* One look, with all that its rows need. */
typedef struct sight {
    const bauta_look *look;
    const bauta_plan *plan;
    const bt_tensor *q, *k;
    size_t q_column, k_column, dim;
    double scale;
    const size_t *row_at; /* (rows of the batch) packed, or NONE for padding */
    const size_t *key_at; /* (packed keys) in the batch */
    size_t keys;          /* of the batch */
    double *scores;       /* (threads, packed keys) */
} sight;

#define NONE SIZE_MAX

/* Where the packed rows lie for the caller. */
static size_t *rows_out(bt_tape *tape, const bt_rows *rows)
{
    size_t *to = bt_tape_take(tape, rows->tokens, sizeof(*to));
    size_t at = 0, start = 0;
    for (size_t s = 0; to && s < rows->axis.count; s++) {
        size_t length = rows->axis.lengths[s];
        for (size_t t = 0; t < length; t++)
            to[at++] = start + t;
        start += rows->axis.stride ? rows->axis.stride : length;
    }
    return to;
}

/* And the other way round. */
static size_t *rows_in(bt_tape *tape, const bt_rows *rows, size_t all)
{
    size_t *out = rows_out(tape, rows);
    size_t *in = bt_tape_take(tape, all, sizeof(*in));
    if (!out || !in)
        return NULL;
    for (size_t i = 0; i < all; i++)
        in[i] = NONE;
    for (size_t i = 0; i < rows->tokens; i++)
        in[out[i]] = i;
    return in;
}

static const bt_tile *tile_of(const bauta_plan *plan, size_t row)
{
    size_t lo = 0, hi = plan->tile_count; // tiles lie by row
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (plan->tiles[middle].row <= row)
            lo = middle;
        else
            hi = middle;
    }
    return &plan->tiles[lo];
}

/* What a row does with the keys [first, first + 64) whose bits are set. */
typedef struct row {
    const sight *s;
    const float *q;
    double *scores, max, sum;
    float *to;
} row;
typedef void keys_fn(row *r, size_t first, uint64_t seen);

/* Visit the blocks of keys that a row sees, in order. */
static void row_visit(row *r, size_t index, keys_fn *visit)
{
    const bauta_plan *plan = r->s->plan;
    const bt_tile *tile = tile_of(plan, index);
    for (size_t i = 0; i < tile->runs; i++) {
        const bt_run *run = &plan->runs[tile->run + i];
        for (size_t b = 0; b < run->count; b++) {
            size_t first = plan->blocks[tile->grid + run->first + b].key;
            uint64_t seen = run->words == BT_FULL
                                ? UINT64_MAX
                                : plan->words[run->words + b * tile->rows +
                                              (index - tile->row)];
            visit(r, first, seen);
        }
    }
}

static void keys_score(row *r, size_t first, uint64_t seen)
{
    const sight *s = r->s;
    for (; seen; seen &= seen - 1) {
        size_t key = first + (size_t)__builtin_ctzll(seen);
        const float *k = s->k->data + key * s->k->stride + s->k_column;
        double sum = 0;
        for (size_t d = 0; d < s->dim; d++)
            sum += (double)r->q[d] * (double)k[d];
        r->scores[key] = sum * s->scale;
        r->max = fmax(r->max, r->scores[key]);
    }
}

static void keys_exp(row *r, size_t first, uint64_t seen)
{
    for (; seen; seen &= seen - 1) {
        size_t key = first + (size_t)__builtin_ctzll(seen);
        r->scores[key] = exp(r->scores[key] - r->max);
        r->sum += r->scores[key];
    }
}

/* A weight too small for a float is still not hidden. */
static void keys_write(row *r, size_t first, uint64_t seen)
{
    for (; seen; seen &= seen - 1) {
        size_t key = first + (size_t)__builtin_ctzll(seen);
        float weight = (float)(r->scores[key] / r->sum);
        r->to[r->s->key_at[key]] = weight < FLT_MIN ? FLT_MIN : weight;
    }
}

static void row_look(void *job, size_t index, int thread)
{
    const sight *s = job;
    size_t packed = s->row_at[s->look->first + index];
    row r = { .s = s,
              .scores = s->scores + (size_t)thread * s->plan->keys,
              .max = -INFINITY,
              .to = s->look->weights + index * s->keys };
    memset(r.to, 0, s->keys * sizeof(*r.to));
    if (packed == NONE)
        return;
    r.q = s->q->data + packed * s->q->stride + s->q_column;
    row_visit(&r, packed, keys_score);
    if (r.max == -INFINITY)
        r.max = 0; // as the kernels have it: no NaN from what is not there
    row_visit(&r, packed, keys_exp);
    if (r.sum != 0) // else it sees nothing
        row_visit(&r, packed, keys_write);
}

/* ---- looking ------------------------------------------------------------ */

static void keep_all(bt_call *call)
{
    const bt_blueprint *print = &call->model->print;
    bt_kept **to[] = { &call->encoder.kept, &call->decoder.kept,
                       &call->decoder.kept_cross };
    for (size_t at = 0; at < BT_LEN(to); at++) {
        const bt_stack_print *stack = stack_of(print, (bauta_look_at)at);
        if (stack)
            *to[at] = bt_tape_take(call->tape, stack->layers, sizeof(bt_kept));
    }
}

static const bauta_plan *plan_of(bt_call *call, const bauta_look *look)
{
    bt_input *input =
        look->at == BAUTA_LOOK_ENCODER ? &call->encoder : &call->decoder;
    bt_place place = bt_layer_place(&call->model->print, look->at, look->layer);
    return *bt_input_plan(input, place);
}

static bt_kept kept_of(const bt_call *call, const bauta_look *look)
{
    if (look->at == BAUTA_LOOK_ENCODER)
        return call->encoder.kept[look->layer];
    return look->at == BAUTA_LOOK_CROSS ? call->decoder.kept_cross[look->layer]
                                        : call->decoder.kept[look->layer];
}

/* As the shape of an attention has it by default. */
static double scale_of(size_t dim)
{
    return (double)(float)(1.0 / sqrt((double)dim));
}

static void look_run(bt_call *call, const bauta_look *look)
{
    const bt_blueprint *print = &call->model->print;
    const bt_stack_print *stack = stack_of(print, look->at);
    bool encoder = look->at == BAUTA_LOOK_ENCODER;
    bool source = look->at != BAUTA_LOOK_DECODER;
    const bt_rows *queries =
        encoder ? &call->encoder_rows : &call->decoder_rows;
    const bt_rows *keys = source ? &call->encoder_rows : &call->decoder_rows;
    size_t rows = bauta_batch_rows(encoder ? call->source : call->target);
    size_t dim = print->head_dim, group = stack->heads / stack->kv_heads;
    int threads = bt_tape_threads(call->tape);
    bt_kept kept = kept_of(call, look);
    sight s = { .look = look,
                .plan = plan_of(call, look),
                .q = kept.q,
                .k = kept.k,
                .q_column = look->head * dim,
                .k_column = look->head / group * dim,
                .dim = dim,
                .scale = scale_of(dim),
                .row_at = rows_in(call->tape, queries, rows),
                .key_at = rows_out(call->tape, keys),
                .keys = bauta_batch_rows(source ? call->source : call->target),
                .scores = bt_tape_take(
                    call->tape, bt_size_mul((size_t)threads, keys->tokens),
                    sizeof(double)) };
    if (s.row_at && s.key_at && s.scores)
        bt_parallel(threads, look->rows, row_look, &s);
}

bauta_status bauta_model_look(bauta_context *context, const bauta_model *model,
                              const bauta_batch *source,
                              const bauta_batch *target,
                              const bauta_outputs *outputs,
                              const bauta_look *looks, size_t count,
                              bauta_error *err)
{
    bt_call call;
    const bauta_outputs none = BAUTA_OUTPUTS_INIT;
    bauta_status status =
        bt_call_check(&call, context, model, source, target, err);
    if (!status && outputs)
        status = bt_outputs_check(&call, outputs, err);
    if (!status)
        status = looks_check(&call, looks, count, err);
    if (!status)
        status = bt_call_prepare(&call, false, err);
    if (status)
        return status;
    keep_all(&call);
    status = bt_call_run(&call, outputs ? outputs : &none, err);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++)
        look_run(&call, &looks[i]);
    return bt_tape_status(call.tape, err);
}
