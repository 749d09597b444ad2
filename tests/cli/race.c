/* SPDX-License-Identifier: Apache-2.0 */
/* race.c - a deliberate data race, to test that the thread sanitizer finds
 * races in the tasks of bt_parallel_for(). */
#include "base/thread_pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int started;

/* The two tasks meet, without synchronizing, and then both write. */
static void race(void *job, size_t task, int thread)
{
    int *sum = job;
    (void)thread;
    atomic_fetch_add_explicit(&started, 1, memory_order_relaxed);
    while (atomic_load_explicit(&started, memory_order_relaxed) < 2)
        sched_yield();
    *sum += (int)task;
}

/* The sanitizer may miss a single race, so there are many. */
int main(void)
{
    enum { TIMES = 64 };
    static int sums[TIMES];
    int total = 0;
    bt_thread_pool *pool;
    if (bt_thread_pool_create(&pool, 2, NULL))
        return 1;
    for (size_t i = 0; i < TIMES; i++) {
        atomic_store(&started, 0);
        bt_parallel_for(pool, 2, race, &sums[i]);
        total += sums[i];
    }
    bt_thread_pool_free(pool);
    printf("%d\n", total);
    return 0;
}
