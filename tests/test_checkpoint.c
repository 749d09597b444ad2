/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint.c - a run that is stopped and goes on is the run that was
 * never stopped; one that cannot go on says why. */
#include "training_fixtures.h"

#include <math.h>

/* ---- the same bits ------------------------------------------------------- */

static void a_resumed_run_is_the_run_that_never_stopped(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(courses); i++) {
        scratch s = scratch_create();
        lesson whole, first, second;
        course_init(&whole, &courses[i], NULL);
        lesson_steps(&whole, STEPS);
        course_init(&first, &courses[i], NULL);
        for (size_t at = 0; at <= STEPS; at++) {
            char name[32];
            snprintf(name, sizeof(name), "step-%zu", at);
            const char *folder = scratch_path(&s, name);
            save(&first, folder);
            course_init(&second, &courses[i], folder);
            assert_int_equal(bauta_trainer_steps(second.trainer), at);
            lesson_same(&first, &second);
            lesson_steps(&second, STEPS - at);
            lesson_same(&whole, &second);
            lesson_release(&second);
            if (at < STEPS)
                lesson_steps(&first, 1);
        }
        lesson_same(&whole, &first); // saving leaves no trace either
        lesson_release(&first);
        lesson_release(&whole);
        scratch_free(&s);
    }
}

static void a_run_may_stop_at_every_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_LEN(courses); i++) {
        scratch s = scratch_create();
        lesson whole, part;
        course_init(&whole, &courses[i], NULL);
        course_init(&part, &courses[i], NULL);
        for (size_t step = 1; step <= STEPS; step++) {
            char name[32];
            double want = lesson_steps(&whole, 1);
            double got = lesson_steps(&part, 1);
            assert_memory_equal(&want, &got, sizeof(want));
            snprintf(name, sizeof(name), "step-%zu", step);
            save(&part, scratch_path(&s, name));
            lesson_release(&part);
            course_init(&part, &courses[i], s.path);
        }
        lesson_same(&whole, &part);
        lesson_release(&part);
        lesson_release(&whole);
        scratch_free(&s);
    }
}

/* More steps than were planned, other threads, another instruction set. */
static void what_does_not_matter_may_differ(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson a, b;
    bauta_train_options o = options_of(&courses[0]);
    bauta_error err;
    o.lr_scheduler_type = BAUTA_SCHEDULE_CONSTANT;
    lesson_init(&a, "gpt2", NULL, &o, 1, "c");
    lesson_steps(&a, 5);
    save(&a, scratch_path(&s, "step-5"));
    o.max_steps = 1000;
    lesson_init(&b, "gpt2", s.path, &o, 2, NULL);
    must(bauta_trainer_resume(b.trainer, s.path, &err), &err);
    lesson_steps(&a, 5);
    lesson_steps(&b, 5);
    lesson_same(&a, &b);
    lesson_release(&a);
    lesson_release(&b);
    scratch_free(&s);
}

/* Steps that were not taken count as steps, but not for the optimizer. */
static void steps_that_were_not_taken_are_remembered(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson a, b;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    bauta_error err;
    course_init(&a, &courses[0], NULL);
    lesson_steps(&a, 2);
    float *weight = a.model->store->memory, kept = *weight;
    *weight = NAN;
    must(bauta_trainer_step(a.trainer, &report, &err), &err);
    assert_false(report.updated);
    assert_true(isnan(*weight));
    *weight = kept;
    a.trainer->ema[0] = kept;
    lesson_steps(&a, 1);
    assert_int_equal(bauta_trainer_steps(a.trainer), 4);
    assert_int_equal(bt_optimizer_steps(a.trainer->optimizer), 3);
    save(&a, scratch_path(&s, "step-4"));
    course_init(&b, &courses[0], s.path);
    lesson_steps(&a, 4);
    lesson_steps(&b, 4);
    lesson_same(&a, &b);
    lesson_release(&a);
    lesson_release(&b);
    scratch_free(&s);
}

/* ---- the folder ---------------------------------------------------------- */

static void a_checkpoint_is_a_model_folder(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson l;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_error err = { 0 };
    course_init(&l, &courses[0], NULL);
    lesson_steps(&l, 2);
    const char *folder = scratch_path(&s, "step-2");
    save(&l, folder);
    assert_int_equal(scratch_count(&s), 1);
    must(bauta_model_load(&model, folder, true, &err), &err);
    assert_memory_equal(model->store->memory, l.model->store->memory,
                        model->store->floats * sizeof(float));
    must(bauta_tokenizer_load(&tokenizer, folder, &err), &err);
    assert_int_equal(bauta_tokenizer_vocab_size(tokenizer), LESSON_VOCABULARY);
    // What exists is not written over.
    assert_int_equal(bauta_trainer_save(l.trainer, folder, NULL, &err),
                     BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "not empty"));
    bauta_tokenizer_free(tokenizer);
    bauta_model_free(model);
    lesson_release(&l);
    scratch_free(&s);
}

