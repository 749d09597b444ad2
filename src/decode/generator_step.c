/* SPDX-License-Identifier: Apache-2.0 */
/* generator_step.c - one step of a generator: append, sample, commit, and
 * finish requests that have ended. */
#include "decode/generator.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/threads.h"
#include "runtime/context.h"

#include <string.h>

/* ---- appending --------------------------------------------------------- */

/* Inputs and rows of logits of this step so far. */
typedef struct step_counts {
    size_t inputs, rows;
} step_counts;

static size_t chunk_of(const bt_request *r, size_t budget)
{
    return bt_size_min(r->prompt - r->prompt_read, budget);
}

/* Reserve memory for the most inputs and rows that there can be. */
static bauta_status inputs_reserve(bauta_generator *g, bauta_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < g->running_count; i++)
        most += bt_request_open_beams(g->running[i]);
    if (most <= g->rows_capacity)
        return BAUTA_OK;
    if (!bt_generator_replace_block(
            (void **)&g->rows, bt_size_mul(most, g->vocab), sizeof(float)) ||
        !bt_generator_replace_block((void **)&g->inputs, most,
                                    sizeof(*g->inputs)))
        return bt_fail_memory(err, "logits",
                              bt_size_mul(most, g->vocab * sizeof(float)));
    g->rows_capacity = g->inputs_capacity = most;
    return BAUTA_OK;
}

static void input_add(bauta_generator *g, step_counts *p, bt_sequence *sequence,
                      const uint32_t *ids, size_t count, bool wants)
{
    float *row = wants ? g->rows + p->rows++ * g->vocab : NULL;
    g->inputs[p->inputs++] = (bt_decode_input){ sequence, count, ids, row };
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
    step_counts p = { 0, 0 };
    size_t budget = g->options.max_batched_tokens;
    bauta_status status = inputs_reserve(g, err);
    if (status)
        return status;
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        if (r->prompt_read < r->prompt)
            add_prompt(g, &p, r, &budget);
        else
            add_new_tokens(g, &p, r);
    }
    status = p.inputs ? bt_decode_session_append(g->session, g->inputs,
                                                 p.inputs, err)
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

static void sample_task(void *job, size_t task, int thread)
{
    bauta_generator *g = job;
    size_t at = (size_t)thread * g->beams_capacity;
    bt_request *r = g->running[task];
    if (r->has_logits)
        bt_request_sample(r, &g->scratch[thread], g->rows, g->beam_rows + at,
                          g->histories + at);
}

static void sample(bauta_generator *g)
{
    bt_parallel_for(g->context->threads, g->running_count, sample_task, g);
    g->sampled = true;
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

/* Commit the tokens of all requests and finish those that have ended. After a
 * failure, the next step continues here. */
static bauta_status apply(bauta_generator *g, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t left = 0, i = 0;
    for (; i < g->running_count && !status; i++) {
        bt_request *r = g->running[i];
        if (r->has_logits)
            status = bt_request_apply(r, g->tokenizer, g->rows, g->vocab, err);
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
        g->sampled = false;
    return status;
}

bauta_status bauta_generator_step(bauta_generator *g, size_t *left,
                                  bauta_error *err)
{
    BT_NEED(g, err);
    bauta_status status = BAUTA_OK;
    if (!g->sampled) {
        g->steps++;
        status = bt_generator_schedule(g, err);
        if (!status)
            status = append(g, err);
        if (!status)
            sample(g);
    }
    if (!status)
        status = apply(g, err);
    if (left)
        *left = g->queued + g->running_count;
    return status;
}
