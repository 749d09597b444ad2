/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_few_gpu.c - products of few rows on a GPU, as decoding has them.
 *
 *     gemm_few_gpu [few] [chain]
 *
 * few: single products of the shapes of GPT-2 124M and of Llamas of 1B and 8B,
 * in graphs of products with matrices that together do not fit the L2.
 * Microseconds of a product as it is chosen, by tiles of 64 rows of weights
 * with a ring of stages, and by narrow tiles of 32 and 64.
 *
 * chain: the four products of a layer, each of which reads what the one before
 * it has written, for all layers of the model, replayed as a graph with early
 * starts as in a step of decoding. Microseconds of a layer, and how many fewer
 * there are where one of the four is left out. Medians of several replays. */
#include "backend/cuda/gemm_task.h"
#include "base/error.h"
#include "base/philox.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 15, WARM = 3, WAYS = 4, PRODUCTS = 4 };

static int multiprocessors;
static cudaEvent_t start, stop;
static cudaStream_t stream;

static void need(bool failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "gemm_few_gpu: %s\n", what);
        exit(1);
    }
}

/* Small random numbers, the same 16 MB over and over. */
static uint16_t *random_tensor(size_t count)
{
    static uint16_t *block;
    size_t length = 8 << 20;
    void *device = NULL;
    if (!block) {
        block = malloc(length * 2);
        need(!block, "no memory");
        for (size_t i = 0; i < length; i += 4) {
            uint32_t word[4], counter[4] = { (uint32_t)i }, key[2] = { 1 };
            bt_philox(word, counter, key);
            for (size_t x = 0; x < 4; x++) {
                float v = (float)((int32_t)word[x] >> 8) * 0x1p-23f * 0.03f;
                uint32_t bits;
                memcpy(&bits, &v, 4);
                block[i + x] = (uint16_t)(bits >> 16);
            }
        }
    }
    need(cudaMalloc(&device, count * 2), "cudaMalloc");
    uint16_t *to = device;
    for (size_t i = 0; i < count; i += length)
        need(cudaMemcpy(to + i, i ? to : block,
                        (count - i < length ? count - i : length) * 2,
                        i ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice),
             "cudaMemcpy");
    return device;
}

/* ---- ways -----------------------------------------------------------------
 */

static const char *const way_names[WAYS] = { "chosen", "ring", "narrow 32",
                                             "narrow 64" };

/* How a way carries out a product; false: it cannot. */
static bool choice_of(bt_gemm_choice *c, const bt_cuda_gemm_args *p, int way)
{
    bt_gemm_choose(c, p, 0, multiprocessors);
    if (way == 0)
        return true;
    *c = (bt_gemm_choice){ .small = true };
    if (way > 1) {
        c->narrow = 8 << way;
        return bt_gemm_narrow_can(c, p);
    }
    int tiles = (int)(p->n + 63) / 64, chunks = (int)(p->k + 1023) / 1024;
    for (c->blocks = 1; c->blocks < 8 && c->blocks < chunks &&
                        tiles * c->blocks < multiprocessors * 9 / 10;)
        c->blocks *= 2;
    return true;
}

/* As a way has it, or as it is chosen. */
static void queue(const bt_cuda_gemm_args *p, int way)
{
    bt_gemm_choice c;
    bauta_error err = { 0 };
    if (!choice_of(&c, p, way))
        choice_of(&c, p, 0);
    need(bt_cuda_gemm_by(&c, p, NULL, 0, stream, &err), err.message);
}

/* ---- timing ---------------------------------------------------------------
 */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void capture(void)
{
    need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
         "capture");
}

