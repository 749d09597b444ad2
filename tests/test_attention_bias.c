/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention_bias.c - additive masks and the softcap, through the API:
 * bias tensors, ALiBi slopes, tables by distance, and their gradients. */
#include "attention_oracle.h"
#include "attention_problem.h"
#include "backend/cpu/kernels/kernels.h"

static uint64_t seed;

/* ---- Problems ---------------------------------------------------------- */

enum { TENSOR, SLOPES, TABLE, CAP_ONLY, FORMS };

/* A problem whose scores have terms. */
typedef struct biased {
    problem p;
    bauta_attention_bias bias;
    float *numbers;           /* of the tensor, slopes or table */
    float *gradient;          /* of the numbers */
    uint32_t *rows;           /* tensor rows or positions */
    size_t count, rows_count; /* of numbers; of rows */
} biased;

static bauta_mask *random_mask(test_random *r)
{
    static const size_t sizes[] = { 1, 2, 5, 63, 64, 65, 100, 130 };
    size_t n = sizes[test_below(r, BT_LEN(sizes))];
    size_t m = test_below(r, 2) ? n : sizes[test_below(r, BT_LEN(sizes))];
    return test_mask_random(r, n, m, 2);
}

static void tensor_make(test_random *r, biased *b, size_t n, size_t m)
{
    size_t heads = b->p.shape.heads, rows = 1 + test_below(r, n);
    bool by_row = test_below(r, 3) > 0, by_head = test_below(r, 2);
    b->bias.tensor_row = by_row ? m + test_below(r, 3) : 0;
    b->bias.tensor_head = by_head ? n * (m + 3) : 0;
    b->count = (by_head ? heads : 1) * n * (m + 3);
    if (test_below(r, 2)) {
        for (size_t i = 0; i < n; i++)
            b->rows[i] = (uint32_t)test_below(r, rows);
        b->bias.tensor_rows = b->rows;
    }
}

static void distances_make(test_random *r, biased *b, size_t n, size_t m)
{
    static const size_t sizes[] = { 1, 2, 63, 64, 65, 200, 300 };
    b->bias.distances = sizes[test_below(r, BT_LEN(sizes))];
    b->bias.first_distance =
        (ptrdiff_t)test_below(r, n + m) - (ptrdiff_t)(n + m);
    b->count = b->bias.distances * b->p.shape.heads;
}

/* Poison the numbers of the tensor that no visible pair uses. */
static void tensor_poison(biased *b)
{
    const bauta_mask *mask = b->p.mask;
    size_t n = bauta_mask_queries(mask), m = bauta_mask_keys(mask);
    const bauta_attention_bias *bias = &b->bias;
    unsigned char *used = calloc(b->count + 1, 1);
    assert_non_null(used);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++) {
            if (!bauta_mask_visible(mask, i, j))
                continue;
            size_t row = bias->tensor_rows ? bias->tensor_rows[i] : i;
            for (size_t h = 0; h < b->p.shape.heads; h++)
                used[row * bias->tensor_row + h * bias->tensor_head + j -
                     bauta_mask_origin(mask, i)] = 1;
        }
    for (size_t i = 0; i < b->count; i++)
        if (!used[i])
            b->numbers[i] = i % 2 ? NAN : INFINITY;
    free(used);
}

