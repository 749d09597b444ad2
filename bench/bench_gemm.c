/* SPDX-License-Identifier: Apache-2.0 */
/* bench_gemm.c - the matrix product as a share of the machine's peak, next to
 * OpenBLAS and oneDNN where available.
 *
 *   bench_gemm [--threads N] [--isa NAME] [--only TEXT] [--seconds S] [--best]
 *
 * --only keeps the lines whose name contains TEXT. Everything that is compared
 * is timed in turns, so that other load affects all equally; figures are
 * medians, or with --best the best of all turns, for a busy machine. */
#include "backend/cpu/gemm.h"
#include "base/thread_pool.h"
#include "bench.h"

#if defined(BENCH_OPENBLAS)
#include <cblas.h>
#endif
#if defined(BENCH_DNNL)
#include <dnnl.h>
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif

typedef struct options {
    int threads;
    const bt_kernels *kernels;
    const char *only;
    double seconds; /* of measuring, for each line */
    bool best;
} options;

enum { SAMPLES = 64, COLD_FLOATS = 1 << 26 /* 256 MiB: no cache holds them */ };

/* The libraries that compute a product. */
typedef void run_fn(const bt_gemm *gemm, const options *o, bt_cpu *cpu);

static void run_bauta(const bt_gemm *gemm, const options *o, bt_cpu *cpu)
{
    bauta_error err;
    (void)o;
    if (bt_gemm_f32(cpu, gemm, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
}

#if defined(BENCH_OPENBLAS)
static void run_openblas(const bt_gemm *g, const options *o, bt_cpu *cpu)
{
    (void)cpu;
    openblas_set_num_threads(o->threads);
    cblas_sgemm(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans,
                g->trans_b ? CblasTrans : CblasNoTrans, (blasint)g->m,
                (blasint)g->n, (blasint)g->k, 1.0f, g->a, (blasint)g->lda, g->b,
                (blasint)g->ldb, g->add ? 1.0f : 0.0f, g->c, (blasint)g->ldc);
}
#endif

#if defined(BENCH_DNNL)
static void run_dnnl(const bt_gemm *g, const options *o, bt_cpu *cpu)
{
    (void)cpu;
#if defined(_OPENMP)
    omp_set_num_threads(o->threads);
#endif
    dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', (dnnl_dim_t)g->m,
               (dnnl_dim_t)g->n, (dnnl_dim_t)g->k, 1.0f, g->a,
               (dnnl_dim_t)g->lda, g->b, (dnnl_dim_t)g->ldb,
               g->add ? 1.0f : 0.0f, g->c, (dnnl_dim_t)g->ldc);
}
#endif

static const struct {
    const char *name;
    run_fn *run;
} runners[] = {
    { "bauta", run_bauta },
#if defined(BENCH_OPENBLAS)
    { "OpenBLAS", run_openblas },
#endif
#if defined(BENCH_DNNL)
    { "oneDNN", run_dnnl },
#endif
};
enum { RUNNERS = sizeof(runners) / sizeof(runners[0]) };

/* The three products of a linear layer with weight W (outputs, inputs):
 * Y = X W^T, dX = dY W, dW = dY^T X. Gradients of weights add up. */
typedef enum product { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT } product;
static const char *const product_names[] = { "Y", "dX", "dW" };

static bt_gemm product_of(product kind, size_t rows, size_t outputs,
                          size_t inputs)
{
    bt_gemm g = { .m = rows, .n = outputs, .k = inputs };
    if (kind == FORWARD) {
        g.trans_b = true;
    } else if (kind == INPUT_GRADIENT) {
        g.n = inputs;
        g.k = outputs;
    } else {
        g.m = outputs;
        g.n = inputs;
        g.k = rows;
        g.trans_a = g.add = true;
    }
    g.lda = g.trans_a ? g.m : g.k;
    g.ldb = g.trans_b ? g.k : g.n;
    g.ldc = g.n;
    return g;
}

/* Seconds of one call, from as many as take two milliseconds at least. The
 * operands move on through `cold` floats of B from call to call. */
static double sample(size_t runner, bt_gemm gemm, const options *o, bt_cpu *cpu,
                     size_t cold)
{
    size_t size = gemm.k * gemm.n, at = 0, calls = 0;
    const float *b = gemm.b;
    double begin = bench_now(), seconds;
    do {
        gemm.b = b + at;
        runners[runner].run(&gemm, o, cpu);
        at = at + 2 * size <= cold ? at + size : 0;
        calls++;
        seconds = bench_now() - begin;
    } while (seconds < 2e-3 || at != 0);
    return seconds / (double)calls;
}

/* Time the limit and every runner in turns. */
static void measure(double times[RUNNERS], double *limit, const bt_gemm *gemm,
                    const options *o, size_t cold)
{
    static double all[RUNNERS + 1][SAMPLES];
    bt_cpu cpu = { .kernels = o->kernels, .pool = bench_pool(o->threads) };
    double begin = bench_now();
    size_t count = 0;
    for (size_t r = 0; r < RUNNERS; r++)
        sample(r, *gemm, o, &cpu, cold); // warm up
    while (count < 3 || (count < SAMPLES && bench_now() - begin < o->seconds)) {
        for (size_t r = 0; r < RUNNERS; r++)
            all[r][count] = sample(r, *gemm, o, &cpu, cold);
        all[RUNNERS][count] =
            cold ? bench_read(gemm->b, cold, o->threads)
                 : bench_peak(bench_pool(o->threads), o->kernels->isa);
        count++;
    }
    for (size_t r = 0; r < RUNNERS; r++)
        times[r] = bench_time(all[r], count, o->best);
    *limit = bench_rate(all[RUNNERS], count, o->best);
    bt_arena_release(&cpu.workspace);
}

static void print_head(const char *rate, const char *limit)
{
    printf("%-22s %4s %8s %8s %6s", "product", "thr", rate, limit, "%");
    for (size_t r = 1; r < RUNNERS; r++)
        printf("  vs %-8s", runners[r].name);
    printf("\n");
}

static void print_line(const char *name, const options *o, double work,
                       const double times[RUNNERS], double limit)
{
    double rate = work / times[0] * 1e-9;
    printf("%-22s %4d %8.1f %8.1f %6.1f", name, o->threads, rate, limit,
           100 * rate / limit);
    for (size_t r = 1; r < RUNNERS; r++)
        printf("  %-11.2f", times[r] / times[0]);
    printf("\n");
    fflush(stdout);
}

typedef struct operands {
    float *a, *b, *c;
} operands;

static void bench_product(product kind, size_t rows, size_t outputs,
                          size_t inputs, const operands *x, const options *o)
{
    char name[64];
    snprintf(name, sizeof(name), "%zux%zux%zu %s", rows, outputs, inputs,
             product_names[kind]);
    if (o->only && !strstr(name, o->only))
        return;
    double times[RUNNERS], limit;
    bt_gemm g = product_of(kind, rows, outputs, inputs);
    g.a = x->a;
    g.b = x->b;
    g.c = x->c;
    memset(g.c, 0, g.m * g.n * sizeof(float));
    measure(times, &limit, &g, o, 0);
    double flops = 2.0 * (double)g.m * (double)g.n * (double)g.k;
    print_line(name, o, flops, times, limit);
}

static const struct {
    size_t rows, outputs, inputs;
} layers[] = {
    { 256, 2304, 768 },   { 256, 768, 768 },   { 256, 3072, 768 },
    { 256, 768, 3072 },   { 256, 50304, 768 }, { 1024, 2304, 768 },
    { 1024, 768, 768 },   { 1024, 3072, 768 }, { 1024, 768, 3072 },
    { 1024, 50304, 768 }, { 1024, 384, 128 },  { 1024, 512, 128 },
    { 1024, 128, 512 },   { 1024, 768, 256 },  { 1024, 1024, 256 },
    { 1024, 256, 1024 },
};

static void bench_layers(const operands *x, const options *o)
{
    print_head("GFLOP/s", "peak");
    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++)
        for (product kind = FORWARD; kind <= WEIGHT_GRADIENT; kind++)
            bench_product(kind, layers[i].rows, layers[i].outputs,
                          layers[i].inputs, x, o);
}

