/* SPDX-License-Identifier: Apache-2.0 */
/* random_requests.h - random requests for tests of generation, some with common
 * prefixes, and a generator that receives them while others run. */
#ifndef BT_TEST_RANDOM_REQUESTS_H
#define BT_TEST_RANDOM_REQUESTS_H

#include "generation_fixtures.h"

/* The same generator over a decode session without a KV cache; see slow/. */
bauta_status slow_generate(bauta_context *context, const bauta_model *model,
                           const bauta_tokenizer *tokenizer,
                           const bauta_request *request, bauta_result **out,
                           bauta_error *err);

enum { VOCAB = 40, MANY = 24, PROMPT = 30 };

typedef struct random_request {
    uint32_t prompt[PROMPT], source[PROMPT], tokens[2];
    bauta_token_seq word;
    bauta_generate_options options;
    bauta_request request;
} random_request;

static inline void options_draw(test_random *r, bauta_generate_options *o)
{
    *o = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    o->max_new_tokens = 1 + test_below(r, 12);
    o->min_new_tokens = test_below(r, 4);
    o->decoder_start_token_id = VOCAB - 1;
    o->eos_token_count = test_below(r, 3);
    for (size_t i = 0; i < o->eos_token_count; i++)
        o->eos_token_ids[i] = (uint32_t)test_below(r, VOCAB);
    if (test_below(r, 3) == 0)
        o->repetition_penalty = 1.5f;
    if (test_below(r, 3) == 0)
        o->presence_penalty = 0.75f;
    if (test_below(r, 3) == 0)
        o->frequency_penalty = 0.4f;
    if (test_below(r, 3) == 0) {
        static const bauta_token_bias biases[] = { { 2, -3.0f },
                                                   { VOCAB - 1, 1.5f } };
        o->logit_bias = biases;
        o->logit_bias_count = 2;
    }
    if (test_below(r, 3) == 0)
        o->no_repeat_ngram_size = 1 + test_below(r, 3);
    if (test_below(r, 4) == 0)
        o->suppress_tokens[o->suppress_token_count++] =
            (uint32_t)test_below(r, VOCAB);
    if (test_below(r, 5) == 0)
        o->forced_eos_token_id = (uint32_t)test_below(r, VOCAB);
    switch (test_below(r, 3)) {
    case 0:
        break;
    case 1:
        o->do_sample = true;
        o->seed = test_u32(r);
        o->temperature = 0.5f + (float)test_below(r, 4) * 0.5f;
        o->top_k = test_below(r, 2) ? 0 : 1 + test_below(r, VOCAB);
        o->top_p = test_below(r, 2) ? 1.0f : 0.7f;
        o->min_p = test_below(r, 2) ? 0.0f : 0.05f;
        break;
    default:
        o->num_beams = 2 + test_below(r, 4);
        o->num_return_sequences = 1 + test_below(r, o->num_beams);
        o->length_penalty = (float)test_below(r, 5) * 0.5f;
        o->early_stopping = (bauta_early_stopping)test_below(r, 3);
        o->renormalize_logits = test_below(r, 2);
    }
}

/* Some share a prefix with the previous one. */
static inline void random_request_draw(test_random *r, random_request *w,
                                       const random_request *before,
                                       bool encoder)
{
    size_t count = (encoder ? 0 : 1) + test_below(r, PROMPT - 1), same = 0;
    if (before && test_below(r, 2))
        same = test_below(r, PROMPT);
    for (size_t i = 0; i < PROMPT; i++) {
        w->prompt[i] =
            i < same ? before->prompt[i] : (uint32_t)test_below(r, VOCAB);
        w->source[i] =
            same ? before->source[i] : (uint32_t)test_below(r, VOCAB);
    }
    options_draw(r, &w->options);
    for (size_t i = 0; i < 2; i++)
        w->tokens[i] = (uint32_t)test_below(r, VOCAB);
    w->word = (bauta_token_seq){ 1 + test_below(r, 2), w->tokens };
    w->options.bad_words = &w->word;
    w->options.bad_word_count = test_below(r, 4) == 0;
    w->request = (bauta_request)BAUTA_REQUEST_INIT;
    w->request.tokens = w->prompt;
    w->request.count = count;
    w->request.options = &w->options;
    if (!encoder)
        return;
    w->request.source = w->source;
    w->request.source_count =
        same ? before->request.source_count : 1 + test_below(r, PROMPT - 1);
}

static inline void random_requests_draw(test_random *r,
                                        random_request *requests, size_t count,
                                        bool encoder)
{
    for (size_t i = 0; i < count; i++)
        random_request_draw(r, &requests[i], i ? &requests[i - 1] : NULL,
                            encoder);
}

/* Add requests while others run. */
static inline void generate_arriving(test_random *r,
                                     const generation_fixture *s,
                                     const bauta_generator_options *options,
                                     random_request *requests, size_t count,
                                     bauta_result **results)
{
    bauta_generator *g;
    bauta_error err;
    size_t left = 0, added = 0, seen = 0;
    MUST(bauta_generator_create(&g, s->context, s->model, s->tokenizer, options,
                                &err),
         &err);
    while (added < count || left) {
        for (size_t n = test_below(r, 4); n > 0 && added < count; n--) {
            requests[added].request.tag = added;
            MUST(bauta_generator_add(g, &requests[added].request, &err), &err);
            added++;
        }
        MUST(bauta_generator_step(g, &left, &err), &err);
        for (bauta_result *one; (one = bauta_generator_take(g)); seen++)
            results[one->tag] = one;
    }
    assert_int_equal(seen, count);
    bauta_generator_free(g);
}

#endif
