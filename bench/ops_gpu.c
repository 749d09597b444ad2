/* SPDX-License-Identifier: Apache-2.0 */
/* ops_gpu.c - how fast the GPU's operations other than products and attention
 * are, in the shapes of GPT-2 124M: 65,536 rows of 768 or 3,072 columns, a
 * vocabulary of 50,257, 124 million parameters.
 *
 *     ops_gpu [WHAT...]      names that begin with one of these; default: all
 *
 * Each line has the median time of single calls between events, the bytes that
 * the operation has to move (each input read once, each output written once)
 * over that time, and its share of what a copy by cudaMemcpyAsync moves. */
#include "backend/cuda/ops.h"
#include "base/philox.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 65536, WIDTH = 768, INNER = 3072, VOCAB = 50257, RUNS = 15 };
enum { LOGIT_ROWS = 4096, LOGIT_STRIDE = 50304, HEADS = 12, DIM = 64 };

static void need(bool failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "ops_gpu: %s\n", what);
        exit(1);
    }
}

static bauta_error error;
static cudaEvent_t start, stop;
static double copy_rate;
static char **wanted;
static int wanted_count;

static void call(bauta_status status)
{
    need(status != BAUTA_OK, error.message);
}

/* ---- memory: random numbers, over and over ------------------------------- */

static void *alloc(size_t bytes)
{
    static unsigned char *block;
    size_t length = 16 << 20;
    void *memory = NULL;
    if (!block) {
        block = malloc(length);
        need(!block, "out of memory");
        for (size_t i = 0; i < length; i += 16) {
            uint32_t word[4], counter[4] = { (uint32_t)i }, key[2] = { 1 };
            bt_philox(word, counter, key);
            for (int x = 0; x < 4; x++) // about 1, as float32 and bfloat16
                word[x] = (word[x] & 0x807f807f) | 0x3f003f00;
            memcpy(block + i, word, 16);
        }
    }
    need(cudaMalloc(&memory, bytes), "cudaMalloc");
    for (size_t i = 0; i < bytes; i += length)
        need(cudaMemcpy((char *)memory + i, block,
                        bytes - i < length ? bytes - i : length,
                        cudaMemcpyHostToDevice),
             "cudaMemcpy");
    return memory;
}

/* Zipf-like ids, as words have them. */
static uint32_t *alloc_ids(size_t count, uint32_t limit)
{
    uint32_t *ids = malloc(count * 4);
    void *memory = NULL;
    need(!ids || cudaMalloc(&memory, count * 4), "out of memory");
    for (size_t i = 0; i < count; i++) {
        uint32_t word[4], counter[4] = { (uint32_t)i }, key[2] = { 2 };
        bt_philox(word, counter, key);
        double u = (double)word[0] * 0x1p-32;
        ids[i] = (uint32_t)(exp(u * log((double)limit)) - 1);
    }
    need(cudaMemcpy(memory, ids, count * 4, cudaMemcpyHostToDevice),
         "cudaMemcpy");
    free(ids);
    return memory;
}

/* ---- timing -------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static bool asked(const char *name)
{
    bool any = wanted_count == 0;
    for (int i = 0; i < wanted_count; i++)
        any |= !strncmp(name, wanted[i], strlen(wanted[i]));
    return any;
}

/* Runs STATEMENT, with a warm-up, and prints a line for it. */
#define TIME(name, bytes, statement)                            \
    do {                                                        \
        float times[RUNS];                                      \
        if (!asked(name))                                       \
            break;                                              \
        statement;                                              \
        for (int run_ = 0; run_ < RUNS; run_++) {               \
            cudaEventRecord(start, NULL);                       \
            statement;                                          \
            cudaEventRecord(stop, NULL);                        \
            need(cudaEventSynchronize(stop),                    \
                 cudaGetErrorString(cudaPeekAtLastError()));    \
            cudaEventElapsedTime(&times[run_], start, stop);    \
        }                                                       \
        qsort(times, RUNS, sizeof(float), by_time);             \
        report(name, (double)(bytes), (double)times[RUNS / 2]); \
    } while (0)

