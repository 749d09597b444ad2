/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda_same.c - the GPU's forward pass and its decoding give the same
 * bits, in random cases: any mask without origins, up to four sequences of any
 * length, any heads. The out and lse of each row must be the same
 *
 *   packed      in the forward pass over all sequences
 *   alone       in the forward pass over its own sequence
 *   cut         in the forward pass over some rows, in tiles of another size
 *   in pages    with all queries in one step of decoding
 *   in steps    with a few queries of each sequence in each step
 *
 * under random scores (small, large, growing along the keys), with values that
 * are NaN or infinite here and there, random sizes and orders of pages, random
 * numbers of blocks of threads, and, in every second case, softcaps and biases.
 */
#include "backend/cuda/decode.h"
#include "backend/cuda/plan.h"
#include "biases.h"
#include "mask/mask.h"

enum { SEQUENCES = 4, CASES = 10000, QUICK = 250 };

/* ---- memory on the device, kept from case to case ----------------------- */

typedef struct buffer {
    void *memory;
    size_t size;
} buffer;

static buffer q_memory, k_memory, v_memory, out_memory, lse_memory;
static buffer k_pages, v_pages, positions_memory, tensor_rows_memory;

static void *fill(buffer *b, const void *from, size_t bytes)
{
    if (bytes > b->size) {
        cudaFree(b->memory);
        b->size = 2 * bytes;
        need_cuda(cudaMalloc(&b->memory, b->size), "cudaMalloc");
    }
    need_cuda(cudaMemcpy(b->memory, from, bytes, cudaMemcpyHostToDevice),
              "cudaMemcpy");
    return b->memory;
}

/* ---- numbers ------------------------------------------------------------- */

/* Random values come from a table, from a random offset on, since many are
 * needed. */
enum { TABLE = 1 << 20 };

static float table[TABLE];

static float noise(size_t at)
{
    return table[at % TABLE];
}

static uint16_t *draw_bf16(size_t count, float width)
{
    static uint16_t rounded[TABLE];
    uint16_t *x = malloc(count * 2 + 1);
    for (size_t i = 0; i < TABLE && !rounded[TABLE - 1]; i++)
        rounded[i] = to_bf16(table[i]);
    // A power of two is exact, whatever the value.
    uint16_t up = width > 1.0f ? 0x80 : 0;
    for (size_t i = 0, at = below(TABLE); i < count; i++, at++)
        x[i] = rounded[at % TABLE] ? (uint16_t)(rounded[at % TABLE] + up) : 0;
    return x;
}

/* ---- a problem ----------------------------------------------------------- */

typedef struct problem {
    char name[96];
    size_t heads, kv_heads, d, count;
    bauta_mask *mask[SEQUENCES], *packed;
    size_t row[SEQUENCES + 1], key[SEQUENCES + 1]; /* where they begin */
    uint16_t *q, *k, *v; /* (rows, heads, d), (keys, kv_heads, d) */
    test_bias bias;
    bool aligned; /* positions are those of the masks of the sequences */
} problem;

typedef struct result {
    uint16_t *out;
    float *lse;
} result;

static bauta_mask *make_spans(size_t n, size_t m)
{
    unsigned char *visible = calloc(n, m);
    for (size_t i = 0; i < n; i++)
        for (size_t j = below(m + 1), to; j < m; j = to + below(m)) {
            to = j + 1 + below(below(4) ? 40 : 3000);
            for (size_t x = j; x < to && x < m; x++)
                visible[i * m + x] = 1;
        }
    bauta_mask *mask = NULL;
    bauta_error err = { 0 };
    bauta_status status = bauta_mask_dense(&mask, n, m, visible, &err);
    free(visible);
    return got(status, mask, &err);
}

static bauta_mask *random_mask(size_t n, size_t m)
{
    static make_fn *const make[] = {
        make_all,   make_causal, make_causal,  make_window,     make_prefix,
        make_sinks, make_spans,  make_strided, make_not_window, make_window_one
    };
    size_t which = below(BT_LEN(make));
    if (n * m > 400000 && (which == 6 || which == 7))
        which = 5;
    return make[which](n, m);
}

