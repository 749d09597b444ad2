/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - checking and copying requests. */
#include "decode/request.h"

#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "decode/generation_config.h"
#include "mask/mask.h"
#include "mask/plan.h"
#include "model/api.h"
#include "model/layer_mask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- checks ------------------------------------------------------------ */

static bauta_status range_check(const char *name, float value, float least,
                                float most, bauta_error *err)
{
    if (value >= least && value <= most)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is %g, not from %g to %g", name,
                   (double)value, (double)least, (double)most);
}

static bauta_status ids_check(const char *name, const uint32_t *ids,
                              size_t count, size_t vocab, bauta_error *err)
{
    if (count && !ids)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is NULL, of %zu tokens",
                       name, count);
    if (count > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s has %zu tokens, and %zu are the most", name, count,
                       BT_AXIS_MAX);
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s has token %u at %zu, the vocabulary has %zu",
                           name, (unsigned)ids[i], i, vocab);
    return BAUTA_OK;
}

static bauta_status token_check(const char *name, uint32_t id, size_t vocab,
                                bauta_error *err)
{
    if (id == BAUTA_NO_TOKEN || id < vocab)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is %u, the vocabulary has %zu",
                   name, (unsigned)id, vocab);
}

static bauta_status numbers_check(const bauta_generate_options *o,
                                  bauta_error *err)
{
    // The smallest normal number; dividing by less overflows.
    const float small = 0x1p-126f, large = 1e9f;
    bauta_status status = range_check("the repetition penalty",
                                      o->repetition_penalty, small, large, err);
    if (!status)
        status = range_check("the temperature", o->temperature, 0, large, err);
    if (!status)
        status = range_check("top-p", o->top_p, 0, 1, err);
    if (!status)
        status = range_check("min-p", o->min_p, 0, 1, err);
    if (!status)
        status = range_check("the presence penalty", o->presence_penalty,
                             -large, large, err);
    if (!status)
        status = range_check("the frequency penalty", o->frequency_penalty,
                             -large, large, err);
    if (!status)
        status = range_check("the length penalty", o->length_penalty, -100, 100,
                             err);
    return status;
}

static bauta_status beams_check(const bauta_generate_options *o,
                                bauta_error *err)
{
    if (o->num_beams == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the number of beams is 0");
    if (o->num_return_sequences > o->num_beams)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu results of %zu beams are requested",
                       o->num_return_sequences, o->num_beams);
    if (o->do_sample && o->num_beams > 1)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu beams and sampling are not supported together",
                       o->num_beams);
    if ((unsigned)o->early_stopping > BAUTA_EARLY_STOPPING_NEVER)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no early stopping %d",
                       (int)o->early_stopping);
    return BAUTA_OK;
}

static bauta_status stops_check(const bauta_generate_options *o,
                                bauta_error *err)
{
    if (o->stop_string_count && !o->stop_strings)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "options.stop_strings is NULL, of %zu",
                       o->stop_string_count);
    BT_NEED_COUNT("options.stop_strings", o->stop_string_count,
                  sizeof(*o->stop_strings), err);
    for (size_t i = 0; i < o->stop_string_count; i++)
        if (!o->stop_strings[i] || !*o->stop_strings[i])
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "stop string %zu is %s",
                           i + 1, o->stop_strings[i] ? "empty" : "NULL");
    return BAUTA_OK;
}

static bauta_status words_check(const bauta_generate_options *o, size_t vocab,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    char name[48];
    if (o->bad_word_count && !o->bad_words)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "options.bad_words is NULL, of %zu", o->bad_word_count);
    BT_NEED_COUNT("options.bad_words", o->bad_word_count, sizeof(*o->bad_words),
                  err);
    for (size_t i = 0; i < o->bad_word_count && !status; i++) {
        const bauta_token_seq *word = &o->bad_words[i];
        snprintf(name, sizeof(name), "bad word %zu", i + 1);
        if (!word->count)
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "bad word %zu is empty",
                           i + 1);
        status = ids_check(name, word->tokens, word->count, vocab, err);
    }
    return status;
}

/* A range in which no sum overflows. */
static const float bias_most = 1e9f;