static void notes_come_back(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "[]", "{\"a\": 1", "1", "{\"a\": \xFF}", "{\"a\":1,\"a\":2}", "null"
    };
    scratch s = scratch_create();
    lesson l;
    char *notes;
    bauta_error err = { 0 };
    course_init(&l, &courses[0], NULL);
    for (size_t i = 0; i < BT_LEN(bad); i++) {
        assert_int_equal(
            bauta_trainer_save(l.trainer, scratch_path(&s, "x"), bad[i], &err),
            BAUTA_ERR_ARGUMENT);
        assert_int_equal(scratch_count(&s), 0);
    }
    must(bauta_trainer_save(l.trainer, scratch_path(&s, "a"),
                            "{\"best\": 0.1, \"name\": \"\xC3\xA9\"}", &err),
         &err);
    must(bauta_checkpoint_notes(&notes, s.path, &err), &err);
    json_t *got = json_loads(notes, 0, NULL);
    json_t *want = json_pack("{s:f, s:s}", "best", 0.1, "name", "\xC3\xA9");
    assert_true(json_equal(got, want));
    json_decref(got);
    json_decref(want);
    bauta_text_free(notes);
    must(bauta_trainer_save(l.trainer, scratch_path(&s, "b"), NULL, &err),
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
        bauta_trainer_save(l.trainer, scratch_path(&s, "c"), large, &err),
        BAUTA_ERR_ARGUMENT);
    free(large);
    lesson_release(&l);
    scratch_free(&s);
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
    scratch s = scratch_create();
    lesson l;
    char path[600];
    bauta_error err;
    char *last;
    course_init(&l, &courses[0], NULL);
    last_is(scratch_path(&s, "nowhere"), NULL);
    last_is(s.folder, NULL);
    for (size_t i = 0; i < BT_LEN(others); i++)
        save(&l, scratch_path(&s, others[i]));
    last_is(s.folder, NULL);
    save(&l, scratch_path(&s, "step-9"));
    last_is(s.folder, "step-9");
    save(&l, scratch_path(&s, "step-10"));
    last_is(s.folder, "step-10");
    save(&l, scratch_path(&s, "step-000123"));
    last_is(s.folder, "step-000123");
    // Not whole: empty, without a record, half a record, a file.
    assert_int_equal(mkdir(scratch_path(&s, "step-500"), 0777), 0);
    save(&l, scratch_path(&s, "step-400"));
    snprintf(path, sizeof(path), "%s/trainer.json", s.path);
    assert_int_equal(unlink(path), 0);
    save(&l, scratch_path(&s, "step-300"));
    snprintf(path, sizeof(path), "%s/trainer.json", s.path);
    assert_int_equal(truncate(path, 200), 0);
    scratch_file(&s, "step-600", "x", 1);
    last_is(s.folder, "step-000123");
    assert_int_equal(bauta_run_last(&last, scratch_path(&s, "step-600"), &err),
                     BAUTA_ERR_IO);
    lesson_release(&l);
    scratch_free(&s);
}

/* The number that a loaded model holds in its first place. */
static float loaded_from(const char *folder)
{
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_error err;
    must(bauta_model_load(&model, folder, true, &err), &err);
    must(bauta_tokenizer_load(&tokenizer, folder, &err), &err);
    float number = model->store->memory[0];
    bauta_tokenizer_free(tokenizer);
    bauta_model_free(model);
    return number;
}

static void a_run_stands_for_its_model(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson l;
    bauta_model *model;
    bauta_error err;
    assert_int_equal(bauta_model_load(&model, s.folder, false, &err),
                     BAUTA_ERR_IO);
    course_init(&l, &courses[0], NULL);
    float *number = l.model->store->memory;
    for (int i = 1; i <= 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "step-%d", 8 + i);
        *number = (float)i;
        save(&l, scratch_path(&s, name));
        assert_true(loaded_from(s.folder) == (float)i);
    }
    // A link that leads nowhere is none.
    assert_int_equal(symlink("step-77", scratch_path(&s, "best")), 0);
    assert_true(loaded_from(s.folder) == 3.0f);
    assert_int_equal(unlink(s.path), 0);
    assert_int_equal(symlink("step-10", s.path), 0);
    assert_true(loaded_from(s.folder) == 2.0f);
    assert_true(loaded_from(scratch_path(&s, "step-9")) == 1.0f);
    lesson_release(&l);
    scratch_free(&s);
}

