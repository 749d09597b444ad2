/* SPDX-License-Identifier: Apache-2.0 */
/* test_bad_words.c - banned token sequences and stop strings, from a model's
 * files to the generated tokens. */
#include "allocation_faults.h"
#include "backend/cpu/sampling.h"
#include "base/memory.h"
#include "data/bad_words.h"
#include "decode/generation_config.h"
#include "generation_fixtures.h"
#include "tiny_models.h"

#include <math.h>

enum { VOCAB = 8 };

static bt_generation_lists *words_of(const char *generation, const char *config)
{
    bt_generation_lists *words;
    bauta_error err;
    MUST(bt_generation_lists_read(&words, generation,
                                  generation ? strlen(generation) : 0, config,
                                  strlen(config), VOCAB, &err),
         &err);
    return words;
}

/* ---- equal to transformers --------------------------------------------- */

static uint32_t forbidden(const bauta_generate_options *o,
                          const uint32_t *history, size_t count)
{
    float x[VOCAB] = { 0 };
    bt_token_history h = { history, count, count, 100 };
    bt_sampler_scratch sampler = { .vocab = VOCAB };
    uint32_t bits = 0;
    bt_logits_processors_apply(x, &sampler, o, &h);
    for (size_t j = 0; j < VOCAB; j++)
        bits |= (uint32_t)(x[j] == -INFINITY) << j;
    return bits;
}

static void bad_words_are_masked_as_in_transformers(void **state)
{
    (void)state;
    size_t acts = 0;
    for (size_t i = 0; i < BT_LEN(word_cases); i++) {
        const char *text = word_cases[i].settings;
        bauta_generate_options o;
        bauta_error err;
        bt_generation_lists *words = words_of(text, "{}");
        MUST(bt_generation_config_parse(&o, words, text, strlen(text), "{}", 2,
                                        VOCAB, &err),
             &err);
        uint32_t got =
            forbidden(&o, word_cases[i].history, word_cases[i].count);
        if (got != word_cases[i].forbidden)
            fail_msg("case %zu: %#x, not %#x", i, got, word_cases[i].forbidden);
        acts += got != 0;
        bt_free(words);
    }
    printf("%zu of %zu forbid something\n", acts, BT_LEN(word_cases));
}

/* ---- inputs of the modes ----------------------------------------------- */

static void lists_are_read_from_either_file(void **state)
{
    (void)state;
    static const char text[] =
        "{\"stop_strings\": [\"\\n\\n\", \"\xc3\xa4\"], "
        "\"bad_words_ids\": [[1, 2, 3], [8], [4], [5, 80]]}";
    for (int first = 0; first < 2; first++) {
        bt_generation_lists *w =
            words_of(first ? text : NULL, first ? "{}" : text);
        assert_int_equal(w->error.status, BAUTA_OK);
        assert_int_equal(w->stop_count, 2);
        assert_string_equal(w->stop_strings[0], "\n\n");
        assert_string_equal(w->stop_strings[1], "\xc3\xa4");
        assert_int_equal(w->bad_word_count, 2); // 8 and 80 are no tokens
        assert_int_equal(w->bad_words[0].count, 3);
        assert_int_equal(w->bad_words[0].tokens[2], 3);
        assert_int_equal(w->bad_words[1].count, 1);
        assert_int_equal(w->bad_words[1].tokens[0], 4);
        bt_free(w);
    }
    // Only the first of the two files is read.
    bt_generation_lists *w = words_of("{\"stop_strings\": \"end\"}", text);
    assert_int_equal(w->stop_count, 1);
    assert_string_equal(w->stop_strings[0], "end");
    assert_int_equal(w->bad_word_count, 0);
    bt_free(w);
}

static const struct {
    const char *text, *message;
} wrong[] = {
    { "{\"stop_strings\": 3}", "stop_strings is 3, neither a string" },
    { "{\"stop_strings\": \"\"}", "one of them is empty" },
    { "{\"stop_strings\": [\"a\", \"\"]}", "one of them is empty" },
    { "{\"stop_strings\": [[\"a\"]]}", "neither a string" },
    { "{\"stop_strings\": {\"a\": 1}}", "neither a string" },
    { "{\"bad_words_ids\": 3}", "bad_words_ids is 3, not a list" },
    { "{\"bad_words_ids\": [3]}", "not a list of token lists" },
    { "{\"bad_words_ids\": [[]]}", "not a list of token lists" },
    { "{\"bad_words_ids\": [[\"x\"]]}", "not a token" },
    { "{\"bad_words_ids\": [[1, -1]]}", "not a token" },
    { "{\"bad_words_ids\": [[1, 2.0]]}", "not a token" },
    { "{\"bad_words_ids\": [[9999999999]]}", "not a token" },
};

