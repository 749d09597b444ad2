/* SPDX-License-Identifier: Apache-2.0 */
/* generator.c - a generator: its scratch memory, its public calls, and a step:
 * append, sample, commit, and finish requests that have ended. */
#include "decode/generator.h"
#include "base/array.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "runtime/context.h"

#include <string.h>

/* ---- create and free --------------------------------------------------- */

static bauta_status options_check(const bauta_generator_options *options,
                                  bauta_error *err)
{
    if (options->max_sequences == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the number of sequences is 0");
    if (options->max_batched_tokens == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the token budget of a step is 0");
    return BAUTA_OK;
}

static bauta_status generator_fill(bauta_generator *g, bauta_error *err)
{
    g->vocab = bauta_model_vocab_size(g->model);
    g->queue_end = &g->queue;
    g->now = &g->samples[0];
    g->next = &g->samples[1];
    bauta_status status = bt_decode_session_create(
        &g->session, g->context, g->model, g->options.cache_bytes, err);
    if (status)
        return status;
    g->prefixes =
        bt_alloc_zero(g->options.cached_sequences, sizeof(*g->prefixes));
    if (!g->prefixes)
        return bt_fail_memory(
            err, "ended texts",
            bt_size_mul(g->options.cached_sequences, sizeof(*g->prefixes)));
    return BAUTA_OK;
}

bauta_status bauta_generator_create(bauta_generator **out,
                                    bauta_context *context,
                                    const bauta_model *model,
                                    const bauta_tokenizer *tokenizer,
                                    const bauta_generator_options *options,
                                    bauta_error *err)
{
    bauta_generator_options chosen;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(context, err);
    BT_NEED(model, err);
    bauta_status status = BT_SIZED_READ(&chosen, BAUTA_GENERATOR_OPTIONS_INIT,
                                        options, "options", err);
    if (!status)
        status = options_check(&chosen, err);
    if (status)
        return status;
    if (bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "an encoder-only model cannot generate text");
    bauta_generator *g = bt_alloc_zero(1, sizeof(*g));
    if (!g)
        return bt_fail_memory(err, "a generator", sizeof(*g));
    g->context = context;
    g->model = model;
    g->tokenizer = tokenizer;
    g->options = chosen;
    status = generator_fill(g, err);
    if (status)
        bauta_generator_free(g);
    else
        *out = g;
    return status;
}

void bauta_generator_free(bauta_generator *g)
{
    if (!g)
        return;
    for (bt_request *r = g->queue, *next; r; r = next) {
        next = r->next;
        bt_request_free(r);
    }
    for (size_t i = 0; i < g->running_count; i++)
        bt_request_free(g->running[i]);
    while (bt_generator_evict_prefix(g))
        ;
    for (size_t i = 0; i < g->results.count; i++)
        bauta_result_free(g->results.items[g->results.first + i]);
    bt_decode_session_free(g->session);
    bt_free(g->running);
    bt_free(g->prefixes);
    bt_free(g->results.items);
    if (g->logits.memory)
        g->logits.backend->free(&g->logits);
    bt_free(g->logits_row);
    bt_free(g->inputs);
    for (size_t i = 0; i < BT_LEN(g->samples); i++) {
        bt_free(g->samples[i].items);
        if (g->samples[i].sampling)
            g->samples[i].sampling->backend->sampling_free(
                g->samples[i].sampling);
    }
    bt_free(g->beams);
    bt_free(g->scores);
    bt_free(g->histories);
    bt_free(g);
}

/* ---- requests and results ---------------------------------------------- */

bauta_status bauta_generator_add(bauta_generator *generator,
                                 const bauta_request *request, bauta_error *err)
{
    BT_NEED(generator, err);
    BT_NEED(request, err);
    bt_request *r;
    bt_request_limits limits = { generator->model, generator->tokenizer,
                                 generator->session,
                                 generator->options.max_sequences };
    bauta_status status = bt_request_create(&r, request, &limits, err);
    if (status)
        return status;
    *generator->queue_end = r;
    generator->queue_end = &r->next;
    generator->queued++;
    return BAUTA_OK;
}

bauta_result *bauta_generator_take(bauta_generator *generator)
{
    if (!generator || generator->results.count == 0)
        return NULL;
    generator->results.count--;
    return generator->results.items[generator->results.first++];
}

uint64_t bauta_generator_bytes(const bauta_generator *generator)
{
    return generator ? bt_decode_session_used(generator->session) : 0;
}

/* The number of beams of the request, or the model's default. */
static bauta_status sequences_of(size_t *out, const bauta_request *request,
                                 const bauta_model *model, bauta_error *err)
{
    bauta_request own;
    bauta_generate_options options;
    bauta_status status = bt_request_read(&own, &options, request, model, err);
    if (!status)
        *out = options.num_beams;
    return status;
}

/* Take the only result, or its error. */
static bauta_status result_take(bauta_result **out, bauta_generator *generator,
                                bauta_error *err)
{
    bauta_result *result = bauta_generator_take(generator);
    bauta_status status = result->status;
    if (status) {
        bt_fail(err, status, "%s", result->message);
        bauta_result_free(result);
        return status;
    }
    *out = result;
    return BAUTA_OK;
}

bauta_status bauta_generate(bauta_context *context, const bauta_model *model,
                            const bauta_tokenizer *tokenizer,
                            const bauta_request *request, bauta_result **out,
                            bauta_error *err)
{
    bauta_generator_options options = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *generator = NULL;
    size_t left = 1;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(model, err);
    BT_NEED(request, err);
    bauta_status status =
        sequences_of(&options.max_sequences, request, model, err);
    if (!status && options.max_sequences == 0)
        options.max_sequences = 1; // bauta_generator_add() reports the error
    if (!status)
        status = bauta_generator_create(&generator, context, model, tokenizer,
                                        &options, err);
    if (!status)
        status = bauta_generator_add(generator, request, err);
    while (!status && left)
        status = bauta_generator_step(generator, &left, err);
    if (!status)
        status = result_take(out, generator, err);
    bauta_generator_free(generator);
    return status;
}

/* ---- appending --------------------------------------------------------- */

/* Inputs and rows of logits of this step so far. */
typedef struct step_counts {
    const bt_tensor *logits; /* of all rows */
    size_t inputs, rows;
} step_counts;

static size_t chunk_of(const bt_request *r, size_t budget)
{
    return bt_size_min(r->prompt - r->prompt_read, budget);
}

/* Rows of logits begin at multiples of 32 bytes: GPUs read and write them
 * faster, and products need no copy of them. */
static size_t logits_stride(const bauta_generator *g)
{
    return bt_size_round(g->vocab, 8);
}

/* A buffer of logits for some rows, on the device. */
static bool logits_reserve(bauta_generator *g, size_t rows)
{
    bt_stream *stream = g->context->stream;
    bt_buffer larger;
    if (stream->backend->alloc(
            stream, &larger,
            bt_size_mul(rows, logits_stride(g) * sizeof(float)), NULL))
        return false;
    if (g->logits.memory)
        stream->backend->free(&g->logits);
    g->logits = larger;
    return true;
}

/* Replace a block by a larger one of zeros; the old contents are lost. False
 * when memory runs out. */
static bool replace(void *block, size_t count, size_t size)
{
    void *larger = bt_alloc_zero(count, size), **old = block;
    if (!larger)
        return false;
    bt_free(*old);
    *old = larger;
    return true;
}

/* Reserve memory for the most inputs and rows that there can be. */
static bauta_status inputs_reserve(bauta_generator *g, bauta_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < g->running_count; i++)
        most += bt_request_open_beams(g->running[i]);
    if (most <= g->rows_capacity)
        return BAUTA_OK;
    if (!logits_reserve(g, most) ||
        !replace(&g->inputs, most, sizeof(*g->inputs)) ||
        !replace(&g->samples[0].items, most, sizeof(*g->samples[0].items)) ||
        !replace(&g->samples[1].items, most, sizeof(*g->samples[1].items)) ||
        !replace(&g->beams, most, sizeof(*g->beams)) ||
        !replace(&g->scores, most, sizeof(*g->scores)) ||
        !replace(&g->histories, most, sizeof(*g->histories)))
        return bt_fail_memory(
            err, "logits", bt_size_mul(most, logits_stride(g) * sizeof(float)));
    g->rows_capacity = most;
    return BAUTA_OK;
}

/* The logits of all rows. */
static bt_tensor logits_of(const bauta_generator *g)
{
    bt_tensor all =
        bt_tensor_of(&g->logits, BAUTA_FLOAT32, g->rows_capacity, g->vocab);
    all.stride = logits_stride(g);
    return all;
}

static void input_add(bauta_generator *g, step_counts *p, bt_sequence *sequence,
                      const uint32_t *ids, size_t count, bool wants)
{
    g->inputs[p->inputs++] =
        (bt_decode_input){ .sequence = sequence,
                           .count = count,
                           .ids = ids,
                           .logits_tensor = wants ? p->logits : NULL,
                           .logits_row = wants ? p->rows++ : 0 };
}

static void add_prompt(bauta_generator *g, step_counts *p, bt_request *r,
                       size_t *budget)
{
    size_t chunk = chunk_of(r, *budget);
    r->has_logits = false;
    if (!r->sequences[0] || chunk == 0)
        return;
    *budget -= chunk;
    r->has_logits = r->prompt_read + chunk == r->prompt;
    r->logits_row = p->rows;
    input_add(g, p, r->sequences[0], r->ids + r->prompt_read, chunk,
              r->has_logits);
}

static void add_new_tokens(bauta_generator *g, step_counts *p, bt_request *r)
{
    const bt_beam_tree *tree = &r->tree;
    r->logits_row = p->rows;
    r->has_logits = true;
    if (r->options.num_beams == 1) {
        input_add(g, p, r->sequences[0], r->ids + r->count - 1, 1, true);
        return;
    }
    for (size_t b = 0; b < r->search.open_count; b++)
        input_add(g, p, r->sequences[b],
                  &tree->nodes[r->search.open[b].node].token, 1, true);
}

static bauta_status append(bauta_generator *g, bauta_error *err)
{
    size_t budget = g->options.max_batched_tokens;
    bauta_status status = inputs_reserve(g, err);
    if (status)
        return status;
    bt_tensor logits = logits_of(g);
    step_counts p = { .logits = &logits };
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        if (r->prompt_read < r->prompt)
            add_prompt(g, &p, r, &budget);
        else
            add_new_tokens(g, &p, r);
    }
    status = p.inputs ? bt_decode_session_append(g->session, g->inputs,
                                                 p.inputs, NULL, NULL, err)
                      : BAUTA_OK;
    if (status)
        return status;
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        if (r->prompt_read < r->prompt && r->sequences[0])
            r->prompt_read = bt_sequence_tokens(r->sequences[0]);
    }
    return BAUTA_OK;
}