/* ---- what differs -------------------------------------------------------- */

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
    scratch s = scratch_create();
    lesson saved, l, fresh;
    course_init(&saved, &courses[0], NULL);
    lesson_steps(&saved, 3);
    const char *folder = scratch_path(&s, "step-3");
    save(&saved, folder);
    for (size_t i = 0; i < BT_LEN(changes); i++) {
        bauta_train_options o = options_of(&courses[0]);
        changes[i].make(&o);
        lesson_init(&l, "gpt2", folder, &o, 1, NULL);
        lesson_init(&fresh, "gpt2", folder, &o, 1, NULL);
        refused(&l, folder, BAUTA_ERR_ARGUMENT, changes[i].name);
        lesson_same(&fresh, &l);
        if (i % 8 == 0) {
            lesson_steps(&l, 3);
            lesson_steps(&fresh, 3);
            lesson_same(&fresh, &l);
        }
        lesson_release(&l);
        lesson_release(&fresh);
    }
    lesson_release(&saved);
    scratch_free(&s);
}

static void another_corpus_or_model_is_refused(void **state)
{
    (void)state;
    static const char config[] = "{\"n_embd\": 16, \"n_head\": 2, "
                                 "\"n_layer\": 2, \"vocab_size\": 40, "
                                 "\"n_positions\": 96, \"model_type\": "
                                 "\"gpt2\", \"layer_norm_epsilon\": 0.001}";
    scratch s = scratch_create();
    lesson saved, l;
    bauta_error err;
    bauta_train_options o = options_of(&courses[0]);
    course_init(&saved, &courses[0], NULL);
    const char *folder = scratch_path(&s, "step-0");
    save(&saved, folder);

    lesson_init(&l, "gpt2", folder, &o, 1, NULL);
    bauta_trainer_free(l.trainer);
    bauta_corpus_free(l.corpus);
    l.corpus = lesson_texts(6, 40, 30, 3);
    must(bauta_trainer_create(&l.trainer, l.context, l.model, l.tokenizer,
                              l.corpus, &o, &err),
         &err);
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "the corpus is not");
    lesson_release(&l);

    lesson_init(&l, "gpt2", folder, &o, 1, NULL);
    lesson_steps(&l, 1);
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "the model's weights are not");
    lesson_release(&l);

    lesson_init(&l, "gpt2", folder, &o, 1, NULL);
    bauta_trainer_free(l.trainer);
    bauta_model_free(l.model);
    must(bauta_model_create(&l.model, config, 3, &err), &err);
    must(bauta_trainer_create(&l.trainer, l.context, l.model, l.tokenizer,
                              l.corpus, &o, &err),
         &err);
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "the model's config is not");
    lesson_release(&l);

    lesson_release(&saved);
    scratch_free(&s);
}

/* A masked run depends on which tokens are special. */
static void another_tokenizer_is_refused_where_it_matters(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson saved, l;
    course_init(&saved, &courses[1], NULL);
    const char *folder = scratch_path(&s, "step-0");
    save(&saved, folder);
    bauta_train_options o = options_of(&courses[1]);
    lesson_init(&l, "bert", folder, &o, 1, NULL);
    l.tokenizer->is_special[LESSON_A] = 1;
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "special tokens are not");
    lesson_release(&l);
    lesson_release(&saved);
    scratch_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_is_the_run_that_never_stopped),
        cmocka_unit_test(a_run_may_stop_at_every_step),
        cmocka_unit_test(what_does_not_matter_may_differ),
        cmocka_unit_test(steps_that_were_not_taken_are_remembered),
        cmocka_unit_test(a_checkpoint_is_a_model_folder),
        cmocka_unit_test(notes_come_back),
        cmocka_unit_test(the_last_whole_checkpoint_is_found),
        cmocka_unit_test(a_run_stands_for_its_model),
        cmocka_unit_test(options_that_differ_are_refused_by_name),
        cmocka_unit_test(another_corpus_or_model_is_refused),
        cmocka_unit_test(another_tokenizer_is_refused_where_it_matters),
    };
    // Thousands of files are made durable, which memory is faster at.
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
