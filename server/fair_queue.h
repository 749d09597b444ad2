/* SPDX-License-Identifier: Apache-2.0 */
/* fair_queue.h - which waiting job is next: start-time fair queueing.
 *
 * Goyal, Vin, Cheng: Start-time Fair Queueing (1996). Each job gets a start
 * tag: the virtual time, or the end of its client's previous job if that is
 * later, where a job lasts as long as its cost in tokens. The job with the
 * smallest tag is next, and the virtual time is the tag of the last one. A
 * client with many jobs therefore delays itself, not the others. */
#ifndef SERVER_FAIR_QUEUE_H
#define SERVER_FAIR_QUEUE_H

#include "job.h"

typedef struct fair_queue {
    job **jobs; /* (count) in the order of arrival */
    size_t count, capacity;
    struct fair_client {
        uint64_t client;
        double end;
    } * clients; /* (client_count) those whose end is after `now` */
    size_t client_count;
    double now; /* virtual time */
} fair_queue;

/* False if out of memory. */
bool fair_queue_init(fair_queue *q, size_t capacity);
void fair_queue_release(fair_queue *q);
/* False if the queue is full. */
bool fair_queue_add(fair_queue *q, job *j);
/* The next job, which stays in the queue; NULL if there is none. */
job *fair_queue_next(fair_queue *q);
void fair_queue_remove(fair_queue *q, const job *j);

#endif
