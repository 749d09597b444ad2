/* SPDX-License-Identifier: Apache-2.0 */
/* test_perplexity.c - perplexity against sums computed in double from the
 * logits of bauta_model_forward(), one token at a time. */
#include "allocation_faults.h"
#include "bauta.h"
#include "tiny_training.h"

#include <math.h>

enum { VOCABULARY = TINY_VOCAB_SIZE, LONGEST = 64, START = 39 };

typedef struct setup {
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus;
} setup;

static setup setup_of(const char *family)
{
    setup s = { 0 };
    bauta_options how = BAUTA_OPTIONS_INIT;
    bauta_error err;
    how.threads = 2;
    must(bauta_context_create(&s.context, &how, &err), &err);
    must(bauta_model_create(&s.model, tinies[tiny_family(family)].config, 9,
                            &err),
         &err);
    s.tokenizer = tiny_tokenizer();
    s.corpus = bauta_model_kind_of(s.model) == BAUTA_ENCODER_DECODER
                   ? tiny_pairs(3, 9, 20)
                   : tiny_texts(3, 9, 40, 3);
    return s;
}

static void setup_free(setup *s)
{
    bauta_corpus_free(s->corpus);
    bauta_tokenizer_free(s->tokenizer);
    bauta_model_free(s->model);
    bauta_context_free(s->context);
}

/* ---- the expected sum -------------------------------------------------- */

typedef struct sum {
    double loss;
    uint64_t tokens;
} sum;

static bauta_batch sequence(const uint32_t *ids, const size_t *count)
{
    bauta_batch b = BAUTA_BATCH_INIT;
    b.count = 1;
    b.lengths = count;
    b.ids = ids;
    return b;
}

/* Add minus the log-probability of a label in a row of the logits. */
static void add(sum *to, const setup *s, const bauta_batch *source,
                const bauta_batch *target, size_t row, uint32_t label)
{
    static float logits[LONGEST * VOCABULARY];
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bauta_error err;
    outputs.logits = logits;
    must(bauta_model_forward(s->context, s->model, source, target, &outputs,
                             &err),
         &err);
    const float *z = logits + row * VOCABULARY;
    double max = -INFINITY, all = 0.0;
    for (size_t i = 0; i < VOCABULARY; i++)
        max = fmax(max, (double)z[i]);
    for (size_t i = 0; i < VOCABULARY; i++)
        all += exp((double)z[i] - max);
    to->loss += log(all) + max - (double)z[label];
    to->tokens++;
}

/* Where the window begins that predicts token `at`: the first one whose tokens
 * reach it. */
static size_t window_begin(size_t at, size_t context, size_t stride)
{
    size_t begin = 0;
    while (begin + context <= at)
        begin += stride;
    return begin;
}

/* Token t of a text is predicted by the tokens before it in its window. */
static void causal_expect(sum *to, const setup *s, const uint32_t *tokens,
                          size_t count, size_t context, size_t stride)
{
    for (size_t t = 1; t < count; t++) {
        size_t begin = window_begin(t - 1, context, stride), n = t - begin;
        bauta_batch b = sequence(tokens + begin, &n);
        add(to, s, NULL, &b, n - 1, tokens[t]);
    }
}

static void masked_expect(sum *to, const setup *s, const uint32_t *tokens,
                          size_t count, size_t context, size_t stride)
{
    for (size_t t = 0; t < count; t++) {
        uint32_t ids[LONGEST];
        size_t begin = window_begin(t, context, stride);
        size_t n = bt_size_min(context, count - begin);
        bauta_batch b = sequence(ids, &n);
        if (tokens[t] < TINY_A) // special
            continue;
        memcpy(ids, tokens + begin, n * sizeof(*ids));
        ids[t - begin] = TINY_MASK;
        add(to, s, &b, NULL, t - begin, tokens[t]);
    }
}

