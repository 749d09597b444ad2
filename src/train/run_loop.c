/* SPDX-License-Identifier: Apache-2.0 */
/* run_loop.c - a training run: steps, evaluations and checkpoints. */
#include "train/run_loop.h"

#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "base/thread_pool.h"
#include "runtime/context.h"
#include "train/checkpoint.h"

#include <math.h>
#include <time.h>

enum { BAD_MAX = 10 }; /* steps in a row whose gradients are not finite */

/* A checkpoint that is being written. */
typedef struct pending_save {
    bt_checkpoint_draft draft;
    bauta_run *run;
    char *path;
    size_t step, best_step; /* best_step: so far */
    size_t keep;            /* checkpoints that stay; 0: all */
    pthread_t thread;
    bool running; /* the thread is to be joined */
    /* What became of it. */
    bool written;
    bauta_status status; /* of writing, or of its links */
    bauta_error err;
    bauta_status kept; /* of removing others */
    bauta_error kept_why;
} pending_save;

typedef struct run_loop {
    bauta_run *run;
    bauta_trainer *trainer;
    const bauta_corpus *validation; /* or NULL */
    const bauta_run_options *options;
    bauta_run_result *result;
    bt_run_progress progress;
    bt_run_metrics *metrics;
    pending_save pending; /* its path is NULL: there is none */
    double began;
    size_t max_steps;
    size_t bad; /* steps in a row */
    bool ended;
} run_loop;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void end(run_loop *l, bauta_run_ending ending)
{
    if (!l->ended)
        l->result->ending = ending;
    l->ended = true;
}

/* ---- checkpoints ------------------------------------------------------- */

static bauta_status save_failed(const run_loop *l, bauta_status status,
                                const bauta_error *why, bauta_error *err)
{
    size_t saved = l->result->saved_step;
    return saved ? bt_fail(err, status,
                           "%.190s; the checkpoint of step %zu is complete",
                           why->message, saved)
                 : bt_fail(err, status, "%s", why->message);
}

/* Take the state that is to be saved. */
static bauta_status pending_copy(run_loop *l, bauta_error *err)
{
    pending_save *p = &l->pending;
    const bauta_run_options *o = l->options;
    char *notes = NULL;
    bauta_error why = { 0 };
    bauta_status status = bt_run_notes(&notes, o->notes, &l->progress, &why);
    if (!status)
        status = bt_checkpoint_copy(&p->draft, l->trainer, notes, &why);
    bt_free(notes);
    p->run = l->run;
    p->step = l->trainer->steps;
    p->best_step = l->progress.best_step;
    if (o->save_total_limit)
        p->keep = bt_size_max(o->save_total_limit, o->average_checkpoints);
    return status ? save_failed(l, status, &why, err) : BAUTA_OK;
}

/* Write the checkpoint, set the links to it and remove old ones. */
static void *pending_write(void *argument)
{
    pending_save *p = argument;
    p->status = bt_checkpoint_write(&p->draft, p->path, &p->err);
    p->written = !p->status;
    if (!p->status)
        p->status = bt_run_link(p->run, "last", p->step, &p->err);
    if (!p->status && p->best_step == p->step)
        p->status = bt_run_link(p->run, "best", p->step, &p->err);
    if (!p->status && p->keep)
        p->kept =
            bt_run_prune(p->run, p->step, p->keep, p->best_step, &p->kept_why);
    return NULL;
}

/* A checkpoint that cannot be removed is no reason to stop, and is reported
 * once. */
static void warn(run_loop *l, const bauta_error *why)
{
    const bauta_run_options *o = l->options;
    if (!l->run->warned && o->on_warning)
        o->on_warning(o->user, why->message);
    l->run->warned = true;
}

static bauta_status pending_report(run_loop *l, bauta_error *err)
{
    const bauta_run_options *o = l->options;
    const pending_save *p = &l->pending;
    if (!p->written)
        return save_failed(l, p->status, &p->err, err);
    l->result->saved_step = p->step;
    if (p->status)
        return bt_fail(err, p->status, "%s", p->err.message);
    if (p->kept)
        warn(l, &p->kept_why);
    if (o->on_save)
        o->on_save(o->user, p->step, p->path);
    return BAUTA_OK;
}

