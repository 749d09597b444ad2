/* SPDX-License-Identifier: Apache-2.0 */
/* bench_attention.c - masked attention as a share of the machine's peak.
 *
 *   bench_attention [--threads N] [--isa NAME] [--only TEXT] [--seconds S]
 *                   [--best] [--json]
 *
 * A line is a mask and a shape; --only keeps the lines whose name contains
 * TEXT. Only visible pairs count as work: 4 * head_dim * pairs * heads FLOP
 * forward, 2.5 times that backward. The machine's FMA peak, or its memory
 * bandwidth for decoding, is measured in turns with each line; figures are
 * medians, or with --best the best of all turns, for a busy machine. --json
 * prints an object a line instead of a table. */
#include "bauta.h"
#include "bench.h"

#include "runtime/context.h"

typedef struct options {
    int threads;
    const char *isa, *only;
    double seconds; /* of measuring, for each line */
    int best, json;
} options;

enum { SAMPLES = 64 };

static void must(bauta_status status, const bauta_error *err)
{
    if (status) {
        fprintf(stderr, "%s\n", err->message);
        exit(1);
    }
}

/* ---- masks ------------------------------------------------------------- */

static bauta_mask *mask_causal(size_t tokens)
{
    bauta_error err;
    bauta_mask *mask;
    must(bauta_mask_causal(&mask, tokens, tokens, &err), &err);
    return mask;
}

static bauta_mask *mask_window(size_t tokens)
{
    bauta_error err;
    bauta_mask *mask;
    must(bauta_mask_window(&mask, tokens, tokens, 256, &err), &err);
    return mask;
}

/* Causal documents of 12 to 1,012 tokens, 512 on average. */
static bauta_mask *mask_documents(size_t tokens)
{
    enum { MOST = 64 };
    bauta_error err;
    bauta_mask *inner[MOST] = { NULL }, *mask;
    size_t count = tokens / 512, left = tokens;
    uint32_t x = 7;
    for (size_t d = 0; d < count; d++) {
        x = x * 1664525u + 1013904223u;
        size_t length = 12 + (x >> 16) % 1001;
        if (length > left || d + 1 == count)
            length = left;
        left -= length;
        inner[d] = mask_causal(length);
    }
    must(bauta_mask_pack(&mask, count, (const bauta_mask *const *)inner, &err),
         &err);
    for (size_t d = 0; d < count; d++)
        bauta_mask_free(inner[d]);
    return mask;
}

/* ---- forward and backward ---------------------------------------------- */

typedef struct line {
    const char *name;
    bauta_mask *(*mask)(size_t tokens);
    size_t tokens, heads, head_dim;
} line;

static const line lines[] = {
    { "causal 256 d64", mask_causal, 256, 12, 64 },
    { "causal 1024 d64", mask_causal, 1024, 12, 64 },
    { "causal 2048 d64", mask_causal, 2048, 12, 64 },
    { "causal 4096 d64", mask_causal, 4096, 12, 64 },
    { "causal 8192 d64", mask_causal, 8192, 12, 64 },
    { "causal 16384 d64", mask_causal, 16384, 12, 64 },
    { "causal 256 d128", mask_causal, 256, 12, 128 },
    { "causal 1024 d128", mask_causal, 1024, 12, 128 },
    { "causal 2048 d128", mask_causal, 2048, 12, 128 },
    { "causal 4096 d128", mask_causal, 4096, 12, 128 },
    { "causal 16384 d128", mask_causal, 16384, 12, 128 },
    { "documents 4096 d64", mask_documents, 4096, 12, 64 },
    { "documents 4096 d128", mask_documents, 4096, 12, 128 },
    { "window 4096 d64", mask_window, 4096, 12, 64 },
    { "window 4096 d128", mask_window, 4096, 12, 128 },
    { "window 16384 d64", mask_window, 16384, 12, 64 },
};

typedef struct tensors {
    float *q, *k, *v, *out, *lse, *dout, *dq, *dk, *dv;
} tensors;

static tensors tensors_create(const line *l)
{
    size_t n = l->tokens * l->heads * l->head_dim;
    return (tensors){ bench_floats(n),
                      bench_floats(n),
                      bench_floats(n),
                      bench_floats(n),
                      bench_floats(l->tokens * l->heads),
                      bench_floats(n),
                      bench_floats(n),
                      bench_floats(n),
                      bench_floats(n) };
}

