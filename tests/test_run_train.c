/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_train.c - bauta_run_train(): best, patience, keep, average; a run
 * that is stopped and resumed at every step leaves the same files. */
#include "allocation_faults.h"
#include "bauta.h"
#include "tiny_training.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* Callbacks count here. */
typedef struct listener {
    size_t steps, evaluations, saves, warnings;
    size_t stop_at; /* step after which should_stop is true; 0: never */
    size_t at;
    bauta_status step_fails, evaluate_fails;
} listener;

static bauta_status on_step(void *user, const bauta_train_report *report,
                            double seconds)
{
    listener *l = user;
    assert_true(seconds >= 0.0);
    l->steps++;
    l->at = report->step;
    return l->step_fails;
}

static bauta_status on_evaluate(void *user, const bauta_run_evaluation *e)
{
    listener *l = user;
    assert_int_equal(e->step, l->at);
    assert_true(isfinite(e->loss) && e->counted > 0);
    l->evaluations++;
    return l->evaluate_fails;
}

static void on_save(void *user, size_t step, const char *folder)
{
    listener *l = user;
    struct stat is;
    assert_int_equal(step, l->at);
    assert_int_equal(stat(folder, &is), 0);
    l->saves++;
}

static void on_warning(void *user, const char *message)
{
    listener *l = user;
    assert_true(message[0]);
    l->warnings++;
}

static bool should_stop(void *user)
{
    const listener *l = user;
    return l->stop_at && l->at >= l->stop_at;
}

static bauta_run_options run_options(listener *l)
{
    bauta_run_options o = BAUTA_RUN_OPTIONS_INIT;
    o.eval_steps = 3;
    o.save_steps = 2;
    o.save_total_limit = 2;
    o.user = l;
    o.on_step = on_step;
    o.on_evaluate = on_evaluate;
    o.on_save = on_save;
    o.on_warning = on_warning;
    o.should_stop = should_stop;
    return o;
}

static bauta_train_options train_options(size_t steps)
{
    bauta_train_options o = tiny_train_options();
    o.max_steps = steps;
    o.warmup_steps = 2;
    o.dropout = 0.1f;
    o.ema_decay = 0.9;
    return o;
}

/* One call of bauta_run_train() in a folder, in a process of its own as far as
 * the library is concerned. */
static bauta_run_result train_once(const char *folder,
                                   const bauta_train_options *train,
                                   const bauta_run_options *o)
{
    training_run l;
    bauta_run *run = NULL;
    bauta_run_result result = BAUTA_RUN_RESULT_INIT;
    bauta_error err;
    size_t resumed = 99;
    training_run_init(&l, "gpt2", NULL, train, 1, NULL);
    bauta_corpus *validation = tiny_texts(8, 6, 20, 3);
    must(bauta_run_open(&run, folder, true, &err), &err);
    must(bauta_run_resume(run, l.trainer, 0, &resumed, &err), &err);
    assert_int_equal(resumed, bauta_trainer_steps(l.trainer));
    must(bauta_run_train(run, l.trainer, validation, o, &result, &err), &err);
    assert_int_equal(result.step, bauta_trainer_steps(l.trainer));
    bauta_run_free(run);
    bauta_corpus_free(validation);
    training_run_release(&l);
    return result;
}

/* ---- comparing folders ------------------------------------------------- */

static char *file_text(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = malloc(1 << 20);
    if (!file)
        fail_msg("%s is missing", path);
    assert_non_null(text);
    *size = fread(text, 1, (1 << 20) - 1, file);
    text[*size] = '\0';
    assert_true(*size < (1 << 20) - 1);
    fclose(file);
    return text;
}

/* Cut the seconds, which are the last member, out of every line. */
static void seconds_cut(char *text, size_t *size)
{
    char *to = text;
    for (char *line = text; *line;) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        char *seconds = strstr(line, ",\"seconds\"");
        size_t length = seconds ? (size_t)(seconds - line) : strlen(line);
        memmove(to, line, length);
        to[length] = '\n';
        to += length + 1;
        line = end + 1;
    }
    *size = (size_t)(to - text);
}

