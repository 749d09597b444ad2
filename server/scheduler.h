/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.h - the thread that runs a model.
 *
 * Connections hand jobs over through a bounded queue. One thread starts them in
 * a fair order, as sequences of one generator (continuous batching), and runs
 * everything else that needs the model between two steps. Only this thread uses
 * the context. */
#ifndef SERVER_SCHEDULER_H
#define SERVER_SCHEDULER_H

#include "job.h"
#include "metrics.h"
#include "server.h"

/* Starts the thread. NULL after a message. */
scheduler *scheduler_create(const server_options *options,
                            const opened_model *model, metrics *m);
/* Cancels the waiting jobs, and waits for the others. For these to end,
 * cancel them first. */
void scheduler_free(scheduler *s);

/* Hand over a job; the scheduler becomes its second owner. False, with a
 * failure of status 429 or 503, if the queue is full or closed. */
bool scheduler_submit(scheduler *s, job *j, failure *f);
/* Accept no more jobs. */
void scheduler_close(scheduler *s);
/* Jobs that wait, sequences that run, and the KV cache. */
metrics_gauges scheduler_gauges(scheduler *s);

/* ---- for jobs, on the scheduler's thread ------------------------------- */

const opened_model *scheduler_model(const scheduler *s);
metrics *scheduler_metrics(const scheduler *s);
/* A sequence of a job in the generator. */
typedef struct part {
    job *owner;
    /* Called with its result, which is valid during the call. A failure ends
     * the job instead. */
    void (*finish)(struct part *p, const bauta_result *result);
} part;
/* Start a part. False after a failure. */
bool scheduler_start(scheduler *s, part *p, bauta_request *request, failure *f);

#endif
