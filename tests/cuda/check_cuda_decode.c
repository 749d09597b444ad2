/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_decode.c - the GPU's decoding against a float64 reference.
 *
 * A case is a batch of sequences of odd lengths under one kind of mask, in a
 * pool of pages in random order, in which everything that no row sees is NaN.
 * Outputs are poisoned before each run. Checked are:
 *
 *   accuracy      within a bound derived from the arithmetic (see bound_of)
 *   empty rows    out 0, lse -infinity
 *   same bits     from run to run; with any number of workers; with other
 *                 pages, of another size and layout; each sequence alone; each
 *                 query alone (check_cuda_same.c compares with the forward
 *                 pass); with early reads, the kernel before writes the new
 *                 tokens
 *   the hidden    NaN, infinity and huge values that one query sees and
 *                 another one does not change no bit of the latter */
#include "backend/cuda/decode.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/step_graph.h"
#include "mask/mask.h"
#include "masks.h"

#include <time.h>

/* ---- a problem --------------------------------------------------------- */

enum { SEQUENCES = 4 };

/* A sequence with its keys in a row: k, v (keys, kv_heads, d). */
typedef struct sequence {
    bauta_mask *mask;
    size_t first, rows, keys;
    uint16_t *k, *v;
} sequence;

typedef struct problem {
    char name[96];
    size_t heads, kv_heads, d, count, rows;
    size_t q_token, out_token;
    sequence sequence[SEQUENCES];
    uint16_t *q; /* (rows, q_token) */
} problem;

typedef struct result {
    uint16_t *out;
    float *lse;
} result;

static void add_sequence(problem *p, bauta_mask *mask, size_t rows)
{
    size_t n = bauta_mask_queries(mask), m = bauta_mask_keys(mask);
    size_t size = m * p->kv_heads * p->d;
    p->sequence[p->count++] = (sequence){ mask,
                                          n - rows,
                                          rows,
                                          m,
                                          random_bf16(size, 2.0f),
                                          random_bf16(size, 2.0f) };
    p->rows += rows;
}

static void problem_free(problem *p)
{
    for (size_t s = 0; s < p->count; s++) {
        bauta_mask_free(p->sequence[s].mask);
        free(p->sequence[s].k);
        free(p->sequence[s].v);
    }
    free(p->q);
}

static void result_free(result *r)
{
    free(r->out);
    free(r->lse);
}

/* The layout of a run; it must not affect the result. */
typedef struct setting {
    size_t page_keys, workers; /* 0: as many as the GPU has */
    bool tokens_outside;       /* pages are (page_keys, kv_heads, d) */
} setting;

/* The keys of a sequence that a step finds in its pages; the others are those
 * of its own tokens. */
static size_t old_keys(const sequence *s)
{
    size_t queries = bauta_mask_queries(s->mask) - s->first;
    return s->keys > queries ? s->keys - queries : 0;
}

/* ---- the pool ---------------------------------------------------------- */

typedef struct pool {
    bt_cuda_pages pages; /* on the device */
    uint16_t *k, *v;     /* on the host */
    size_t size;         /* elements */
    uint32_t *table[SEQUENCES];
} pool;

/* Pages in random order, some of them unused. */
static void deal_pages(pool *o, const problem *p)
{
    size_t keys = o->pages.page_keys, total = 3, next = 0;
    for (size_t s = 0; s < p->count; s++)
        total += p->sequence[s].keys / keys + 1;
    uint32_t *deck = malloc(total * sizeof(*deck));
    for (size_t i = 0; i < total; i++)
        deck[i] = (uint32_t)i;
    for (size_t i = total; i > 1; i--) {
        size_t j = below(i);
        uint32_t swap = deck[i - 1];
        deck[i - 1] = deck[j];
        deck[j] = swap;
    }
    for (size_t s = 0; s < p->count; s++) {
        size_t count = p->sequence[s].keys / keys + 1;
        o->table[s] = malloc(count * sizeof(*deck));
        memcpy(o->table[s], deck + next, count * sizeof(*deck));
        next += count;
    }
    free(deck);
    o->pages.pages = total;
}

static bool seen_by_any(const sequence *s, size_t key)
{
    for (size_t i = 0; i < s->rows; i++)
        if (bauta_mask_visible(s->mask, s->first + i, key))
            return true;
    return false;
}