static void pair_expect(sum *to, const setup *s, const uint32_t *tokens,
                        size_t count, const uint32_t *source,
                        size_t source_count)
{
    uint32_t ids[LONGEST];
    bauta_batch a = sequence(source, &source_count), b = sequence(ids, &count);
    ids[0] = START;
    memcpy(ids + 1, tokens, (count - 1) * sizeof(*ids));
    for (size_t t = 0; t < count; t++)
        add(to, s, &a, &b, t, tokens[t]);
}

static sum expected(const setup *s, size_t context, size_t stride)
{
    sum all = { 0 };
    bauta_model_kind kind = bauta_model_kind_of(s->model);
    for (size_t i = 0; i < bauta_corpus_documents(s->corpus); i++) {
        size_t count, source_count;
        const uint32_t *source,
            *tokens = bauta_corpus_document(s->corpus, i, &count, &source,
                                            &source_count);
        if (kind == BAUTA_DECODER_ONLY)
            causal_expect(&all, s, tokens, count, context, stride);
        else if (kind == BAUTA_ENCODER_ONLY)
            masked_expect(&all, s, tokens, count, context, stride);
        else if (count <= context && source_count <= context)
            pair_expect(&all, s, tokens, count, source, source_count);
    }
    return all;
}

/* ---- results ----------------------------------------------------------- */

static bauta_perplexity_result measure(const setup *s,
                                       const bauta_perplexity_options *o)
{
    bauta_perplexity_result result = BAUTA_PERPLEXITY_RESULT_INIT;
    bauta_error err;
    must(bauta_perplexity(s->context, s->model, s->tokenizer, s->corpus, o,
                          &result, &err),
         &err);
    return result;
}

/* The library's logits and log-sum-exp are float32, whose error per token is
 * about 1e-6; the losses here are about 3. */
static void family_check(const char *family, size_t context, size_t stride)
{
    setup s = setup_of(family);
    bauta_perplexity_options o = BAUTA_PERPLEXITY_OPTIONS_INIT;
    o.context_length = context;
    o.stride = stride;
    bauta_perplexity_result result = measure(&s, &o);
    size_t window = context ? context : bauta_model_max_positions(s.model);
    assert_int_equal(result.context_length, window);
    assert_int_equal(result.stride, stride ? stride : (window + 1) / 2);
    sum all = expected(&s, window, result.stride);
    double mean = all.loss / (double)all.tokens;
    assert_true(all.tokens > 20);
    assert_int_equal(result.tokens, all.tokens);
    if (!(fabs(result.loss - mean) < 1e-5))
        fail_msg("%s: loss %.9f, want %.9f", family, result.loss, mean);
    assert_true(result.loss == result.total_loss / (double)result.tokens);
    assert_true(result.perplexity == exp(result.loss));
    setup_free(&s);
}

static void a_decoder_predicts_each_token_but_the_first(void **state)
{
    (void)state;
    family_check("gpt2", 0, 0);
    family_check("gpt2", 12, 5);
    family_check("llama", 8, 8);
    family_check("mistral", 10, 1);
}

static void an_encoder_predicts_each_masked_token(void **state)
{
    (void)state;
    family_check("bert", 0, 0);
    family_check("roberta", 12, 5);
}

static void an_encoder_decoder_predicts_the_targets(void **state)
{
    (void)state;
    family_check("marian", 0, 0);
    family_check("bart", 0, 0);
}

static void long_pairs_are_skipped_and_counted(void **state)
{
    (void)state;
    setup s = setup_of("marian");
    bauta_perplexity_options o = BAUTA_PERPLEXITY_OPTIONS_INIT;
    size_t longer = 0, count;
    o.context_length = 10;
    for (size_t i = 0; i < bauta_corpus_documents(s.corpus); i++) {
        (void)bauta_corpus_document(s.corpus, i, &count, NULL, NULL);
        longer += count > o.context_length;
    }
    bauta_perplexity_result result = measure(&s, &o);
    assert_true(longer > 0);
    assert_int_equal(result.skipped, longer);
    assert_int_equal(result.tokens, expected(&s, 10, 5).tokens);
    setup_free(&s);
}

