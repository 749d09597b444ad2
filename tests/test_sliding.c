/* SPDX-License-Identifier: Apache-2.0 */
/* test_sliding.c - texts longer than the model's context, and finish
 * reasons. */
#include "random_requests.h"
#include "tiny_models.h"

static temp_folder place;
static char folders[BT_LEN(tinies)][512];
static uint64_t seed;

static int folders_write(void **state)
{
    (void)state;
    seed = test_seed();
    place = temp_folder_create();
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        tiny_write(&place, &tinies[i], folders[i]);
    return 0;
}

static int folders_remove(void **state)
{
    (void)state;
    temp_folder_free(&place);
    return 0;
}

static const char *folder_of(const char *name)
{
    for (size_t i = 0; i < BT_LEN(tinies); i++)
        if (!strcmp(tinies[i].name, name))
            return folders[i];
    fail();
    return NULL;
}

enum { POSITIONS = 96 }; /* of the small models */

/* ---- windows ----------------------------------------------------------- */

/* Requests with and without windows run together, share prefixes where
 * possible, and each gets the bits of the parallel pass under its mask. */
static void other_requests_change_no_bit(void **state)
{
    static const char *const rotary[] = { "llama", "mistral", "qwen2",
                                          "qwen3" };
    static const size_t windows[] = { 0, 1, 2, 3, 5, 16, 29 };
    static random_request requests[MANY];
    bauta_result *want[MANY], *got[MANY];
    bauta_error err;
    size_t shared = 0;
    (void)state;
    for (size_t m = 0; m < BT_LEN(rotary); m++) {
        test_random r = test_random_from(seed + m);
        generation_fixture s = generation_fixture_load(
            folder_of(rotary[m]), false, 1 << test_below(&r, 3));
        random_requests_draw(&r, requests, MANY, false);
        for (size_t i = 0; i < MANY; i++) {
            // Only those with the same window can share.
            requests[i].options.sliding_window =
                i && test_below(&r, 2)
                    ? requests[i - 1].options.sliding_window
                    : windows[test_below(&r, BT_LEN(windows))];
            MUST(slow_generate(s.context, s.model, NULL, &requests[i].request,
                               &want[i], &err),
                 &err);
        }
        for (size_t round = 0; round < 3; round++) {
            bauta_generator_options o = BAUTA_GENERATOR_OPTIONS_INIT;
            o.max_sequences = 5 + test_below(&r, 40);
            o.max_batched_tokens = 1 + test_below(&r, 60);
            o.cached_sequences = 4;
            generate_arriving(&r, &s, &o, requests, MANY, got);
            for (size_t i = 0; i < MANY; i++) {
                shared += got[i]->cached_tokens;
                results_equal(want[i], got[i]);
            }
            results_free(got, MANY);
        }
        results_free(want, MANY);
        generation_fixture_release(&s);
    }
    printf("%zu tokens were shared\n", shared);
    assert_true(shared > 0);
}

/* A folder of Llama's weights whose config has a window in all layers. */
static void windowed_write(char path[512], size_t window)
{
    char config[1024];
    const tiny t = { "windowed", config };
    snprintf(config, sizeof(config),
             "{" TINY_LLAMA
             "\"model_type\": \"mistral\", \"sliding_window\": %zu}",
             window);
    tiny_write(&place, &t, path);
}