static biased biased_make(test_random *r, const bauta_mask *mask, size_t form)
{
    size_t n = bauta_mask_queries(mask), m = bauta_mask_keys(mask);
    biased b = { .p = problem_random(r, mask),
                 .bias = BAUTA_ATTENTION_BIAS_INIT };
    b.rows_count = n;
    b.rows = calloc(n + 1, sizeof(*b.rows));
    assert_non_null(b.rows);
    if (form == CAP_ONLY || test_below(r, 2))
        b.bias.softcap = 0.5f + (float)test_below(r, 20);
    if (form == TENSOR)
        tensor_make(r, &b, n, m);
    else if (form == SLOPES)
        b.count = b.p.shape.heads;
    else if (form == TABLE)
        distances_make(r, &b, n, m);
    if (form != TENSOR && test_below(r, 2)) {
        for (size_t i = 0; i < n; i++)
            b.rows[i] = (uint32_t)test_below(r, 2 * m + 2);
        b.bias.positions = b.rows;
    }
    b.numbers = problem_floats(r, b.count, form == SLOPES ? 0.5f : 4);
    b.gradient = calloc(b.count + 1, sizeof(float));
    assert_non_null(b.gradient);
    b.bias.tensor = form == TENSOR ? b.numbers : NULL;
    b.bias.slopes = form == SLOPES ? b.numbers : NULL;
    b.bias.table = form == TABLE ? b.numbers : NULL;
    b.bias.dtensor = form == TENSOR ? b.gradient : NULL;
    b.bias.dtable = form == TABLE ? b.gradient : NULL;
    if (form == TENSOR)
        tensor_poison(&b);
    return b;
}

static void biased_free(biased *b)
{
    problem_free(&b->p);
    free(b->numbers);
    free(b->gradient);
    free(b->rows);
}

/* The same inputs; outputs and gradients anew. */
static biased biased_copy(const biased *b)
{
    biased c = *b;
    c.p = problem_copy(&b->p);
    c.numbers = memcpy(problem_floats(NULL, b->count, 0), b->numbers,
                       b->count * sizeof(float));
    c.rows = memcpy(calloc(b->rows_count + 1, sizeof(*c.rows)), b->rows,
                    b->rows_count * sizeof(*c.rows));
    c.gradient = calloc(b->count + 1, sizeof(float));
    assert_non_null(c.gradient);
    c.bias.tensor = b->bias.tensor ? c.numbers : NULL;
    c.bias.slopes = b->bias.slopes ? c.numbers : NULL;
    c.bias.table = b->bias.table ? c.numbers : NULL;
    c.bias.dtensor = b->bias.dtensor ? c.gradient : NULL;
    c.bias.dtable = b->bias.dtable ? c.gradient : NULL;
    c.bias.tensor_rows = b->bias.tensor_rows ? c.rows : NULL;
    c.bias.positions = b->bias.positions ? c.rows : NULL;
    return c;
}

static void biased_run(biased *b, bauta_context *context, size_t tile_rows)
{
    b->p.shape.bias = &b->bias;
    problem_run(&b->p, context, tile_rows);
}

static void same_biased(const biased *want, const biased *got)
{
    same_problem(&want->p, &got->p);
    same_bits("gradient of the bias", want->gradient, got->gradient,
              want->count);
}

/* ---- The formula -------------------------------------------------------- */

static ptrdiff_t distance_of(const biased *b, size_t i, size_t j)
{
    const bauta_mask *mask = b->p.mask;
    ptrdiff_t origin = (ptrdiff_t)bauta_mask_origin(mask, i);
    ptrdiff_t p = (ptrdiff_t)(i + bauta_mask_keys(mask)) -
                  (ptrdiff_t)bauta_mask_queries(mask) - origin;
    if (b->bias.positions)
        p = (ptrdiff_t)b->bias.positions[i];
    return (ptrdiff_t)j - origin - p;
}

/* Which of the numbers is that of a visible pair. */
static size_t number_of(const biased *b, size_t i, size_t h, size_t j)
{
    const bauta_attention_bias *bias = &b->bias;
    if (bias->tensor) {
        size_t row = bias->tensor_rows ? bias->tensor_rows[i] : i;
        return row * bias->tensor_row + h * bias->tensor_head + j -
               bauta_mask_origin(b->p.mask, i);
    }
    if (bias->slopes)
        return h;
    ptrdiff_t row = distance_of(b, i, j) - bias->first_distance;
    ptrdiff_t last = (ptrdiff_t)bias->distances - 1;
    row = row < 0 ? 0 : row > last ? last : row;
    return (size_t)row * b->p.shape.heads + h;
}

