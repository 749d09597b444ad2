/* SPDX-License-Identifier: Apache-2.0 */
/* train_steps.c - bauta train: the number of steps of a run.
 *
 * --epochs is converted by the size of the corpus. --minutes times a few steps
 * of a model that is then discarded. The number of steps is fixed before the
 * first one and saved in every checkpoint, so the run is bit-identical to one
 * with --steps, and can be resumed. --from defaults to a few epochs. */
#include "cli.h"
#include "format.h"
#include "train.h"

#include <math.h>

/* Defaults of --from. */
enum { TUNE_EPOCHS = 3, TUNE_LEAST = 50, TUNE_MOST = 1000 };

/* The time of a validation: a forward pass takes a third of one with gradients.
 */
static double validation_seconds(const train_job *job, const settings *s,
                                 double token_seconds)
{
    if (!job->valid)
        return 0.0;
    double tokens = (double)bauta_corpus_tokens(job->valid);
    if (s->eval_tokens)
        tokens = fmin(tokens, (double)s->eval_tokens);
    return tokens * token_seconds / 3.0;
}

/* The steps that fit into --minutes, with their validations. */
static int minutes_fit(train_job *job, const settings *s, double *steps)
{
    const double reserve = 0.03; // for checkpoints and other load
    step_timing v;
    int failed = dry_run_timing(job, s, &v);
    if (failed)
        return failed;
    double validation = validation_seconds(job, s, v.token_seconds);
    double each = v.step_seconds;
    if (s->eval_every)
        each += validation / (double)s->eval_every;
    double left =
        60.0 * s->minutes * (1.0 - reserve) - (seconds_now() - job->began);
    *steps = fmax((left - validation) / each, 1.0);
    fprintf(stderr, "%g minutes are about %.0f steps of %.3f s\n", s->minutes,
            floor(*steps), v.step_seconds);
    return CLI_OK;
}

/* The preset's warm-up is shortened to a tenth of the steps. */
static void steps_set(settings *s, const train_args *args, double steps,
                      size_t done)
{
    s->train.max_steps = done + (size_t)fmin(steps, 1e12);
    size_t tenth = s->train.max_steps / 10;
    if (!s->resume && !train_args_has(args, "--warmup-steps") &&
        s->train.warmup_steps > tenth)
        s->train.warmup_steps = tenth;
}

static void steps_report(const settings *s, size_t epoch)
{
    fprintf(stderr, "%zu steps, %.1f epochs of %zu", s->train.max_steps,
            (double)s->train.max_steps / (double)epoch, epoch);
    if (!s->resume)
        fprintf(stderr, "; '--steps %zu --warmup-steps %zu' gives the same run",
                s->train.max_steps, s->train.warmup_steps);
    fputc('\n', stderr);
}

static void warmup_warn(const settings *s)
{
    if (s->train.warmup_steps <= s->train.max_steps)
        return;
    fprintf(
        stderr,
        "bauta " VERB ": warning: --warmup-steps is %zu and the run has only "
        "%zu steps, so the learning rate ends at %g instead of %g; consider "
        "--warmup-steps %zu\n",
        s->train.warmup_steps, s->train.max_steps,
        s->train.learning_rate * (double)s->train.max_steps /
            (double)s->train.warmup_steps,
        s->train.learning_rate, s->train.max_steps / 10);
}

int steps_fit(train_job *job, settings *s, const train_args *args,
              const char *checkpoint)
{
    size_t epoch = bauta_trainer_epoch_steps(job->trainer);
    size_t done = bauta_trainer_steps(job->trainer);
    bool tuned = s->from && !checkpoint && !train_args_has(args, "--steps");
    double steps = 0.0; // 0: unchanged
    int failed = CLI_OK;
    if (s->minutes > 0.0) {
        failed = minutes_fit(job, s, &steps);
        if (!failed) {
            steps_set(s, args, floor(steps), done);
            failed = train_job_renew(job, s, args, checkpoint, true);
        }
    } else if (s->epochs > 0.0 || tuned) {
        steps = s->epochs > 0.0
                    ? ceil(s->epochs * (double)epoch)
                    : fmin(fmax(TUNE_EPOCHS * (double)epoch, TUNE_LEAST),
                           TUNE_MOST);
        steps_set(s, args, steps, 0);
        failed = train_job_renew(job, s, args, checkpoint, false);
    }
    if (failed)
        return failed;
    if (steps > 0.0)
        steps_report(s, epoch);
    if (!checkpoint)
        warmup_warn(s);
    return CLI_OK;
}
