/* SPDX-License-Identifier: Apache-2.0 */
/* fair_queue.c - which waiting job is next; see fair_queue.h. */
#include "fair_queue.h"

#include <stdlib.h>
#include <string.h>

/* Clients that are remembered: each has a job waiting, or a job that started
 * within the virtual time of the longest one. */
enum { CLIENTS_PER_JOB = 4 };

bool fair_queue_init(fair_queue *q, size_t capacity)
{
    *q = (fair_queue){ .capacity = capacity };
    q->jobs = calloc(capacity, sizeof(job *));
    q->clients = calloc(CLIENTS_PER_JOB * capacity, sizeof(*q->clients));
    return q->jobs && q->clients;
}

void fair_queue_release(fair_queue *q)
{
    free(q->jobs);
    free(q->clients);
}

/* Forget clients whose last job has ended in virtual time. */
static void clients_forget(fair_queue *q)
{
    size_t kept = 0;
    for (size_t i = 0; i < q->client_count; i++)
        if (q->clients[i].end > q->now)
            q->clients[kept++] = q->clients[i];
    q->client_count = kept;
}

/* The entry of a client, or a new one; NULL if there is no room, in which case
 * the client starts afresh. */
static struct fair_client *client_find(fair_queue *q, uint64_t client)
{
    clients_forget(q);
    for (size_t i = 0; i < q->client_count; i++)
        if (q->clients[i].client == client)
            return &q->clients[i];
    if (q->client_count == CLIENTS_PER_JOB * q->capacity)
        return NULL;
    q->clients[q->client_count] = (struct fair_client){ client, q->now };
    return &q->clients[q->client_count++];
}

bool fair_queue_add(fair_queue *q, job *j)
{
    if (q->count == q->capacity)
        return false;
    struct fair_client *client = client_find(q, j->client);
    j->start_tag = client ? client->end : q->now;
    if (client)
        client->end = j->start_tag + j->cost;
    q->jobs[q->count++] = j;
    return true;
}

job *fair_queue_next(fair_queue *q)
{
    job *next = NULL;
    for (size_t i = 0; i < q->count; i++)
        if (!next || q->jobs[i]->start_tag < next->start_tag)
            next = q->jobs[i];
    if (next && next->start_tag > q->now)
        q->now = next->start_tag;
    return next;
}

void fair_queue_remove(fair_queue *q, const job *j)
{
    size_t at = 0;
    while (at < q->count && q->jobs[at] != j)
        at++;
    if (at == q->count)
        return;
    q->count--;
    memmove(q->jobs + at, q->jobs + at + 1, (q->count - at) * sizeof(*q->jobs));
}