/* ---- sampling ---------------------------------------------------------- */

/* What one step samples. */
typedef struct sample_counts {
    size_t samples, beams, open;
} sample_counts;

static void sample_add(bauta_generator *g, sample_counts *n, bt_request *r)
{
    r->sample = n->samples++;
    g->now->items[r->sample] =
        (bt_sample_item){ .row = r->logits_row,
                          .options = &r->options,
                          .history = bt_request_history(r, 0) };
}

static void beams_add(bauta_generator *g, sample_counts *n, const bt_request *r)
{
    const bt_beam_search *s = &r->search;
    g->beams[n->beams++] = (bt_beam_item){ .row = r->logits_row,
                                           .beams = s->open_count,
                                           .options = &r->options,
                                           .scores = g->scores + n->open,
                                           .histories = g->histories + n->open,
                                           .want = s->candidate_capacity,
                                           .choices = s->choices };
    for (size_t b = 0; b < s->open_count; b++, n->open++) {
        g->scores[n->open] = s->open[b].score;
        g->histories[n->open] = bt_request_history(r, b);
    }
}

static bauta_status items_run(bauta_generator *g, const sample_counts *n,
                              bauta_error *err)
{
    bt_stream *stream = g->context->stream;
    const bt_backend *backend = stream->backend;
    bt_tensor logits = logits_of(g);
    bt_sample_args samples = { &logits, n->samples, g->now->items };
    bt_beam_args beams = { &logits, n->beams, g->beams };
    bauta_status status = BAUTA_OK;
    if (n->samples)
        status = backend->sample
                     ? backend->sample(stream, &samples, err)
                     : bt_unsupported(stream, BT_OP_sample, BAUTA_FLOAT32, err);
    if (!status && n->beams)
        status = backend->beam
                     ? backend->beam(stream, &beams, err)
                     : bt_unsupported(stream, BT_OP_beam, BAUTA_FLOAT32, err);
    return status;
}

