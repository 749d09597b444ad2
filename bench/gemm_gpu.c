/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_gpu.c - how fast the GPU's products in bfloat16 are, beside cuBLASLt.
 *
 *     gemm_gpu [table] [small] [spread] [tiles] [ends]
 *
 * table (by default, with small): the products of a layer with weights
 * (outputs, inputs) for 65,536 and 16,384 rows: y = x W^T, dx = dy W and
 * dW = dy^T x, all in bfloat16, and dW added to float32. cuBLASLt runs what its
 * heuristic puts first, with 64 MB of workspace. The two take turns; medians of
 * single calls between events. small: 1 to 64 rows of 8192 x 8192, in graphs of
 * products with several matrices that do not fit the L2, in TB/s of weights.
 * spread: the same by more or fewer blocks. tiles: every shape of tile, and
 * other lengths of a chunk. ends: what bias, activation and residual cost. */
#include "backend/cuda/gemm_task.h"
#include "base/error.h"
#include "base/philox.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 11, WARM = 2, WORKSPACE = 512 << 20, BLAS_WORKSPACE = 64 << 20 };

static void need(bool failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "gemm_gpu: %s\n", what);
        exit(1);
    }
}

static void *workspace, *blas_workspace;
static int multiprocessors;
static cublasLtHandle_t blas;
static cudaEvent_t start, stop;

static const struct layer {
    size_t outputs, inputs;
} layers[] = { { 2304, 768 }, { 768, 768 },   { 3072, 768 },
               { 768, 3072 }, { 50304, 768 }, { 8192, 8192 } };
/* For few rows: of a plain square, GPT-2 124M, and a Llama of 1B. */
static const struct layer weights[] = { { 8192, 8192 }, { 4096, 4096 },
                                        { 2304, 768 },  { 768, 3072 },
                                        { 3072, 2048 }, { 16384, 2048 },
                                        { 2048, 8192 } };
static const size_t row_counts[] = { 65536, 16384 };
static const char *const forms[] = { "y", "dx", "dW" };

/* ---- tensors ------------------------------------------------------------- */

