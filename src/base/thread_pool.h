/* SPDX-License-Identifier: Apache-2.0 */
/* thread_pool.h - parallel loops on a pool of threads.
 *
 * A loop runs tasks that write disjoint outputs. Any thread may run any task,
 * so no result may depend on the assignment.
 *
 * Between loops the threads of a pool spin for a few microseconds and then
 * sleep. They block asynchronous signals, so that handlers run on threads of
 * the program. */
#ifndef BT_THREAD_POOL_H
#define BT_THREAD_POOL_H

#include "bauta.h"

#include <pthread.h>

#define BT_THREADS_MAX 1024 /* of a pool */

typedef struct bt_thread_pool bt_thread_pool;

/* One task. `thread`, from 0 to the number of threads of the pool - 1, selects
 * scratch memory; nothing else may depend on it. Tasks of one loop that run at
 * the same time have different numbers. */
typedef void bt_task_fn(void *job, size_t task, int thread);

/* A pool of `threads` threads, 1 or more, of which the caller of a loop is one.
 * Fails if the system cannot start them. */
bauta_status bt_thread_pool_create(bt_thread_pool **out, int threads,
                                   bauta_error *err);
/* A pool without threads of its own, whose loops call `parallel_for` of
 * bauta_options with shares 0 to `threads` - 1 at most. */
bauta_status bt_thread_pool_create_custom(bt_thread_pool **out, int threads,
                                          bauta_parallel_for_fn *parallel_for,
                                          void *user, bauta_error *err);
/* No loop may be running. NULL is allowed. */
void bt_thread_pool_free(bt_thread_pool *pool);
/* 1 for NULL. */
int bt_thread_pool_threads(const bt_thread_pool *pool);

/* Run tasks 0 to count - 1 and return when all are done. They start in this
 * order, each on the first free thread, so a task may wait for an earlier one.
 * A pool of NULL is the calling thread alone. A loop that is started inside a
 * task of the same pool, or while another thread runs a loop on it, runs on the
 * calling thread alone, as thread 0.
 *
 * After fork() the child has no threads but the one that called it. The first
 * loop there starts the threads of the pool again; if the system cannot start
 * all of them, loops run on those that it could start. A task must not call
 * fork() and continue in the child. */
void bt_parallel_for(bt_thread_pool *pool, size_t count, bt_task_fn *run,
                     void *job);

/* Number of cores that this process may use: its CPU affinity and the CPU
 * quota of its control groups, rounded up; from 1 to BT_THREADS_MAX. */
int bt_threads_available(void);

/* ---- Waits between the tasks of a loop ---------------------------------- */

/* A counter that tasks advance and others wait for. */
typedef struct bt_progress {
    _Atomic unsigned done;
} bt_progress;

void bt_progress_set(bt_progress *progress, unsigned done);
/* Add one; several tasks may do so in any order. */
void bt_progress_increment(bt_progress *progress);
/* Wait until the counter has reached `done`. Everything written before the
 * bt_progress_set() or bt_progress_increment() calls that took it there is then
 * visible. */
void bt_progress_wait(const bt_progress *progress, unsigned done);

/* A result that many tasks need and the first of them computes, once per round.
 * Rounds count up from 0; a zeroed bt_once has completed none. */
typedef struct bt_once {
    _Atomic unsigned state;
} bt_once;

/* True: the caller computes it and then calls bt_once_end(). False: it is
 * ready, possibly after waiting for the task that computes it. */
bool bt_once_begin(bt_once *once, unsigned round);
void bt_once_end(bt_once *once, unsigned round);
/* Whether a task has started on it; the answer may be outdated at once. */
bool bt_once_started(const bt_once *once, unsigned round);

/* Start a thread that gets no signals but those of its own faults; 0 or an
 * error number. pthread_join() ends it. */
int bt_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