static void gradients_and_threads_do_not_matter(void **state)
{
    (void)state;
    setup s = setup_of("gpt2");
    bauta_tensor t = BAUTA_TENSOR_INIT;
    bauta_perplexity_result a = measure(&s, NULL);
    for (size_t i = 0; i < bauta_model_tensor_count(s.model); i++) {
        assert_int_equal(bauta_model_tensor(s.model, i, &t, NULL), 0);
        for (size_t n = 0; n < t.count; n++)
            assert_true(t.gradient[n] == 0.0f);
    }
    assert_true(bauta_model_trainable(s.model));
    bauta_context_free(s.context);
    bauta_options how = BAUTA_OPTIONS_INIT;
    how.threads = 1;
    assert_int_equal(bauta_context_create(&s.context, &how, NULL), 0);
    bauta_perplexity_result b = measure(&s, NULL);
    assert_memory_equal(&a, &b, sizeof(a));
    setup_free(&s);
}

static uint64_t seen_done, seen_all;
static void on_progress(void *user, uint64_t done, uint64_t all)
{
    assert_ptr_equal(user, &seen_done);
    assert_true(done >= seen_done && done <= all);
    seen_done = done;
    seen_all = all;
}

static void max_tokens_reads_the_beginning(void **state)
{
    (void)state;
    setup s = setup_of("gpt2");
    bauta_corpus *whole = s.corpus, *part = NULL;
    bauta_perplexity_options o = BAUTA_PERPLEXITY_OPTIONS_INIT;
    size_t first, second;
    const uint32_t *tokens =
        bauta_corpus_document(whole, 0, &first, NULL, NULL);
    const uint32_t *more = bauta_corpus_document(whole, 1, &second, NULL, NULL);
    assert_true(second > 2);
    assert_int_equal(bauta_corpus_create(&part, NULL), 0);
    assert_int_equal(bauta_corpus_add(part, tokens, first, NULL, 0, NULL), 0);
    assert_int_equal(bauta_corpus_add(part, more, 2, NULL, 0, NULL), 0);
    o.max_tokens = first + 2;
    o.progress = on_progress;
    o.user = &seen_done;
    bauta_perplexity_result a = measure(&s, &o);
    assert_int_equal(seen_all, first + 2);
    assert_int_equal(seen_done, first + 2);
    s.corpus = part;
    bauta_perplexity_result b = measure(&s, NULL);
    assert_int_equal(a.tokens, b.tokens);
    assert_true(a.total_loss == b.total_loss);
    s.corpus = whole;
    bauta_corpus_free(part);
    setup_free(&s);
}

/* ---- errors ------------------------------------------------------------ */