/* Lengths about those at which something ends, and others. */
static size_t random_length(size_t most)
{
    static const size_t at[] = { 64, 128, 512, 2048, 4096, 6144 };
    size_t length = below(2) ? 1 + below(below(3) ? 700 : most)
                             : at[below(BT_LEN(at))] + below(5) - 2;
    return length > most ? most : length;
}

/* Keys whose scores stay, or grow along the sequence, slowly or in leaps. */
static void shape_keys(problem *p)
{
    size_t width = p->kv_heads * p->d, how = below(6);
    float sign[256];
    if (how > 2)
        return;
    for (size_t c = 0; c < p->d; c++)
        sign[c] = below(2) ? 1.0f : -1.0f;
    for (size_t i = 0, at = below(TABLE); i < p->row[p->count] * p->heads; i++)
        for (size_t c = 0; c < p->d; c++)
            p->q[i * p->d + c] = to_bf16(sign[c] * (1.0f + 0.3f * noise(at++)));
    for (size_t s = 0; s < p->count; s++)
        for (size_t j = p->key[s]; j < p->key[s + 1]; j++) {
            float far = (float)(j - p->key[s]) / 512.0f;
            size_t at = below(TABLE);
            float level = how == 0   ? far
                          : how == 1 ? far * 40.0f
                                     : 30.0f * noise(at++);
            for (size_t c = 0; c < width; c++)
                p->k[j * width + c] =
                    to_bf16(sign[c % p->d] * level + 0.5f * noise(at++));
        }
}

/* Some values that are not finite. */
static void poison_values(problem *p)
{
    size_t width = p->kv_heads * p->d;
    if (below(4))
        return;
    for (size_t i = 0; i < 1 + below(4); i++)
        p->v[below(p->key[p->count]) * width + below(width)] =
            poisons[below(BT_LEN(poisons))];
}

static void bias_draw(problem *p)
{
    static const int terms[] = { BIAS_CAP,
                                 BIAS_SLOPES,
                                 BIAS_TABLE,
                                 BIAS_TABLE | BIAS_HOLES,
                                 BIAS_CAP | BIAS_SLOPES,
                                 BIAS_CAP | BIAS_TABLE,
                                 BIAS_TENSOR,
                                 BIAS_CAP | BIAS_TENSOR,
                                 BIAS_TENSOR | BIAS_SHARED | BIAS_HOLES };
    if (below(2))
        return;
    p->bias = bias_make(terms[below(BT_LEN(terms))] | BIAS_POSITIONS, p->packed,
                        p->heads);
    p->aligned = below(2);
    for (size_t s = 0; s < p->count && p->aligned; s++)
        for (size_t i = p->row[s]; i < p->row[s + 1]; i++)
            p->bias.positions[i] =
                (uint32_t)(p->key[s + 1] - p->key[s] + i - p->row[s + 1]);
    need_cuda(cudaMemcpy(p->bias.device_positions, p->bias.positions,
                         p->row[p->count] * 4, cudaMemcpyHostToDevice),
              "cudaMemcpy");
    size_t at = strlen(p->name);
    snprintf(p->name + at, sizeof(p->name) - at, " %s%s",
             bias_name(p->bias.kind), p->aligned ? ", aligned" : "");
}

static problem problem_make(void)
{
    static const size_t kv[] = { 1, 1, 2, 3 };
    static const size_t group[] = { 1, 1, 2, 3, 4, 5, 8, 16, 17, 24, 64 };
    static const size_t dims[] = { 64, 64, 128, 128, 192, 256, 8, 40, 96, 200 };
    problem p = { .count = 1 + below(SEQUENCES) };
    bauta_error err = { 0 };
    size_t most = below(3) ? 2500 : 9000;
    p.kv_heads = kv[below(BT_LEN(kv))];
    p.heads = p.kv_heads * group[below(BT_LEN(group))];
    p.d = dims[below(BT_LEN(dims))];
    snprintf(p.name, sizeof(p.name), "%zu:%zu heads of %zu", p.heads,
             p.kv_heads, p.d);
    for (size_t s = 0; s < p.count; s++) {
        size_t keys = random_length(most);
        size_t rows = 1 + below(below(3) ? 6 : p.heads > 8 ? 40 : 300);
        rows = rows > keys ? keys : rows;
        p.mask[s] = random_mask(rows, keys);
        p.row[s + 1] = p.row[s] + rows;
        p.key[s + 1] = p.key[s] + keys;
    }
    need(bauta_mask_pack(&p.packed, p.count, (const bauta_mask *const *)p.mask,
                         &err),
         &err);
    p.q = draw_bf16(p.row[p.count] * p.heads * p.d, below(2) ? 2.0f : 1.0f);
    p.k = draw_bf16(p.key[p.count] * p.kv_heads * p.d, 2.0f);
    p.v = draw_bf16(p.key[p.count] * p.kv_heads * p.d, 1.0f);
    shape_keys(&p);
    poison_values(&p);
    bias_draw(&p);
    return p;
}

