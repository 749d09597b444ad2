/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - tasks handed out by one shared counter. */
#include "base/threads.h"

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>

void bt_parallel(int threads, size_t count, bt_task_fn *run, void *job)
{
    if (threads <= 1 || count <= 1) {
        for (size_t task = 0; task < count; task++)
            run(job, task, 0);
        return;
    }
    if ((size_t)threads > count)
        threads = (int)count;
    atomic_size_t next = 0;
#pragma omp parallel num_threads(threads)
    {
        // Relaxed: the counter hands out numbers and orders nothing else, so
        // that the thread sanitizer sees races between tasks.
        size_t task;
        while ((task = atomic_fetch_add_explicit(&next, 1,
                                                 memory_order_relaxed)) < count)
            run(job, task, omp_get_thread_num());
    }
}

int bt_threads_available(void)
{
    return omp_get_num_procs();
}

void bt_progress_set(bt_progress *progress, unsigned done)
{
    atomic_store_explicit(&progress->done, done, memory_order_release);
}

void bt_progress_step(bt_progress *progress)
{
    atomic_fetch_add_explicit(&progress->done, 1, memory_order_release);
}

/* Most waits are short, but the thread waited for may have lost its core. */
static void wait_a_little(unsigned *spins)
{
    if (++*spins > 1000)
        sched_yield();
}

void bt_progress_wait(const bt_progress *progress, unsigned done)
{
    unsigned spins = 0;
    while (atomic_load_explicit(&progress->done, memory_order_acquire) < done)
        wait_a_little(&spins);
}

/* The state is 2 * round + 1 while it is being made and one more when it is
 * there; anything less is from an earlier round. */
bool bt_once_begin(bt_once *once, unsigned round)
{
    unsigned making = 2 * round + 1, spins = 0;
    unsigned state = atomic_load_explicit(&once->state, memory_order_acquire);
    while (state < making)
        if (atomic_compare_exchange_weak_explicit(&once->state, &state, making,
                                                  memory_order_acquire,
                                                  memory_order_acquire))
            return true;
    while (state == making) {
        wait_a_little(&spins);
        state = atomic_load_explicit(&once->state, memory_order_acquire);
    }
    return false;
}

void bt_once_end(bt_once *once, unsigned round)
{
    atomic_store_explicit(&once->state, 2 * round + 2, memory_order_release);
}

bool bt_once_begun(const bt_once *once, unsigned round)
{
    return atomic_load_explicit(&once->state, memory_order_relaxed) > 2 * round;
}
