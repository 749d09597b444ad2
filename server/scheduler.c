/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.c - the thread that runs the model; see scheduler.h. */
#include "scheduler.h"

#include "../cli/cli.h"
#include "../cli/format.h"
#include "fair_queue.h"

#include <stdlib.h>
#include <string.h>

struct scheduler {
    const server_options *options;
    const opened_model *model;
    metrics *metrics;
    pthread_t thread;

    pthread_mutex_t lock; /* for these */
    pthread_cond_t woken;
    fair_queue queue; /* jobs of which parts have not started */
    metrics_gauges now;
    bool closed, stop;

    /* Of the thread. */
    bauta_generator *generator; /* NULL: the model has no decoder */
    part **parts;               /* (parallel) in the generator, or NULL */
    size_t running;
};

const opened_model *scheduler_model(const scheduler *s)
{
    return s->model;
}

metrics *scheduler_metrics(const scheduler *s)
{
    return s->metrics;
}

static int http_status(bauta_status status)
{
    if (status == BAUTA_ERR_ARGUMENT)
        return 400;
    return status == BAUTA_ERR_NOMEM ? 503 : 500;
}

/* ---- the end of a job -------------------------------------------------- */

/* Answer with the job's failure, or add it to a stream that has begun. */
static void failure_write(job *j)
{
    char *text = failure_json(&j->failed);
    size_t length = text ? strlen(text) : 0;
    bool begun = j->stream && j->status;
    if (begun)
        job_write(j, 200, NULL, "data: ", 6);
    job_write(j, j->failed.status, "application/json", text, length);
    if (begun)
        job_write(j, 200, NULL, "\n\n", 2);
    free(text);
}

/* A job is over when nothing of it runs or waits. */
static void job_settle(scheduler *s, job *j)
{
    if (j->running || j->waiting)
        return;
    if (atomic_load(&j->cancelled)) {
        metrics_add(s->metrics, METRICS_CANCELLED, 1);
    } else if (j->failed.status) {
        if (j->failed.status >= 500)
            metrics_add(s->metrics, METRICS_FAILED, 1);
        failure_write(j);
    } else {
        j->calls->end(j, s);
        metrics_add(s->metrics, METRICS_SUCCESS, 1);
        metrics_observe(s->metrics, METRICS_REQUEST,
                        seconds_now() - j->arrived);
    }
    job_end(j);
    job_release(j);
}

/* ---- the generator ----------------------------------------------------- */

static bauta_status generator_open(scheduler *s, bauta_error *err)
{
    bauta_generator_options how = BAUTA_GENERATOR_OPTIONS_INIT;
    if (bauta_model_kind_of(s->model->model) == BAUTA_ENCODER_ONLY)
        return BAUTA_OK;
    how.max_sequences = s->options->parallel;
    how.cached_sequences = s->options->parallel;
    how.cache_bytes = (uint64_t)s->options->cache_mb << 20;
    return bauta_generator_create(&s->generator, s->model->context,
                                  s->model->model, s->model->tokenizer, &how,
                                  err);
}

bool scheduler_start(scheduler *s, part *p, bauta_request *request, failure *f)
{
    bauta_error err;
    size_t slot = 0;
    while (s->parts[slot])
        slot++;
    request->tag = slot;
    bauta_status status = bauta_generator_add(s->generator, request, &err);
    if (status)
        return fail(f, http_status(status), NULL, NULL, "%s", err.message);
    s->parts[slot] = p;
    s->running++;
    p->owner->running++;
    return true;
}

static void part_finish(scheduler *s, size_t slot, const bauta_result *result,
                        const failure *f)
{
    part *p = s->parts[slot];
    job *owner = p->owner;
    s->parts[slot] = NULL;
    s->running--;
    owner->running--;
    if (result)
        p->finish(p, result);
    else if (!owner->failed.status)
        owner->failed = *f;
    job_settle(s, owner);
}

static void results_take(scheduler *s)
{
    bauta_result *result;
    while ((result = bauta_generator_take(s->generator))) {
        failure f = { 0 };
        if (result->status)
            fail(&f, http_status(result->status), NULL, NULL, "%s",
                 result->message);
        part_finish(s, (size_t)result->tag, result->status ? NULL : result,
                    result->status ? &f : NULL);
        bauta_result_free(result);
    }
}

/* A step failed, of which all sequences are innocent; they end with its
 * message, and a new generator takes the next ones. */
static void generator_restart(scheduler *s, const bauta_error *why)
{
    bauta_error err;
    failure f = { 0 };
    fail(&f, http_status(why->status) == 400 ? 500 : http_status(why->status),
         NULL, NULL, "%s", why->message);
    bauta_generator_free(s->generator);
    s->generator = NULL;
    for (size_t i = 0; i < s->options->parallel; i++)
        if (s->parts[i])
            part_finish(s, i, NULL, &f);
    if (generator_open(s, &err)) {
        (void)cli_fail(s->model->verb, "%s", err.message);
        exit(CLI_FAILED);
    }
}

