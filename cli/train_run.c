/* SPDX-License-Identifier: Apache-2.0 */
/* train_run.c - bauta train: a run, with its display, signals and events. */
#include "cli.h"
#include "format.h"
#include "json_output.h"
#include "ranks.h"
#include "train.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct run {
    train_job *job;
    const settings *s;
    run_folder *at;
    events *events;
    train_display display;
    double began;
    char *notes;
    int failed; /* of a callback, which has printed why */
    bauta_run_result result;
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

/* ---- callbacks --------------------------------------------------------- */

/* End the run; the message has been printed. */
static bauta_status run_fail(run *r, int failed)
{
    r->failed = failed;
    return failed ? BAUTA_ERR_IO : BAUTA_OK;
}

static int events_add(run *r, size_t step, const event_scalar *list,
                      size_t count)
{
    if (events_write(r->events, step, list, count))
        return CLI_OK;
    return cli_fail(VERB, "cannot write TensorBoard's events: %s",
                    strerror(errno));
}

static bauta_status on_step(void *user, const bauta_train_report *report,
                            double seconds)
{
    run *r = user;
    double speed = seconds > 0.0 ? (double)report->tokens / seconds : 0.0;
    const event_scalar list[] = { { "train/loss", report->loss },
                                  { "train/gradient_norm", report->grad_norm },
                                  { "train/learning_rate",
                                    report->learning_rate },
                                  { "train/tokens_per_second", speed } };
    int failed =
        events_add(r, report->step, list, sizeof(list) / sizeof(list[0]));
    if (failed)
        return run_fail(r, failed);
    display_step(&r->display, report, seconds);
    if (!report->updated && report->counted)
        display_line(&r->display,
                     "step %zu: skipped, the gradients are not finite",
                     report->step);
    return BAUTA_OK;
}

static void sample_show(run *r)
{
    char *text = sample_text(r->job);
    if (text)
        display_line(&r->display, "  sample: %s", text);
    free(text);
}

static bauta_status on_evaluate(void *user, const bauta_run_evaluation *e)
{
    run *r = user;
    const event_scalar list[] = { { "valid/loss", e->loss },
                                  { "valid/perplexity", exp(e->loss) } };
    display_line(&r->display,
                 "step %zu  validation loss %.4f  perplexity %.2f%s", e->step,
                 e->loss, exp(e->loss), e->best ? "  (best)" : "");
    sample_show(r);
    return run_fail(r, events_add(r, e->step, list, 2));
}

static void on_progress(void *user, size_t done, size_t all)
{
    display_validation(user, done, all);
}

static void on_warning(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "%s\n", message);
}