/* Copy the keys that some row sees; the rest of the pool stays NaN. */
static void fill_pool(pool *o, const problem *p)
{
    size_t d = p->d, keys = o->pages.page_keys;
    for (size_t s = 0; s < p->count; s++)
        for (size_t j = 0; j < p->sequence[s].keys; j++) {
            const sequence *from = &p->sequence[s];
            if (!seen_by_any(from, j))
                continue;
            for (size_t h = 0; h < p->kv_heads; h++) {
                size_t to = o->table[s][j / keys] * o->pages.page +
                            h * o->pages.head + j % keys * o->pages.token;
                memcpy(o->k + to, from->k + (j * p->kv_heads + h) * d, d * 2);
                memcpy(o->v + to, from->v + (j * p->kv_heads + h) * d, d * 2);
            }
        }
}

static pool pool_make(const problem *p, const setting *set)
{
    pool o = { .pages = { .page_keys = set->page_keys } };
    size_t keys = set->page_keys, d = p->d;
    deal_pages(&o, p);
    o.pages.page = p->kv_heads * keys * d;
    o.pages.head = set->tokens_outside ? d : keys * d;
    o.pages.token = set->tokens_outside ? p->kv_heads * d : d;
    o.size = o.pages.pages * o.pages.page;
    o.k = malloc(o.size * 2);
    o.v = malloc(o.size * 2);
    memset(o.k, 0xff, o.size * 2);
    memset(o.v, 0xff, o.size * 2);
    fill_pool(&o, p);
    o.pages.k = to_device(o.k, o.size * 2);
    o.pages.v = to_device(o.v, o.size * 2);
    if (!set->tokens_outside)
        o.pages.page = o.pages.head = o.pages.token = 0;
    return o;
}

static void pool_free(pool *o)
{
    cudaFree((void *)o->pages.k);
    cudaFree((void *)o->pages.v);
    free(o->k);
    free(o->v);
    for (size_t s = 0; s < SEQUENCES; s++)
        free(o->table[s]);
}

/* ---- running ----------------------------------------------------------- */

static bauta_attention_shape shape_of(const problem *p)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    shape.heads = p->heads;
    shape.kv_heads = p->kv_heads;
    shape.head_dim = p->d;
    shape.q_token = p->q_token;
    shape.out_token = p->out_token;
    return shape;
}

/* The tokens that a step writes, as rows and their places, on the device. */
typedef struct new_tokens {
    size_t rows;
    uint16_t *k, *v;
    bt_cuda_kv_place *places;
} new_tokens;

/* Take the new tokens of all sequences out of the pool: they become NaN. */
static new_tokens take_new(pool *o, const problem *p)
{
    size_t width = p->kv_heads * p->d, page_keys = o->pages.page_keys, rows = 0;
    size_t token = o->pages.token ? o->pages.token : p->d;
    size_t head = o->pages.head ? o->pages.head : page_keys * p->d;
    size_t page = o->size / o->pages.pages;
    for (size_t s = 0; s < p->count; s++)
        rows += p->sequence[s].keys - old_keys(&p->sequence[s]);
    uint16_t *k = malloc(rows * width * 2 + 1),
             *v = malloc(rows * width * 2 + 1);
    bt_cuda_kv_place *places = malloc(rows * sizeof(*places) + 1);
    rows = 0;
    for (size_t s = 0; s < p->count; s++)
        for (size_t j = old_keys(&p->sequence[s]); j < p->sequence[s].keys;
             j++, rows++) {
            const sequence *from = &p->sequence[s];
            uint32_t number = o->table[s][j / page_keys];
            places[rows] =
                (bt_cuda_kv_place){ seen_by_any(from, j) ? number : UINT32_MAX,
                                    (uint32_t)(j % page_keys) };
            memcpy(k + rows * width, from->k + j * width, width * 2);
            memcpy(v + rows * width, from->v + j * width, width * 2);
            for (size_t h = 0; h < p->kv_heads; h++) {
                size_t at = number * page + h * head + j % page_keys * token;
                memset(o->k + at, 0xff, p->d * 2);
                memset(o->v + at, 0xff, p->d * 2);
            }
        }
    new_tokens n = { rows, to_device(k, rows * width * 2),
                     to_device(v, rows * width * 2),
                     to_device(places, rows * sizeof(*places)) };
    free(k);
    free(v);
    free(places);
    return n;
}