/* M, dense (queries, heads, keys); NULL if there is none. */
static double *dense_bias(const biased *b)
{
    size_t n = bauta_mask_queries(b->p.mask), m = bauta_mask_keys(b->p.mask);
    size_t heads = b->p.shape.heads;
    if (!b->count)
        return NULL;
    double *dense = calloc(n * heads * m + 1, sizeof(*dense));
    assert_non_null(dense);
    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < heads; h++)
            for (size_t j = 0; j < m; j++) {
                if (!bauta_mask_visible(b->p.mask, i, j))
                    continue;
                double x = (double)b->numbers[number_of(b, i, h, j)];
                if (b->bias.slopes)
                    x *= (double)distance_of(b, i, j);
                dense[(i * heads + h) * m + j] = x;
            }
    return dense;
}

/* The gradient of each number: the sum over its pairs, one rounding for each
 * addition of the float chain, of which each term has a part. */
static double gradient_error(const biased *b, const oracle *o)
{
    size_t n = bauta_mask_queries(b->p.mask), m = bauta_mask_keys(b->p.mask);
    size_t heads = b->p.shape.heads;
    oracle_value *sum = calloc(b->count + 1, sizeof(*sum));
    assert_non_null(sum);
    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < heads; h++)
            for (size_t j = 0; j < m; j++) {
                if (!bauta_mask_visible(b->p.mask, i, j))
                    continue;
                const oracle_value *d = &o->dbias[(i * heads + h) * m + j];
                oracle_value *to = &sum[number_of(b, i, h, j)];
                to->value += d->value;
                to->bound += 1.01 * d->bound + 0x1p-120 +
                             fabs(d->value) * (double)(n * heads) * 0x1p-24;
            }
    double error = oracle_error(sum, b->gradient, b->count);
    free(sum);
    return error;
}

static oracle oracle_of(const biased *b, const double *dense)
{
    const problem *p = &b->p;
    oracle o = { .mask = p->mask,
                 .heads = p->shape.heads,
                 .kv_heads = p->shape.kv_heads,
                 .head_dim = p->shape.head_dim,
                 .value_dim = p->shape.value_dim,
                 .scale = 1 / sqrt((double)p->shape.head_dim),
                 .q = p->q,
                 .k = p->k,
                 .v = p->v,
                 .dout = p->dout,
                 .softcap = (double)b->bias.softcap,
                 .bias = dense };
    oracle_run(&o);
    return o;
}

static void results_are_within_the_derived_bound(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    bauta_context *context = test_context(NULL, 0);
    static const char *const names[] = {
        "out", "lse", "dq", "dk", "dv", "dbias"
    };
    double worst[6] = { 0 };
    for (size_t round = 0; round < 80; round++) {
        bauta_mask *mask = random_mask(&r);
        biased b = biased_make(&r, mask, round % FORMS);
        biased_run(&b, context, BT_TILE_ROWS);
        double *dense = dense_bias(&b);
        oracle o = oracle_of(&b, dense);
        double error[6] = { oracle_error(o.out, b.p.out, b.p.no),
                            oracle_error(o.lse, b.p.lse, b.p.nl),
                            oracle_error(o.dq, b.p.dq, b.p.nq),
                            oracle_error(o.dk, b.p.dk, b.p.nk),
                            oracle_error(o.dv, b.p.dv, b.p.nv),
                            b.bias.dtensor || b.bias.dtable
                                ? gradient_error(&b, &o)
                                : 0 };
        for (size_t i = 0; i < 6; i++) {
            worst[i] = fmax(worst[i], error[i]);
            if (!(error[i] <= 1))
                fail_msg("round %zu: %s is off by %g times its bound", round,
                         names[i], error[i]);
        }
        oracle_release(&o);
        free(dense);
        biased_free(&b);
        bauta_mask_free(mask);
    }
    printf("worst error in units of the bound: out %.3f lse %.3f dq %.3f dk "
           "%.3f dv %.3f dbias %.3f\n",
           worst[0], worst[1], worst[2], worst[3], worst[4], worst[5]);
    bauta_context_free(context);
}