static void report(const char *name, double bytes, double ms)
{
    double rate = bytes / ms * 1e-9;
    if (copy_rate == 0)
        copy_rate = rate;
    printf("%-34s %9.1f us %8.2f TB/s %4.0f %%\n", name, ms * 1e3, rate,
           100 * rate / copy_rate);
    fflush(stdout);
}

/* ---- the operations ------------------------------------------------------ */

static void elements(void)
{
    size_t n = (size_t)ROWS * INNER;
    void *a = alloc(n * 4), *b = alloc(n * 2), *c = alloc(n * 2);
    void *d = alloc(n * 2), *e = alloc(n * 4);
    bt_cuda_in x = { a, 0 }, y = { b, 0 }, z = { c, 0 };
    bt_cuda_out to = { d, 0 }, to2 = { e, 0 };
    TIME(
        "add", n * 6,
        call(bt_cuda_add(ROWS, INNER, BAUTA_BFLOAT16, to, x, y, NULL, &error)));
    TIME("cast f32 to bf16", n * 6,
         call(bt_cuda_copy(ROWS, INNER, to, BAUTA_BFLOAT16, x, BAUTA_FLOAT32,
                           NULL, &error)));
    TIME("cast bf16 to f32", n * 6,
         call(bt_cuda_copy(ROWS, INNER, to2, BAUTA_FLOAT32, y, BAUTA_BFLOAT16,
                           NULL, &error)));
    TIME("accumulate bf16 into f32", n * 10,
         call(bt_cuda_scale(ROWS, INNER, to2, BAUTA_FLOAT32, y, BAUTA_BFLOAT16,
                            1.0f, true, NULL, &error)));
    TIME("fill", n * 2,
         call(bt_cuda_fill(ROWS, INNER, BAUTA_BFLOAT16, to, 0.5f, NULL,
                           &error)));
    static const char *const names[] = { "relu", "gelu erf", "gelu tanh",
                                         "silu" };
    for (int act = 0; act < 4; act++) {
        char name[64];
        bt_cuda_act_args f = { (bt_act)act, BAUTA_BFLOAT16, ROWS, INNER,
                               x,           { 0 },          to };
        bt_cuda_act_backward_args g = { .act = (bt_act)act,
                                        .dtype = BAUTA_BFLOAT16,
                                        .rows = ROWS,
                                        .columns = INNER,
                                        .x = x,
                                        .dy = y,
                                        .dx = to };
        snprintf(name, sizeof(name), "act %s", names[act]);
        TIME(name, n * 4, call(bt_cuda_act(&f, NULL, &error)));
        snprintf(name, sizeof(name), "act %s backward", names[act]);
        TIME(name, n * 6, call(bt_cuda_act_backward(&g, NULL, &error)));
        f.by = y;
        snprintf(name, sizeof(name), "act %s gated", names[act]);
        TIME(name, n * 6, call(bt_cuda_act(&f, NULL, &error)));
        g.by = z;
        g.dby = to2;
        snprintf(name, sizeof(name), "act %s gated backward", names[act]);
        TIME(name, n * 10, call(bt_cuda_act_backward(&g, NULL, &error)));
        f.dtype = BAUTA_FLOAT32;
        f.by = (bt_cuda_in){ 0 };
        f.rows /= 2;
        f.y = to2;
        snprintf(name, sizeof(name), "act %s f32", names[act]);
        TIME(name, n * 4, call(bt_cuda_act(&f, NULL, &error)));
    }
    float *sums = alloc(INNER * 4);
    void *workspace = alloc(bt_cuda_sum_rows_workspace(ROWS, INNER));
    TIME("sum over rows", n * 2,
         call(bt_cuda_sum_rows(ROWS, INNER, BAUTA_BFLOAT16, sums, x, true,
                               workspace, NULL, &error)));
    uint64_t *tokens = alloc(ROWS * 8);
    bt_cuda_dropout_args drop = { .dtype = BAUTA_BFLOAT16,
                                  .rows = ROWS,
                                  .columns = WIDTH,
                                  .seed = 1,
                                  .site = 2,
                                  .below = 1u << 29,
                                  .scale = 1.125f,
                                  .tokens = tokens,
                                  .x = { a, 0 },
                                  .y = { d, 0 } };
    n = (size_t)ROWS * WIDTH;
    TIME("dropout", n * 4, call(bt_cuda_dropout(&drop, NULL, &error)));
    drop.residual = y;
    TIME("dropout and residual", n * 6,
         call(bt_cuda_dropout(&drop, NULL, &error)));
    void *all[] = { a, b, c, d, e, sums, workspace, tokens };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        cudaFree(all[i]);
}

