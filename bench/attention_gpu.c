/* SPDX-License-Identifier: Apache-2.0 */
/* attention_gpu.c - how fast the GPU's masked attention is.
 *
 *     attention_gpu [--json] [case ...]
 *
 * 16,384 tokens and 2,048 columns (16 heads of 128, 32 of 64), or 64 short
 * sequences and 1,024 columns; forward and backward. Useful work only: 4 *
 * head_dim * visible pairs * heads operations forward and 10 backward (five
 * products, though some kernels make seven or eight), so what a mask hides and
 * a kernel computes all the same counts as lost time. "one" and "two" are the
 * backward pass of all documents by one kernel or by two (three with large
 * heads), of which "backward" chooses, see bt_cuda_dense_queries(); "plan" is
 * the host time of updating the plan. The last cases have a softcap or a bias;
 * with a table or a tensor the backward pass also makes its gradient. A tensor
 * is shared by all sequences, and if they are long by all heads. Each figure is
 * the median of single passes between two events, after warm-up; the inputs
 * (200 MB) do not fit the L2. attention_gpu.py times other libraries on the
 * same cases. */
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/philox.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS = 16384, WIDTH = 2048, WARM = 5, RUNS = 25 };
enum { ELEMENTS = 65536 * 1024 }; /* of the largest tensor */

static void need(bool failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "attention_gpu: %s\n", what);
        exit(1);
    }
}

/* ---- the cases --------------------------------------------------------- */

/* A sequence of `time` tokens; TOKENS / time of them are packed. */
typedef bauta_status sequence_fn(bauta_mask **out, size_t time,
                                 bauta_error *err);

static bauta_status sequence_all(bauta_mask **out, size_t time,
                                 bauta_error *err)
{
    return bauta_mask_all(out, time, time, err);
}

static bauta_status sequence_causal(bauta_mask **out, size_t time,
                                    bauta_error *err)
{
    return bauta_mask_causal(out, time, time, err);
}

static bauta_status sequence_window(bauta_mask **out, size_t time,
                                    bauta_error *err)
{
    return bauta_mask_window(out, time, time, 1024, err);
}

static bauta_status sequence_prefix(bauta_mask **out, size_t time,
                                    bauta_error *err)
{
    return bauta_mask_prefix(out, time, time, 1024, err);
}

static bauta_status combine(bauta_mask **out, bauta_mask *a, bauta_mask *b,
                            bool either, bauta_error *err)
{
    bauta_status status =
        either ? bauta_mask_or(out, a, b, err) : bauta_mask_and(out, a, b, err);
    bauta_mask_free(a);
    bauta_mask_free(b);
    return status;
}

static bauta_status sequence_sinks(bauta_mask **out, size_t time,
                                   bauta_error *err)
{
    bauta_mask *a = NULL, *b = NULL;
    need(bauta_mask_window(&a, time, time, 1024, err), "window");
    need(bauta_mask_sinks(&b, time, time, 4, err), "sinks");
    return combine(out, a, b, true, err);
}

static bauta_status sequence_documents(bauta_mask **out, size_t time,
                                       bauta_error *err)
{
    static const size_t share[] = {
        512, 1536, 768, 2048, 256, 1024, 1280, 768
    }; /* of 8192 */
    size_t lengths[BT_LEN(share)];
    bauta_mask *a = NULL, *b = NULL;
    for (size_t i = 0; i < BT_LEN(share); i++)
        lengths[i] = share[i] * time / 8192;
    need(bauta_mask_documents(&a, BT_LEN(share), lengths, NULL, err),
         "documents");
    need(bauta_mask_causal(&b, time, time, err), "causal");
    return combine(out, a, b, false, err);
}

enum { NONE, SOFTCAP, SLOPES, TABLE, TENSOR };
enum { DISTANCES = 257 }; /* of a table, as T5 has them */