/* ---- Equal bits --------------------------------------------------------- */

/* The order of a table's sums depends on the blocks of keys and the rows, not
 * on tiles. */
static void any_isa_threads_and_tile_give_the_same_bits(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 1);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    static const int threads[] = { 1, 2, 4 };
    static const size_t tiles[] = { 1, 2, 5, 6, 7, 17, 64, 96, 192 };
    bauta_context *plain = test_context("c", 1);
    for (size_t round = 0; round < 60; round++) {
        bauta_mask *mask = random_mask(&r);
        biased want = biased_make(&r, mask, round % FORMS);
        biased_run(&want, plain, BT_TILE_ROWS);
        for (size_t i = 0; i < isa_count; i++)
            for (size_t t = 0; t < BT_LEN(threads); t++) {
                biased got = biased_copy(&want);
                bauta_context *context = test_context(isas[i], threads[t]);
                biased_run(&got, context, tiles[test_below(&r, BT_LEN(tiles))]);
                same_biased(&want, &got);
                bauta_context_free(context);
                biased_free(&got);
            }
        biased_free(&want);
        bauta_mask_free(mask);
    }
    bauta_context_free(plain);
}

/* Row i alone, over plain keys and over a cache, must equal the whole pass. */
static void decode_row(const biased *all, bauta_context *context,
                       const bauta_kv_cache *cache, size_t i)
{
    bauta_attention_shape s = all->p.shape;
    bauta_attention_bias bias = all->bias;
    bauta_plan *plan = NULL;
    size_t o_row = s.heads * s.value_dim;
    float *out = problem_floats(NULL, o_row, 0);
    float *lse = problem_floats(NULL, s.heads, 0);
    const float *q = all->p.q + i * s.heads * s.head_dim;
    uint32_t own = (uint32_t)i;
    if (bias.tensor)
        bias.tensor_rows = bias.tensor_rows ? bias.tensor_rows + i : &own;
    bias.positions = bias.positions ? bias.positions + i : NULL;
    s.bias = &bias;
    assert_int_equal(bauta_plan_create(&plan, all->p.mask, i, 1, NULL), 0);
    assert_int_equal(bauta_attention_forward(context, plan, &s, q, all->p.k,
                                             all->p.v, out, lse, NULL),
                     0);
    same_bits("out", all->p.out + i * o_row, out, o_row);
    same_bits("lse", all->p.lse + i * s.heads, lse, s.heads);
    if (cache) {
        out[0] = NAN;
        assert_int_equal(
            bauta_attention_cached(context, plan, &s, q, cache, out, lse, NULL),
            0);
        same_bits("cached out", all->p.out + i * o_row, out, o_row);
        same_bits("cached lse", all->p.lse + i * s.heads, lse, s.heads);
    }
    bauta_plan_free(plan);
    free(out);
    free(lse);
}

static void decoding_row_by_row_equals_the_parallel_pass(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 2);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    for (size_t round = 0; round < 32; round++) {
        bauta_context *context =
            test_context(isas[round % isa_count], 1 + (int)(round % 3));
        bauta_mask *any = random_mask(&r), *causal = NULL, *mask = NULL;
        size_t n = bauta_mask_queries(any), m = bauta_mask_keys(any);
        assert_int_equal(bauta_mask_causal(&causal, n, m, NULL), 0);
        assert_int_equal(bauta_mask_and(&mask, any, causal, NULL), 0);
        biased all = biased_make(&r, mask, round % FORMS);
        const bauta_attention_shape *s = &all.p.shape;
        biased_run(&all, context, BT_TILE_ROWS);
        bool documents = false; // a cache holds one sequence
        for (size_t i = 0; i < n; i++)
            documents |= bauta_mask_origin(mask, i) != 0;
        bauta_kv_cache *cache = NULL;
        assert_int_equal(bauta_kv_cache_create(&cache, s, m, NULL), 0);
        assert_int_equal(
            bauta_kv_cache_append(cache, s, m, all.p.k, all.p.v, NULL), 0);
        for (size_t i = 0; i < n; i++)
            decode_row(&all, context, documents ? NULL : cache, i);
        bauta_kv_cache_free(cache);
        biased_free(&all);
        bauta_mask_free(any);
        bauta_mask_free(causal);
        bauta_mask_free(mask);
        bauta_context_free(context);
    }
}

