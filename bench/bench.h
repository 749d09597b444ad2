/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - time, medians, and the two limits of the machine against which a
 * kernel is judged: fused multiply-adds a second and bytes read a second. */
#ifndef BT_BENCH_H
#define BT_BENCH_H

#include "base/thread_pool.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The median; sorts its input. */
static inline double bench_median(double *samples, size_t count)
{
    qsort(samples, count, sizeof(double), bench_compare);
    return count % 2 ? samples[count / 2]
                     : 0.5 * (samples[count / 2 - 1] + samples[count / 2]);
}

/* The median or, on a busy machine, the best: of times the shortest, of rates
 * the highest. Sorts its input. */
static inline double bench_time(double *samples, size_t count, int best)
{
    double median = bench_median(samples, count);
    return best ? samples[0] : median;
}

static inline double bench_rate(double *samples, size_t count, int best)
{
    double median = bench_median(samples, count);
    return best ? samples[count - 1] : median;
}

/* Memory for a bench; touched, so that no page faults are timed. It uses huge
 * pages, as the library does. */
static inline float *bench_floats(size_t count)
{
    size_t page = (size_t)2 << 20;
    size_t bytes = (count * sizeof(float) + page - 1) / page * page;
    float *memory = aligned_alloc(page, bytes);
    if (!memory) {
        fprintf(stderr, "out of memory: %zu bytes\n", bytes);
        exit(1);
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    uint32_t x = 1;
    for (size_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        memory[i] = (float)(int32_t)x * 0x1p-31f;
    }
    return memory;
}

#if defined(__x86_64__)
/* Ten independent chains keep every multiplier busy: the latency is four
 * cycles, and two vectors start in a cycle at most. */
__attribute__((target("avx512f"))) static inline double
bench_chains_avx512(long turns)
{
    __m512 x[10], y = _mm512_set1_ps(0.5f);
    for (int i = 0; i < 10; i++)
        x[i] = _mm512_set1_ps((float)i);
    for (long t = 0; t < turns; t++) {
#pragma GCC unroll 10
        for (int i = 0; i < 10; i++)
            x[i] = _mm512_fmadd_ps(x[i], y, y);
        __asm__ volatile("" : "+v"(x[0])); // not optimized away
    }
    for (int i = 1; i < 10; i++)
        x[0] = _mm512_add_ps(x[0], x[i]);
    return (double)_mm512_reduce_add_ps(x[0]);
}

__attribute__((target("avx2,fma"))) static inline double
bench_chains_avx2(long turns)
{
    __m256 x[10], y = _mm256_set1_ps(0.5f);
    for (int i = 0; i < 10; i++)
        x[i] = _mm256_set1_ps((float)i);
    for (long t = 0; t < turns; t++) {
#pragma GCC unroll 10
        for (int i = 0; i < 10; i++)
            x[i] = _mm256_fmadd_ps(x[i], y, y);
        __asm__ volatile("" : "+x"(x[0])); // not optimized away
    }
    for (int i = 1; i < 10; i++)
        x[0] = _mm256_add_ps(x[0], x[i]);
    return (double)_mm256_cvtss_f32(x[0]);
}
#endif

/* A pool that lives as long as the bench. */
static inline bt_thread_pool *bench_pool(int threads)
{
    static bt_thread_pool *pool;
    bauta_error err;
    if (bt_thread_pool_threads(pool) == threads)
        return pool;
    bt_thread_pool_free(pool);
    if (bt_thread_pool_create(&pool, threads, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return pool;
}

#if defined(__x86_64__)
typedef struct bench_chains {
    int wide;
    long turns;
} bench_chains;

static inline void bench_peak_task(void *job, size_t task, int thread)
{
    volatile double sink;
    const bench_chains *chains = job;
    (void)task;
    (void)thread;
    sink = chains->wide ? bench_chains_avx512(chains->turns)
                        : bench_chains_avx2(chains->turns);
    (void)sink;
}
#endif

/* GFLOP/s of fused multiply-adds in registers, for two milliseconds, with the
 * widest vectors of the instruction set, of the machine's if it is NULL; 0
 * where the machine has no vector unit that this file knows. The pool is that
 * of what is measured next. No longer: what follows would find a hotter, slower
 * machine. */
static inline double bench_peak(bt_thread_pool *pool, const char *isa)
{
#if defined(__x86_64__)
    int threads = bt_thread_pool_threads(pool);
    bench_chains chains = { __builtin_cpu_supports("avx512f") &&
                                (!isa || strcmp(isa, "avx2") != 0),
                            20000 };
    // Short loops wake the threads up.
    for (int i = 0; i < 5; i++)
        bt_parallel_for(pool, (size_t)threads, bench_peak_task, &chains);
    chains.turns = 1000000;
    double begin = bench_now();
    bt_parallel_for(pool, (size_t)threads, bench_peak_task, &chains);
    double seconds = bench_now() - begin;
    return 2.0 * 10 * (chains.wide ? 16 : 8) * (double)chains.turns * threads /
           seconds * 1e-9;
#else
    (void)pool;
    (void)isa;
    return 0;
#endif
}

typedef struct bench_reading {
    const char *memory;
    size_t bytes; /* of each share */
    _Atomic uint64_t total;
} bench_reading;

static inline void bench_read_task(void *job, size_t share, int thread)
{
    bench_reading *r = job;
    const char *from = r->memory + share * r->bytes;
    size_t quarter = r->bytes / 4;
    uint64_t total = 0;
    (void)thread;
    for (size_t i = 0; i < quarter; i += sizeof(uint64_t))
        for (size_t stream = 0; stream < 4; stream++) {
            uint64_t word;
            memcpy(&word, from + stream * quarter + i, sizeof(word));
            total += word;
        }
    r->total += total; // so that it is not optimized away
}

/* GB/s of reading `count` floats once, split among threads; each reads four
 * streams, as many as hardware prefetchers follow with ease. */
static inline double bench_read(const float *memory, size_t count, int threads)
{
    bt_thread_pool *pool = bench_pool(threads);
    bench_reading r = { (const char *)memory,
                        count / 128 / (size_t)threads * 128 * sizeof(float),
                        0 };
    double begin = bench_now();
    bt_parallel_for(pool, (size_t)threads, bench_read_task, &r);
    return (double)count * sizeof(float) / (bench_now() - begin) * 1e-9;
}

#endif
