/* SPDX-License-Identifier: Apache-2.0 */
/* train_run.c - bauta train: the training loop. */
#include "cli.h"
#include "format.h"
#include "json_output.h"
#include "train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAD_MAX = 10 }; /* steps in a row whose gradients are not finite */

typedef enum ending { RUNNING, DONE, STOPPED, STALE } ending;

typedef struct run {
    train_job *job;
    const settings *s;
    progress *p;
    run_folder *at;
    const char *folder; /* its path */
    train_log *log;
    train_display display;
    double began;
    double loss, valid, averaged; /* NaN: unknown */
    size_t bad, saved;            /* saved: the step of the last checkpoint */
    ending ending;
} run;

/* ---- signals ----------------------------------------------------------- */

static volatile sig_atomic_t stop_requested;

/* The first signal stops after the current step, the second at once. SIGPIPE
 * and SIGHUP print nothing, and may come any number of times. */
static void on_signal(int number)
{
    static const char text[] =
        "\nstopping after this step; again to stop at once\n";
    if (number == SIGPIPE || number == SIGHUP) {
        stop_requested = 1;
        return;
    }
    if (stop_requested++) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)written;
}

static void signals_catch(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
    struct sigaction action = { .sa_handler = on_signal }, before;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        bool ignorable = numbers[i] == SIGHUP || numbers[i] == SIGPIPE;
        // nohup: stay ignored.
        if (ignorable && sigaction(numbers[i], NULL, &before) == 0 &&
            before.sa_handler == SIG_IGN)
            continue;
        sigaction(numbers[i], &action, NULL);
    }
}

/* ---- a checkpoint ------------------------------------------------------ */

/* Remove an old checkpoint of the same step: the rest of an interrupted
 * removal, or one that a run resumed from an earlier step reaches again. */
static int checkpoint_clear(const char *path)
{
    bauta_error err;
    return bauta_checkpoint_remove(path, &err) ? train_failed(&err) : CLI_OK;
}

static int checkpoint_write(const run *r, const char *path)
{
    bauta_error err = { .message = "out of memory" };
    char *notes = notes_write(r->s, r->p);
    bauta_status status =
        notes ? bauta_trainer_save(r->job->trainer, path, notes, &err)
              : BAUTA_ERR_NOMEM;
    free(notes);
    if (status && r->saved)
        return cli_fail(VERB, "%s; the checkpoint of step %zu is complete",
                        err.message, r->saved);
    return status ? train_failed(&err) : CLI_OK;
}

static int save(run *r)
{
    size_t step = bauta_trainer_steps(r->job->trainer);
    size_t keep = r->s->keep > r->s->average ? r->s->keep : r->s->average;
    if (step == r->saved)
        return CLI_OK;
    char *path = checkpoint_path(r->folder, step);
    int failed =
        path ? checkpoint_clear(path) : cli_fail(VERB, "out of memory");
    if (!failed)
        failed = checkpoint_write(r, path);
    free(path);
    if (failed)
        return failed;
    r->saved = step;
    failed = folder_link(r->at, "last", step);
    if (!failed && r->p->best_step == step)
        failed = folder_link(r->at, "best", step);
    if (!failed)
        folder_prune(r->at, step, keep, r->p->best_step);
    return failed;
}

/* ---- validation -------------------------------------------------------- */

static void sample_show(run *r)
{
    char *text = sample_text(r->job);
    if (text)
        display_line(&r->display, "  sample: %s", text);
    free(text);
}

static void on_evaluate(void *user, size_t done, size_t all)
{
    display_validation(user, done, all);
}

static int validate(run *r, size_t step)
{
    bauta_error err;
    size_t counted = 0;
    if (bauta_trainer_evaluate(r->job->trainer, r->job->valid,
                               r->s->eval_tokens, &r->valid, &counted, &err))
        return train_failed(&err);
    if (counted == 0)
        return cli_fail(VERB, "the validation texts are empty, or too long for "
                              "the context");
    bool better = r->valid < r->p->best;
    if (better) {
        r->p->best = r->valid;
        r->p->best_step = step;
    }
    r->p->stale = better ? 0 : r->p->stale + 1;
    display_line(&r->display,
                 "step %zu  validation loss %.4f  perplexity %.2f%s", step,
                 r->valid, exp(r->valid), better ? "  (best)" : "");
    sample_show(r);
    if (r->ending == RUNNING && r->s->patience && r->p->stale >= r->s->patience)
        r->ending = STALE;
    return log_valid(r->log, step, r->valid, counted);
}

/* ---- a step ------------------------------------------------------------ */

static int bad_step(run *r, const bauta_train_report *report)
{
    if (report->updated || report->counted == 0) {
        r->bad = 0;
        return CLI_OK;
    }
    display_line(&r->display, "step %zu: skipped, the gradients are not finite",
                 report->step);
    if (++r->bad < BAD_MAX)
        return CLI_OK;
    return cli_fail(VERB,
                    "%d steps in a row had gradients that are not finite, the "
                    "last of them step %zu; try a smaller --learning-rate or "
                    "--max-grad-norm",
                    (int)BAD_MAX, report->step);
}

