/* SPDX-License-Identifier: Apache-2.0 */
/* test_generation_settings.c - generation options from the files of a model. */
#include "allocation_faults.h"
#include "base/error.h"
#include "base/memory.h"
#include "decode/generation_config.h"
#include "generation_fixtures.h"
#include "tiny_models.h"

static bt_generation_lists *words; /* of the text that was parsed last */

static bauta_status parse(bauta_generate_options *o, const char *generation,
                          const char *config, bauta_error *err)
{
    size_t size = generation ? strlen(generation) : 0;
    bt_free(words);
    MUST(bt_generation_lists_read(&words, generation, size, config,
                                  strlen(config), 100, err),
         err);
    return bt_generation_config_parse(o, words, generation, size, config,
                                      strlen(config), 100, err);
}

static int words_release(void **state)
{
    (void)state;
    bt_free(words);
    words = NULL;
    return 0;
}

static void every_key_reaches_its_option(void **state)
{
    (void)state;
    bauta_generate_options o;
    bauta_error err;
    MUST(parse(&o,
               "{\"max_new_tokens\": 11, \"min_new_tokens\": 3, "
               "\"min_length\": 4, \"repetition_penalty\": 1.5, "
               "\"no_repeat_ngram_size\": 2, \"do_sample\": true, "
               "\"temperature\": 0.5, \"top_k\": 7, \"top_p\": 0.25, "
               "\"min_p\": 0.125, \"num_beams\": 4, \"length_penalty\": 2, "
               "\"early_stopping\": \"never\", \"num_return_sequences\": 3, "
               "\"renormalize_logits\": true, \"decoder_start_token_id\": 5, "
               "\"forced_bos_token_id\": 6, \"forced_eos_token_id\": [7], "
               "\"eos_token_id\": [8, 9, 8, 200], "
               "\"bad_words_ids\": [[8], [10, 12], [300]], "
               "\"stop_strings\": \"end\", "
               "\"suppress_tokens\": [11], \"use_cache\": true, "
               "\"typical_p\": 1.0, \"guidance_scale\": null, "
               "\"transformers_version\": \"5\"}",
               "{}", &err),
         &err);
    assert_int_equal(o.max_new_tokens, 11);
    assert_int_equal(o.max_length, 0);
    assert_int_equal(o.min_new_tokens, 3);
    assert_int_equal(o.min_length, 4);
    assert_true(o.repetition_penalty == 1.5f);
    assert_int_equal(o.no_repeat_ngram_size, 2);
    assert_true(o.do_sample);
    assert_true(o.temperature == 0.5f && o.top_p == 0.25f && o.min_p == 0.125f);
    assert_int_equal(o.top_k, 7);
    assert_int_equal(o.num_beams, 4);
    assert_true(o.length_penalty == 2.0f);
    assert_int_equal(o.early_stopping, BAUTA_EARLY_STOPPING_NEVER);
    assert_int_equal(o.num_return_sequences, 3);
    assert_true(o.renormalize_logits);
    assert_int_equal(o.decoder_start_token_id, 5);
    assert_int_equal(o.forced_bos_token_id, 6);
    assert_int_equal(o.forced_eos_token_id, 7);
    assert_int_equal(o.eos_token_count, 2); // once each, and 200 is no token
    assert_int_equal(o.eos_token_ids[0], 8);
    assert_int_equal(o.eos_token_ids[1], 9);
    assert_int_equal(o.suppress_token_count, 1);
    assert_int_equal(o.suppress_tokens[0], 11);
    assert_int_equal(o.bad_word_count, 2); // 300 is no token
    assert_int_equal(o.bad_words[0].count, 1);
    assert_int_equal(o.bad_words[0].tokens[0],
                     8); // an end token, so it does not count
    assert_int_equal(o.bad_words[1].count, 2);
    assert_int_equal(o.bad_words[1].tokens[1], 12);
    assert_int_equal(o.stop_string_count, 1);
    assert_string_equal(o.stop_strings[0], "end");
}

