/* SPDX-License-Identifier: Apache-2.0 */
/* result.c - the result of a request, in one block of memory. */
#include "decode/request.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

const char *bauta_finish_text(bauta_finish finish)
{
    static const char *const texts[] = { "end", "stop", "length", "cancelled",
                                         "context" };
    return (size_t)finish < BT_LEN(texts) ? texts[finish] : "unknown";
}

void bauta_result_free(bauta_result *result)
{
    bt_free(result);
}

/* One hypothesis before it is copied into the block. */
typedef struct hypothesis_draft {
    size_t count;
    uint32_t node; /* with beams: its last token */
    double score;
    bauta_finish finish;
    const char *text; /* NULL without a tokenizer */
    size_t length;
    bt_stop_matcher owned; /* owns the text, or is empty */
} hypothesis_draft;

/* Read the new tokens of a hypothesis, which with beams ends at a node. */
static void tokens_read(const bt_request *r, uint32_t node, size_t count,
                        uint32_t *tokens, float *logprobs)
{
    if (r->options.num_beams > 1) {
        bt_beam_tree_read(&r->tree, node, count, tokens, logprobs);
    } else if (count) {
        memcpy(tokens, r->ids + r->prompt, count * sizeof(*tokens));
        memcpy(logprobs, r->logprobs, count * sizeof(*logprobs));
    }
}

/* The text of a beam, without the end token and cut at a stop string. */
static bauta_status draft_decode(hypothesis_draft *d, const bt_request *r,
                                 const bauta_tokenizer *tokenizer,
                                 bauta_error *err)
{
    uint32_t *ids = bt_alloc(bt_size_mul(d->count, sizeof(*ids)));
    if (!ids)
        return bt_fail_memory(err, "tokens", d->count * sizeof(*ids));
    bt_beam_tree_read(&r->tree, d->node, d->count, ids, NULL);
    size_t decoded = d->count - (d->finish == BAUTA_FINISH_END);
    bauta_status status = bt_request_stop_matcher(&d->owned, r, tokenizer, err);
    for (size_t i = 0; i < decoded && !status && !d->owned.stopped; i++)
        status = bt_stop_matcher_push(&d->owned, ids[i], err);
    if (!status)
        status = bt_stop_matcher_finish(&d->owned, err);
    d->text = d->owned.text ? d->owned.text : "";
    d->length = d->owned.length;
    bt_free(ids);
    return status;
}

static bauta_status drafts_fill(hypothesis_draft *drafts, size_t count,
                                const bt_request *r,
                                const bauta_tokenizer *tokenizer,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (count && r->options.num_beams == 1) {
        const bt_stop_matcher *s = &r->matcher;
        drafts[0] = (hypothesis_draft){ .count = r->generated,
                                        .score = r->score,
                                        .finish = r->finish };
        if (tokenizer) {
            drafts[0].text = s->text ? s->text : "";
            drafts[0].length = s->length;
        }
        return BAUTA_OK;
    }
    for (size_t i = 0; i < count && !status; i++) {
        const bt_finished_beam *e = &r->search.finished[i];
        drafts[i] =
            (hypothesis_draft){ .count = bt_beam_tree_length(&r->tree, e->node),
                                .node = e->node,
                                .score = (double)e->score,
                                .finish = e->finish };
        if (tokenizer)
            status = draft_decode(&drafts[i], r, tokenizer, err);
    }
    return status;
}

/* Runs twice: to measure, then to fill in. */
static bauta_result *block_take(bt_arena *arena, const hypothesis_draft *drafts,
                                size_t count, const bt_request *r)
{
    bauta_result *result = bt_arena_alloc(arena, 1, sizeof(*result));
    bauta_hypothesis *all = bt_arena_alloc(arena, count, sizeof(*all));
    const bauta_hypothesis **each = bt_arena_alloc(arena, count, sizeof(*each));
    size_t length = strlen(r->failure.message) + 1;
    char *message = bt_arena_alloc(arena, length, 1);
    for (size_t i = 0; i < count; i++) {
        const hypothesis_draft *d = &drafts[i];
        uint32_t *tokens = bt_arena_alloc(arena, d->count, sizeof(*tokens));
        float *logprobs = bt_arena_alloc(arena, d->count, sizeof(*logprobs));
        char *text = NULL;
        if (d->text)
            text = bt_arena_alloc(arena, bt_size_add(d->length, 1), 1);
        if (!arena->base)
            continue;
        tokens_read(r, d->node, d->count, tokens, logprobs);
        if (text) {
            memcpy(text, d->text, d->length);
            text[d->length] = '\0';
        }
        all[i] = (bauta_hypothesis){ .size = sizeof(*all),
                                     .count = d->count,
                                     .tokens = tokens,
                                     .logprobs = logprobs,
                                     .score = d->score,
                                     .finish = d->finish,
                                     .text = text,
                                     .text_length = text ? d->length : 0 };
        each[i] = &all[i];
    }
    if (!result)
        return NULL;
    memcpy(message, r->failure.message, length);
    *result = (bauta_result){
        .size = sizeof(*result),
        .tag = r->tag,
        .prompt_tokens = r->source_count ? r->source_count : r->prompt,
        .cached_tokens = r->cached_tokens,
        .count = count,
        .hypotheses = count ? each : NULL,
        .status = r->failure.status,
        .message = message,
    };
    return result;
}