/* Give the results to their requests. Beam searches are in the same order. */
static void items_take(bauta_generator *g)
{
    const bt_beam_item *beam = g->beams;
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        if (!r->has_logits)
            continue;
        if (r->options.num_beams == 1) {
            const bt_sample_item *item = &g->now->items[r->sample];
            r->sample_status = item->status;
            r->sampled = item->token;
            continue;
        }
        r->sample_status = beam->status;
        bt_beam_search_take(&r->search, beam->status ? 0 : beam->count);
        beam++;
    }
}

static bauta_status sample(bauta_generator *g, bauta_error *err)
{
    sample_counts n = { 0 };
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        if (r->has_logits && r->options.num_beams == 1)
            sample_add(g, &n, r);
        else if (r->has_logits)
            beams_add(g, &n, r);
    }
    bauta_status status = items_run(g, &n, err);
    if (!status)
        items_take(g);
    return status;
}

/* ---- the next step, ahead ---------------------------------------------- */

/* Whether a text goes on after this step unless its token ends it, and nothing
 * of the next step but the token itself depends on the token. Item and row of
 * the i-th request are i. */
static bool goes_on(const bt_request *r, size_t i)
{
    const bauta_generate_options *o = &r->options;
    return o->num_beams == 1 && r->has_logits && r->logits_row == i &&
           !r->on_logits && !bt_logits_processors_need_history(o) &&
           r->prompt + r->generated + 1 < r->limit;
}

