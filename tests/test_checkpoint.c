/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint.c - a run that is stopped and goes on is the run that was
 * never stopped; and whatever happens to the files, or to the program while it
 * writes them, there is a sentence or a checkpoint, and never half of one. */
#include "disk.h"
#include "faults.h"
#include "formats/sealed.h"
#include "training.h"

#include <sys/resource.h>
#include <sys/wait.h>

static uint64_t seed;

/* ---- runs ---------------------------------------------------------------- */

enum { STEPS = 14 };

typedef struct course {
    const char *family;
    bauta_objective objective;
    bauta_mode mode;
    double average;
} course;

/* Every objective and mode, with and without an average. */
static const course courses[] = {
    { "gpt2", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_PARALLEL, 0.9 },
    { "bert", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_PARALLEL, 0.0 },
    { "marian", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_SCHEDULED, 0.99 },
    { "llama", BAUTA_OBJECTIVE_PREFIX, BAUTA_MODE_PARALLEL, 0.0 },
    { "qwen3", BAUTA_OBJECTIVE_CAUSAL, BAUTA_MODE_FREE, 0.0 },
};

/* Epochs of about five steps. */
static bauta_train_options options_of(const course *c)
{
    bauta_train_options o = lesson_options();
    o.objective = c->objective;
    o.mode = c->mode;
    o.average = c->average;
    o.tokens = strcmp(c->family, "marian") == 0 ? 60 : 130;
    o.dropout = 0.1f;
    o.steps = STEPS;
    return o;
}

/* A new run, or the one in `folder` as it was. */
static void course_init(lesson *l, const course *c, const char *folder)
{
    bauta_train_options o = options_of(c);
    bauta_error err;
    lesson_init(l, c->family, folder, &o, 1, NULL);
    if (folder)
        must(bauta_trainer_resume(l->trainer, folder, &err), &err);
}

static void save(const lesson *l, const char *folder)
{
    bauta_error err;
    must(bauta_trainer_save(l->trainer, folder, NULL, &err), &err);
}

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
    o.schedule = BAUTA_SCHEDULE_CONSTANT;
    lesson_init(&a, "gpt2", NULL, &o, 1, "c");
    lesson_steps(&a, 5);
    save(&a, scratch_path(&s, "step-5"));
    o.steps = 1000;
    lesson_init(&b, "gpt2", s.path, &o, 2, NULL);
    must(bauta_trainer_resume(b.trainer, s.path, &err), &err);
    lesson_steps(&a, 5);
    lesson_steps(&b, 5);
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
    assert_memory_equal(model->folder->memory, l.model->folder->memory,
                        model->folder->floats * sizeof(float));
    must(bauta_tokenizer_load(&tokenizer, folder, &err), &err);
    assert_int_equal(bauta_tokenizer_size(tokenizer), LESSON_VOCABULARY);
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
    float number = model->folder->memory[0];
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
    float *number = l.model->folder->memory;
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
CHANGE(sequences, 7)
CHANGE(tokens, 99)
CHANGE(accumulate, 2)
CHANGE(pass, 4095)
CHANGE(context, 15)
CHANGE(dropout, 0.11f)
CHANGE(smoothing, 0.01f)
CHANGE(hidden, 0.16f)
CHANGE(hidden_random, 0.2f)
CHANGE(hidden_kept, 0.2f)
CHANGE(sampled, 0.3f)
CHANGE(warmup, 5)
CHANGE(schedule, BAUTA_SCHEDULE_LINEAR)
CHANGE(rate, 0.010000000000000002)
CHANGE(min_rate, 0.0)
CHANGE(beta1, 0.8)
CHANGE(beta2, 0.98)
CHANGE(epsilon, 1e-9)
CHANGE(weight_decay, 0.0)
CHANGE(clip, 2.0)
CHANGE(average, 0.95)

/* A trainer that cannot be resumed is the trainer that it was. */
static void refused(lesson *l, const char *folder, bauta_status status,
                    const char *says)
{
    bauta_error err = { 0 };
    size_t steps = bauta_trainer_steps(l->trainer);
    size_t updates = bt_optimizer_steps(l->trainer->optimizer);
    bauta_status got = bauta_trainer_resume(l->trainer, folder, &err);
    if (got != status || !strstr(err.message, says))
        fail_msg("status %d, \"%s\", not %d, \"%s\"", got, err.message, status,
                 says);
    assert_int_equal(bauta_trainer_steps(l->trainer), steps);
    assert_int_equal(bt_optimizer_steps(l->trainer->optimizer), updates);
}

