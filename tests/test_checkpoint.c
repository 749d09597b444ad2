/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint.c - a resumed run is bit-identical to one that never stopped;
 * one that cannot be resumed gives the reason. */
#include "training_fixtures.h"

#include <math.h>

/* ---- the same bits ------------------------------------------------------- */

static void a_resumed_run_equals_an_uninterrupted_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(training_cases); i++) {
        temp_folder s = temp_folder_create();
        training_run whole, first, second;
        training_case_init(&whole, &training_cases[i], NULL);
        training_run_steps(&whole, STEPS);
        training_case_init(&first, &training_cases[i], NULL);
        for (size_t at = 0; at <= STEPS; at++) {
            char name[32];
            snprintf(name, sizeof(name), "step-%zu", at);
            const char *folder = temp_folder_path(&s, name);
            save(&first, folder);
            training_case_init(&second, &training_cases[i], folder);
            assert_int_equal(bauta_trainer_steps(second.trainer), at);
            training_run_same(&first, &second);
            training_run_steps(&second, STEPS - at);
            training_run_same(&whole, &second);
            training_run_release(&second);
            if (at < STEPS)
                training_run_steps(&first, 1);
        }
        training_run_same(&whole, &first); // saving has no side effects either
        training_run_release(&first);
        training_run_release(&whole);
        temp_folder_free(&s);
    }
}

static void a_run_can_be_resumed_at_every_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(training_cases); i++) {
        temp_folder s = temp_folder_create();
        training_run whole, part;
        training_case_init(&whole, &training_cases[i], NULL);
        training_case_init(&part, &training_cases[i], NULL);
        for (size_t step = 1; step <= STEPS; step++) {
            char name[32];
            double want = training_run_steps(&whole, 1);
            double got = training_run_steps(&part, 1);
            assert_memory_equal(&want, &got, sizeof(want));
            snprintf(name, sizeof(name), "step-%zu", step);
            save(&part, temp_folder_path(&s, name));
            training_run_release(&part);
            training_case_init(&part, &training_cases[i], s.path);
        }
        training_run_same(&whole, &part);
        training_run_release(&part);
        training_run_release(&whole);
        temp_folder_free(&s);
    }
}

/* More steps than were planned, other threads, another instruction set. */
static void irrelevant_options_may_differ(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run a, b;
    bauta_train_options o = options_of(&training_cases[0]);
    bauta_error err;
    o.lr_scheduler_type = BAUTA_SCHEDULE_CONSTANT;
    training_run_init(&a, "gpt2", NULL, &o, 1, "c");
    training_run_steps(&a, 5);
    save(&a, temp_folder_path(&s, "step-5"));
    o.max_steps = 1000;
    training_run_init(&b, "gpt2", s.path, &o, 2, NULL);
    must(bauta_trainer_resume(b.trainer, s.path, &err), &err);
    training_run_steps(&a, 5);
    training_run_steps(&b, 5);
    training_run_same(&a, &b);
    training_run_release(&a);
    training_run_release(&b);
    temp_folder_free(&s);
}

/* Skipped steps count as steps, but not for the optimizer. */
static void skipped_steps_are_saved(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run a, b;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_error err;
    training_case_init(&a, &training_cases[0], NULL);
    training_run_steps(&a, 2);
    float *weight = store_weights(a.model->store), kept = *weight;
    *weight = NAN;
    must(bauta_trainer_step(a.trainer, &report, &err), &err);
    assert_false(report.updated);
    assert_true(isnan(*weight));
    *weight = kept;
    trainer_ema(a.trainer)[0] = kept;
    training_run_steps(&a, 1);
    assert_int_equal(bauta_trainer_steps(a.trainer), 4);
    assert_int_equal(bt_optimizer_steps(a.trainer->optimizer), 3);
    save(&a, temp_folder_path(&s, "step-4"));
    training_case_init(&b, &training_cases[0], s.path);
    training_run_steps(&a, 4);
    training_run_steps(&b, 4);
    training_run_same(&a, &b);
    training_run_release(&a);
    training_run_release(&b);
    temp_folder_free(&s);
}

/* ---- the folder ---------------------------------------------------------- */

