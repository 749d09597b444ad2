/* SPDX-License-Identifier: Apache-2.0 */
/* test_thread_pool.c - parallel loops, the waits between their tasks, and the
 * number of cores. */
#define _GNU_SOURCE // sched_setaffinity()
#include "allocation_faults.h"
#include "temp_folder.h"

#include "base/cpu_quota.h"
#include "base/error.h"
#include "base/thread_pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A sanitizer's own threads and locks do not survive a fork: the thread
 * sanitizer ends a child that starts a thread, and a child of the address
 * sanitizer hangs if a thread was starting at the moment of the fork. */
#ifdef BT_SANITIZED
#define BT_FORK_THEN_THREADS 0
#else
#define BT_FORK_THEN_THREADS 1
#endif

enum { TASKS_MAX = 2000, THREADS_MOST = 9 };

static uint64_t seed;

/* ---- threads that do not start ------------------------------------------- */

/* The linker redirects the calls of the library here (tests/CMakeLists.txt). */
__typeof__(pthread_create) __wrap_pthread_create, __real_pthread_create;
__typeof__(pthread_join) __wrap_pthread_join, __real_pthread_join;

static struct {
    int fail_at;        /* the thread that does not start; -1: none */
    atomic_int running; /* threads that were started and not joined */
} starts = { .fail_at = -1 };

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument)
{
    if (starts.fail_at >= 0 && starts.fail_at-- == 0)
        return EAGAIN;
    int error = __real_pthread_create(thread, attributes, run, argument);
    atomic_fetch_add(&starts.running, !error);
    return error;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    int error = __real_pthread_join(thread, result);
    atomic_fetch_sub(&starts.running, !error);
    return error;
}

/* ---- loops --------------------------------------------------------------- */

typedef struct work {
    size_t count;
    int threads;
    uint32_t in[TASKS_MAX], out[TASKS_MAX];
    atomic_int runs[TASKS_MAX];
    atomic_bool in_use[THREADS_MOST]; /* numbers of threads */
    atomic_bool failed;
    bt_progress progress;
} work;

static uint32_t mix(uint32_t x, unsigned turns)
{
    for (unsigned i = 0; i < turns; i++)
        x = (x ^ x >> 15) * 0x2c1b3c6du + i;
    return x;
}

static void work_fill(work *w, size_t count, int threads, test_random *r)
{
    memset(w, 0, sizeof(*w));
    w->count = count;
    w->threads = threads;
    for (size_t i = 0; i < count; i++)
        w->in[i] = test_u32(r);
}

/* cmocka's checks are for the main thread, so tasks only note a failure. */
static void task_run(void *job, size_t task, int thread)
{
    work *w = job;
    if (task >= w->count || thread < 0 || thread >= w->threads ||
        atomic_exchange(&w->in_use[thread], true)) {
        atomic_store(&w->failed, true);
        return;
    }
    w->out[task] = mix(w->in[task], w->in[task] % 256);
    atomic_fetch_add(&w->runs[task], 1);
    atomic_store(&w->in_use[thread], false);
}

static bool work_is_done(work *w)
{
    bool good = !atomic_load(&w->failed);
    for (size_t i = 0; i < w->count; i++)
        good &= atomic_load(&w->runs[i]) == 1 &&
                w->out[i] == mix(w->in[i], w->in[i] % 256);
    return good;
}

static bt_thread_pool *pool_of(int threads)
{
    bt_thread_pool *pool;
    bauta_error err;
    if (bt_thread_pool_create(&pool, threads, &err))
        fail_msg("%s", err.message);
    assert_int_equal(bt_thread_pool_threads(pool), threads);
    return pool;
}

static void pause_us(long us)
{
    nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    static work w;
    for (int threads = 1; threads < THREADS_MOST; threads++) {
        bt_thread_pool *pool = pool_of(threads);
        for (int i = 0; i < 200; i++) {
            size_t most = i % 2 ? TASKS_MAX : 2 * (size_t)threads;
            work_fill(&w, test_below(&r, most + 1), threads, &r);
            bt_parallel_for(pool, w.count, task_run, &w);
            if (!work_is_done(&w))
                fail_msg("loop %d with %zu tasks on %d threads", i, w.count,
                         threads);
            if (test_below(&r, 8) == 0)
                pause_us(100); // the threads fall asleep
        }
        bt_thread_pool_free(pool);
    }
    work_fill(&w, 100, 1, &r);
    bt_parallel_for(NULL, w.count, task_run, &w);
    assert_true(work_is_done(&w));
    assert_int_equal(bt_thread_pool_threads(NULL), 1);
    bt_thread_pool_free(NULL);
}