static bool should_stop(void *user)
{
    (void)user;
    return stop_requested;
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

static int events_begin(run *r, size_t step)
{
    r->events = events_open(r->at, step);
    return r->events
               ? CLI_OK
               : cli_fail(VERB, "%s: cannot write TensorBoard's events: %s",
                          r->at->path, strerror(errno));
}

/* Check before training that the notes fit into a checkpoint. */
static int notes_make(run *r)
{
    enum { NOTES_MAX = (200 << 10) - 128 }; // the limit, less the progress
    r->notes = notes_write(r->s);
    if (!r->notes)
        return cli_fail(VERB, "out of memory");
    return strlen(r->notes) < NOTES_MAX
               ? CLI_OK
               : cli_fail(VERB,
                          "the names of %zu files are too long to be saved for "
                          "--resume; use fewer and larger files",
                          r->s->files.count + r->s->valid.count);
}

/* ---- the run ----------------------------------------------------------- */

/* At least the newest checkpoint is kept. */
static bauta_run_options options_make(run *r)
{
    const settings *s = r->s;
    bauta_run_options o = BAUTA_RUN_OPTIONS_INIT;
    o.max_steps = s->train.max_steps;
    o.eval_steps = s->eval_every;
    o.eval_tokens = s->eval_tokens;
    o.save_steps = s->save_every;
    o.save_total_limit = s->keep ? s->keep : 1;
    o.early_stopping_patience = s->patience;
    o.average_checkpoints = s->average;
    o.notes = r->notes;
    o.user = r;
    o.should_stop = should_stop;
    if (!ranks_first())
        return o;
    o.on_step = on_step;
    o.on_evaluate = on_evaluate;
    o.on_warning = on_warning;
    return o;
}

static int loop(run *r)
{
    bauta_error err;
    bauta_run_options options = options_make(r);
    bauta_status status = bauta_run_train(
        r->at->run, r->job->trainer, r->job->valid, &options, &r->result, &err);
    if (ranks_first())
        display_end(&r->display);
    int failed = status && !r->failed ? train_failed(&err) : r->failed;
    if (r->events && !events_close(r->events) && !failed)
        failed = cli_fail(VERB, "cannot write TensorBoard's events: %s",
                          strerror(errno));
    return failed;
}

/* ---- the result -------------------------------------------------------- */

static int json_print(const run *r)
{
    static const char *const endings[] = {
        [BAUTA_RUN_DONE] = "done",
        [BAUTA_RUN_STOPPED] = "signal",
        [BAUTA_RUN_EARLY_STOPPING] = "patience",
        [BAUTA_RUN_TIME] = "time",
    };
    const bauta_run_result *result = &r->result;
    json_t *folder = json_string(r->at->path);
    json_t *all = json_pack(
        "{s:o, s:s, s:I, s:I, s:f, s:o, s:o, s:o, s:I, s:o}", "run",
        folder ? folder : json_null(), "ended", endings[result->ending],
        "steps", (json_int_t)result->step, "parameters",
        (json_int_t)bauta_model_parameter_count(r->job->model), "seconds",
        seconds_now() - r->began, "loss", json_number(result->loss),
        "valid_loss", json_number(result->eval_loss), "best_loss",
        json_number(result->best_loss), "best_step",
        (json_int_t)result->best_step, "average_loss",
        json_number(result->average_loss));
    int failed = json_indented(VERB, all);
    return failed ? failed : cli_finish(VERB);
}

static int text_print(const run *r)
{
    char text[32];
    const bauta_run_result *result = &r->result;
    printf("%s: step %zu after %s", r->at->path, result->step,
           format_duration(text, seconds_now() - r->began));
    if (isfinite(result->loss))
        printf(", loss %.4f", result->loss);
    if (result->best_step)
        printf(", best validation loss %.4f at step %zu", result->best_loss,
               result->best_step);
    if (isfinite(result->average_loss))
        printf(", %.4f for the average", result->average_loss);
    putchar('\n');
    return cli_finish(VERB);
}

static void end_report(const run *r)
{
    const bauta_run_result *result = &r->result;
    if (result->averaged)
        fprintf(stderr, "%s/average: mean of %zu checkpoints\n", r->at->path,
                result->averaged);
    else if (r->s->train.ema_decay > 0.0 && result->ending != BAUTA_RUN_STOPPED)
        fprintf(stderr, "%s/average: moving average of the weights\n",
                r->at->path);
    if (result->ending == BAUTA_RUN_EARLY_STOPPING)
        fprintf(stderr, "no improvement in %zu validations\n", result->stale);
    else if (result->ending == BAUTA_RUN_STOPPED)
        fprintf(stderr,
                "stopped and saved; 'bauta train --resume %s' continues\n",
                r->at->path);
}

/* Nothing is checked or written for a run that is already done. */
static int start(run *r, size_t step)
{
    int failed = notes_make(r);
    if (step >= r->s->train.max_steps) {
        fprintf(stderr, "all %zu steps are done; use --steps for more\n",
                r->s->train.max_steps);
        return failed;
    }
    if (!failed && ranks_first())
        failed = audit_run(r);
    if (!failed && ranks_first())
        failed = options_write(r->s, r->at);
    if (!failed && ranks_first())
        failed = events_begin(r, step);
    signals_catch();
    return failed;
}

int train_run(train_job *job, settings *s, run_folder *f)
{
    run r = { .job = job,
              .s = s,
              .at = f,
              .began = seconds_now(),
              .result = BAUTA_RUN_RESULT_INIT };
    size_t step = bauta_trainer_steps(job->trainer);
    r.display = display_begin(step, s->train.max_steps);
    bauta_trainer_on_evaluate(job->trainer, on_progress, &r.display);
    int failed = start(&r, step);
    if (!failed)
        failed = loop(&r);
    free(r.notes);
    if (failed)
        return failed;
    if (!ranks_first())
        return CLI_OK;
    end_report(&r);
    return s->json ? json_print(&r) : text_print(&r);
}