static void file_same(const char *a, const char *b, const char *name)
{
    size_t m, n;
    char *x = file_text(a, &m), *y = file_text(b, &n);
    if (strcmp(name, "metrics.jsonl") == 0) {
        seconds_cut(x, &m);
        seconds_cut(y, &n);
    }
    if (m != n || memcmp(x, y, n) != 0)
        fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

/* The same names in both, and the same bytes in every file. */
static size_t folder_same(const char *a, const char *b)
{
    DIR *entries = opendir(a);
    size_t count = 0;
    assert_non_null(entries);
    for (struct dirent *e; (e = readdir(entries));) {
        char x[600], y[600], to[2][64] = { "", "" };
        struct stat is;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(x, sizeof(x), "%s/%s", a, e->d_name);
        snprintf(y, sizeof(y), "%s/%s", b, e->d_name);
        count++;
        assert_int_equal(lstat(x, &is), 0);
        if (S_ISLNK(is.st_mode)) {
            assert_true(readlink(x, to[0], sizeof(to[0]) - 1) > 0);
            assert_true(readlink(y, to[1], sizeof(to[1]) - 1) > 0);
            assert_string_equal(to[0], to[1]);
        } else if (S_ISDIR(is.st_mode)) {
            assert_int_equal(folder_same(x, y), folder_same(y, x));
        } else {
            file_same(x, y, e->d_name);
        }
    }
    closedir(entries);
    return count;
}

static bool has(const char *folder, const char *name)
{
    char path[600];
    struct stat is;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return stat(path, &is) == 0;
}

/* ---- runs -------------------------------------------------------------- */

enum { RUN_STEPS = 11 };

static void stopped_and_resumed_is_uninterrupted(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    char whole[512], parts[512];
    listener w = { 0 };
    bauta_train_options train = train_options(RUN_STEPS);
    bauta_run_options o = run_options(&w);
    o.save_total_limit = 0; // every checkpoint is compared
    o.save_steps = 1;
    o.average_checkpoints = 3;
    o.notes = "{\"mine\": [1, 2.5, \"x\"]}";
    snprintf(whole, sizeof(whole), "%s", temp_folder_path(&s, "whole"));
    snprintf(parts, sizeof(parts), "%s", temp_folder_path(&s, "parts"));
    bauta_run_result a = train_once(whole, &train, &o);
    assert_int_equal(a.ending, BAUTA_RUN_DONE);
    assert_int_equal(w.steps, RUN_STEPS);
    assert_int_equal(w.evaluations, RUN_STEPS / 3 + 1);
    assert_int_equal(w.saves, RUN_STEPS);
    assert_int_equal(a.averaged, 3);
    assert_true(isfinite(a.average_loss));
    for (size_t step = 1; step < RUN_STEPS; step++) {
        listener l = { .stop_at = step };
        o.user = &l;
        bauta_run_result b = train_once(parts, &train, &o);
        assert_int_equal(b.ending, BAUTA_RUN_STOPPED);
        assert_int_equal(b.step, step);
        assert_int_equal(b.saved_step, step);
        assert_int_equal(l.steps, 1);
        assert_int_equal(b.averaged, 0);
    }
    listener l = { 0 };
    o.user = &l;
    bauta_run_result b = train_once(parts, &train, &o);
    assert_true(a.loss == b.loss && a.eval_loss == b.eval_loss &&
                a.best_loss == b.best_loss && a.average_loss == b.average_loss);
    assert_int_equal(a.best_step, b.best_step);
    assert_int_equal(a.stale, b.stale);
    // Checkpoints, links, metrics.jsonl and the average.
    assert_int_equal(folder_same(whole, parts), RUN_STEPS + 4);
    assert_int_equal(folder_same(parts, whole), RUN_STEPS + 4);
    temp_folder_free(&s);
}

static void a_run_that_is_done_takes_no_step(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    listener l = { 0 };
    bauta_train_options train = train_options(4);
    bauta_run_options o = run_options(&l);
    (void)train_once(s.folder, &train, &o);
    l = (listener){ 0 };
    bauta_run_result r = train_once(s.folder, &train, &o);
    assert_int_equal(r.ending, BAUTA_RUN_DONE);
    assert_int_equal(l.steps + l.evaluations + l.saves, 0);
    assert_true(isnan(r.loss) && isnan(r.eval_loss));
    assert_true(isfinite(r.best_loss));
    o.max_steps = 6; // more than the trainer's own
    r = train_once(s.folder, &train, &o);
    assert_int_equal(r.step, 6);
    assert_int_equal(l.steps, 2);
    temp_folder_free(&s);
}

static void old_checkpoints_are_removed_but_the_best(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    listener l = { 0 };
    bauta_train_options train = train_options(12);
    bauta_run_options o = run_options(&l);
    char best[64] = "", name[32];
    train.learning_rate = 3.0; // soon worse than at the start
    train.ema_decay = 0.0;
    o.eval_steps = o.save_steps = 1;
    bauta_run_result r = train_once(s.folder, &train, &o);
    assert_true(r.best_step > 0 && r.best_step < 11);
    assert_int_equal(r.stale, 12 - r.best_step);
    snprintf(name, sizeof(name), "step-%08zu", r.best_step);
    assert_true(readlink(temp_folder_path(&s, "best"), best, 63) > 0);
    assert_string_equal(best, name);
    assert_true(has(s.folder, "best") && has(s.folder, "last"));
    assert_true(has(s.folder, "step-00000012") &&
                has(s.folder, "step-00000011"));
    // Three checkpoints, two links and metrics.jsonl.
    assert_int_equal(temp_folder_count(&s), 6);
    assert_int_equal(l.warnings, 0);
    temp_folder_free(&s);
}

static void a_checkpoint_that_cannot_go_is_a_warning(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    listener l = { .stop_at = 2 };
    bauta_train_options train = train_options(12);
    bauta_run_options o = run_options(&l);
    train.learning_rate = 3.0;
    (void)train_once(s.folder, &train, &o);
    temp_folder_write(&s, "step-00000002/mine", "x", 1);
    l.stop_at = 0;
    (void)train_once(s.folder, &train, &o);
    assert_int_equal(l.warnings, 1);
    assert_true(has(s.folder, "step-00000002/mine"));
    temp_folder_free(&s);
}

static void patience_ends_a_run(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    listener l = { 0 };
    bauta_train_options train = train_options(40);
    bauta_run_options o = run_options(&l);
    train.learning_rate = 3.0;
    train.ema_decay = 0.0;
    o.eval_steps = 1;
    o.early_stopping_patience = 3;
    bauta_run_result r = train_once(s.folder, &train, &o);
    assert_int_equal(r.ending, BAUTA_RUN_EARLY_STOPPING);
    assert_int_equal(r.stale, 3);
    assert_int_equal(r.step, r.best_step + 3);
    assert_true(r.step < 40);
    assert_int_equal(r.saved_step, r.step);
    temp_folder_free(&s);
}

static void limits_by_epochs_and_minutes(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    listener l = { 0 };
    bauta_train_options train = train_options(1000);
    bauta_run_options o = run_options(&l);
    o.num_train_epochs = 1.0;
    bauta_run_result r = train_once(s.folder, &train, &o);
    assert_int_equal(r.ending, BAUTA_RUN_DONE);
    assert_true(r.step > 3 && r.step < 100);
    training_run first;
    training_run_init(&first, "gpt2", NULL, &train, 1, NULL);
    assert_int_equal(r.step, bauta_trainer_epoch_steps(first.trainer));
    training_run_release(&first);
    o.num_train_epochs = 0.0;
    o.max_minutes = 1e-9;
    bauta_run_result t = train_once(s.folder, &train, &o);
    assert_int_equal(t.ending, BAUTA_RUN_TIME);
    assert_int_equal(t.step, r.step + 1);
    assert_int_equal(t.saved_step, t.step);
    temp_folder_free(&s);
}

static void a_run_needs_neither_options_nor_validation(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run l;
    bauta_run *run = NULL;
    bauta_error err;
    bauta_train_options train = train_options(3);
    training_run_init(&l, "bert", NULL, &train, 1, NULL);
    must(bauta_run_open(&run, s.folder, false, &err), &err);
    must(bauta_run_train(run, l.trainer, NULL, NULL, NULL, &err), &err);
    bauta_run_free(run);
    assert_true(has(s.folder, "last/optimizer.safetensors"));
    assert_true(has(s.folder, "average/model.safetensors")); // ema_decay
    assert_false(has(s.folder, "best"));
    training_run_release(&l);
    temp_folder_free(&s);
}

/* ---- resuming ---------------------------------------------------------- */

static void damage(temp_folder *s, const char *name)
{
    FILE *file = fopen(temp_folder_path(s, name), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -8, SEEK_END), 0);
    assert_true(fwrite("damaged", 7, 1, file) == 1);
    assert_int_equal(fclose(file), 0);
}