/* Few rows: the cost is reading the weights, different ones each time. */
static void bench_few_rows(const operands *x, const options *o)
{
    static const size_t weights[][2] = {
        { 768, 768 }, { 2304, 768 }, { 768, 3072 }, { 50304, 768 }
    };
    print_head("GB/s", "read");
    for (size_t rows = 1; rows <= 8; rows *= 2)
        for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
            for (int trans = 1; trans >= 0; trans--) {
                size_t n = weights[i][0], k = weights[i][1];
                char name[64];
                snprintf(name, sizeof(name), "%zux%zux%zu %s", rows, n, k,
                         trans ? "x W^T" : "x W");
                if (o->only && !strstr(name, o->only))
                    continue;
                double times[RUNNERS], limit;
                bt_gemm g = { .m = rows,
                              .n = n,
                              .k = k,
                              .a = x->a,
                              .lda = k,
                              .b = x->b,
                              .trans_b = trans,
                              .ldb = trans ? k : n,
                              .c = x->c,
                              .ldc = n };
                measure(times, &limit, &g, o, COLD_FLOATS);
                print_line(name, o, (double)(n * k * sizeof(float)), times,
                           limit);
            }
}

static options options_read(int argc, char **argv)
{
    options o = { .threads = bt_threads_available(),
                  .seconds = 0.5,
                  .kernels = bt_kernels_get(NULL) };
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--best") == 0) {
            o.best = true;
            continue;
        }
        if (value && strcmp(argv[i], "--threads") == 0)
            o.threads = atoi(value);
        else if (value && strcmp(argv[i], "--isa") == 0)
            o.kernels = bt_kernels_get(value);
        else if (value && strcmp(argv[i], "--only") == 0)
            o.only = value;
        else if (value && strcmp(argv[i], "--seconds") == 0)
            o.seconds = atof(value);
        else
            value = NULL;
        if (!value || !o.kernels || o.threads < 1) {
            fprintf(stderr, "usage: bench_gemm [--threads N] [--isa NAME] "
                            "[--only TEXT] [--seconds S] [--best]\n");
            exit(2);
        }
        i++;
    }
    return o;
}

int main(int argc, char **argv)
{
    options o = options_read(argc, argv);
    operands x = { bench_floats((size_t)50304 * 1024),
                   bench_floats(COLD_FLOATS),
                   bench_floats((size_t)50304 * 1024) };
    printf("isa %s; ratios are bauta's speed over the other's\n",
           o.kernels->isa);
    bench_layers(&x, &o);
    bench_few_rows(&x, &o);
    free(x.a);
    free(x.b);
    free(x.c);
    return 0;
}