static void config_json_is_read_if_generation_config_is_missing(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"marian\", \"num_beams\": 6, \"eos_token_id\": 3, "
        "\"decoder_start_token_id\": 4, \"max_length\": 50}";
    bauta_generate_options o;
    bauta_error err;
    MUST(parse(&o, NULL, config, &err), &err);
    assert_int_equal(o.num_beams, 6);
    assert_int_equal(o.max_length, 50);
    assert_int_equal(o.eos_token_ids[0], 3);
    assert_int_equal(o.decoder_start_token_id, 4);
    MUST(parse(&o, "{\"top_k\": 0}", config, &err), &err);
    assert_int_equal(o.num_beams, 1);
    assert_int_equal(o.top_k, 0);
    assert_int_equal(o.eos_token_count, 1); // the tokens are asked for still
    assert_int_equal(o.decoder_start_token_id, 4);
    MUST(parse(&o, "{\"eos_token_id\": null}", config, &err), &err);
    assert_int_equal(o.eos_token_count, 0);
    MUST(parse(&o, NULL, "{}", &err), &err);
    assert_int_equal(o.eos_token_count, 0);
    assert_int_equal(o.top_k, 50); // transformers' own
    assert_int_equal(o.decoder_start_token_id, BAUTA_NO_TOKEN);
}

static const struct {
    const char *text;
    const char *message;
} refused[] = {
    { "{\"num_beam_groups\": 2}", "num_beam_groups is 2" },
    { "{\"diversity_penalty\": 0.5}", "diversity_penalty is 0.5" },
    { "{\"penalty_alpha\": 0.6}", "penalty_alpha" },
    { "{\"typical_p\": 0.9}", "typical_p" },
    { "{\"epsilon_cutoff\": 0.1}", "epsilon_cutoff" },
    { "{\"eta_cutoff\": 0.1}", "eta_cutoff" },
    { "{\"encoder_repetition_penalty\": 2}", "encoder_repetition_penalty" },
    { "{\"encoder_no_repeat_ngram_size\": 2}", "encoder_no_repeat_ngram" },
    { "{\"guidance_scale\": 1.5}", "guidance_scale" },
    { "{\"sequence_bias\": [[[1], 2]]}", "sequence_bias" },
    { "{\"constraints\": [1]}", "constraints" },
    { "{\"begin_suppress_tokens\": [1]}", "begin_suppress_tokens" },
    { "{\"token_healing\": true}", "token_healing" },
    { "{\"max_time\": 3}", "max_time" },
    { "{\"bad_words_ids\": 3}", "not a list" },
    { "{\"bad_words_ids\": [[\"x\"]]}", "not a token" },
    { "{\"eos_token_id\": -1}", "eos_token_id is -1" },
    { "{\"eos_token_id\": \"a\"}", "not a token" },
    { "{\"eos_token_id\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}", "too many tokens" },
    { "{\"forced_eos_token_id\": [1, 2]}", "not one token" },
    { "{\"max_length\": -3}", "max_length is -3" },
    { "{\"max_length\": 20.5}", "max_length is 20.5" },
    { "{\"max_length\": true}", "max_length is true" },
    { "{\"temperature\": \"hot\"}", "not a number" },
    { "{\"temperature\": 1e300}", "not a number" },
    { "{\"do_sample\": 1}", "neither true nor false" },
    { "{\"early_stopping\": 3}", "early_stopping is 3" },
    { "{\"early_stopping\": \"often\"}", "early_stopping" },
    { "[]", "not a JSON object" },
    { "{", "line 1" },
    { "", "line" },
    { "{\"a\": 1, \"a\": 2}", "line 1" },
};

static void unsupported_and_malformed_settings_are_named(void **state)
{
    (void)state;
    bauta_generate_options o;
    bauta_error err;
    for (size_t i = 0; i < BT_LEN(refused); i++) {
        assert_int_not_equal(parse(&o, refused[i].text, "{}", &err), BAUTA_OK);
        if (!strstr(err.message, refused[i].message) ||
            !strstr(err.message, "generation_config.json"))
            fail_msg("%s: \"%s\"", refused[i].text, err.message);
        assert_int_not_equal(parse(&o, NULL, refused[i].text, &err), BAUTA_OK);
    }
}

