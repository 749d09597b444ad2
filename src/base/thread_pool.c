/* SPDX-License-Identifier: Apache-2.0 */
/* thread_pool.c - tasks handed out by a shared counter.
 *
 * The caller of a loop opens it, runs tasks as the workers do, and closes it
 * when there is no task left to start. Workers join while it is open. The
 * caller waits only for those that have joined, so a worker that wakes up late,
 * because another process has its core, delays nobody.
 *
 * A thread that waits spins first, because the next loop usually follows within
 * microseconds and waking a thread takes tens of them. Then it sleeps. While
 * other processes compete for the cores nobody spins: a spinning thread would
 * use up the time that the scheduler grants it, and may keep a thread from
 * running that it waits for. */
#define _GNU_SOURCE // sched_getaffinity()
#include "base/thread_pool.h"

#include "base/cpu_quota.h"
#include "base/error.h"
#include "base/memory.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    /* About as long as it takes to wake a thread. With a tenth of it, loops of
     * one task of 30 us for each thread take 1.5 times as long. */
    SPIN_NS = 50 * 1000,
    /* So much time between two readings of the clock means that another thread
     * has the core: a time slice is longer, what an interrupt or a hypervisor
     * takes is shorter. No thread of the pool spins then for a while. */
    LOST_CORE_NS = 500 * 1000,
    CROWDED_NS = 10 * 1000 * 1000
};

/* The state of a pool is one word, so that every change of it is one atomic
 * operation, and the thread that makes it knows from the old value whether
 * somebody sleeps:
 *
 *   JOINED    number of workers inside the loop
 *   SLEEPERS  number of workers asleep, in units of SLEEPER
 *   OPEN      workers may join the loop
 *   WAITING   the caller sleeps until the last worker has left
 *   STOP      workers return
 *   LOOP      unit of the number of loops so far, in the remaining bits */
#define STATE_JOINED UINT64_C(0xffff)
#define STATE_SLEEPER (UINT64_C(1) << 16)
#define STATE_SLEEPERS (UINT64_C(0xffff) << 16)
#define STATE_OPEN (UINT64_C(1) << 32)
#define STATE_WAITING (UINT64_C(1) << 33)
#define STATE_STOP (UINT64_C(1) << 34)
#define STATE_LOOP (UINT64_C(1) << 35)

typedef struct pool_worker {
    bt_thread_pool *pool;
    pthread_t handle;
    int thread;
} pool_worker;

struct bt_thread_pool {
    /* What a worker reads when a loop begins, in one cache line. */
    _Alignas(BT_ALIGN) _Atomic uint64_t state;
    bt_task_fn *run;
    void *job;
    size_t count;

    _Alignas(BT_ALIGN) atomic_size_t next; /* task */

    /* 2 * the number of forks when the threads were started, + 1 while a loop
     * runs. */
    _Alignas(BT_ALIGN) _Atomic unsigned owner;
    _Atomic int64_t crowded_until; /* time before which nobody spins */
    bool spins;                    /* whether there is a core for each thread */
    int threads;
    bauta_parallel_for_fn *parallel_for; /* NULL: the pool has workers */
    void *user;

    pthread_mutex_t mutex;      /* for sleeping only */
    pthread_cond_t loop_begins; /* workers sleep here */
    pthread_cond_t loop_ends;   /* the caller sleeps here */
    int started;                /* workers */
    pool_worker workers[];      /* (threads - 1) */
};

/* ---- fork ---------------------------------------------------------------- */

/* How many times this process and its ancestors have forked since they were
 * watched. Pools from before a fork have no threads in the child. */
static atomic_uint forks;