static void write_new(const new_tokens *n, const pool *o, const problem *p,
                      cudaStream_t queue)
{
    bauta_error err = { 0 };
    size_t page_keys = o->pages.page_keys;
    bt_cuda_kv_write_args args = {
        .dtype = BAUTA_BFLOAT16,
        .rows = n->rows,
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .dim = p->d,
        .k = { n->k, p->kv_heads * p->d },
        .v = { n->v, p->kv_heads * p->d },
        .pages = { (void *)o->pages.k, (void *)o->pages.v,
                   o->size / o->pages.pages,
                   o->pages.head ? o->pages.head : page_keys * p->d,
                   o->pages.token ? o->pages.token : p->d },
        .places = n->places,
    };
    need(bt_cuda_kv_write(&args, queue, &err), &err);
}

/* What a launch reads and writes, on the device. */
typedef struct rows_of_step {
    const uint16_t *q;
    uint16_t *out;
    float *lse;
} rows_of_step;

static void attend(const problem *p, bt_cuda_decode *decode, const pool *o,
                   const rows_of_step *rows, cudaStream_t queue)
{
    bauta_error err = { 0 };
    bauta_attention_shape shape = shape_of(p);
    need(bt_attention_decode_bf16_cuda(decode, &shape, rows->q, &o->pages,
                                       rows->out, rows->lse, queue, &err),
         &err);
}

static void pause_queue(void *unused)
{
    const struct timespec time = { .tv_nsec = 300000 };
    (void)unused;
    nanosleep(&time, NULL);
}

/* Some launches, and one more whose new tokens the kernel before it writes. All
 * of them are queued before the first one runs, as parts of a step, in which
 * both kernels may start while the launch before them still runs. */
static void attend_early(const problem *p, bt_cuda_decode *decode,
                         const pool *o, const rows_of_step *rows,
                         const new_tokens *fresh)
{
    cudaStream_t queue;
    bt_cuda_steps *steps = bt_cuda_steps_create();
    need_cuda(steps ? cudaSuccess : cudaErrorMemoryAllocation, "steps");
    need_cuda(cudaStreamCreate(&queue), "cudaStreamCreate");
    need_cuda(cudaLaunchHostFunc(queue, pause_queue, NULL), "a pause");
    if (!bt_cuda_step_begin(steps, queue, 1))
        FAIL("%s: no step has begun", p->name);
    for (int i = 0; i < 3; i++)
        attend(p, decode, o, rows, queue);
    write_new(fresh, o, p, queue);
    attend(p, decode, o, rows, queue);
    need_cuda((cudaError_t)bt_cuda_step_end(steps), "a step");
    need_cuda(cudaStreamSynchronize(queue), p->name);
    bt_cuda_steps_free(steps);
    cudaStreamDestroy(queue);
}

/* Launch `times` times on one step; outputs start as a NaN that no kernel
 * produces. `fresh`: as attend_early does, to write these tokens; NULL: they
 * are there. */