/* The written JSON reads back as the same options. */
static void json_round_trips(void **state)
{
    (void)state;
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT, back;
    bauta_error err;
    char text[2048], small[40];
    static const char *const stops[] = { "a\"b\\\n", "\xc3\xa4" };
    static const uint32_t ids[] = { 3, 1, 4 };
    static const bauta_token_seq bad[] = { { 3, ids }, { 1, ids + 1 } };
    o.max_new_tokens = 9;
    o.temperature = 0.7f;
    o.top_k = 3;
    o.num_beams = 5;
    o.num_return_sequences = 2;
    o.early_stopping = BAUTA_EARLY_STOPPING_NEVER;
    o.eos_token_count = 2;
    o.eos_token_ids[0] = 4;
    o.eos_token_ids[1] = 5;
    o.suppress_token_count = 1;
    o.suppress_tokens[0] = 17;
    o.forced_eos_token_id = 4;
    size_t length = bauta_generate_options_json(&o, text, sizeof(text));
    assert_int_equal(length, strlen(text));
    MUST(parse(&back, text, "{}", &err), &err);
    assert_memory_equal(&o, &back, sizeof(o));
    assert_int_equal(bauta_generate_options_json(&o, small, sizeof(small)),
                     length);
    assert_int_equal(strlen(small), sizeof(small) - 1);
    assert_memory_equal(small, text, sizeof(small) - 1);
    assert_int_equal(bauta_generate_options_json(&o, NULL, 0), length);
    o.stop_strings = stops;
    o.stop_string_count = 2;
    o.bad_words = bad;
    o.bad_word_count = 2;
    bauta_generate_options_json(&o, text, sizeof(text));
    MUST(parse(&back, text, "{}", &err), &err);
    assert_int_equal(back.stop_string_count, 2);
    assert_string_equal(back.stop_strings[0], stops[0]);
    assert_string_equal(back.stop_strings[1], stops[1]);
    assert_int_equal(back.bad_word_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(back.bad_words[i].count, bad[i].count);
        assert_memory_equal(back.bad_words[i].tokens, bad[i].tokens,
                            bad[i].count * sizeof(uint32_t));
    }
}

/* Those of the OpenAI API are no settings of a folder, but they are printed. */
static void penalties_and_biases_are_printed(void **state)
{
    (void)state;
    static const bauta_token_bias biases[] = { { 3, -1.5f }, { 70, 2 } };
    char text[4096];
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_generate_options_json(&o, text, sizeof(text));
    assert_null(strstr(text, "presence"));
    assert_null(strstr(text, "bias"));
    o.presence_penalty = 0.5f;
    o.frequency_penalty = -0.25f;
    o.logit_bias = biases;
    o.logit_bias_count = 2;
    bauta_generate_options_json(&o, text, sizeof(text));
    assert_non_null(strstr(text, "\"presence_penalty\": 0.5, "
                                 "\"frequency_penalty\": -0.25, "));
    assert_non_null(strstr(text, "\"logit_bias\": {\"3\": -1.5, \"70\": 2"));
}

static void models_return_their_settings(void **state)
{
    (void)state;
    static const char text[] = "{\"num_beams\": 3, \"eos_token_id\": 5}";
    temp_folder place = temp_folder_create();
    char folder[512];
    bauta_model *model;
    bauta_generate_options o = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_error err;
    tiny_write(&place, &tinies[7], folder);
    tiny_file(folder, "generation_config.json", text, strlen(text));
    faults_begin();
    MUST(bauta_model_load(&model, folder, false, &err), &err);
    for (size_t k = 0;; k++) {
        faults_arm(k);
        bauta_status status = bauta_generate_options_load(&o, model, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            break;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
    }
    assert_int_equal(o.num_beams, 3);
    assert_int_equal(o.eos_token_ids[0], 5);
    assert_int_equal(o.decoder_start_token_id, 39);
    bauta_model_free(model);
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_reaches_its_option),
        cmocka_unit_test(config_json_is_read_if_generation_config_is_missing),
        cmocka_unit_test(unsupported_and_malformed_settings_are_named),
        cmocka_unit_test(json_round_trips),
        cmocka_unit_test(penalties_and_biases_are_printed),
        cmocka_unit_test(models_return_their_settings),
    };
    return cmocka_run_group_tests(tests, NULL, words_release);
}
