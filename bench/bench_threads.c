/* SPDX-License-Identifier: Apache-2.0 */
/* bench_threads.c - what a parallel loop costs: to start it, to start it after
 * a pause, and beside a process that keeps a core busy.
 *
 *   bench_threads [--threads N] [--seconds S] [--only NAME]
 *
 * Next to libgomp and pthreadpool where available; --only chooses one of them.
 * Each measurement runs in a process of its own, so that waiting threads of one
 * runtime do not disturb another. Run it alone on the machine. */
#include "base/thread_pool.h"
#include "bench.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(BENCH_PTHREADPOOL)
#include <pthreadpool.h>
#endif

typedef struct options {
    int threads;
    double seconds; /* for each figure */
    const char *only;
} options;

/* ---- the runtimes -------------------------------------------------------- */

/* Run `count` tasks on the threads of a runtime. */
typedef void loop_fn(void *runtime, int threads, size_t count, bt_task_fn *run,
                     void *job);

static void *bauta_begin(int threads)
{
    bt_thread_pool *pool;
    bauta_error err;
    if (bt_thread_pool_create(&pool, threads, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return pool;
}

static void bauta_loop(void *pool, int threads, size_t count, bt_task_fn *run,
                       void *job)
{
    (void)threads;
    bt_parallel_for(pool, count, run, job);
}

#if defined(_OPENMP)
static void *gomp_begin(int threads)
{
    (void)threads;
    return NULL;
}

static void gomp_loop(void *runtime, int threads, size_t count, bt_task_fn *run,
                      void *job)
{
    (void)runtime;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (size_t i = 0; i < count; i++)
        run(job, i, 0);
}
#endif

#if defined(BENCH_PTHREADPOOL)
typedef struct call {
    bt_task_fn *run;
    void *job;
} call;

static void *pthreadpool_begin(int threads)
{
    return pthreadpool_create((size_t)threads);
}

static void pthreadpool_task(void *argument, size_t i)
{
    call *c = argument;
    c->run(c->job, i, 0);
}

static void pthreadpool_loop(void *pool, int threads, size_t count,
                             bt_task_fn *run, void *job)
{
    call c = { run, job };
    (void)threads;
    pthreadpool_parallelize_1d(pool, pthreadpool_task, &c, count, 0);
}
#endif

typedef struct runtime {
    const char *name;
    void *(*begin)(int threads);
    loop_fn *loop;
} runtime;

static const runtime runtimes[] = {
    { "bauta", bauta_begin, bauta_loop },
#if defined(_OPENMP)
    { "OpenMP", gomp_begin, gomp_loop },
#endif
#if defined(BENCH_PTHREADPOOL)
    { "pthreadpool", pthreadpool_begin, pthreadpool_loop },
#endif
};

/* ---- tasks --------------------------------------------------------------- */

static void task_empty(void *job, size_t task, int thread)
{
    (void)job;
    (void)task;
    (void)thread;
}

typedef struct meeting {
    atomic_size_t here;
    size_t all;
} meeting;

/* Returns when all threads have come. */
static void task_meet(void *job, size_t task, int thread)
{
    meeting *m = job;
    (void)task;
    (void)thread;
    atomic_fetch_add(&m->here, 1);
    for (unsigned turns = 0; atomic_load(&m->here) < m->all; turns++)
        if (turns > 100000)
            sched_yield();
}

/* About a nanosecond each. */
typedef struct work {
    unsigned turns;
    _Atomic uint32_t sink;
} work;

static void task_work(void *job, size_t task, int thread)
{
    work *w = job;
    uint32_t x = (uint32_t)task;
    (void)thread;
    for (unsigned i = 0; i < w->turns; i++)
        x = x * 1664525u + 1013904223u;
    atomic_store_explicit(&w->sink, x, memory_order_relaxed);
}

/* ---- measurements -------------------------------------------------------- */

enum { SAMPLES_MAX = 100000, BATCH = 32 };

/* Seconds of one loop, from as many as fit into the time. */
typedef double measure_fn(const runtime *r, const options *o);

static double run_empty(const runtime *r, const options *o)
{
    static double samples[SAMPLES_MAX];
    void *of = r->begin(o->threads);
    size_t n = 0;
    double end = bench_now() + o->seconds;
    while (n < SAMPLES_MAX && (n < 3 || bench_now() < end)) {
        double begin = bench_now();
        for (int i = 0; i < BATCH; i++)
            r->loop(of, o->threads, (size_t)o->threads, task_empty, NULL);
        samples[n++] = (bench_now() - begin) / BATCH;
    }
    return bench_median(samples, n);
}

static double meet(const runtime *r, const options *o, long pause_ns)
{
    static double samples[SAMPLES_MAX];
    void *of = r->begin(o->threads);
    size_t n = 0;
    double end = bench_now() + o->seconds;
    while (n < SAMPLES_MAX && (n < 3 || bench_now() < end)) {
        meeting m = { .all = (size_t)o->threads };
        if (pause_ns)
            nanosleep(&(struct timespec){ .tv_nsec = pause_ns }, NULL);
        double begin = bench_now();
        r->loop(of, o->threads, m.all, task_meet, &m);
        samples[n++] = bench_now() - begin;
    }
    return bench_median(samples, n);
}

static double run_meet(const runtime *r, const options *o)
{
    return meet(r, o, 0);
}

static double run_meet_paused(const runtime *r, const options *o)
{
    return meet(r, o, 1000000);
}

/* The mean, since it is the whole that another process delays. */
static double loops(const runtime *r, const options *o, size_t count,
                    unsigned turns)
{
    void *of = r->begin(o->threads);
    work w = { .turns = turns };
    size_t n = 0;
    double begin = bench_now(), now = begin;
    for (; now < begin + o->seconds; now = bench_now(), n++)
        r->loop(of, o->threads, count, task_work, &w);
    return (now - begin) / (double)n;
}

/* Many short tasks, as rows of a matrix. */
static double run_short(const runtime *r, const options *o)
{
    return loops(r, o, 16 * (size_t)o->threads, 3000);
}

/* One task for each thread, as the workers of a decoding step. */
static double run_even(const runtime *r, const options *o)
{
    return loops(r, o, (size_t)o->threads, 500000);
}

static double run_even_short(const runtime *r, const options *o)
{
    return loops(r, o, (size_t)o->threads, 30000);
}

/* ---- processes ----------------------------------------------------------- */

static double in_process(measure_fn *measure, const runtime *r,
                         const options *o)
{
    int ends[2];
    double seconds = 0;
    fflush(NULL);
    if (pipe(ends))
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        seconds = measure(r, o);
        _exit(write(ends[1], &seconds, sizeof(seconds)) != sizeof(seconds));
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &seconds, sizeof(seconds)) <= 0)
        seconds = 0;
    close(ends[0]);
    waitpid(child, NULL, 0);
    return seconds;
}

