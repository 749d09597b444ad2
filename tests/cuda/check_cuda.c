/* SPDX-License-Identifier: Apache-2.0 */
/* check_cuda.c - the GPU's masked attention against a float64 reference.
 *
 * Every case draws fresh inputs from a printed seed, poisons the outputs, runs
 * the kernel twice and checks:
 *
 *   accuracy      within a bound derived from the arithmetic (see bound_of)
 *   empty rows    out 0, lse -infinity
 *   same bits     from run to run; from any cut of the rows into tiles; alone
 *                 and packed between neighbours
 *   the hidden    NaN, infinity and huge values where a row does not look
 *                 change no bit of the row; where it looks, they show */
#include "problem.h"

/* ---- running ----------------------------------------------------------- */

typedef struct result {
    uint16_t *out;
    float *lse;
} result;

static void result_free(result *r)
{
    free(r->out);
    free(r->lse);
}

/* Rows [first, first + rows) of the problem; the outputs are filled with a NaN
 * that no kernel produces, so that unwritten elements show. */
static result run_rows(const problem *p, size_t first, size_t rows,
                       size_t tile_rows)
{
    bauta_error err = { 0 };
    bt_cuda_plan *device_plan = NULL;
    size_t out_size = rows * p->shape.out_token, lse_size = rows * p->heads;
    result r = { malloc(out_size * 2 + 1), malloc(lse_size * 4 + 1) };
    bauta_attention_shape shape = p->shape;
    bauta_attention_bias bias = bias_of(&p->bias, first, false);

    if (p->bias.kind)
        shape.bias = &bias;
    device_plan =
        plan_of(&shape, false, SIZE_MAX, p->mask, first, rows, tile_rows);
    uint16_t *q =
        to_device(p->q + first * p->shape.q_token, rows * p->shape.q_token * 2);
    uint16_t *k = to_device(p->k, p->kv_size * 2);
    uint16_t *v = to_device(p->v, p->kv_size * 2);
    memset(r.out, 0x7f, out_size * 2);
    memset(r.lse, 0xff, lse_size * 4);
    uint16_t *out = to_device(r.out, out_size * 2);
    float *lse = to_device(r.lse, lse_size * 4);

    need(bt_attention_forward_bf16_cuda(device_plan, &shape, q, k, v, out, lse,
                                        NULL, &err),
         &err);
    need_cuda(cudaDeviceSynchronize(), p->name);
    need_cuda(cudaMemcpy(r.out, out, out_size * 2, cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    need_cuda(cudaMemcpy(r.lse, lse, lse_size * 4, cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    cudaFree(q);
    cudaFree(k);
    cudaFree(v);
    cudaFree(out);
    cudaFree(lse);
    bt_cuda_plan_free(device_plan);
    return r;
}

static result run(const problem *p)
{
    return run_rows(p, 0, p->n, bt_cuda_tile_rows(p->d));
}

/* ---- the reference ----------------------------------------------------- */

/* One row of one head in float64: out and magnitude (sum of weight * |v|) over
 * columns, lse, and the largest sum of |q| |k| among the visible keys and what
 * a softcap and a bias add to it. */
typedef struct exact {
    double out[256], magnitude[256], lse, reach, added;
    size_t seen;
} exact;

static void reference(exact *e, const problem *p, size_t i, size_t head)
{
    const bauta_attention_shape *a = &p->shape;
    size_t kv = head / (p->heads / p->kv_heads), spans;
    const bauta_span *span = bauta_mask_row(p->mask, i, &spans);
    const uint16_t *q = p->q + i * a->q_token + head * a->q_head;
    double scale = 1.0 / sqrt((double)p->d), max = -INFINITY, sum = 0.0;

    *e = (exact){ .lse = -INFINITY };
    for (int pass = 0; pass < 2; pass++)
        for (size_t s = 0; s < spans; s++)
            for (size_t j = span[s].lo; j < span[s].hi; j++) {
                const uint16_t *k = p->k + j * a->k_token + kv * a->k_head;
                const uint16_t *v = p->v + j * a->v_token + kv * a->v_head;
                double x = 0.0, reach = 0.0;
                for (size_t c = 0; c < p->d; c++) {
                    double product =
                        (double)from_bf16(q[c]) * (double)from_bf16(k[c]);
                    x += product;
                    reach += fabs(product);
                }
                double added, slope;
                x = bias_score(&p->bias, x * scale, i, head, j, &added, &slope);
                if (pass == 0) {
                    e->added = fmax(e->added, added);
                    max = fmax(max, x);
                    e->reach = fmax(e->reach, reach * scale);
                    e->seen++;
                    continue;
                }
                double weight = max == -INFINITY ? 0.0 : exp(x - max);
                sum += weight;
                for (size_t c = 0; c < p->d; c++) {
                    double value = (double)from_bf16(v[c]);
                    e->out[c] += weight * value;
                    e->magnitude[c] += weight * fabs(value);
                }
            }
    if (sum == 0.0) // also where all scores are -infinity
        e->seen = 0;
    if (!e->seen)
        return;
    for (size_t c = 0; c < p->d; c++) {
        e->out[c] /= sum;
        e->magnitude[c] /= sum;
    }
    e->lse = max + log(sum);
}

/* How far a result may be from the reference. Relative to a weight: the score
 * is a sum of d exact products in float32, which the tensor cores truncate
 * (d * 2^-23 of the sum of their magnitudes, twice for what they drop between
 * groups); its scaling and the maximum cost an ulp each of at most `reach`;
 * 2^x costs 2^-22. A softcap c is within c * 2^-21, and a bias costs an ulp or
 * two of itself. Then a weight is rounded to bf16 (2^-8), the products are
 * summed in float32 (seen * 2^-23, truncated) and the result is rounded to
 * bf16 (2^-8 of itself). */
static double score_error(const exact *e, size_t d)
{
    return e->reach * ((double)d * 0x1p-22 + 0x1p-21) + e->added * 0x1p-20 +
           0x1p-21;
}

static double bound_of(const exact *e, size_t column, size_t d)
{
    double weight = 2.0 * score_error(e, d) + 0x1p-8;
    double sums = (double)e->seen * 0x1p-22;
    return e->magnitude[column] * (weight + sums) +
           fabs(e->out[column]) * 0x1.01p-8 + 0x1p-130;
}

/* `stride`: check every stride-th row, for problems too large. */
static double check_accuracy(const problem *p, const result *r, size_t stride)
{
    double worst = 0.0;
#pragma omp parallel for collapse(2) schedule(dynamic) reduction(max : worst)
    for (size_t i = 0; i < (p->n + stride - 1) / stride; i++)
        for (size_t head = 0; head < p->heads; head++) {
            size_t row = i * stride;
            exact e;
            reference(&e, p, row, head);
            float lse = r->lse[row * p->heads + head];
            double lse_bound = score_error(&e, p->d) +
                               (double)e.seen * 0x1p-22 + fabs(e.lse) * 0x1p-21;
            bool lse_good = e.seen ? fabs((double)lse - e.lse) <= lse_bound
                                   : lse == -INFINITY;
            if (!lse_good)
#pragma omp critical
                FAIL("%s: lse of row %zu head %zu is %g, want %g", p->name, row,
                     head, (double)lse, e.lse);
            for (size_t c = 0; c < p->d; c++) {
                float got = from_bf16(r->out[row * p->shape.out_token +
                                             head * p->shape.out_head + c]);
                double off = fabs((double)got - e.out[c]);
                double bound = e.seen ? bound_of(&e, c, p->d) : 0.0;
                if (!(off <= bound))
#pragma omp critical
                    FAIL("%s: out of row %zu head %zu column %zu is %g, want "
                         "%g within %g",
                         p->name, row, head, c, (double)got, e.out[c], bound);
                if (bound > 0.0)
                    worst = fmax(worst, off / bound);
            }
        }
    checks++;
    return worst;
}

/* The gaps between tokens in out must be unwritten. */
static void check_gaps(const problem *p, const result *r)
{
    for (size_t i = 0; i < p->n; i++)
        for (size_t c = p->heads * p->d; c < p->shape.out_token; c++)
            if (r->out[i * p->shape.out_token + c] != 0x7f7f) {
                FAIL("%s: wrote after the heads of row %zu", p->name, i);
                return;
            }
    checks++;
}

/* Rows [0, rows) of b equal rows [first, ...) of a, bit for bit. */
static void check_same(const problem *p, const char *what, const result *a,
                       size_t first, const result *b, size_t rows)
{
    size_t token = p->shape.out_token;
    checks++;
    for (size_t i = 0; i < rows; i++) {
        if (memcmp(a->out + (first + i) * token, b->out + i * token,
                   p->heads * p->d * 2) == 0 &&
            memcmp(a->lse + (first + i) * p->heads, b->lse + i * p->heads,
                   p->heads * 4) == 0)
            continue;
        FAIL("%s: %s: row %zu has other bits", p->name, what, first + i);
        return;
    }
}

/* ---- hidden values ----------------------------------------------------- */

static bool finite_bf16(uint16_t x)
{
    return (x & 0x7f80) != 0x7f80;
}

/* The keys that a check poisoned. */
typedef struct poisoned {
    size_t key[8], count;
} poisoned;

/* The sum of the non-finite values that a row sees in a column: 0 (there are
 * none), an infinity, or NaN. */
static float taint_of(const problem *p, const poisoned *keys, size_t i,
                      size_t head, size_t c)
{
    size_t kv = head / (p->heads / p->kv_heads);
    float taint = 0.0f;
    for (size_t x = 0; x < keys->count; x++) {
        size_t j = keys->key[x];
        uint16_t v = p->v[j * p->shape.v_token + kv * p->shape.v_head + c];
        if (!finite_bf16(v) && bauta_mask_visible(p->mask, i, j))
            taint += from_bf16(v);
    }
    return taint;
}

static bool sees(const problem *p, size_t i, const poisoned *keys)
{
    for (size_t x = 0; x < keys->count; x++)
        if (bauta_mask_visible(p->mask, i, keys->key[x]))
            return true;
    return false;
}

/* Poison the values of a few keys, in all or in one column, and check every
 * row: those that see none of it keep their bits. */
static void check_poisoned_values(problem *p, const result *clean, size_t few,
                                  bool one_column)
{
    size_t bytes = p->kv_size * 2, width = p->kv_heads * p->d;
    uint16_t *saved = malloc(bytes);
    poisoned hit = { .count = 0 }, huge = { .count = 0 };
    memcpy(saved, p->v, bytes);
    for (size_t x = 0; x < few; x++) {
        size_t j = below(p->m);
        size_t only = below(width);
        uint16_t poison = poisons[below(BT_LEN(poisons))];
        hit.key[hit.count++] = j;
        if (finite_bf16(poison))
            huge.key[huge.count++] = j;
        for (size_t c = 0; c < width; c++)
            if (!one_column || c == only)
                p->v[j * p->shape.v_token + c] = poison;
    }
    result r = run(p);
    checks++;
    for (size_t i = 0; i < p->n; i++) {
        bool looks = sees(p, i, &hit), sees_huge = sees(p, i, &huge);
        for (size_t head = 0; head < p->heads; head++) {
            size_t at = i * p->shape.out_token + head * p->shape.out_head;
            if (memcmp(&r.lse[i * p->heads + head],
                       &clean->lse[i * p->heads + head], 4))
                FAIL("%s: poisoned values change the lse of row %zu", p->name,
                     i);
            for (size_t c = 0; c < p->d; c++) {
                float taint = looks ? taint_of(p, &hit, i, head, c) : 0.0f;
                float got = from_bf16(r.out[at + c]);
                bool good = taint != taint  ? got != got
                            : taint != 0.0f ? got == taint
                            : sees_huge     ? true
                                        : r.out[at + c] == clean->out[at + c];
                // A visible huge value may overflow into anything.
                if (!good && !(sees_huge && taint != 0.0f))
                    FAIL("%s: poisoned values: row %zu head %zu column %zu is "
                         "%g (%04x), was %04x, taint %g",
                         p->name, i, head, c, (double)got, r.out[at + c],
                         clean->out[at + c], (double)taint);
            }
        }
    }
    result_free(&r);
    memcpy(p->v, saved, bytes);
    free(saved);
}

/* The same with keys: a row that sees a NaN key is NaN, others keep their
 * bits. */
static void check_poisoned_keys(problem *p, const result *clean, size_t few)
{
    size_t bytes = p->kv_size * 2, width = p->kv_heads * p->d;
    uint16_t *saved = malloc(bytes);
    poisoned hit = { .count = 0 };
    memcpy(saved, p->k, bytes);
    for (size_t x = 0; x < few; x++) {
        size_t j = below(p->m);
        hit.key[hit.count++] = j;
        for (size_t c = 0; c < width; c++)
            p->k[j * p->shape.k_token + c] = poisons[x % 2];
    }
    result r = run(p);
    checks++;
    for (size_t i = 0; i < p->n; i++) {
        bool looks = sees(p, i, &hit);
        for (size_t head = 0; head < p->heads; head++) {
            size_t at = i * p->shape.out_token + head * p->shape.out_head;
            for (size_t c = 0; c < p->d; c++) {
                float got = from_bf16(r.out[at + c]);
                if (looks ? got == got : r.out[at + c] != clean->out[at + c])
                    FAIL("%s: poisoned keys: row %zu head %zu column %zu is "
                         "%04x, was %04x",
                         p->name, i, head, c, r.out[at + c],
                         clean->out[at + c]);
            }
        }
    }
    result_free(&r);
    memcpy(p->k, saved, bytes);
    free(saved);
}

/* The cases for a race detector: every kernel once, those of the second pass
 * with some work. */
static void check_watched(problem *p)
{
    result r = run(p);
    check_accuracy(p, &r, 7);
    check_poisoned_values(p, &r, 3, false);
    printf("%s\n", p->name);
    fflush(stdout);
    result_free(&r);
    problem_free(p);
}

static void check_case(const char *kind, make_fn *make, size_t size, size_t d)
{
    char name[96];
    snprintf(name, sizeof(name), "%s_%zux%zu_d%zu%s", kind, sizes[size].n,
             sizes[size].m, d, bias_name(bias_kind));
    problem p = problem_make(name, make(sizes[size].n, sizes[size].m),
                             sizes[size].heads, sizes[size].kv_heads, d,
                             sizes[size].extra);
    if (race_head) {
        check_watched(&p);
        return;
    }
    result r = run(&p), again = run(&p);
    check_accuracy(&p, &r, 1);
    check_gaps(&p, &r);
    check_same(&p, "run again", &r, 0, &again, p.n);
    result_free(&again);

    size_t first = below(p.n);
    size_t rows = 1 + below(p.n - first);
    again = run_rows(&p, first, rows, bt_cuda_tile_rows(d));
    check_same(&p, "some of the rows", &r, first, &again, rows);
    result_free(&again);
    again = run_rows(&p, 0, p.n, 1 + below(100));
    check_same(&p, "smaller tiles", &r, 0, &again, p.n);
    result_free(&again);

    check_poisoned_values(&p, &r, 3, false);
    check_poisoned_values(&p, &r, 5, true);
    check_poisoned_keys(&p, &r, 2);
    result_free(&r);
    problem_free(&p);
}

/* Documents, each under its own mask: together, and each alone. */
static void check_packed(size_t d)
{
    static const size_t length[] = { 130, 1, 515, 64, 257 };
    static make_fn *const make[] = { make_causal, make_all, make_sinks,
                                     make_dense, make_window };
    bauta_mask *parts[BT_LEN(length)], *mask = NULL;
    bauta_error err = { 0 };
    char name[96];
    for (size_t x = 0; x < BT_LEN(length); x++)
        parts[x] = make[x](length[x], length[x]);
    need(bauta_mask_pack(&mask, BT_LEN(length),
                         (const bauta_mask *const *)parts, &err),
         &err);
    snprintf(name, sizeof(name), "packed_d%zu", d);
    problem p = problem_make(name, mask, 4, 2, d, 0);
    result r = run(&p);
    check_accuracy(&p, &r, 1);
    size_t at = 0;
    for (size_t x = 0; x < BT_LEN(length); x++) {
        problem one = p;
        one.mask = parts[x];
        one.n = one.m = length[x];
        one.q = p.q + at * p.shape.q_token;
        one.k = p.k + at * p.shape.k_token;
        one.v = p.v + at * p.shape.v_token;
        one.kv_size = one.m * p.shape.k_token;
        if (p.bias.kind) { // the mask of a part knows nothing of the others
            one.bias.device_positions += at;
            one.bias.device_tensor_rows += at;
        }
        result alone = run(&one);
        check_same(&p, "alone", &r, at, &alone, length[x]);
        result_free(&alone);
        bauta_mask_free(parts[x]);
        at += length[x];
    }
    result_free(&r);
    problem_free(&p);
}

/* Many items for each multiprocessor; not every row is checked. */
static void check_long(const char *kind, bauta_mask *mask, size_t heads,
                       size_t d, size_t stride)
{
    char name[96];
    snprintf(name, sizeof(name), "long_%s_%zu_d%zu", kind,
             bauta_mask_queries(mask), d);
    problem p = problem_make(name, mask, heads, heads, d, 0);
    result r = run(&p), again = run(&p);
    double worst = check_accuracy(&p, &r, stride);
    check_same(&p, "run again", &r, 0, &again, p.n);
    printf("%-34s worst error %.2f of the bound\n", name, worst);
    result_free(&r);
    result_free(&again);
    problem_free(&p);
}

/* Scores that grow along the keys, slowly and in leaps, or jump about: the base
 * of the softmax must follow, and tiles are computed again. */
static void check_growth(size_t d)
{
    static const float widths[] = { 0.5f, 4.0f, 20.0f, 90.0f };
    for (size_t x = 0; x < 2 * BT_LEN(widths); x++) {
        size_t n = 700;
        float width = widths[x / 2];
        char name[96];
        snprintf(name, sizeof(name), "scores_%s_%g_d%zu",
                 x % 2 ? "jump" : "grow", (double)width, d);
        problem p = problem_make(name, make_causal(n, n), 2, 1, d, 0);
        for (size_t i = 0; i < p.q_size; i++)
            p.q[i] = to_bf16(1.0f + 0.25f * test_float(&random_stream));
        for (size_t j = 0; j < n; j++) {
            float level = x % 2 ? test_float(&random_stream)
                                : 2.0f * (float)j / (float)n - 1.0f;
            for (size_t c = 0; c < p.shape.k_token; c++)
                p.k[j * p.shape.k_token + c] =
                    to_bf16(width * level + 0.5f * test_float(&random_stream));
        }
        result r = run(&p), again = run_rows(&p, 0, n, 41);
        check_accuracy(&p, &r, 1);
        check_same(&p, "smaller tiles", &r, 0, &again, n);
        result_free(&again);
        again = run_rows(&p, 300, 317, bt_cuda_tile_rows(d));
        check_same(&p, "some of the rows", &r, 300, &again, 317);
        result_free(&again);
        check_poisoned_values(&p, &r, 3, false);
        result_free(&r);
        problem_free(&p);
    }
}

/* Problems that the kernels do not support give a status and a message. */
static void check_refusals(void)
{
    bauta_error err = { 0 };
    bauta_mask *mask = make_causal(8, 8);
    bt_cuda_plan *device_plan = NULL;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    for (size_t d = 84; d <= 264; d += 180) {
        shape.head_dim = d;
        if (bt_cuda_plan_create(&device_plan, &shape, false, &err) !=
                BAUTA_ERR_UNSUPPORTED ||
            device_plan)
            FAIL("a head_dim of %zu was not refused", d);
    }
    shape.head_dim = 64;
    shape.heads = 3;
    shape.kv_heads = 2;
    if (bt_cuda_plan_create(&device_plan, &shape, false, &err) !=
        BAUTA_ERR_ARGUMENT)
        FAIL("two kv_heads for three heads were not refused");
    shape.kv_heads = 1;
    need(bt_cuda_plan_create(&device_plan, &shape, false, &err), &err);
    if (bt_cuda_plan_update(device_plan, mask, 1, 8, 0, NULL, &err) !=
        BAUTA_ERR_ARGUMENT)
        FAIL("more rows than the mask has were not refused");
    need(bt_cuda_plan_update(device_plan, mask, 0, 8, 8, NULL, &err), &err);
    uint16_t *x = to_device(NULL, 0);
    if (bt_attention_forward_bf16_cuda(device_plan, &shape, x + 1, x, x, x,
                                       NULL, NULL, &err) != BAUTA_ERR_ARGUMENT)
        FAIL("a q that is not aligned was not refused");
    shape.scale = -1.0f;
    if (bt_attention_forward_bf16_cuda(device_plan, &shape, x, x, x, x, NULL,
                                       NULL, &err) != BAUTA_ERR_UNSUPPORTED)
        FAIL("a negative scale was not refused");
    cudaFree(x);
    bt_cuda_plan_free(device_plan);
    bauta_mask_free(mask);
    checks++;
}

/* `few`: some small cases only. */
static void check_head(size_t d, bool few)
{
    for (size_t x = 0; x < BT_LEN(kinds); x++) {
        size_t before = failures;
        for (size_t s = 0; s < BT_LEN(sizes); s++)
            if (fits(&kinds[x], s, few))
                check_case(kinds[x].name, kinds[x].make, s, d);
        if (!few || kinds[x].quick)
            printf("%-28s d%-4zu %s\n", kinds[x].name, d,
                   failures == before ? "ok" : "FAILED");
        fflush(stdout);
    }
    check_packed(d);
    if (few)
        return;
    check_growth(d);
    check_long("causal", make_causal(4129, 4129), 16, d, 97);
    check_long("lengths_with_holes", make_holes(12, 400), 16, d, 7);
    check_long("documents_and_causal", make_documents_causal(5000, 5000), 16, d,
               97);
    // So many keys that heads are processed in several bands.
    check_long("window", make_window(34000, 34000), 7, d, 3511);
}

/* Softcaps and biases: a few cases of every kind of mask, the packed ones, and
 * rows so long that they have several chunks. */
static void check_biases(size_t d)
{
    size_t before = failures;
    for (size_t b = 0; b < BT_LEN(bias_kinds); b++) {
        bias_kind = bias_kinds[b];
        for (size_t x = 0; x < BT_LEN(kinds); x++) {
            size_t s = (b + x) % BT_LEN(sizes);
            if (fits(&kinds[x], s, false) && (!quick || (b + x) % 4 == 0))
                check_case(kinds[x].name, kinds[x].make, s, d);
        }
        bias_kind |= BIAS_POSITIONS;
        check_packed(d);
        if (!quick && bias_kind & (BIAS_SLOPES | BIAS_TABLE)) {
            bias_kind = bias_kinds[b];
            check_long("biased", make_causal(9000, 9000), 4, d, 1009);
        }
    }
    bias_kind = BIAS_NONE;
    printf("softcaps and biases          d%-4zu %s\n", d,
           failures == before ? "ok" : "FAILED");
    fflush(stdout);
}

/* As in check_head, and rows that have two chunks of keys. */
static int check_races(size_t d)
{
    static const int biases[] = { BIAS_CAP | BIAS_TABLE, BIAS_NONE };
    for (size_t b = 0; b < BT_LEN(biases); b++) {
        bias_kind = biases[b];
        for (size_t x = 0; x < BT_LEN(kinds); x++)
            for (size_t s = 0; s < BT_LEN(sizes); s++)
                if (fits(&kinds[x], s, true))
                    check_case(kinds[x].name, kinds[x].make, s, d);
        problem p =
            problem_make("two_chunks", make_causal(130, 4300), 2, 1, d, 0);
        check_watched(&p);
    }
    return check_end();
}

int main(int argc, char **argv)
{
    static const size_t whole[] = { 64, 128, 192, 256 };
    static const size_t part[] = { 8, 40, 96, 120, 136, 200, 248 };
    check_begin(argc, argv);
    if (race_head)
        return check_races(race_head);
    for (size_t i = 0; i < BT_LEN(whole); i++)
        check_biases(whole[i] - (i == 2 ? 8 : 0));
    for (size_t i = 0; i < BT_LEN(whole); i++)
        check_head(whole[i], quick);
    for (size_t i = 0; i < BT_LEN(part); i++)
        if (!quick || i % 3 == 2)
            check_head(part[i], true);
    check_refusals();
    return check_end();
}
