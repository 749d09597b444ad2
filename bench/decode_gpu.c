/* SPDX-License-Identifier: Apache-2.0 */
/* decode_gpu.c - how fast the GPU decodes.
 *
 *     decode_gpu [--json] [--in-order] [case ...]
 *
 * One query a sequence, or some, over a cache in pages of 64 keys, which lie in
 * random order, or with --in-order in the order of the keys. Only what the
 * masks show counts: visible keys and values in bytes, so what is read beside
 * them counts as lost time; with many queries a sequence (prefill in pieces)
 * the operations of the two products count. Each case has several sets of
 * sequences, in memory that together does not fit the L2, and a graph of
 * launches, as many as the layers of a large model: all sets in turns. A figure
 * is the median of the graph's replays, for one launch. decode_gpu.py times
 * other libraries in the same way. */
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/philox.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 64, SETS = 64, SEQUENCES = 256, WARM = 3, RUNS = 15 };
enum { LAUNCHES = 32 }; /* of a graph, at least */

static void need(bool failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "decode_gpu: %s\n", what);
        exit(1);
    }
}

/* ---- the cases --------------------------------------------------------- */

typedef enum { EVERYTHING, SINKS_WINDOW } kind;

static const struct bench_case {
    const char *name;
    kind kind;
    size_t sequences, keys, shortest; /* lengths go from shortest to keys */
    size_t heads, kv_heads, head_dim;
    size_t queries; /* of a sequence */
} cases[] = {
    { "32x8k_32:8_d128", EVERYTHING, 32, 8192, 8192, 32, 8, 128, 1 },
    { "1x32k_32:8_d128", EVERYTHING, 1, 32768, 32768, 32, 8, 128, 1 },
    { "1x8k_32:8_d128", EVERYTHING, 1, 8192, 8192, 32, 8, 128, 1 },
    { "1x4k_32:8_d128", EVERYTHING, 1, 4096, 4096, 32, 8, 128, 1 },
    { "1x1k_32:8_d128", EVERYTHING, 1, 1024, 1024, 32, 8, 128, 1 },
    { "8x8k_32:8_d128", EVERYTHING, 8, 8192, 8192, 32, 8, 128, 1 },
    { "32x1k_32:8_d128", EVERYTHING, 32, 1024, 1024, 32, 8, 128, 1 },
    { "128x2k_32:8_d128", EVERYTHING, 128, 2048, 2048, 32, 8, 128, 1 },
    { "ragged64x16k_32:8_d128", EVERYTHING, 64, 16384, 100, 32, 8, 128, 1 },
    { "32x8k_32:32_d128", EVERYTHING, 32, 8192, 8192, 32, 32, 128, 1 },
    { "32x8k_64:4_d128", EVERYTHING, 32, 8192, 8192, 64, 4, 128, 1 },
    { "32x8k_32:8_d64", EVERYTHING, 32, 8192, 8192, 32, 8, 64, 1 },
    { "32x32k_sinks_window1024", SINKS_WINDOW, 32, 32768, 32768, 32, 8, 128,
      1 },
    { "32x8k_4queries_32:8_d128", EVERYTHING, 32, 8192, 8192, 32, 8, 128, 4 },
    { "32x8k_32:4_d256", EVERYTHING, 32, 8192, 8192, 32, 4, 256, 1 },
    { "32x8k_64:1_d128", EVERYTHING, 32, 8192, 8192, 64, 1, 128, 1 },
    { "8x8k_512queries_32:8_d128", EVERYTHING, 8, 8192, 8192, 32, 8, 128, 512 },
};

static bauta_mask *mask_of(const struct bench_case *c, size_t keys)
{
    bauta_error err = { 0 };
    bauta_mask *sinks = NULL, *window = NULL, *mask = NULL;
    if (c->kind == EVERYTHING) {
        need(bauta_mask_causal(&mask, c->queries, keys, &err), err.message);
        return mask;
    }
    need(bauta_mask_sinks(&sinks, 1, keys, 4, &err), err.message);
    need(bauta_mask_window(&window, 1, keys, 1024, &err), err.message);
    need(bauta_mask_or(&mask, sinks, window, &err), err.message);
    bauta_mask_free(sinks);
    bauta_mask_free(window);
    return mask;
}

/* ---- memory ------------------------------------------------------------ */