static void pools_come_and_go(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 1);
    static work w;
    for (int i = 0; i < 300; i++) {
        int threads = 1 + (int)test_below(&r, THREADS_MOST - 1);
        bt_thread_pool *pool = pool_of(threads);
        for (size_t loops = test_below(&r, 3); loops; loops--) {
            work_fill(&w, test_below(&r, 50), threads, &r);
            bt_parallel_for(pool, w.count, task_run, &w);
            assert_true(work_is_done(&w));
        }
        bt_thread_pool_free(pool);
        assert_int_equal(atomic_load(&starts.running), 0);
    }
}

static void task_run_in_turn(void *job, size_t task, int thread)
{
    work *w = job;
    bt_progress_wait(&w->progress, (unsigned)task); // all earlier ones are done
    task_run(job, task, thread);
    bt_progress_set(&w->progress, (unsigned)task + 1);
}

static void tasks_may_wait_for_earlier_ones(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 2);
    static work w;
    for (int threads = 1; threads <= 4; threads++) {
        bt_thread_pool *pool = pool_of(threads);
        for (int i = 0; i < 10; i++) {
            work_fill(&w, 1000, threads, &r);
            bt_parallel_for(pool, w.count, task_run_in_turn, &w);
            assert_true(work_is_done(&w));
        }
        bt_thread_pool_free(pool);
    }
}

/* ---- a result that the first task computes ------------------------------- */

typedef struct shared_result {
    bt_once once;
    unsigned round;
    atomic_int computed;
    int value; /* written by one task, read by all */
    atomic_bool failed;
} shared_result;

static void task_share(void *job, size_t task, int thread)
{
    shared_result *s = job;
    (void)task;
    (void)thread;
    if (bt_once_begin(&s->once, s->round)) {
        s->value = (int)s->round + 7;
        atomic_fetch_add(&s->computed, 1);
        bt_once_end(&s->once, s->round);
    }
    if (s->value != (int)s->round + 7 || !bt_once_started(&s->once, s->round))
        atomic_store(&s->failed, true);
}

static void one_task_computes_what_all_need(void **state)
{
    (void)state;
    bt_thread_pool *pool = pool_of(4);
    shared_result s = { .round = 0 };
    for (; s.round < 200; s.round++) {
        bt_parallel_for(pool, 8, task_share, &s);
        assert_int_equal(atomic_load(&s.computed), (int)s.round + 1);
        assert_false(atomic_load(&s.failed));
    }
    bt_thread_pool_free(pool);
}

/* ---- loops inside and beside loops --------------------------------------- */

typedef struct nest {
    bt_thread_pool *pool;
    work inner[8];
} nest;

static void task_nested(void *job, size_t task, int thread)
{
    nest *n = job;
    (void)thread;
    bt_parallel_for(n->pool, n->inner[task].count, task_run, &n->inner[task]);
}

static void a_loop_inside_a_task_runs_on_its_thread(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 3);
    static nest n;
    n.pool = pool_of(3);
    for (int turn = 0; turn < 20; turn++) {
        for (size_t i = 0; i < BT_LEN(n.inner); i++)
            work_fill(&n.inner[i], 50, 1, &r); // thread 0 only
        bt_parallel_for(n.pool, BT_LEN(n.inner), task_nested, &n);
        for (size_t i = 0; i < BT_LEN(n.inner); i++)
            assert_true(work_is_done(&n.inner[i]));
    }
    bt_thread_pool_free(n.pool);
}

typedef struct application {
    bt_thread_pool *pool;
    uint64_t seed;
    work work;
    bool good;
} application;

