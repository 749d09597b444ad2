/* SPDX-License-Identifier: Apache-2.0 */
/* race.c - a data race, planted to see whether the thread sanitizer finds it
 * in work that bt_parallel_for() hands out. */
#include "base/threads.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int started;

/* The two tasks meet, which orders nothing, and then both write. */
static void race(void *job, size_t task, int thread)
{
    int *sum = job;
    (void)thread;
    atomic_fetch_add_explicit(&started, 1, memory_order_relaxed);
    while (atomic_load_explicit(&started, memory_order_relaxed) < 2)
        sched_yield();
    *sum += (int)task;
}

int main(void)
{
    int sum = 0;
    bt_parallel_for(2, 2, race, &sum);
    printf("%d\n", sum);
    return 0;
}
