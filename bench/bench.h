/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - time, medians, and the two limits of the machine against which a
 * kernel is judged: fused multiply-adds a second and bytes read a second. */
#ifndef BT_BENCH_H
#define BT_BENCH_H

#include <omp.h>
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

/* GFLOP/s of fused multiply-adds in registers, for some milliseconds; 0 where
 * the machine has no vector unit that this file knows. */
static inline double bench_peak(int threads)
{
    double flops = 0, begin = 0, seconds = 0;
#if defined(__x86_64__)
    const long turns = 1000000;
    int wide = __builtin_cpu_supports("avx512f");
    flops = 2.0 * 10 * (wide ? 16 : 8) * (double)turns * threads;
#pragma omp parallel num_threads(threads)
    {
        volatile double sink;
#pragma omp barrier
#pragma omp master
        begin = bench_now();
        sink = wide ? bench_chains_avx512(turns) : bench_chains_avx2(turns);
        (void)sink;
#pragma omp barrier
#pragma omp master
        seconds = bench_now() - begin;
    }
#endif
    return seconds > 0 ? flops / seconds * 1e-9 : 0;
}

/* GB/s of reading `count` floats once, split among threads; each reads four
 * streams, as many as hardware prefetchers follow with ease. */
static inline double bench_read(const float *memory, size_t count, int threads)
{
    static volatile uint64_t sink;
    uint64_t total = 0;
    double begin = bench_now();
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        size_t share = count / 128 / (size_t)threads * 128;
        const char *from = (const char *)memory +
                           share * sizeof(float) * (size_t)omp_get_thread_num();
        size_t quarter = share * sizeof(float) / 4;
        for (size_t i = 0; i < quarter; i += sizeof(uint64_t))
            for (size_t stream = 0; stream < 4; stream++) {
                uint64_t word;
                memcpy(&word, from + stream * quarter + i, sizeof(word));
                total += word;
            }
    }
    sink = total;
    (void)sink;
    return (double)count * sizeof(float) / (bench_now() - begin) * 1e-9;
}

#endif