static int one_step(run *r)
{
    bauta_error err;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    double began = seconds_now();
    if (bauta_trainer_step(r->job->trainer, &report, &err))
        return train_failed(&err);
    double seconds = seconds_now() - began;
    r->loss = report.loss;
    int failed = log_step(r->log, &report, seconds);
    if (failed)
        return failed;
    display_step(&r->display, &report, seconds);
    return bad_step(r, &report);
}

static bool due(size_t step, size_t every)
{
    return every && step % every == 0;
}

/* Validate, save a checkpoint, or end the run, as due after a step. */
static int after_step(run *r)
{
    const settings *s = r->s;
    size_t step = bauta_trainer_steps(r->job->trainer);
    size_t save_every = s->save_every ? s->save_every : s->eval_every;
    int failed = CLI_OK;
    if (step >= s->train.max_steps)
        r->ending = DONE;
    if (r->job->valid && (due(step, s->eval_every) || r->ending == DONE))
        failed = validate(r, step);
    if (r->ending == RUNNING && stop_requested)
        r->ending = STOPPED;
    if (!failed && (due(step, save_every) || r->p->best_step == step ||
                    r->ending != RUNNING))
        failed = save(r);
    return failed;
}

/* ---- before the first step --------------------------------------------- */

static int audit_report(const bauta_audit *audit)
{
    double seconds = 0.0;
    for (size_t i = 0; i < bauta_audit_findings(audit); i++) {
        const bauta_finding *f = bauta_audit_finding(audit, i);
        seconds += f->seconds;
        if (f->verdict == BAUTA_FAILED)
            cli_fail(VERB, "audit: %s: %s", bauta_check_name(f->check),
                     f->message);
    }
    if (!bauta_audit_passed(audit))
        return cli_fail(VERB, "audit failed, so training was not started; use "
                              "--no-audit to train anyway");
    fprintf(stderr, "audit: passed (%zu checks, %.1f s)\n",
            bauta_audit_findings(audit), seconds);
    return CLI_OK;
}

/* Refuse to train a model that sees what it is to predict. */
static int audit_run(const run *r)
{
    bauta_error err;
    bauta_audit *audit = NULL;
    bauta_audit_options how = BAUTA_AUDIT_OPTIONS_INIT;
    if (r->s->no_audit)
        return CLI_OK;
    if (r->s->audit)
        how.checks = (1u << BAUTA_CHECKS) - 1;
    if (bauta_audit_trainer(&audit, r->job->trainer, &how, &err))
        return train_failed(&err);
    int failed = audit_report(audit);
    bauta_audit_free(audit);
    return failed;
}

static int loop(run *r, size_t step)
{
    int failed = log_open(&r->log, r->at, step);
    signals_catch();
    while (!failed && r->ending == RUNNING) {
        failed = one_step(r);
        if (!failed)
            failed = after_step(r);
    }
    display_end(&r->display);
    int closed = log_close(r->log);
    return failed ? failed : closed;
}

/* ---- the average ------------------------------------------------------- */

/* The validation loss of a folder's model. */
static int folder_validate(run *r, const char *folder, double *loss)
{
    bauta_error err;
    bauta_model *model = NULL;
    bauta_trainer *trainer = NULL;
    bauta_train_options options = r->s->train;
    options.ema_decay = 0.0;
    bauta_status status = bauta_model_load(&model, folder, true, &err);
    if (!status)
        status = bauta_trainer_create(&trainer, r->job->context, model,
                                      r->job->tokenizer, r->job->corpus,
                                      &options, &err);
    if (!status)
        bauta_trainer_on_evaluate(trainer, on_evaluate, &r->display);
    if (!status)
        status = bauta_trainer_evaluate(trainer, r->job->valid,
                                        r->s->eval_tokens, loss, NULL, &err);
    bauta_trainer_free(trainer);
    bauta_model_free(model);
    return status ? train_failed(&err) : CLI_OK;
}

static int average_write(run *r, const char *out, size_t *steps, size_t count)
{
    bauta_error err = { .message = "out of memory" };
    char **folders = calloc(count + 1, sizeof(*folders));
    bauta_status status = folders ? BAUTA_OK : BAUTA_ERR_NOMEM;
    for (size_t i = 0; !status && i < count; i++) {
        folders[i] = checkpoint_path(r->folder, steps[i]);
        status = folders[i] ? BAUTA_OK : BAUTA_ERR_NOMEM;
    }
    if (!status)
        status =
            bauta_model_average(out, (const char *const *)folders, count, &err);
    if (!status)
        status = bauta_tokenizer_save(r->job->tokenizer, out, &err);
    for (size_t i = 0; folders && i < count; i++)
        free(folders[i]);
    free(folders);
    return status ? train_failed(&err) : CLI_OK;
}

