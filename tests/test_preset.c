/* SPDX-License-Identifier: Apache-2.0 */
/* test_preset.c - presets: model configs, fitted to a tokenizer and with
 * overrides. */
#include "allocation_faults.h"
#include "bauta.h"
#include "testing.h"

#include <jansson.h>
#include <string.h>

static bauta_tokenizer *learned(bauta_tokenizer_kind kind, size_t pieces)
{
    static const char text[] = "the mask hides the face of the mask";
    const char *texts[] = { text };
    const size_t lengths[] = { sizeof(text) - 1 };
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    bauta_tokenizer *t = NULL;
    o.kind = kind;
    o.vocab_size = pieces;
    assert_int_equal(bauta_tokenizer_train(&t, &o, texts, lengths, 1, NULL),
                     BAUTA_OK);
    return t;
}

static bauta_tokenizer *characters(void)
{
    bauta_tokenizer *t = NULL;
    assert_int_equal(bauta_tokenizer_characters(&t, "abc", 3, NULL), BAUTA_OK);
    return t;
}

/* The config of a preset, parsed. */
static json_t *config_of(const char *name, const bauta_tokenizer *t,
                         const char *overrides)
{
    char *text = NULL;
    bauta_error err = { .message = "" };
    if (bauta_preset(&text, NULL, name, t, overrides, &err))
        fail_msg("%s: %s", name, err.message);
    json_t *config = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(config);
    bauta_text_free(text);
    return config;
}

