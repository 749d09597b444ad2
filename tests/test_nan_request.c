/* SPDX-License-Identifier: Apache-2.0 */
/* test_nan_request.c - a request whose logits become NaN ends alone: the others
 * get the bits that they would get without it. */
#include "allocation_faults.h"
#include "random_requests.h"
#include "tiny_models.h"

#include <math.h>

/* A row of a tensor that is NaN and spoils every sequence that reads it: of a
 * token, or of a position. With tied embeddings the first would spoil all. */
static const struct {
    const char *model, *tensor;
    size_t row;
} poisons[] = {
    { "llama", "model.embed_tokens.weight", 17 },
    { "mistral", "model.embed_tokens.weight", 17 },
    { "gpt2", "wpe.weight", 24 },
    { "bart", "encoder.embed_positions.weight", 22 },
    { "bart", "decoder.embed_positions.weight", 24 },
};

static void spoil(tiny_weights *w, const char *tensor, size_t row)
{
    for (size_t i = 0; i < w->count; i++) {
        if (!strstr(w->names[i], tensor))
            continue;
        float *data = (float *)(uintptr_t)w->tensors[i].data;
        size_t columns = w->tensors[i].shape[1];
        assert_true(row < w->tensors[i].shape[0]);
        for (size_t j = 0; j < columns; j++)
            data[row * columns + j] = NAN;
        return;
    }
    fail_msg("there is no %s", tensor);
}

/* A folder with the NaN of case p. */
static generation_fixture nan_model_load(temp_folder *place, size_t p,
                                         int threads)
{
    static tiny_weights w;
    char folder[512], file[600];
    size_t i = 0;
    while (strcmp(tinies[i].name, poisons[p].model) != 0)
        i++;
    tiny_write(place, &tinies[i], folder);
    tiny_weights_init(&w, folder);
    spoil(&w, poisons[p].tensor, poisons[p].row);
    snprintf(file, sizeof(file), "%s/model.safetensors", folder);
    assert_int_equal(
        bt_safetensors_write(file, w.tensors, w.count, NULL, 0, NULL), 0);
    tiny_weights_release(&w);
    return generation_fixture_load(folder, false, threads);
}

static bool reports_nan(const char *message)
{
    return strstr(message, "the logits after token ") &&
           strstr(message, "are not finite: ");
}

/* ---- one of several ---------------------------------------------------- */

enum { FEW = 5, SPOILT = 2 };

/* Prompts, one of which has the token, in every generation mode. */
static void few_make(random_request *requests, size_t beams, bool sample)
{
    for (uint32_t i = 0; i < FEW; i++) {
        random_request *w = &requests[i];
        w->options = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
        w->options.max_new_tokens = 8;
        w->options.suppress_tokens[w->options.suppress_token_count++] = 17;
        w->options.num_beams = beams;
        w->options.num_return_sequences = beams;
        w->options.do_sample = sample;
        w->options.seed = i;
        for (uint32_t j = 0; j < 6; j++)
            w->prompt[j] = j < 3 ? j + 1 : 20 + i + j;
        w->request = (bauta_request)BAUTA_REQUEST_INIT;
        w->request.tokens = w->prompt;
        w->request.count = 6;
        w->request.options = &w->options;
        w->request.tag = i;
    }
    requests[SPOILT].prompt[4] = 17;
}

static void alone_few(const generation_fixture *s,
                      const random_request *requests, bauta_result **want)
{
    bauta_error err;
    for (size_t i = 0; i < FEW; i++) {
        bauta_status status = bauta_generate(
            s->context, s->model, NULL, &requests[i].request, &want[i], &err);
        assert_int_equal(status != BAUTA_OK, i == SPOILT);
        assert_int_equal(want[i] == NULL, i == SPOILT);
        if (i == SPOILT)
            assert_non_null(
                strstr(err.message, "the logits after token 6 are not finite"));
    }
}

/* Run all of them at once; returns what is left of the cache in *left.
 * Allocation number `fault` of the steps fails, and the failed step is
 * repeated. Returns whether there were so many allocations. */