static void rows(void)
{
    size_t n = (size_t)ROWS * WIDTH;
    void *a = alloc(n * 4), *b = alloc(n * 4), *c = alloc(n * 4);
    void *d = alloc(n * 4), *gain = alloc(WIDTH * 4), *bias = alloc(WIDTH * 4);
    float *mean = alloc(ROWS * HEADS * 4), *scale = alloc(ROWS * HEADS * 4);
    float *dgain = alloc(WIDTH * 4), *dbias = alloc(WIDTH * 4);
    void *workspace = alloc(bt_cuda_norm_workspace(ROWS, HEADS, DIM) +
                            bt_cuda_norm_workspace(ROWS, 1, WIDTH));
    bt_cuda_norm_args f = { .kind = BT_NORM_LAYER,
                            .dtype = BAUTA_BFLOAT16,
                            .gain_dtype = BAUTA_FLOAT32,
                            .rows = ROWS,
                            .heads = 1,
                            .width = WIDTH,
                            .epsilon = 1e-5f,
                            .x = { a, 0 },
                            .y = { b, 0 },
                            .gain = gain,
                            .bias = bias,
                            .mean = mean,
                            .scale = scale };
    TIME("layer norm", n * 4, call(bt_cuda_norm(&f, NULL, &error)));
    f.residual = (bt_cuda_in){ c, 0 };
    f.sum = (bt_cuda_out){ d, 0 };
    TIME("layer norm and residual", n * 8,
         call(bt_cuda_norm(&f, NULL, &error)));
    bt_cuda_norm_backward_args g = { .kind = BT_NORM_LAYER,
                                     .dtype = BAUTA_BFLOAT16,
                                     .gain_dtype = BAUTA_FLOAT32,
                                     .rows = ROWS,
                                     .heads = 1,
                                     .width = WIDTH,
                                     .x = { a, 0 },
                                     .dy = { b, 0 },
                                     .dx = { d, 0 },
                                     .gain = gain,
                                     .mean = mean,
                                     .scale = scale,
                                     .dgain = dgain,
                                     .dbias = dbias,
                                     .add_dgain = true,
                                     .add_dbias = true };
    TIME("layer norm backward", n * 6,
         call(bt_cuda_norm_backward(&g, workspace, NULL, &error)));
    g.residual = (bt_cuda_in){ c, 0 };
    TIME("layer norm backward and residual", n * 8,
         call(bt_cuda_norm_backward(&g, workspace, NULL, &error)));
    f.kind = g.kind = BT_NORM_RMS;
    f.residual = g.residual = (bt_cuda_in){ 0 };
    f.heads = g.heads = HEADS;
    f.width = g.width = DIM;
    f.bias = NULL;
    g.dbias = NULL;
    TIME("RMS norm of heads", n * 4, call(bt_cuda_norm(&f, NULL, &error)));
    TIME("RMS norm of heads backward", n * 6,
         call(bt_cuda_norm_backward(&g, workspace, NULL, &error)));
    f.heads = g.heads = 1;
    f.width = g.width = 4096;
    f.rows = g.rows = n / 4096;
    TIME("RMS norm of 4,096", n * 4, call(bt_cuda_norm(&f, NULL, &error)));
    TIME("RMS norm of 4,096 backward", n * 6,
         call(bt_cuda_norm_backward(&g, workspace, NULL, &error)));

    uint32_t *ids = alloc_ids(ROWS, VOCAB), *positions = alloc_ids(ROWS, 1024);
    float *frequencies = alloc(DIM * 2);
    bt_cuda_rotary_args r = { .dtype = BAUTA_BFLOAT16,
                              .rows = ROWS,
                              .heads = HEADS,
                              .dim = DIM,
                              .positions = positions,
                              .frequencies = frequencies,
                              .x = { a, 0 },
                              .y = { b, 0 } };
    TIME("rotary", n * 4, call(bt_cuda_rotary(&r, NULL, &error)));
    void *table = alloc((size_t)VOCAB * WIDTH * 4);
    bt_cuda_embedding_args e = { BAUTA_BFLOAT16, ROWS, WIDTH,   { table, 0 },
                                 { ids, 1 },     1.0f, { a, 0 } };
    TIME("embedding", n * 4, call(bt_cuda_embedding(&e, NULL, &error)));
    void *sorting = alloc(bt_cuda_embedding_workspace(ROWS));
    bt_cuda_embedding_backward_args h = { .dtype = BAUTA_BFLOAT16,
                                          .rows = ROWS,
                                          .columns = WIDTH,
                                          .table_rows = VOCAB,
                                          .dy = { a, 0 },
                                          .ids = ids,
                                          .scale = 1.0f,
                                          .padding_id = UINT32_MAX,
                                          .dtable = table };
    TIME("embedding backward", n * 2,
         call(bt_cuda_embedding_backward(&h, sorting, NULL, &error)));
    void *all[] = { a,         b,           c,     d,      gain,      bias,
                    mean,      scale,       dgain, dbias,  workspace, ids,
                    positions, frequencies, table, sorting };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        cudaFree(all[i]);
}

