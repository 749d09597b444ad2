/* SPDX-License-Identifier: Apache-2.0 */
/* rank_threads.h - ranks as threads of a test, connected by sockets. */
#ifndef BT_TEST_RANK_THREADS_H
#define BT_TEST_RANK_THREADS_H

#include "runtime/comm.h"
#include "testing.h"

#include <pthread.h>
#include <sys/socket.h>

enum { RANK_THREADS_MAX = 16, RANK_BITS = 4 };

/* Socket i of a rank leads to rank ^ (1 << i). */
typedef struct rank_sockets {
    int to[RANK_THREADS_MAX][RANK_BITS];
} rank_sockets;

static inline rank_sockets rank_sockets_open(int count)
{
    rank_sockets s = { { { 0 } } };
    for (int rank = 0; rank < count; rank++)
        for (int bit = 0; 1 << bit < count; bit++) {
            int pair[2], other = rank ^ 1 << bit;
            if (rank > other)
                continue;
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            s.to[rank][bit] = pair[0];
            s.to[other][bit] = pair[1];
        }
    return s;
}

typedef struct rank_thread {
    int rank, count;
    const int *sockets;
    void (*run)(struct rank_thread *self);
    void *user;
    pthread_barrier_t *all;
    bool failed; /* a rank must not end a test from its thread */
    pthread_t thread;
} rank_thread;

static void *rank_thread_main(void *self)
{
    rank_thread *t = self;
    t->run(t);
    return NULL;
}

/* Run a function on every rank, and wait for all. */
static inline void ranks_run(int count, void (*run)(rank_thread *), void *user)
{
    rank_sockets sockets = rank_sockets_open(count);
    rank_thread ranks[RANK_THREADS_MAX];
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        ranks[i] = (rank_thread){ .rank = i,
                                  .count = count,
                                  .sockets = sockets.to[i],
                                  .run = run,
                                  .user = user,
                                  .all = &all };
        assert_int_equal(
            pthread_create(&ranks[i].thread, NULL, rank_thread_main, &ranks[i]),
            0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(ranks[i].thread, NULL);
    pthread_barrier_destroy(&all);
    for (int i = 0; i < count; i++)
        if (ranks[i].failed)
            fail_msg("rank %d of %d failed", i, count);
}

/* In a rank: note a failure and go on. */
#define RANK_CHECK(self, condition)                                       \
    do {                                                                  \
        if (!(condition)) {                                               \
            print_error("%s:%d: rank %d of %d: %s\n", __FILE__, __LINE__, \
                        (self)->rank, (self)->count, #condition);         \
            (self)->failed = true;                                        \
        }                                                                 \
    } while (0)

#endif