static void tensors_free(tensors *t)
{
    float *all[] = { t->q,    t->k,  t->v,  t->out, t->lse,
                     t->dout, t->dq, t->dk, t->dv };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

static bauta_context *context_create(const options *o)
{
    bauta_error err;
    bauta_context *context;
    bauta_options wanted = BAUTA_OPTIONS_INIT;
    wanted.threads = o->threads;
    wanted.isa = o->isa;
    must(bauta_context_create(&context, &wanted, &err), &err);
    return context;
}

static void line_print(const options *o, const char *name, double forward,
                       double backward, double flop, double peak)
{
    double f = flop / forward * 1e-9, b = 2.5 * flop / backward * 1e-9;
    if (o->json)
        printf("{\"name\":\"%s\",\"threads\":%d,\"forward_ms\":%.3f,"
               "\"backward_ms\":%.3f,\"forward_gflops\":%.1f,"
               "\"backward_gflops\":%.1f,\"peak_gflops\":%.1f}\n",
               name, o->threads, forward * 1e3, backward * 1e3, f, b, peak);
    else
        printf("%-22s %7d %11.2f %7.1f %5.1f %% %11.2f %7.1f %5.1f %%\n", name,
               o->threads, forward * 1e3, f, 100 * f / peak, backward * 1e3, b,
               100 * b / peak);
    fflush(stdout);
}

static void line_run(const options *o, const line *l)
{
    bauta_error err;
    bauta_plan *plan;
    bauta_mask *mask = l->mask(l->tokens);
    bauta_context *context = context_create(o);
    bauta_attention_shape s = BAUTA_ATTENTION_SHAPE_INIT;
    tensors t = tensors_create(l);
    double forward[SAMPLES], backward[SAMPLES], peak[SAMPLES];
    size_t n = 0;
    s.heads = l->heads;
    s.head_dim = l->head_dim;
    must(bauta_plan_create(&plan, mask, 0, l->tokens, &err), &err);
    double began = bench_now();
    for (size_t turn = 0;
         n < 3 || (bench_now() - began < o->seconds && n < SAMPLES); turn++) {
        peak[n] = bench_peak(context->pool, o->isa);
        double start = bench_now();
        must(bauta_attention_forward(context, plan, &s, t.q, t.k, t.v, t.out,
                                     t.lse, &err),
             &err);
        double middle = bench_now();
        must(bauta_attention_backward(context, plan, &s, t.q, t.k, t.v, t.out,
                                      t.lse, t.dout, t.dq, t.dk, t.dv, &err),
             &err);
        forward[n] = middle - start;
        backward[n] = bench_now() - middle;
        n += turn > 0; // the first call touches new pages
    }
    double flop =
        4.0 * (double)bauta_mask_pairs(mask) * (double)(l->heads * l->head_dim);
    line_print(o, l->name, bench_time(forward, n, o->best),
               bench_time(backward, n, o->best), flop,
               bench_rate(peak, n, o->best));
    tensors_free(&t);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    bauta_context_free(context);
}

/* ---- decoding ---------------------------------------------------------- */

typedef struct decode_line {
    const char *name;
    size_t keys, heads, kv_heads, head_dim;
} decode_line;

static const decode_line decode_lines[] = {
    { "decode 32768 12x64", 32768, 12, 12, 64 },
    { "decode 32768 8x128", 32768, 8, 8, 128 },
    { "decode 32768 32:8x128", 32768, 32, 8, 128 },
};

static bauta_kv_cache *cache_fill(const decode_line *l,
                                  const bauta_attention_shape *s,
                                  const float *some)
{
    bauta_error err;
    bauta_kv_cache *cache;
    must(bauta_kv_cache_create(&cache, s, l->keys, &err), &err);
    for (size_t t = 0; t < l->keys; t++)
        must(bauta_kv_cache_append(cache, s, 1, some + t % 61, some + t % 67,
                                   &err),
             &err);
    return cache;
}

static void decode_run(const options *o, const decode_line *l)
{
    bauta_error err;
    bauta_mask *mask;
    bauta_attention_shape s = BAUTA_ATTENTION_SHAPE_INIT;
    s.heads = l->heads;
    s.kv_heads = l->kv_heads;
    s.head_dim = l->head_dim;
    size_t floats = 2 * l->keys * l->kv_heads * l->head_dim;
    float *some = bench_floats(floats), *out = bench_floats(1 << 14);
    bauta_kv_cache *cache = cache_fill(l, &s, some);
    bauta_context *context = context_create(o);
    double step[SAMPLES], read[SAMPLES];
    size_t n = 0;
    must(bauta_mask_causal(&mask, 1, l->keys, &err), &err);
    double began = bench_now();
    for (size_t turn = 0;
         n < 3 || (bench_now() - began < o->seconds && n < SAMPLES); turn++) {
        bauta_plan *plan;
        read[n] = bench_read(some, floats, o->threads);
        double start = bench_now();
        must(bauta_plan_create(&plan, mask, 0, 1, &err), &err);
        must(bauta_attention_cached(context, plan, &s, some, cache, out, NULL,
                                    &err),
             &err);
        bauta_plan_free(plan);
        step[n] = bench_now() - start;
        n += turn > 0;
    }
    double seconds = bench_time(step, n, o->best);
    double limit = bench_rate(read, n, o->best);
    double rate = (double)floats * sizeof(float) / seconds * 1e-9;
    if (o->json)
        printf("{\"name\":\"%s\",\"threads\":%d,\"ms\":%.3f,\"gbs\":%.2f,"
               "\"read_gbs\":%.2f}\n",
               l->name, o->threads, seconds * 1e3, rate, limit);
    else
        printf("%-22s %7d %11.2f ms, %.1f GB/s, %.1f %% of reading\n", l->name,
               o->threads, seconds * 1e3, rate, 100 * rate / limit);
    free(some);
    free(out);
    bauta_kv_cache_free(cache);
    bauta_context_free(context);
    bauta_mask_free(mask);
}

/* ---- memory ------------------------------------------------------------ */

static size_t held, most;

static void *counting_alloc(void *user, size_t align, size_t size)
{
    (void)user;
    size_t *memory =
        aligned_alloc(align, (size + 2 * align - 1) / align * align);
    if (!memory)
        return NULL;
    *memory = size; // a header of one cache line holds the size
    held += size;
    most = held > most ? held : most;
    return (char *)memory + align;
}

static void counting_free(void *user, void *memory)
{
    (void)user;
    size_t *front = (size_t *)(void *)((char *)memory - 64);
    held -= *front;
    free(front);
}

/* The forward pass over a long text: its memory beyond inputs and outputs. */
static void memory_run(const options *o)
{
    static const bauta_allocator counting = { counting_alloc, counting_free,
                                              NULL };
    enum { TOKENS = 131072, HEADS = 4, DIM = 64 };
    bauta_error err;
    bauta_plan *plan;
    bauta_attention_shape s = BAUTA_ATTENTION_SHAPE_INIT;
    s.heads = HEADS;
    s.head_dim = DIM;
    bauta_allocator_set(&counting);
    bauta_mask *mask = mask_causal(TOKENS);
    bauta_context *context = context_create(o);
    size_t n = (size_t)TOKENS * HEADS * DIM;
    float *q = bench_floats(n), *k = bench_floats(n), *v = bench_floats(n);
    float *out = bench_floats(n), *lse = bench_floats(TOKENS * HEADS);
    must(bauta_plan_create(&plan, mask, 0, TOKENS, &err), &err);
    double start = bench_now();
    must(bauta_attention_forward(context, plan, &s, q, k, v, out, lse, &err),
         &err);
    double seconds = bench_now() - start;
    double mib = (double)most / 1048576;
    double flop = 4.0 * (double)bauta_mask_pairs(mask) * HEADS * DIM;
    if (o->json)
        printf("{\"name\":\"memory 131072 4x64\",\"threads\":%d,\"mib\":%.1f,"
               "\"forward_ms\":%.1f}\n",
               o->threads, mib, seconds * 1e3);
    else
        printf("memory 131072 4x64     %7d  forward needs %.1f MiB beyond "
               "inputs and outputs (%.1f s, %.1f GFLOP/s)\n",
               o->threads, mib, seconds, flop / seconds * 1e-9);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    bauta_context_free(context);
    bauta_allocator_set(NULL);
    free(q);
    free(k);
    free(v);
    free(out);
    free(lse);
}

/* ---- the program ------------------------------------------------------- */

static int wanted(const options *o, const char *name)
{
    return !o->only || strstr(name, o->only);
}

static void threads_run(const options *o)
{
    if (!o->json)
        printf("%-22s %7s %11s %7s %7s %11s %7s %7s\n", "mask, tokens, head",
               "threads", "forward ms", "GFLOP/s", "peak", "backward ms",
               "GFLOP/s", "peak");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (wanted(o, lines[i].name))
            line_run(o, &lines[i]);
    for (size_t i = 0; i < sizeof(decode_lines) / sizeof(decode_lines[0]); i++)
        if (wanted(o, decode_lines[i].name))
            decode_run(o, &decode_lines[i]);
}

int main(int argc, char **argv)
{
    options o = { .threads = 0, .seconds = 2 };
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            o.json = 1;
            continue;
        }
        if (strcmp(argv[i], "--best") == 0) {
            o.best = 1;
            continue;
        }
        if (strcmp(argv[i], "--threads") == 0)
            o.threads = atoi(value);
        else if (strcmp(argv[i], "--isa") == 0)
            o.isa = value;
        else if (strcmp(argv[i], "--only") == 0)
            o.only = value;
        else if (strcmp(argv[i], "--seconds") == 0)
            o.seconds = atof(value);
        else {
            fprintf(stderr, "usage: bench_attention [--threads N] [--isa NAME] "
                            "[--only TEXT] [--seconds S] [--best] "
                            "[--json]\n");
            return 2;
        }
        i++;
    }
    if (o.threads) {
        threads_run(&o);
    } else { // one thread, then all
        o.threads = 1;
        threads_run(&o);
        o.threads = bt_threads_available();
        if (o.threads > 1)
            threads_run(&o);
    }
    if (wanted(&o, "memory"))
        memory_run(&o);
    return 0;
}