static void a_damaged_checkpoint_falls_back_to_the_one_before(void **state)
{
    (void)state;
    static const char *const files[] = { "model.safetensors",
                                         "optimizer.safetensors",
                                         "trainer.json" };
    bauta_train_options train = train_options(6);
    for (size_t i = 0; i < BT_LEN(files); i++) {
        temp_folder s = temp_folder_create();
        listener l = { 0 };
        bauta_run_options o = run_options(&l);
        char name[64];
        training_run a, b;
        bauta_run *run = NULL;
        bauta_error err;
        size_t resumed = 0;
        (void)train_once(s.folder, &train, &o);
        snprintf(name, sizeof(name), "step-00000006/%s", files[i]);
        damage(&s, name);
        training_run_init(&a, "gpt2", NULL, &train, 1, NULL);
        training_run_init(&b, "gpt2", NULL, &train, 1, NULL);
        must(bauta_run_open(&run, s.folder, false, &err), &err);
        assert_int_not_equal(bauta_run_resume(run, a.trainer, 6, NULL, &err),
                             BAUTA_OK);
        assert_non_null(strstr(err.message, files[i]));
        training_run_same(&a, &b); // unchanged by the failure
        assert_int_equal(bauta_trainer_steps(a.trainer), 0);
        must(bauta_run_resume(run, a.trainer, 0, &resumed, &err), &err);
        assert_int_equal(resumed, 4);
        must(bauta_run_resume(run, b.trainer, 4, &resumed, &err), &err);
        training_run_same(&a, &b);
        bauta_run_free(run);
        training_run_release(&a);
        training_run_release(&b);
        temp_folder_free(&s);
    }
}

