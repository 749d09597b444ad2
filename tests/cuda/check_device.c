/* SPDX-License-Identifier: Apache-2.0 */
/* check_device.c - attention on a GPU through bauta.h alone, for a program
 * without CUDA headers, in float32 and in bfloat16.
 *
 * Forward and backward are compared with float64, decoding over pages with the
 * forward pass of the same rows, softcaps and biases with the CPU. Hidden keys
 * are NaN from the start. Each call is made twice, through two plans and in
 * memory with other contents, the second time on a stream of the caller's, and
 * gives the same bits. */
#include "allocation_faults.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* CUDA's own stream for each thread, by the number that its header gives it. */
#define PER_THREAD ((void *)2)

enum { Q, K, V, DOUT, OUT, LSE, DQ, DK, DV, TENSORS };

static const char *const names[] = { "q",   "k",  "v",  "dout", "out",
                                     "lse", "dq", "dk", "dv" };
static bauta_context *gpu;
static bauta_error err;
static size_t checks, failures;

static void need(bauta_status status)
{
    if (status) {
        printf("FAIL: %s\n", err.message);
        exit(1);
    }
}

static void check(bool good, const char *name, const char *what)
{
    checks++;
    if (good)
        return;
    failures++;
    printf("FAIL: %s: %s\n", name, what);
}

/* ---- numbers ----------------------------------------------------------- */

/* From -1 to 1; the same from run to run. */
static float next_random(void)
{
    static uint64_t state = 20261115;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) * 0x1p-23f - 1.0f;
}

/* bfloat16 by truncation: every value of a problem is one. */
static uint16_t cut(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)(bits >> 16);
}

static float widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* ---- a problem --------------------------------------------------------- */

typedef struct problem {
    const char *name;
    bauta_mask *mask;
    bauta_attention_shape shape;
    bauta_dtype type;
    size_t n, m, kv;
    size_t size[TENSORS];  /* elements */
    float *x[TENSORS];     /* inputs and, once it ran, results */
    double *want[TENSORS]; /* float64 */
    double *mass[TENSORS]; /* of the magnitudes of its terms */
} problem;

static size_t element(const problem *p, int which)
{
    return p->type == BAUTA_BFLOAT16 && which != LSE ? 2 : 4;
}

static bool seen(const problem *p, size_t key)
{
    for (size_t i = 0; i < p->n; i++)
        if (bauta_mask_visible(p->mask, i, key))
            return true;
    return false;
}

static problem problem_make(const char *name, const char *mask, size_t n,
                            size_t m, size_t heads, size_t kv, size_t dim,
                            bauta_dtype type)
{
    problem p = { .name = name,
                  .shape = BAUTA_ATTENTION_SHAPE_INIT,
                  .type = type,
                  .n = n,
                  .m = m,
                  .kv = kv };
    need(bauta_mask_parse(&p.mask, mask, n, m, &err));
    p.shape.heads = heads;
    p.shape.kv_heads = kv;
    p.shape.head_dim = dim;
    for (int i = 0; i < TENSORS; i++) {
        bool keys = i == K || i == V || i == DK || i == DV;
        p.size[i] = keys ? m * kv * dim : n * heads * (i == LSE ? 1 : dim);
        p.x[i] = malloc(p.size[i] * sizeof(float));
        p.want[i] = calloc(p.size[i], sizeof(double));
        p.mass[i] = calloc(p.size[i], sizeof(double));
        for (size_t j = 0; j < p.size[i]; j++)
            p.x[i][j] = widen(cut(2.0f * next_random()));
    }
    for (size_t j = 0; j < m; j++)
        for (size_t c = 0; c < kv * dim && !seen(&p, j); c++)
            p.x[K][j * kv * dim + c] = p.x[V][j * kv * dim + c] = NAN;
    return p;
}

static void problem_free(problem *p)
{
    bauta_mask_free(p->mask);
    for (int i = 0; i < TENSORS; i++) {
        free(p->x[i]);
        free(p->want[i]);
        free(p->mass[i]);
    }
}

/* ---- the GPU's memory -------------------------------------------------- */

