/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - tasks handed out by a shared counter.
 *
 * OpenMP ends the process when it cannot start a thread. So before a thread
 * requests a larger team than before, that many threads are started and joined
 * here as a test. If fewer can be started, fewer are used. */
#include "base/threads.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* ---- How many threads can be started ------------------------------------- */

enum { PROBE_MAX = 1024, STACK_MORE = 1 << 20 };

/* Wait until all others have started. */
static void *probe_run(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* How many of `wanted` threads can exist at the same time. */
static int probe(int wanted)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[PROBE_MAX];
    pthread_attr_t attributes;
    size_t stack = 0;
    int started = 0;
    // The C library caches the stacks for the next threads. OpenMP's may be a
    // little larger than the default and must fit into them.
    if (pthread_attr_init(&attributes))
        return 0;
    (void)pthread_attr_getstacksize(&attributes, &stack);
    (void)pthread_attr_setstacksize(&attributes, stack + STACK_MORE);
    pthread_mutex_lock(&gate);
    while (started < wanted && started < PROBE_MAX &&
           !pthread_create(&threads[started], &attributes, probe_run, &gate))
        started++;
    pthread_mutex_unlock(&gate);
    pthread_attr_destroy(&attributes);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&gate);
    return started;
}

/* The team size that the calling thread can have, at most `wanted`. OpenMP
 * keeps a team for each thread that starts one. After a failure no larger team
 * is tried again. */
static int team_size(int wanted)
{
    static _Thread_local int most = 1;
    static _Thread_local bool refused;
    if (wanted <= most || refused)
        return wanted < most ? wanted : most;
    // OpenMP allocates memory of its own: at start, which this call triggers,
    // and per thread, for which one thread more than needed is tested.
    (void)omp_get_max_threads();
    int started = probe(wanted);
    most = started > most ? started : most;
    refused = started < wanted;
    return most;
}

/* ---- Tasks --------------------------------------------------------------- */

void bt_parallel_for(int threads, size_t count, bt_task_fn *run, void *job)
{
    if (threads > 1 && (size_t)threads > count)
        threads = (int)count;
    if (threads > 1)
        threads = team_size(threads);
    if (threads <= 1) {
        for (size_t task = 0; task < count; task++)
            run(job, task, 0);
        return;
    }
    atomic_size_t next = 0;
#pragma omp parallel num_threads(threads)
    {
        // Relaxed: the counter orders nothing else, so the thread sanitizer
        // sees races between tasks.
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

void bt_progress_increment(bt_progress *progress)
{
    atomic_fetch_add_explicit(&progress->done, 1, memory_order_release);
}

/* Spin first, since most waits are short; then yield, since the other thread
 * may have lost its core. */
static void spin_or_yield(unsigned *spins)
{
    if (++*spins > 1000)
        sched_yield();
}

void bt_progress_wait(const bt_progress *progress, unsigned done)
{
    unsigned spins = 0;
    while (atomic_load_explicit(&progress->done, memory_order_acquire) < done)
        spin_or_yield(&spins);
}

/* The state is 2 * round + 1 while the result is computed and 2 * round + 2
 * when it is ready; anything less is from an earlier round. */
bool bt_once_begin(bt_once *once, unsigned round)
{
    unsigned busy = 2 * round + 1, spins = 0;
    unsigned state = atomic_load_explicit(&once->state, memory_order_acquire);
    while (state < busy)
        if (atomic_compare_exchange_weak_explicit(&once->state, &state, busy,
                                                  memory_order_acquire,
                                                  memory_order_acquire))
            return true;
    while (state == busy) {
        spin_or_yield(&spins);
        state = atomic_load_explicit(&once->state, memory_order_acquire);
    }
    return false;
}

void bt_once_end(bt_once *once, unsigned round)
{
    atomic_store_explicit(&once->state, 2 * round + 2, memory_order_release);
}

bool bt_once_started(const bt_once *once, unsigned round)
{
    return atomic_load_explicit(&once->state, memory_order_relaxed) > 2 * round;
}