static void malformed_lists_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(wrong); i++) {
        bt_generation_lists *w = words_of(wrong[i].text, "{}");
        bauta_generate_options o;
        bauta_error err;
        assert_int_not_equal(bt_generation_config_parse(&o, w, wrong[i].text,
                                                        strlen(wrong[i].text),
                                                        "{}", 2, VOCAB, &err),
                             BAUTA_OK);
        if (!strstr(err.message, wrong[i].message) ||
            !strstr(err.message, "generation_config.json: "))
            fail_msg("%s: \"%s\"", wrong[i].text, err.message);
        assert_int_equal(w->stop_count + w->bad_word_count, 0);
        bt_free(w);
    }
}

/* ---- of a model -------------------------------------------------------- */

static const tiny *tiny_of(const char *name)
{
    size_t i = 0;
    while (strcmp(tinies[i].name, name) != 0)
        i++;
    return &tinies[i];
}

/* Where a banned sequence would be completed, another token is generated; with
 * beams, too. */
static void bad_words_of_a_model_are_not_generated(void **state)
{
    (void)state;
    static const uint32_t prompt[] = { 1, 2, 3 };
    temp_folder place = temp_folder_create();
    char folder[512], text[160];
    bauta_request r = BAUTA_REQUEST_INIT;
    bauta_result *free_one, *bound;
    bauta_error err;
    tiny_write(&place, tiny_of("llama"), folder);
    for (int beams = 1; beams < 4; beams += 2) {
        snprintf(text, sizeof(text),
                 "{\"num_beams\": %d, \"max_new_tokens\": 6}", beams);
        tiny_file(folder, "generation_config.json", text, strlen(text));
        generation_fixture s = generation_fixture_load(folder, false, 1);
        r.tokens = prompt;
        r.count = 3;
        MUST(bauta_generate(s.context, s.model, NULL, &r, &free_one, &err),
             &err);
        const uint32_t *tokens = free_one->hypotheses[0]->tokens;
        generation_fixture_release(&s);
        // The second and third token are a banned sequence; the prompt's last
        // token with the first one is not.
        snprintf(text, sizeof(text),
                 "{\"num_beams\": %d, \"max_new_tokens\": 6, "
                 "\"bad_words_ids\": [[%u, %u], [0, %u]]}",
                 beams, tokens[1], tokens[2], tokens[0]);
        tiny_file(folder, "generation_config.json", text, strlen(text));
        s = generation_fixture_load(folder, false, 1);
        MUST(bauta_generate(s.context, s.model, NULL, &r, &bound, &err), &err);
        const bauta_hypothesis *h = bound->hypotheses[0];
        for (size_t i = 1; i < h->count; i++)
            assert_false(h->tokens[i - 1] == tokens[1] &&
                         h->tokens[i] == tokens[2]);
        if (beams == 1)
            assert_memory_equal(h->tokens, tokens, 2 * sizeof(*tokens));
        generation_fixture_release(&s);
        bauta_result_free(free_one);
        bauta_result_free(bound);
    }
    temp_folder_free(&place);
}

/* A model loads without valid generation settings; errors in them are reported
 * to callers that ask for them. */
static void a_model_loads_with_malformed_bad_words(void **state)
{
    (void)state;
    static const char text[] = "{\"stop_strings\": 3}";
    temp_folder place = temp_folder_create();
    char folder[512];
    bauta_model *model;
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_error err;
    tiny_write(&place, tiny_of("gpt2"), folder);
    tiny_file(folder, "generation_config.json", text, strlen(text));
    MUST(bauta_model_load(&model, folder, false, &err), &err);
    assert_int_equal(bauta_generate_options_load(&o, model, &err),
                     BAUTA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "stop_strings is 3"));
    bauta_model_free(model);
    temp_folder_free(&place);
}

static void each_allocation_of_reading_may_fail(void **state)
{
    (void)state;
    static const char text[] =
        "{\"stop_strings\": \"a\", \"bad_words_ids\": [[1], [2, 3]]}";
    bt_generation_lists *w;
    bauta_error err;
    faults_begin();
    for (size_t k = 0;; k++) {
        faults_arm(k);
        bauta_status status = bt_generation_lists_read(&w, text, strlen(text),
                                                       NULL, 0, VOCAB, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            break;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(w);
    }
    bt_free(w);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_words_are_masked_as_in_transformers),
        cmocka_unit_test(lists_are_read_from_either_file),
        cmocka_unit_test(malformed_lists_are_named),
        cmocka_unit_test(bad_words_of_a_model_are_not_generated),
        cmocka_unit_test(a_model_loads_with_malformed_bad_words),
        cmocka_unit_test(each_allocation_of_reading_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