static void *raw_put(const void *from, size_t bytes)
{
    void *memory;
    need(bauta_gpu_alloc(gpu, &memory, bytes, &err));
    need(bauta_gpu_upload(gpu, memory, from, bytes, &err));
    return memory;
}

/* `count` floats as elements of `bytes`. */
static void *put(const float *from, size_t count, size_t bytes)
{
    uint16_t *small = malloc(count * 2 + 1);
    for (size_t i = 0; i < count; i++)
        small[i] = cut(from[i]);
    void *memory =
        raw_put(bytes == 2 ? (const void *)small : from, count * bytes);
    free(small);
    return memory;
}

static void get(float *to, const void *from, size_t count, size_t bytes)
{
    uint16_t *small = malloc(count * 2 + 1);
    need(bauta_gpu_download(gpu, bytes == 2 ? (void *)small : to, from,
                            count * bytes, &err));
    for (size_t i = 0; i < count && bytes == 2; i++)
        to[i] = widen(small[i]);
    free(small);
}

/* ---- running ----------------------------------------------------------- */

/* Forward and backward; results go to p->x. */
static void run(problem *p)
{
    bauta_gpu_plan *plan;
    void *x[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        x[i] = put(p->x[i], p->size[i], element(p, i));
    need(bauta_gpu_plan_create(&plan, gpu, p->mask, 0, p->n, &p->shape, p->type,
                               true, &err));
    need(bauta_gpu_attention_forward(gpu, plan, &p->shape, x[Q], x[K], x[V],
                                     x[OUT], x[LSE], &err));
    need(bauta_gpu_attention_backward(gpu, plan, &p->shape, x[Q], x[K], x[V],
                                      x[OUT], x[LSE], x[DOUT], x[DQ], x[DK],
                                      x[DV], &err));
    need(bauta_gpu_synchronize(gpu, &err));
    for (int i = OUT; i < TENSORS; i++)
        get(p->x[i], x[i], p->size[i], element(p, i));
    for (int i = 0; i < TENSORS; i++)
        bauta_gpu_free(gpu, x[i]);
    bauta_gpu_plan_free(plan);
}

/* ---- float64 ----------------------------------------------------------- */

static double dot(const float *a, const float *b, size_t d, double *mass)
{
    double sum = 0.0;
    *mass = 0.0;
    for (size_t i = 0; i < d; i++) {
        sum += (double)a[i] * (double)b[i];
        *mass += fabs((double)a[i] * (double)b[i]);
    }
    return sum;
}

static void add(problem *p, int which, size_t at, double weight, double mass,
                const float *row)
{
    for (size_t c = 0; c < p->shape.head_dim; c++) {
        p->want[which][at + c] += weight * (double)row[c];
        p->mass[which][at + c] += mass * fabs((double)row[c]);
    }
}

static void reference_row(problem *p, size_t i, size_t h)
{
    size_t d = p->shape.head_dim, heads = p->shape.heads, spans;
    size_t at = (i * heads + h) * d, kv = h / (heads / p->kv);
    const bauta_span *span = bauta_mask_row(p->mask, i, &spans);
    const float *q = p->x[Q] + at, *dout = p->x[DOUT] + at;
    double scale = 1.0 / sqrt((double)d), sum = 0.0, delta = 0.0, size;
    double delta_mass = 0.0;
    for (int pass = 0; pass < 3; pass++)
        for (size_t s = 0; s < spans; s++)
            for (size_t j = span[s].lo; j < span[s].hi; j++) {
                size_t key = (j * p->kv + kv) * d;
                double w = exp(dot(q, p->x[K] + key, d, &size) * scale);
                if (pass == 0) {
                    sum += w;
                    continue;
                }
                w /= sum;
                double dw = dot(dout, p->x[V] + key, d, &size);
                if (pass == 1) {
                    delta += w * dw;
                    delta_mass += w * size;
                    add(p, OUT, at, w, w, p->x[V] + key);
                    add(p, DV, key, w, w, dout);
                    continue;
                }
                double ds = w * (dw - delta) * scale;
                double ds_mass = w * (size + delta_mass) * scale;
                add(p, DQ, at, ds, ds_mass, p->x[K] + key);
                add(p, DK, key, ds, ds_mass, q);
            }
    p->want[LSE][i * heads + h] = spans ? log(sum) : -INFINITY;
    p->mass[LSE][i * heads + h] = spans ? fabs(log(sum)) + 1.0 : 0.0;
}

/* Weights and gradients of scores are rounded once to bfloat16 for the products
 * with them, and so are the results (2^-8 each); scores of magnitude below 64
 * are sums of products in float32, which tensor cores cut, and so weights are
 * off by 2^-12. In float32 some hundred roundings add up at worst. What sees
 * nothing is exact. */
static void check_against_float64(problem *p)
{
    double bound = p->type == BAUTA_BFLOAT16 ? 0x1p-6 : 0x1p-15;
    for (size_t i = 0; i < p->n; i++)
        for (size_t h = 0; h < p->shape.heads; h++)
            reference_row(p, i, h);
    for (int i = OUT; i < TENSORS; i++) {
        bool good = true;
        for (size_t j = 0; j < p->size[i]; j++) {
            double got = (double)p->x[i][j], want = p->want[i][j];
            good &= got == want ||
                    fabs(got - want) <= bound * p->mass[i][j] + 0x1p-100;
        }
        check(good, p->name, names[i]);
    }
}

static void check_problem(const char *name, const char *mask, size_t n,
                          size_t m, size_t heads, size_t kv, size_t dim,
                          bauta_dtype type)
{
    float *first[TENSORS];
    problem p = problem_make(name, mask, n, m, heads, kv, dim, type);
    run(&p);
    check_against_float64(&p);
    for (int i = OUT; i < TENSORS; i++) {
        first[i] = p.x[i];
        p.x[i] = calloc(p.size[i], sizeof(float));
    }
    need(bauta_gpu_stream_set(gpu, PER_THREAD, &err));
    run(&p);
    need(bauta_gpu_stream_set(gpu, NULL, &err));
    for (int i = OUT; i < TENSORS; i++) {
        check(!memcmp(first[i], p.x[i], p.size[i] * sizeof(float)), name,
              "other bits when run again");
        free(first[i]);
    }
    problem_free(&p);
}

/* ---- decoding ---------------------------------------------------------- */

/* Keys in pages of 64, the last page first, all that is left being NaN. */
static float *paged(const problem *p, const float *x, size_t pages)
{
    size_t d = p->shape.head_dim, size = pages * 64 * p->kv * d;
    float *to = malloc(size * sizeof(float));
    for (size_t i = 0; i < size; i++)
        to[i] = NAN;
    for (size_t j = 0; j < p->m; j++)
        for (size_t h = 0; h < p->kv; h++)
            memcpy(to + (((pages - 1 - j / 64) * p->kv + h) * 64 + j % 64) * d,
                   x + (j * p->kv + h) * d, d * sizeof(float));
    return to;
}

/* The last rows of a mask in one step, beside the forward pass: float32 has the
 * same bits; of bfloat16 the sums are a tree here and a chain there. */
static void check_decode(const char *name, const char *mask, size_t n, size_t m,
                         size_t rows, size_t heads, size_t kv, size_t dim,
                         bauta_dtype type)
{
    problem p = problem_make(name, mask, n, m, heads, kv, dim, type);
    size_t pages = m / 64 + 1, bytes = element(&p, Q), width = heads * dim;
    size_t size = rows * width, key_size = pages * 64 * kv * dim;
    uint32_t *table = malloc(pages * sizeof(*table));
    bauta_gpu_sequence sequence = BAUTA_GPU_SEQUENCE_INIT;
    bauta_gpu_pages pool = BAUTA_GPU_PAGES_INIT;
    bauta_gpu_decode_plan *decode;
    float *k = paged(&p, p.x[K], pages), *v = paged(&p, p.x[V], pages);
    float *got = malloc(size * sizeof(float));
    for (size_t i = 0; i < pages; i++)
        table[i] = (uint32_t)(pages - 1 - i);
    sequence.mask = p.mask;
    sequence.first = n - rows;
    sequence.rows = rows;
    sequence.block_table = table;
    run(&p);

    void *q = put(p.x[Q] + (n - rows) * width, size, bytes);
    void *out = put(p.x[DOUT], size, bytes);
    void *pool_k = put(k, key_size, bytes), *pool_v = put(v, key_size, bytes);
    pool.k = pool_k;
    pool.v = pool_v;
    pool.pages = pages;
    pool.early_reads = rows % 2;
    need(bauta_gpu_decode_plan_create(&decode, gpu, &p.shape, 64, type, &err));
    need(bauta_gpu_decode_plan_update(gpu, decode, &sequence, 1, &err));
    need(bauta_gpu_attention_decode(gpu, decode, &p.shape, q, &pool, out, NULL,
                                    &err));
    get(got, out, size, bytes);
    const float *want = p.x[OUT] + (n - rows) * width;
    bool good = true;
    for (size_t i = 0; i < size; i++)
        good &= type == BAUTA_FLOAT32
                    ? !memcmp(got + i, want + i, sizeof(float))
                    : fabsf(got[i] - want[i]) <= 0x1p-5f;
    check(good, name, "decoding and the forward pass differ");

    bauta_gpu_decode_plan_free(decode);
    bauta_gpu_free(gpu, q);
    bauta_gpu_free(gpu, out);
    bauta_gpu_free(gpu, pool_k);
    bauta_gpu_free(gpu, pool_v);
    free(table);
    free(k);
    free(v);
    free(got);
    problem_free(&p);
}

/* ---- failing allocations ----------------------------------------------- */

/* A plan and a step of decoding of one type. */
static bauta_status make_all(const bauta_mask *mask, bauta_dtype type)
{
    static const uint32_t pages[4] = { 3, 1, 0, 2 };
    bauta_gpu_sequence sequence = BAUTA_GPU_SEQUENCE_INIT;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_gpu_plan *plan = NULL;
    bauta_gpu_decode_plan *decode = NULL;
    sequence.mask = mask;
    sequence.first = 199;
    sequence.rows = 1;
    sequence.block_table = pages;
    bauta_status status = bauta_gpu_plan_create(&plan, gpu, mask, 0, 200,
                                                &shape, type, true, &err);
    if (!status)
        status =
            bauta_gpu_decode_plan_create(&decode, gpu, &shape, 64, type, &err);
    if (!status)
        status = bauta_gpu_decode_plan_update(gpu, decode, &sequence, 1, &err);
    bauta_gpu_plan_free(plan);
    bauta_gpu_decode_plan_free(decode);
    return status;
}

/* Every allocation of the host fails once. */
static void check_faults(const bauta_options *options)
{
    bauta_mask *mask;
    faults_begin();
    need(bauta_context_create(&gpu, options, &err));
    need(bauta_mask_parse(&mask, "window(9) | sinks(2)", 200, 200, &err));
    for (int type = 0; type < 2; type++)
        for (size_t k = 0;; k++) {
            size_t live = faults_live();
            faults_arm(k);
            bauta_status status = make_all(mask, (bauta_dtype)type);
            bool failed = faults_disarm();
            check(status == (failed ? BAUTA_ERR_NOMEM : BAUTA_OK), "faults",
                  "a failed allocation is not reported");
            check(faults_live() == live, "faults", "a leak");
            if (!failed)
                break;
        }
    bauta_mask_free(mask);
    bauta_context_free(gpu);
    check(faults_end() == 0, "faults", "a leak in the end");
}

/* ---- softcap and bias --------------------------------------------------- */

/* The results of the CPU, in float32; the bias is in host memory. */
static void run_cpu(problem *p, const bauta_attention_shape *shape)
{
    bauta_context *cpu;
    bauta_plan *plan;
    need(bauta_context_create(&cpu, NULL, &err));
    need(bauta_plan_create(&plan, p->mask, 0, p->n, &err));
    need(bauta_attention_forward(cpu, plan, shape, p->x[Q], p->x[K], p->x[V],
                                 p->x[OUT], p->x[LSE], &err));
    need(bauta_attention_backward(cpu, plan, shape, p->x[Q], p->x[K], p->x[V],
                                  p->x[OUT], p->x[LSE], p->x[DOUT], p->x[DQ],
                                  p->x[DK], p->x[DV], &err));
    bauta_plan_free(plan);
    bauta_context_free(cpu);
}

typedef enum bias_form { SLOPES, TABLE, TENSOR, FORMS } bias_form;

/* A bias of a form: numbers for it and its gradient here or on the GPU. A
 * tensor has a head and is broadcast over the others, or a row for each head
 * that is broadcast over queries. */
static void bias_fill(bauta_attention_bias *bias, bias_form form, size_t which,
                      const float *numbers, float *gradient)
{
    if (form == SLOPES)
        bias->slopes = numbers;
    if (form == TABLE) {
        bias->table = numbers;
        bias->dtable = gradient;
    }
    if (form == TENSOR) {
        bias->tensor = numbers;
        bias->dtensor = gradient;
        bias->tensor_row = which ? 130 : 0;
        bias->tensor_head = which ? 0 : 130;
    }
}

/* The GPU has the CPU's results within the error of its type, for a case that
 * float64 was compared with elsewhere (check_cuda_f32.c and others). */
static void check_bias(size_t which, bias_form form, bauta_dtype type)
{
    enum { HEADS = 4, DISTANCES = 19, NUMBERS = 130 * 130 };
    static float numbers[NUMBERS], gradient[NUMBERS], got[NUMBERS];
    problem p = problem_make("bias", which ? "causal" : "window(50)", 130, 130,
                             HEADS, 2, 64, type);
    bauta_attention_bias bias = BAUTA_ATTENTION_BIAS_INIT, on_gpu;
    bauta_attention_shape shape = p.shape;
    double bound = type == BAUTA_FLOAT32 ? 1e-4 : 0.1;
    for (size_t i = 0; i < NUMBERS; i++)
        numbers[i] = 0.5f * next_random();
    memset(gradient, 0, sizeof(gradient));
    float *memory = raw_put(numbers, sizeof(numbers));
    float *to = raw_put(gradient, sizeof(gradient));
    bias.softcap = which ? 3.0f : 0.0f;
    bias.distances = DISTANCES;
    bias.first_distance = -12;
    on_gpu = bias;
    bias_fill(&bias, form, which, numbers, gradient);
    bias_fill(&on_gpu, form, which, memory, to);
    shape.bias = &bias;
    run_cpu(&p, &shape);
    for (int i = OUT; i < TENSORS; i++)
        for (size_t j = 0; j < p.size[i]; j++)
            p.want[i][j] = (double)p.x[i][j];
    p.shape.bias = &on_gpu;
    run(&p);
    for (int i = OUT; i < TENSORS; i++) {
        double worst = 0.0;
        for (size_t j = 0; j < p.size[i]; j++)
            worst = fmax(worst, fabs((double)p.x[i][j] - p.want[i][j]));
        check(worst <= bound, names[i], "a bias is not the CPU's");
    }
    need(bauta_gpu_download(gpu, got, to, sizeof(got), &err));
    for (size_t i = 0; i < NUMBERS; i++)
        if (gradient[i] != 0.0f || got[i] != 0.0f)
            check(fabs((double)got[i] - (double)gradient[i]) <= 20.0 * bound,
                  "gradient of a bias", "is not the CPU's");
    bauta_gpu_free(gpu, memory);
    bauta_gpu_free(gpu, to);
    problem_free(&p);
}

/* ---- refusals ---------------------------------------------------------- */

static void refused(bauta_status got, bauta_status want, const char *words)
{
    check(got == want && strstr(err.message, words), words, err.message);
}

static void check_refusals(void)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_context *other = NULL;
    bauta_gpu_plan *plan = NULL;
    bauta_plan *cpu_plan;
    bauta_mask *mask;
    void *memory = NULL;
    float x[64] = { 0 };

    check(bauta_gpu_count() > 0, "bauta_gpu_count", "0");
    options.device = "cuda:99";
    refused(bauta_context_create(&other, &options, &err), BAUTA_ERR_UNSUPPORTED,
            "cuda:99");
    need(bauta_mask_causal(&mask, 1, 1, &err));
    need(bauta_plan_create(&cpu_plan, mask, 0, 1, &err));
    refused(
        bauta_attention_forward(gpu, cpu_plan, &shape, x, x, x, x, NULL, &err),
        BAUTA_ERR_UNSUPPORTED, "cuda:0");
    refused(bauta_gpu_alloc(gpu, &memory, SIZE_MAX / 2, &err), BAUTA_ERR_NOMEM,
            "memory");
    shape.head_dim = 65;
    refused(bauta_gpu_plan_create(&plan, gpu, mask, 0, 1, &shape,
                                  BAUTA_BFLOAT16, false, &err),
            BAUTA_ERR_UNSUPPORTED, "65");
    shape.head_dim = 64;
    need(bauta_gpu_plan_create(&plan, gpu, mask, 0, 1, &shape, BAUTA_BFLOAT16,
                               false, &err));
    need(bauta_gpu_alloc(gpu, &memory, 1024, &err));
    char *odd = (char *)memory + 2;
    refused(bauta_gpu_attention_forward(gpu, plan, &shape, odd, memory, memory,
                                        memory, NULL, &err),
            BAUTA_ERR_ARGUMENT, "aligned");
    bauta_attention_bias bias = BAUTA_ATTENTION_BIAS_INIT;
    bias.tensor = memory;
    bias.tensor_row = SIZE_MAX / 2;
    shape.bias = &bias;
    refused(bauta_gpu_attention_forward(gpu, plan, &shape, memory, memory,
                                        memory, memory, NULL, &err),
            BAUTA_ERR_UNSUPPORTED, "bias tensor");
    need(bauta_gpu_synchronize(gpu, &err)); // nothing sticks
    bauta_gpu_free(gpu, memory);
    bauta_gpu_plan_free(plan);
    bauta_plan_free(cpu_plan);
    bauta_mask_free(mask);
}