static void options_that_differ_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        change make;
        const char *name;
    } changes[] = {
#define OTHER(name) { name##_other, " option " #name " at " }
        OTHER(objective),    OTHER(mode),    OTHER(seed),
        OTHER(sequences),    OTHER(tokens),  OTHER(accumulate),
        OTHER(pass),         OTHER(context), OTHER(dropout),
        OTHER(smoothing),    OTHER(hidden),  OTHER(hidden_random),
        OTHER(hidden_kept),  OTHER(sampled), OTHER(warmup),
        OTHER(schedule),     OTHER(rate),    OTHER(min_rate),
        OTHER(beta1),        OTHER(beta2),   OTHER(epsilon),
        OTHER(weight_decay), OTHER(clip),    OTHER(average),
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
    l.tokenizer->special[LESSON_A] = 1;
    refused(&l, folder, BAUTA_ERR_ARGUMENT, "special tokens are not");
    lesson_release(&l);
    lesson_release(&saved);
    scratch_free(&s);
}

/* ---- damage -------------------------------------------------------------- */

typedef struct text_file {
    char *bytes;
    size_t size;
} text_file;

static text_file file_load(const char *folder, const char *name)
{
    char path[700];
    text_file f = { NULL, 0 };
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    f.size = (size_t)ftell(file);
    rewind(file);
    f.bytes = malloc(f.size + 1);
    assert_non_null(f.bytes);
    assert_int_equal(fread(f.bytes, 1, f.size, file), f.size);
    fclose(file);
    return f;
}

static void file_store(const char *folder, const char *name, const void *bytes,
                       size_t size)
{
    char path[700];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Damage that is accepted has changed nothing that is read. */
static void survives(lesson *l, const lesson *fresh, const lesson *saved,
                     const char *folder)
{
    bauta_error err = { 0 };
    if (bauta_trainer_resume(l->trainer, folder, &err)) {
        assert_true(strlen(err.message) > 10);
        assert_int_equal(bauta_trainer_steps(l->trainer), 0);
        lesson_same(fresh, l);
        return;
    }
    lesson_same(saved, l);
    assert_int_equal(bauta_trainer_steps(l->trainer),
                     bauta_trainer_steps(saved->trainer));
    // Back to what it was, for the next one.
    bauta_train_options o = options_of(&courses[0]);
    lesson_release(l);
    lesson_init(l, "gpt2", folder, &o, 1, NULL);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "trainer.json",
                                         "optimizer.safetensors" };
    test_random r = test_random_from(seed);
    scratch s = scratch_create();
    lesson saved, l, fresh;
    bauta_train_options o = options_of(&courses[0]);
    course_init(&saved, &courses[0], NULL);
    lesson_steps(&saved, 3);
    const char *folder = scratch_path(&s, "step-3");
    save(&saved, folder);
    lesson_init(&l, "gpt2", folder, &o, 1, NULL);
    lesson_init(&fresh, "gpt2", folder, &o, 1, NULL);
    for (size_t i = 0; i < BT_LEN(names); i++) {
        text_file good = file_load(folder, names[i]);
        char *bytes = malloc(good.size + 1);
        assert_non_null(bytes);
        for (size_t k = 0; k < 400; k++) {
            size_t size = good.size;
            memcpy(bytes, good.bytes, size);
            // Half of the places in the first part, where the names are.
            size_t part = k % 2 && size > 4000 ? 4000 : size;
            size_t at = test_below(&r, part);
            if (k < 100) {
                size = at;
            } else if (k < 300) {
                bytes[at] = (char)(bytes[at] ^ 1 << test_below(&r, 8));
            } else {
                memset(bytes + at, (int)test_below(&r, 256),
                       bt_size_min(1 + test_below(&r, 9), size - at));
            }
            file_store(folder, names[i], bytes, size);
            survives(&l, &fresh, &saved, folder);
        }
        file_store(folder, names[i], "", 0);
        survives(&l, &fresh, &saved, folder);
        snprintf(bytes, good.size, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(bytes), 0);
        refused(&l, folder, BAUTA_ERR_IO, names[i]);
        assert_int_equal(mkdir(bytes, 0777), 0);
        refused(&l, folder, BAUTA_ERR_IO, "is a folder");
        assert_int_equal(rmdir(bytes), 0);
        file_store(folder, names[i], good.bytes, good.size);
        free(good.bytes);
        free(bytes);
    }
    bauta_error err;
    must(bauta_trainer_resume(l.trainer, folder, &err), &err);
    lesson_same(&saved, &l);
    lesson_release(&l);
    lesson_release(&fresh);
    lesson_release(&saved);
    scratch_free(&s);
}

