/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_shares.h - the share of each kernel in the time of a step.
 *
 * A table of kernels is copied and each slot that matters wrapped by one that
 * reads the clock before and after. Threads add to shared counters, so a share
 * is one of all threads' time; the rest is waiting, copying and starting
 * threads. */
#ifndef BT_BENCH_KERNEL_SHARES_H
#define BT_BENCH_KERNEL_SHARES_H

#include "backend/cpu/kernels/kernels.h"
#include "bench.h"

#include <stdatomic.h>

#define SHARES_MAP(X)                       \
    X(product, "matrix products")           \
    X(attention, "attention")               \
    X(norm, "norms")                        \
    X(act, "activations")                   \
    X(softmax, "softmax of the vocabulary") \
    X(add, "additions and embeddings")      \
    X(adamw, "clipping and AdamW")

#define SHARES_FIELD(name, text) atomic_llong name;
static struct {
    SHARES_MAP(SHARES_FIELD)
} shares;
static const bt_kernels *shares_inner;

static inline long long shares_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A wrapper named wrap_<slot> of a slot that returns nothing. */
#define SHARES_WRAP(share, slot, parameters, arguments)        \
    static void wrap_##slot parameters                         \
    {                                                          \
        long long start = shares_now();                        \
        shares_inner->slot arguments;                          \
        atomic_fetch_add(&shares.share, shares_now() - start); \
    }

SHARES_WRAP(product, gemm_columns,
            (const bt_gemm *gemm, size_t first, size_t count),
            (gemm, first, count))
SHARES_WRAP(attention, transpose,
            (float *to, const float *from, size_t stride, size_t keys,
             size_t columns),
            (to, from, stride, keys, columns))
SHARES_WRAP(attention, attention_forward, (const bt_attention_step *step),
            (step))
SHARES_WRAP(attention, attention_backward, (const bt_attention_grad *grad),
            (grad))
SHARES_WRAP(norm, norm, (const bt_norm *norm, size_t first, size_t count),
            (norm, first, count))
SHARES_WRAP(norm, norm_backward,
            (const bt_norm *norm, size_t first, size_t count),
            (norm, first, count))
SHARES_WRAP(norm, norm_backward_gain,
            (const bt_norm *norm, size_t first, size_t count),
            (norm, first, count))
SHARES_WRAP(act, act,
            (bt_act act, float *to, const float *x, const float *by,
             size_t count, bool add),
            (act, to, x, by, count, add))
SHARES_WRAP(act, act_backward,
            (bt_act act, float *to, const float *x, const float *dy,
             const float *by, size_t count, bool add),
            (act, to, x, dy, by, count, add))
SHARES_WRAP(softmax, row_affine,
            (float *x, size_t count, float scale, float shift),
            (x, count, scale, shift))
SHARES_WRAP(add, add, (float *to, const float *a, const float *b, size_t count),
            (to, a, b, count))
SHARES_WRAP(add, scale,
            (float *to, const float *x, float scale, size_t count, bool add),
            (to, x, scale, count, add))
SHARES_WRAP(adamw, adamw,
            (const bt_adamw *a, float *p, float *m, float *v,
             const float *gradient, size_t count),
            (a, p, m, v, gradient, count))

static void wrap_multiply(const bt_gemm *gemm, const bt_gemm_block *block)
{
    long long start = shares_now();
    shares_inner->gemm_tiles->multiply(gemm, block);
    atomic_fetch_add(&shares.product, shares_now() - start);
}

static void wrap_pack_a(float *to, size_t stride, const bt_gemm *gemm,
                        size_t row, size_t rows, size_t from, size_t depth)
{
    long long start = shares_now();
    shares_inner->gemm_tiles->pack_a(to, stride, gemm, row, rows, from, depth);
    atomic_fetch_add(&shares.product, shares_now() - start);
}

static float wrap_row_exp_sum(float *to, const float *x, size_t count,
                              float base)
{
    long long start = shares_now();
    float sum = shares_inner->row_exp_sum(to, x, count, base);
    atomic_fetch_add(&shares.softmax, shares_now() - start);
    return sum;
}

static double wrap_squares(const float *x, size_t count)
{
    long long start = shares_now();
    double sum = shares_inner->squares(x, count);
    atomic_fetch_add(&shares.adamw, shares_now() - start);
    return sum;
}

/* The kernels with timers around them. */
static inline const bt_kernels *shares_of(const bt_kernels *kernels)
{
    static bt_kernels table;
    static bt_gemm_tiles tiles;
    shares_inner = kernels;
    table = *kernels;
    table.gemm_columns = wrap_gemm_columns;
    table.transpose = wrap_transpose;
    table.attention_forward = wrap_attention_forward;
    table.attention_backward = wrap_attention_backward;
    table.norm = wrap_norm;
    table.norm_backward = wrap_norm_backward;
    table.norm_backward_gain = wrap_norm_backward_gain;
    table.act = wrap_act;
    table.act_backward = wrap_act_backward;
    table.row_affine = wrap_row_affine;
    table.row_exp_sum = wrap_row_exp_sum;
    table.add = wrap_add;
    table.scale = wrap_scale;
    table.adamw = wrap_adamw;
    table.squares = wrap_squares;
    if (kernels->gemm_tiles) {
        tiles = *kernels->gemm_tiles;
        tiles.multiply = wrap_multiply;
        tiles.pack_a = wrap_pack_a;
        table.gemm_tiles = &tiles;
    }
    return &table;
}

/* Reset the counters. */
static inline void shares_zero(void)
{
#define SHARES_ZERO(name, text) atomic_store(&shares.name, 0);
    SHARES_MAP(SHARES_ZERO)
}

/* Print the shares of `seconds` on `threads` threads. */
static inline void shares_print(double seconds, int threads)
{
    double all = seconds * threads * 1e9, rest = all;
#define SHARES_PRINT(name, text)                           \
    printf("  %-28s %5.1f %%\n", text,                     \
           100 * (double)atomic_load(&shares.name) / all); \
    rest -= (double)atomic_load(&shares.name);
    SHARES_MAP(SHARES_PRINT)
    printf("  %-28s %5.1f %%\n", "rest", 100 * rest / all);
}

#endif