static uint32_t draw(uint32_t *counter)
{
    uint32_t word[4], at[4] = { (*counter)++ }, key[2] = { 7 };
    bt_philox(word, at, key);
    return word[0];
}

enum { RANDOM = (8 << 20) + 24 };

/* Random bf16, variance 1. */
static const uint16_t *random_block(void)
{
    static uint16_t block[RANDOM];
    uint32_t counter = 0;
    for (size_t i = 0; i < RANDOM && !block[0]; i++) {
        size_t at = RANDOM - 1 - i; // block[0] comes last
        float value = (float)((int32_t)draw(&counter) >> 8) * 0x1p-23f * 1.732f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        block[at] = (uint16_t)(bits >> 16);
    }
    return block;
}

/* The block again and again. */
static uint16_t *random_tensor(size_t count)
{
    char *device = NULL;
    need(cudaMalloc((void **)&device, count * 2), "cudaMalloc");
    for (size_t i = 0; i < count; i += RANDOM) {
        size_t part = count - i < RANDOM ? count - i : RANDOM;
        const void *from = i ? (const void *)device : random_block();
        need(cudaMemcpy(device + i * 2, from, part * 2, cudaMemcpyDefault),
             "cudaMemcpy");
    }
    return (uint16_t *)device;
}

/* All pages of the pool, in order or shuffled. */
static uint32_t *page_numbers(size_t count, bool in_order)
{
    uint32_t *deck = malloc(count * sizeof(*deck)), counter = 1u << 30;
    for (size_t i = 0; i < count; i++) {
        size_t j = in_order ? i : draw(&counter) % (i + 1);
        deck[i] = deck[j];
        deck[j] = (uint32_t)i;
    }
    return deck;
}

/* ---- timing ------------------------------------------------------------ */

typedef struct setup {
    const struct bench_case *c;
    bauta_attention_shape shape;
    bt_cuda_pages pages;
    size_t sets;
    uint64_t bytes; /* visible, of one set */
    uint64_t pairs; /* of queries and keys, times heads */
    bt_cuda_decode *decode[SETS];
    uint16_t *q, *out;
    float *lse;
} setup;

static size_t length_of(const struct bench_case *c, size_t i)
{
    size_t span = c->keys - c->shortest;
    return c->shortest + span * (i * 37 % c->sequences) / c->sequences;
}

static void setup_steps(setup *s, bool in_order)
{
    const struct bench_case *c = s->c;
    size_t most = c->keys / PAGE + 1;
    bauta_error err = { 0 };
    uint32_t *deck = page_numbers(s->pages.pages, in_order), *next = deck;
    bauta_mask *masks[SEQUENCES];
    for (size_t set = 0; set < s->sets; set++) {
        bt_decode_sequence sequences[SEQUENCES];
        s->bytes = s->pairs = 0;
        for (size_t i = 0; i < c->sequences; i++, next += most) {
            masks[i] = mask_of(c, length_of(c, i));
            sequences[i] =
                (bt_decode_sequence){ masks[i], 0, c->queries, next };
            // Of several queries the last one sees everything.
            size_t seen = c->queries > 1 ? bauta_mask_keys(masks[i])
                                         : bauta_mask_pairs(masks[i]);
            s->bytes += seen * c->kv_heads * c->head_dim * 2 * sizeof(uint16_t);
            s->pairs += bauta_mask_pairs(masks[i]) * c->heads;
        }
        need(bt_cuda_decode_create(&s->decode[set], &s->shape, PAGE, &err),
             err.message);
        need(bt_cuda_decode_step(s->decode[set], sequences, c->sequences, NULL,
                                 &err),
             err.message);
        for (size_t i = 0; i < c->sequences; i++)
            bauta_mask_free(masks[i]);
    }
    free(deck);
}

static void setup_init(setup *s, const struct bench_case *c, bool in_order)
{
    size_t page = PAGE * c->kv_heads * c->head_dim;
    size_t pages = c->sequences * (c->keys / PAGE + 1);
    *s = (setup){ .c = c, .shape = BAUTA_ATTENTION_SHAPE_INIT };
    s->shape.heads = c->heads;
    s->shape.kv_heads = c->kv_heads;
    s->shape.head_dim = c->head_dim;
    s->sets = ((size_t)1 << 30) / (pages * page * 2) + 1;
    if (s->sets < 3)
        s->sets = 3;
    if (s->sets > SETS)
        s->sets = SETS;
    s->pages.page_keys = PAGE;
    s->pages.early_reads = true; // as in a step of a model
    s->pages.pages = s->sets * pages;
    s->pages.k = random_tensor(s->pages.pages * page);
    s->pages.v = random_tensor(s->pages.pages * page);
    size_t rows = c->sequences * c->queries * c->heads;
    s->q = random_tensor(rows * c->head_dim);
    s->out = random_tensor(rows * c->head_dim);
    need(cudaMalloc((void **)&s->lse, rows * sizeof(float)), "cudaMalloc");
    setup_steps(s, in_order);
}