bauta_status bt_request_result(bauta_result **out, bt_request *r,
                               const bauta_tokenizer *tokenizer,
                               bauta_error *err)
{
    size_t count = r->failure.status ? 0 : 1;
    bt_arena arena = { 0 };
    if (count && r->options.num_beams > 1)
        count = bt_size_min(bt_size_max(1, r->options.num_return_sequences),
                            r->search.finished_count);
    *out = NULL;
    hypothesis_draft *drafts = bt_alloc_zero(count, sizeof(*drafts));
    if (!drafts)
        return bt_fail_memory(err, "a result", count * sizeof(*drafts));
    bauta_status status = drafts_fill(drafts, count, r, tokenizer, err);
    if (!status) {
        block_take(&arena, drafts, count, r);
        size_t bytes = arena.used;
        if (bt_arena_reserve(&arena, bytes))
            status = bt_fail_memory(err, "a result", bytes);
    }
    // The result is at the start of the block, so freeing it frees everything.
    if (!status)
        *out = block_take(&arena, drafts, count, r);
    for (size_t i = 0; i < count; i++)
        bt_stop_matcher_release(&drafts[i].owned);
    bt_free(drafts);
    return status;
}

/* ---- logits that are not finite ---------------------------------------- */

/* The prompt and the new tokens of one beam. */
static void beam_read(const bt_request *r, size_t beam, uint32_t *ids)
{
    memcpy(ids, r->ids, r->count * sizeof(*ids));
    if (r->options.num_beams > 1)
        bt_beam_tree_read(&r->tree, r->search.open[beam].node, r->generated,
                          ids + r->prompt, NULL);
}

static bauta_batch batch_of(const uint32_t *ids, const size_t *count)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = 1;
    batch.lengths = count;
    batch.ids = ids;
    return batch;
}

static bauta_status beam_check(const bt_request *r, bauta_context *context,
                               const bauta_model *model, const uint32_t *ids,
                               bauta_error *err)
{
    size_t count = r->prompt + r->generated;
    bauta_batch source = batch_of(r->source, &r->source_count);
    bauta_batch target = batch_of(ids, &count);
    bauta_mask *window = NULL;
    bauta_status status = BAUTA_OK;
    if (r->options.sliding_window)
        status = bauta_mask_window(&window, count, count,
                                   r->options.sliding_window, err);
    target.mask = window;
    if (!status)
        status = bauta_model_check_finite(
            context, model, r->source_count ? &source : NULL, &target, err);
    bauta_mask_free(window);
    return status;
}

bauta_status bt_request_explain_not_finite(bt_request *r,
                                           bauta_context *context,
                                           const bauta_model *model,
                                           bauta_error *err)
{
    size_t at = r->prompt + r->generated;
    bauta_error why;
    bauta_status status = BAUTA_OK;
    uint32_t *ids = bt_alloc(bt_size_mul(at, sizeof(*ids)));
    if (!ids)
        return bt_fail_memory(err, "tokens", at);
    for (size_t b = 0; b < bt_request_open_beams(r) && !status; b++) {
        beam_read(r, b, ids);
        status = beam_check(r, context, model, ids, &why);
    }
    bt_free(ids);
    if (status == BAUTA_ERR_NOT_FINITE)
        bt_fail(&r->failure, status,
                "the logits after token %zu are not finite: %s", at,
                why.message);
    else if (status)
        return bt_fail(err, status, "%s", why.message);
    r->explained = true;
    return BAUTA_OK;
}
