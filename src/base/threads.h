/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h - waits between the tasks of a parallel loop (thread_pool.h). */
#ifndef BT_THREADS_H
#define BT_THREADS_H

#include <stdbool.h>

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
