/* SPDX-License-Identifier: Apache-2.0 */
/* dump_cuda.c - writes attention problems and the results of the GPU kernels,
 * for tools/check-attention-gpu.py: dump_cuda FOLDER.
 *
 * A line of JSON for each case describes its file, which holds in order: the
 * mask as (rows, keys) bytes; q, k, v, dout, out, dq, dk, dv as bfloat16
 * (tokens, heads, head_dim). */
#include "problem.h"

enum { TOKENS = 2048, HEADS = 4, KV_HEADS = 2 };

/* Rows see little or much, but none sees nothing: PyTorch does not support
 * empty rows. */
static bauta_mask *make_random(size_t n, size_t m)
{
    unsigned char *visible = malloc(n * m);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            visible[i * m + j] = i == j || below(100) < (i * 37) % 101;
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = bauta_mask_dense(&mask, n, m, visible, &err);
    free(visible);
    return got(status, mask, &err);
}

static const mask_kind dumped[] = {
    { .name = "all", .make = make_all },
    { .name = "causal", .make = make_causal },
    { .name = "window", .make = make_window },
    { .name = "sinks_or_window", .make = make_sinks },
    { .name = "prefix", .make = make_prefix },
    { .name = "documents_and_causal", .make = make_documents_causal },
    { .name = "random", .make = make_random },
};

enum { Q, K, V, DOUT, OUT, DQ, DK, DV, TENSORS };

static void run(const problem *p, uint16_t *const *x, float *lse)
{
    bauta_error err = { 0 };
    bt_cuda_plan *device_plan =
        plan_of(&p->shape, true, bt_cuda_dense_queries(p->shape.head_dim),
                p->mask, 0, p->n, 0);
    need(bt_attention_forward_bf16_cuda(device_plan, &p->shape, x[Q], x[K],
                                        x[V], x[OUT], lse, NULL, &err),
         &err);
    need(bt_attention_backward_bf16_cuda(device_plan, &p->shape, x[Q], x[K],
                                         x[V], x[OUT], lse, x[DOUT], x[DQ],
                                         x[DK], x[DV], NULL, &err),
         &err);
    need_cuda(cudaDeviceSynchronize(), p->name);
    bt_cuda_plan_free(device_plan);
}

static void write_mask(FILE *file, const bauta_mask *mask)
{
    unsigned char row[TOKENS];
    for (size_t i = 0; i < TOKENS; i++) {
        for (size_t j = 0; j < TOKENS; j++)
            row[j] = bauta_mask_visible(mask, i, j);
        fwrite(row, 1, TOKENS, file);
    }
}

static void dump(const char *folder, const mask_kind *k, size_t d)
{
    char path[512];
    problem p =
        problem_make(k->name, k->make(TOKENS, TOKENS), HEADS, KV_HEADS, d, 0);
    uint16_t *dout = random_bf16(p.out_size, 2.0f);
    const uint16_t *host[TENSORS] = {
        p.q, p.k, p.v, dout, dout, p.q, p.k, p.v
    };
    size_t size[TENSORS] = { p.q_size,   p.kv_size, p.kv_size, p.out_size,
                             p.out_size, p.q_size,  p.kv_size, p.kv_size };
    uint16_t *x[TENSORS];
    for (int i = 0; i < TENSORS; i++) // the last ones are overwritten
        x[i] = to_device(host[i], size[i] * 2);
    float *lse = NULL;
    need_cuda(cudaMalloc((void **)&lse, p.lse_size * 4), "cudaMalloc");
    run(&p, x, lse);

    snprintf(path, sizeof(path), "%s/%s_d%zu.bin", folder, k->name, d);
    FILE *file = fopen(path, "wb");
    if (!file) {
        printf("FAIL: cannot write %s\n", path);
        exit(1);
    }
    write_mask(file, p.mask);
    for (int i = 0; i < TENSORS; i++) {
        uint16_t *back = malloc(size[i] * 2);
        need_cuda(cudaMemcpy(back, x[i], size[i] * 2, cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
        fwrite(back, 2, size[i], file);
        free(back);
        cudaFree(x[i]);
    }
    fclose(file);
    printf("{\"name\":\"%s\",\"file\":\"%s\",\"tokens\":%d,\"heads\":%d,"
           "\"kv_heads\":%d,\"head_dim\":%zu}\n",
           k->name, path, TOKENS, HEADS, KV_HEADS, d);
    fflush(stdout);
    cudaFree(lse);
    free(dout);
    problem_free(&p);
}

int main(int argc, char **argv)
{
    static const size_t dims[] = { 64, 96, 128, 192, 256 };
    if (argc != 2) {
        printf("usage: dump_cuda FOLDER\n");
        return 2;
    }
    random_stream = test_random_from(20261115);
    for (size_t d = 0; d < BT_LEN(dims); d++)
        for (size_t x = 0; x < BT_LEN(dumped); x++)
            dump(argv[1], &dumped[x], dims[d]);
    return 0;
}
