/* SPDX-License-Identifier: Apache-2.0 */
/* next_token.c - one step of a request: sample from the logits, then commit.
 *
 * The backend samples for all requests at once. Then each one commits its
 * token. */
#include "decode/request.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- sampling ---------------------------------------------------------- */

bt_token_history bt_request_history(const bt_request *r, size_t beam)
{
    bt_token_history h = { NULL, r->prompt + r->generated, r->prompt,
                           r->limit };
    if (r->options.num_beams == 1) {
        h.ids = r->ids;
        return h;
    }
    if (!r->history)
        return h;
    uint32_t *ids = r->history + beam * r->limit;
    memcpy(ids, r->ids, r->prompt * sizeof(*ids));
    bt_beam_tree_read(&r->tree, r->search.open[beam].node, r->generated,
                      ids + r->prompt, NULL);
    h.ids = ids;
    return h;
}

/* No token could be sampled: end the text with a failure. */
static void fail_request(bt_request *r)
{
    size_t at = r->prompt + r->generated;
    if (r->sample_status == BT_SAMPLE_NOT_FINITE)
        bt_fail(&r->failure, BAUTA_ERR_NOT_FINITE,
                "the logits after token %zu are not finite", at);
    else
        bt_fail(&r->failure, BAUTA_ERR_ARGUMENT,
                "the options forbid every token after token %zu", at);
    r->ended = true;
}

/* ---- one sequence ------------------------------------------------------ */

static bool report_token(bt_request *r, uint32_t token, float logprob)
{
    const bt_stop_matcher *s = &r->matcher;
    const char *text =
        s->detokenizer ? (s->text ? s->text + s->reported : "") : NULL;
    size_t length = s->stable - s->reported;
    r->matcher.reported = s->stable;
    return r->on_token(r->user, token, logprob, text, length);
}

static bauta_status single_apply(bt_request *r, const float *logits,
                                 size_t vocab, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    uint32_t token = r->sampled.token;
    bauta_finish finish;
    bool ends = bt_request_ends(r, token, r->generated + 1, &finish);
    if (BT_ARRAY_RESERVE(r->ids, r->capacity, r->count, 1) ||
        BT_ARRAY_RESERVE(r->logprobs, r->logprobs_capacity, r->generated, 1))
        return bt_fail_memory(err, "tokens", sizeof(*r->ids));
    if (r->matcher.detokenizer && !(ends && finish == BAUTA_FINISH_END))
        status = bt_stop_matcher_push(&r->matcher, token, err);
    if (status)
        return status;
    if (r->on_logits) // nothing below fails, so it is called once
        r->on_logits(r->user, r->generated, logits, vocab);
    r->ids[r->count++] = token;
    r->logprobs[r->generated++] = r->sampled.logprob;
    r->score += r->sampled.score;
    if (r->matcher.stopped) {
        ends = true;
        finish = BAUTA_FINISH_STOP;
    }
    if (r->on_token && !report_token(r, token, r->sampled.logprob) && !ends) {
        ends = true;
        finish = BAUTA_FINISH_CANCELLED;
    }
    r->ended = ends;
    r->finish = finish;
    return BAUTA_OK;
}

/* ---- beams ------------------------------------------------------------- */

/* Whether a candidate completes a stop string; its beam had none before. */
static bauta_status stop_check(const bt_request *r, bt_beam_candidate *c,
                               const bauta_tokenizer *tokenizer,
                               bauta_error *err)
{
    bt_stop_matcher matcher = { 0 };
    size_t count = r->generated + 1;
    uint32_t *ids = bt_alloc(count * sizeof(*ids));
    if (!ids)
        return bt_fail_memory(err, "tokens", count * sizeof(*ids));
    bt_beam_tree_read(&r->tree, r->search.open[c->beam].node, r->generated, ids,
                      NULL);
    ids[r->generated] = c->token;
    bauta_status status = bt_request_stop_matcher(&matcher, r, tokenizer, err);
    for (size_t i = 0; i < count && !status && !matcher.stopped; i++)
        status = bt_stop_matcher_push(&matcher, ids[i], err);
    if (!status)
        status = bt_stop_matcher_finish(&matcher, err);
    if (!status && matcher.stopped) {
        c->ends = true;
        c->finish = BAUTA_FINISH_STOP;
    }
    bt_stop_matcher_release(&matcher);
    bt_free(ids);
    return status;
}

static bauta_status ends_find(bt_request *r, const bauta_tokenizer *tokenizer,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < r->search.candidate_count; i++) {
        bt_beam_candidate *c = &r->search.candidates[i];
        c->ends = bt_request_ends(r, c->token, r->generated + 1, &c->finish);
        bool end = c->ends && c->finish == BAUTA_FINISH_END;
        if (r->options.stop_string_count && !end)
            status = stop_check(r, c, tokenizer, err);
    }
    return status;
}

/* Make a sequence for each beam that stays open: the first continuation of a
 * beam takes over its sequence, the others get forks. */
static bauta_status forks_make(bt_request *r, bauta_error *err)
{
    bt_beam_search *s = &r->search;
    bauta_status status = BAUTA_OK;
    for (size_t b = 0; b < s->next_count && !status; b++) {
        uint32_t parent = s->next[b].parent;
        bool first = true;
        for (size_t a = 0; a < b && first; a++)
            first = s->next[a].parent != parent;
        if (!first)
            status = bt_sequence_fork(&r->forks[b], r->sequences[parent], err);
    }
    for (size_t b = 0; b < s->next_count && status; b++) {
        bt_sequence_free(r->forks[b]);
        r->forks[b] = NULL;
    }
    return status;
}

static void forks_take(bt_request *r)
{
    bt_beam_search *s = &r->search;
    for (size_t b = 0; b < s->next_count; b++) {
        bt_sequence **from = &r->sequences[s->next[b].parent];
        if (r->forks[b])
            continue;
        r->forks[b] = *from;
        *from = NULL;
    }
    for (size_t b = 0; b < s->open_count; b++)
        bt_sequence_free(r->sequences[b]);
    for (size_t b = 0; b < s->beams; b++) {
        r->sequences[b] = b < s->next_count ? r->forks[b] : NULL;
        r->forks[b] = NULL;
    }
}

static bauta_status beams_apply(bt_request *r, const bauta_tokenizer *tokenizer,
                                bauta_error *err)
{
    if (bt_beam_tree_reserve(&r->tree, r->search.candidate_capacity))
        return bt_fail_memory(
            err, "tokens", r->search.candidate_capacity * sizeof(bt_beam_node));
    bauta_status status = ends_find(r, tokenizer, err);
    if (status)
        return status;
    bt_beam_search_preview(&r->search);
    status = forks_make(r, err);
    if (status)
        return status;
    // At the end one sequence is kept, for the prefix cache.
    if (r->search.next_count)
        forks_take(r);
    r->generated++;
    r->ended = bt_beam_search_advance(&r->search, &r->tree, r->generated,
                                      r->limit - r->prompt);
    return BAUTA_OK;
}

bauta_status bt_request_apply(bt_request *r, const bauta_tokenizer *tokenizer,
                              const float *logits, size_t vocab,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (r->sample_status)
        fail_request(r);
    else if (r->options.num_beams > 1)
        status = beams_apply(r, tokenizer, err);
    else
        status = single_apply(r, logits, vocab, err);
    if (!status)
        r->has_logits = false;
    return status;
}