/* Ascending, so that each token has one bias. */
static bauta_status bias_check(const bauta_generate_options *o, size_t vocab,
                               bauta_error *err)
{
    const bauta_token_bias *all = o->logit_bias;
    bauta_status status = BAUTA_OK;
    if (o->logit_bias_count && !all)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "options.logit_bias is NULL, of %zu",
                       o->logit_bias_count);
    BT_NEED_COUNT("options.logit_bias", o->logit_bias_count, sizeof(*all), err);
    for (size_t i = 0; i < o->logit_bias_count && !status; i++) {
        if (i && all[i].token <= all[i - 1].token)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "options.logit_bias has token %u after token %u; "
                           "they must ascend",
                           (unsigned)all[i].token, (unsigned)all[i - 1].token);
        status = ids_check("options.logit_bias", &all[i].token, 1, vocab, err);
        if (!status)
            status = range_check("a logit bias", all[i].bias, -bias_most,
                                 bias_most, err);
    }
    return status;
}

static bauta_status tokens_check(const bauta_generate_options *o, size_t vocab,
                                 bauta_error *err)
{
    if (o->eos_token_count > BAUTA_EOS_TOKENS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there are %zu end tokens, more than %d",
                       o->eos_token_count, BAUTA_EOS_TOKENS_MAX);
    if (o->suppress_token_count > BAUTA_SUPPRESS_TOKENS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there are %zu suppressed tokens, more than %d",
                       o->suppress_token_count, BAUTA_SUPPRESS_TOKENS_MAX);
    bauta_status status = ids_check("the list of end tokens", o->eos_token_ids,
                                    o->eos_token_count, vocab, err);
    if (!status)
        status = ids_check("the list of suppressed tokens", o->suppress_tokens,
                           o->suppress_token_count, vocab, err);
    if (!status)
        status = token_check("decoder_start_token_id",
                             o->decoder_start_token_id, vocab, err);
    if (!status)
        status = token_check("forced_bos_token_id", o->forced_bos_token_id,
                             vocab, err);
    return status ? status
                  : token_check("forced_eos_token_id", o->forced_eos_token_id,
                                vocab, err);
}

bauta_status bt_generate_options_check(const bauta_generate_options *options,
                                       size_t vocab, bauta_error *err)
{
    bauta_status status = numbers_check(options, err);
    if (!status)
        status = beams_check(options, err);
    if (!status)
        status = stops_check(options, err);
    if (!status)
        status = words_check(options, vocab, err);
    if (!status)
        status = bias_check(options, vocab, err);
    return status ? status : tokens_check(options, vocab, err);
}

/* ---- checks against the model ------------------------------------------ */

static bool has_position_table(const bauta_model *model)
{
    return bt_positions_in_table(model->store->model->config.position_kind);
}

static bauta_status source_check(const bauta_request *request,
                                 const bauta_model *model, bauta_error *err)
{
    bool encoder = bauta_model_kind_of(model) == BAUTA_ENCODER_DECODER;
    size_t positions = bauta_model_max_positions(model);
    if (!encoder && request->source_count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the source has %zu tokens, and the model has no "
                       "encoder",
                       request->source_count);
    if (encoder && !request->source_count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the source is empty");
    if (has_position_table(model) && request->source_count > positions)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the source has %zu tokens, the model has %zu "
                       "positions",
                       request->source_count, positions);
    return ids_check("the source", request->source, request->source_count,
                     bauta_model_vocab_size(model), err);
}

static bauta_status prompt_check(const bauta_request *request,
                                 const bauta_generate_options *o,
                                 const bauta_model *model, bauta_error *err)
{
    bool encoder = bauta_model_kind_of(model) == BAUTA_ENCODER_DECODER;
    if (encoder && o->decoder_start_token_id == BAUTA_NO_TOKEN)
        return bt_fail(
            err, BAUTA_ERR_ARGUMENT,
            "there is no start token, which an encoder-decoder needs");
    if (!encoder && !request->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the prompt is empty");
    if (has_position_table(model) &&
        request->count > bauta_model_max_positions(model))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the prompt has %zu tokens, the model has %zu positions",
                       request->count, bauta_model_max_positions(model));
    return ids_check("the prompt", request->tokens, request->count,
                     bauta_model_vocab_size(model), err);
}

/* Find the most tokens there can be. The last token is never read by the model,
 * so a position table allows one more. */
