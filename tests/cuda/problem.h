/* SPDX-License-Identifier: Apache-2.0 */
/* problem.h - what the checks of the GPU kernels have in common: counting what
 * failed, bfloat16, problems with random inputs, and masks of every kind. */
#ifndef BT_CUDA_PROBLEM_H
#define BT_CUDA_PROBLEM_H

#include "base/error.h"
#include "kernels/cuda/cuda.h"
#include "mask/plan.h"
#include "testing.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

static size_t failures, checks;
static test_random random_stream;

#define FAIL(...)                         \
    do {                                  \
        if (failures++ < 40) {            \
            printf("FAIL: " __VA_ARGS__); \
            printf("\n");                 \
            fflush(stdout);               \
        }                                 \
    } while (0)

static void need(bauta_status status, const bauta_error *err)
{
    if (status) {
        printf("FAIL: %s\n", err->message);
        exit(1);
    }
}

static void need_cuda(cudaError_t status, const char *what)
{
    if (status) {
        printf("FAIL: %s: %s\n", what, cudaGetErrorString(status));
        exit(1);
    }
}

/* ---- bfloat16 ---------------------------------------------------------- */

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t to_bf16(float value) // finite values only
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- a problem and its tensors ----------------------------------------- */

typedef struct problem {
    const char *name;
    bauta_mask *mask;
    bauta_attention shape;
    size_t n, m, heads, kv_heads, d;
    size_t q_size, kv_size, out_size, lse_size; /* elements */
    uint16_t *q, *k, *v;                        /* inputs */
} problem;

static uint16_t *random_bf16(size_t count, float width)
{
    uint16_t *x = malloc(count * 2);
    for (size_t i = 0; i < count; i++)
        x[i] = to_bf16(width * test_float(&random_stream));
    return x;
}

/* extra: elements between tokens that belong to nobody. */
static problem problem_make(const char *name, bauta_mask *mask, size_t heads,
                            size_t kv_heads, size_t d, size_t extra)
{
    problem p = { .name = name, .mask = mask };
    bauta_attention shape = BAUTA_ATTENTION_INIT;
    p.n = bauta_mask_queries(mask);
    p.m = bauta_mask_keys(mask);
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.d = d;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = d;
    shape.q_token = heads * d + extra;
    shape.k_token = kv_heads * d + 2 * extra;
    shape.v_token = kv_heads * d + extra;
    shape.out_token = heads * d + extra;
    shape.q_head = shape.k_head = shape.v_head = shape.out_head = d;
    p.shape = shape;
    p.q_size = p.n * shape.q_token;
    p.kv_size = p.m * shape.k_token;
    p.out_size = p.n * shape.out_token;
    p.lse_size = p.n * heads;
    p.q = random_bf16(p.q_size, 3.0f);
    p.k = random_bf16(p.kv_size, 2.0f);
    p.v = random_bf16(p.kv_size, 2.0f);
    return p;
}

static void problem_free(problem *p)
{
    bauta_mask_free(p->mask);
    free(p->q);
    free(p->k);
    free(p->v);
}

static void *to_device(const void *from, size_t bytes)
{
    void *memory = NULL;
    need_cuda(cudaMalloc(&memory, bytes ? bytes : 16), "cudaMalloc");
    if (bytes)
        need_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice),
                  "cudaMemcpy");
    return memory;
}

static const uint16_t poisons[] = {
    0x7fc0, /* NaN */
    0xffff, /* NaN, all bits */
    0x7f80, /* +infinity */
    0xff80, /* -infinity */
    0x7f7f, /* largest */
    0xff7f, /* smallest */
};

/* ---- the masks --------------------------------------------------------- */

typedef bauta_mask *make_fn(size_t n, size_t m);

static bauta_mask *got(bauta_status status, bauta_mask *mask,
                       const bauta_error *err)
{
    need(status, err);
    return mask;
}

#define MAKE(call)              \
    bauta_mask *mask = NULL;    \
    bauta_error err = { 0 };    \
    bauta_status status = call; \
    return got(status, mask, &err)

static bauta_mask *make_all(size_t n, size_t m)
{
    MAKE(bauta_mask_all(&mask, n, m, &err));
}

static bauta_mask *make_causal(size_t n, size_t m)
{
    MAKE(bauta_mask_causal(&mask, n, m, &err));
}

static bauta_mask *make_window(size_t n, size_t m)
{
    MAKE(bauta_mask_window(&mask, n, m, 1 + m / 5, &err));
}