/* Square documents, whose positions need not be given. */
static void a_document_gives_the_same_bits_alone_and_packed(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 3);
    bauta_context *context = test_context(NULL, 2);
    for (size_t round = 0; round < 12; round++) {
        size_t lengths[3], total = 0, at = 0;
        bauta_mask *documents = NULL, *causal = NULL, *mask = NULL;
        for (size_t d = 0; d < 3; d++)
            total += lengths[d] = 1 + test_below(&r, 100);
        assert_int_equal(
            bauta_mask_documents(&documents, 3, lengths, NULL, NULL), 0);
        assert_int_equal(bauta_mask_causal(&causal, total, total, NULL), 0);
        assert_int_equal(bauta_mask_and(&mask, documents, causal, NULL), 0);
        biased all = biased_make(&r, mask, round % 2 ? SLOPES : TABLE);
        all.bias.positions = NULL;
        biased_run(&all, context, BT_TILE_ROWS);
        const bauta_attention_shape *s = &all.p.shape;
        for (size_t d = 0; d < 3; at += lengths[d++]) {
            bauta_mask *one = NULL;
            bauta_plan *plan = NULL;
            size_t n = lengths[d], o_row = s->heads * s->value_dim;
            float *out = problem_floats(NULL, n * o_row, 0);
            assert_int_equal(bauta_mask_causal(&one, n, n, NULL), 0);
            assert_int_equal(bauta_plan_create(&plan, one, 0, n, NULL), 0);
            assert_int_equal(
                bauta_attention_forward(
                    context, plan, s, all.p.q + at * s->heads * s->head_dim,
                    all.p.k + at * s->kv_heads * s->head_dim,
                    all.p.v + at * s->kv_heads * s->value_dim, out, NULL, NULL),
                0);
            same_bits("out", out, all.p.out + at * o_row, n * o_row);
            free(out);
            bauta_plan_free(plan);
            bauta_mask_free(one);
        }
        biased_free(&all);
        bauta_mask_free(documents);
        bauta_mask_free(causal);
        bauta_mask_free(mask);
    }
    bauta_context_free(context);
}

/* A bias of 0 and a zeroed struct change no bit. */
static void no_bias_is_the_bias_of_zero(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 4);
    bauta_context *context = test_context(NULL, 2);
    for (size_t round = 0; round < 8; round++) {
        bauta_mask *mask = random_mask(&r);
        problem want = problem_random(&r, mask);
        problem_run(&want, context, BT_TILE_ROWS);
        problem got = problem_copy(&want);
        bauta_attention_bias bias = BAUTA_ATTENTION_BIAS_INIT;
        float *zeros = calloc(want.shape.heads, sizeof(*zeros));
        assert_non_null(zeros);
        bias.slopes = round % 2 ? zeros : NULL;
        got.shape.bias = &bias;
        problem_run(&got, context, BT_TILE_ROWS);
        same_problem(&want, &got);
        free(zeros);
        problem_free(&got);
        problem_free(&want);
        bauta_mask_free(mask);
    }
    bauta_context_free(context);
}

/* ---- Infinity ----------------------------------------------------------- */

/* -infinity in the bias hides a key, to rounding, like the mask; and a row of
 * it is an empty one. */