/* Random numbers of variance 1, the same 64 MB over and over. */
static uint16_t *random_tensor(size_t count)
{
    static uint16_t *block;
    size_t length = 32 << 20;
    void *device = NULL;
    if (!block) {
        block = malloc(length * 2);
        for (size_t i = 0; i < length; i += 4) {
            uint32_t word[4], counter[4] = { (uint32_t)i }, key[2] = { 1 };
            bt_philox(word, counter, key);
            for (size_t x = 0; x < 4; x++) {
                float v = (float)((int32_t)word[x] >> 8) * 0x1p-23f * 1.732f;
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

/* ---- cuBLASLt --------------------------------------------------------------
 */

typedef struct peer {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algo;
} peer;

static void peer_init(peer *q, const bt_cuda_gemm_args *p)
{
    cublasOperation_t ta =
        p->form == BT_GEMM_NT ? CUBLAS_OP_T : CUBLAS_OP_N; // of b: comes first
    cublasOperation_t tb = p->form == BT_GEMM_TN ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    size_t limit = BLAS_WORKSPACE;
    int count = 0;
    cudaDataType_t out = p->out_f32 ? CUDA_R_32F : CUDA_R_16BF;
    bool failed =
        cublasLtMatmulDescCreate(&q->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
        cublasLtMatmulDescSetAttribute(q->desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                       &ta, sizeof(ta)) ||
        cublasLtMatmulDescSetAttribute(q->desc, CUBLASLT_MATMUL_DESC_TRANSB,
                                       &tb, sizeof(tb)) ||
        cublasLtMatrixLayoutCreate(&q->a, CUDA_R_16BF, ta ? p->k : p->n,
                                   ta ? p->n : p->k,
                                   (int64_t)(ta ? p->k : p->n)) ||
        cublasLtMatrixLayoutCreate(&q->b, CUDA_R_16BF, tb ? p->m : p->k,
                                   tb ? p->k : p->m,
                                   (int64_t)(tb ? p->m : p->k)) ||
        cublasLtMatrixLayoutCreate(&q->out, out, p->n, p->m, (int64_t)p->n) ||
        cublasLtMatmulPreferenceCreate(&preference) ||
        cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
            sizeof(limit)) ||
        cublasLtMatmulAlgoGetHeuristic(blas, q->desc, q->a, q->b, q->out,
                                       q->out, preference, 1, &found, &count);
    need(failed || !count, "cuBLASLt has no algorithm");
    q->algo = found.algo;
    cublasLtMatmulPreferenceDestroy(preference);
}

static void peer_release(peer *q)
{
    cublasLtMatmulDescDestroy(q->desc);
    cublasLtMatrixLayoutDestroy(q->a);
    cublasLtMatrixLayoutDestroy(q->b);
    cublasLtMatrixLayoutDestroy(q->out);
}

static void peer_run(const peer *q, const bt_cuda_gemm_args *p,
                     cudaStream_t stream)
{
    float one = 1, beta = p->accumulate ? 1 : 0;
    need(cublasLtMatmul(blas, q->desc, &one, p->b, q->a, p->a, q->b, &beta,
                        p->out, q->out, p->out, q->out, &q->algo,
                        blas_workspace, BLAS_WORKSPACE, stream),
         "cublasLtMatmul");
}

/* ---- timing
 * ------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static float median(float *ms, int count)
{
    qsort(ms, (size_t)count, sizeof(ms[0]), by_size);
    return ms[count / 2];
}

static void ours(const bt_cuda_gemm_args *p, const bt_gemm_choice *choice)
{
    bauta_error err = { 0 };
    need(choice ? bt_cuda_gemm_by(choice, p, workspace, WORKSPACE, NULL, &err)
                : bt_cuda_gemm(p, workspace, WORKSPACE, NULL, &err),
         err.message);
}

/* One call, of ours or, without one, of the peer's. */
static float one(const bt_cuda_gemm_args *p, const bt_gemm_choice *choice,
                 const peer *q)
{
    float ms;
    need(cudaEventRecord(start, NULL), "event");
    if (q)
        peer_run(q, p, NULL);
    else
        ours(p, choice);
    need(cudaEventRecord(stop, NULL), "event");
    need(cudaEventSynchronize(stop), "a product failed");
    need(cudaEventElapsedTime(&ms, start, stop), "event");
    return ms;
}

static double rate(const bt_cuda_gemm_args *p, float ms)
{
    return 2e-9 * (double)p->m * (double)p->n * (double)p->k / (double)ms;
}

/* t: x (rows, inputs), w (outputs, inputs), dy (rows, outputs), dw in float32
 * and other results, each large enough for all layers. */
static bt_cuda_gemm_args product_of(bt_gemm_form form, size_t rows,
                                    struct layer l, uint16_t *const *t)
{
    bool nt = form == BT_GEMM_NT, tn = form == BT_GEMM_TN;
    return (bt_cuda_gemm_args){
        .form = form,
        .m = tn ? l.outputs : rows,
        .n = nt ? l.outputs : l.inputs,
        .k = tn   ? rows
             : nt ? l.inputs
                  : l.outputs,
        .a = nt ? t[0] : t[2],
        .b = tn ? t[0] : t[1],
        .out = tn ? t[3] : t[4],
    };
}

static double compare(const bt_cuda_gemm_args *p, const char *name)
{
    peer q;
    float mine[RUNS], theirs[RUNS];
    peer_init(&q, p);
    for (int i = -WARM; i < RUNS; i++) {
        float a = one(p, NULL, NULL), b = one(p, NULL, &q);
        if (i >= 0) {
            mine[i] = a;
            theirs[i] = b;
        }
    }
    peer_release(&q);
    float a = median(mine, RUNS), b = median(theirs, RUNS);
    if (name)
        printf("%-8s %6zu x %6zu x %6zu  %6.1f  cuBLASLt %6.1f  ratio %.3f  "
               "(%.4f ms)\n",
               name, p->m, p->n, p->k, rate(p, a), rate(p, b), (double)(b / a),
               (double)a);
    fflush(stdout);
    return log((double)(b / a));
}

static void table(uint16_t *const *t)
{
    double sum = 0, least = 1e9;
    int count = 0;
    for (size_t r = 0; r < BT_LEN(row_counts); r++)
        for (size_t l = 0; l < BT_LEN(layers); l++) {
            for (int f = 0; f < 3; f++) {
                bt_cuda_gemm_args p =
                    product_of((bt_gemm_form)f, row_counts[r], layers[l], t);
                double x = compare(&p, forms[f]);
                sum += x;
                count++;
                least = x < least ? x : least;
            }
            bt_cuda_gemm_args p =
                product_of(BT_GEMM_TN, row_counts[r], layers[l], t);
            p.out_f32 = p.accumulate = true;
            compare(&p, "dW f32+");
        }
    printf("geometric mean of the ratios in bfloat16 %.3f, least %.3f\n",
           exp(sum / count), exp(least));
}

/* How much faster a choice is than cuBLASLt, in turns; 0: it cannot. */
static double ratio_of(const bt_cuda_gemm_args *p, const bt_gemm_choice *choice,
                       const peer *q)
{
    enum { TURNS = 5 };
    bauta_error err = { 0 };
    float mine[TURNS], theirs[TURNS];
    if (bt_cuda_gemm_by(choice, p, workspace, WORKSPACE, NULL, &err))
        return 0;
    for (int i = -1; i < TURNS; i++) {
        float a = one(p, choice, NULL), b = one(p, NULL, q);
        if (i >= 0) {
            mine[i] = a;
            theirs[i] = b;
        }
    }
    return (double)(median(theirs, TURNS) / median(mine, TURNS));
}

/* Every shape of tile: not spread and spread, with other lengths of a chunk
 * and groups of tiles; how much faster than cuBLASLt. */
static void tiles(uint16_t *const *t)
{
    static const int lengths[2][3] = { { 1024, 512, 1 << 20 },
                                       { 4096, 2048, 8192 } };
    static const int groups[] = { 8, 16 };
    for (size_t r = 0; r < BT_LEN(row_counts); r++)
        for (size_t l = 0; l < BT_LEN(layers); l++)
            for (int f = 0; f < 3; f++) {
                bt_cuda_gemm_args p =
                    product_of((bt_gemm_form)f, row_counts[r], layers[l], t);
                peer q;
                peer_init(&q, &p);
                printf("%s %zu x %zu x %zu: chosen %.3f\n", forms[f], p.m, p.n,
                       p.k, exp(compare(&p, NULL)));
                for (int c = 0; c < BT_GEMM_TILE_COUNT; c++) {
                    bt_gemm_choice choice = { .tile = (bt_gemm_tile)c };
                    printf("  %s", bt_gemm_tile_name(choice.tile));
                    for (size_t x = 0; x < 3; x++) {
                        choice.chunk = lengths[f == 2][x];
                        choice.head = 0;
                        printf(" | chunk %7d %.3f", choice.chunk,
                               ratio_of(&p, &choice, &q));
                        choice.head = -1;
                        printf(" %.3f", ratio_of(&p, &choice, &q));
                    }
                    choice.chunk = 0;
                    printf(" | groups");
                    for (size_t x = 0; x < BT_LEN(groups); x++) {
                        choice.group = groups[x];
                        printf(" %.3f", ratio_of(&p, &choice, &q));
                    }
                    printf("\n");
                    fflush(stdout);
                }
                peer_release(&q);
            }
}

/* Microseconds of one of the products of a graph, which go through several
 * matrices. */
static double graph_us(bt_cuda_gemm_args p, const bt_gemm_choice *choice,
                       const peer *q)
{
    size_t fit = ((size_t)300 << 20) / (p.n * p.k * 2);
    size_t matrices = fit < 4 ? 4 : fit, launches = fit < 16 ? 16 : fit;
    bauta_error err = { 0 };
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float ms[RUNS];
    const uint16_t *b = p.b;
    need(cudaStreamCreate(&stream), "stream");
    need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
         "capture");
    for (size_t i = 0; i < launches; i++) {
        p.b = b + i % matrices * p.n * p.k;
        if (q)
            peer_run(q, &p, stream);
        else if (choice)
            need(
                bt_cuda_gemm_by(choice, &p, workspace, WORKSPACE, stream, &err),
                err.message);
        else
            need(bt_cuda_gemm(&p, workspace, WORKSPACE, stream, &err),
                 err.message);
    }
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
    cudaStreamDestroy(stream);
    return (double)median(ms, RUNS) / (double)launches * 1e3;
}

static void small(uint16_t *const *t, size_t n, size_t k, bool spread)
{
    static const size_t rows[] = { 1, 8, 16, 32, 64 };
    double bytes = 2.0 * (double)(n * k);
    for (size_t r = 0; r < BT_LEN(rows); r++) {
        bt_cuda_gemm_args p = { .form = BT_GEMM_NT,
                                .m = rows[r],
                                .n = n,
                                .k = k,
                                .a = t[0],
                                .b = t[2],
                                .out = t[3],
                                .b_ready = true };
        peer q;
        peer_init(&q, &p);
        double a = graph_us(p, NULL, NULL), b = graph_us(p, NULL, &q);
        peer_release(&q);
        printf("%2zu rows of %zu x %zu: %.2f us, %.2f TB/s  cuBLASLt %.2f us, "
               "%.2f TB/s",
               rows[r], n, k, a, bytes / a * 1e-6, b, bytes / b * 1e-6);
        for (int blocks = 1; spread && blocks <= 8; blocks *= 2) {
            bt_gemm_choice c = { .small = true, .blocks = blocks };
            printf("  by %d %.2f", blocks, graph_us(p, &c, NULL));
        }
        printf("\n");
        fflush(stdout);
    }
}

/* What ends of a product cost, beside the plain one. */
static void ends(uint16_t *const *t)
{
    struct layer l = { 3072, 768 };
    bt_cuda_gemm_args p = product_of(BT_GEMM_NT, 65536, l, t);
    bt_cuda_gemm_args d =
        product_of(BT_GEMM_NN, 65536, (struct layer){ 768, 3072 }, t);
    bt_cuda_gemm_args with[7] = { p, p, p, p, p, d, d };
    static const char *const names[] = { "plain",           "bias",
                                         "bias, gelu",      "bias, gelu, pre",
                                         "residual",        "dx",
                                         "dx, gelu's slope" };
    for (int i = 1; i < 4; i++)
        with[i].bias = t[1];
    with[2].has_act = with[3].has_act = true;
    with[2].act = with[3].act = with[6].act = BT_ACT_GELU_TANH;
    with[3].pre = t[2];
    with[4].residual = t[2];
    with[6].slope = t[4] + (size_t)65536 * 3072;
    for (size_t i = 0; i < BT_LEN(names); i++) {
        float ms[RUNS];
        for (int x = 0; x < RUNS; x++)
            ms[x] = one(&with[i], NULL, NULL);
        printf("%-20s %zu x %zu x %zu %.4f ms\n", names[i], with[i].m,
               with[i].n, with[i].k, (double)median(ms, RUNS));
    }
}

int main(int argc, char **argv)
{
    static const char *const both[] = { "", "table", "small" };
    int device = 0;
    need(cudaGetDevice(&device) ||
             cudaDeviceGetAttribute(&multiprocessors,
                                    cudaDevAttrMultiProcessorCount, device),
         "no GPU");
    need(cublasLtCreate(&blas), "cuBLASLt");
    need(cudaEventCreate(&start) || cudaEventCreate(&stop), "events");
    need(cudaMalloc(&workspace, WORKSPACE) ||
             cudaMalloc(&blas_workspace, BLAS_WORKSPACE) ||
             cudaMemset(workspace, 0, BT_GEMM_ZEROS),
         "cudaMalloc");
    uint16_t *t[] = { random_tensor((size_t)65536 * 8192),
                      random_tensor((size_t)8192 * 8192),
                      random_tensor((size_t)65536 * 50304),
                      random_tensor((size_t)8192 * 8192 * 2),
                      random_tensor((size_t)65536 * 50304) };
    int count = argc > 1 ? argc : 3;
    for (int i = 1; i < count; i++) {
        const char *what = argc > 1 ? argv[i] : both[i];
        if (!strcmp(what, "table"))
            table(t);
        else if (!strcmp(what, "tiles"))
            tiles(t);
        else if (!strcmp(what, "ends"))
            ends(t);
        else if (!strcmp(what, "small") || !strcmp(what, "spread"))
            for (size_t x = 0; x < BT_LEN(weights); x++)
                small(t, weights[x].outputs, weights[x].inputs,
                      !strcmp(what, "spread"));
        else
            need(true, "what is that?");
    }
    return 0;
}