static bauta_status limit_find(bt_request *r, const bauta_model *model,
                               bauta_error *err)
{
    const bauta_generate_options *o = &r->options;
    size_t positions = bauta_model_max_positions(model), limit = SIZE_MAX;
    if (o->max_new_tokens)
        limit = bt_size_add(r->prompt, o->max_new_tokens);
    if (o->max_length)
        limit = bt_size_min(limit, o->max_length);
    r->limited_by_context = limit == SIZE_MAX;
    if (limit == SIZE_MAX)
        limit = positions;
    if (has_position_table(model) && limit > bt_size_add(positions, 1)) {
        limit = bt_size_add(positions, 1);
        r->limited_by_context = true;
    }
    if (limit <= r->prompt)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the prompt has %zu tokens, which leaves no new ones: "
                       "the limit is %zu",
                       r->prompt, limit);
    r->limit = limit;
    return BAUTA_OK;
}

/* A position table bounds the text, and a window does not change that. */
static bauta_status window_check(const bauta_generate_options *o,
                                 const bauta_model *model, bauta_error *err)
{
    if (!o->sliding_window || !has_position_table(model))
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "a sliding window of %zu tokens needs rotary positions; "
                   "this model has a table of %zu positions",
                   o->sliding_window, bauta_model_max_positions(model));
}

/* The most tokens whose keys and values are cached at a time. A sliding window
 * releases pages once no token sees them; the prompt may be read in one chunk,
 * and the first and last pages may be partly used. */
static size_t tokens_held(const bt_request *r)
{
    size_t window = r->options.sliding_window, all = r->limit - 1;
    size_t held = bt_size_add(bt_size_add(window, r->prompt), 2 * BT_BLOCK);
    return window ? bt_size_min(held, all) : all;
}

/* Beams share the source and the prompt, but the last page and the new pages
 * may not be shared, so every beam counts in full. */
static bauta_status cost_check(bt_request *r, const bt_request_limits *limits,
                               bauta_error *err)
{
    uint64_t bound = bt_decode_session_limit(limits->session);
    size_t tokens = tokens_held(r);
    uint64_t more = bt_decode_session_cost(limits->session, tokens, 0);
    uint64_t first =
        bt_decode_session_cost(limits->session, tokens, r->source_count);
    if (__builtin_mul_overflow(more, r->options.num_beams - 1, &more) ||
        __builtin_add_overflow(first, more, &r->cost_bytes))
        r->cost_bytes = UINT64_MAX;
    if (r->options.num_beams > limits->sequences)
        return bt_fail(
            err, BAUTA_ERR_ARGUMENT,
            "%zu beams are requested, the generator runs %zu sequences",
            r->options.num_beams, limits->sequences);
    if (bound && r->cost_bytes > bound)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the request may need %llu bytes of keys and values, "
                       "the cache has %llu",
                       (unsigned long long)r->cost_bytes,
                       (unsigned long long)bound);
    return BAUTA_OK;
}

/* ---- copies ------------------------------------------------------------ */

static bauta_status ids_copy(bt_request *r, const bauta_request *request,
                             bool encoder, bauta_error *err)
{
    size_t lead = encoder ? 1 : 0;
    r->prompt = r->count = r->capacity = lead + request->count;
    r->source_count = request->source_count;
    r->ids = bt_alloc(bt_size_mul(r->capacity, sizeof(*r->ids)));
    r->source = bt_alloc(bt_size_mul(r->source_count, sizeof(*r->source)));
    if (!r->ids || !r->source)
        return bt_fail_memory(err, "a request", r->capacity + r->source_count);
    if (encoder)
        r->ids[0] = r->options.decoder_start_token_id;
    if (request->count)
        memcpy(r->ids + lead, request->tokens,
               request->count * sizeof(*r->ids));
    if (request->source_count)
        memcpy(r->source, request->source,
               request->source_count * sizeof(*r->source));
    return BAUTA_OK;
}

static bauta_status fill(bt_request *r, const bauta_request *request,
                         const bt_request_limits *limits, bauta_error *err)
{
    const bauta_model *model = limits->model;
    bool encoder = bauta_model_kind_of(model) == BAUTA_ENCODER_DECODER;
    size_t vocab = bauta_model_vocab_size(model);
    bauta_status status = bt_generate_options_check(&r->options, vocab, err);
    if (!status && r->options.stop_string_count && !limits->tokenizer)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "stop strings need a tokenizer, and there is none");
    if (!status)
        status = window_check(&r->options, model, err);
    if (!status)
        status = source_check(request, model, err);
    if (!status)
        status = prompt_check(request, &r->options, model, err);
    if (!status)
        status = ids_copy(r, request, encoder, err);
    if (!status)
        status = limit_find(r, model, err);
    return status ? status : cost_check(r, limits, err);
}

