/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_gemm.c - products on the GPU: the plain kernel against sums in
 * double, and every other way of carrying a product out against the plain
 * kernel, bit for bit. */
#include "backend/cuda/gemm_task.h"
#include "checking.h"

enum { WORKSPACE = 256 << 20 };

/* A product whose tensors lie on the device, and copies of them here. */
typedef struct problem {
    bt_cuda_gemm_args p;
    uint16_t *a, *b, *bias, *slope, *residual;
    float *old; /* what out holds before, where it is added to */
    size_t rows_a, rows_b, out_bytes, pre_bytes;
} problem;

static void *workspace;
static int multiprocessors;

/* Stands for bt_cuda_gemm() without a workspace, whatever that chooses. */
static const bt_gemm_choice no_workspace;

static size_t to_8(size_t x)
{
    return (x + 7) / 8 * 8;
}

static size_t some_stride(size_t length)
{
    return to_8(length) + (below(3) ? 0 : 8 * below(4));
}

static uint16_t *random_matrix(uint16_t **device, size_t rows, size_t stride,
                               float width)
{
    uint16_t *x = random_bf16(rows * stride, width);
    *device = to_device(x, rows * stride * 2);
    return x;
}

/* Poison what no product may read: columns behind the last. */
static void poison_tail(uint16_t *x, uint16_t *device, size_t rows,
                        size_t length, size_t stride)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = length; j < stride; j++)
            x[i * stride + j] = 0x7fc0;
    need_cuda(cudaMemcpy(device, x, rows * stride * 2, cudaMemcpyHostToDevice),
              "cudaMemcpy");
}

static void make(problem *q, bt_gemm_form form, size_t m, size_t n, size_t k,
                 bool plain)
{
    bt_cuda_gemm_args *p = &q->p;
    size_t length_a = form == BT_GEMM_TN ? m : k;
    size_t length_b = form == BT_GEMM_NT ? k : n;
    uint16_t *device;
    memset(q, 0, sizeof(*q));
    p->form = form;
    p->m = m;
    p->n = n;
    p->k = k;
    p->lda = some_stride(length_a);
    p->ldb = some_stride(length_b);
    p->ldo = p->ld_pre = p->ld_slope = p->ld_residual = some_stride(n);
    q->rows_a = form == BT_GEMM_TN ? k : m;
    q->rows_b = form == BT_GEMM_NT ? n : k;
    q->a = random_matrix(&device, q->rows_a, p->lda, 1.0f);
    poison_tail(q->a, device, q->rows_a, length_a, p->lda);
    p->a = device;
    q->b = random_matrix(&device, q->rows_b, p->ldb, 1.0f);
    poison_tail(q->b, device, q->rows_b, length_b, p->ldb);
    p->b = device;
    p->out_f32 = below(2);
    if (!plain) {
        p->accumulate = p->out_f32 && below(2);
        if (below(2)) {
            q->bias = random_matrix(&device, 1, n, 4.0f);
            p->bias = device;
        }
        if (below(3) == 0) {
            q->residual = random_matrix(&device, m, p->ldo, 4.0f);
            p->residual = device;
        }
        p->act = (bt_act)below(4);
        p->has_act = form == BT_GEMM_NT && below(2);
        if (form == BT_GEMM_NN && below(2)) {
            q->slope = random_matrix(&device, m, p->ldo, 4.0f);
            p->slope = device;
        }
        if (below(3) == 0)
            p->pre = to_device(NULL, 0);
        // The other way round, where there is a kernel for it.
        bt_cuda_gemm_args other = *p;
        other.has_act = form == BT_GEMM_NN;
        other.slope = form == BT_GEMM_NT ? p->b : NULL;
        if (form != BT_GEMM_TN && below(2) && bt_cuda_gemm_fuses(&other)) {
            p->has_act = other.has_act;
            if (p->slope)
                cudaFree((void *)(uintptr_t)p->slope);
            free(q->slope);
            q->slope = NULL;
            p->slope = NULL;
            if (form == BT_GEMM_NT) {
                q->slope = random_matrix(&device, m, p->ldo, 4.0f);
                p->slope = device;
            }
        }
    }
    q->out_bytes = m * p->ldo * (p->out_f32 ? 4 : 2);
    q->pre_bytes = m * p->ldo * 2;
    if (p->pre) {
        cudaFree(p->pre);
        need_cuda(cudaMalloc((void **)&p->pre, q->pre_bytes), "cudaMalloc");
    }
    need_cuda(cudaMalloc(&p->out, q->out_bytes), "cudaMalloc");
    q->old = malloc(m * p->ldo * 4);
    for (size_t i = 0; i < m * p->ldo; i++)
        q->old[i] = test_float(&random_stream);
}