static void fork_count(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

/* Counting a fork twice, if two threads come here at once, does no harm. */
static int forks_watch(void)
{
    static atomic_bool watched;
    if (atomic_load(&watched))
        return 0;
    int error = pthread_atfork(NULL, NULL, fork_count);
    if (!error)
        atomic_store(&watched, true);
    return error;
}

/* ---- Waiting ------------------------------------------------------------- */

static int64_t time_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Whether a worker that has seen the loops of `seen` has something to do. */
static bool loop_is_new(uint64_t state, uint64_t seen)
{
    return (state & STATE_STOP) || state / STATE_LOOP != seen / STATE_LOOP;
}

static bool loop_is_left(uint64_t state, uint64_t seen)
{
    (void)seen;
    return !(state & STATE_JOINED);
}

/* Wait a short time for a state; false if it is better to sleep now. */
static bool spin(bt_thread_pool *pool, bool (*reached)(uint64_t, uint64_t),
                 uint64_t seen)
{
    if (reached(atomic_load_explicit(&pool->state, memory_order_acquire), seen))
        return true;
    int64_t now = time_ns(), last, end = now + SPIN_NS;
    if (!pool->spins ||
        now < atomic_load_explicit(&pool->crowded_until, memory_order_relaxed))
        return false;
    do {
        last = now;
        if (reached(atomic_load_explicit(&pool->state, memory_order_acquire),
                    seen))
            return true;
        now = time_ns();
    } while (now < end && now - last < LOST_CORE_NS);
    if (now - last >= LOST_CORE_NS)
        atomic_store_explicit(&pool->crowded_until, now + CROWDED_NS,
                              memory_order_relaxed);
    return false;
}

/* The mutex is held from the change of the state to the wait. Whoever sees the
 * change and then takes the mutex finds the sleeper waiting. */
static void sleeper_meet(bt_thread_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- Workers ------------------------------------------------------------- */

static uint64_t worker_sleep(bt_thread_pool *pool, uint64_t seen)
{
    pthread_mutex_lock(&pool->mutex);
    uint64_t state = atomic_fetch_add_explicit(&pool->state, STATE_SLEEPER,
                                               memory_order_relaxed);
    while (!loop_is_new(state, seen)) {
        pthread_cond_wait(&pool->loop_begins, &pool->mutex);
        state = atomic_load_explicit(&pool->state, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&pool->state, STATE_SLEEPER,
                              memory_order_relaxed);
    pthread_mutex_unlock(&pool->mutex);
    return state;
}

/* Join the loop that is open, which may be a later one than the worker has
 * seen. False if none is. */
static bool loop_join(bt_thread_pool *pool)
{
    uint64_t state = atomic_load_explicit(&pool->state, memory_order_relaxed);
    while (state & STATE_OPEN)
        if (atomic_compare_exchange_weak_explicit(
                &pool->state, &state, state + 1, memory_order_acquire,
                memory_order_relaxed))
            return true;
    return false;
}

static void loop_leave(bt_thread_pool *pool)
{
    uint64_t state =
        atomic_fetch_sub_explicit(&pool->state, 1, memory_order_release);
    if ((state & STATE_JOINED) == 1 && (state & STATE_WAITING)) {
        sleeper_meet(pool);
        pthread_cond_signal(&pool->loop_ends);
    }
}

/* The counter is relaxed: it orders nothing else, so that the thread sanitizer
 * sees races between tasks. */
static void tasks_run(bt_thread_pool *pool, int thread)
{
    bt_task_fn *run = pool->run;
    void *job = pool->job;
    size_t count = pool->count, task;
    while ((task = atomic_fetch_add_explicit(&pool->next, 1,
                                             memory_order_relaxed)) < count)
        run(job, task, thread);
}

static void *worker_main(void *argument)
{
    pool_worker *worker = argument;
    bt_thread_pool *pool = worker->pool;
    uint64_t seen = 0;
    for (;;) {
        if (spin(pool, loop_is_new, seen))
            seen = atomic_load_explicit(&pool->state, memory_order_relaxed);
        else
            seen = worker_sleep(pool, seen);
        if (seen & STATE_STOP)
            return NULL;
        if (loop_join(pool)) {
            tasks_run(pool, worker->thread);
            loop_leave(pool);
        }
    }
}

/* Block signals that may go to any thread, and return the old mask. Those that
 * a fault of the thread itself raises stay, and the one of profilers. */
static sigset_t signals_block(void)
{
    const int kept[] = { SIGABRT, SIGBUS, SIGFPE,  SIGILL,
                         SIGSEGV, SIGSYS, SIGTRAP, SIGPROF };
    sigset_t all, old;
    sigfillset(&all);
    for (size_t i = 0; i < BT_LEN(kept); i++)
        sigdelset(&all, kept[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    return old;
}

int bt_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t signals = signals_block();
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    return error;
}

/* Start the workers; 0 or an error number. Without an error all are started. */
static int workers_start(bt_thread_pool *pool)
{
    int error = 0, wanted = pool->parallel_for ? 0 : pool->threads - 1;
    atomic_init(&pool->state, 0);
    pool->started = 0;
    // Neither can fail with the attributes NULL in glibc and musl.
    (void)pthread_mutex_init(&pool->mutex, NULL);
    (void)pthread_cond_init(&pool->loop_begins, NULL);
    (void)pthread_cond_init(&pool->loop_ends, NULL);
    while (!error && pool->started < wanted) {
        pool_worker *worker = &pool->workers[pool->started];
        worker->pool = pool;
        worker->thread = pool->started + 1;
        error = bt_thread_start(&worker->handle, worker_main, worker);
        pool->started += !error;
    }
    return error;
}

static void workers_stop(bt_thread_pool *pool)
{
    atomic_fetch_or_explicit(&pool->state, STATE_STOP, memory_order_relaxed);
    sleeper_meet(pool);
    pthread_cond_broadcast(&pool->loop_begins);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].handle, NULL);
    pthread_cond_destroy(&pool->loop_ends);
    pthread_cond_destroy(&pool->loop_begins);
    pthread_mutex_destroy(&pool->mutex);
}

/* ---- Loops --------------------------------------------------------------- */

/* Wake as many sleeping workers as the loop has tasks for. */
static void workers_wake(bt_thread_pool *pool, size_t asleep)
{
    size_t workers = (size_t)pool->started;
    size_t wanted = pool->count - 1 < workers ? pool->count - 1 : workers;
    size_t awake = workers - asleep;
    if (wanted <= awake)
        return;
    sleeper_meet(pool);
    if (wanted == workers)
        pthread_cond_broadcast(&pool->loop_begins);
    else
        for (size_t i = awake; i < wanted; i++)
            pthread_cond_signal(&pool->loop_begins);
}

/* Wait until the workers that have joined the closed loop have left it. */
static void workers_wait(bt_thread_pool *pool)
{
    if (spin(pool, loop_is_left, 0))
        return;
    pthread_mutex_lock(&pool->mutex);
    uint64_t state = atomic_fetch_or_explicit(&pool->state, STATE_WAITING,
                                              memory_order_acquire);
    while (!loop_is_left(state, 0)) {
        pthread_cond_wait(&pool->loop_ends, &pool->mutex);
        state = atomic_load_explicit(&pool->state, memory_order_acquire);
    }
    atomic_fetch_and_explicit(&pool->state, ~STATE_WAITING,
                              memory_order_relaxed);
    pthread_mutex_unlock(&pool->mutex);
}

static void loop_run(bt_thread_pool *pool)
{
    uint64_t state = atomic_fetch_add_explicit(
        &pool->state, STATE_LOOP | STATE_OPEN, memory_order_release);
    if (state & STATE_SLEEPERS)
        workers_wake(pool, (state & STATE_SLEEPERS) / STATE_SLEEPER);
    tasks_run(pool, 0);
    state = atomic_fetch_and_explicit(&pool->state, ~STATE_OPEN,
                                      memory_order_acquire);
    if (state & STATE_JOINED)
        workers_wait(pool);
}

/* A share of the embedder's loop: a thread that takes tasks from the counter.
 * So tasks start in their order, whatever the order of shares is. */
static void share_run(void *pool, size_t share)
{
    tasks_run(pool, (int)share);
}

static void loop_run_custom(bt_thread_pool *pool)
{
    size_t threads = (size_t)pool->threads;
    pool->parallel_for(pool->user,
                       pool->count < threads ? pool->count : threads, share_run,
                       pool);
    tasks_run(pool, 0); // all of them, if it has run no share
}

/* Reserve the pool for a loop; false if it has one. Starts the threads again
 * if there was a fork. */
static bool pool_claim(bt_thread_pool *pool)
{
    unsigned now = 2 * atomic_load_explicit(&forks, memory_order_relaxed);
    unsigned owner = atomic_load_explicit(&pool->owner, memory_order_relaxed);
    if (owner == now + 1 || !atomic_compare_exchange_strong_explicit(
                                &pool->owner, &owner, now + 1,
                                memory_order_acquire, memory_order_relaxed))
        return false;
    if (owner != now)
        (void)workers_start(pool); // as many as possible
    return true;
}

static void pool_release(bt_thread_pool *pool)
{
    unsigned owner = atomic_load_explicit(&pool->owner, memory_order_relaxed);
    atomic_store_explicit(&pool->owner, owner - 1, memory_order_release);
}

void bt_parallel_for(bt_thread_pool *pool, size_t count, bt_task_fn *run,
                     void *job)
{
    if (count < 2 || bt_thread_pool_threads(pool) < 2 || !pool_claim(pool)) {
        for (size_t task = 0; task < count; task++)
            run(job, task, 0);
        return;
    }
    pool->run = run;
    pool->job = job;
    pool->count = count;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    if (pool->parallel_for)
        loop_run_custom(pool);
    else
        loop_run(pool);
    pool_release(pool);
}

/* ---- Pools --------------------------------------------------------------- */

/* Fill a zeroed pool and start its threads; 0 or an error number, with which
 * it has none. */
static int pool_init(bt_thread_pool *pool, int threads,
                     bauta_parallel_for_fn *parallel_for, void *user)
{
    int error = forks_watch();
    if (error)
        return error;
    pool->threads = threads;
    pool->spins = threads <= bt_threads_available();
    pool->parallel_for = parallel_for;
    pool->user = user;
    atomic_init(&pool->owner, 2 * atomic_load(&forks));
    error = workers_start(pool);
    if (error)
        workers_stop(pool);
    return error;
}

static size_t pool_size(int threads)
{
    return sizeof(bt_thread_pool) + ((size_t)threads - 1) * sizeof(pool_worker);
}

bauta_status bt_thread_pool_create_custom(bt_thread_pool **out, int threads,
                                          bauta_parallel_for_fn *parallel_for,
                                          void *user, bauta_error *err)
{
    *out = NULL;
    if (threads < 1 || threads > BT_THREADS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "threads is %d, not from 1 to %d", threads,
                       BT_THREADS_MAX);
    bt_thread_pool *pool = bt_alloc_zero(1, pool_size(threads));
    if (!pool)
        return bt_fail_memory(err, "a thread pool", pool_size(threads));
    int error = pool_init(pool, threads, parallel_for, user);
    if (error) {
        bt_free(pool);
        return bt_fail(err, BAUTA_ERR_NOMEM,
                       "cannot start %d threads for a pool of %d: %s",
                       threads - 1, threads, strerror(error));
    }
    *out = pool;
    return BAUTA_OK;
}

bauta_status bt_thread_pool_create(bt_thread_pool **out, int threads,
                                   bauta_error *err)
{
    return bt_thread_pool_create_custom(out, threads, NULL, NULL, err);
}

void bt_thread_pool_free(bt_thread_pool *pool)
{
    if (!pool)
        return;
    // Threads of a process from before a fork are not those of this one.
    if (atomic_load(&pool->owner) == 2 * atomic_load(&forks))
        workers_stop(pool);
    bt_free(pool);
}

int bt_thread_pool_threads(const bt_thread_pool *pool)
{
    return pool ? pool->threads : 1;
}

int bt_threads_available(void)
{
    enum { SETS = 8 }; // a kernel with up to 8192 CPUs
    cpu_set_t sets[SETS];
    int cores = 0, quota = bt_cpu_quota("");
    if (sched_getaffinity(0, sizeof(sets), sets) == 0)
        cores = CPU_COUNT_S(sizeof(sets), sets);
    if (cores < 1)
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (quota && quota < cores)
        cores = quota;
    if (cores > BT_THREADS_MAX)
        return BT_THREADS_MAX;
    return cores < 1 ? 1 : cores;
}

/* ---- Waits between tasks ------------------------------------------------ */

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