/* Microseconds of what was captured. */
static double replay(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float ms[RUNS];
    need(cudaStreamEndCapture(stream, &graph), "capture");
    need(cudaGraphInstantiate(&exec, graph, 0), "graph");
    for (int i = -WARM; i < RUNS; i++) {
        need(cudaEventRecord(start, stream), "event");
        need(cudaGraphLaunch(exec, stream), "graph");
        need(cudaEventRecord(stop, stream), "event");
        need(cudaEventSynchronize(stop), "a product failed");
        if (i >= 0)
            need(cudaEventElapsedTime(&ms[i], start, stop), "event");
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    qsort(ms, RUNS, sizeof(ms[0]), by_size);
    return (double)ms[RUNS / 2] * 1e3;
}

/* ---- few ------------------------------------------------------------------
 */

static const size_t row_counts[] = { 1, 8, 32 };

static const struct weights_shape {
    size_t outputs, inputs;
    bt_gemm_form form; /* as the model's files have them */
} shapes[] = { { 2304, 768, BT_GEMM_NN },   { 768, 768, BT_GEMM_NN },
               { 3072, 768, BT_GEMM_NN },   { 768, 3072, BT_GEMM_NN },
               { 2304, 768, BT_GEMM_NT },   { 768, 3072, BT_GEMM_NT },
               { 50257, 768, BT_GEMM_NT },  { 3072, 2048, BT_GEMM_NT },
               { 2048, 2048, BT_GEMM_NT },  { 16384, 2048, BT_GEMM_NT },
               { 2048, 8192, BT_GEMM_NT },  { 128256, 2048, BT_GEMM_NT },
               { 6144, 4096, BT_GEMM_NT },  { 4096, 4096, BT_GEMM_NT },
               { 28672, 4096, BT_GEMM_NT }, { 4096, 14336, BT_GEMM_NT } };

enum { FEW_BYTES = 1200 << 20 };

static double few_us(bt_cuda_gemm_args p, int way)
{
    size_t bytes = p.n * p.k * 2, fit = ((size_t)200 << 20) / bytes;
    size_t most = FEW_BYTES / bytes, launches = fit < 24 ? 24 : fit;
    size_t matrices = launches < most ? launches : most;
    const uint16_t *b = p.b;
    capture();
    for (size_t i = 0; i < launches; i++) {
        p.b = b + i % matrices * p.n * p.k;
        queue(&p, way);
    }
    return replay() / (double)launches;
}

static void few(const uint16_t *x, const uint16_t *w, void *out)
{
    printf("%-4s %-4s %-14s", "rows", "form", "weights");
    for (int way = 0; way < WAYS; way++)
        printf(" %9s", way_names[way]);
    printf("\n");
    for (size_t r = 0; r < BT_LEN(row_counts); r++)
        for (size_t s = 0; s < BT_LEN(shapes); s++) {
            bt_cuda_gemm_args p = { .form = shapes[s].form,
                                    .m = row_counts[r],
                                    .n = shapes[s].outputs,
                                    .k = shapes[s].inputs,
                                    .a = x,
                                    .b = w,
                                    .out = out,
                                    .ldo = (shapes[s].outputs + 7) / 8 * 8,
                                    .b_ready = true };
            bt_gemm_choice c;
            choice_of(&c, &p, 0);
            printf("%4zu %-4s %6zu x %-5zu", p.m,
                   p.form == BT_GEMM_NT ? "NT" : "NN", p.n, p.k);
            for (int way = 0; way < WAYS; way++) {
                bt_gemm_choice other;
                if (choice_of(&other, &p, way))
                    printf(" %9.2f", few_us(p, way));
                else
                    printf(" %9s", "-");
            }
            printf("  (narrow %d, %d blocks)\n", c.narrow, c.blocks);
            fflush(stdout);
        }
}

/* ---- chain ----------------------------------------------------------------
 */

/* A layer's products: inputs and outputs, and whether there is GELU. */
typedef struct chain_model {
    const char *name;
    size_t layers;
    bt_gemm_form form;
    bool bias;
    size_t outputs[PRODUCTS], inputs[PRODUCTS];
} chain_model;

static const chain_model models[] = {
    { "GPT-2 124M",
      12,
      BT_GEMM_NN,
      true,
      { 2304, 768, 3072, 768 },
      { 768, 768, 768, 3072 } },
    { "Llama 1B",
      16,
      BT_GEMM_NT,
      false,
      { 3072, 2048, 16384, 2048 },
      { 2048, 2048, 2048, 8192 } },
    { "Llama 8B",
      5,
      BT_GEMM_NT,
      false,
      { 6144, 4096, 28672, 4096 },
      { 4096, 4096, 4096, 14336 } },
};

/* Microseconds of a layer without the product `without`; -1: with all. */
static double layer_us(const chain_model *m, size_t rows, uint16_t *x,
                       uint16_t *y, const uint16_t *w, int way, int without)
{
    size_t used = 0, width = m->inputs[0];
    capture();
    for (size_t l = 0; l < m->layers; l++)
        for (int i = 0; i < PRODUCTS; i++) {
            bt_cuda_gemm_args p = { .form = m->form,
                                    .m = rows,
                                    .n = m->outputs[i],
                                    .k = m->inputs[i],
                                    .a = x,
                                    .lda = width < m->inputs[i] ? m->inputs[i]
                                                                : width,
                                    .b = w + used,
                                    .out = y,
                                    .bias = m->bias ? w : NULL,
                                    .has_act = m->bias && i == 2,
                                    .act = BT_ACT_GELU_TANH,
                                    .b_ready = true };
            used += p.n * p.k;
            if (i == without)
                continue;
            queue(&p, way);
            uint16_t *t = x;
            x = y;
            y = t;
            width = m->outputs[i];
        }
    return replay() / (double)m->layers;
}

static void chain(const chain_model *m, uint16_t *x, uint16_t *y,
                  const uint16_t *w)
{
    for (size_t r = 0; r < BT_LEN(row_counts); r++)
        for (int way = 0; way < WAYS; way++) {
            double all = layer_us(m, row_counts[r], x, y, w, way, -1);
            printf("%s, %zu rows, %-9s %7.2f us a layer;", m->name,
                   row_counts[r], way_names[way], all);
            for (int i = 0; i < PRODUCTS; i++)
                printf("  %zu x %zu %.2f", m->outputs[i], m->inputs[i],
                       all - layer_us(m, row_counts[r], x, y, w, way, i));
            printf("\n");
            fflush(stdout);
        }
}

int main(int argc, char **argv)
{
    static const char *const all[] = { "", "few", "chain" };
    int device = 0, count = argc > 1 ? argc : (int)BT_LEN(all);
    need(cudaGetDevice(&device) ||
             cudaDeviceGetAttribute(&multiprocessors,
                                    cudaDevAttrMultiProcessorCount, device),
         "no GPU");
    need(cudaEventCreate(&start) || cudaEventCreate(&stop) ||
             cudaStreamCreate(&stream),
         "events");
    uint16_t *x = random_tensor((size_t)64 * 28672);
    uint16_t *y = random_tensor((size_t)64 * 28672);
    uint16_t *out = random_tensor((size_t)64 * 128256);
    // All layers of a chain, or the matrices of `few`.
    uint16_t *w = random_tensor((size_t)FEW_BYTES);
    for (int i = 1; i < count; i++) {
        const char *what = argc > 1 ? argv[i] : all[i];
        if (!strcmp(what, "few"))
            few(x, w, out);
        else if (!strcmp(what, "chain"))
            for (size_t m = 0; m < BT_LEN(models); m++)
                chain(&models[m], x, y, w);
        else
            need(true, "what is that?");
    }
    return 0;
}