static void going_back_forgets_what_came_after(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    listener l = { 0 };
    bauta_train_options train = train_options(6);
    bauta_run_options o = run_options(&l);
    training_run a;
    bauta_run *run = NULL;
    bauta_error err;
    size_t size;
    o.save_total_limit = 0;
    (void)train_once(s.folder, &train, &o);
    char *before = file_text(temp_folder_path(&s, "metrics.jsonl"), &size);
    training_run_init(&a, "gpt2", NULL, &train, 1, NULL);
    must(bauta_run_open(&run, s.folder, false, &err), &err);
    must(bauta_run_resume(run, a.trainer, 2, NULL, &err), &err);
    l = (listener){ .stop_at = 3 };
    must(bauta_run_train(run, a.trainer, NULL, &o, NULL, &err), &err);
    bauta_run_free(run);
    training_run_release(&a);
    char *after = file_text(temp_folder_path(&s, "metrics.jsonl"), &size);
    assert_non_null(strstr(before, "{\"step\":4,"));
    assert_non_null(strstr(after, "{\"step\":3,"));
    assert_null(strstr(after, "{\"step\":4,"));
    assert_false(has(s.folder, "best")); // no evaluation up to step 3
    free(before);
    free(after);
    temp_folder_free(&s);
}

static void checkpoints_are_found_by_step(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    listener l = { 0 };
    bauta_train_options train = train_options(6);
    bauta_run_options o = run_options(&l);
    char *folder = NULL;
    size_t step = 9;
    bauta_error err;
    must(bauta_run_checkpoint(&folder, &step, s.folder, SIZE_MAX, &err), &err);
    assert_null(folder);
    assert_int_equal(step, 0);
    o.save_total_limit = 0;
    (void)train_once(s.folder, &train, &o);
    for (size_t most = 6; most >= 4; most--) {
        must(bauta_run_checkpoint(&folder, &step, s.folder, most, &err), &err);
        assert_int_equal(step, most / 2 * 2);
        assert_true(has(folder, "trainer.json"));
        bauta_text_free(folder);
    }
    assert_int_equal(bauta_run_checkpoint(&folder, &step,
                                          temp_folder_path(&s, "nowhere"), 1,
                                          &err),
                     BAUTA_ERR_IO);
    assert_non_null(strstr(err.message, "nowhere"));
    temp_folder_free(&s);
}