static void unmake(problem *q)
{
    bt_cuda_gemm_args *p = &q->p;
    cudaFree((void *)(uintptr_t)p->a);
    cudaFree((void *)(uintptr_t)p->b);
    cudaFree((void *)(uintptr_t)p->bias);
    cudaFree((void *)(uintptr_t)p->slope);
    cudaFree((void *)(uintptr_t)p->residual);
    cudaFree(p->pre);
    cudaFree(p->out);
    free(q->a);
    free(q->b);
    free(q->bias);
    free(q->slope);
    free(q->residual);
    free(q->old);
}

static void run(const bt_cuda_gemm_args *p, const bt_gemm_choice *choice)
{
    bauta_error err = { 0 };
    bauta_status status;
    if (!choice)
        status = bt_cuda_gemm_reference(p, NULL, &err);
    else if (choice == &no_workspace)
        status = bt_cuda_gemm(p, NULL, 0, NULL, &err);
    else
        status = bt_cuda_gemm_by(choice, p, workspace, WORKSPACE, NULL, &err);
    need(status, &err);
    need_cuda(cudaDeviceSynchronize(), "a product");
}

/* Runs it, by the plain kernel without a choice, and returns out followed by
 * pre. Elements that no product may write keep what they held. */
static uint8_t *result(const problem *q, const bt_gemm_choice *choice)
{
    const bt_cuda_gemm_args *p = &q->p;
    uint8_t *got = malloc(q->out_bytes + q->pre_bytes);
    if (p->accumulate)
        need_cuda(
            cudaMemcpy(p->out, q->old, q->out_bytes, cudaMemcpyHostToDevice),
            "cudaMemcpy");
    else
        need_cuda(cudaMemset(p->out, 0x55, q->out_bytes), "cudaMemset");
    if (p->pre)
        need_cuda(cudaMemset(p->pre, 0x55, q->pre_bytes), "cudaMemset");
    run(p, choice);
    need_cuda(cudaMemcpy(got, p->out, q->out_bytes, cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    if (p->pre)
        need_cuda(cudaMemcpy(got + q->out_bytes, p->pre, q->pre_bytes,
                             cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
    else
        memset(got + q->out_bytes, 0, q->pre_bytes);
    return got;
}

static const char *const forms[] = { "NT", "NN", "TN" };

static void describe(char *text, size_t size, const problem *q,
                     const bt_gemm_choice *c)
{
    const bt_cuda_gemm_args *p = &q->p;
    snprintf(text, size,
             "%s %zu x %zu x %zu f32 %d acc %d bias %d act %d/%d "
             "slope %d res %d pre %d: %s head %d blocks %d narrow %d",
             forms[p->form], p->m, p->n, p->k, p->out_f32, p->accumulate,
             !!p->bias, p->has_act, (int)p->act, !!p->slope, !!p->residual,
             !!p->pre,
             c == &no_workspace ? "no workspace"
             : c->small         ? "small"
                                : bt_gemm_tile_name(c->tile),
             c->head, c->blocks, c->narrow);
}

static void check_choice(const problem *q, const bt_gemm_choice *c,
                         const uint8_t *want)
{
    char text[200];
    uint8_t *got = result(q, c);
    size_t bytes = q->out_bytes + q->pre_bytes, wrong = 0, first = 0;
    checks++;
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != want[i] && !wrong++)
            first = i;
    if (wrong) {
        describe(text, sizeof(text), q, c);
        size_t at = first / (q->p.out_f32 ? 4 : 2);
        FAIL("%s: %zu of %zu bytes differ, first at row %zu column %zu", text,
             wrong, bytes, at / q->p.ldo, at % q->p.ldo);
    }
    free(got);
}

/* ---- against double -------------------------------------------------------
 */

static float at_a(const problem *q, size_t i, size_t k)
{
    return from_bf16(q->p.form == BT_GEMM_TN ? q->a[k * q->p.lda + i]
                                             : q->a[i * q->p.lda + k]);
}

static float at_b(const problem *q, size_t j, size_t k)
{
    return from_bf16(q->p.form == BT_GEMM_NT ? q->b[j * q->p.ldb + k]
                                             : q->b[k * q->p.ldb + j]);
}

static double act_double(bt_act act, double x)
{
    switch (act) {
    case BT_ACT_RELU:
        return x < 0 ? 0 : x;
    case BT_ACT_GELU_ERF:
        return 0.5 * x * erfc(-x * sqrt(0.5));
    case BT_ACT_GELU_TANH:
        return 0.5 * x *
               (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default:
        return x / (1 + exp(-x));
    }
}

static double slope_double(bt_act act, double x)
{
    double h = 1e-4;
    if (act == BT_ACT_RELU)
        return x > 0;
    return (act_double(act, x + h) - act_double(act, x - h)) / (2 * h);
}

/* A step of 16 adds 17 numbers, of each of which at most what is below the last
 * bit of the largest is lost: 17 * 2^-23 of the sum of magnitudes, k / 16
 * times; a chunk adds a rounding. Activations have slopes up to 1.13 and are
 * within 2^-18; before them, and before a slope, the sum is rounded to
 * bfloat16. */
static void check_double(const problem *q, const uint8_t *got)
{
    const bt_cuda_gemm_args *p = &q->p;
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < p->k; k++) {
                double x = (double)at_a(q, i, k) * (double)at_b(q, j, k);
                sum += x;
                size += fabs(x);
            }
            double bound = size * (17 * ((double)p->k / 16 + 1)) * 0x1p-23;
            if (p->bias)
                sum += (double)from_bf16(q->bias[j]);
            double v = sum;
            if (p->has_act) {
                v = act_double(p->act, v);
                bound += (fabs(sum) + bound) * 0x1p-8;
                bound = bound * 1.13 + (fabs(sum) + 1) * 0x1p-18;
            }
            if (p->slope) {
                double s = slope_double(
                    p->act, (double)from_bf16(q->slope[i * p->ld_slope + j]));
                bound += (fabs(v) + bound) * 0x1p-8;
                bound = bound * 1.13 + fabs(v) * 0x1p-18;
                v *= s;
            }
            if (p->residual)
                v += (double)from_bf16(q->residual[i * p->ld_residual + j]);
            if (p->accumulate)
                v += (double)q->old[i * p->ldo + j];
            bound += fabs(v) * (p->out_f32 ? 0x1p-21 : 0x1p-8) +
                     0x1p-21 * (fabs(sum) + 8);
            size_t at = i * p->ldo + j;
            double have = p->out_f32
                              ? (double)((const float *)got)[at]
                              : (double)from_bf16(((const uint16_t *)got)[at]);
            checks++;
            if (!(fabs(have - v) <= bound))
                FAIL("%s %zu x %zu x %zu at %zu, %zu: %g, not %g within %g",
                     forms[p->form], p->m, p->n, p->k, i, j, have, v, bound);
        }
}

/* ---- cases ------------------------------------------------------------------
 */

static void every_choice(const problem *q, const uint8_t *want)
{
    const bt_cuda_gemm_args *p = &q->p;
    int chunk =
        p->form == BT_GEMM_TN ? bt_gemm_row_chunk(p->m, p->n) : BT_GEMM_CHUNK;
    int chunks = ((int)p->k + chunk - 1) / chunk;
    // Activations in the form NN and slopes in NT are ended by tiles that take
    // turns alone, and only by sums of one chunk.
    bool turns = (p->has_act && p->form == BT_GEMM_NN) ||
                 (p->slope && p->form == BT_GEMM_NT);
    bt_cuda_gemm_args many = *p;
    many.m = BT_GEMM_SMALL_ROWS + 1;
    bool large = !turns || bt_cuda_gemm_fuses(&many);
    for (int t = 0; large && t < BT_GEMM_TILE_COUNT; t++) {
        bool ping = t == BT_GEMM_PING192 || t == BT_GEMM_PING128;
        if (turns && !ping)
            continue;
        bt_gemm_choice c = { .tile = (bt_gemm_tile)t,
                             .group = 1 + (int)below(20) };
        if (!ping || chunks == 1)
            check_choice(q, &c, want);
        if (chunks == 1)
            continue;
        int tiles = (int)((p->m + 127) / 128 * ((p->n + 127) / 128));
        c.head = 1;
        if (!ping || tiles < multiprocessors)
            check_choice(q, &c, want);
        for (int i = 0; i < 2 && !ping; i++) {
            c.head = i ? chunks - 1 : 1 + (int)below((size_t)chunks - 1);
            check_choice(q, &c, want);
        }
    }
    for (int blocks = 1; blocks <= 8; blocks *= 2) {
        bt_gemm_choice c = { .small = true, .blocks = blocks };
        if (p->m <= BT_GEMM_SMALL_ROWS && p->form != BT_GEMM_TN)
            check_choice(q, &c, want);
    }
    // One block for each chunk, and some that have none.
    for (int tile = 32; tile <= 64; tile *= 2)
        for (int blocks = 0; blocks <= 8; blocks += 1 + (int)below(3)) {
            bt_gemm_choice c = { .small = true,
                                 .narrow = tile,
                                 .blocks = blocks };
            if (blocks && blocks <= chunks)
                continue;
            if (bt_gemm_narrow_can(&c, p))
                check_choice(q, &c, want);
        }
    bt_gemm_choice c;
    bt_gemm_choose(&c, p, WORKSPACE, multiprocessors);
    check_choice(q, &c, want);
    check_choice(q, &no_workspace, want);
}

static size_t some_size(size_t limit)
{
    static const size_t edges[] = {
        1,   7,   8,   16,  63,  64,  65,  127, 128,
        129, 191, 192, 193, 256, 257, 384, 512, 520
    };
    size_t x = below(2) ? edges[below(BT_LEN(edges))] : 1 + below(limit);
    return x < limit ? x : limit;
}

/* Small ones, against double and every choice. */
static void random_small(int count)
{
    for (int i = 0; i < count; i++) {
        problem q;
        bt_gemm_form form = (bt_gemm_form)below(3);
        make(&q, form, some_size(90), some_size(150), some_size(1200),
             below(4) == 0);
        uint8_t *want = result(&q, NULL);
        check_double(&q, want);
        every_choice(&q, want);
        free(want);
        unmake(&q);
    }
}

/* Larger ones, every choice. */
static void random_large(int count)
{
    for (int i = 0; i < count; i++) {
        problem q;
        bt_gemm_form form = (bt_gemm_form)below(3);
        size_t k = form == BT_GEMM_TN ? 1 + below(14000) : some_size(5000);
        make(&q, form, below(3) ? some_size(2000) : 1 + below(64),
             some_size(2500), k, below(3) == 0);
        uint8_t *want = result(&q, NULL);
        every_choice(&q, want);
        free(want);
        unmake(&q);
    }
}

/* Gradients of small weights, in short chunks that are added to what is there.
 */
static void random_gradients(int count)
{
    for (int i = 0; i < count; i++) {
        problem q;
        make(&q, BT_GEMM_TN, some_size(600), some_size(600), 1 + below(5000),
             true);
        q.p.accumulate = q.p.out_f32;
        uint8_t *want = result(&q, NULL);
        every_choice(&q, want);
        free(want);
        unmake(&q);
    }
}

/* The products of decoding: few rows, and matrices as models have them. */
static void random_few(int count)
{
    static const size_t outputs[] = { 768, 2304, 3072, 2048, 1000, 50 };
    static const size_t inputs[] = { 64, 768, 1024, 2048, 3072, 8192 };
    static const size_t rows[] = { 1, 2, 8, 9, 16, 17, 32, 33, 64 };
    for (int i = 0; i < count; i++) {
        problem q;
        make(&q, below(2) ? BT_GEMM_NT : BT_GEMM_NN,
             rows[(size_t)i % BT_LEN(rows)], outputs[below(BT_LEN(outputs))],
             inputs[below(BT_LEN(inputs))], below(2));
        q.p.b_ready = below(2);
        uint8_t *want = result(&q, NULL);
        every_choice(&q, want);
        free(want);
        unmake(&q);
    }
}

/* ---- norms and gates --------------------------------------------------------
 */

/* An operation that a product carries out, and all that it writes. */
typedef struct before {
    bool gated;
    bt_cuda_norm_args norm;
    bt_cuda_act_args gate;
    uint16_t *x, *with, *sum, *gain, *bias; /* of the device */
    float *stats;                           /* mean, scale */
    size_t sum_bytes, stats_bytes;
} before;

static uint16_t *random_device(size_t rows, size_t stride, float width)
{
    uint16_t *device;
    free(random_matrix(&device, rows, stride, width));
    return device;
}

static void before_make(before *o, const problem *q)
{
    const bt_cuda_gemm_args *p = &q->p;
    size_t ldx = some_stride(p->k), ld_with = some_stride(p->k);
    memset(o, 0, sizeof(*o));
    o->gated = below(3) == 0;
    o->x = random_device(p->m, ldx, 2.0f);
    if (o->gated || below(2))
        o->with = random_device(p->m, ld_with, 2.0f);
    if (o->gated) {
        o->gate =
            (bt_cuda_act_args){ .act = (bt_act)below(4),
                                .dtype = BAUTA_BFLOAT16,
                                .rows = p->m,
                                .columns = p->k,
                                .x = { o->x, ldx },
                                .by = { o->with, ld_with },
                                .y = { (void *)(uintptr_t)p->a, p->lda } };
        return;
    }
    size_t ld_sum = some_stride(p->k);
    o->sum_bytes = p->m * ld_sum * 2;
    o->stats_bytes = 2 * p->m * sizeof(float);
    o->sum = random_device(p->m, ld_sum, 1.0f);
    need_cuda(cudaMalloc((void **)&o->stats, o->stats_bytes), "cudaMalloc");
    o->gain = random_device(1, p->k, 1.0f);
    if (below(2))
        o->bias = random_device(1, p->k, 1.0f);
    o->norm = (bt_cuda_norm_args){
        .kind = below(2) ? BT_NORM_RMS : BT_NORM_LAYER,
        .dtype = BAUTA_BFLOAT16,
        .gain_dtype = BAUTA_BFLOAT16,
        .rows = p->m,
        .heads = 1,
        .width = p->k,
        .epsilon = 1e-5f,
        .x = { o->x, ldx },
        .residual = { o->with, ld_with },
        .sum = { o->with ? o->sum : NULL, ld_sum },
        .y = { (void *)(uintptr_t)p->a, p->lda },
        .gain = o->gain,
        .bias = o->bias,
        .mean = o->stats,
        .scale = o->stats + p->m,
    };
}

static void before_unmake(before *o)
{
    cudaFree(o->x);
    cudaFree(o->with);
    cudaFree(o->sum);
    cudaFree(o->gain);
    cudaFree(o->bias);
    cudaFree(o->stats);
}

/* Forget what it has written: y is as it was made, with NaN after the rows. */
static void before_clear(const before *o, const problem *q)
{
    need_cuda(cudaMemcpy((void *)(uintptr_t)q->p.a, q->a, q->p.m * q->p.lda * 2,
                         cudaMemcpyHostToDevice),
              "cudaMemcpy");
    if (o->gated)
        return;
    need_cuda(cudaMemset(o->sum, 0x55, o->sum_bytes), "cudaMemset");
    need_cuda(cudaMemset(o->stats, 0x55, o->stats_bytes), "cudaMemset");
}

/* y, sum, mean and scale. */
static uint8_t *before_results(const before *o, const problem *q, size_t *size)
{
    size_t y = q->p.m * q->p.lda * 2;
    *size = y + o->sum_bytes + o->stats_bytes;
    uint8_t *got = malloc(*size);
    need_cuda(cudaMemcpy(got, q->p.a, y, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (!o->gated) {
        need_cuda(
            cudaMemcpy(got + y, o->sum, o->sum_bytes, cudaMemcpyDeviceToHost),
            "cudaMemcpy");
        need_cuda(cudaMemcpy(got + y + o->sum_bytes, o->stats, o->stats_bytes,
                             cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
    }
    return got;
}

static void check_taken(problem *q, const before *o, const bt_gemm_choice *c,
                        const uint8_t *want, const uint8_t *wrote)
{
    char text[200];
    size_t size;
    before_clear(o, q);
    check_choice(q, c, want);
    uint8_t *got = before_results(o, q, &size);
    checks++;
    if (memcmp(got, wrote, size)) {
        describe(text, sizeof(text), q, c);
        FAIL("%s: %s%s writes other results in a product", text,
             o->gated                      ? "a gate"
             : o->norm.kind == BT_NORM_RMS ? "RMS norm"
                                           : "layer norm",
             o->with && !o->gated ? " with a residual" : "");
    }
    free(got);
}

/* A product that carries out a norm or a gate has the bits of the two. */
static void random_taken(int count)
{
    static const size_t widths[] = { 8,    56,   64,   72,   128,  136,
                                     256,  264,  512,  768,  1000, 1024,
                                     1032, 1536, 2040, 2048, 100,  2056 };
    static const size_t outputs[] = { 8, 50, 64, 768, 1000, 2304, 9000 };
    for (int i = 0; i < count; i++) {
        problem q;
        before o;
        bauta_error err = { 0 };
        size_t size, k = widths[(size_t)i % BT_LEN(widths)];
        make(&q, below(2) ? BT_GEMM_NT : BT_GEMM_NN, 1 + below(8),
             outputs[below(BT_LEN(outputs))], k, below(2));
        q.p.b_ready = true;
        before_make(&o, &q);
        before_clear(&o, &q);
        need(o.gated ? bt_cuda_act(&o.gate, NULL, &err)
                     : bt_cuda_norm(&o.norm, NULL, &err),
             &err);
        uint8_t *want = result(&q, NULL);
        uint8_t *wrote = before_results(&o, &q, &size);
        q.p.norm = o.gated ? NULL : &o.norm;
        q.p.gate = o.gated ? &o.gate : NULL;
        checks++;
        size_t blocks = (q.p.n + 63) / 64 * ((k + 1023) / 1024);
        if (bt_cuda_gemm_takes(&q.p) != (k % 8 == 0 && (o.gated || k <= 2048) &&
                                         q.p.n * k <= BT_GEMM_NARROW_WEIGHTS &&
                                         blocks <= BT_GEMM_TAKES_BLOCKS))
            FAIL("%zu x %zu: taken or not, and it should be otherwise", q.p.n,
                 k);
        for (int way = 0; way < 3 && bt_cuda_gemm_takes(&q.p); way++) {
            bt_gemm_choice c = { .small = true, .narrow = 32 << way };
            if (way == 2)
                bt_gemm_choose(&c, &q.p, 0, multiprocessors);
            check_taken(&q, &o, &c, want, wrote);
        }
        free(want);
        free(wrote);
        before_unmake(&o);
        unmake(&q);
    }
}

/* ---- ends ------------------------------------------------------------------
 */

/* Bytes of the device that some operations write, one tensor after the other,
 * and what they are to be. */
typedef struct written {
    const void *at[8];
    size_t bytes[8], count;
    uint8_t *want[8];
} written;

static void written_add(written *w, const void *at, size_t bytes)
{
    w->at[w->count] = at;
    w->bytes[w->count++] = bytes;
}

static void written_clear(const written *w)
{
    for (size_t i = 0; i < w->count; i++)
        need_cuda(cudaMemset((void *)(uintptr_t)w->at[i], 0x55, w->bytes[i]),
                  "cudaMemset");
}

static uint8_t *written_read(const written *w, size_t i)
{
    uint8_t *got = malloc(w->bytes[i]);
    need_cuda(cudaDeviceSynchronize(), "a product");
    need_cuda(cudaMemcpy(got, w->at[i], w->bytes[i], cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    return got;
}

static void written_keep(written *w)
{
    for (size_t i = 0; i < w->count; i++)
        w->want[i] = written_read(w, i);
}

static void written_check(const written *w, const problem *q,
                          const bt_gemm_choice *c, const char *what)
{
    for (size_t i = 0; i < w->count; i++) {
        uint8_t *got = written_read(w, i);
        char text[200];
        checks++;
        if (memcmp(got, w->want[i], w->bytes[i])) {
            describe(text, sizeof(text), q, c);
            FAIL("%s, %s: tensor %zu differs", text, what, i);
        }
        free(got);
    }
}

static void written_release(written *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->want[i]);
}

/* A product of bfloat16 results without an end but, at times, a bias. */
static void make_plain(problem *q, bt_gemm_form form, size_t m, size_t n,
                       size_t k)
{
    make(q, form, m, n, k, true);
    q->p.out_f32 = false;
    q->out_bytes = m * q->p.ldo * 2;
    q->p.b_ready = below(2);
    if (below(2)) {
        uint16_t *device;
        q->bias = random_matrix(&device, 1, n, 4.0f);
        q->p.bias = device;
    }
}

static const size_t few_rows[] = { 1, 2, 7, 8, 9, 16, 17, 32, 33, 64 };

/* A product that ends with a gated activation has the bits of the two. */
static void random_gates(int count)
{
    static const size_t inputs[] = { 64, 200, 1024, 2048, 3000, 8192 };
    for (int i = 0; i < count; i++) {
        problem q;
        written w = { .count = 0 };
        bauta_error err = { 0 };
        size_t m = few_rows[(size_t)i % BT_LEN(few_rows)];
        size_t half = 32 * (1 + below(40)), ld_y = some_stride(half);
        make_plain(&q, BT_GEMM_NT, m, 2 * half, inputs[below(BT_LEN(inputs))]);
        const uint16_t *out = q.p.out;
        uint16_t *y = random_device(m, ld_y, 1.0f);
        bool first = below(2);
        bt_cuda_act_args gate = { .act = (bt_act)below(4),
                                  .dtype = BAUTA_BFLOAT16,
                                  .rows = m,
                                  .columns = half,
                                  .x = { out + (first ? 0 : half), q.p.ldo },
                                  .by = { out + (first ? half : 0), q.p.ldo },
                                  .y = { y, ld_y } };
        written_add(&w, out, q.out_bytes);
        written_add(&w, y, m * ld_y * 2);
        written_clear(&w);
        need(bt_cuda_gemm_reference(&q.p, NULL, &err), &err);
        need(bt_cuda_act(&gate, NULL, &err), &err);
        written_keep(&w);
        q.p.end_gate = &gate;
        checks++;
        if (!bt_cuda_gemm_ends(&q.p))
            FAIL("%zu x %zu x %zu does not end with a gate", m, q.p.n, q.p.k);
        for (int blocks = 0; blocks <= 8; blocks = blocks ? 2 * blocks : 1) {
            bt_gemm_choice c = { .small = true, .blocks = blocks };
            if (!blocks)
                bt_gemm_choose(&c, &q.p, 0, multiprocessors);
            written_clear(&w);
            need(bt_cuda_gemm_by(&c, &q.p, NULL, 0, NULL, &err), &err);
            written_check(&w, &q, &c, "with a gate");
        }
        written_release(&w);
        cudaFree(y);
        unmake(&q);
    }
}

/* Rows of a batch are as each alone, in whatever batch. */
static void rows_alone(size_t m, size_t n, size_t k)
{
    problem q;
    bauta_error err = { 0 };
    make(&q, BT_GEMM_NT, m, n, k, true);
    uint8_t *want = result(&q, NULL);
    size_t row = q.p.ldo * (q.p.out_f32 ? 4 : 2), bytes = n * (row / q.p.ldo);
    uint8_t *got = malloc(q.out_bytes);
    for (int i = 0; i < 40; i++) {
        size_t first = below(m), rows = 1 + below(m - first);
        if (below(2) && rows > 64)
            rows = 1 + below(64);
        bt_cuda_gemm_args p = q.p;
        p.m = rows;
        p.a += first * p.lda;
        need_cuda(cudaMemset(p.out, 0x55, q.out_bytes), "cudaMemset");
        need(bt_cuda_gemm(&p, workspace, WORKSPACE, NULL, &err), &err);
        need_cuda(cudaMemcpy(got, p.out, rows * row, cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
        checks++;
        for (size_t r = 0; r < rows; r++)
            if (memcmp(got + r * row, want + (first + r) * row, bytes)) {
                FAIL("rows %zu to %zu of %zu x %zu x %zu: row %zu differs",
                     first, first + rows, m, n, k, r);
                break;
            }
    }
    free(got);
    free(want);
    unmake(&q);
}

/* NaN and infinity go where plain arithmetic has them: to the row and column
 * they are in, and nowhere else. */
static void not_finite(size_t m, size_t n, size_t k)
{
    problem q;
    make(&q, BT_GEMM_NT, m, n, k, true);
    for (int i = 0; i < 12; i++) {
        size_t row = below(m), at = row * q.p.lda + below(k);
        q.a[at] = poisons[below(4)];
    }
    need_cuda(cudaMemcpy((void *)(uintptr_t)q.p.a, q.a, m * q.p.lda * 2,
                         cudaMemcpyHostToDevice),
              "cudaMemcpy");
    uint8_t *want = result(&q, NULL);
    every_choice(&q, want);
    for (size_t i = 0; i < m; i++) {
        bool bad = false, nan = false;
        for (size_t c = 0; c < k; c++) {
            float x = from_bf16(q.a[i * q.p.lda + c]);
            bad |= !isfinite(x);
            nan |= isnan(x);
        }
        for (size_t j = 0; j < n; j++) {
            size_t at = i * q.p.ldo + j;
            float v = q.p.out_f32 ? ((float *)want)[at]
                                  : from_bf16(((uint16_t *)want)[at]);
            checks++;
            if (isfinite(v) == bad || (nan && !isnan(v)))
                FAIL("row %zu, which has %s, gives %g", i,
                     nan   ? "NaN"
                     : bad ? "infinity"
                           : "finite numbers",
                     (double)v);
        }
    }
    free(want);
    unmake(&q);
}

static void refusals(void)
{
    bauta_error err = { 0 };
    problem q;
    make(&q, BT_GEMM_NT, 8, 8, 64, true);
    bt_cuda_gemm_args p = q.p;
    p.lda = 60;
    checks += 4;
    if (bt_cuda_gemm(&p, NULL, 0, NULL, &err) != BAUTA_ERR_ARGUMENT)
        FAIL("a stride of 60 was accepted");
    p = q.p;
    p.a++;
    if (bt_cuda_gemm(&p, NULL, 0, NULL, &err) != BAUTA_ERR_ARGUMENT)
        FAIL("an unaligned operand was accepted");
    p = q.p;
    p.out_f32 = false;
    p.accumulate = true;
    if (bt_cuda_gemm(&p, NULL, 0, NULL, &err) != BAUTA_ERR_ARGUMENT)
        FAIL("bfloat16 results were added to");
    p = q.p;
    p.k = 0;
    need(bt_cuda_gemm(&p, NULL, 0, NULL, &err), &err);
    uint8_t *got = malloc(q.out_bytes);
    need_cuda(cudaMemcpy(got, p.out, q.out_bytes, cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    for (size_t i = 0; i < p.n * (p.out_f32 ? 4 : 2); i++)
        if (got[i]) {
            FAIL("the sum of nothing is not 0");
            break;
        }
    free(got);
    unmake(&q);
}

int main(int argc, char **argv)
{
    int device = 0;
    check_begin(argc, argv);
    need_cuda(cudaGetDevice(&device), "a GPU");
    need_cuda(cudaDeviceGetAttribute(&multiprocessors,
                                     cudaDevAttrMultiProcessorCount, device),
              "a GPU");
    need_cuda(cudaMalloc(&workspace, WORKSPACE), "cudaMalloc");
    need_cuda(cudaMemset(workspace, 0, BT_GEMM_ZEROS), "cudaMemset");
    refusals();
    random_small(quick ? 6 : 60);
    random_gradients(quick ? 12 : 60);
    random_few(quick ? 9 : 54);
    random_taken(quick ? 18 : 180);
    random_gates(quick ? 10 : 60);
    not_finite(70, 90, 700);
    not_finite(20, 90, 1300);
    if (!quick) {
        random_large(60);
        rows_alone(700, 2304, 768);
        rows_alone(300, 768, 3072);
        rows_alone(300, 8192, 4096);
    }
    cudaFree(workspace);
    return check_end();
}