static bool together_few(const generation_fixture *s,
                         const random_request *requests, size_t keep,
                         size_t fault, bauta_result **got)
{
    bauta_generator_options options = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *g;
    bauta_error err;
    size_t left = 1;
    options.cached_sequences = keep;
    MUST(bauta_generator_create(&g, s->context, s->model, NULL, &options, &err),
         &err);
    for (size_t i = 0; i < FEW; i++)
        MUST(bauta_generator_add(g, &requests[i].request, &err), &err);
    faults_arm(fault);
    while (left)
        if (bauta_generator_step(g, &left, &err)) {
            assert_int_equal(err.status, BAUTA_ERR_NOMEM);
            left = 1;
        }
    bool hit = faults_disarm();
    for (bauta_result *r; (r = bauta_generator_take(g));)
        got[r->tag] = r;
    assert_int_equal(bauta_generator_bytes(g) > 0, keep > 0);
    bauta_generator_free(g);
    return hit;
}

static void failed_check(const bauta_result *r)
{
    assert_int_equal(r->size, sizeof(*r));
    assert_int_equal(r->status, BAUTA_ERR_NOT_FINITE);
    assert_int_equal(r->count, 0);
    assert_null(r->hypotheses);
    assert_int_equal(r->prompt_tokens, 6);
    const char *prefix = "the logits after token 6 are not finite: the "
                         "embeddings of the decoder give NaN at token 4 of "
                         "sequence 0; tensor ";
    assert_int_equal(strncmp(r->message, prefix, strlen(prefix)), 0);
    assert_non_null(strstr(r->message, " holds NaN"));
}

static void few_compare(bauta_result **want, bauta_result **got)
{
    for (size_t i = 0; i < FEW; i++) {
        if (i == SPOILT) {
            failed_check(got[i]);
            continue;
        }
        assert_int_equal(got[i]->status, BAUTA_OK);
        assert_string_equal(got[i]->message, "");
        results_equal(want[i], got[i]);
    }
}

static const struct {
    const char *name;
    size_t beams;
    bool sample;
} ways[] = {
    { "greedy", 1, false },
    { "sampling", 1, true },
    { "beams", 3, false },
};

static void only_the_nan_request_fails(void **state)
{
    (void)state;
    static random_request requests[FEW];
    bauta_result *want[FEW], *got[FEW];
    for (size_t way = 0; way < BT_LEN(ways); way++)
        for (size_t keep = 0; keep < 3; keep += 2) {
            temp_folder place = temp_folder_create();
            faults_begin();
            generation_fixture s = nan_model_load(&place, 0, 2);
            few_make(requests, ways[way].beams, ways[way].sample);
            alone_few(&s, requests, want);
            assert_false(together_few(&s, requests, keep, SIZE_MAX, got));
            few_compare(want, got);
            results_free(want, FEW);
            results_free(got, FEW);
            generation_fixture_release(&s);
            assert_int_equal(faults_end(), 0);
            temp_folder_free(&place);
        }
}

/* No request shares the prefix of a NaN request: it is not cached. */
static void a_nan_sequence_is_not_cached(void **state)
{
    (void)state;
    static random_request requests[FEW];
    temp_folder place = temp_folder_create();
    bauta_generator_options options = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generator *g;
    bauta_error err;
    generation_fixture s = nan_model_load(&place, 0, 1);
    few_make(requests, 1, false);
    options.cached_sequences = 4;
    MUST(bauta_generator_create(&g, s.context, s.model, NULL, &options, &err),
         &err);
    for (size_t round = 0; round < 2; round++) {
        size_t left = 1;
        MUST(bauta_generator_add(g, &requests[SPOILT].request, &err), &err);
        while (left)
            MUST(bauta_generator_step(g, &left, &err), &err);
        bauta_result *r = bauta_generator_take(g);
        failed_check(r);
        assert_int_equal(r->cached_tokens, 0);
        bauta_result_free(r);
        assert_int_equal(bauta_generator_bytes(g), 0);
    }
    bauta_generator_free(g);
    generation_fixture_release(&s);
    temp_folder_free(&place);
}

/* A step that runs out of memory changes neither the NaN request nor the
 * others. */
static void every_allocation_may_fail_once(void **state)
{
    (void)state;
    static random_request requests[FEW];
    bauta_result *want[FEW], *got[FEW];
    temp_folder place = temp_folder_create();
    faults_begin();
    generation_fixture s = nan_model_load(&place, 0, 1);
    few_make(requests, 2, false);
    alone_few(&s, requests, want);
    size_t k = 0;
    for (bool hit = true; hit; k++) {
        hit = together_few(&s, requests, 0, k, got);
        few_compare(want, got);
        results_free(got, FEW);
    }
    printf("failures up to allocation %zu\n", k);
    results_free(want, FEW);
    generation_fixture_release(&s);
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&place);
}