/* ---- errors ------------------------------------------------------------ */

static void callbacks_end_a_run(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        temp_folder s = temp_folder_create();
        training_run a;
        listener l = { 0 };
        bauta_train_options train = train_options(6);
        bauta_run_options o = run_options(&l);
        bauta_run_result r = BAUTA_RUN_RESULT_INIT;
        bauta_run *run = NULL;
        bauta_error err;
        *(which ? &l.evaluate_fails : &l.step_fails) = BAUTA_ERR_UNSUPPORTED;
        training_run_init(&a, "gpt2", NULL, &train, 1, NULL);
        must(bauta_run_open(&run, s.folder, false, &err), &err);
        assert_int_equal(
            bauta_run_train(run, a.trainer, a.corpus, &o, &r, &err),
            BAUTA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, which ? "on_evaluate" : "on_step"));
        assert_int_equal(r.step, which ? 3 : 1);
        assert_int_equal(r.saved_step, which ? 2 : 0);
        bauta_run_free(run);
        training_run_release(&a);
        temp_folder_free(&s);
    }
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    training_run a;
    bauta_train_options train = train_options(2);
    bauta_run_options o = BAUTA_RUN_OPTIONS_INIT;
    bauta_run_result r = BAUTA_RUN_RESULT_INIT;
    bauta_run *run = NULL;
    bauta_error e;
    char *folder;
    size_t step;
    training_run_init(&a, "gpt2", NULL, &train, 1, NULL);
    must(bauta_run_open(&run, s.folder, false, &e), &e);
#define REFUSED(call, says)                                          \
    do {                                                             \
        assert_int_equal(call, BAUTA_ERR_ARGUMENT);                  \
        if (!strstr(e.message, says))                                \
            fail_msg("\"%s\" does not say \"%s\"", e.message, says); \
    } while (0)
    REFUSED(bauta_run_train(NULL, a.trainer, NULL, &o, &r, &e), "run");
    REFUSED(bauta_run_train(run, NULL, NULL, &o, &r, &e), "trainer");
    o.max_minutes = -1.0;
    REFUSED(bauta_run_train(run, a.trainer, NULL, &o, &r, &e), "max_minutes");
    o.max_minutes = 0.0;
    o.num_train_epochs = (double)NAN;
    REFUSED(bauta_run_train(run, a.trainer, NULL, &o, &r, &e), "epochs");
    o.num_train_epochs = 0.0;
    o.notes = "[1]";
    REFUSED(bauta_run_train(run, a.trainer, NULL, &o, &r, &e), "the notes");
    o.size = 5;
    REFUSED(bauta_run_train(run, a.trainer, NULL, &o, &r, &e), "size");
    r.size = 5;
    REFUSED(bauta_run_train(run, a.trainer, NULL, NULL, &r, &e), "size");
    REFUSED(bauta_run_resume(NULL, a.trainer, 0, NULL, &e), "run");
    REFUSED(bauta_run_resume(run, NULL, 0, NULL, &e), "trainer");
    REFUSED(bauta_run_resume(run, a.trainer, 7, NULL, &e), "of step 7");
    REFUSED(bauta_run_checkpoint(NULL, &step, s.folder, 1, &e), "folder");
    REFUSED(bauta_run_checkpoint(&folder, NULL, s.folder, 1, &e), "step");
    REFUSED(bauta_run_checkpoint(&folder, &step, NULL, 1, &e), "run");
    REFUSED(bauta_run_write(NULL, "x", "", 0, &e), "run");
    REFUSED(bauta_run_write(run, NULL, "", 0, &e), "name");
    REFUSED(bauta_run_write(run, "x", NULL, 1, &e), "bytes");
    REFUSED(bauta_run_write(run, "a/b", "", 0, &e), "'a/b'");
    REFUSED(bauta_run_write(run, "..", "", 0, &e), "'..'");
    REFUSED(bauta_run_write(run, "", "", 0, &e), "''");
    assert_int_equal(bauta_trainer_steps(a.trainer), 0);
    bauta_run_free(run);
    assert_int_equal(temp_folder_count(&s), 0);
    training_run_release(&a);
    temp_folder_free(&s);
}