/* Records with a good seal that say what cannot be. */
static void impossible_records_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value; /* NULL: taken away */
        bauta_status status;
        const char *says;
    } wrong[] = {
        { "format", "2", BAUTA_ERR_UNSUPPORTED, "format 2" },
        { "format", NULL, BAUTA_ERR_UNSUPPORTED, "format nothing" },
        { "format", "\"1\"", BAUTA_ERR_UNSUPPORTED, "format \"1\"" },
        { "step", "-1", BAUTA_ERR_IO, "step is -1" },
        { "step", "3.5", BAUTA_ERR_IO, "step is 3.5" },
        { "step", NULL, BAUTA_ERR_IO, "step is nothing" },
        { "step", "\"3\"", BAUTA_ERR_IO, "step is \"3\"" },
        { "epoch", "4", BAUTA_ERR_IO, "epoch 4" },
        { "epoch", "9223372036854775807", BAUTA_ERR_IO, "after 3 steps" },
        { "batch", "4", BAUTA_ERR_IO, "batch 4" },
        { "updates", "4", BAUTA_ERR_IO, "4 updates" },
        { "updates", "[]", BAUTA_ERR_IO, "updates is []" },
        { "options", NULL, BAUTA_ERR_ARGUMENT, "option objective" },
        { "options", "7", BAUTA_ERR_ARGUMENT, "option objective" },
        { "digests", NULL, BAUTA_ERR_IO, "no digest of the optimizer" },
        { "digests", "[]", BAUTA_ERR_IO, "no digest of the optimizer" },
        { "digests", "{\"optimizer\": \"0\"}", BAUTA_ERR_IO, "no digest" },
        { "digests", "{\"optimizer\": \"000000000000000g\"}", BAUTA_ERR_IO,
          "no digest" },
        { "digests", "{\"optimizer\": \"0000000000000000\"}",
          BAUTA_ERR_ARGUMENT, "the corpus is not" },
    };
    scratch s = scratch_create();
    lesson saved, l;
    bauta_train_options o = options_of(&courses[0]);
    course_init(&saved, &courses[0], NULL);
    lesson_steps(&saved, 3);
    const char *folder = scratch_path(&s, "step-3");
    save(&saved, folder);
    lesson_init(&l, "gpt2", folder, &o, 1, NULL);
    text_file good = file_load(folder, "trainer.json");
    for (size_t i = 0; i < BT_LEN(wrong); i++) {
        json_t *record = json_loadb(good.bytes, good.size, 0, NULL);
        char *text;
        assert_non_null(record);
        if (wrong[i].value)
            json_object_set_new(
                record, wrong[i].key,
                json_loads(wrong[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(record, wrong[i].key);
        assert_int_equal(bt_sealed_text(&text, record, "", NULL), 0);
        file_store(folder, "trainer.json", text, strlen(text));
        bauta_text_free(text);
        json_decref(record);
        refused(&l, folder, wrong[i].status, wrong[i].says);
    }
    // An option that a later version may have.
    json_t *record = json_loadb(good.bytes, good.size, 0, NULL);
    char *text;
    json_object_set_new(json_object_get(record, "options"), "more",
                        json_true());
    assert_int_equal(bt_sealed_text(&text, record, "", NULL), 0);
    file_store(folder, "trainer.json", text, strlen(text));
    refused(&l, folder, BAUTA_ERR_IO, "not known here");
    bauta_text_free(text);
    json_decref(record);
    // An object that is no checkpoint, and JSON that is no object.
    file_store(folder, "trainer.json", "{}", 2);
    refused(&l, folder, BAUTA_ERR_IO, "has no seal");
    file_store(folder, "trainer.json", "[]", 2);
    refused(&l, folder, BAUTA_ERR_IO, "not a JSON object");
    free(good.bytes);
    lesson_release(&l);
    lesson_release(&saved);
    scratch_free(&s);
}

/* Files of tensors that are good ones, but not this run's. */
static void tensors_of_another_run_are_refused(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson saved, other, l;
    bauta_train_options o = options_of(&courses[0]);
    course_init(&saved, &courses[0], NULL);
    course_init(&other, &courses[0], NULL);
    lesson_steps(&saved, 3);
    lesson_steps(&other, 4);
    save(&other, scratch_path(&s, "step-4"));
    text_file later = file_load(s.path, "optimizer.safetensors");
    text_file model = file_load(s.path, "model.safetensors");
    o.average = 0.0;
    lesson_init(&l, "gpt2", NULL, &o, 1, NULL);
    save(&l, scratch_path(&s, "step-0"));
    text_file fewer = file_load(s.path, "optimizer.safetensors");
    lesson_release(&l);
    o.average = 0.9;
    lesson_init(&l, "llama", NULL, &o, 1, NULL);
    save(&l, scratch_path(&s, "llama"));
    text_file llama = file_load(s.path, "optimizer.safetensors");
    lesson_release(&l);

    const char *folder = scratch_path(&s, "step-3");
    save(&saved, folder);
    lesson_init(&l, "gpt2", folder, &o, 1, NULL);
    file_store(folder, "optimizer.safetensors", later.bytes, later.size);
    refused(&l, folder, BAUTA_ERR_IO, "not those that were saved");
    file_store(folder, "optimizer.safetensors", model.bytes, model.size);
    refused(&l, folder, BAUTA_ERR_IO, "is missing");
    file_store(folder, "optimizer.safetensors", fewer.bytes, fewer.size);
    refused(&l, folder, BAUTA_ERR_IO, "is missing");
    file_store(folder, "optimizer.safetensors", llama.bytes, llama.size);
    refused(&l, folder, BAUTA_ERR_IO, "is missing");
    lesson_release(&l);

    // More than this run has, under its record: without an average.
    o.average = 0.0;
    folder = scratch_path(&s, "step-0");
    lesson_init(&l, "gpt2", folder, &o, 1, NULL);
    file_store(folder, "optimizer.safetensors", later.bytes, later.size);
    refused(&l, folder, BAUTA_ERR_IO, "tensors, and not only");
    lesson_release(&l);
    free(later.bytes);
    free(model.bytes);
    free(fewer.bytes);
    free(llama.bytes);
    lesson_release(&other);
    lesson_release(&saved);
    scratch_free(&s);
}

/* ---- memory that fails --------------------------------------------------- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson l, fresh;
    bauta_error err;
    bauta_train_options o = options_of(&courses[0]);
    bool failed = true;
    faults_begin();
    course_init(&l, &courses[0], NULL);
    lesson_steps(&l, 3);
    const char *folder = scratch_path(&s, "step-3");
    for (size_t k = 0; failed; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status =
            bauta_trainer_save(l.trainer, folder, "{\"a\": 1}", &err);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        assert_int_equal(faults_live(), live);
        assert_int_equal(scratch_count(&s), !failed);
    }
    lesson_init(&fresh, "gpt2", folder, &o, 1, NULL);
    failed = true;
    for (size_t k = 0; failed; k++) {
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bauta_trainer_resume(fresh.trainer, folder, &err);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        assert_int_equal(faults_live(), live);
        assert_int_equal(bauta_trainer_steps(fresh.trainer), failed ? 0 : 3);
    }
    lesson_same(&l, &fresh);
    failed = true;
    for (size_t k = 0; failed; k++) {
        char *last = NULL, *notes = NULL;
        bauta_model *model = NULL;
        size_t live = faults_live();
        faults_arm(k);
        bauta_status status = bauta_run_last(&last, s.folder, &err);
        if (!status)
            status = bauta_checkpoint_notes(&notes, last, &err);
        if (!status)
            status = bauta_model_load(&model, s.folder, false, &err);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        bauta_text_free(last);
        bauta_text_free(notes);
        bauta_model_free(model);
        assert_int_equal(faults_live(), live);
    }
    lesson_release(&l);
    lesson_release(&fresh);
    assert_int_equal(faults_end(), 0);
    scratch_free(&s);
}

/* ---- a disk that fails --------------------------------------------------- */

/* A whole checkpoint of step 3, from which a new trainer goes on. */
static void is_whole(const course *c, const lesson *saved, const char *folder)
{
    lesson l;
    course_init(&l, c, folder);
    lesson_same(saved, &l);
    lesson_release(&l);
}

/* One save for every call that it makes, in which that call fails. */
static size_t fail_at_every_call(const course *c, lesson *l, scratch *s,
                                 disk_fault fault)
{
    char folder[512];
    bauta_error err;
    size_t k = 0;
    snprintf(folder, sizeof(folder), "%s", scratch_path(s, "step-3"));
    for (;; k++) {
        disk_arm(k, fault);
        bauta_status status =
            bauta_trainer_save(l->trainer, folder, NULL, &err);
        bool failed = disk_disarm();
        if (status) {
            assert_true(failed);
            assert_int_equal(status, BAUTA_ERR_IO);
            assert_true(strlen(err.message) > 10);
        }
        // There is nothing, or it is whole: a folder that could not be made
        // durable is there all the same, and what only closes a folder that
        // was made durable may fail.
        size_t there = scratch_count(s);
        assert_true(there <= 1 && (status || there == 1));
        if (there == 1) {
            assert_true(access(folder, F_OK) == 0);
            if (k % 16 == 0 || status)
                is_whole(c, l, folder);
            scratch_remove(folder);
        }
        if (!failed)
            return k;
    }
}

static void every_call_to_the_disk_may_fail(void **state)
{
    (void)state;
    size_t points = 0;
    for (size_t i = 0; i < 3; i++) {
        scratch s = scratch_create();
        lesson l, whole;
        course_init(&whole, &courses[i], NULL);
        course_init(&l, &courses[i], NULL);
        lesson_steps(&whole, STEPS);
        lesson_steps(&l, 3);
        for (int fault = DISK_FAILS; fault <= DISK_BREAKS; fault++)
            points +=
                fail_at_every_call(&courses[i], &l, &s, (disk_fault)fault);
        lesson_steps(&l, STEPS - 3); // the run goes on as if nothing had been
        lesson_same(&whole, &l);
        lesson_release(&l);
        lesson_release(&whole);
        scratch_free(&s);
    }
    printf("%zu calls failed\n", points);
    assert_true(points >= 200);
}

/* A file that may not grow beyond some size, as on a disk that is full. */
static void files_that_may_not_grow_leave_nothing(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson l;
    struct rlimit old, small;
    bauta_error err;
    course_init(&l, &courses[0], NULL);
    const char *folder = scratch_path(&s, "step-0");
    save(&l, folder);
    text_file largest = file_load(folder, "optimizer.safetensors");
    free(largest.bytes);
    scratch_remove(folder);
    fflush(NULL); // the limit holds for what is printed, too
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (size_t i = 0; i < 64; i++) {
        small = (struct rlimit){ largest.size * i / 64, old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        bauta_status status = bauta_trainer_save(l.trainer, folder, NULL, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, BAUTA_ERR_IO);
        assert_non_null(strstr(err.message, "cannot write it"));
        assert_int_equal(scratch_count(&s), 0);
    }
    signal(SIGXFSZ, before);
    save(&l, folder);
    lesson_release(&l);
    scratch_free(&s);
}

/* ---- a program that dies ------------------------------------------------- */

/* Killed at call k of the second save; true when there are fewer calls. */
static bool killed_at(const course *c, const char *run, size_t k)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lesson l;
        char first[600], second[600];
        snprintf(first, sizeof(first), "%s/step-1", run);
        snprintf(second, sizeof(second), "%s/step-2", run);
        course_init(&l, c, first);
        lesson_steps(&l, 1);
        disk_arm(k, DISK_KILLS);
        bauta_status status = bauta_trainer_save(l.trainer, second, NULL, NULL);
        _exit(status || disk_disarm() ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    else
        assert_int_equal(WTERMSIG(status), SIGKILL);
    return WIFEXITED(status);
}

static void a_program_may_die_at_every_call(void **state)
{
    (void)state;
    scratch s = scratch_create();
    const course *c = &courses[0];
    lesson one, two;
    size_t k = 0, seconds = 0;
    course_init(&one, c, NULL);
    course_init(&two, c, NULL);
    lesson_steps(&one, 1);
    lesson_steps(&two, 2);
    save(&one, scratch_path(&s, "step-1"));
    for (bool done = false; !done; k++) {
        char *last;
        bauta_error err;
        done = killed_at(c, s.folder, k);
        must(bauta_run_last(&last, s.folder, &err), &err);
        bool second = strcmp(strrchr(last, '/') + 1, "step-2") == 0;
        assert_true(second || !done);
        // Checked in full at every eighth and at the interesting ones.
        if (second || k % 8 == 0)
            is_whole(c, second ? &two : &one, last);
        seconds += second;
        if (second)
            scratch_remove(last);
        bauta_text_free(last);
    }
    printf("killed at %zu calls, after the last rename at %zu\n", k - 1,
           seconds - 1);
    lesson_release(&one);
    lesson_release(&two);
    scratch_free(&s);
}

/* Steps and saves from the last checkpoint on, until the end. */
static void child_run(const course *c, const char *run)
{
    lesson l;
    char *last;
    if (bauta_run_last(&last, run, NULL))
        _exit(2);
    course_init(&l, c, last);
    for (size_t at = bauta_trainer_steps(l.trainer); at < STEPS;) {
        char folder[600];
        if (bauta_trainer_step(l.trainer, NULL, NULL))
            _exit(3);
        snprintf(folder, sizeof(folder), "%s/step-%zu", run, ++at);
        if (bauta_trainer_save(l.trainer, folder, NULL, NULL))
            _exit(4);
    }
    _exit(0);
}

/* Run until killed after some time; true when it came to its end. */
static bool child_killed(const course *c, const char *run, useconds_t time)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        child_run(c, run);
    usleep(time);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFEXITED(status);
}

static void a_program_may_be_killed_at_any_time(void **state)
{
    (void)state;
    enum { KILLS = 50 };
    test_random r = test_random_from(seed + 1);
    size_t kills = 0, runs = 0;
    for (; kills < KILLS; runs++) {
        const course *c = &courses[runs % BT_LEN(courses)];
        scratch s = scratch_create();
        lesson whole, last;
        char *folder;
        bauta_error err;
        // Longer and longer, so that it comes to an end on a busy machine.
        for (useconds_t most = 4000;; most += most / 8, kills++)
            if (child_killed(c, s.folder, (useconds_t)test_below(&r, most)))
                break;
        must(bauta_run_last(&folder, s.folder, &err), &err);
        course_init(&last, c, folder);
        assert_int_equal(bauta_trainer_steps(last.trainer), STEPS);
        course_init(&whole, c, NULL);
        lesson_steps(&whole, STEPS);
        lesson_same(&whole, &last);
        bauta_text_free(folder);
        lesson_release(&whole);
        lesson_release(&last);
        scratch_free(&s);
    }
    printf("%zu runs, killed %zu times\n", runs, kills);
}

/* ---- averages ------------------------------------------------------------ */

static void the_mean_of_models_is_a_model(void **state)
{
    (void)state;
    scratch s = scratch_create();
    lesson l;
    char paths[3][512];
    const char *folders[3];
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_error err;
    course_init(&l, &courses[0], NULL);
    size_t floats = l.model->folder->floats;
    double *sums = calloc(floats, sizeof(*sums));
    assert_non_null(sums);
    for (size_t i = 0; i < 3; i++) {
        lesson_steps(&l, 2);
        snprintf(paths[i], sizeof(paths[i]), "%s/step-%zu", s.folder,
                 2 * i + 2);
        save(&l, paths[i]);
        folders[i] = paths[i];
        for (size_t j = 0; j < floats; j++)
            sums[j] += (double)l.model->folder->memory[j];
    }
    const char *out = scratch_path(&s, "mean");
    must(bauta_model_average(out, folders, 3, &err), &err);
    must(bauta_model_load(&model, out, true, &err), &err);
    must(bauta_tokenizer_load(&tokenizer, out, &err), &err);
    for (size_t j = 0; j < floats; j++)
        assert_true(model->folder->memory[j] == (float)(sums[j] / 3.0));
    bauta_tokenizer_free(tokenizer);
    bauta_model_free(model);
    // One, or one thrice, is that one.
    folders[0] = folders[1] = folders[2];
    for (size_t count = 1; count <= 3; count += 2) {
        char name[16];
        snprintf(name, sizeof(name), "same-%zu", count);
        must(bauta_model_average(scratch_path(&s, name), folders, count, &err),
             &err);
        must(bauta_model_load(&model, s.path, true, &err), &err);
        assert_memory_equal(model->folder->memory, l.model->folder->memory,
                            floats * sizeof(float));
        bauta_model_free(model);
    }
    free(sums);
    lesson_release(&l);
    scratch_free(&s);
}

static void a_mean_of_different_models_is_refused(void **state)
{
    (void)state;
    scratch s = scratch_create();
    char gpt2[512], llama[512], wide[512];
    bauta_error err;
    lesson l;
    bauta_model *model;
    course_init(&l, &courses[0], NULL);
    snprintf(gpt2, sizeof(gpt2), "%s", scratch_path(&s, "gpt2"));
    snprintf(llama, sizeof(llama), "%s", scratch_path(&s, "llama"));
    snprintf(wide, sizeof(wide), "%s", scratch_path(&s, "wide"));
    save(&l, gpt2);
    lesson_release(&l);
    course_init(&l, &courses[3], NULL);
    save(&l, llama);
    lesson_release(&l);
    must(bauta_model_create(&model,
                            "{\"model_type\": \"gpt2\", \"n_embd\": 16, "
                            "\"n_head\": 2, \"n_layer\": 2, \"vocab_size\": "
                            "41, \"n_positions\": 96}",
                            1, &err),
         &err);
    must(bauta_model_save(model, wide, &err), &err);
    bauta_model_free(model);
    const char *out = scratch_path(&s, "out");
    const char *mixed[] = { gpt2, llama }, *shapes[] = { gpt2, wide };
    const char *nowhere[] = { gpt2, "/nowhere" };
    assert_int_equal(bauta_model_average(out, mixed, 2, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "another kind of model"));
    assert_int_equal(bauta_model_average(out, shapes, 2, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "wte.weight differs"));
    assert_int_equal(bauta_model_average(out, nowhere, 2, &err), BAUTA_ERR_IO);
    assert_int_equal(bauta_model_average(out, mixed, 0, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_model_average(gpt2, mixed, 1, &err), BAUTA_ERR_IO);
    assert_int_equal(scratch_count(&s), 3);
    lesson_release(&l);

    bool failed = true;
    faults_begin();
    for (size_t k = 0; failed; k++) {
        faults_arm(k);
        bauta_status status = bauta_model_average(out, mixed, 1, &err);
        failed = faults_disarm();
        assert_int_equal(status, failed ? BAUTA_ERR_NOMEM : BAUTA_OK);
        assert_int_equal(scratch_count(&s), failed ? 3 : 4);
    }
    assert_int_equal(faults_end(), 0);
    scratch_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_is_the_run_that_never_stopped),
        cmocka_unit_test(a_run_may_stop_at_every_step),
        cmocka_unit_test(what_does_not_matter_may_differ),
        cmocka_unit_test(a_checkpoint_is_a_model_folder),
        cmocka_unit_test(notes_come_back),
        cmocka_unit_test(the_last_whole_checkpoint_is_found),
        cmocka_unit_test(a_run_stands_for_its_model),
        cmocka_unit_test(options_that_differ_are_refused_by_name),
        cmocka_unit_test(another_corpus_or_model_is_refused),
        cmocka_unit_test(another_tokenizer_is_refused_where_it_matters),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(impossible_records_are_refused),
        cmocka_unit_test(tensors_of_another_run_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_call_to_the_disk_may_fail),
        cmocka_unit_test(files_that_may_not_grow_leave_nothing),
        cmocka_unit_test(a_program_may_die_at_every_call),
        cmocka_unit_test(a_program_may_be_killed_at_any_time),
        cmocka_unit_test(the_mean_of_models_is_a_model),
        cmocka_unit_test(a_mean_of_different_models_is_refused),
    };
    seed = test_seed();
    // Thousands of files are made durable, which memory is faster at.
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