static void setup_release(setup *s)
{
    for (size_t i = 0; i < s->sets; i++)
        bt_cuda_decode_free(s->decode[i]);
    cudaFree((void *)s->pages.k);
    cudaFree((void *)s->pages.v);
    cudaFree(s->q);
    cudaFree(s->out);
    cudaFree(s->lse);
}

static size_t launches(const setup *s)
{
    return (LAUNCHES + s->sets - 1) / s->sets * s->sets;
}

static cudaGraphExec_t capture(setup *s, cudaStream_t stream)
{
    bauta_error err = { 0 };
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
         "capture");
    for (size_t i = 0; i < launches(s); i++)
        need(bt_attention_decode_bf16_cuda(s->decode[i % s->sets], &s->shape,
                                           s->q, &s->pages, s->out, s->lse,
                                           stream, &err),
             err.message);
    need(cudaStreamEndCapture(stream, &graph), "capture");
    need(cudaGraphInstantiate(&exec, graph, 0), "graph");
    cudaGraphDestroy(graph);
    return exec;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void report(const setup *s, const float *ms, bool json)
{
    double us[3];
    static const int which[3] = { RUNS / 2, 0, RUNS - 1 };
    for (int i = 0; i < 3; i++)
        us[i] = (double)ms[which[i]] * 1e3 / (double)launches(s);
    double rate = (double)s->bytes / us[0] * 1e-6;
    double work = 4.0 * (double)s->c->head_dim * (double)s->pairs;
    if (json)
        printf("{\"system\":\"bauta\",\"case\":\"%s\",\"tb_s\":%.3f,"
               "\"tflops\":%.1f,\"us\":%.2f,\"us_min\":%.2f,"
               "\"us_max\":%.2f}\n",
               s->c->name, rate, work / us[0] * 1e-6, us[0], us[1], us[2]);
    else
        printf("%-26s %7.3f TB/s %6.1f TFLOP/s %9.2f us (%.2f to %.2f)\n",
               s->c->name, rate, work / us[0] * 1e-6, us[0], us[1], us[2]);
    fflush(stdout);
}

static void bench(const struct bench_case *c, bool in_order, bool json)
{
    setup s;
    cudaStream_t stream;
    cudaEvent_t start, stop;
    float ms[RUNS];
    setup_init(&s, c, in_order);
    need(cudaStreamCreate(&stream), "stream");
    need(cudaEventCreate(&start) || cudaEventCreate(&stop), "events");
    cudaGraphExec_t graph = capture(&s, stream);
    for (int i = -WARM; i < RUNS; i++) {
        need(cudaEventRecord(start, stream), "event");
        need(cudaGraphLaunch(graph, stream), "graph");
        need(cudaEventRecord(stop, stream), "event");
        need(cudaEventSynchronize(stop), "the kernel failed");
        if (i >= 0)
            need(cudaEventElapsedTime(&ms[i], start, stop), "event");
    }
    qsort(ms, RUNS, sizeof(ms[0]), by_size);
    report(&s, ms, json);
    cudaGraphExecDestroy(graph);
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaStreamDestroy(stream);
    setup_release(&s);
}

int main(int argc, char **argv)
{
    bool json = false, in_order = false;
    int from = 1;
    for (; from < argc && argv[from][0] == '-'; from++) {
        bool is_json = strcmp(argv[from], "--json") == 0;
        bool is_order = strcmp(argv[from], "--in-order") == 0;
        need(!is_json && !is_order, "options are --json and --in-order");
        json |= is_json;
        in_order |= is_order;
    }
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bool wanted = from == argc;
        for (int a = from; a < argc; a++)
            wanted |= strcmp(argv[a], cases[i].name) == 0;
        if (wanted)
            bench(&cases[i], in_order, json);
    }
    return 0;
}