static void a_checkpoint_is_a_model_folder(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run l;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_error err = { 0 };
    training_case_init(&l, &training_cases[0], NULL);
    training_run_steps(&l, 2);
    const char *folder = temp_folder_path(&s, "step-2");
    save(&l, folder);
    assert_int_equal(temp_folder_count(&s), 1);
    must(bauta_model_load(&model, folder, true, &err), &err);
    assert_memory_equal(store_weights(model->store),
                        store_weights(l.model->store),
                        model->store->floats * sizeof(float));
    must(bauta_tokenizer_load(&tokenizer, folder, &err), &err);
    assert_int_equal(bauta_tokenizer_vocab_size(tokenizer), TINY_VOCAB_SIZE);
    // An existing file is not overwritten.
    assert_int_equal(bauta_trainer_save(l.trainer, folder, NULL, &err),
                     BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "not empty"));
    bauta_tokenizer_free(tokenizer);
    bauta_model_free(model);
    training_run_release(&l);
    temp_folder_free(&s);
}

static void notes_survive_saving(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "[]", "{\"a\": 1", "1", "{\"a\": \xFF}", "{\"a\":1,\"a\":2}", "null"
    };
    temp_folder s = temp_folder_create();
    training_run l;
    char *notes;
    bauta_error err = { 0 };
    training_case_init(&l, &training_cases[0], NULL);
    for (size_t i = 0; i < BT_LEN(bad); i++) {
        assert_int_equal(bauta_trainer_save(l.trainer,
                                            temp_folder_path(&s, "x"), bad[i],
                                            &err),
                         BAUTA_ERR_ARGUMENT);
        assert_int_equal(temp_folder_count(&s), 0);
    }
    must(bauta_trainer_save(l.trainer, temp_folder_path(&s, "a"),
                            "{\"best\": 0.1, \"name\": \"\xC3\xA9\"}", &err),
         &err);
    must(bauta_checkpoint_notes(&notes, s.path, &err), &err);
    json_t *got = json_loads(notes, 0, NULL);
    json_t *want = json_pack("{s:f, s:s}", "best", 0.1, "name", "\xC3\xA9");
    assert_true(json_equal(got, want));
    json_decref(got);
    json_decref(want);
    bauta_text_free(notes);
    must(bauta_trainer_save(l.trainer, temp_folder_path(&s, "b"), NULL, &err),
         &err);
    must(bauta_checkpoint_notes(&notes, s.path, &err), &err);
    assert_null(notes);
    assert_int_equal(bauta_checkpoint_notes(&notes, s.folder, &err),
                     BAUTA_ERR_IO);

    size_t size = 300 << 10;
    char *large = malloc(size);
    assert_non_null(large);
    snprintf(large, size, "{\"a\": \"%*s\"}", (int)size - 100, "x");
    assert_int_equal(
        bauta_trainer_save(l.trainer, temp_folder_path(&s, "c"), large, &err),
        BAUTA_ERR_ARGUMENT);
    free(large);
    training_run_release(&l);
    temp_folder_free(&s);
}

static void last_is(const char *run, const char *want)
{
    char *last;
    bauta_error err;
    must(bauta_run_last(&last, run, &err), &err);
    if (!want)
        assert_null(last);
    else
        assert_string_equal(strrchr(last, '/') + 1, want);
    bauta_text_free(last);
}

static void the_last_whole_checkpoint_is_found(void **state)
{
    (void)state;
    static const char *const others[] = {
        "step-",
        "step-x",
        "step-12x",
        "xstep-30",
        ".bauta-1-0.folder",
        "step",
        "step--4",
        "step-99999999999999999999",
    };
    temp_folder s = temp_folder_create();
    training_run l;
    char path[600];
    bauta_error err;
    char *last;
    training_case_init(&l, &training_cases[0], NULL);
    last_is(temp_folder_path(&s, "nowhere"), NULL);
    last_is(s.folder, NULL);
    for (size_t i = 0; i < BT_LEN(others); i++)
        save(&l, temp_folder_path(&s, others[i]));
    last_is(s.folder, NULL);
    save(&l, temp_folder_path(&s, "step-9"));
    last_is(s.folder, "step-9");
    save(&l, temp_folder_path(&s, "step-10"));
    last_is(s.folder, "step-10");
    save(&l, temp_folder_path(&s, "step-000123"));
    last_is(s.folder, "step-000123");
    // Incomplete: empty, without a record, half a record, a file.
    assert_int_equal(mkdir(temp_folder_path(&s, "step-500"), 0777), 0);
    save(&l, temp_folder_path(&s, "step-400"));
    snprintf(path, sizeof(path), "%s/trainer.json", s.path);
    assert_int_equal(unlink(path), 0);
    save(&l, temp_folder_path(&s, "step-300"));
    snprintf(path, sizeof(path), "%s/trainer.json", s.path);
    assert_int_equal(truncate(path, 200), 0);
    temp_folder_write(&s, "step-600", "x", 1);
    last_is(s.folder, "step-000123");
    assert_int_equal(
        bauta_run_last(&last, temp_folder_path(&s, "step-600"), &err),
        BAUTA_ERR_IO);
    training_run_release(&l);
    temp_folder_free(&s);
}

