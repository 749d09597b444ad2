/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - work for the scheduler's thread, and the answer that it writes.
 *
 * A job has two owners: the connection that asked for it, and the scheduler.
 * Either may let go first: a client disconnects, or a job is done while its
 * answer is still being sent. The connection is suspended while it waits for
 * bytes, and the scheduler resumes it. */
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include "body.h"
#include "buffer.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct job job;
typedef struct scheduler scheduler;

typedef struct job_calls {
    /* Start the next part of the job: a sequence, or a batch of embeddings.
     * Returns whether all parts have started. */
    bool (*start)(job *j, scheduler *s);
    /* Whether a part is finished when start() returns, so that other jobs get
     * their turn before the next part. */
    bool immediate;
    /* All parts have finished without a failure: complete the answer. */
    void (*end)(job *j, scheduler *s);
    void (*free)(job *j);
} job_calls;

struct job {
    const job_calls *calls;
    uint64_t id;              /* set by the connection */
    uint64_t client;          /* a hash, for fairness */
    double cost;              /* tokens, at most */
    double arrived, deadline; /* seconds_now() */
    size_t room_max; /* bytes that wait for the client before it is given up */

    /* Of the scheduler's thread. */
    double start_tag; /* see fair_queue.h */
    size_t running;   /* parts in the generator */
    bool waiting;     /* in the queue: not all parts have started */
    failure failed;

    atomic_bool cancelled; /* the client is gone */

    pthread_mutex_t lock; /* for everything below */
    struct MHD_Connection *suspended;
    int status;       /* of HTTP; 0 until the answer begins */
    const char *type; /* of its content */
    bool stream;      /* the answer is sent in parts */
    bool done;        /* nothing more will be added */
    buffer out;       /* the answer, or the part that is not sent yet */
    size_t sent;      /* of it */
    unsigned owners;
};

void job_init(job *j, const job_calls *calls);
/* An owner lets go. */
void job_release(job *j);

/* Add to the answer, which begins with this status if it has not begun, and
 * wake the connection. */
void job_write(job *j, int status, const char *type, const char *bytes,
               size_t length);
/* The answer is complete. */
void job_end(job *j);
/* Whether the scheduler should stop working on it: the client is gone, does
 * not read, or time is up. The latter is noted as a failure. */
bool job_stopped(job *j);

/* Suspend the connection until there is more to send. Returns false, and does
 * nothing, if there already is. */
bool job_wait(job *j, struct MHD_Connection *connection);

#endif