static void minus_infinity_gives_a_key_no_weight(void **state)
{
    (void)state;
    enum { N = 70 };
    test_random r = test_random_from(seed + 5);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    static float tensor[N * N];
    static unsigned char visible[N * N];
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            visible[i * N + j] = i % 10 != 3 && (i + j) % 3 != 0;
            tensor[i * N + j] = visible[i * N + j] ? 0.0f : -INFINITY;
        }
    bauta_mask *all = NULL, *some = NULL;
    assert_int_equal(bauta_mask_all(&all, N, N, NULL), 0);
    assert_int_equal(bauta_mask_dense(&some, N, N, visible, NULL), 0);
    for (size_t isa = 0; isa < isa_count; isa++) {
        bauta_context *context = test_context(isas[isa], 2);
        bauta_attention_bias bias = BAUTA_ATTENTION_BIAS_INIT;
        bias.tensor = tensor;
        bias.tensor_row = N;
        problem want = problem_make(&r, some, 2, 1, 16, 16);
        problem got = problem_copy(&want);
        problem_run(&want, context, BT_TILE_ROWS);
        got.mask = all;
        got.shape.bias = &bias;
        problem_run(&got, context, BT_TILE_ROWS);
        same_problem(&want, &got);
        assert_true(got.lse[3 * 2] == -INFINITY && got.out[3 * 32] == 0);
        problem_free(&want);
        problem_free(&got);
        bauta_context_free(context);
    }
    bauta_mask_free(all);
    bauta_mask_free(some);
}

/* ---- Errors -------------------------------------------------------------- */

static void bad_biases_are_reported(void **state)
{
    (void)state;
    const float number = 1;
    float gradient = 0;
    bauta_mask *mask = NULL;
    bauta_plan *plan = NULL;
    bauta_context *context = test_context(NULL, 1);
    test_random r = test_random_from(seed + 6);
    assert_int_equal(bauta_mask_causal(&mask, 4, 4, NULL), 0);
    assert_int_equal(bauta_plan_create(&plan, mask, 0, 4, NULL), 0);
    problem p = problem_make(&r, mask, 1, 1, 8, 8);
    const struct {
        const char *message;
        bauta_attention_bias bias;
    } cases[] = {
        { "softcap is -1, not a positive number", { .softcap = -1 } },
        { "softcap is nan, not a positive number", { .softcap = NAN } },
        { "softcap is inf, not a positive number", { .softcap = INFINITY } },
        { "a bias has one of tensor, slopes and table, not several",
          { .tensor = &number, .slopes = &number } },
        { "the table has 0 distances, not from 1 to 4294967295",
          { .table = &number } },
        { "first_distance is 4294967296, which no two tokens have",
          { .table = &number,
            .distances = 1,
            .first_distance = (ptrdiff_t)1 << 32 } },
        { "dtensor without a tensor", { .dtensor = &gradient } },
        { "dtable without a table", { .dtable = &gradient } },
    };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bauta_error err = { BAUTA_OK, "" };
        bauta_attention_bias bias = cases[i].bias;
        bias.size = sizeof(bias);
        p.shape.bias = &bias;
        assert_int_equal(bauta_attention_forward(context, plan, &p.shape, p.q,
                                                 p.k, p.v, p.out, p.lse, &err),
                         BAUTA_ERR_ARGUMENT);
        assert_string_equal(err.message, cases[i].message);
    }
    problem_free(&p);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    bauta_context_free(context);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_within_the_derived_bound),
        cmocka_unit_test(any_isa_threads_and_tile_give_the_same_bits),
        cmocka_unit_test(decoding_row_by_row_equals_the_parallel_pass),
        cmocka_unit_test(a_document_gives_the_same_bits_alone_and_packed),
        cmocka_unit_test(no_bias_is_the_bias_of_zero),
        cmocka_unit_test(minus_infinity_gives_a_key_no_weight),
        cmocka_unit_test(bad_biases_are_reported),
    };
    return cmocka_run_group_tests_name("attention_bias", tests, NULL, NULL);
}
