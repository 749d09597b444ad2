/* SPDX-License-Identifier: Apache-2.0 */
/* attention_gpu.c - causal attention on an NVIDIA GPU, compared with the CPU.
 *
 * Both use the same mask. Without a usable GPU the program prints the reason
 * and exits with status 0. */
#include <bauta.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 200, DIM = 64, COUNT = TOKENS * DIM, BYTES = 4 * COUNT };

static bauta_error err;
static float q[COUNT], k[COUNT], v[COUNT], want[COUNT], got[COUNT];

static void check(bauta_status status)
{
    if (status) {
        fprintf(stderr, "attention_gpu: %s\n", err.message);
        exit(1);
    }
}

/* Copy a tensor to GPU memory. */
static void *upload(bauta_context *gpu, const float *from)
{
    void *to;
    check(bauta_gpu_alloc(gpu, &to, BYTES, &err));
    check(bauta_gpu_upload(gpu, to, from, BYTES, &err));
    return to;
}

int main(void)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT; // one head of 64
    bauta_context *cpu, *gpu;
    bauta_mask *mask;
    bauta_plan *plan;
    bauta_gpu_plan *gpu_plan;
    float worst = 0.0f;
    options.device = "cuda";
    if (bauta_context_create(&gpu, &options, &err)) {
        printf("No GPU: %s.\n", err.message);
        return 0;
    }
    for (int i = 0; i < COUNT; i++) {
        q[i] = sinf((float)i);
        k[i] = cosf(3.0f * (float)i);
        v[i] = sinf(0.1f * (float)i);
    }
    check(bauta_mask_causal(&mask, TOKENS, TOKENS, &err));
    check(bauta_context_create(&cpu, NULL, &err));
    check(bauta_plan_create(&plan, mask, 0, TOKENS, &err));
    check(
        bauta_attention_forward(cpu, plan, &shape, q, k, v, want, NULL, &err));

    void *x[] = { upload(gpu, q), upload(gpu, k), upload(gpu, v),
                  upload(gpu, got) };
    check(bauta_gpu_plan_create(&gpu_plan, gpu, mask, 0, TOKENS, &shape,
                                BAUTA_FLOAT32, false, &err));
    check(bauta_gpu_attention_forward(gpu, gpu_plan, &shape, x[0], x[1], x[2],
                                      x[3], NULL, &err));
    check(bauta_gpu_download(gpu, got, x[3], BYTES, &err));

    for (int i = 0; i < COUNT; i++)
        worst = fmaxf(worst, fabsf(got[i] - want[i]));
    printf("%d tokens on %s: largest difference from the CPU %.1e.\n", TOKENS,
           bauta_context_device(gpu), (double)worst);
    for (int i = 0; i < 4; i++)
        bauta_gpu_free(gpu, x[i]);
    bauta_gpu_plan_free(gpu_plan);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    bauta_context_free(cpu);
    bauta_context_free(gpu);
    return worst < 1e-5f ? 0 : 1;
}