/* The first number that a loaded model holds. */
static float loaded_from(const char *folder)
{
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_error err;
    must(bauta_model_load(&model, folder, true, &err), &err);
    must(bauta_tokenizer_load(&tokenizer, folder, &err), &err);
    float number = store_weights(model->store)[0];
    bauta_tokenizer_free(tokenizer);
    bauta_model_free(model);
    return number;
}

static void a_run_folder_loads_as_its_model(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run l;
    bauta_model *model;
    bauta_error err;
    assert_int_equal(bauta_model_load(&model, s.folder, false, &err),
                     BAUTA_ERR_IO);
    training_case_init(&l, &training_cases[0], NULL);
    float *number = store_weights(l.model->store);
    for (int i = 1; i <= 3; i++) {
        char name[24];
        snprintf(name, sizeof(name), "step-%d", 8 + i);
        *number = (float)i;
        save(&l, temp_folder_path(&s, name));
        assert_true(loaded_from(s.folder) == (float)i);
    }
    // A dangling link is no checkpoint.
    assert_int_equal(symlink("step-77", temp_folder_path(&s, "best")), 0);
    assert_true(loaded_from(s.folder) == 3.0f);
    assert_int_equal(unlink(s.path), 0);
    assert_int_equal(symlink("step-10", s.path), 0);
    assert_true(loaded_from(s.folder) == 2.0f);
    assert_true(loaded_from(temp_folder_path(&s, "step-9")) == 1.0f);
    training_run_release(&l);
    temp_folder_free(&s);
}

/* ---- differences --------------------------------------------------------- */

typedef void (*change)(bauta_train_options *o);
#define CHANGE(name, value)                          \
    static void name##_other(bauta_train_options *o) \
    {                                                \
        o->name = value;                             \
    }
CHANGE(objective, BAUTA_OBJECTIVE_PREFIX)
CHANGE(mode, BAUTA_MODE_SEQUENTIAL)
CHANGE(seed, UINT64_MAX)
CHANGE(batch_sequences, 7)
CHANGE(batch_tokens, 99)
CHANGE(gradient_accumulation_steps, 2)
CHANGE(microbatch_tokens, 4095)
CHANGE(context_length, 15)
CHANGE(dropout, 0.11f)
CHANGE(label_smoothing, 0.01f)
CHANGE(mlm_probability, 0.16f)
CHANGE(mlm_random, 0.2f)
CHANGE(mlm_keep, 0.2f)
CHANGE(scheduled_sampling, 0.3f)
CHANGE(warmup_steps, 5)
CHANGE(lr_scheduler_type, BAUTA_SCHEDULE_LINEAR)
CHANGE(learning_rate, 0.010000000000000002)
CHANGE(min_learning_rate, 0.0)
CHANGE(adam_beta1, 0.8)
CHANGE(adam_beta2, 0.98)
CHANGE(adam_epsilon, 1e-9)
CHANGE(weight_decay, 0.0)
CHANGE(max_grad_norm, 2.0)
CHANGE(ema_decay, 0.95)

