/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - work for the scheduler's thread; see job.h. */
#include "job.h"

#include "../cli/format.h"

enum { WAITING_MAX = 1 << 20 }; /* bytes of a stream that nobody reads */

void job_init(job *j, const job_calls *calls)
{
    j->calls = calls;
    j->room_max = WAITING_MAX;
    j->owners = 1;
    atomic_init(&j->cancelled, false);
    pthread_mutex_init(&j->lock, NULL);
}

void job_release(job *j)
{
    pthread_mutex_lock(&j->lock);
    unsigned owners = --j->owners;
    pthread_mutex_unlock(&j->lock);
    if (owners)
        return;
    pthread_mutex_destroy(&j->lock);
    buffer_release(&j->out);
    j->calls->free(j);
}

/* With the lock held. */
static void connection_wake(job *j)
{
    struct MHD_Connection *connection = j->suspended;
    j->suspended = NULL;
    if (connection)
        MHD_resume_connection(connection);
}

void job_write(job *j, int status, const char *type, const char *bytes,
               size_t length)
{
    pthread_mutex_lock(&j->lock);
    if (!j->status) {
        j->status = status;
        j->type = type;
    }
    if (j->sent == j->out.length)
        j->sent = j->out.length = 0;
    buffer_add(&j->out, bytes, length);
    connection_wake(j);
    pthread_mutex_unlock(&j->lock);
}

void job_end(job *j)
{
    pthread_mutex_lock(&j->lock);
    j->done = true;
    connection_wake(j);
    pthread_mutex_unlock(&j->lock);
}

bool job_stopped(job *j)
{
    if (atomic_load(&j->cancelled) || j->failed.status)
        return true;
    if (seconds_now() > j->deadline)
        return !fail(&j->failed, 504, NULL, "timeout",
                     "the request took longer than the server allows");
    pthread_mutex_lock(&j->lock);
    bool slow = j->out.length - j->sent > j->room_max || j->out.failed;
    pthread_mutex_unlock(&j->lock);
    if (slow)
        atomic_store(&j->cancelled, true);
    return slow;
}

bool job_wait(job *j, struct MHD_Connection *connection)
{
    pthread_mutex_lock(&j->lock);
    bool ready = j->done || (j->stream && j->sent < j->out.length);
    if (!ready) {
        j->suspended = connection;
        MHD_suspend_connection(connection);
    }
    pthread_mutex_unlock(&j->lock);
    return !ready;
}