static json_int_t number(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static void assert_refused(const char *name, const bauta_tokenizer *t,
                           const char *overrides, const char *message)
{
    char *text = (char *)"";
    bauta_error err;
    assert_int_equal(bauta_preset(&text, NULL, name, t, overrides, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_null(text);
    if (!strstr(err.message, message))
        fail_msg("'%s' does not say '%s'", err.message, message);
}

/* ---- tests ------------------------------------------------------------- */

static void presets_are_listed_with_descriptions(void **state)
{
    const char *summary = NULL;
    size_t count = 0;
    (void)state;
    while (bauta_preset_name(count, &summary)) {
        assert_non_null(summary);
        count++;
    }
    assert_int_equal(count, 8);
    assert_string_equal(bauta_preset_name(0, NULL), "gpt2-tiny");
    assert_null(bauta_preset_name(count, NULL));
}

/* The large presets would take long, so one layer of each is created. */
static void every_preset_makes_a_model(void **state)
{
    static const struct {
        const char *name, *overrides;
        uint64_t parameters; /* 0: any */
    } all[] = {
        { "gpt2-tiny", NULL, 0 },
        { "gpt2-char", NULL, 0 },
        { "gpt2-small", "{\"n_layer\": 1}", 0 },
        // Of the published 260K: its vocabulary has 512 tokens.
        { "llama-tiny", "{\"vocab_size\": 512}", 260032 },
        { "transformer-tiny", NULL, 0 },
        { "transformer-base", "{\"encoder_layers\": 1}", 0 },
        { "bert-tiny", NULL, 0 },
        { "series-tiny", NULL, 0 },
    };
    bauta_tokenizer *t = learned(BAUTA_TOKENIZER_UNIGRAM, 40);
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
        bauta_error err = { .message = "" };
        bauta_model *model = NULL;
        char *config = NULL;
        assert_int_equal(
            bauta_preset(&config, &o, all[i].name, t, all[i].overrides, &err),
            BAUTA_OK);
        if (bauta_model_create(&model, config, 1, &err))
            fail_msg("%s: %s", all[i].name, err.message);
        if (all[i].parameters)
            assert_int_equal(bauta_model_parameter_count(model),
                             all[i].parameters);
        assert_int_equal(o.size, sizeof(o));
        assert_true(o.max_steps > 0 && o.learning_rate > 0 &&
                    o.gradient_accumulation_steps > 0 &&
                    o.microbatch_tokens > 0 && o.batch_tokens > 0 &&
                    o.adam_beta2 > 0);
        bauta_model_free(model);
        bauta_text_free(config);
    }
    bauta_tokenizer_free(t);
}

static void the_nanogpt_preset_has_its_own_options(void **state)
{
    bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
    bauta_tokenizer *t = characters();
    char *config = NULL;
    (void)state;
    assert_int_equal(bauta_preset(&config, &o, "gpt2-tiny", t, NULL, NULL),
                     BAUTA_OK);
    assert_int_equal(o.batch_sequences, 12);
    assert_int_equal(o.max_steps, 2000);
    assert_int_equal(o.warmup_steps, 100);
    assert_true(o.learning_rate == 1e-3 && o.min_learning_rate == 1e-4 &&
                o.adam_beta2 == 0.99);
    assert_true(o.dropout == 0.0f &&
                o.lr_scheduler_type == BAUTA_SCHEDULE_COSINE);
    bauta_text_free(config);
    bauta_tokenizer_free(t);
}

/* Two cores take some 2e11 products and sums a second, and a token needs six
 * for each parameter, of which there are so many with a vocabulary of the usual
 * size. Ten minutes are then 1.2e14. */
static void every_preset_trains_in_minutes(void **state)
{
    static const struct {
        const char *name;
        double parameters;
        size_t context;
    } all[] = {
        { "gpt2-tiny", 0.8e6, 256 },        { "gpt2-char", 10.8e6, 256 },
        { "gpt2-small", 124.4e6, 1024 },    { "llama-tiny", 0.26e6, 512 },
        { "transformer-tiny", 2.4e6, 256 }, { "transformer-base", 48.3e6, 512 },
        { "bert-tiny", 3.4e6, 128 },        { "series-tiny", 0.12e6, 128 },
    };
    bauta_tokenizer *t = learned(BAUTA_TOKENIZER_UNIGRAM, 40);
    (void)state;
    assert_null(bauta_preset_name(sizeof(all) / sizeof(all[0]), NULL));
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        bauta_train_options o = BAUTA_TRAIN_OPTIONS_INIT;
        char *config = NULL;
        assert_string_equal(bauta_preset_name(i, NULL), all[i].name);
        assert_int_equal(bauta_preset(&config, &o, all[i].name, t, NULL, NULL),
                         BAUTA_OK);
        size_t batch = o.batch_sequences ? o.batch_sequences * all[i].context
                                         : o.batch_tokens;
        double work = 6.0 * all[i].parameters * (double)o.max_steps *
                      (double)(batch * o.gradient_accumulation_steps);
        if (work > 1.2e14)
            fail_msg("%s: %.2g operations take longer than minutes",
                     all[i].name, work);
        assert_true(o.warmup_steps > 0 && o.warmup_steps <= o.max_steps / 5);
        assert_true(o.min_learning_rate < o.learning_rate / 9);
        bauta_text_free(config);
    }
    bauta_tokenizer_free(t);
}

static void vocabulary_and_special_tokens_come_from_the_tokenizer(void **state)
{
    bauta_tokenizer *t = learned(BAUTA_TOKENIZER_UNIGRAM, 40);
    json_t *config = config_of("transformer-tiny", t, NULL);
    json_int_t size = (json_int_t)bauta_tokenizer_vocab_size(t);
    (void)state;
    assert_int_equal(number(config, "vocab_size"), size);
    assert_int_equal(number(config, "decoder_vocab_size"), size);
    assert_int_equal(number(config, "pad_token_id"), 0);
    assert_int_equal(number(config, "decoder_start_token_id"), 0);
    assert_int_equal(number(config, "bos_token_id"), 2);
    assert_int_equal(number(config, "eos_token_id"), 3);
    assert_int_equal(number(config, "forced_eos_token_id"), 3);
    json_decref(config);
    bauta_tokenizer_free(t);
}

static void without_a_padding_token_the_start_token_is_added(void **state)
{
    bauta_tokenizer *t = learned(BAUTA_TOKENIZER_BPE, 260);
    json_t *config = config_of("transformer-tiny", t, NULL);
    json_int_t size = (json_int_t)bauta_tokenizer_vocab_size(t);
    (void)state;
    assert_int_equal(number(config, "vocab_size"), size + 1);
    assert_int_equal(number(config, "decoder_vocab_size"), size + 1);
    assert_int_equal(number(config, "pad_token_id"), size);
    assert_int_equal(number(config, "decoder_start_token_id"), size);
    json_decref(config);
    config = config_of("gpt2-tiny", t, NULL);
    assert_int_equal(number(config, "vocab_size"), size);
    assert_true(json_is_null(json_object_get(config, "pad_token_id")));
    json_decref(config);
    bauta_tokenizer_free(t);
}

static void overrides_replace_config_values(void **state)
{
    bauta_tokenizer *t = learned(BAUTA_TOKENIZER_UNIGRAM, 40);
    json_t *config = config_of("transformer-tiny", t,
                               "{\"d_model\": 64, \"vocab_size\": 4096}");
    (void)state;
    assert_int_equal(number(config, "d_model"), 64);
    assert_int_equal(number(config, "vocab_size"), 4096);
    assert_int_equal(number(config, "decoder_vocab_size"), 4096);
    json_decref(config);
    bauta_tokenizer_free(t);
}

static void unknown_presets_and_keys_are_refused(void **state)
{
    bauta_tokenizer *t = characters();
    (void)state;
    assert_refused("gpt-2-tiny", t, NULL, "did you mean \"gpt2-tiny\"?");
    assert_refused("nothing like it at all", t, NULL, "there is no preset");
    assert_refused("gpt2-tiny", t, "{\"n_layers\": 2}",
                   "did you mean \"n_layer\"?");
    assert_refused("gpt2-tiny", t, "{\"zzzzzzzzzzzz\": 2}", "has no key");
    assert_refused("gpt2-tiny", t, "[1]", "not a JSON object");
    assert_refused("gpt2-tiny", t, "{\"n_layer\": 2", "not a JSON object");
    assert_refused("gpt2-tiny", t, "{\"vocab_size\": 4}", "at least 5");
    assert_refused("gpt2-tiny", t, "{\"vocab_size\": \"x\"}", "at least 5");
    bauta_tokenizer_free(t);
    t = learned(BAUTA_TOKENIZER_WORDPIECE, 40);
    assert_refused("transformer-tiny", t, NULL, "no end-of-sequence token");
    bauta_tokenizer_free(t);
}

static void null_arguments_are_named(void **state)
{
    bauta_tokenizer *t = characters();
    bauta_train_options o = { .size = 1 };
    char *config = NULL;
    (void)state;
    assert_int_equal(bauta_preset(NULL, NULL, "gpt2-tiny", t, NULL, NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_preset(&config, NULL, NULL, t, NULL, NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_preset(&config, NULL, "gpt2-tiny", NULL, NULL, NULL),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_preset(&config, &o, "gpt2-tiny", t, NULL, NULL),
                     BAUTA_ERR_ARGUMENT);
    bauta_tokenizer_free(t);
}

static void allocation_failure_is_an_error(void **state)
{
    char *config = NULL;
    (void)state;
    faults_begin();
    bauta_tokenizer *t = characters();
    for (size_t k = 0;; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status =
            bauta_preset(&config, NULL, "gpt2-tiny", t, NULL, NULL);
        if (!faults_disarm())
            break;
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_int_equal(faults_live(), live);
    }
    bauta_text_free(config);
    bauta_tokenizer_free(t);
    assert_int_equal(faults_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_listed_with_descriptions),
        cmocka_unit_test(every_preset_makes_a_model),
        cmocka_unit_test(the_nanogpt_preset_has_its_own_options),
        cmocka_unit_test(every_preset_trains_in_minutes),
        cmocka_unit_test(vocabulary_and_special_tokens_come_from_the_tokenizer),
        cmocka_unit_test(without_a_padding_token_the_start_token_is_added),
        cmocka_unit_test(overrides_replace_config_values),
        cmocka_unit_test(unknown_presets_and_keys_are_refused),
        cmocka_unit_test(null_arguments_are_named),
        cmocka_unit_test(allocation_failure_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