static void problem_free(problem *p)
{
    for (size_t s = 0; s < p->count; s++)
        bauta_mask_free(p->mask[s]);
    bauta_mask_free(p->packed);
    bias_free(&p->bias);
    free(p->q);
    free(p->k);
    free(p->v);
}

static bauta_attention_shape shape_of(const problem *p)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    shape.heads = p->heads;
    shape.kv_heads = p->kv_heads;
    shape.head_dim = p->d;
    return shape;
}

/* ---- running ------------------------------------------------------------- */

/* Poisoned outputs on the device, and their contents after the run. */
static result result_begin(const problem *p, size_t rows)
{
    size_t out = rows * p->heads * p->d * 2, lse = rows * p->heads * 4;
    result r = { malloc(out), malloc(lse) };
    memset(r.out, 0x7f, out);
    memset(r.lse, 0xff, lse);
    fill(&out_memory, r.out, out);
    fill(&lse_memory, r.lse, lse);
    return r;
}

static void result_end(const problem *p, result *r, size_t rows)
{
    need_cuda(cudaDeviceSynchronize(), p->name);
    need_cuda(cudaMemcpy(r->out, out_memory.memory, rows * p->heads * p->d * 2,
                         cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    need_cuda(cudaMemcpy(r->lse, lse_memory.memory, rows * p->heads * 4,
                         cudaMemcpyDeviceToHost),
              "cudaMemcpy");
}

/* Rows [first, first + rows) of a mask whose row 0 is row `row` of the problem
 * and whose key 0 is key `key`. */
static result run_forward(const problem *p, const bauta_mask *mask, size_t row,
                          size_t key, size_t first, size_t rows, size_t tile)
{
    bauta_error err = { 0 };
    bauta_attention_shape shape = shape_of(p);
    bauta_attention_bias bias = bias_of(&p->bias, row + first, false);
    bt_cuda_plan *device = NULL;
    size_t width = p->kv_heads * p->d;
    if (p->bias.kind)
        shape.bias = &bias;
    if (p->aligned && mask != p->packed)
        bias.positions = NULL; // as the mask aligns them
    need(bt_cuda_plan_create(&device, &shape, false, &err), &err);
    need(bt_cuda_plan_update(device, mask, first, rows, tile, NULL, &err),
         &err);
    uint16_t *q = fill(&q_memory, p->q + (row + first) * p->heads * p->d,
                       rows * p->heads * p->d * 2);
    uint16_t *k =
        fill(&k_memory, p->k + key * width, bauta_mask_keys(mask) * width * 2);
    uint16_t *v =
        fill(&v_memory, p->v + key * width, bauta_mask_keys(mask) * width * 2);
    result r = result_begin(p, rows);
    need(bt_attention_forward_bf16_cuda(device, &shape, q, k, v,
                                        out_memory.memory, lse_memory.memory,
                                        NULL, &err),
         &err);
    result_end(p, &r, rows);
    bt_cuda_plan_free(device);
    return r;
}

/* Rows [0, rows) of b are rows [row, ...) of a. b is freed. */
static void check_same(const problem *p, const char *what, const result *a,
                       size_t row, result b, size_t rows)
{
    checks++;
    for (size_t i = 0; i < rows * p->heads; i++) {
        size_t at = row * p->heads + i;
        bool out = !memcmp(a->out + at * p->d, b.out + i * p->d, p->d * 2);
        bool lse = !memcmp(a->lse + at, b.lse + i, 4);
        if (out && lse)
            continue;
        size_t c = 0;
        while (c + 1 < p->d && a->out[at * p->d + c] == b.out[i * p->d + c])
            c++;
        FAIL("%s: %s: row %zu of %zu, head %zu: %s; column %zu %04x, not %04x; "
             "lse %a, not %a",
             p->name, what, row + i / p->heads, row + rows, i % p->heads,
             out ? "lse" : "out", c, b.out[i * p->d + c], a->out[at * p->d + c],
             (double)b.lse[i], (double)a->lse[at]);
        break;
    }
    free(b.out);
    free(b.lse);
}

static void check_forward(const problem *p, const result *all)
{
    size_t rows = p->row[p->count], most = bt_cuda_tile_rows(p->d);
    for (size_t s = 0; s < p->count; s++)
        check_same(p, "alone", all, p->row[s],
                   run_forward(p, p->mask[s], p->row[s], p->key[s], 0,
                               p->row[s + 1] - p->row[s], most),
                   p->row[s + 1] - p->row[s]);
    size_t first = below(rows), some = 1 + below(rows - first);
    check_same(p, "cut", all, first,
               run_forward(p, p->packed, 0, 0, first, some, 1 + below(most)),
               some);
}

/* ---- pages ----------------------------------------------------------------
 */

typedef struct pool {
    bt_cuda_pages pages;
    uint32_t *table[SEQUENCES];
} pool;

/* For each key whether a row sees it. */
static bool *seen_by_any(const bauta_mask *mask)
{
    bool *seen = calloc(bauta_mask_keys(mask) + 1, sizeof(*seen));
    for (size_t i = 0; i < bauta_mask_queries(mask); i++) {
        size_t count;
        const bauta_span *span = bauta_mask_row(mask, i, &count);
        for (size_t x = 0; x < count; x++)
            for (size_t j = span[x].lo; j < span[x].hi; j++)
                seen[j] = true;
    }
    return seen;
}

/* Pages in random order; keys that no row sees are not copied. */
static pool pool_make(const problem *p)
{
    size_t keys = (size_t)64 << below(4), total = 2, next = 0;
    pool o = { .pages = { .page_keys = keys } };
    for (size_t s = 0; s < p->count; s++)
        total += (p->key[s + 1] - p->key[s]) / keys + 1;
    uint32_t *deck = malloc(total * sizeof(*deck));
    for (size_t i = 0; i < total; i++) {
        size_t j = below(i + 1);
        deck[i] = deck[j];
        deck[j] = (uint32_t)i;
    }
    size_t width = p->kv_heads * p->d, page = keys * width;
    uint16_t *k = malloc(total * page * 2), *v = malloc(total * page * 2);
    memset(k, 0xff, total * page * 2);
    memset(v, below(2) ? 0xff : 0, total * page * 2);
    for (size_t s = 0; s < p->count; s++) {
        size_t count = p->key[s + 1] - p->key[s];
        o.table[s] = malloc((count / keys + 1) * sizeof(*deck));
        memcpy(o.table[s], deck + next, (count / keys + 1) * sizeof(*deck));
        next += count / keys + 1;
        bool *seen = seen_by_any(p->mask[s]);
        for (size_t j = 0; j < count; j++) {
            size_t to = o.table[s][j / keys] * page + j % keys * p->d;
            for (size_t h = 0; seen[j] && h < p->kv_heads; h++) {
                size_t from = (p->key[s] + j) * width + h * p->d;
                memcpy(k + to + h * keys * p->d, p->k + from, p->d * 2);
                memcpy(v + to + h * keys * p->d, p->v + from, p->d * 2);
            }
        }
        free(seen);
    }
    o.pages.pages = total;
    o.pages.k = fill(&k_pages, k, total * page * 2);
    o.pages.v = fill(&v_pages, v, total * page * 2);
    free(deck);
    free(k);
    free(v);
    return o;
}

/* One step with rows [at[s], at[s] + rows[s]) of each sequence. */
static void check_step(const problem *p, const char *what, const result *all,
                       const pool *o, const size_t *at, const size_t *rows)
{
    bauta_error err = { 0 };
    bauta_attention_shape shape = shape_of(p);
    bauta_attention_bias bias = bias_of(&p->bias, 0, false);
    bt_cuda_decode *decode = NULL;
    bt_decode_sequence sequence[SEQUENCES];
    size_t total = 0, row = p->heads * p->d;
    for (size_t s = 0; s < p->count; s++) {
        sequence[s] =
            (bt_decode_sequence){ p->mask[s], at[s], rows[s], o->table[s] };
        total += rows[s];
    }
    uint16_t *q = malloc(total * row * 2);
    uint32_t *positions = malloc(total * 4 + 1);
    uint32_t *tensor_rows = malloc(total * 4 + 1);
    for (size_t s = 0, to = 0; s < p->count; to += rows[s++]) {
        memcpy(q + to * row, p->q + (p->row[s] + at[s]) * row,
               rows[s] * row * 2);
        if (!p->bias.kind)
            continue;
        memcpy(positions + to, p->bias.positions + p->row[s] + at[s],
               rows[s] * 4);
        memcpy(tensor_rows + to, p->bias.tensor_rows + p->row[s] + at[s],
               rows[s] * 4);
    }
    if (p->bias.kind)
        shape.bias = &bias;
    bias.positions =
        p->aligned ? NULL : fill(&positions_memory, positions, total * 4);
    if (bias.tensor)
        bias.tensor_rows = fill(&tensor_rows_memory, tensor_rows, total * 4);
    need(bt_cuda_decode_create(&decode, &shape, o->pages.page_keys, &err),
         &err);
    if (below(2))
        decode->device.multiprocessors = 1 + (int)below(200);
    need(bt_cuda_decode_step(decode, sequence, p->count, NULL, &err), &err);
    fill(&q_memory, q, total * row * 2);
    result r = result_begin(p, total);
    bt_cuda_pages pages = o->pages;
    pages.early_reads = below(2);
    for (size_t i = 0; i < 1 + below(2); i++) // a step serves many launches
        need(bt_attention_decode_bf16_cuda(decode, &shape, q_memory.memory,
                                           &pages, out_memory.memory,
                                           lse_memory.memory, NULL, &err),
             &err);
    result_end(p, &r, total);
    for (size_t s = 0, from = 0; s < p->count; from += rows[s++]) {
        result one = { malloc(rows[s] * row * 2 + 1),
                       malloc(rows[s] * p->heads * 4 + 1) };
        memcpy(one.out, r.out + from * row, rows[s] * row * 2);
        memcpy(one.lse, r.lse + from * p->heads, rows[s] * p->heads * 4);
        check_same(p, what, all, p->row[s] + at[s], one, rows[s]);
    }
    free(r.out);
    free(r.lse);
    free(q);
    free(positions);
    free(tensor_rows);
    bt_cuda_decode_free(decode);
}

static void check_decode(const problem *p, const result *all)
{
    pool o = pool_make(p);
    size_t at[SEQUENCES] = { 0 }, rows[SEQUENCES];
    for (size_t s = 0; s < p->count; s++)
        rows[s] = p->row[s + 1] - p->row[s];
    check_step(p, "in pages", all, &o, at, rows);
    // A few steps from somewhere on; some sequences have no row in a step.
    for (size_t s = 0; s < p->count; s++)
        at[s] = below(p->row[s + 1] - p->row[s]);
    for (size_t step = 0; step < 3; step++) {
        for (size_t s = 0; s < p->count; s++) {
            size_t left = p->row[s + 1] - p->row[s] - at[s];
            rows[s] = below(below(3) ? 2 : 20);
            rows[s] = rows[s] > left ? left : rows[s];
        }
        check_step(p, "in steps", all, &o, at, rows);
        for (size_t s = 0; s < p->count; s++)
            at[s] += rows[s];
    }
    for (size_t s = 0; s < p->count; s++)
        free(o.table[s]);
}

int main(int argc, char **argv)
{
    size_t problems = 0;
    check_begin(argc, argv);
    for (size_t i = 0; i < TABLE; i++)
        table[i] = test_float(&random_stream);
    for (; checks < (quick ? QUICK : CASES); problems++) {
        problem p = problem_make();
        result all = run_forward(&p, p.packed, 0, 0, 0, p.row[p.count],
                                 bt_cuda_tile_rows(p.d));
        check_forward(&p, &all);
        check_decode(&p, &all);
        free(all.out);
        free(all.lse);
        problem_free(&p);
    }
    printf("%zu problems\n", problems);
    return check_end();
}