static bauta_mask *make_window_one(size_t n, size_t m)
{
    MAKE(bauta_mask_window(&mask, n, m, 1, &err));
}

static bauta_mask *make_prefix(size_t n, size_t m)
{
    MAKE(bauta_mask_prefix(&mask, n, m, m / 3, &err));
}

static bauta_mask *make_dense(size_t n, size_t m)
{
    unsigned char *visible = malloc(n * m);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++) // some rows see little, some nothing
            visible[i * m + j] =
                test_below(&random_stream, 100) < (i * 37) % 101;
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = bauta_mask_dense(&mask, n, m, visible, &err);
    free(visible);
    return got(status, mask, &err);
}

static bauta_mask *both(bauta_mask *a, bauta_mask *b, bool either)
{
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = either ? bauta_mask_or(&mask, a, b, &err)
                                 : bauta_mask_and(&mask, a, b, &err);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return got(status, mask, &err);
}

static bauta_mask *make_sinks(size_t n, size_t m)
{
    bauta_mask *sinks = NULL;
    bauta_error err = { 0 };
    need(bauta_mask_sinks(&sinks, n, m, 4, &err), &err);
    return both(make_window(n, m), sinks, true);
}

static bauta_mask *make_strided(size_t n, size_t m)
{
    // Every third key, causal: forty spans in a pair of blocks.
    unsigned char *visible = malloc(n * m);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            visible[i * m + j] = (i + j) % 3 == 0 && j + n <= i + m;
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = bauta_mask_dense(&mask, n, m, visible, &err);
    free(visible);
    return got(status, mask, &err);
}

static bauta_mask *make_not_window(size_t n, size_t m)
{
    bauta_mask *a = make_window(n, m), *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = bauta_mask_not(&mask, a, &err);
    bauta_mask_free(a);
    return got(status, mask, &err);
}

/* Documents of odd lengths over n = m tokens. */
static bauta_mask *make_documents(size_t n, size_t m)
{
    size_t lengths[64], count = 0, left = n;
    (void)m;
    while (left) {
        size_t length = 1 + test_below(&random_stream, n / 3 + 1);
        if (length > left || count == 63)
            length = left;
        lengths[count++] = length;
        left -= length;
    }
    MAKE(bauta_mask_documents(&mask, count, lengths, NULL, &err));
}

static bauta_mask *make_documents_causal(size_t n, size_t m)
{
    return both(make_documents(n, m), make_causal(n, m), false);
}

static bauta_mask *make_lengths(size_t n, size_t m)
{
    size_t time = n / 4, lengths[4] = { time, time / 2, 1, 0 };
    (void)m;
    if (n % 4)
        return make_all(n, m);
    MAKE(bauta_mask_lengths(&mask, 4, time, time, NULL, lengths, &err));
}

static const struct {
    const char *name;
    make_fn *make;
    bool square;
} kinds[] = {
    { "all", make_all, false },
    { "causal", make_causal, false },
    { "window", make_window, false },
    { "window_of_one", make_window_one, false },
    { "prefix", make_prefix, false },
    { "sinks_or_window", make_sinks, false },
    { "dense_with_empty_rows", make_dense, false },
    { "every_third_key", make_strided, false },
    { "not_window", make_not_window, false },
    { "documents", make_documents, true },
    { "documents_and_causal", make_documents_causal, true },
    { "lengths", make_lengths, true },
};

static const struct {
    size_t n, m, heads, kv_heads, extra;
} sizes[] = {
    { 1, 1, 1, 1, 0 },       { 128, 128, 2, 2, 0 },  { 192, 192, 2, 1, 8 },
    { 259, 259, 4, 2, 0 },   { 516, 516, 3, 1, 16 }, { 1000, 1000, 2, 2, 0 },
    { 65, 901, 4, 1, 0 },    { 300, 77, 2, 2, 0 },   { 1, 1030, 8, 2, 0 },
    { 1153, 1153, 2, 1, 0 },
};

/* Sequences of which some are empty, between others. */
static bauta_mask *make_holes(size_t sequences, size_t time)
{
    size_t lengths[64];
    for (size_t i = 0; i < sequences; i++)
        lengths[i] = i % 3 == 1 ? 0 : 1 + test_below(&random_stream, time);
    MAKE(bauta_mask_lengths(&mask, sequences, time, time, NULL, lengths, &err));
}

#endif