static void step(scheduler *s)
{
    bauta_error err;
    if (bauta_generator_step(s->generator, NULL, &err))
        generator_restart(s, &err);
    else
        results_take(s);
}

/* ---- the queue --------------------------------------------------------- */

static void queue_remove(scheduler *s, job *j)
{
    pthread_mutex_lock(&s->lock);
    fair_queue_remove(&s->queue, j);
    pthread_mutex_unlock(&s->lock);
    j->waiting = false;
    job_settle(s, j);
}

/* A waiting job whose client is gone or whose time is up; or NULL. */
static job *queue_find_stopped(scheduler *s)
{
    job *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->queue.count && !found; i++) {
        job *j = s->queue.jobs[i];
        if (s->stop)
            atomic_store(&j->cancelled, true);
        if (job_stopped(j))
            found = j;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static job *queue_next(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    job *next = fair_queue_next(&s->queue);
    pthread_mutex_unlock(&s->lock);
    return next;
}

/* Start parts until the generator is full. */
static void queue_start(scheduler *s)
{
    job *j;
    while ((j = queue_find_stopped(s)))
        queue_remove(s, j);
    while (s->running < s->options->parallel && (j = queue_next(s))) {
        bool all = j->calls->start(j, s);
        if (all || j->failed.status)
            queue_remove(s, j);
        else if (j->calls->immediate)
            break;
    }
}

/* ---- the thread -------------------------------------------------------- */

/* Wait for something to do. False: the end. */
static bool work_wait(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->now.running = s->running;
    s->now.waiting = s->queue.count;
    s->now.cache_bytes = s->generator ? bauta_generator_bytes(s->generator) : 0;
    while (!s->running && !s->queue.count && !s->stop)
        pthread_cond_wait(&s->woken, &s->lock);
    bool go_on = !s->stop || s->running || s->queue.count;
    pthread_mutex_unlock(&s->lock);
    return go_on;
}

static void *scheduler_thread(void *user)
{
    scheduler *s = user;
    while (work_wait(s)) {
        queue_start(s);
        if (s->running)
            step(s);
    }
    return NULL;
}

bool scheduler_submit(scheduler *s, job *j, failure *f)
{
    bool added = false;
    pthread_mutex_lock(&s->lock);
    if (s->closed || s->stop)
        fail(f, 503, NULL, "shutting_down", "the server is shutting down");
    else if (s->queue.count >= s->options->queue)
        fail(f, 429, NULL, "queue_full",
             "%zu requests are waiting; try again later", s->queue.count);
    else {
        j->waiting = true;
        j->owners = 2; // nobody else knows of it yet
        added = fair_queue_add(&s->queue, j);
        s->now.waiting = s->queue.count;
        pthread_cond_signal(&s->woken);
    }
    pthread_mutex_unlock(&s->lock);
    if (!added && f->status == 429)
        metrics_add(s->metrics, METRICS_REJECTED, 1);
    return added;
}

void scheduler_close(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->closed = true;
    pthread_mutex_unlock(&s->lock);
}

metrics_gauges scheduler_gauges(scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    metrics_gauges now = s->now;
    pthread_mutex_unlock(&s->lock);
    if (s->options->cache_mb)
        now.cache_usage = (double)now.cache_bytes /
                          ((double)s->options->cache_mb * (1 << 20));
    return now;
}

static void scheduler_release(scheduler *s)
{
    bauta_generator_free(s->generator);
    fair_queue_release(&s->queue);
    pthread_cond_destroy(&s->woken);
    pthread_mutex_destroy(&s->lock);
    free(s->parts);
    free(s);
}

scheduler *scheduler_create(const server_options *options,
                            const opened_model *model, metrics *m)
{
    bauta_error err = { BAUTA_ERR_NOMEM, "out of memory" };
    scheduler *s = calloc(1, sizeof(*s));
    if (!s) {
        (void)cli_fail(model->verb, "out of memory");
        return NULL;
    }
    s->options = options;
    s->model = model;
    s->metrics = m;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->woken, NULL);
    s->parts = calloc(options->parallel, sizeof(part *));
    bool good = fair_queue_init(&s->queue, options->queue) && s->parts &&
                !generator_open(s, &err);
    if (good && pthread_create(&s->thread, NULL, scheduler_thread, s) == 0)
        return s;
    (void)cli_fail(model->verb, "%s",
                   good ? "cannot start a thread" : err.message);
    scheduler_release(s);
    return NULL;
}

void scheduler_free(scheduler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->woken);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    scheduler_release(s);
}