static bauta_result *long_text(const char *folder, size_t window,
                               size_t max_tokens, bool sample, uint64_t bound,
                               uint64_t *most)
{
    static const uint32_t ids[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_generator *g;
    bauta_error err;
    size_t left = 1;
    generation_fixture s = generation_fixture_load(folder, false, 1);
    o.max_new_tokens = max_tokens;
    o.sliding_window = window;
    o.do_sample = sample;
    o.seed = 5;
    o.temperature = 1.5f;
    request.tokens = ids;
    request.count = BT_LEN(ids);
    request.options = &o;
    how.cache_bytes = bound;
    MUST(bauta_generator_create(&g, s.context, s.model, NULL, &how, &err),
         &err);
    MUST(bauta_generator_add(g, &request, &err), &err);
    *most = 0;
    while (left) {
        MUST(bauta_generator_step(g, &left, &err), &err);
        if (bauta_generator_bytes(g) > *most)
            *most = bauta_generator_bytes(g);
    }
    bauta_result *result = bauta_generator_take(g);
    bauta_generator_free(g);
    generation_fixture_release(&s);
    return result;
}

/* The result is that of the model with this window in its config: bit for bit,
 * far beyond the context, in memory that does not grow with the text. */
static void generation_continues_beyond_the_context(void **state)
{
    enum { WINDOW = 80, TOKENS = 4 * POSITIONS };
    char path[512];
    uint64_t bytes, own, whole, page;
    (void)state;
    windowed_write(path, WINDOW);
    for (int sample = 0; sample < 2; sample++) {
        bauta_result *slides =
            long_text(folder_of("llama"), WINDOW, TOKENS, sample, 0, &bytes);
        bauta_result *made = long_text(path, 0, TOKENS, sample, 0, &own);
        assert_int_equal(slides->hypotheses[0]->count, TOKENS);
        assert_int_equal(slides->hypotheses[0]->finish, BAUTA_FINISH_LENGTH);
        results_equal(slides, made);
        assert_int_equal(bytes, own);
        bauta_result_free(slides);
        bauta_result_free(made);
    }
    // Pages are of 64 tokens: 80 of them lie in 3 at most, and all in 7.
    bauta_result *all =
        long_text(folder_of("llama"), 0, TOKENS, false, 0, &whole);
    bauta_result_free(all);
    page = whole / 7;
    assert_int_equal(whole, 7 * page);
    assert_true(bytes <= 3 * page);
    // So a cache that is too small for the whole text has room for it.
    bauta_result *bounded =
        long_text(folder_of("llama"), WINDOW, TOKENS, false, 5 * page, &bytes);
    assert_int_equal(bounded->hypotheses[0]->count, TOKENS);
    bauta_result_free(bounded);
}

/* ---- finish reasons ---------------------------------------------------- */

static const struct {
    const char *model;
    size_t max_tokens, max_length, window, beams;
    bauta_finish finish;
    size_t count; /* new tokens after a prompt of 2 */
} ends[] = {
    { "gpt2", 5, 0, 0, 1, BAUTA_FINISH_LENGTH, 5 },
    { "gpt2", 0, 20, 0, 1, BAUTA_FINISH_LENGTH, 18 },
    { "gpt2", 95, 0, 0, 1, BAUTA_FINISH_LENGTH, 95 }, // the last is not read
    { "gpt2", 96, 0, 0, 1, BAUTA_FINISH_CONTEXT, 95 },
    { "gpt2", 1000, 0, 0, 1, BAUTA_FINISH_CONTEXT, 95 },
    { "gpt2", 1000, 0, 0, 3, BAUTA_FINISH_CONTEXT, 95 },
    { "gpt2", 0, 0, 0, 1, BAUTA_FINISH_CONTEXT, 94 },
    { "llama", 0, 0, 0, 1, BAUTA_FINISH_CONTEXT, 94 },
    { "llama", 200, 0, 0, 1, BAUTA_FINISH_LENGTH, 200 },
    { "llama", 0, 0, 16, 1, BAUTA_FINISH_CONTEXT, 94 },
    { "llama", 200, 0, 16, 2, BAUTA_FINISH_LENGTH, 200 },
};

static void finish_reasons_are_reported(void **state)
{
    static const uint32_t ids[] = { 3, 1 };
    (void)state;
    for (size_t i = 0; i < BT_LEN(ends); i++) {
        bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
        bauta_request r = BAUTA_REQUEST_INIT;
        bauta_result *result;
        bauta_error err;
        generation_fixture s =
            generation_fixture_load(folder_of(ends[i].model), false, 1);
        o.max_new_tokens = ends[i].max_tokens;
        o.max_length = ends[i].max_length;
        o.sliding_window = ends[i].window;
        o.num_beams = ends[i].beams;
        r.tokens = ids;
        r.count = 2;
        r.options = &o;
        MUST(bauta_generate(s.context, s.model, NULL, &r, &result, &err), &err);
        const bauta_hypothesis *h = result->hypotheses[0];
        if (h->finish != ends[i].finish || h->count != ends[i].count)
            fail_msg("%zu: %s after %zu", i, bauta_finish_text(h->finish),
                     h->count);
        bauta_result_free(result);
        generation_fixture_release(&s);
    }
    assert_string_equal(bauta_finish_text(BAUTA_FINISH_CONTEXT), "context");
}

static void learned_positions_cannot_slide(void **state)
{
    static const uint32_t ids[] = { 3, 1 };
    static const char *const tables[] = { "gpt2", "marian", "bart" };
    (void)state;
    for (size_t i = 0; i < BT_LEN(tables); i++) {
        bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
        bauta_request r = BAUTA_REQUEST_INIT;
        bauta_result *result;
        bauta_error err;
        generation_fixture s =
            generation_fixture_load(folder_of(tables[i]), false, 1);
        bool encoder = bauta_model_kind_of(s.model) == BAUTA_ENCODER_DECODER;
        assert_false(bauta_model_rotary(s.model));
        o.sliding_window = 8;
        o.decoder_start_token_id = 39;
        r.tokens = ids;
        r.count = 2;
        r.source = encoder ? ids : NULL;
        r.source_count = encoder ? 2 : 0;
        r.options = &o;
        assert_int_equal(
            bauta_generate(s.context, s.model, NULL, &r, &result, &err),
            BAUTA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "needs rotary positions"));
        assert_non_null(strstr(err.message, "table of 96 positions"));
        generation_fixture_release(&s);
    }
    generation_fixture s =
        generation_fixture_load(folder_of("llama"), false, 1);
    assert_true(bauta_model_rotary(s.model));
    generation_fixture_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_requests_change_no_bit),
        cmocka_unit_test(generation_continues_beyond_the_context),
        cmocka_unit_test(finish_reasons_are_reported),
        cmocka_unit_test(learned_positions_cannot_slide),
    };
    return cmocka_run_group_tests(tests, folders_write, folders_remove);
}