static const struct bench_case {
    const char *name;
    sequence_fn *sequence;
    size_t time, head_dim, group; /* query heads that share a key head */
    int bias;
    size_t tokens, width; /* 0: TOKENS and WIDTH */
} cases[] = {
    { "causal_d128_16k", sequence_causal, 16384, 128, 1, NONE, 0, 0 },
    { "causal_d64_8k", sequence_causal, 8192, 64, 1, NONE, 0, 0 },
    { "window1024_d128_8k", sequence_window, 8192, 128, 1, NONE, 0, 0 },
    { "documents8_d128_8k", sequence_documents, 8192, 128, 1, NONE, 0, 0 },
    { "prefix1024_d128_8k", sequence_prefix, 8192, 128, 1, NONE, 0, 0 },
    { "all_d128_8k", sequence_all, 8192, 128, 1, NONE, 0, 0 },
    { "all_d64_8k", sequence_all, 8192, 64, 1, NONE, 0, 0 },
    { "causal_d128_8k", sequence_causal, 8192, 128, 1, NONE, 0, 0 },
    { "causal_d128_4k", sequence_causal, 4096, 128, 1, NONE, 0, 0 },
    { "causal_d128_2k", sequence_causal, 2048, 128, 1, NONE, 0, 0 },
    { "causal_d128_16k_gqa4", sequence_causal, 16384, 128, 4, NONE, 0, 0 },
    { "sinks_window1024_d128_8k", sequence_sinks, 8192, 128, 1, NONE, 0, 0 },
    { "window1024_d64_8k", sequence_window, 8192, 64, 1, NONE, 0, 0 },
    { "documents8_d64_8k", sequence_documents, 8192, 64, 1, NONE, 0, 0 },
    { "causal_d64_16k", sequence_causal, 16384, 64, 1, NONE, 0, 0 },
    { "causal_d64_4k", sequence_causal, 4096, 64, 1, NONE, 0, 0 },
    { "causal_d64_2k", sequence_causal, 2048, 64, 1, NONE, 0, 0 },
    { "causal_d96_8k", sequence_causal, 8192, 96, 1, NONE, 0, 0 },
    { "causal_d192_8k", sequence_causal, 8192, 192, 1, NONE, 0, 0 },
    { "causal_d256_8k", sequence_causal, 8192, 256, 1, NONE, 0, 0 },
    { "all_d256_8k", sequence_all, 8192, 256, 1, NONE, 0, 0 },
    { "window1024_d256_8k", sequence_window, 8192, 256, 1, NONE, 0, 0 },
    { "softcap_causal_d128_8k", sequence_causal, 8192, 128, 1, SOFTCAP, 0, 0 },
    { "softcap_causal_d256_8k", sequence_causal, 8192, 256, 1, SOFTCAP, 0, 0 },
    { "alibi_causal_d128_8k", sequence_causal, 8192, 128, 1, SLOPES, 0, 0 },
    { "alibi_causal_d64_8k", sequence_causal, 8192, 64, 1, SLOPES, 0, 0 },
    { "table_all_d64_512", sequence_all, 512, 64, 1, TABLE, 0, 0 },
    { "all_d64_512", sequence_all, 512, 64, 1, NONE, 0, 0 },
    { "tensor_all_d64_512", sequence_all, 512, 64, 1, TENSOR, 0, 0 },
    { "tensor_causal_d128_8k", sequence_causal, 8192, 128, 1, TENSOR, 0, 0 },
    { "causal_d64_64x1k", sequence_causal, 1024, 64, 1, NONE, 65536, 1024 },
    { "causal_d64_64x512", sequence_causal, 512, 64, 1, NONE, 32768, 1024 },
    { "documents8x1k_d128_8k", sequence_causal, 1024, 128, 1, NONE, 0, 0 },
};

static size_t tokens_of(const struct bench_case *c)
{
    return c->tokens ? c->tokens : TOKENS;
}

static bauta_mask *case_mask(const struct bench_case *c)
{
    bauta_error err = { 0 };
    bauta_mask *parts[64] = { NULL }, *mask = NULL;
    size_t count = tokens_of(c) / c->time;
    for (size_t i = 0; i < count; i++)
        need(c->sequence(&parts[i], c->time, &err), err.message);
    need(bauta_mask_pack(&mask, count, (const bauta_mask *const *)parts, &err),
         err.message);
    for (size_t i = 0; i < count; i++)
        bauta_mask_free(parts[i]);
    return mask;
}

/* ---- timing ------------------------------------------------------------ */