static void options_that_differ_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        change make;
        const char *name;
    } changes[] = {
#define OTHER(name) { name##_other, " option " #name " is " }
        OTHER(objective),
        OTHER(mode),
        OTHER(seed),
        OTHER(batch_sequences),
        OTHER(batch_tokens),
        OTHER(gradient_accumulation_steps),
        OTHER(microbatch_tokens),
        OTHER(context_length),
        OTHER(dropout),
        OTHER(label_smoothing),
        OTHER(mlm_probability),
        OTHER(mlm_random),
        OTHER(mlm_keep),
        OTHER(scheduled_sampling),
        OTHER(warmup_steps),
        OTHER(lr_scheduler_type),
        OTHER(learning_rate),
        OTHER(min_learning_rate),
        OTHER(adam_beta1),
        OTHER(adam_beta2),
        OTHER(adam_epsilon),
        OTHER(weight_decay),
        OTHER(max_grad_norm),
        OTHER(ema_decay),
    };
    temp_folder s = temp_folder_create();
    training_run saved, l, fresh;
    training_case_init(&saved, &training_cases[0], NULL);
    training_run_steps(&saved, 3);
    const char *folder = temp_folder_path(&s, "step-3");
    save(&saved, folder);
    for (size_t i = 0; i < BT_LEN(changes); i++) {
        bauta_train_options o = options_of(&training_cases[0]);
        changes[i].make(&o);
        training_run_init(&l, "gpt2", folder, &o, 1, NULL);
        training_run_init(&fresh, "gpt2", folder, &o, 1, NULL);
        refused(&l, folder, BAUTA_ERR_ARGUMENT, changes[i].name);
        training_run_same(&fresh, &l);
        if (i % 8 == 0) {
            training_run_steps(&l, 3);
            training_run_steps(&fresh, 3);
            training_run_same(&fresh, &l);
        }
        training_run_release(&l);
        training_run_release(&fresh);
    }
    training_run_release(&saved);
    temp_folder_free(&s);
}

static void another_corpus_or_model_is_refused(void **state)
{
    (void)state;
    static const char config[] = "{\"n_embd\": 16, \"n_head\": 2, "
                                 "\"n_layer\": 2, \"vocab_size\": 40, "
                                 "\"n_positions\": 96, \"model_type\": "
                                 "\"gpt2\", \"layer_norm_epsilon\": 0.001}";
    temp_folder s = temp_folder_create();
    training_run saved, l;
    bauta_error err;
    bauta_train_options o = options_of(&training_cases[0]);
    training_case_init(&saved, &training_cases[0], NULL);
    const char *folder = temp_folder_path(&s, "step-0");
    save(&saved, folder);

    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    bauta_trainer_free(l.trainer);
    bauta_corpus_free(l.corpus);
    l.corpus = tiny_texts(6, 40, 30, 3);
    must(bauta_trainer_create(&l.trainer, l.context, l.model, l.tokenizer,
                              l.corpus, &o, &err),
         &err);
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "the corpus is not");
    training_run_release(&l);

    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    training_run_steps(&l, 1);
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "the model's weights are not");
    training_run_release(&l);

    training_run_init(&l, "gpt2", folder, &o, 1, NULL);
    bauta_trainer_free(l.trainer);
    bauta_model_free(l.model);
    must(bauta_model_create(&l.model, config, 3, &err), &err);
    must(bauta_trainer_create(&l.trainer, l.context, l.model, l.tokenizer,
                              l.corpus, &o, &err),
         &err);
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "the model's config is not");
    training_run_release(&l);

    training_run_release(&saved);
    temp_folder_free(&s);
}

/* A masked run depends on which tokens are special. */
static void another_tokenizer_is_refused_for_masked_training(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run saved, l;
    training_case_init(&saved, &training_cases[1], NULL);
    const char *folder = temp_folder_path(&s, "step-0");
    save(&saved, folder);
    bauta_train_options o = options_of(&training_cases[1]);
    training_run_init(&l, "bert", folder, &o, 1, NULL);
    l.tokenizer->is_special[TINY_A] = 1;
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "special tokens are not");
    training_run_release(&l);
    training_run_release(&saved);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_equals_an_uninterrupted_one),
        cmocka_unit_test(a_run_can_be_resumed_at_every_step),
        cmocka_unit_test(irrelevant_options_may_differ),
        cmocka_unit_test(skipped_steps_are_saved),
        cmocka_unit_test(a_checkpoint_is_a_model_folder),
        cmocka_unit_test(notes_survive_saving),
        cmocka_unit_test(the_last_whole_checkpoint_is_found),
        cmocka_unit_test(a_run_folder_loads_as_its_model),
        cmocka_unit_test(options_that_differ_are_refused_by_name),
        cmocka_unit_test(another_corpus_or_model_is_refused),
        cmocka_unit_test(another_tokenizer_is_refused_for_masked_training),
    };
    // Thousands of files are synced, which is faster in memory.
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