static const struct {
    const char *name, *mask;
    size_t n, m, heads, kv;
} cases[] = {
    { "causal", "causal", 130, 130, 4, 2 },
    { "one row", "causal", 1, 300, 4, 1 },
    { "sinks or window", "window(9) | sinks(2)", 200, 200, 2, 2 },
    { "hidden keys", "!prefix(100)", 77, 260, 3, 1 },
    { "documents", "documents(50, 1, 129) & causal", 180, 180, 2, 1 },
    { "nothing", "none", 20, 30, 2, 2 },
};

int main(void)
{
    static const size_t dims[] = { 64, 40, 128, 96, 192, 256 };
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.device = "cuda";
    check_faults(&options);
    need(bauta_context_create(&gpu, &options, &err));
    for (int type = 0; type < 2; type++)
        for (size_t d = 0; d < LEN(dims); d++)
            for (size_t i = 0; i < LEN(cases); i++)
                check_problem(cases[i].name, cases[i].mask, cases[i].n,
                              cases[i].m, cases[i].heads, cases[i].kv, dims[d],
                              (bauta_dtype)type);
    for (int type = 0; type < 2; type++)
        for (size_t i = 0; i < LEN(cases); i++)
            for (size_t dim = 64; dim <= 128 && i != 4; dim += 64)
                check_decode(cases[i].name, cases[i].mask, cases[i].n,
                             cases[i].m, cases[i].n > 3 ? 3 : 1, cases[i].heads,
                             cases[i].kv, dim, (bauta_dtype)type);
    for (size_t i = 0; i < 4 * FORMS; i++)
        check_bias(i & 1, (bias_form)(i / 4),
                   i & 2 ? BAUTA_BFLOAT16 : BAUTA_FLOAT32);
    check_refusals();
    bauta_context_free(gpu);
    printf("%zu checks, %zu failures\n", checks, failures);
    return failures != 0;
}