static void loss(void)
{
    size_t n = (size_t)LOGIT_ROWS * VOCAB;
    void *logits = alloc((size_t)LOGIT_ROWS * LOGIT_STRIDE * 4);
    void *dlogits = alloc((size_t)LOGIT_ROWS * LOGIT_STRIDE * 4);
    uint32_t *labels = alloc_ids(LOGIT_ROWS, VOCAB);
    double *losses = alloc(LOGIT_ROWS * 8);
    bt_cuda_cross_entropy_args a = { .rows = LOGIT_ROWS,
                                     .vocab = VOCAB,
                                     .dtype = BAUTA_BFLOAT16,
                                     .dlogits_dtype = BAUTA_BFLOAT16,
                                     .logits = { logits, LOGIT_STRIDE },
                                     .labels = labels,
                                     .share = 1.0 / LOGIT_ROWS,
                                     .losses = losses };
    TIME("cross-entropy bf16, loss only", n * 2,
         call(bt_cuda_cross_entropy(&a, NULL, &error)));
    a.dlogits = (bt_cuda_out){ dlogits, LOGIT_STRIDE };
    TIME("cross-entropy bf16", n * 4,
         call(bt_cuda_cross_entropy(&a, NULL, &error)));
    a.smoothing = 0.1;
    TIME("cross-entropy bf16, smoothing", n * 4,
         call(bt_cuda_cross_entropy(&a, NULL, &error)));
    a.smoothing = 0;
    a.dtype = BAUTA_FLOAT32;
    TIME("cross-entropy f32 to bf16", n * 6,
         call(bt_cuda_cross_entropy(&a, NULL, &error)));
    a.dlogits_dtype = BAUTA_FLOAT32;
    TIME("cross-entropy f32", n * 8,
         call(bt_cuda_cross_entropy(&a, NULL, &error)));
    double *sum = alloc(8);
    TIME("sum of losses", LOGIT_ROWS * 8,
         call(bt_cuda_sum_f64(sum, losses, LOGIT_ROWS, NULL, &error)));
    cudaFree(logits);
    cudaFree(dlogits);
    cudaFree(labels);
    cudaFree(losses);
    cudaFree(sum);
}