/* Wait for the checkpoint that is being written, if there is one. */
static bauta_status pending_end(run_loop *l, bauta_error *err)
{
    pending_save *p = &l->pending;
    if (!p->path)
        return BAUTA_OK;
    if (p->running)
        pthread_join(p->thread, NULL);
    bt_checkpoint_draft_release(&p->draft);
    bauta_status status = pending_report(l, err);
    bt_free(p->path);
    *p = (pending_save){ 0 };
    return status;
}

/* The other ranks give rank 0 their part of the state. */
static bauta_status save_part(run_loop *l, bauta_error *err)
{
    bauta_status status = pending_copy(l, err);
    bt_checkpoint_draft_release(&l->pending.draft);
    if (!status)
        l->result->saved_step = l->trainer->steps;
    return status;
}

/* A state that was copied from a GPU is written while training goes on. The
 * checkpoint counts as saved, and its failure is reported, when the next one is
 * due or the run ends. */
static bauta_status save(run_loop *l, bauta_error *err)
{
    pending_save *p = &l->pending;
    size_t step = l->trainer->steps;
    bauta_status status = pending_end(l, err);
    if (status || step == l->result->saved_step)
        return status;
    if (!l->run)
        return save_part(l, err);
    char *path = bt_run_checkpoint_path(l->run->path, step);
    if (!path)
        return bt_fail_memory(err, "the name of a folder", 0);
    // The rest of an interrupted removal, or the checkpoint of a run that was
    // resumed from an earlier step and reaches this one again.
    status = bauta_checkpoint_remove(path, err);
    if (!status)
        status = pending_copy(l, err);
    if (status) {
        bt_free(path);
        return status;
    }
    p->path = path;
    p->running = bt_checkpoint_is_apart(&p->draft) &&
                 l->trainer->context->comm->count == 1 &&
                 bt_thread_start(&p->thread, pending_write, p) == 0;
    if (p->running)
        return BAUTA_OK;
    pending_write(p);
    return pending_end(l, err);
}

/* ---- evaluation -------------------------------------------------------- */

static bool progress_update(bt_run_progress *p, size_t step, double loss)
{
    bool better = loss < p->best;
    if (better) {
        p->best = loss;
        p->best_step = step;
    }
    p->stale = better ? 0 : p->stale + 1;
    return better;
}

static bauta_status callback_failed(bauta_status status, const char *name,
                                    bauta_error *err)
{
    return status ? bt_fail(err, status, "%s ended the run", name) : BAUTA_OK;
}

static bauta_status evaluate(run_loop *l, bauta_error *err)
{
    const bauta_run_options *o = l->options;
    bauta_run_evaluation e = { .size = sizeof(e) };
    bauta_status status = bauta_trainer_evaluate(
        l->trainer, l->validation, o->eval_tokens, &e.loss, &e.counted, err);
    if (status)
        return status;
    if (e.counted == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the validation texts are empty, or too long for the "
                       "context");
    e.step = l->trainer->steps;
    e.best = progress_update(&l->progress, e.step, e.loss);
    l->result->eval_loss = e.loss;
    if (o->early_stopping_patience &&
        l->progress.stale >= o->early_stopping_patience)
        end(l, BAUTA_RUN_EARLY_STOPPING);
    if (l->metrics)
        status = bt_run_metrics_evaluation(l->metrics, &e, err);
    if (!status && o->on_evaluate)
        status =
            callback_failed(o->on_evaluate(o->user, &e), "on_evaluate", err);
    return status;
}

/* ---- a step ------------------------------------------------------------ */