static void *application_run(void *argument)
{
    application *a = argument;
    test_random r = test_random_from(a->seed);
    int threads = bt_thread_pool_threads(a->pool);
    a->good = true;
    for (int i = 0; i < 100; i++) {
        work_fill(&a->work, test_below(&r, 200), threads, &r);
        bt_parallel_for(a->pool, a->work.count, task_run, &a->work);
        a->good &= work_is_done(&a->work);
    }
    return NULL;
}

static void threads_of_the_program_may_share_a_pool(void **state)
{
    (void)state;
    static application of[4];
    pthread_t threads[4];
    bt_thread_pool *pool = pool_of(3);
    for (size_t i = 0; i < BT_LEN(of); i++) {
        of[i].pool = pool;
        of[i].seed = seed + 4 + i;
        assert_int_equal(
            pthread_create(&threads[i], NULL, application_run, &of[i]), 0);
    }
    for (size_t i = 0; i < BT_LEN(of); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(of[i].good);
    }
    bt_thread_pool_free(pool);
}

#ifdef _OPENMP
static void pools_work_inside_an_openmp_program(void **state)
{
    (void)state;
    static application of[3];
    int good = 0;
#pragma omp parallel for num_threads(3) reduction(+ : good)
    for (int i = 0; i < 3; i++) {
        of[i].seed = seed + 20 + (uint64_t)i;
        if (bt_thread_pool_create(&of[i].pool, 3, NULL) == BAUTA_OK) {
            application_run(&of[i]);
            good += of[i].good;
        }
        bt_thread_pool_free(of[i].pool);
    }
    assert_int_equal(good, 3);
}
#endif

/* ---- failures ------------------------------------------------------------ */

static void a_pool_needs_all_of_its_threads(void **state)
{
    (void)state;
    faults_begin();
    for (int threads = 2; threads <= 6; threads++)
        for (int k = 0; k < threads - 1; k++) {
            bt_thread_pool *pool = NULL;
            bauta_error err;
            starts.fail_at = k;
            assert_int_equal(bt_thread_pool_create(&pool, threads, &err),
                             BAUTA_ERR_NOMEM);
            assert_int_equal(starts.fail_at, -1);
            assert_null(pool);
            assert_non_null(strstr(err.message, "cannot start"));
            assert_non_null(strstr(err.message, strerror(EAGAIN)));
            assert_int_equal(atomic_load(&starts.running), 0);
            assert_int_equal(faults_live(), 0);
        }
    assert_int_equal(faults_end(), 0);
}

static void threads_out_of_range_are_errors(void **state)
{
    (void)state;
    const int bad[] = { -1, 0, BT_THREADS_MAX + 1 };
    for (size_t i = 0; i < BT_LEN(bad); i++) {
        bt_thread_pool *pool;
        bauta_error err;
        assert_int_equal(bt_thread_pool_create(&pool, bad[i], &err),
                         BAUTA_ERR_ARGUMENT);
        assert_null(pool);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    faults_begin();
    for (size_t k = 0;; k++) {
        bt_thread_pool *pool;
        bauta_error err;
        faults_arm(k);
        bauta_status status = bt_thread_pool_create(&pool, 4, &err);
        if (!faults_disarm()) {
            assert_int_equal(status, BAUTA_OK);
            bt_thread_pool_free(pool);
            break;
        }
        assert_int_equal(status, BAUTA_ERR_NOMEM);
        assert_null(pool);
    }
    assert_int_equal(faults_end(), 0);
    assert_int_equal(atomic_load(&starts.running), 0);
}

/* The exit status of a function in a child process. */
static int child_status(int (*run)(void *), void *argument)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60); // ends a child that hangs
        _exit(run(argument));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
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

/* In a process that may grow by some MiB: a thread's stack takes 8. */
static int starved_run(void *argument)
{
    size_t now = address_space(), mib = *(size_t *)argument;
    struct rlimit stack = { 8 << 20, 8 << 20 };
    struct rlimit space = { now + (mib << 20), now + (mib << 20) };
    static work w;
    test_random r = test_random_from(1);
    bt_thread_pool *pool;
    bauta_error err;
    if (!now)
        return 77;
    if (setrlimit(RLIMIT_STACK, &stack) || setrlimit(RLIMIT_AS, &space))
        return 2;
    bauta_status status = bt_thread_pool_create(&pool, 8, &err);
    if (status &&
        (status != BAUTA_ERR_NOMEM || pool || atomic_load(&starts.running)))
        return 3;
    work_fill(&w, 100, 8, &r);
    bt_parallel_for(pool, w.count, task_run, &w);
    bt_thread_pool_free(pool);
    return work_is_done(&w) ? (status ? 100 : 0) : 4;
}

