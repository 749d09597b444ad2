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
        size_t task;
        while ((task = atomic_fetch_add(&next, 1)) < count)
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
    atomic_fetch_add_explicit(&progress->done, 1, memory_order_acq_rel);
}

void bt_progress_wait(const bt_progress *progress, unsigned done)
{
    // Most waits are short, but the thread waited for may have lost its core.
    for (unsigned spins = 0;
         atomic_load_explicit(&progress->done, memory_order_acquire) < done;
         spins++)
        if (spins >= 1000)
            sched_yield();
}
