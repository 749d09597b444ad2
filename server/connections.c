/* SPDX-License-Identifier: Apache-2.0 */
/* connections.c - open connections, watched; see connections.h. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "connections.h"

#include "../cli/format.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct open_connection {
    open_connection *previous, *next;
    uint64_t id;
    int fd;
    double since; /* when it began to wait for a request */
    bool busy;
    job *job;
};

struct connections {
    int epoll;
    double seconds;
    pthread_mutex_t lock; /* for all below */
    open_connection *first;
    uint64_t last_id;
};

connections *connections_create(size_t seconds)
{
    connections *all = calloc(1, sizeof(*all));
    if (!all)
        return NULL;
    all->seconds = (double)seconds;
    all->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (all->epoll < 0) {
        free(all);
        return NULL;
    }
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

void connections_free(connections *all)
{
    if (!all)
        return;
    close(all->epoll);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

bool connections_watch(connections *all, int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0 };
    return epoll_ctl(all->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* ---- one connection ---------------------------------------------------- */

open_connection *connection_open(connections *all, int fd)
{
    open_connection *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    pthread_mutex_lock(&all->lock);
    c->id = ++all->last_id;
    c->fd = fd;
    c->since = seconds_now();
    c->next = all->first;
    if (c->next)
        c->next->previous = c;
    all->first = c;
    pthread_mutex_unlock(&all->lock);
    struct epoll_event event = { .events = EPOLLRDHUP | EPOLLET,
                                 .data.u64 = c->id };
    epoll_ctl(all->epoll, EPOLL_CTL_ADD, fd, &event);
    return c;
}

void connection_close(connections *all, open_connection *c)
{
    if (!c)
        return;
    epoll_ctl(all->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    pthread_mutex_lock(&all->lock);
    if (c->previous)
        c->previous->next = c->next;
    else
        all->first = c->next;
    if (c->next)
        c->next->previous = c->previous;
    pthread_mutex_unlock(&all->lock);
    free(c);
}

void connection_busy(connections *all, open_connection *c, job *j)
{
    if (!c)
        return;
    pthread_mutex_lock(&all->lock);
    c->busy = true;
    c->job = j;
    pthread_mutex_unlock(&all->lock);
    // It may have been closed before there was a job to cancel.
    struct pollfd now = { .fd = c->fd, .events = POLLRDHUP };
    if (j && poll(&now, 1, 0) > 0)
        atomic_store(&j->cancelled, true);
}

void connection_idle(connections *all, open_connection *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&all->lock);
    c->busy = false;
    c->job = NULL;
    c->since = seconds_now();
    pthread_mutex_unlock(&all->lock);
}

/* ---- all of them ------------------------------------------------------- */

static void connection_hung_up(connections *all, uint64_t id)
{
    pthread_mutex_lock(&all->lock);
    for (open_connection *c = all->first; c; c = c->next)
        if (c->id == id && c->job)
            atomic_store(&c->job->cancelled, true);
    pthread_mutex_unlock(&all->lock);
}

/* End connections whose request does not arrive, and those of clients that left
 * or do not read. The socket stays open until libmicrohttpd closes it. */
static void connections_expire(connections *all)
{
    double now = seconds_now();
    pthread_mutex_lock(&all->lock);
    for (open_connection *c = all->first; c; c = c->next)
        if (c->job ? atomic_load(&c->job->cancelled)
                   : !c->busy && now - c->since > all->seconds)
            shutdown(c->fd, SHUT_RDWR);
    pthread_mutex_unlock(&all->lock);
}

void connections_poll(connections *all, int milliseconds)
{
    enum { EVENTS = 64 };
    struct epoll_event events[EVENTS];
    int count = epoll_wait(all->epoll, events, EVENTS, milliseconds);
    for (int i = 0; i < count; i++)
        if (events[i].data.u64)
            connection_hung_up(all, events[i].data.u64);
    connections_expire(all);
}

void connections_cancel(connections *all)
{
    pthread_mutex_lock(&all->lock);
    for (open_connection *c = all->first; c; c = c->next)
        if (c->job)
            atomic_store(&c->job->cancelled, true);
    pthread_mutex_unlock(&all->lock);
}