static void optimizer(void)
{
    // Of GPT-2 124M: two embeddings and twelve layers.
    size_t counts[2 + 12 * 4] = { (size_t)VOCAB * WIDTH, 1024 * WIDTH };
    size_t slots = 2, all = 0;
    static const size_t of_layer[] = { WIDTH * WIDTH * 3, WIDTH * WIDTH,
                                       WIDTH * INNER, WIDTH * INNER };
    for (int i = 0; i < 12; i++)
        for (int x = 0; x < 4; x++)
            counts[slots++] = of_layer[x];
    bt_cuda_slot *list = calloc(slots, sizeof(*list));
    size_t pieces = bt_cuda_pieces(NULL, counts, slots);
    bt_cuda_piece *cut = calloc(pieces, sizeof(*cut));
    need(!list || !cut, "out of memory");
    bt_cuda_pieces(cut, counts, slots);
    for (size_t i = 0; i < slots; i++)
        all += counts[i];
    float *arrays = alloc(all * 20);
    size_t at = 0;
    for (size_t i = 0; i < slots; at += counts[i++])
        list[i] = (bt_cuda_slot){ arrays + at,
                                  arrays + all + at,
                                  arrays + 2 * all + at,
                                  arrays + 3 * all + at,
                                  (uint16_t *)(arrays + 4 * all) + at,
                                  counts[i],
                                  true };
    // Second moments are not negative.
    call(bt_cuda_fill(1, all, BAUTA_FLOAT32,
                      (bt_cuda_out){ arrays + 2 * all, 0 }, 1.0f, NULL,
                      &error));
    void *slots_device = alloc(slots * sizeof(*list));
    void *pieces_device = alloc(pieces * sizeof(*cut));
    bt_cuda_adamw_state *state = alloc(sizeof(*state));
    double *squares = alloc(pieces * 8);
    need(cudaMemcpy(slots_device, list, slots * sizeof(*list),
                    cudaMemcpyHostToDevice) ||
             cudaMemcpy(pieces_device, cut, pieces * sizeof(*cut),
                        cudaMemcpyHostToDevice) ||
             cudaMemset(state, 0, sizeof(*state)),
         "cudaMemcpy");
    bt_cuda_adamw_options o = { 0.9, 0.95, 1e-8, 0.1, 1.0, 1e-4 };
    TIME("AdamW with the norm", all * 34,
         call(bt_cuda_adamw(slots_device, pieces_device, pieces, &o, state,
                            squares, NULL, &error)));
    TIME("moving average", all * 12,
         call(bt_cuda_ema(arrays, arrays + all, all, 0.99f, 0.01f, NULL,
                          &error)));
    cudaFree(arrays);
    free(list);
    free(cut);
}

static void sampling(void)
{
    static const size_t batches[] = { 1, 32, 256 };
    enum { MOST = 256 };
    void *logits = alloc((size_t)MOST * LOGIT_STRIDE * 4);
    float *work = alloc((size_t)MOST * LOGIT_STRIDE * 4);
    void *workspace = alloc(bt_cuda_row_stats_workspace(MOST, VOCAB) +
                            bt_cuda_beam_workspace(MOST, 64));
    bt_cuda_sampled *to = alloc(MOST * sizeof(*to));
    bt_cuda_sample_row *how = alloc(MOST * sizeof(*how)), host[MOST];
    bt_cuda_in x = { logits, LOGIT_STRIDE };
    for (int i = 0; i < MOST; i++)
        host[i] = (bt_cuda_sample_row){ .processors.repetition_penalty = 1.0f,
                                        .do_sample = true,
                                        .temperature = 0.8f,
                                        .top_p = 1.0f,
                                        .seed = (uint64_t)i };
    for (size_t b = 0; b < 3; b++) {
        size_t n = batches[b];
        char name[64];
        snprintf(name, sizeof(name), "greedy, %zu rows", n);
        TIME(name, n * VOCAB * 4,
             call(bt_cuda_sample_greedy(n, VOCAB, BAUTA_FLOAT32, x, to, NULL,
                                        workspace, NULL, &error)));
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < MOST; i++) {
                host[i].top_k = k ? 50 : 0;
                host[i].top_p = k == 2 ? 0.9f : 1.0f;
            }
            need(cudaMemcpy(how, host, sizeof(host), cudaMemcpyHostToDevice),
                 "cudaMemcpy");
            snprintf(name, sizeof(name), "sample%s%s, %zu rows",
                     k ? " top-k 50" : "", k == 2 ? " top-p 0.9" : "", n);
            TIME(name, n * VOCAB * 4,
                 call(bt_cuda_sample(n, VOCAB, BAUTA_FLOAT32, x, how, to, NULL,
                                     work, NULL, &error)));
        }
    }
    bt_cuda_beam_row beams[MOST] = { 0 };
    bt_cuda_beam_group groups[MOST / 4];
    for (int i = 0; i < MOST; i++)
        beams[i].processors.repetition_penalty = 1.0f;
    for (uint32_t i = 0; i < MOST / 4; i++)
        groups[i] = (bt_cuda_beam_group){ i * 4, 4 };
    bt_cuda_beam_row *beams_device = alloc(sizeof(beams));
    bt_cuda_beam_group *groups_device = alloc(sizeof(groups));
    need(cudaMemcpy(beams_device, beams, sizeof(beams),
                    cudaMemcpyHostToDevice) ||
             cudaMemcpy(groups_device, groups, sizeof(groups),
                        cudaMemcpyHostToDevice),
         "cudaMemcpy");
    bt_cuda_beam_args a = { .rows = 4,
                            .vocab = VOCAB,
                            .groups = 1,
                            .want = 8,
                            .most_beams = 4,
                            .dtype = BAUTA_FLOAT32,
                            .logits = x,
                            .how = beams_device,
                            .group = groups_device,
                            .choices = alloc(MOST * 8 * 16),
                            .counts = alloc(MOST * 4),
                            .status = alloc(MOST * 4),
                            .work = work,
                            .workspace = workspace };
    TIME("4 beams", a.rows * VOCAB * 4, call(bt_cuda_beam(&a, NULL, &error)));
    a.rows = MOST;
    a.groups = MOST / 4;
    TIME("64 x 4 beams", a.rows * VOCAB * 4,
         call(bt_cuda_beam(&a, NULL, &error)));
}