static void a_process_without_memory_gets_an_error(void **state)
{
    (void)state;
#ifdef BT_SANITIZED
    skip(); // sanitizers reserve all of the address space
#endif
    size_t mib[] = { 1, 4, 12, 40, 400 };
    for (size_t i = 0; i < BT_LEN(mib); i++) {
        int status = child_status(starved_run, &mib[i]);
        if (status == 77)
            skip(); // no /proc
        if (status != (mib[i] < 56 ? 100 : 0))
            fail_msg("with %zu MiB: status %d", mib[i], status);
    }
}

/* ---- fork ---------------------------------------------------------------- */

typedef struct forked {
    bt_thread_pool *pool;
    bool starved; /* the child cannot start threads */
} forked;

static int forked_run(void *argument)
{
    forked *f = argument;
    static work w;
    test_random r = test_random_from(2);
    atomic_store(&starts.running, 0); // none of them is in this process
    starts.fail_at = f->starved ? 1 : -1;
    for (int i = 0; i < 20; i++) {
        work_fill(&w, 100, 4, &r);
        bt_parallel_for(f->pool, w.count, task_run, &w);
        if (!work_is_done(&w))
            return 1;
    }
    if (atomic_load(&starts.running) != (f->starved ? 1 : 3))
        return 2;
    bt_thread_pool_free(f->pool);
    return atomic_load(&starts.running) ? 3 : 0;
}

static int forked_free(void *argument)
{
    forked *f = argument;
    bt_thread_pool_free(f->pool);
    return 0;
}

static int forked_again(void *argument)
{
    return child_status(forked_run, argument);
}

static void a_pool_works_in_a_child_process(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 10);
    static work w;
    if (!BT_FORK_THEN_THREADS)
        skip();
    forked f = { .pool = pool_of(4) };
    for (int used = 0; used < 2; used++) {
        f.starved = false;
        assert_int_equal(child_status(forked_run, &f), 0);
        assert_int_equal(child_status(forked_again, &f), 0);
        assert_int_equal(child_status(forked_free, &f), 0);
        f.starved = true;
        assert_int_equal(child_status(forked_run, &f), 0);
        // It still works in the parent.
        work_fill(&w, 100, 4, &r);
        bt_parallel_for(f.pool, w.count, task_run, &w);
        assert_true(work_is_done(&w));
    }
    bt_thread_pool_free(f.pool);
}

static atomic_bool looping, enough;

static void *loops_until_enough(void *argument)
{
    application *a = argument;
    bool good = true;
    while (!atomic_load(&enough)) {
        application_run(a);
        good &= a->good;
        atomic_store(&looping, true);
    }
    a->good = good;
    return NULL;
}

