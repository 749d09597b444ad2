/* SPDX-License-Identifier: Apache-2.0 */
/* test_logprobs.c - the sampler and the trainer evaluate the same function: the
 * log-probabilities of generated tokens are those of bauta_model_logprobs() in
 * one parallel pass, bit for bit. */
#include "generation_fixtures.h"
#include "tiny_models.h"

#include <math.h>

enum { VOCAB = 40, TEXTS = 6, PROMPT = 20, NEW = 30, ROWS = 64, START = 39 };

static test_random randoms;

/* ---- generated texts ------------------------------------------------------
 */

typedef struct prompt {
    uint32_t ids[PROMPT], source[PROMPT];
    size_t count, source_count;
} prompt;

static void prompt_draw(prompt *p, bool pairs)
{
    p->count = (pairs ? 0 : 1) + test_below(&randoms, PROMPT);
    p->source_count = pairs ? 1 + test_below(&randoms, PROMPT) : 0;
    for (size_t i = 0; i < PROMPT; i++) {
        p->ids[i] = (uint32_t)test_below(&randoms, VOCAB);
        p->source[i] = (uint32_t)test_below(&randoms, VOCAB);
    }
}

/* Sampling with every processor and warper that the log-probabilities must not
 * show; the last text is of a beam search. */
static bauta_generate_options options_of(size_t text)
{
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    o.max_new_tokens = NEW;
    o.decoder_start_token_id = START;
    o.repetition_penalty = text % 2 ? 1.3f : 1.0f;
    o.suppress_tokens[0] = 3;
    o.suppress_token_count = 1;
    if (text + 1 == TEXTS) {
        o.num_beams = 3;
        return o;
    }
    o.do_sample = true;
    o.seed = text;
    o.temperature = 0.7f + 0.3f * (float)text;
    o.top_k = text % 3 ? 0 : 11;
    o.top_p = text % 3 == 1 ? 0.9f : 1.0f;
    return o;
}

/* ---- the same texts in one parallel pass ----------------------------------
 */

typedef struct texts {
    uint32_t ids[TEXTS * ROWS], labels[TEXTS * ROWS];
    uint32_t sources[TEXTS * ROWS];
    size_t lengths[TEXTS], source_lengths[TEXTS];
    size_t first[TEXTS]; /* row of the first new token's label */
    bauta_batch source, target;
} texts;

/* Padded, so that padding and ignored labels are there, too. */
static void texts_fill(texts *t, const prompt *prompts, bool pairs,
                       bauta_result *const *results)
{
    for (size_t i = 0; i < TEXTS; i++) {
        const bauta_hypothesis *h = results[i]->hypotheses[0];
        uint32_t *ids = t->ids + i * ROWS, *labels = t->labels + i * ROWS;
        size_t n = 0;
        if (pairs)
            ids[n++] = START;
        for (size_t k = 0; k < prompts[i].count; k++)
            ids[n++] = prompts[i].ids[k];
        t->first[i] = i * ROWS + n - 1;
        for (size_t k = 0; k < n; k++)
            labels[k] = BAUTA_IGNORE;
        for (size_t k = 0; k < h->count; k++) {
            ids[n + k] = h->tokens[k];
            labels[n + k - 1] = h->tokens[k];
        }
        t->lengths[i] = n + h->count - 1; // the last one is not read
        for (size_t k = t->lengths[i]; k < ROWS; k++)
            ids[k] = labels[k] = UINT32_MAX - 1; // padding is not read
        t->source_lengths[i] = prompts[i].source_count;
        memcpy(t->sources + i * ROWS, prompts[i].source,
               sizeof(prompts[i].source));
    }
    t->source = t->target = (bauta_batch)BAUTA_BATCH_INIT;
    t->source.count = t->target.count = TEXTS;
    t->source.stride = t->target.stride = ROWS;
    t->source.ids = t->sources;
    t->source.lengths = t->source_lengths;
    t->target.ids = t->ids;
    t->target.lengths = t->lengths;
}

/* With u = 2^-24 and R the range of the logits: the exponents round once, by
 * u R; exponentials and their sum are within (5.1 + n / 16 + 5) u; lse and the
 * difference round once each. */
static void near_double(const float *z, uint32_t label, float got)
{
    const double u = 0x1p-24;
    double max = (double)z[0], min = max, sum = 0.0;
    for (size_t j = 0; j < VOCAB; j++) {
        max = fmax(max, (double)z[j]);
        min = fmin(min, (double)z[j]);
    }
    for (size_t j = 0; j < VOCAB; j++)
        sum += exp((double)z[j] - max);
    double lse = max + log(sum), want = (double)z[label] - lse;
    double bound =
        u * (max - min + 5.1 + VOCAB / 16.0 + 5 + fabs(lse)) + u * fabs(want);
    if (!(fabs((double)got - want) <= 1.01 * bound))
        fail_msg("log-probability is %.9g, want %.9g within %.3g", (double)got,
                 want, bound);
}

