/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - waits between the tasks of a parallel loop. */
#include "base/threads.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

void bt_progress_set(bt_progress *progress, unsigned done)
{
    atomic_store_explicit(&progress->done, done, memory_order_release);
}

void bt_progress_increment(bt_progress *progress)
{
    atomic_fetch_add_explicit(&progress->done, 1, memory_order_release);
}

/* Spin first, since most waits are short; then yield, since the other thread
 * may be waiting for this core; then sleep, since it has lost its own to
 * another process. */
static void spin_or_sleep(unsigned *turns)
{
    enum { SPINS = 1000, YIELDS = 100, SLEEP_NS = 50 * 1000 };
    if (++*turns <= SPINS)
        return;
    if (*turns <= SPINS + YIELDS) {
        sched_yield();
        return;
    }
    *turns = SPINS + YIELDS;
    nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NS }, NULL);
}

void bt_progress_wait(const bt_progress *progress, unsigned done)
{
    unsigned turns = 0;
    while (atomic_load_explicit(&progress->done, memory_order_acquire) < done)
        spin_or_sleep(&turns);
}

/* The state is 2 * round + 1 while the result is computed and 2 * round + 2
 * when it is ready; anything less is from an earlier round. */
bool bt_once_begin(bt_once *once, unsigned round)
{
    unsigned busy = 2 * round + 1, turns = 0;
    unsigned state = atomic_load_explicit(&once->state, memory_order_acquire);
    while (state < busy)
        if (atomic_compare_exchange_weak_explicit(&once->state, &state, busy,
                                                  memory_order_acquire,
                                                  memory_order_acquire))
            return true;
    while (state == busy) {
        spin_or_sleep(&turns);
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
