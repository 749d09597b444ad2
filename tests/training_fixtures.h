/* SPDX-License-Identifier: Apache-2.0 */
/* training_fixtures.h - runs of every objective and mode, to be saved and
 * resumed. */
#ifndef BT_TEST_TRAINING_FIXTURES_H
#define BT_TEST_TRAINING_FIXTURES_H

#include "tiny_training.h"

enum { STEPS = 14 };

typedef struct training_case {
    const char *family;
    bauta_objective objective;
    bauta_train_mode mode;
    double average;
} training_case;

/* Every objective and mode, with and without an average. */
static const training_case training_cases[] = {
    { "gpt2", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_PARALLEL, 0.9 },
    { "bert", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_PARALLEL, 0.0 },
    { "marian", BAUTA_OBJECTIVE_AUTO, BAUTA_MODE_SCHEDULED, 0.99 },
    { "llama", BAUTA_OBJECTIVE_PREFIX, BAUTA_MODE_PARALLEL, 0.0 },
    { "qwen3", BAUTA_OBJECTIVE_CAUSAL, BAUTA_MODE_FREE, 0.0 },
};

/* Epochs of about five steps. */
static inline bauta_train_options options_of(const training_case *c)
{
    bauta_train_options o = tiny_train_options();
    o.objective = c->objective;
    o.mode = c->mode;
    o.ema_decay = c->average;
    o.batch_tokens = strcmp(c->family, "marian") == 0 ? 60 : 130;
    o.dropout = 0.1f;
    o.max_steps = STEPS;
    return o;
}

/* A new run, or the one in `folder` with its state. */
static inline void training_case_init(training_run *l, const training_case *c,
                                      const char *folder)
{
    bauta_train_options o = options_of(c);
    bauta_error err;
    training_run_init(l, c->family, folder, &o, 1, NULL);
    if (folder)
        must(bauta_trainer_resume(l->trainer, folder, &err), &err);
}

static inline void save(const training_run *l, const char *folder)
{
    bauta_error err;
    must(bauta_trainer_save(l->trainer, folder, NULL, &err), &err);
}

/* A trainer that cannot be resumed stays unchanged. */
static inline void refused(training_run *l, const char *folder,
                           bauta_status status, const char *message)
{
    bauta_error err = { 0 };
    size_t steps = bauta_trainer_steps(l->trainer);
    size_t updates = bt_optimizer_steps(l->trainer->optimizer);
    bauta_status got = bauta_trainer_resume(l->trainer, folder, &err);
    if (got != status || !strstr(err.message, message))
        fail_msg("status %d, \"%s\", not %d, \"%s\"", got, err.message, status,
                 message);
    assert_int_equal(bauta_trainer_steps(l->trainer), steps);
    assert_int_equal(bt_optimizer_steps(l->trainer->optimizer), updates);
}

/* ---- files --------------------------------------------------------------- */

typedef struct text_file {
    char *bytes;
    size_t size;
} text_file;

static inline text_file file_load(const char *folder, const char *name)
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
    f.bytes[f.size] = '\0';
    return f;
}

static inline void file_store(const char *folder, const char *name,
                              const void *bytes, size_t size)
{
    char path[700];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

#endif
