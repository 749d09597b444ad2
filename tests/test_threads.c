/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads.c - work shared among threads when the system starts none or
 * few. */
#include "testing.h"

#include "base/threads.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TASKS = 64, THREADS = 8 };

typedef struct work {
    atomic_int done[TASKS];
    atomic_int most; /* the largest number of a thread */
} work;

static void task_run(void *job, size_t task, int thread)
{
    work *w = job;
    int most = atomic_load(&w->most);
    while (thread > most &&
           !atomic_compare_exchange_weak(&w->most, &most, thread))
        ;
    atomic_fetch_add(&w->done[task], 1);
}

/* Whether each task has run once, on a thread of those that were asked for. */
static bool all_done(work *w)
{
    bool good = atomic_load(&w->most) < THREADS;
    for (size_t i = 0; i < TASKS; i++)
        good &= atomic_load(&w->done[i]) == 1;
    return good;
}

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%zu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a process that may grow by this many MiB: a thread's stack takes 8. */
static int child_run(size_t mib)
{
    struct rlimit stack = { 8 << 20, 8 << 20 };
    size_t now = address_space();
    struct rlimit space = { now + (mib << 20), now + (mib << 20) };
    work w = { .most = 0 };
    if (!now)
        return 77;
    if (setrlimit(RLIMIT_STACK, &stack) || setrlimit(RLIMIT_AS, &space))
        return 2;
    bt_parallel_for(THREADS, TASKS, task_run, &w);
    return all_done(&w) ? 0 : 3;
}

static void work_completes_if_threads_do_not_start(void **state)
{
    (void)state;
#ifdef BT_SANITIZED
    skip(); // sanitizers reserve all of the address space
#endif
    const size_t mib[] = { 1, 4, 12, 40, 400 };
    for (size_t i = 0; i < sizeof(mib) / sizeof(*mib); i++) {
        int status = -1;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit(child_run(mib[i]));
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            skip(); // no /proc
        if (!WIFEXITED(status) || WEXITSTATUS(status))
            fail_msg("with %zu MiB: wait status 0x%x", mib[i],
                     (unsigned)status);
    }
}

static void work_is_done_by_many_threads(void **state)
{
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        work w = { .most = 0 };
        bt_parallel_for(threads, TASKS, task_run, &w);
        assert_true(all_done(&w));
    }
}

int main(void)
{
    // The first is run before this process has threads, which a child of it
    // would not have.
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_completes_if_threads_do_not_start),
        cmocka_unit_test(work_is_done_by_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