/* What a layer of decoding does for few rows. */
static void decoding(void)
{
    size_t n = (size_t)32 * 3 * WIDTH;
    void *qkv = alloc(n * 2), *q = alloc(n * 2);
    void *k = alloc((size_t)64 * HEADS * 64 * DIM * 2);
    void *v = alloc((size_t)64 * HEADS * 64 * DIM * 2);
    uint32_t *positions = alloc_ids(32, 1024);
    bt_cuda_kv_place places[32], *on = alloc(sizeof(places));
    for (uint32_t i = 0; i < 32; i++)
        places[i] = (bt_cuda_kv_place){ i, i };
    need(cudaMemcpy(on, places, sizeof(places), cudaMemcpyHostToDevice),
         "cudaMemcpy");
    bt_cuda_kv_write_args a = { .dtype = BAUTA_BFLOAT16,
                                .rows = 32,
                                .heads = HEADS,
                                .kv_heads = HEADS,
                                .dim = DIM,
                                .positions = positions,
                                .frequencies = alloc(DIM * 2),
                                .q = { qkv, 3 * WIDTH },
                                .k = { (uint16_t *)qkv + WIDTH, 3 * WIDTH },
                                .v = { (uint16_t *)qkv + 2 * WIDTH, 3 * WIDTH },
                                .q_out = { q, WIDTH },
                                .pages = { k, v, HEADS * 64 * DIM, 64 * DIM,
                                           DIM },
                                .places = on };
    TIME("rotary and KV write, 32 rows", n * 4,
         call(bt_cuda_kv_write(&a, NULL, &error)));
    a.rows = 1;
    TIME("rotary and KV write, 1 row", n * 4 / 32,
         call(bt_cuda_kv_write(&a, NULL, &error)));
}

int main(int argc, char **argv)
{
    wanted = argv + 1;
    need(cudaEventCreate(&start) || cudaEventCreate(&stop), "no GPU");
    size_t bytes = (size_t)ROWS * INNER * 2;
    void *a = alloc(bytes), *b = alloc(bytes);
    wanted_count = 0;
    TIME("cudaMemcpyAsync of 403 MB", 2 * bytes,
         cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, NULL));
    // A call costs a few microseconds, which count for 65,536 x 768.
    TIME("cudaMemcpyAsync of 101 MB", bytes / 2,
         cudaMemcpyAsync(b, a, bytes / 4, cudaMemcpyDeviceToDevice, NULL));
    wanted_count = argc - 1;
    cudaFree(a);
    cudaFree(b);
    elements();
    rows();
    loss();
    optimizer();
    sampling();
    decoding();
    return 0;
}