static int average(run *r)
{
    size_t *steps = calloc(r->s->average, sizeof(*steps));
    char *out = format_string("%s/average", r->folder);
    int failed = steps && out ? folder_remove(r->at, "average")
                              : cli_fail(VERB, "out of memory");
    if (!failed) {
        size_t count = folder_steps(r->at, bauta_trainer_steps(r->job->trainer),
                                    steps, r->s->average);
        failed = average_write(r, out, steps, count);
        if (!failed)
            fprintf(stderr, "%s: mean of %zu checkpoints\n", out, count);
    }
    if (!failed && r->job->valid)
        failed = folder_validate(r, out, &r->averaged);
    free(steps);
    free(out);
    return failed;
}

/* Write the weights that --ema-decay validated as a model folder. */
static int moving_average(const run *r)
{
    bauta_error err;
    char *out = format_string("%s/average", r->folder);
    int failed =
        out ? folder_remove(r->at, "average") : cli_fail(VERB, "out of memory");
    if (!failed && bauta_trainer_export(r->job->trainer, out, &err))
        failed = train_failed(&err);
    if (!failed)
        fprintf(stderr, "%s: moving average of the weights\n", out);
    free(out);
    return failed;
}

/* ---- the result -------------------------------------------------------- */

static int json_print(const run *r)
{
    static const char *const endings[] = { "", "done", "signal", "patience" };
    json_t *folder = json_string(r->folder);
    json_t *all = json_pack(
        "{s:o, s:s, s:I, s:I, s:f, s:o, s:o, s:o, s:I, s:o}", "run",
        folder ? folder : json_null(), "ended", endings[r->ending], "steps",
        (json_int_t)bauta_trainer_steps(r->job->trainer), "parameters",
        (json_int_t)bauta_model_parameter_count(r->job->model), "seconds",
        seconds_now() - r->began, "loss", json_number(r->loss), "valid_loss",
        json_number(r->valid), "best_loss", json_number(r->p->best),
        "best_step", (json_int_t)r->p->best_step, "average_loss",
        json_number(r->averaged));
    int failed = json_indented(VERB, all);
    return failed ? failed : cli_finish(VERB);
}

static int text_print(const run *r)
{
    char text[32];
    printf("%s: step %zu after %s", r->folder,
           bauta_trainer_steps(r->job->trainer),
           format_duration(text, seconds_now() - r->began));
    if (isfinite(r->loss))
        printf(", loss %.4f", r->loss);
    if (r->p->best_step)
        printf(", best validation loss %.4f at step %zu", r->p->best,
               r->p->best_step);
    if (isfinite(r->averaged))
        printf(", %.4f for the average", r->averaged);
    putchar('\n');
    return cli_finish(VERB);
}

static void end_report(const run *r)
{
    if (r->ending == STALE)
        fprintf(stderr, "no improvement in %zu validations\n", r->p->stale);
    else if (r->ending == STOPPED)
        fprintf(stderr,
                "stopped and saved; 'bauta train --resume %s' continues\n",
                r->folder);
}

/* Check before training that the notes fit into a checkpoint. */
static int notes_check(const settings *s, const progress *p)
{
    enum { NOTES_MAX = 200 << 10 }; // the limit of a checkpoint
    char *notes = notes_write(s, p);
    size_t size = notes ? strlen(notes) : 0;
    free(notes);
    if (!notes)
        return cli_fail(VERB, "out of memory");
    return size < NOTES_MAX
               ? CLI_OK
               : cli_fail(VERB,
                          "the names of %zu files are too long to be saved for "
                          "--resume; use fewer and larger files",
                          s->files.count + s->valid.count);
}

int train_run(train_job *job, settings *s, progress *p, run_folder *f)
{
    run r = { .job = job,
              .s = s,
              .p = p,
              .at = f,
              .folder = f->path,
              .began = seconds_now(),
              .loss = NAN,
              .valid = NAN,
              .averaged = NAN };
    size_t step = bauta_trainer_steps(job->trainer);
    r.saved = step;
    r.display = display_begin(step, s->train.max_steps);
    bauta_trainer_on_evaluate(job->trainer, on_evaluate, &r.display);
    int failed = notes_check(s, p);
    if (step >= s->train.max_steps) {
        fprintf(stderr, "all %zu steps are done; use --steps for more\n",
                s->train.max_steps);
        r.ending = DONE;
    } else if (!failed) {
        failed = audit_run(&r);
        if (!failed)
            failed = options_write(s, f);
        if (!failed)
            failed = loop(&r, step);
    }
    if (!failed && s->average && r.ending != STOPPED)
        failed = average(&r);
    else if (!failed && s->train.ema_decay > 0.0 && r.ending != STOPPED)
        failed = moving_average(&r);
    if (failed)
        return failed;
    end_report(&r);
    return s->json ? json_print(&r) : text_print(&r);
}