static bauta_status bad_step(run_loop *l, const bauta_train_report *report,
                             bauta_error *err)
{
    bool bad = !report->updated && report->counted > 0;
    l->bad = bad ? l->bad + 1 : 0;
    return l->bad < BAD_MAX
               ? BAUTA_OK
               : bt_fail(err, BAUTA_ERR_NOT_FINITE,
                         "%d steps in a row had gradients that are not finite, "
                         "the last of them step %zu; try a smaller learning "
                         "rate or max_grad_norm",
                         (int)BAD_MAX, report->step);
}

static bool due(size_t step, size_t every)
{
    return every && step % every == 0;
}

static bauta_status one_step(run_loop *l, bauta_error *err)
{
    const bauta_run_options *o = l->options;
    bauta_train_report report = BAUTA_TRAIN_REPORT_INIT;
    double began = seconds_now();
    bauta_status status = bauta_trainer_step(l->trainer, &report, err);
    double seconds = seconds_now() - began;
    if (status)
        return status;
    l->result->loss = report.loss;
    if (l->metrics && due(report.step, o->logging_steps))
        status = bt_run_metrics_step(l->metrics, &report, seconds, err);
    if (!status && o->on_step)
        status = callback_failed(o->on_step(o->user, &report, seconds),
                                 "on_step", err);
    return status ? status : bad_step(l, &report, err);
}

/* Epochs differ in their number of steps, so they are counted by the position
 * in the corpus. */
static bool is_done(const run_loop *l)
{
    const bauta_trainer *t = l->trainer;
    double epochs = (double)t->epoch_number +
                    (double)t->batch / (double)t->epoch.batch_count;
    double most = l->options->num_train_epochs;
    return t->steps >= l->max_steps || (most > 0.0 && epochs >= most);
}

/* Whether one of the ranks says so; all of them learn it after the same step.
 */
static bauta_status any_rank(const run_loop *l, bool *says, bauta_error *err)
{
    double count = *says ? 1.0 : 0.0;
    bauta_status status =
        bt_comm_sum(l->trainer->context->comm, &count, 1, err);
    *says = count > 0.0;
    return status;
}

static bauta_status time_check(run_loop *l, bauta_error *err)
{
    double most = 60.0 * l->options->max_minutes;
    bool over = most > 0.0 && seconds_now() - l->began >= most;
    bauta_status status = most > 0.0 ? any_rank(l, &over, err) : BAUTA_OK;
    if (!status && over)
        end(l, BAUTA_RUN_TIME);
    return status;
}

static bauta_status stop_check(run_loop *l, bauta_error *err)
{
    const bauta_run_options *o = l->options;
    bool stop = o->should_stop && o->should_stop(o->user);
    bauta_status status = any_rank(l, &stop, err);
    if (!status && stop)
        end(l, BAUTA_RUN_STOPPED);
    return status;
}

/* Evaluate, save a checkpoint, or end the run, as due after a step. */
static bauta_status after_step(run_loop *l, bauta_error *err)
{
    const bauta_run_options *o = l->options;
    size_t step = l->trainer->steps;
    size_t save_steps = o->save_steps ? o->save_steps : o->eval_steps;
    bauta_status status = BAUTA_OK;
    if (is_done(l))
        end(l, BAUTA_RUN_DONE);
    else
        status = time_check(l, err);
    if (!status && l->validation && (due(step, o->eval_steps) || l->ended))
        status = evaluate(l, err);
    if (!status && !l->ended)
        status = stop_check(l, err);
    if (!status &&
        (due(step, save_steps) || l->progress.best_step == step || l->ended))
        status = save(l, err);
    return status;
}

static bauta_status steps_run(run_loop *l, bauta_error *err)
{
    bauta_status status = l->run ? bt_run_metrics_open(&l->metrics, l->run,
                                                       l->trainer->steps, err)
                                 : BAUTA_OK;
    while (!status && !l->ended) {
        status = one_step(l, err);
        if (!status)
            status = after_step(l, err);
    }
    bauta_status saved = pending_end(l, status ? NULL : err);
    status = status ? status : saved;
    bauta_status closed = bt_run_metrics_close(l->metrics, status ? NULL : err);
    return status ? status : closed;
}

/* ---- the call ---------------------------------------------------------- */