static void refused(const setup *s, const bauta_tokenizer *tokenizer,
                    const bauta_corpus *corpus,
                    const bauta_perplexity_options *o, bauta_status expected_,
                    const char *message)
{
    bauta_perplexity_result result = BAUTA_PERPLEXITY_RESULT_INIT;
    bauta_error err = { 0 };
    assert_int_equal(bauta_perplexity(s->context, s->model, tokenizer, corpus,
                                      o, &result, &err),
                     expected_);
    if (!strstr(err.message, message))
        fail_msg("\"%s\" does not say \"%s\"", err.message, message);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    setup s = setup_of("gpt2"), b = setup_of("bert"), m = setup_of("marian");
    bauta_perplexity_options o = BAUTA_PERPLEXITY_OPTIONS_INIT;
    bauta_perplexity_result result = { 0 };
    bauta_corpus *empty = NULL;
    setup none = { 0 };
    assert_int_equal(bauta_corpus_create(&empty, NULL), 0);
    refused(&none, NULL, s.corpus, &o, BAUTA_ERR_ARGUMENT, "context");
    none.context = s.context;
    refused(&none, NULL, s.corpus, &o, BAUTA_ERR_ARGUMENT, "model");
    refused(&s, NULL, NULL, &o, BAUTA_ERR_ARGUMENT, "corpus");
    refused(&s, NULL, empty, &o, BAUTA_ERR_ARGUMENT, "nothing to predict");
    refused(&s, NULL, m.corpus, &o, BAUTA_ERR_ARGUMENT, "a corpus of texts");
    refused(&m, NULL, s.corpus, &o, BAUTA_ERR_ARGUMENT, "a corpus of pairs");
    refused(&b, NULL, b.corpus, &o, BAUTA_ERR_ARGUMENT, "a mask token");
    o.objective = BAUTA_OBJECTIVE_MASKED;
    refused(&s, NULL, s.corpus, &o, BAUTA_ERR_ARGUMENT, "decoder-only");
    o.objective = (bauta_objective)99;
    refused(&s, NULL, s.corpus, &o, BAUTA_ERR_ARGUMENT, "objective 99");
    o.objective = BAUTA_OBJECTIVE_AUTO;
    o.context_length = 97;
    refused(&s, NULL, s.corpus, &o, BAUTA_ERR_ARGUMENT, "96 positions");
    o.context_length = 8;
    o.stride = 9;
    refused(&s, NULL, s.corpus, &o, BAUTA_ERR_ARGUMENT, "a stride of 9");
    o.size = 3;
    refused(&s, NULL, s.corpus, &o, BAUTA_ERR_ARGUMENT, "size");
    assert_int_equal(bauta_perplexity(s.context, s.model, NULL, s.corpus, NULL,
                                      &result, NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(
        bauta_perplexity(s.context, s.model, NULL, s.corpus, NULL, NULL, NULL),
        BAUTA_ERR_ARGUMENT);
    bauta_corpus_free(empty);
    setup_free(&s);
    setup_free(&b);
    setup_free(&m);
}

static void nan_is_reported_with_its_layer(void **state)
{
    (void)state;
    setup s = setup_of("gpt2");
    bauta_tensor t = BAUTA_TENSOR_INIT;
    for (size_t i = 0; i < bauta_model_tensor_count(s.model); i++) {
        assert_int_equal(bauta_model_tensor(s.model, i, &t, NULL), 0);
        if (strstr(t.name, "h.1.ln_1.weight"))
            t.writable[0] = NAN;
    }
    refused(&s, NULL, s.corpus, NULL, BAUTA_ERR_NOT_FINITE, "decoder layer 1");
    setup_free(&s);
}

static void memory_that_runs_out_is_a_status(void **state)
{
    (void)state;
    size_t failures = 0;
    faults_begin();
    setup s = setup_of("marian");
    for (size_t k = 0;; k++) {
        bauta_perplexity_result result = BAUTA_PERPLEXITY_RESULT_INIT;
        bauta_error err = { 0 };
        bauta_context_free(s.context); // nothing is cached
        assert_int_equal(bauta_context_create(&s.context, NULL, NULL), 0);
        faults_arm(k);
        bauta_status status = bauta_perplexity(s.context, s.model, NULL,
                                               s.corpus, NULL, &result, &err);
        bool failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        if (!failed)
            break;
        failures++;
    }
    assert_true(failures > 5);
    setup_free(&s);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decoder_predicts_each_token_but_the_first),
        cmocka_unit_test(an_encoder_predicts_each_masked_token),
        cmocka_unit_test(an_encoder_decoder_predicts_the_targets),
        cmocka_unit_test(long_pairs_are_skipped_and_counted),
        cmocka_unit_test(gradients_and_threads_do_not_matter),
        cmocka_unit_test(max_tokens_reads_the_beginning),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(nan_is_reported_with_its_layer),
        cmocka_unit_test(memory_that_runs_out_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