static uint16_t *random_tensor(size_t count, uint32_t seed)
{
    uint16_t *host = malloc(count * 2);
    void *device = NULL;
    for (size_t i = 0; i < count; i += 4) {
        uint32_t word[4], counter[4] = { (uint32_t)i }, key[2] = { seed };
        bt_philox(word, counter, key);
        for (size_t x = 0; x < 4 && i + x < count; x++) {
            // Uniform in [-1.7, 1.7): variance 1, as a norm leaves it.
            float value = (float)((int32_t)word[x] >> 8) * 0x1p-23f * 1.732f;
            uint32_t bits;
            memcpy(&bits, &value, 4);
            host[i + x] = (uint16_t)(bits >> 16);
        }
    }
    need(cudaMalloc(&device, count * 2), "cudaMalloc");
    need(cudaMemcpy(device, host, count * 2, cudaMemcpyHostToDevice),
         "cudaMemcpy");
    free(host);
    return device;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, TENSORS };

/* What a case needs while it is timed. */
typedef struct setup {
    const struct bench_case *c;
    bauta_attention_shape shape;
    bt_cuda_plan *plan;
    uint16_t *const *x; /* (TENSORS) */
    float *lse;
    double pairs; /* visible, in all heads */
    bauta_attention_bias bias;
    void *bias_memory;
} setup;

/* A tensor of zeros, its gradient, and the rows of it. */
static void tensor_make(setup *s)
{
    static uint32_t rows[TOKENS];
    size_t time = s->c->time, heads = time > 1024 ? 1 : s->shape.heads;
    size_t bytes = time * time * heads * sizeof(float);
    char *device = NULL;
    for (size_t i = 0; i < TOKENS; i++)
        rows[i] = (uint32_t)(i % time);
    need(cudaMalloc((void **)&device, 2 * bytes + sizeof(rows)), "cudaMalloc");
    need(cudaMemset(device, 0, 2 * bytes), "cudaMemset");
    need(cudaMemcpy(device + 2 * bytes, rows, sizeof(rows),
                    cudaMemcpyHostToDevice),
         "cudaMemcpy");
    s->bias_memory = device;
    s->bias.tensor = (float *)device;
    s->bias.dtensor = (float *)(device + bytes);
    s->bias.tensor_rows = (uint32_t *)(device + 2 * bytes);
    s->bias.tensor_row = time;
    s->bias.tensor_head = heads > 1 ? time * time : 0;
    s->shape.bias = &s->bias;
}

/* The numbers of a bias, with room for the gradient of a table. */
static void bias_make(setup *s)
{
    static float numbers[DISTANCES * WIDTH / 8];
    size_t heads = s->shape.heads, count = DISTANCES * heads;
    void *device = NULL;
    s->bias = (bauta_attention_bias)BAUTA_ATTENTION_BIAS_INIT;
    if (s->c->bias == NONE)
        return;
    if (s->c->bias == TENSOR) {
        tensor_make(s);
        return;
    }
    // Slopes as those of ALiBi; a table of small numbers.
    for (size_t i = 0; i < count; i++)
        numbers[i] = s->c->bias == SLOPES
                         ? exp2f(-8.0f * (float)(i + 1) / (float)heads)
                         : (float)(i % 17) * 0.1f;
    need(cudaMalloc(&device, 2 * count * sizeof(float)), "cudaMalloc");
    need(cudaMemset(device, 0, 2 * count * sizeof(float)), "cudaMemset");
    s->bias_memory = device;
    need(cudaMemcpy(device, numbers, count * sizeof(float),
                    cudaMemcpyHostToDevice),
         "cudaMemcpy");
    if (s->c->bias == SOFTCAP)
        s->bias.softcap = 50.0f;
    if (s->c->bias == SLOPES)
        s->bias.slopes = device;
    if (s->c->bias == TABLE) {
        s->bias.table = device;
        s->bias.dtable = (float *)device + count;
        s->bias.distances = DISTANCES;
        s->bias.first_distance = -(DISTANCES / 2);
    }
    s->shape.bias = &s->bias;
}

static void forward(const setup *s)
{
    bauta_error err = { 0 };
    need(bt_attention_forward_bf16_cuda(s->plan, &s->shape, s->x[Q], s->x[K],
                                        s->x[V], s->x[OUT], s->lse, NULL, &err),
         err.message);
}

static void backward(const setup *s)
{
    bauta_error err = { 0 };
    need(bt_attention_backward_bf16_cuda(
             s->plan, &s->shape, s->x[Q], s->x[K], s->x[V], s->x[OUT], s->lse,
             s->x[DOUT], s->x[DQ], s->x[DK], s->x[DV], NULL, &err),
         err.message);
}