static void texts_check(const generation_fixture *s, const texts *t, bool pairs,
                        bauta_result *const *results)
{
    static float got[TEXTS * ROWS], logits[TEXTS * ROWS * VOCAB];
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    const bauta_batch *source = pairs ? &t->source : NULL;
    bauta_error err;
    outputs.logits = logits;
    for (size_t i = 0; i < TEXTS * ROWS; i++)
        got[i] = NAN;
    MUST(bauta_model_logprobs(s->context, s->model, source, &t->target,
                              t->labels, got, &err),
         &err);
    MUST(bauta_model_forward(s->context, s->model, source, &t->target, &outputs,
                             &err),
         &err);
    for (size_t i = 0; i < TEXTS; i++) {
        const bauta_hypothesis *h = results[i]->hypotheses[0];
        assert_true(h->count > 0);
        assert_memory_equal(h->logprobs, got + t->first[i],
                            h->count * sizeof(float));
        for (size_t row = i * ROWS; row < (i + 1) * ROWS; row++) {
            size_t end = t->first[i] + h->count;
            if (row >= t->first[i] && row < end)
                near_double(logits + row * VOCAB, t->labels[row], got[row]);
            else
                assert_true(got[row] == 0.0f);
        }
    }
}

/* The generator runs on one context and the parallel pass on another. */
static void family_run(const char *folder, bool pack, bauta_dtype dtype)
{
    prompt prompts[TEXTS];
    bauta_generate_options options[TEXTS];
    bauta_request requests[TEXTS];
    bauta_result *results[TEXTS];
    bauta_options plain = BAUTA_OPTIONS_INIT;
    static texts t;
    bauta_error err;
    generation_fixture s = generation_fixture_load(folder, false, 3);
    bool pairs = bauta_model_kind_of(s.model) == BAUTA_ENCODER_DECODER;
    if (pack)
        MUST(bauta_model_pack(s.model, dtype, &err), &err);
    for (size_t i = 0; i < TEXTS; i++) {
        prompt_draw(&prompts[i], pairs);
        options[i] = options_of(i);
        requests[i] = (bauta_request)BAUTA_REQUEST_INIT;
        requests[i].count = prompts[i].count;
        requests[i].tokens = prompts[i].ids;
        requests[i].source_count = prompts[i].source_count;
        requests[i].source = prompts[i].source;
        requests[i].options = &options[i];
    }
    generate_all(&s, NULL, requests, TEXTS, results);
    texts_fill(&t, prompts, pairs, results);
    bauta_context_free(s.context);
    plain.threads = 1;
    plain.isa = "c";
    MUST(bauta_context_create(&s.context, &plain, &err), &err);
    texts_check(&s, &t, pairs, results);
    results_free(results, TEXTS);
    generation_fixture_release(&s);
}

static void the_sampler_and_the_trainer_are_the_same_function(void **state)
{
    (void)state;
    static const bauta_dtype dtypes[] = { BAUTA_FLOAT32, BAUTA_BFLOAT16,
                                          BAUTA_INT8 };
    temp_folder folder = temp_folder_create();
    size_t families = 0;
    for (size_t i = 0; i < BT_LEN(tinies); i++) {
        char path[512];
        if (strstr(tinies[i].name, "bert"))
            continue;
        tiny_write(&folder, &tinies[i], path);
        family_run(path, false, BAUTA_FLOAT32);
        family_run(path, true, dtypes[i % BT_LEN(dtypes)]);
        families++;
    }
    assert_int_equal(families, 11);
    temp_folder_free(&folder);
}

/* ---- edges ----------------------------------------------------------------
 */

static void logits_that_are_not_finite_give_nan(void **state)
{
    (void)state;
    uint32_t ids[] = { 1, 2, 3 }, labels[] = { 4, BAUTA_IGNORE, 5 };
    float got[3];
    size_t length = 3;
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_context *context;
    bauta_model *model;
    bauta_tensor tokens = BAUTA_TENSOR_INIT;
    bauta_error err;
    MUST(bauta_context_create(&context, NULL, &err), &err);
    MUST(bauta_model_create(&model, tinies[0].config, 1, &err), &err);
    MUST(
        bauta_model_find_tensor(model, "transformer.wte.weight", &tokens, &err),
        &err);
    batch.count = 1;
    batch.lengths = &length;
    batch.ids = ids;
    tokens.writable[3 * 16] = NAN; // of token 3, and of its logit in each row
    MUST(bauta_model_logprobs(context, model, NULL, &batch, labels, got, &err),
         &err);
    assert_true(isnan(got[0]) && got[1] == 0.0f && isnan(got[2]));
    length = 0;
    MUST(bauta_model_logprobs(context, model, NULL, &batch, labels, got, &err),
         &err);
    bauta_model_free(model);
    bauta_context_free(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sampler_and_the_trainer_are_the_same_function),
        cmocka_unit_test(logits_that_are_not_finite_give_nan),
    };
    randoms = test_random_from(test_seed());
    return cmocka_run_group_tests_name("logprobs", tests, NULL, NULL);
}