static pid_t busy_start(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        for (volatile unsigned turns = 0;; turns++)
            ;
    return child;
}

static void busy_stop(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static const struct {
    const char *name;
    measure_fn *measure;
    bool beside; /* a busy process */
} rows[] = {
    { "empty loop", run_empty, false },
    { "all threads start", run_meet, false },
    { "the same after 1 ms", run_meet_paused, false },
    { "16 tasks of 3 us a thread", run_short, true },
    { "1 task of 30 us a thread", run_even_short, true },
    { "1 task of 500 us a thread", run_even, true },
};

static void row_print(size_t row, const runtime *r, const options *o)
{
    double alone = in_process(rows[row].measure, r, o);
    printf("%-12s %-26s %10.2f", r->name, rows[row].name, alone * 1e6);
    if (rows[row].beside) {
        pid_t busy = busy_start();
        double beside = in_process(rows[row].measure, r, o);
        busy_stop(busy);
        printf(" %10.2f %6.2f", beside * 1e6, beside / alone);
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    options o = { .threads = 2, .seconds = 1 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            o.threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            o.seconds = atof(argv[++i]);
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            o.only = argv[++i];
        else {
            fprintf(stderr, "usage: bench_threads [--threads N] [--seconds S] "
                            "[--only NAME]\n");
            return 2;
        }
    }
    printf("%d threads, %d cores; us for a loop\n", o.threads,
           bt_threads_available());
    printf("%-12s %-26s %10s %10s %6s\n", "runtime", "loop", "alone", "beside",
           "ratio");
    for (size_t r = 0; r < sizeof(runtimes) / sizeof(*runtimes); r++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
            if (!o.only || strcmp(o.only, runtimes[r].name) == 0)
                row_print(i, &runtimes[r], &o);
    return 0;
}