/* `products`: matrix products that count, of 2 * head_dim operations a pair. */
static void measure(const setup *s, const char *name, void pass(const setup *),
                    double products, bool json)
{
    cudaEvent_t start, stop;
    float ms[RUNS];
    need(cudaEventCreate(&start) || cudaEventCreate(&stop), "events");
    for (int i = -WARM; i < RUNS; i++) {
        need(cudaEventRecord(start, NULL), "event");
        pass(s);
        need(cudaEventRecord(stop, NULL), "event");
        need(cudaEventSynchronize(stop), "the kernel failed");
        if (i >= 0)
            need(cudaEventElapsedTime(&ms[i], start, stop), "event");
    }
    qsort(ms, RUNS, sizeof(ms[0]), by_size);
    double work = 2.0 * products * (double)s->c->head_dim * s->pairs;
    double rate = work / ((double)ms[RUNS / 2] * 1e9);
    if (json)
        printf("{\"system\":\"bauta\",\"case\":\"%s\",\"pass\":\"%s\","
               "\"tflops\":%.1f,\"ms\":%.4f,\"ms_min\":%.4f,\"ms_max\":%.4f}\n",
               s->c->name, name, rate, (double)ms[RUNS / 2], (double)ms[0],
               (double)ms[RUNS - 1]);
    else
        printf("%-26s %-8s %8.1f TFLOP/s %9.4f ms (%.4f to %.4f)\n", s->c->name,
               name, rate, (double)ms[RUNS / 2], (double)ms[0],
               (double)ms[RUNS - 1]);
    fflush(stdout);
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Host time of updating the plan, copy queued; with the lists of both passes.
 */
static void measure_plan(setup *s, const bauta_mask *mask, bool json)
{
    bauta_error err = { 0 };
    float us[RUNS];
    for (int i = 0; i < RUNS; i++) {
        double start = now();
        need(bt_cuda_plan_update(s->plan, mask, 0, tokens_of(s->c), 0, NULL,
                                 &err),
             err.message);
        need(bt_cuda_plan_complete(s->plan, NULL, &err), err.message);
        us[i] = (float)(now() - start);
        need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    qsort(us, RUNS, sizeof(us[0]), by_size);
    if (json)
        printf("{\"system\":\"bauta\",\"case\":\"%s\",\"pass\":\"plan\","
               "\"us\":%.1f}\n",
               s->c->name, (double)us[RUNS / 2]);
    else
        printf("%-26s plan     %8.1f us\n", s->c->name, (double)us[RUNS / 2]);
}

static void bench(const struct bench_case *c, bool json, uint16_t *const *x,
                  float *lse)
{
    bauta_error err = { 0 };
    bauta_mask *mask = case_mask(c);
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    setup s = { .c = c, .x = x, .lse = lse };

    shape.heads = (c->width ? c->width : WIDTH) / c->head_dim;
    shape.kv_heads = shape.heads / c->group;
    shape.head_dim = c->head_dim;
    s.shape = shape;
    s.pairs = (double)bauta_mask_pairs(mask) * (double)shape.heads;
    bias_make(&s);
    need(bt_cuda_plan_create(&s.plan, &s.shape, true, &err), err.message);
    measure_plan(&s, mask, json);
    measure(&s, "forward", forward, 2.0, json);
    measure(&s, "backward", backward, 5.0, json);
    bool both = c->bias == NONE;
    for (int i = 0; i < 2 && both; i++) {
        bt_cuda_plan_set_dense(s.plan, i ? 0 : SIZE_MAX);
        need(bt_cuda_plan_update(s.plan, mask, 0, tokens_of(c), 0, NULL, &err),
             err.message);
        measure(&s, i ? "one" : "two", backward, 5.0, json);
    }
    cudaFree(s.bias_memory);
    bt_cuda_plan_free(s.plan);
    bauta_mask_free(mask);
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    int from = json ? 2 : 1;
    uint16_t *x[TENSORS];
    void *lse = NULL;

    for (uint32_t i = 0; i < TENSORS; i++)
        x[i] = random_tensor(ELEMENTS, i);
    need(cudaMalloc(&lse, sizeof(float) * ELEMENTS / 64), "cudaMalloc");
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bool wanted = from == argc;
        for (int a = from; a < argc; a++)
            wanted |= strcmp(argv[a], cases[i].name) == 0;
        if (wanted)
            bench(&cases[i], json, x, lse);
    }
    for (size_t i = 0; i < TENSORS; i++)
        cudaFree(x[i]);
    cudaFree(lse);
    return 0;
}
