/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h - work shared among threads, over OpenMP.
 *
 * Work is a number of tasks that write disjoint outputs; which thread runs
 * which task is left open, since no bit may depend on it. */
#ifndef BT_THREADS_H
#define BT_THREADS_H

#include <stdbool.h>
#include <stddef.h>

/* One task. `thread` counts from 0 below the number of threads asked for and
 * selects scratch memory; nothing else may depend on it. */
typedef void bt_task_fn(void *job, size_t task, int thread);

/* Run tasks 0 to count - 1. They start in this order, each on the first
 * thread that is free; a task may therefore wait for an earlier one. Returns
 * when all are done. Fewer threads are used where the system does not start as
 * many. */
void bt_parallel(int threads, size_t count, bt_task_fn *run, void *job);

/* Cores that this process may use. */
int bt_threads_available(void);

/* A counter that tasks advance and others wait for. */
typedef struct bt_progress {
    _Atomic unsigned done;
} bt_progress;

void bt_progress_set(bt_progress *progress, unsigned done);
/* One more, where several tasks advance the counter in any order. */
void bt_progress_step(bt_progress *progress);
/* Return when the counter has reached `done`; what was written before the
 * bt_progress_set() or the steps that took it there is then visible. */
void bt_progress_wait(const bt_progress *progress, unsigned done);

/* Something that many tasks need and the first of them makes, once in each
 * round; rounds count upwards from 0, and a zeroed bt_once has seen none. */
typedef struct bt_once {
    _Atomic unsigned state;
} bt_once;

/* True: the caller makes it now and then calls bt_once_end(). False: it is
 * made, if need be after a wait for the task that makes it. */
bool bt_once_begin(bt_once *once, unsigned round);
void bt_once_end(bt_once *once, unsigned round);
/* Whether someone has begun to make it; a guess, as it may change at once. */
bool bt_once_begun(const bt_once *once, unsigned round);

#endif