bauta_status bt_request_read(bauta_request *to, bauta_generate_options *options,
                             const bauta_request *request,
                             const bauta_model *model, bauta_error *err)
{
    bauta_status status =
        BT_SIZED_READ(to, BAUTA_REQUEST_INIT, request, "request", err);
    if (status)
        return status;
    if (to->options)
        return BT_SIZED_READ(options, BAUTA_GENERATE_OPTIONS_INIT, to->options,
                             "options", err);
    return bt_generation_config_load(options, model, err);
}

bauta_status bt_request_create(bt_request **out, const bauta_request *request,
                               const bt_request_limits *limits,
                               bauta_error *err)
{
    bauta_request own;
    *out = NULL;
    bt_request *r = bt_alloc_zero(1, sizeof(*r));
    if (!r)
        return bt_fail_memory(err, "a request", sizeof(*r));
    bauta_status status =
        bt_request_read(&own, &r->options, request, limits->model, err);
    if (!status) {
        r->on_token = own.on_token;
        r->on_logits = own.on_logits;
        r->user = own.user;
        r->tag = own.tag;
        status = fill(r, &own, limits, err);
    }
    if (status)
        bt_request_free(r);
    else
        *out = r;
    return status;
}

void bt_request_free(bt_request *r)
{
    if (!r)
        return;
    for (size_t b = 0; r->sequences && b < r->options.num_beams; b++)
        bt_sequence_free(r->sequences[b]);
    bt_cross_kv_release(r->cross_kv);
    bt_free(r->sequences);
    bt_free(r->forks);
    bt_free(r->history);
    bt_beam_tree_release(&r->tree);
    bt_beam_search_release(&r->search);
    bt_stop_matcher_release(&r->matcher);
    bt_free(r->ids);
    bt_free(r->logprobs);
    bt_free(r->source);
    bt_free(r);
}

bauta_status bt_request_stop_matcher(bt_stop_matcher *matcher,
                                     const bt_request *r,
                                     const bauta_tokenizer *tokenizer,
                                     bauta_error *err)
{
    bt_stop_strings stops = { r->options.stop_strings,
                              r->options.stop_string_count };
    bauta_status status = bt_stop_matcher_init(matcher, tokenizer, &stops, err);
    if (!status)
        status =
            bt_stop_matcher_prime(matcher, tokenizer, r->ids, r->prompt, err);
    if (status)
        bt_stop_matcher_release(matcher);
    return status;
}

bauta_status bt_request_start(bt_request *r, const bauta_tokenizer *tokenizer,
                              bauta_error *err)
{
    const bauta_generate_options *o = &r->options;
    bool beams = o->num_beams > 1;
    if (!r->sequences)
        r->sequences = bt_alloc_zero(o->num_beams, sizeof(*r->sequences));
    if (!r->forks)
        r->forks = bt_alloc_zero(o->num_beams, sizeof(*r->forks));
    if (!r->sequences || !r->forks)
        return bt_fail_memory(err, "beams", o->num_beams * sizeof(*r->forks));
    if (beams && !r->search.open && !bt_beam_search_init(&r->search, o))
        return bt_fail_memory(err, "beams",
                              o->num_beams * sizeof(bt_beam_candidate));
    if (beams && bt_logits_processors_need_history(o) && !r->history) {
        size_t bytes = bt_size_mul(bt_size_mul(r->limit, o->num_beams),
                                   sizeof(*r->history));
        r->history = bt_alloc(bytes);
        if (!r->history)
            return bt_fail_memory(err, "the tokens of beams", bytes);
    }
    return tokenizer && !beams && !r->matcher.detokenizer
               ? bt_request_stop_matcher(&r->matcher, r, tokenizer, err)
               : BAUTA_OK;
}

size_t bt_request_open_beams(const bt_request *r)
{
    return r->options.num_beams > 1 ? r->search.open_count : 1;
}

bool bt_request_ends(const bt_request *r, uint32_t token, size_t generated,
                     bauta_finish *finish)
{
    for (size_t i = 0; i < r->options.eos_token_count; i++)
        if (r->options.eos_token_ids[i] == token) {
            *finish = BAUTA_FINISH_END;
            return true;
        }
    *finish =
        r->limited_by_context ? BAUTA_FINISH_CONTEXT : BAUTA_FINISH_LENGTH;
    return r->prompt + generated >= r->limit;
}
