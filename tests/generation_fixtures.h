/* SPDX-License-Identifier: Apache-2.0 */
/* generation_fixtures.h - shared by tests of generation: a model with its
 * context and tokenizer, and batches of requests whose results are in order. */
#ifndef BT_TEST_GENERATION_FIXTURES_H
#define BT_TEST_GENERATION_FIXTURES_H

#include "bauta.h"
#include "testing.h"

#include <string.h>

#define MUST(call, err)                                                \
    do {                                                               \
        if (call)                                                      \
            fail_msg("%s:%d: %s", __FILE__, __LINE__, (err)->message); \
    } while (0)

typedef struct generation_fixture {
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer; /* or NULL */
} generation_fixture;

static inline generation_fixture
generation_fixture_load(const char *folder, bool tokenizer, int threads)
{
    generation_fixture s = { 0 };
    bauta_error err;
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = threads;
    MUST(bauta_context_create(&s.context, &options, &err), &err);
    MUST(bauta_model_load(&s.model, folder, false, &err), &err);
    if (tokenizer)
        MUST(bauta_tokenizer_load(&s.tokenizer, folder, &err), &err);
    return s;
}

static inline void generation_fixture_release(generation_fixture *s)
{
    bauta_tokenizer_free(s->tokenizer);
    bauta_model_free(s->model);
    bauta_context_free(s->context);
}

/* Run requests, each tagged with its number; results[i] is of request i. */
static inline void generate_all(const generation_fixture *s,
                                const bauta_generator_options *options,
                                bauta_request *requests, size_t count,
                                bauta_result **results)
{
    bauta_generator *g;
    bauta_error err;
    size_t left = count, seen = 0;
    MUST(bauta_generator_create(&g, s->context, s->model, s->tokenizer, options,
                                &err),
         &err);
    for (size_t i = 0; i < count; i++) {
        requests[i].tag = i;
        MUST(bauta_generator_add(g, &requests[i], &err), &err);
    }
    while (left) {
        MUST(bauta_generator_step(g, &left, &err), &err);
        for (bauta_result *r; (r = bauta_generator_take(g)); seen++)
            results[r->tag] = r;
    }
    assert_int_equal(seen, count);
    bauta_generator_free(g);
}

static inline void results_free(bauta_result **results, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bauta_result_free(results[i]);
}

/* The same to the bit. */
static inline void results_equal(const bauta_result *a, const bauta_result *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t h = 0; h < a->count; h++) {
        const bauta_hypothesis *x = a->hypotheses[h], *y = b->hypotheses[h];
        assert_int_equal(x->count, y->count);
        assert_memory_equal(x->tokens, y->tokens,
                            x->count * sizeof(*x->tokens));
        assert_memory_equal(x->logprobs, y->logprobs,
                            x->count * sizeof(*x->logprobs));
        assert_memory_equal(&x->score, &y->score, sizeof(x->score));
        assert_int_equal(x->finish, y->finish);
        assert_int_equal(x->text != NULL, y->text != NULL);
        assert_int_equal(x->text_length, y->text_length);
        if (x->text)
            assert_memory_equal(x->text, y->text, x->text_length + 1);
    }
}

#endif