/* Whether the next step can be queued: no request could start with it. */
static bool can_look_ahead(const bauta_generator *g)
{
    if (!g->context->stream->backend->sample_queue || g->ahead ||
        !g->running_count || bt_generator_can_start(g))
        return false;
    for (size_t i = 0; i < g->running_count; i++)
        if (!goes_on(g->running[i], i))
            return false;
    return true;
}

/* Queue sampling of all requests, whose texts have `more` tokens than is known
 * yet. */
static bauta_status samples_queue(bauta_generator *g, bt_step_samples *to,
                                  size_t more, bauta_error *err)
{
    bt_stream *stream = g->context->stream;
    bt_tensor logits = logits_of(g);
    bt_sample_args args = { &logits, g->running_count, to->items };
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        to->items[i] = (bt_sample_item){ .row = i,
                                         .options = &r->options,
                                         .history = bt_request_history(r, 0) };
        to->items[i].history.count += more;
        r->sample = i;
    }
    bauta_status status = stream->backend->sample_queue(
        stream, &to->sampling, &args, &to->tokens, err);
    to->pending = status ? 0 : args.count;
    return status;
}

static bauta_status next_samples_queue(void *user, bauta_error *err)
{
    bauta_generator *g = user;
    return samples_queue(g, g->next, 1, err);
}

/* Queue the next step and its sampling. Where that fails there is just no such
 * step. */
static void look_ahead(bauta_generator *g)
{
    bt_tensor logits = logits_of(g);
    step_counts p = { .logits = &logits };
    for (size_t i = 0; i < g->running_count; i++) {
        input_add(g, &p, g->running[i]->sequences[0], NULL, 1, true);
        g->inputs[i].ids_tensor = &g->now->tokens;
        g->inputs[i].ids_row = i;
    }
    g->ahead = !bt_decode_session_append(g->session, g->inputs, p.inputs,
                                         next_samples_queue, g, NULL);
    if (!g->ahead)
        g->next->pending = 0;
    for (size_t i = 0; i < g->running_count; i++)
        g->running[i]->ahead = g->ahead;
}

/* The step that was queued ahead is the current one. Its rows of requests that
 * have ended are of no use. */
static void take_ahead(bauta_generator *g)
{
    bt_step_samples *samples = g->next;
    g->next = g->now;
    g->now = samples;
    g->ahead = false;
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        r->has_logits = r->ahead;
        r->logits_row = r->sample;
        r->ahead = false;
    }
}

static bauta_status samples_read(bauta_generator *g, bauta_error *err)
{
    bt_stream *stream = g->context->stream;
    bt_tensor logits = logits_of(g);
    bt_sample_args args = { &logits, g->now->pending, g->now->items };
    bauta_status status =
        stream->backend->sample_read(stream, g->now->sampling, &args, err);
    if (status)
        return status;
    g->now->pending = 0;
    items_take(g);
    return BAUTA_OK;
}

/* Sample, and before the host waits for the tokens queue what comes next. */
static bauta_status sample_and_look_ahead(bauta_generator *g, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (can_look_ahead(g)) {
        if (!g->now->pending)
            status = samples_queue(g, g->now, 0, err);
        if (!status)
            look_ahead(g);
    }
    if (status)
        return status;
    return g->now->pending ? samples_read(g, err) : sample(g, err);
}

/* ---- finishing --------------------------------------------------------- */