static result launch(const problem *p, bt_cuda_decode *decode, const pool *o,
                     const uint16_t *q_host, size_t rows, int times,
                     const new_tokens *fresh)
{
    size_t out_size = rows * p->out_token, lse_size = rows * p->heads;
    result r = { malloc(out_size * 2 + 1), malloc(lse_size * 4 + 1) };
    memset(r.out, 0x7f, out_size * 2);
    memset(r.lse, 0xff, lse_size * 4);
    rows_of_step on_device = { to_device(q_host, rows * p->q_token * 2),
                               to_device(r.out, out_size * 2),
                               to_device(r.lse, lse_size * 4) };
    if (fresh)
        attend_early(p, decode, o, &on_device, fresh);
    else
        for (int i = 0; i < times; i++)
            attend(p, decode, o, &on_device, NULL);
    need_cuda(cudaDeviceSynchronize(), p->name);
    need_cuda(
        cudaMemcpy(r.out, on_device.out, out_size * 2, cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    need_cuda(
        cudaMemcpy(r.lse, on_device.lse, lse_size * 4, cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    cudaFree((void *)on_device.q);
    cudaFree(on_device.out);
    cudaFree(on_device.lse);
    return r;
}

/* Queries [first, first + rows) of sequences [from, from + count). */
typedef struct slice {
    size_t from, count, first, rows;
} slice;

static const slice everything = { 0, SEQUENCES, 0, SIZE_MAX };

static result run_slice(const problem *p, const pool *o, const setting *set,
                        slice part, int times)
{
    bauta_error err = { 0 };
    bauta_attention_shape shape = shape_of(p);
    bt_cuda_decode *decode = NULL;
    bt_decode_sequence sequences[SEQUENCES];
    size_t at = 0, rows = 0, count = 0;
    for (size_t s = 0; s < p->count; s++) {
        const sequence *from = &p->sequence[s];
        if (s < part.from)
            at += from->rows;
        if (s < part.from || s >= part.from + part.count)
            continue;
        size_t some = part.rows == SIZE_MAX ? from->rows : part.rows;
        sequences[count++] =
            (bt_decode_sequence){ from->mask, from->first + part.first, some,
                                  o->table[s] };
        rows += some;
    }
    need(bt_cuda_decode_create(&decode, &shape, set->page_keys, &err), &err);
    if (set->workers)
        decode->device.multiprocessors = (int)set->workers;
    need(bt_cuda_decode_step(decode, sequences, count, NULL, &err), &err);
    result r = launch(p, decode, o, p->q + (at + part.first) * p->q_token, rows,
                      times, NULL);
    bt_cuda_decode_free(decode);
    return r;
}

static result run(const problem *p, const setting *set)
{
    pool o = pool_make(p, set);
    result r = run_slice(p, &o, set, everything, 1);
    pool_free(&o);
    return r;
}

/* ---- the reference ----------------------------------------------------- */

/* One row of one head in float64: out and magnitude (sum of weight * |v|) over
 * columns, lse, and the largest sum of |q| |k| among the visible keys. */
typedef struct exact {
    double out[256], magnitude[256], lse, reach;
    size_t seen;
} exact;

static double score(const problem *p, const uint16_t *q, const uint16_t *k,
                    double *reach)
{
    double x = 0.0, scale = 1.0 / sqrt((double)p->d);
    *reach = 0.0;
    for (size_t c = 0; c < p->d; c++) {
        double product = (double)from_bf16(q[c]) * (double)from_bf16(k[c]);
        x += product * scale;
        *reach += fabs(product) * scale;
    }
    return x;
}

static void reference(exact *e, const problem *p, const sequence *s, size_t i,
                      const uint16_t *q, size_t kv)
{
    size_t spans, width = p->kv_heads * p->d;
    const bauta_span *span = bauta_mask_row(s->mask, s->first + i, &spans);
    double max = -INFINITY, sum = 0.0, reach;

    *e = (exact){ .lse = -INFINITY };
    for (int pass = 0; pass < 2; pass++)
        for (size_t a = 0; a < spans; a++)
            for (size_t j = span[a].lo; j < span[a].hi; j++) {
                const uint16_t *v = s->v + j * width + kv * p->d;
                double x = score(p, q, s->k + j * width + kv * p->d, &reach);
                if (pass == 0) {
                    max = fmax(max, x);
                    e->reach = fmax(e->reach, reach);
                    e->seen++;
                    continue;
                }
                double weight = exp(x - max);
                sum += weight;
                for (size_t c = 0; c < p->d; c++) {
                    e->out[c] += weight * (double)from_bf16(v[c]);
                    e->magnitude[c] += weight * fabs((double)from_bf16(v[c]));
                }
            }
    if (!e->seen)
        return;
    for (size_t c = 0; c < p->d; c++) {
        e->out[c] /= sum;
        e->magnitude[c] /= sum;
    }
    e->lse = max + log(sum);
}

/* How far a result may be from the reference, as in check_cuda.c: the scores in
 * float32 on the tensor cores, weights as bf16 (2^-8), sums in float32, the
 * result as bf16. Chunks that are merged cost less than one long sum does. */
static double score_error(const exact *e, size_t d)
{
    return e->reach * ((double)d * 0x1p-22 + 0x1p-21) + 0x1p-20;
}

static double bound_of(const exact *e, size_t column, size_t d)
{
    double weight = 2.0 * score_error(e, d) + 0x1p-8;
    double sums = (double)e->seen * 0x1p-22;
    return e->magnitude[column] * (weight + sums) +
           fabs(e->out[column]) * 0x1.01p-8 + 0x1p-130;
}

static double check_row(const problem *p, const result *r, const exact *e,
                        size_t row, size_t head)
{
    double worst = 0.0;
    float lse = r->lse[row * p->heads + head];
    double lse_bound = score_error(e, p->d) + (double)e->seen * 0x1p-22 +
                       fabs(e->lse) * 0x1p-21;
    if (!(e->seen ? fabs((double)lse - e->lse) <= lse_bound : lse == -INFINITY))
        FAIL("%s: lse of row %zu head %zu is %g, want %g", p->name, row, head,
             (double)lse, e->lse);
    for (size_t c = 0; c < p->d; c++) {
        float got = from_bf16(r->out[row * p->out_token + head * p->d + c]);
        double off = fabs((double)got - e->out[c]);
        double bound = e->seen ? bound_of(e, c, p->d) : 0.0;
        if (!(off <= bound))
            FAIL("%s: out of row %zu head %zu column %zu is %g, want %g within "
                 "%g",
                 p->name, row, head, c, (double)got, e->out[c], bound);
        if (bound > 0.0)
            worst = fmax(worst, off / bound);
    }
    return worst;
}

static double check_accuracy(const problem *p, const result *r)
{
    double worst = 0.0;
    size_t at = 0;
    for (size_t s = 0; s < p->count; at += p->sequence[s++].rows) {
        const sequence *from = &p->sequence[s];
#pragma omp parallel for collapse(2) schedule(dynamic) reduction(max : worst)
        for (size_t i = 0; i < from->rows; i++)
            for (size_t head = 0; head < p->heads; head++) {
                exact e;
                reference(&e, p, from, i,
                          p->q + (at + i) * p->q_token + head * p->d,
                          head / (p->heads / p->kv_heads));
#pragma omp critical
                worst = fmax(worst, check_row(p, r, &e, at + i, head));
            }
    }
    checks++;
    return worst;
}

/* The gaps between tokens in out must be unwritten. */
static void check_gaps(const problem *p, const result *r)
{
    for (size_t i = 0; i < p->rows; i++)
        for (size_t c = p->heads * p->d; c < p->out_token; c++)
            if (r->out[i * p->out_token + c] != 0x7f7f) {
                FAIL("%s: wrote after the heads of row %zu", p->name, i);
                return;
            }
    checks++;
}

/* Rows [0, rows) of b equal rows [first, ...) of a, bit for bit. b is freed. */
static void check_same(const problem *p, const char *what, const result *a,
                       size_t first, result b, size_t rows)
{
    checks++;
    for (size_t i = 0; i < rows; i++) {
        if (memcmp(a->out + (first + i) * p->out_token,
                   b.out + i * p->out_token, p->heads * p->d * 2) == 0 &&
            memcmp(a->lse + (first + i) * p->heads, b.lse + i * p->heads,
                   p->heads * 4) == 0)
            continue;
        FAIL("%s: %s: row %zu has other bits", p->name, what, first + i);
        break;
    }
    result_free(&b);
}

/* ---- threads, ISA and layout ------------------------------------------- */

static void check_circumstances(const problem *p, const result *r)
{
    static const setting settings[] = {
        { 64, 1, false },  { 64, 3, false },   { 64, 40, false },
        { 64, 900, true }, { 128, 0, false },  { 512, 17, true },
        { 64, 132, true }, { 1024, 0, false },
    };
    const setting usual = { 64, 0, false };
    pool o = pool_make(p, &usual);
    check_same(p, "three times", r, 0, run_slice(p, &o, &usual, everything, 3),
               p->rows);
    for (size_t s = 0, at = 0; s < p->count; at += p->sequence[s++].rows) {
        size_t rows = p->sequence[s].rows, i = below(rows);
        slice alone = { s, 1, 0, SIZE_MAX }, query = { s, 1, i, 1 };
        check_same(p, "a sequence alone", r, at,
                   run_slice(p, &o, &usual, alone, 1), rows);
        check_same(p, "a query alone", r, at + i,
                   run_slice(p, &o, &usual, query, 1), 1);
    }
    pool_free(&o);
    for (size_t x = 0; x < 4; x++)
        check_same(p, "laid out otherwise", r, 0,
                   run(p, &settings[below(BT_LEN(settings))]), p->rows);
}

/* ---- early reads ------------------------------------------------------- */

/* A step whose tokens are written by the kernel before it, three times, each
 * time to pages in which they are NaN. */
static void check_early(const problem *p, const result *r)
{
    static const setting settings[] = { { 64, 0, false },
                                        { 128, 3, true },
                                        { 512, 17, false } };
    const setting *set = &settings[below(BT_LEN(settings))];
    bauta_error err = { 0 };
    bauta_attention_shape shape = shape_of(p);
    bt_cuda_decode *decode = NULL;
    bt_decode_sequence sequences[SEQUENCES];
    pool o = pool_make(p, set);
    new_tokens n = take_new(&o, p);
    for (size_t s = 0; s < p->count; s++)
        sequences[s] =
            (bt_decode_sequence){ p->sequence[s].mask, p->sequence[s].first,
                                  p->sequence[s].rows, o.table[s] };
    need(bt_cuda_decode_create(&decode, &shape, set->page_keys, &err), &err);
    if (set->workers)
        decode->device.multiprocessors = (int)set->workers;
    need(bt_cuda_decode_step(decode, sequences, p->count, NULL, &err), &err);
    o.pages.early_reads = true;
    for (int i = 0; i < 3; i++) {
        need_cuda(cudaMemcpy((void *)o.pages.k, o.k, o.size * 2,
                             cudaMemcpyHostToDevice),
                  "cudaMemcpy");
        need_cuda(cudaMemcpy((void *)o.pages.v, o.v, o.size * 2,
                             cudaMemcpyHostToDevice),
                  "cudaMemcpy");
        check_same(p, "new tokens, early reads", r, 0,
                   launch(p, decode, &o, p->q, p->rows, 1, &n), p->rows);
    }
    cudaFree(n.k);
    cudaFree(n.v);
    cudaFree(n.places);
    bt_cuda_decode_free(decode);
    pool_free(&o);
}

/* ---- hidden values ----------------------------------------------------- */

/* Poison the keys or the values of one key of a sequence: queries that do not
 * see it keep their bits, those that do show a NaN. */
static void check_poison(problem *p, const result *clean, bool keys)
{
    size_t which = below(p->count), width = p->kv_heads * p->d, at = 0;
    sequence *s = &p->sequence[which];
    size_t j = below(s->keys);
    for (size_t i = 0; i < which; i++)
        at += p->sequence[i].rows;
    // A key that only some of the queries see, if there is one.
    for (size_t x = 0; x < 200; x++) {
        size_t sees = 0, try = below(s->keys);
        for (size_t i = 0; i < s->rows; i++)
            sees += bauta_mask_visible(s->mask, s->first + i, try);
        if (sees && sees < s->rows) {
            j = try;
            break;
        }
    }
    uint16_t *tensor = keys ? s->k : s->v, saved[16 * 256];
    uint16_t poison = poisons[below(keys ? POISON_NANS : BT_LEN(poisons))];
    memcpy(saved, tensor + j * width, width * 2);
    for (size_t c = 0; c < width; c++)
        tensor[j * width + c] = poison;
    const setting usual = { 64, 0, false };
    result r = run(p, &usual);
    bool nan = poison == 0x7fc0 || poison == 0xffff;
    for (size_t i = 0; i < p->rows; i++) {
        bool sees = i >= at && i < at + s->rows &&
                    bauta_mask_visible(s->mask, s->first + i - at, j);
        for (size_t c = 0; c < p->heads * p->d; c++) {
            uint16_t got = r.out[i * p->out_token + c];
            uint16_t was = clean->out[i * p->out_token + c];
            bool is_nan = (got & 0x7fff) > 0x7f80;
            if (sees ? nan && !is_nan : got != was) {
                FAIL("%s: key %zu is %04x: row %zu column %zu is %04x, was "
                     "%04x",
                     p->name, j, poison, i, c, got, was);
                break;
            }
        }
    }
    checks++;
    result_free(&r);
    memcpy(tensor + j * width, saved, width * 2);
}

/* ---- the masks --------------------------------------------------------- */

/* Two documents, then with the origins removed: a cache has none. */
static bauta_mask *make_documents(size_t n, size_t m)
{
    size_t queries[2] = { n / 2, n - n / 2 }, keys[2] = { m / 3, m - m / 3 };
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    need(bauta_mask_documents(&mask, 2, queries, keys, &err), &err);
    return inverse(inverse(mask));
}

/* Some spans, long and short, with long gaps: tiles and chunks of which nothing
 * is seen. */
static size_t random_row(void *user, size_t query, bauta_span *spans,
                         size_t capacity)
{
    size_t keys = *(const size_t *)user, count = 0, at = 0;
    test_random r = test_random_from(query * 1000003 + keys);
    while (at < keys && count < capacity) {
        size_t lo = at + test_below(&r, query % 3 ? 90 : keys);
        size_t hi = lo + 1 + test_below(&r, query % 2 ? 9 : 700);
        if (hi > keys)
            break;
        spans[count++] = (bauta_span){ lo, hi };
        at = hi + 1;
    }
    return count;
}

static bauta_mask *make_spans(size_t n, size_t m)
{
    MAKE(bauta_mask_rows(&mask, n, m, random_row, &m, &err));
}

static const struct {
    const char *name;
    make_fn *make;
    bool quick;
} kinds[] = {
    { "all", make_all, false },
    { "causal", make_causal, false },
    { "window", make_window, false },
    { "window_of_one", make_window_one, false },
    { "prefix", make_prefix, false },
    { "sinks_or_window", make_sinks, true },
    { "not_window", make_not_window, false },
    { "documents", make_documents, false },
    { "dense_with_empty_rows", make_dense, false },
    { "random_spans", make_spans, true },
};

/* ---- the cases --------------------------------------------------------- */

static const struct {
    size_t heads, kv_heads, rows, extra; /* rows: at most, a sequence */
    size_t keys[SEQUENCES];
} sizes[] = {
    { 1, 1, 1, 0, { 1, 63, 64, 65 } },
    { 8, 2, 1, 0, { 300, 1000, 2048, 2049 } },
    { 16, 4, 1, 8, { 7001, 257, 4096, 511 } },
    { 3, 1, 4, 0, { 100, 1500, 64, 3000 } },
    { 5, 1, 1, 16, { 10, 900, 5000, 129 } },
    { 16, 2, 2, 0, { 640, 2500, 33, 4100 } },
    { 16, 1, 3, 0, { 700, 64, 2100, 1 } },
    { 2, 2, 16, 0, { 129, 2050, 77, 640 } },
    { 8, 2, 5, 24, { 513, 66, 4400, 255 } },
    { 48, 2, 2, 0, { 300, 4097, 64, 2100 } },
    { 64, 1, 1, 8, { 2049, 70, 5000, 1 } },
};

static problem problem_make(const char *kind, make_fn *make, size_t size,
                            size_t d)
{
    problem p = { .heads = sizes[size].heads,
                  .kv_heads = sizes[size].kv_heads,
                  .d = d };
    snprintf(p.name, sizeof(p.name), "%s_%zu_d%zu", kind, size, d);
    p.q_token = p.heads * d + sizes[size].extra;
    p.out_token = p.heads * d + 2 * sizes[size].extra;
    for (size_t s = 0; s < SEQUENCES; s++) {
        size_t rows = 1 + below(sizes[size].rows);
        add_sequence(&p, make(rows + below(3), sizes[size].keys[s]), rows);
    }
    p.q = random_bf16(p.rows * p.q_token, 3.0f);
    return p;
}

/* The cases for a race detector: every kernel, with early reads as well. */
static int check_races(size_t d)
{
    static const size_t watched[] = { 1, 3, 7, 9 };
    const setting usual = { 64, 0, false };
    for (size_t i = 0; i < BT_LEN(watched); i++) {
        problem p = problem_make("random_spans", make_spans, watched[i], d);
        result r = run(&p, &usual);
        check_accuracy(&p, &r);
        check_early(&p, &r);
        printf("%s\n", p.name);
        fflush(stdout);
        result_free(&r);
        problem_free(&p);
    }
    return check_end();
}

static double check_case(const char *kind, make_fn *make, size_t size, size_t d)
{
    const setting usual = { 64, 0, false };
    problem p = problem_make(kind, make, size, d);
    result r = run(&p, &usual);
    double worst = check_accuracy(&p, &r);
    check_gaps(&p, &r);
    check_circumstances(&p, &r);
    check_early(&p, &r);
    check_poison(&p, &r, false);
    check_poison(&p, &r, false);
    check_poison(&p, &r, true);
    result_free(&r);
    problem_free(&p);
    return worst;
}

/* Scores that are huge, tiny or grow along the keys. */
static double check_scores(size_t d, float width, bool grow)
{
    problem p = { .heads = 4, .kv_heads = 1, .d = d };
    const setting usual = { 64, 0, false };
    snprintf(p.name, sizeof(p.name), "scores_%g_d%zu", (double)width, d);
    p.q_token = p.out_token = p.heads * d;
    add_sequence(&p, make_causal(2, 4500), 2);
    p.q = random_bf16(p.rows * p.q_token, 1.0f);
    for (size_t i = 0; i < p.rows * p.q_token; i++)
        p.q[i] = to_bf16(1.0f + 0.25f * test_float(&random_stream));
    for (size_t j = 0; j < 4500; j++) {
        float level =
            grow ? (float)j / 2250.0f - 1.0f : test_float(&random_stream);
        for (size_t c = 0; c < d; c++)
            p.sequence[0].k[j * d + c] =
                to_bf16(width * level + 0.5f * test_float(&random_stream));
    }
    result r = run(&p, &usual);
    double worst = check_accuracy(&p, &r);
    check_circumstances(&p, &r);
    result_free(&r);
    problem_free(&p);
    return worst;
}

/* Problems that the kernel does not support give a status and a message. */
static void check_refusals(void)
{
    bauta_error err = { 0 };
    bt_cuda_decode *decode = NULL;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    shape.head_dim = 264;
    if (bt_cuda_decode_create(&decode, &shape, 64, &err) !=
        BAUTA_ERR_UNSUPPORTED)
        FAIL("a head_dim of 264 was not refused");
    shape.head_dim = 64;
    shape.heads = 4;
    shape.kv_heads = 1;
    if (bt_cuda_decode_create(&decode, &shape, 48, &err) != BAUTA_ERR_ARGUMENT)
        FAIL("pages of 48 keys were not refused");
    need(bt_cuda_decode_create(&decode, &shape, 64, &err), &err);
    uint32_t table[2] = { 0, 5 };
    bauta_mask *mask = make_causal(1, 100);
    bt_decode_sequence one = { mask, 0, 1, table };
    need(bt_cuda_decode_step(decode, &one, 1, NULL, &err), &err);
    uint16_t *x = to_device(NULL, 0);
    bt_cuda_pages pages = { .k = x, .v = x, .pages = 5, .page_keys = 64 };
    if (bt_attention_decode_bf16_cuda(decode, &shape, x, &pages, x, NULL, NULL,
                                      &err) != BAUTA_ERR_ARGUMENT)
        FAIL("a page after the last one was not refused");
    one.rows = 2;
    if (bt_cuda_decode_step(decode, &one, 1, NULL, &err) != BAUTA_ERR_ARGUMENT)
        FAIL("a row after the last one was not refused");
    cudaFree(x);
    bauta_mask_free(mask);
    bt_cuda_decode_free(decode);
    checks++;
}

int main(int argc, char **argv)
{
    check_begin(argc, argv);
    if (race_head)
        return check_races(race_head);
    static const size_t dims[] = { 64, 128, 192, 256, 40, 96 };
    for (size_t i = 0; i < BT_LEN(dims); i++) {
        double worst = 0.0;
        size_t d = dims[i];
        bool few = quick || i > 1; // the others share all but the width
        for (size_t x = 0; x < BT_LEN(kinds); x++) {
            size_t before = failures;
            if (few && !kinds[x].quick)
                continue;
            worst = 0.0;
            for (size_t s = 0; s < (quick ? 4 : BT_LEN(sizes)); s++)
                worst =
                    fmax(worst, check_case(kinds[x].name, kinds[x].make, s, d));
            printf("%-24s d%-4zu worst error %.2f of the bound  %s\n",
                   kinds[x].name, d, worst,
                   failures == before ? "ok" : "FAILED");
            fflush(stdout);
        }
        static const float widths[] = { 0.5f, 4.0f, 20.0f, 90.0f };
        worst = 0.0;
        for (size_t x = 0; x < 2 * BT_LEN(widths) && !few; x++)
            worst = fmax(worst, check_scores(d, widths[x / 2], x % 2));
        printf("%-24s d%-4zu worst error %.2f of the bound\n", "scores", d,
               worst);
    }
    check_refusals();
    return check_end();
}