static void files_of_a_run_are_replaced_whole(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_run *run = NULL;
    bauta_error err;
    size_t size;
    must(bauta_run_open(&run, s.folder, false, &err), &err);
    assert_int_equal(symlink("elsewhere", temp_folder_path(&s, "file")), 0);
    must(bauta_run_write(run, "file", "one", 3, &err), &err);
    must(bauta_run_write(run, "file", "two", 3, &err), &err);
    bauta_run_free(run);
    char *text = file_text(temp_folder_path(&s, "file"), &size);
    assert_string_equal(text, "two");
    free(text);
    assert_false(has(s.folder, "elsewhere")); // a link is not followed
    assert_int_equal(temp_folder_count(&s), 1);
    temp_folder_free(&s);
}

/* Allocations of a short run fail, one in each attempt. A failure to remove old
 * checkpoints is only a warning. */
static void memory_that_runs_out_is_a_status(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    bauta_train_options train = train_options(2);
    size_t failures = 0;
    faults_begin();
    for (size_t k = 0;; k += 1 + k / 3) {
        training_run a;
        listener l = { 0 };
        bauta_run_options o = run_options(&l);
        bauta_run *run = NULL;
        bauta_error err = { 0 };
        char name[32];
        snprintf(name, sizeof(name), "run-%zu", k);
        training_run_init(&a, "gpt2", NULL, &train, 1, NULL);
        must(bauta_run_open(&run, temp_folder_path(&s, name), true, &err),
             &err);
        faults_arm(k);
        bauta_status status =
            bauta_run_train(run, a.trainer, a.corpus, &o, NULL, &err);
        bool failed = faults_disarm();
        if (!failed)
            assert_int_equal(status, BAUTA_OK);
        else if (status)
            assert_true(status == BAUTA_ERR_NOMEM && err.message[0]);
        bauta_run_free(run);
        training_run_release(&a);
        if (!failed)
            break;
        failures++;
    }
    assert_true(failures > 10);
    assert_int_equal(faults_end(), 0);
    temp_folder_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_and_resumed_is_uninterrupted),
        cmocka_unit_test(a_run_that_is_done_takes_no_step),
        cmocka_unit_test(old_checkpoints_are_removed_but_the_best),
        cmocka_unit_test(a_checkpoint_that_cannot_go_is_a_warning),
        cmocka_unit_test(patience_ends_a_run),
        cmocka_unit_test(limits_by_epochs_and_minutes),
        cmocka_unit_test(a_run_needs_neither_options_nor_validation),
        cmocka_unit_test(a_damaged_checkpoint_falls_back_to_the_one_before),
        cmocka_unit_test(going_back_forgets_what_came_after),
        cmocka_unit_test(checkpoints_are_found_by_step),
        cmocka_unit_test(callbacks_end_a_run),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(files_of_a_run_are_replaced_whole),
        cmocka_unit_test(memory_that_runs_out_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