static bauta_status results_reserve(bt_result_queue *w, bauta_error *err)
{
    if (w->first) {
        memmove(w->items, w->items + w->first, w->count * sizeof(*w->items));
        w->first = 0;
    }
    if (BT_ARRAY_RESERVE(w->items, w->capacity, w->count, 1))
        return bt_fail_memory(err, "results", sizeof(*w->items));
    return BAUTA_OK;
}

static void report_end(bt_request *r)
{
    const bt_stop_matcher *s = &r->matcher;
    if (!r->on_token || r->options.num_beams > 1)
        return;
    const char *text =
        s->detokenizer ? (s->text ? s->text + s->reported : "") : NULL;
    r->on_token(r->user, BAUTA_NO_TOKEN, 0, text, s->length - s->reported);
}

/* Make the result of a request and free the request. */
static bauta_status finish(bauta_generator *g, bt_request *r, bauta_error *err)
{
    bauta_result *result = NULL;
    bauta_status status = results_reserve(&g->results, err);
    if (!status && r->failure.status == BAUTA_ERR_NOT_FINITE && !r->explained)
        status = bt_request_explain_not_finite(r, g->context, g->model, err);
    if (!status && r->matcher.detokenizer && !r->flushed)
        status = bt_stop_matcher_finish(&r->matcher, err);
    if (status)
        return status;
    r->flushed = true;
    // The rest of the last character may complete a stop string.
    if (r->matcher.stopped &&
        (r->finish == BAUTA_FINISH_LENGTH || r->finish == BAUTA_FINISH_CONTEXT))
        r->finish = BAUTA_FINISH_STOP;
    status = bt_request_result(&result, r, g->tokenizer, err);
    if (status)
        return status;
    report_end(r);
    g->results.items[g->results.first + g->results.count++] = result;
    g->sequences -= r->options.num_beams;
    g->reserved -= r->cost_bytes;
    if (!r->failure.status) // its cache may hold NaN
        bt_generator_cache_prefix(g, r);
    bt_request_free(r);
    return BAUTA_OK;
}

/* The logits of a request in host memory, if its caller wants them. */
static bauta_status logits_read(bauta_generator *g, const bt_request *r,
                                const float **out, bauta_error *err)
{
    bt_tensor all = logits_of(g);
    bt_tensor row = bt_tensor_rows(&all, r->logits_row, 1);
    *out = NULL;
    if (!r->on_logits)
        return BAUTA_OK;
    *out = bt_tensor_host(&row);
    if (*out)
        return BAUTA_OK;
    if (!g->logits_row)
        g->logits_row = bt_alloc(g->vocab * sizeof(float));
    if (!g->logits_row)
        return bt_fail_memory(err, "logits", g->vocab * sizeof(float));
    *out = g->logits_row;
    return bt_tensor_download(g->context->stream, g->logits_row, &row, err);
}

static bauta_status commit(bauta_generator *g, bt_request *r, bauta_error *err)
{
    const float *logits;
    bauta_status status = logits_read(g, r, &logits, err);
    return status ? status
                  : bt_request_apply(r, g->tokenizer, logits, g->vocab, err);
}

/* Commit the tokens of all requests and finish those that have ended. After a
 * failure, the next step continues here. */
static bauta_status apply(bauta_generator *g, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t left = 0, i = 0;
    for (; i < g->running_count && !status; i++) {
        bt_request *r = g->running[i];
        if (r->has_logits)
            status = commit(g, r, err);
        if (!status && r->ended) {
            status = finish(g, r, err);
            if (!status)
                continue;
        }
        g->running[left++] = r;
    }
    for (; i < g->running_count; i++)
        g->running[left++] = g->running[i];
    g->running_count = left;
    if (!status)
        g->appended = g->sampled = false;
    return status;
}

bauta_status bauta_generator_step(bauta_generator *g, size_t *left,
                                  bauta_error *err)
{
    BT_NEED(g, err);
    bauta_status status = BAUTA_OK;
    if (!g->appended) {
        g->steps++;
        if (g->ahead) {
            take_ahead(g);
        } else {
            status = bt_generator_schedule(g, err);
            if (!status)
                status = append(g, err);
        }
        g->appended = !status;
    }
    if (!status && !g->sampled) {
        status = sample_and_look_ahead(g, err);
        g->sampled = !status;
    }
    if (!status)
        status = apply(g, err);
    if (left)
        *left = g->queued + g->running_count;
    return status;
}