static void a_child_may_be_forked_while_a_loop_runs(void **state)
{
    (void)state;
    if (!BT_FORK_THEN_THREADS)
        skip();
    static application a;
    pthread_t thread;
    a.pool = pool_of(4);
    a.seed = seed + 11;
    forked f = { .pool = a.pool };
    assert_int_equal(pthread_create(&thread, NULL, loops_until_enough, &a), 0);
    while (!atomic_load(&looping))
        pause_us(100);
    for (int i = 0; i < 20; i++) {
        pause_us(100);
        assert_int_equal(child_status(forked_run, &f), 0);
    }
    atomic_store(&enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(a.good);
    bt_thread_pool_free(a.pool);
}

/* ---- sleeping and signals ------------------------------------------------ */

static void an_idle_pool_uses_no_cpu(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 12);
    static work w;
    bt_thread_pool *pool = pool_of(2);
    work_fill(&w, 100, 2, &r);
    bt_parallel_for(pool, w.count, task_run, &w);
    pause_us(20000);
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    pause_us(200000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    double used = (double)(to.tv_sec - from.tv_sec) +
                  1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    bt_thread_pool_free(pool);
    if (used > 0.02)
        fail_msg("%g s of CPU time in 0.2 s", used);
}

static atomic_int signals_elsewhere;
static pthread_t main_thread;

static void signal_note(int number)
{
    (void)number;
    if (!pthread_equal(pthread_self(), main_thread))
        atomic_fetch_add(&signals_elsewhere, 1);
}

static void signals_go_to_threads_of_the_program(void **state)
{
    (void)state;
    struct sigaction old, action = { .sa_handler = signal_note };
    sigset_t mask, now;
    main_thread = pthread_self();
    bt_thread_pool *pool = pool_of(4);
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    // The main thread blocks it, so any other thread would get it.
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    kill(getpid(), SIGUSR1);
    pause_us(20000);
    pthread_sigmask(SIG_UNBLOCK, &mask, NULL);
    assert_int_equal(atomic_load(&signals_elsewhere), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_false(sigismember(&now, SIGTERM)); // as it was
    sigaction(SIGUSR1, &old, NULL);
    bt_thread_pool_free(pool);
}

/* ---- the embedder's loop ------------------------------------------------- */

typedef struct embedder {
    size_t shares; /* how many of them it runs */
    int calls;
} embedder;

/* On the calling thread, backward. */
static void run_backward(void *user, size_t count,
                         void (*task)(void *job, size_t index), void *job)
{
    embedder *e = user;
    e->calls++;
    for (size_t i = count; i-- > 0;)
        if (i < e->shares)
            task(job, i);
}

typedef struct share {
    void (*task)(void *job, size_t index);
    void *job;
    size_t index;
} share;

static void *share_main(void *argument)
{
    share *s = argument;
    s->task(s->job, s->index);
    return NULL;
}

/* On a thread for each share. */
static void run_threads(void *user, size_t count,
                        void (*task)(void *job, size_t index), void *job)
{
    embedder *e = user;
    share shares[THREADS_MOST];
    pthread_t threads[THREADS_MOST];
    e->calls++;
    for (size_t i = 0; i < count; i++) {
        shares[i] = (share){ task, job, i };
        if (pthread_create(&threads[i], NULL, share_main, &shares[i]))
            abort();
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void an_embedder_may_run_the_loops(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 13);
    const struct {
        const char *name;
        bauta_parallel_for_fn *run;
        size_t shares;
    } cases[] = {
        { "threads", run_threads, 0 },
        { "backward", run_backward, THREADS_MOST },
        { "only_one_share", run_backward, 1 },
        { "no_share", run_backward, 0 },
    };
    static work w;
    for (size_t i = 0; i < BT_LEN(cases); i++)
        for (int threads = 1; threads < THREADS_MOST; threads++) {
            embedder e = { .shares = cases[i].shares };
            bt_thread_pool *pool;
            assert_int_equal(bt_thread_pool_create_custom(
                                 &pool, threads, cases[i].run, &e, NULL),
                             BAUTA_OK);
            assert_int_equal(bt_thread_pool_threads(pool), threads);
            for (int turn = 0; turn < 10; turn++) {
                work_fill(&w, 2 + test_below(&r, 100), threads, &r);
                bt_parallel_for(pool, w.count, task_run_in_turn, &w);
                if (!work_is_done(&w))
                    fail_msg("%s, %d threads", cases[i].name, threads);
            }
            assert_int_equal(e.calls, threads > 1 ? 10 : 0);
            bt_thread_pool_free(pool);
        }
}

/* ---- cores --------------------------------------------------------------- */

static void folder_make(temp_folder *s, const char *name)
{
    assert_int_equal(mkdir(temp_folder_path(s, name), 0777), 0);
}

static void text_write(temp_folder *s, const char *name, const char *text)
{
    temp_folder_write(s, name, text, strlen(text));
}

static void quotas_of_control_groups_are_read(void **state)
{
    (void)state;
    temp_folder s = temp_folder_create();
    const char *const folders[] = { "proc",
                                    "proc/self",
                                    "sys",
                                    "sys/fs",
                                    "sys/fs/cgroup",
                                    "sys/fs/cgroup/a",
                                    "sys/fs/cgroup/a/b",
                                    "sys/fs/cgroup/cpu",
                                    "sys/fs/cgroup/cpu/c" };
    const struct {
        const char *name, *groups, *top, *a, *b, *quota_us, *c_quota_us;
        int want;
    } cases[] = {
        { "no_limit", "0::/a/b\n", "max 100000", "max 100000", "max 100000",
          "-1", "-1", 0 },
        { "own_limit", "0::/a/b\n", "max 100000", "max 100000", "200000 100000",
          "-1", "-1", 2 },
        { "rounded_up", "0::/a/b\n", "max 100000", "max 100000",
          "250001 100000", "-1", "-1", 3 },
        { "limit_of_a_group_above", "0::/a/b\n", "max 100000", "50000 100000",
          "200000 100000", "-1", "-1", 1 },
        { "limit_of_the_container", "0::/host/path\n", "400000 100000",
          "max 100000", "max 100000", "-1", "-1", 4 },
        { "in_the_top_group", "0::/\n", "300000 100000", "100000 100000", "",
          "-1", "-1", 3 },
        { "version_1", "4:memory:/c\n3:cpuacct,cpu:/c\n", "", "", "", "-1",
          "150000", 2 },
        { "version_1_container", "3:cpu:/docker/1\n", "", "", "", "500000",
          "150000", 5 },
        { "both_versions", "3:cpu:/c\n0::/a\n", "max 100000", "700000 100000",
          "", "-1", "600000", 6 },
        { "cpuset_is_not_cpu", "3:cpuset:/c\n", "", "", "", "100000", "100000",
          0 },
        { "not_numbers", "0::/a/b\n:\nx\n\n3:cpu:\n", "x", "-5 100000",
          "100000 0", "y", "100000", 0 },
    };
    for (size_t i = 0; i < BT_LEN(folders); i++)
        folder_make(&s, folders[i]);
    assert_int_equal(bt_cpu_quota(s.folder), 0); // no file
    text_write(&s, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    text_write(&s, "sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        text_write(&s, "proc/self/cgroup", cases[i].groups);
        text_write(&s, "sys/fs/cgroup/cpu.max", cases[i].top);
        text_write(&s, "sys/fs/cgroup/a/cpu.max", cases[i].a);
        text_write(&s, "sys/fs/cgroup/a/b/cpu.max", cases[i].b);
        text_write(&s, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", cases[i].quota_us);
        text_write(&s, "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us",
                   cases[i].c_quota_us);
        int quota = bt_cpu_quota(s.folder);
        if (quota != cases[i].want)
            fail_msg("%s: want %d, got %d", cases[i].name, cases[i].want,
                     quota);
    }
    temp_folder_free(&s);
}

static int one_core_run(void *argument)
{
    cpu_set_t set;
    (void)argument;
    int cores = bt_threads_available();
    CPU_ZERO(&set);
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&set); i++) {
        CPU_SET(i, &set);
        if (sched_setaffinity(0, sizeof(set), &set))
            CPU_ZERO(&set);
    }
    return cores >= 1 && bt_threads_available() == 1 ? 0 : 1;
}

static void cores_are_those_of_the_affinity(void **state)
{
    (void)state;
    assert_int_equal(child_status(one_core_run, NULL), 0);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        // The first forks before this process has threads.
        cmocka_unit_test(a_process_without_memory_gets_an_error),
        cmocka_unit_test(cores_are_those_of_the_affinity),
        cmocka_unit_test(quotas_of_control_groups_are_read),
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(tasks_may_wait_for_earlier_ones),
        cmocka_unit_test(one_task_computes_what_all_need),
        cmocka_unit_test(a_loop_inside_a_task_runs_on_its_thread),
        cmocka_unit_test(threads_of_the_program_may_share_a_pool),
        cmocka_unit_test(a_pool_needs_all_of_its_threads),
        cmocka_unit_test(threads_out_of_range_are_errors),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_pool_works_in_a_child_process),
        cmocka_unit_test(a_child_may_be_forked_while_a_loop_runs),
        cmocka_unit_test(an_idle_pool_uses_no_cpu),
        cmocka_unit_test(signals_go_to_threads_of_the_program),
        cmocka_unit_test(an_embedder_may_run_the_loops),
#ifdef _OPENMP
        // Last: OpenMP's threads stay, and block no signals.
        cmocka_unit_test(pools_work_inside_an_openmp_program),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
