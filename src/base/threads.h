/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h - parallel loops over OpenMP, and the waits between their tasks.
 *
 * A loop runs tasks that write disjoint outputs. Any thread may run any task,
 * so no result may depend on the assignment. */
#ifndef BT_THREADS_H
#define BT_THREADS_H

#include <stdbool.h>
#include <stddef.h>

/* One task. `thread`, from 0 to the requested number of threads - 1, selects
 * scratch memory; nothing else may depend on it. */
typedef void bt_task_fn(void *job, size_t task, int thread);

/* Run tasks 0 to count - 1 and return when all are done. They start in this
 * order, each on the first free thread, so a task may wait for an earlier one.
 * Fewer threads are used if the system cannot start as many. */
void bt_parallel_for(int threads, size_t count, bt_task_fn *run, void *job);

/* Number of cores that this process may use. */
int bt_threads_available(void);

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

#endif