/* ---- random ones ------------------------------------------------------- */

/* Each result is that of the request alone, without a cache: a text, or the
 * same error message. */
static void a_nan_request_changes_no_bit_of_others(void **state)
{
    (void)state;
    static random_request requests[MANY];
    bauta_result *want[MANY], *got[MANY];
    static bauta_error errors[MANY];
    uint64_t seed = test_seed();
    for (size_t p = 0; p < BT_LEN(poisons); p++) {
        test_random r = test_random_from(seed + p);
        temp_folder place = temp_folder_create();
        generation_fixture s =
            nan_model_load(&place, p, 1 << test_below(&r, 3));
        bauta_error err;
        size_t failed = 0;
        // int8 cannot hold a token that is NaN, and positions are not packed.
        size_t widths = strstr(poisons[p].tensor, "tokens") ? 2 : 3;
        bauta_dtype weights = (bauta_dtype)test_below(&r, widths);
        MUST(bauta_model_pack(s.model, weights, &err), &err);
        bool encoder = bauta_model_kind_of(s.model) == BAUTA_ENCODER_DECODER;
        random_requests_draw(&r, requests, MANY, encoder);
        for (size_t i = 0; i < MANY; i++)
            slow_generate(s.context, s.model, NULL, &requests[i].request,
                          &want[i], &errors[i]);
        for (size_t round = 0; round < 3; round++) {
            bauta_generator_options o = BAUTA_GENERATOR_OPTIONS_INIT;
            o.max_sequences = 5 + test_below(&r, 40);
            o.max_batched_tokens = 1 + test_below(&r, 60);
            o.cached_sequences = test_below(&r, 2) * 3;
            generate_arriving(&r, &s, &o, requests, MANY, got);
            for (size_t i = 0; i < MANY; i++) {
                failed += !want[i];
                if (want[i])
                    results_equal(want[i], got[i]);
                else
                    assert_string_equal(errors[i].message, got[i]->message);
                assert_true(want[i] || reports_nan(got[i]->message));
            }
            results_free(got, MANY);
        }
        printf("%s, %s: %zu of %d failed\n", poisons[p].model,
               poisons[p].tensor, failed / 3, MANY);
        assert_true(failed > 0 && failed < 3 * MANY);
        results_free(want, MANY);
        generation_fixture_release(&s);
        temp_folder_free(&place);
    }
}

/* ---- callbacks --------------------------------------------------------- */

typedef struct token_log {
    size_t tokens, ends;
} token_log;

static bool on_token(void *user, uint32_t token, float logprob,
                     const char *text, size_t length)
{
    token_log *h = user;
    (void)logprob;
    assert_null(text);
    assert_int_equal(length, 0);
    assert_int_equal(h->ends, 0);
    h->tokens += token != BAUTA_NO_TOKEN;
    h->ends += token == BAUTA_NO_TOKEN;
    return true;
}

/* Position 24 is NaN, so a text gets some way before it fails. */
static void a_callback_receives_tokens_up_to_the_error(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 3, 1, 4, 1, 5 };
    temp_folder place = temp_folder_create();
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request r = BAUTA_REQUEST_INIT;
    bauta_result *result;
    bauta_error err;
    token_log h = { 0 };
    generation_fixture s = nan_model_load(&place, 2, 1);
    o.max_new_tokens = 40;
    r.tokens = ids;
    r.count = BT_LEN(ids);
    r.options = &o;
    r.on_token = on_token;
    r.user = &h;
    assert_int_equal(
        bauta_generate(s.context, s.model, NULL, &r, &result, &err),
        BAUTA_ERR_NOT_FINITE);
    assert_null(result);
    assert_true(reports_nan(err.message));
    assert_non_null(strstr(err.message, "the logits after token 25 are"));
    assert_int_equal(h.tokens, 20);
    assert_int_equal(h.ends, 1);
    generation_fixture_release(&s);
    temp_folder_free(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_nan_request_fails),
        cmocka_unit_test(a_nan_sequence_is_not_cached),
        cmocka_unit_test(a_callback_receives_tokens_up_to_the_error),
        cmocka_unit_test(every_allocation_may_fail_once),
        cmocka_unit_test(a_nan_request_changes_no_bit_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