static bauta_status options_check(const bauta_run_options *o, bauta_error *err)
{
    if (!(o->num_train_epochs >= 0.0 && isfinite(o->num_train_epochs)))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "num_train_epochs is %g",
                       o->num_train_epochs);
    if (!(o->max_minutes >= 0.0 && isfinite(o->max_minutes)))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "max_minutes is %g",
                       o->max_minutes);
    return BAUTA_OK;
}

/* Before the first step: a run that continues has links to set. */
static bauta_status begin(run_loop *l, bauta_error *err)
{
    size_t step = l->trainer->steps;
    char *notes = NULL;
    bauta_status status = bt_run_progress_read(&l->progress, l->run, step, err);
    if (!status) // notes that cannot be saved fail now, not at a checkpoint
        status = bt_run_notes(&notes, l->options->notes, &l->progress, err);
    bt_free(notes);
    if (status || !step || !bt_run_has_checkpoint(l->run->folder, step))
        return status;
    l->result->saved_step = step;
    return bt_run_links(l->run, step, l->progress.best_step, err);
}

/* All ranks start from the state of rank 0, and only if they agree on what they
 * train. */
static bauta_status begin_ranks(run_loop *l, bauta_error *err)
{
    bauta_trainer *t = l->trainer;
    bt_comm *comm = t->context->comm;
    struct {
        bt_run_progress progress;
        uint64_t digest;
        size_t saved_step;
    } shared = { .progress = { .best = INFINITY } };
    uint64_t digest = 0;
    bauta_status status = l->run ? begin(l, err) : BAUTA_OK;
    if (status || comm->count == 1)
        return status;
    status = bt_trainer_digest(&digest, t, err);
    shared.progress = l->progress;
    shared.digest = digest;
    shared.saved_step = l->result->saved_step;
    if (!status)
        status = bt_comm_broadcast(comm, &shared, sizeof(shared), err);
    if (!status && shared.digest != digest)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "this rank is at step %zu of another run than rank 0: "
                         "other options, texts or weights",
                         t->steps);
    l->progress = shared.progress;
    l->result->saved_step = shared.saved_step;
    return status;
}

static bauta_status run_train(run_loop *l, bauta_error *err)
{
    bauta_run_result *result = l->result;
    bauta_status status = begin_ranks(l, err);
    if (!status && !is_done(l))
        status = steps_run(l, err);
    if (!status && result->ending != BAUTA_RUN_STOPPED)
        status = bt_run_average(l->run, l->trainer, l->validation, l->options,
                                result, err);
    result->step = l->trainer->steps;
    result->best_step = l->progress.best_step;
    result->best_loss = l->progress.best_step ? l->progress.best : (double)NAN;
    result->stale = l->progress.stale;
    return status;
}

bauta_status bauta_run_train(bauta_run *run, bauta_trainer *trainer,
                             const bauta_corpus *validation,
                             const bauta_run_options *options,
                             bauta_run_result *result, bauta_error *err)
{
    bauta_run_options chosen;
    bauta_run_result full = BAUTA_RUN_RESULT_INIT;
    BT_NEED(trainer, err);
    if (trainer->context->comm->rank == 0)
        BT_NEED(run, err);
    else
        run = NULL;
    bauta_status status =
        BT_SIZED_READ(&chosen, BAUTA_RUN_OPTIONS_INIT, options, "options", err);
    if (!status)
        status = options_check(&chosen, err);
    if (!status && result)
        status = BT_SIZED_CHECK(result, BAUTA_RUN_RESULT_INIT, "result", err);
    if (status)
        return status;
    full.loss = full.eval_loss = full.average_loss = (double)NAN;
    run_loop loop = { .run = run,
                      .trainer = trainer,
                      .validation = validation,
                      .options = &chosen,
                      .result = &full,
                      .began = seconds_now(),
                      .max_steps = chosen.max_steps
                                       ? chosen.max_steps
                                       : trainer->options.max_steps };
    status = run_train(&loop, err);
    if (result)
        BT_SIZED_WRITE(result, &full);
    return status;
}
