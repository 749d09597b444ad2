/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - one step of a generator: feed, choose, do, and let go of what has
 * ended. */
#include "decode/generator.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/threads.h"
#include "ops/context.h"

#include <string.h>

/* ---- feeding ----------------------------------------------------------- */

/* What each running request feeds in this step. */
typedef struct plan {
    size_t feeds, rows;
} plan;

static size_t piece_of(const bt_request *r, size_t budget)
{
    return bt_size_min(r->prompt - r->read, budget);
}

/* Feeds and rows that there can be at most. */
static bauta_status feeds_reserve(bauta_generator *g, bauta_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < g->running_count; i++)
        most += bt_request_open(g->running[i]);
    if (most <= g->rows_room)
        return BAUTA_OK;
    if (!bt_generator_replace((void **)&g->rows, bt_size_mul(most, g->vocab),
                              sizeof(float)) ||
        !bt_generator_replace((void **)&g->feeds, most, sizeof(*g->feeds)))
        return bt_fail_memory(err, "logits",
                              bt_size_mul(most, g->vocab * sizeof(float)));
    g->rows_room = g->feeds_room = most;
    return BAUTA_OK;
}

static void feed_add(bauta_generator *g, plan *p, bt_sequence *sequence,
                     const uint32_t *ids, size_t count, bool wants)
{
    float *row = wants ? g->rows + p->rows++ * g->vocab : NULL;
    g->feeds[p->feeds++] = (bt_feed){ sequence, count, ids, row };
}

static void feed_prompt(bauta_generator *g, plan *p, bt_request *r,
                        size_t *budget)
{
    size_t piece = piece_of(r, *budget);
    r->has_row = false;
    if (!r->sequences[0] || piece == 0)
        return;
    *budget -= piece;
    r->has_row = r->read + piece == r->prompt;
    r->row = p->rows;
    feed_add(g, p, r->sequences[0], r->ids + r->read, piece, r->has_row);
}

static void feed_new(bauta_generator *g, plan *p, bt_request *r)
{
    const bt_trail *trail = &r->trail;
    r->row = p->rows;
    r->has_row = true;
    if (r->options.beams == 1) {
        feed_add(g, p, r->sequences[0], r->ids + r->count - 1, 1, true);
        return;
    }
    for (size_t b = 0; b < r->search.open_count; b++)
        feed_add(g, p, r->sequences[b],
                 &trail->nodes[r->search.open[b].node].token, 1, true);
}

static bauta_status feed(bauta_generator *g, bauta_error *err)
{
    plan p = { 0, 0 };
    size_t budget = g->options.prompt_tokens;
    bauta_status status = feeds_reserve(g, err);
    if (status)
        return status;
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        if (r->read < r->prompt)
            feed_prompt(g, &p, r, &budget);
        else
            feed_new(g, &p, r);
    }
    status =
        p.feeds ? bt_stage_feed(g->stage, g->feeds, p.feeds, err) : BAUTA_OK;
    if (status)
        return status;
    for (size_t i = 0; i < g->running_count; i++) {
        bt_request *r = g->running[i];
        if (r->read < r->prompt && r->sequences[0])
            r->read = bt_sequence_tokens(r->sequences[0]);
    }
    return BAUTA_OK;
}

/* ---- choosing ---------------------------------------------------------- */

static void choose_task(void *job, size_t task, int thread)
{
    bauta_generator *g = job;
    size_t at = (size_t)thread * g->beams_room;
    bt_request *r = g->running[task];
    if (r->has_row)
        bt_request_choose(r, &g->desks[thread], g->rows, g->beam_rows + at,
                          g->histories + at);
}

static void choose(bauta_generator *g)
{
    bt_parallel(g->context->threads, g->running_count, choose_task, g);
    g->chosen = true;
}

/* ---- ending ------------------------------------------------------------ */

static bauta_status results_reserve(bt_waiting *w, bauta_error *err)
{
    if (w->first) {
        memmove(w->all, w->all + w->first, w->count * sizeof(*w->all));
        w->first = 0;
    }
    if (BT_ROOM(w->all, w->room, w->count, 1))
        return bt_fail_memory(err, "results", sizeof(*w->all));
    return BAUTA_OK;
}

static void last_word(bt_request *r)
{
    const bt_speech *s = &r->speech;
    if (!r->hear || r->options.beams > 1)
        return;
    const char *text = s->decoder ? (s->text ? s->text + s->told : "") : NULL;
    r->hear(r->user, BAUTA_NO_TOKEN, 0, text, s->length - s->told);
}

/* The result of a request, which is then gone. */
static bauta_status finish(bauta_generator *g, bt_request *r, bauta_error *err)
{
    bauta_result *result = NULL;
    bauta_status status = results_reserve(&g->results, err);
    if (!status && r->failure.status == BAUTA_ERR_NOT_FINITE && !r->explained)
        status = bt_request_explain(r, g->context, g->model, err);
    if (!status && r->speech.decoder && !r->flushed)
        status = bt_speech_finish(&r->speech, err);
    if (status)
        return status;
    r->flushed = true;
    // The rest of the last character may complete a stop.
    if (r->speech.stopped &&
        (r->finish == BAUTA_FINISH_LENGTH || r->finish == BAUTA_FINISH_CONTEXT))
        r->finish = BAUTA_FINISH_STOP;
    status = bt_request_result(&result, r, g->tokenizer, err);
    if (status)
        return status;
    last_word(r);
    g->results.all[g->results.first + g->results.count++] = result;
    g->sequences -= r->options.beams;
    g->reserved -= r->cost;
    if (!r->failure.status) // what was read may be what is wrong
        bt_generator_keep(g, r);
    bt_request_free(r);
    return BAUTA_OK;
}

/* Everyone does what it chose; those that have ended leave. Behind a failure
 * the next step goes on where this one was. */
static bauta_status apply(bauta_generator *g, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t left = 0, i = 0;
    for (; i < g->running_count && !status; i++) {
        bt_request *r = g->running[i];
        if (r->has_row)
            status = bt_request_apply(r, g->tokenizer, err);
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
        g->chosen = false;
    return status;
}

bauta_status bauta_generator_step(bauta_generator *g, size_t *left,
                                  bauta_error *err)
{
    BT_NEED(g, err);
    bauta_status status = BAUTA_OK;
    if (!g->chosen) {
        g->steps++;
        status = bt_generator_admit(g, err);
        if (!status)
            status = feed(g, err);
        if (!status)
            choose(g);
    }
    if (!status)
        status = apply(g, err);
    if (left)
        *left = g->queued + g->running_count;
    return status;
}
