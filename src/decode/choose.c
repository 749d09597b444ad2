/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - a step of one request: from rows of logits to a longer text.
 *
 * First all requests choose, which cannot run out of memory and which threads
 * share; then each does what it chose. */
#include "decode/request.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- choosing ---------------------------------------------------------- */

/* The tokens before a beam's next one, where rules look at them. */
static bt_history history_of(const bt_request *r, size_t beam)
{
    bt_history h = { NULL, r->prompt + r->made, r->prompt, r->limit };
    if (!r->history)
        return h;
    uint32_t *ids = r->history + beam * r->limit;
    memcpy(ids, r->ids, r->prompt * sizeof(*ids));
    bt_trail_read(&r->trail, r->search.open[beam].node, r->made,
                  ids + r->prompt, NULL);
    h.ids = ids;
    return h;
}

void bt_request_choose(bt_request *r, const bt_desk *desk, const float *rows,
                       const float **beam_rows, bt_history *histories)
{
    rows += r->row * desk->vocab;
    if (r->options.beams == 1) {
        bt_history h = { r->ids, r->count, r->prompt, r->limit };
        r->chosen = bt_sample(&r->choice, desk, rows, &r->options, &h);
        return;
    }
    for (size_t b = 0; b < r->search.open_count; b++) {
        beam_rows[b] = rows + b * desk->vocab;
        histories[b] = history_of(r, b);
    }
    r->chosen =
        bt_search_select(&r->search, desk, beam_rows, &r->options, histories);
}

/* Nothing could be chosen: the text ends here, and says why. */
static void give_up(bt_request *r)
{
    size_t at = r->prompt + r->made;
    if (r->chosen == BT_NOT_FINITE)
        bt_fail(&r->failure, BAUTA_ERR_NOT_FINITE,
                "the logits after token %zu are not finite", at);
    else
        bt_fail(&r->failure, BAUTA_ERR_ARGUMENT,
                "the options forbid every token behind token %zu", at);
    r->ended = true;
}

/* ---- one sequence ------------------------------------------------------ */

static bool tell(bt_request *r, uint32_t token, float logprob)
{
    const bt_speech *s = &r->speech;
    const char *text = s->decoder ? (s->text ? s->text + s->told : "") : NULL;
    size_t length = s->certain - s->told;
    r->speech.told = s->certain;
    return r->hear(r->user, token, logprob, text, length);
}

static bauta_status single_apply(bt_request *r, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    uint32_t token = r->choice.token;
    bauta_finish finish;
    bool ends = bt_request_ends(r, token, r->made + 1, &finish);
    if (bt_trail_reserve(&r->trail, 1) || BT_ROOM(r->ids, r->room, r->count, 1))
        return bt_fail_memory(err, "tokens", sizeof(*r->ids));
    if (r->speech.decoder && !(ends && finish == BAUTA_FINISH_END))
        status = bt_speech_push(&r->speech, token, err);
    if (status)
        return status;
    bt_trail_add(&r->trail, r->made ? (uint32_t)(r->made - 1) : BT_NO_NODE,
                 token, r->choice.logprob);
    r->ids[r->count++] = token;
    r->made++;
    r->score += r->choice.score;
    if (r->speech.stopped) {
        ends = true;
        finish = BAUTA_FINISH_STOP;
    }
    if (r->hear && !tell(r, token, r->choice.logprob) && !ends) {
        ends = true;
        finish = BAUTA_FINISH_HEARD;
    }
    r->ended = ends;
    r->finish = finish;
    return BAUTA_OK;
}

/* ---- beams ------------------------------------------------------------- */

/* Whether a candidate completes a stop; beams before it had none. */
static bauta_status stop_look(const bt_request *r, bt_candidate *c,
                              const bauta_tokenizer *tokenizer,
                              bauta_error *err)
{
    bt_speech speech = { 0 };
    size_t count = r->made + 1;
    uint32_t *ids = bt_alloc(count * sizeof(*ids));
    if (!ids)
        return bt_fail_memory(err, "tokens", count * sizeof(*ids));
    bt_trail_read(&r->trail, r->search.open[c->beam].node, r->made, ids, NULL);
    ids[r->made] = c->token;
    bauta_status status = bt_request_speech(&speech, r, tokenizer, err);
    for (size_t i = 0; i < count && !status && !speech.stopped; i++)
        status = bt_speech_push(&speech, ids[i], err);
    if (!status)
        status = bt_speech_finish(&speech, err);
    if (!status && speech.stopped) {
        c->hit = true;
        c->finish = BAUTA_FINISH_STOP;
    }
    bt_speech_release(&speech);
    bt_free(ids);
    return status;
}

static bauta_status hits_find(bt_request *r, const bauta_tokenizer *tokenizer,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < r->search.count; i++) {
        bt_candidate *c = &r->search.candidates[i];
        c->hit = bt_request_ends(r, c->token, r->made + 1, &c->finish);
        bool end = c->hit && c->finish == BAUTA_FINISH_END;
        if (r->options.stop_count && !end)
            status = stop_look(r, c, tokenizer, err);
    }
    return status;
}

/* A sequence for each beam that stays open: the first heir of a beam takes its
 * sequence, others get forks. */
static bauta_status forks_make(bt_request *r, bauta_error *err)
{
    bt_search *s = &r->search;
    bauta_status status = BAUTA_OK;
    for (size_t b = 0; b < s->next_count && !status; b++) {
        uint32_t parent = s->next[b].parent;
        bool heir = true;
        for (size_t a = 0; a < b && heir; a++)
            heir = s->next[a].parent != parent;
        if (!heir)
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
    bt_search *s = &r->search;
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
    if (bt_trail_reserve(&r->trail, r->search.wide))
        return bt_fail_memory(err, "tokens", r->search.wide * sizeof(bt_node));
    bauta_status status = hits_find(r, tokenizer, err);
    if (status)
        return status;
    bt_search_plan(&r->search);
    status = forks_make(r, err);
    if (status)
        return status;
    // At the end what was read may serve others, so one sequence is left.
    if (r->search.next_count)
        forks_take(r);
    r->made++;
    r->ended =
        bt_search_advance(&r->search, &r->trail, r->made, r->limit - r->prompt);
    return BAUTA_OK;
}

bauta_status bt_request_apply(bt_request *r, const bauta_tokenizer *tokenizer,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (r->chosen)
        give_up(r);
    else if (r->options.beams > 1)
        status = beams_apply(r, tokenizer, err);
    else
        status = single_apply(r, err);
    if (!status)
        r->has_row = false;
    return status;
}
