/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention.c - the guarantees of masked attention, through the API. */
#include "attention_oracle.h"
#include "attention_problem.h"
#include "backend/cpu/kernels/kernels.h"

static uint64_t seed;

static bauta_mask *random_mask(test_random *r)
{
    static const size_t sizes[] = { 1, 2, 5, 63, 64, 65, 100, 130, 200 };
    size_t n = sizes[test_below(r, BT_LEN(sizes))];
    size_t m = test_below(r, 2) ? n : sizes[test_below(r, BT_LEN(sizes))];
    return test_mask_random(r, n, m, 2);
}

static void any_isa_threads_and_tile_give_the_same_bits(void **state)
{
    (void)state;
    test_random r = test_random_from(seed);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    static const int threads[] = { 1, 2, 4 };
    static const size_t tiles[] = { 1, 2, 5, 6, 7, 17, 64, 96, 192 };
    bauta_context *plain = test_context("c", 1);
    for (size_t round = 0; round < 60; round++) {
        bauta_mask *mask = random_mask(&r);
        problem want = problem_random(&r, mask);
        problem_run(&want, plain, BT_TILE_ROWS);
        for (size_t i = 0; i < isa_count; i++)
            for (size_t t = 0; t < BT_LEN(threads); t++) {
                problem got = problem_copy(&want);
                bauta_context *context = test_context(isas[i], threads[t]);
                problem_run(&got, context,
                            tiles[test_below(&r, BT_LEN(tiles))]);
                same_problem(&want, &got);
                bauta_context_free(context);
                problem_free(&got);
            }
        problem_free(&want);
        bauta_mask_free(mask);
    }
    bauta_context_free(plain);
}

static void results_are_within_the_derived_bound(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 1);
    bauta_context *context = test_context(NULL, 0);
    double worst[5] = { 0 };
    for (size_t round = 0; round < 60; round++) {
        bauta_mask *mask = random_mask(&r);
        problem p = problem_random(&r, mask);
        problem_run(&p, context, BT_TILE_ROWS);
        oracle o = { .mask = mask,
                     .heads = p.shape.heads,
                     .kv_heads = p.shape.kv_heads,
                     .head_dim = p.shape.head_dim,
                     .value_dim = p.shape.value_dim,
                     .scale = 1 / sqrt((double)p.shape.head_dim),
                     .q = p.q,
                     .k = p.k,
                     .v = p.v,
                     .dout = p.dout };
        oracle_run(&o);
        double error[5] = { oracle_error(o.out, p.out, p.no),
                            oracle_error(o.lse, p.lse, p.nl),
                            oracle_error(o.dq, p.dq, p.nq),
                            oracle_error(o.dk, p.dk, p.nk),
                            oracle_error(o.dv, p.dv, p.nv) };
        for (size_t i = 0; i < 5; i++)
            worst[i] = fmax(worst[i], error[i]);
        oracle_release(&o);
        problem_free(&p);
        bauta_mask_free(mask);
    }
    printf("worst error in units of the bound: out %.3f lse %.3f dq %.3f dk "
           "%.3f dv %.3f\n",
           worst[0], worst[1], worst[2], worst[3], worst[4]);
    for (size_t i = 0; i < 5; i++)
        assert_true(worst[i] <= 1);
    bauta_context_free(context);
}

/* Fill row `row` of x (rows, width) with NaN and infinities. */
static void poison_row(float *x, size_t row, size_t width)
{
    for (size_t i = 0; i < width; i++)
        x[row * width + i] = i % 3 == 0   ? NAN
                             : i % 3 == 1 ? INFINITY
                                          : -INFINITY;
}

static void hidden_nan_and_infinity_change_no_bit(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 2);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    for (size_t round = 0; round < 80; round++) {
        bauta_context *context = test_context(isas[round % isa_count], 2);
        bauta_mask *mask = random_mask(&r);
        size_t n = bauta_mask_queries(mask), m = bauta_mask_keys(mask);
        problem clean = problem_random(&r, mask);
        problem_run(&clean, context, BT_TILE_ROWS);
        size_t q_row = clean.nq / n, o_row = clean.no / n;
        size_t k_row = clean.nk / m, v_row = clean.nv / m;

        // Every key that query i does not see: row i is unchanged.
        size_t i = test_below(&r, n);
        problem keys = problem_copy(&clean);
        for (size_t j = 0; j < m; j++)
            if (!bauta_mask_visible(mask, i, j)) {
                poison_row(keys.k, j, k_row);
                poison_row(keys.v, j, v_row);
            }
        problem_run(&keys, context, BT_TILE_ROWS);
        same_bits("out", clean.out + i * o_row, keys.out + i * o_row, o_row);
        same_bits("dq", clean.dq + i * q_row, keys.dq + i * q_row, q_row);

        // Every query that does not see key j: its gradients are unchanged.
        size_t j = test_below(&r, m);
        problem queries = problem_copy(&clean);
        for (size_t row = 0; row < n; row++)
            if (!bauta_mask_visible(mask, row, j)) {
                poison_row(queries.q, row, q_row);
                poison_row(queries.dout, row, o_row);
            }
        problem_run(&queries, context, BT_TILE_ROWS);
        same_bits("dk", clean.dk + j * k_row, queries.dk + j * k_row, k_row);
        same_bits("dv", clean.dv + j * v_row, queries.dv + j * v_row, v_row);

        problem_free(&keys);
        problem_free(&queries);
        problem_free(&clean);
        bauta_mask_free(mask);
        bauta_context_free(context);
    }
}

static void visible_nan_reaches_the_output(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 3);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    bauta_mask *mask = NULL;
    assert_int_equal(bauta_mask_causal(&mask, 100, 100, NULL), 0);
    for (size_t isa = 0; isa < isa_count; isa++) {
        bauta_context *context = test_context(isas[isa], 1);
        problem p = problem_make(&r, mask, 1, 1, 16, 16);
        const uint32_t payload = 0x7fc00001; // a NaN with low bits set
        memcpy(&p.k[40 * 16], &payload, sizeof(payload));
        problem_run(&p, context, BT_TILE_ROWS);
        for (size_t i = 0; i < 100; i++) {
            assert_true(isnan(p.out[i * 16]) == (i >= 40));
            assert_true(isnan(p.lse[i]) == (i >= 40));
        }
        problem_free(&p);
        bauta_context_free(context);
    }
    bauta_mask_free(mask);
}

static void a_query_that_sees_nothing_gets_zeros(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 4);
    bauta_mask *mask = NULL;
    unsigned char dense[70 * 70] = { 0 };
    for (size_t i = 0; i < 70; i++)
        for (size_t j = 0; j < 70; j++)
            dense[i * 70 + j] = i % 3 != 0 && j % 5 != 0;
    assert_int_equal(bauta_mask_dense(&mask, 70, 70, dense, NULL), 0);
    bauta_context *context = test_context(NULL, 2);
    problem p = problem_make(&r, mask, 2, 1, 8, 8);
    for (size_t i = 0; i < 70; i += 3)
        poison_row(p.dout, i, 16); // not even a NaN gradient gets in
    problem_run(&p, context, BT_TILE_ROWS);
    const float zeros[16] = { 0 };
    for (size_t i = 0; i < 70; i += 3) {
        assert_true(p.lse[i * 2] == -INFINITY && p.lse[i * 2 + 1] == -INFINITY);
        same_bits("out", zeros, p.out + i * 16, 16);
        same_bits("dq", zeros, p.dq + i * 16, 16);
    }
    for (size_t j = 0; j < 70; j += 5) {
        same_bits("dk", zeros, p.dk + j * 8, 8);
        same_bits("dv", zeros, p.dv + j * 8, 8);
    }
    for (size_t i = 0; i < p.nk; i++)
        assert_true(isfinite(p.dk[i]) && isfinite(p.dv[i]));
    problem_free(&p);
    bauta_context_free(context);
    bauta_mask_free(mask);
}

static void scores_of_minus_infinity_are_an_empty_row(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 5);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    bauta_mask *mask = NULL;
    assert_int_equal(bauta_mask_all(&mask, 3, 80, NULL), 0);
    for (size_t isa = 0; isa < isa_count; isa++) {
        bauta_context *context = test_context(isas[isa], 1);
        problem p = problem_make(&r, mask, 1, 1, 1, 4);
        for (size_t j = 0; j < 80; j++)
            p.k[j] = -INFINITY;
        p.q[0] = 1;
        p.q[1] = 2;
        p.q[2] = 3;
        problem_run(&p, context, BT_TILE_ROWS);
        for (size_t i = 0; i < p.no; i++)
            assert_true(p.out[i] == 0);
        for (size_t i = 0; i < 3; i++)
            assert_true(p.lse[i] == -INFINITY);
        problem_free(&p);
        bauta_context_free(context);
    }
    bauta_mask_free(mask);
}

/* The rows [first, first + rows) of x, each `width` floats. */
static float *slice(const float *x, size_t first, size_t rows, size_t width)
{
    float *part = malloc((rows * width + 1) * sizeof(float));
    assert_non_null(part);
    return memcpy(part, x + first * width, rows * width * sizeof(float));
}

/* One document of a packed problem, alone. */
static problem document_alone(const problem *all, const bauta_mask *mask,
                              size_t query, size_t key)
{
    size_t n = bauta_mask_queries(mask), m = bauta_mask_keys(mask);
    const bauta_attention_shape *s = &all->shape;
    problem p = { .mask = mask, .shape = *s };
    size_t q_row = s->heads * s->head_dim, o_row = s->heads * s->value_dim;
    size_t k_row = s->kv_heads * s->head_dim,
           v_row = s->kv_heads * s->value_dim;
    p.nq = n * q_row;
    p.nk = m * k_row;
    p.nv = m * v_row;
    p.no = n * o_row;
    p.nl = n * s->heads;
    p.q = slice(all->q, query, n, q_row);
    p.dout = slice(all->dout, query, n, o_row);
    p.k = slice(all->k, key, m, k_row);
    p.v = slice(all->v, key, m, v_row);
    p.out = problem_floats(NULL, p.no, 0);
    p.lse = problem_floats(NULL, p.nl, 0);
    p.dq = problem_floats(NULL, p.nq, 0);
    p.dk = problem_floats(NULL, p.nk, 0);
    p.dv = problem_floats(NULL, p.nv, 0);
    return p;
}

static void a_document_gives_the_same_bits_alone_and_packed(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 6);
    bauta_context *context = test_context(NULL, 2);
    for (size_t round = 0; round < 30; round++) {
        bauta_mask *inner[4], *mask = NULL;
        size_t count = 1 + test_below(&r, 4), query = 0, key = 0;
        for (size_t d = 0; d < count; d++)
            inner[d] = random_mask(&r);
        assert_int_equal(bauta_mask_pack(&mask, count,
                                         (const bauta_mask *const *)inner,
                                         NULL),
                         0);
        problem all = problem_random(&r, mask);
        problem_run(&all, context, BT_TILE_ROWS);
        const bauta_attention_shape *s = &all.shape;
        for (size_t d = 0; d < count; d++) {
            problem p = document_alone(&all, inner[d], query, key);
            problem_run(&p, context, BT_TILE_ROWS);
            same_bits("out", p.out, all.out + query * s->heads * s->value_dim,
                      p.no);
            same_bits("lse", p.lse, all.lse + query * s->heads, p.nl);
            same_bits("dq", p.dq, all.dq + query * s->heads * s->head_dim,
                      p.nq);
            same_bits("dk", p.dk, all.dk + key * s->kv_heads * s->head_dim,
                      p.nk);
            same_bits("dv", p.dv, all.dv + key * s->kv_heads * s->value_dim,
                      p.nv);
            query += bauta_mask_queries(inner[d]);
            key += bauta_mask_keys(inner[d]);
            problem_free(&p);
            bauta_mask_free(inner[d]);
        }
        problem_free(&all);
        bauta_mask_free(mask);
    }
    bauta_context_free(context);
}

static void a_padded_batch_gives_the_same_bits_as_its_sequences(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 7);
    bauta_context *context = test_context(NULL, 2);
    const size_t lengths[] = { 70, 1, 0, 100, 33 };
    bauta_mask *pads = NULL, *causal = NULL, *mask = NULL;
    assert_int_equal(
        bauta_mask_lengths(&pads, 5, 100, 100, NULL, lengths, NULL), 0);
    assert_int_equal(bauta_mask_causal(&causal, 500, 500, NULL), 0);
    assert_int_equal(bauta_mask_and(&mask, pads, causal, NULL), 0);
    problem all = problem_make(&r, mask, 2, 1, 24, 24);
    for (size_t b = 0; b < 5; b++) // padding holds anything
        for (size_t t = lengths[b]; t < 100; t++) {
            poison_row(all.k, b * 100 + t, 24);
            poison_row(all.v, b * 100 + t, 24);
            poison_row(all.q, b * 100 + t, 48);
            poison_row(all.dout, b * 100 + t, 48);
        }
    problem_run(&all, context, BT_TILE_ROWS);
    for (size_t b = 0; b < 5; b++) {
        bauta_mask *one = NULL;
        assert_int_equal(bauta_mask_causal(&one, lengths[b], lengths[b], NULL),
                         0);
        problem p = document_alone(&all, one, b * 100, b * 100);
        problem_run(&p, context, BT_TILE_ROWS);
        same_bits("out", p.out, all.out + b * 100 * 48, p.no);
        same_bits("dq", p.dq, all.dq + b * 100 * 48, p.nq);
        same_bits("dk", p.dk, all.dk + b * 100 * 24, p.nk);
        same_bits("dv", p.dv, all.dv + b * 100 * 24, p.nv);
        problem_free(&p);
        bauta_mask_free(one);
    }
    problem_free(&all);
    bauta_mask_free(mask);
    bauta_mask_free(causal);
    bauta_mask_free(pads);
    bauta_context_free(context);
}

/* Row i alone, over plain keys and over a cache, must equal the whole pass. */
static void decode_row(const problem *all, bauta_context *context,
                       const bauta_kv_cache *cache, size_t i)
{
    const bauta_attention_shape *s = &all->shape;
    bauta_plan *plan = NULL;
    float *out = problem_floats(NULL, s->heads * s->value_dim, 0);
    float *lse = problem_floats(NULL, s->heads, 0);
    const float *q = all->q + i * s->heads * s->head_dim;
    const float *want = all->out + i * s->heads * s->value_dim;
    assert_int_equal(bauta_plan_create(&plan, all->mask, i, 1, NULL), 0);
    assert_int_equal(bauta_attention_forward(context, plan, s, q, all->k,
                                             all->v, out, lse, NULL),
                     0);
    same_bits("out", want, out, s->heads * s->value_dim);
    same_bits("lse", all->lse + i * s->heads, lse, s->heads);
    if (cache) {
        out[0] = NAN;
        assert_int_equal(
            bauta_attention_cached(context, plan, s, q, cache, out, lse, NULL),
            0);
        same_bits("cached out", want, out, s->heads * s->value_dim);
        same_bits("cached lse", all->lse + i * s->heads, lse, s->heads);
    }
    bauta_plan_free(plan);
    free(out);
    free(lse);
}

static void decoding_row_by_row_equals_the_parallel_pass(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 8);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    for (size_t round = 0; round < 30; round++) {
        bauta_context *context =
            test_context(isas[round % isa_count], 1 + (int)(round % 3));
        bauta_mask *any = random_mask(&r), *causal = NULL, *mask = NULL;
        size_t n = bauta_mask_queries(any), m = bauta_mask_keys(any);
        assert_int_equal(bauta_mask_causal(&causal, n, m, NULL), 0);
        assert_int_equal(bauta_mask_and(&mask, any, causal, NULL), 0);
        problem all = problem_random(&r, mask);
        const bauta_attention_shape *s = &all.shape;
        problem_run(&all, context, BT_TILE_ROWS);
        bool documents = false; // a cache holds one sequence
        for (size_t i = 0; i < n; i++)
            documents |= bauta_mask_origin(mask, i) != 0;
        bauta_kv_cache *cache = NULL;
        assert_int_equal(bauta_kv_cache_create(&cache, s, m, NULL), 0);
        for (size_t i = 0; i < n; i++) {
            // The cache grows with the position and never holds the future.
            size_t end = i + m + 1 > n ? i + m + 1 - n : 0;
            size_t held = bauta_kv_cache_tokens(cache);
            if (end > held)
                assert_int_equal(bauta_kv_cache_append(
                                     cache, s, end - held,
                                     all.k + held * s->kv_heads * s->head_dim,
                                     all.v + held * s->kv_heads * s->value_dim,
                                     NULL),
                                 0);
            decode_row(&all, context, documents ? NULL : cache, i);
        }
        bauta_kv_cache_free(cache);
        problem_free(&all);
        bauta_mask_free(any);
        bauta_mask_free(causal);
        bauta_mask_free(mask);
        bauta_context_free(context);
    }
}

static void strides_and_grouped_heads_change_no_bit(void **state)
{
    (void)state;
    test_random r = test_random_from(seed + 9);
    bauta_context *context = test_context(NULL, 2);
    bauta_mask *mask = NULL;
    assert_int_equal(bauta_mask_window(&mask, 90, 90, 20, NULL), 0);
    // 4 heads over 2 key heads, against the same keys repeated for 4 heads.
    problem grouped = problem_make(&r, mask, 4, 2, 16, 16);
    problem_run(&grouped, context, BT_TILE_ROWS);
    // Head-major, with gaps: q and out (head, token, dim + 5); k and v
    // likewise.
    bauta_attention_shape s = grouped.shape;
    s.q_token = s.out_token = s.k_token = s.v_token = 21;
    s.q_head = s.out_head = s.k_head = s.v_head = 90 * 21;
    s.kv_heads = 4;
    enum { WIDE = 4 * 90 * 21 };
    float *x[8];
    for (size_t i = 0; i < 8; i++)
        x[i] = problem_floats(NULL, WIDE, 0);
    for (size_t t = 0; t < 90; t++)
        for (size_t h = 0; h < 4; h++)
            for (size_t d = 0; d < 16; d++) {
                size_t to = h * s.q_head + t * s.q_token + d;
                x[0][to] = grouped.q[(t * 4 + h) * 16 + d];
                x[1][to] = grouped.k[(t * 2 + h / 2) * 16 + d];
                x[2][to] = grouped.v[(t * 2 + h / 2) * 16 + d];
                x[4][to] = grouped.dout[(t * 4 + h) * 16 + d];
            }
    bauta_plan *plan = NULL;
    float *lse = problem_floats(NULL, grouped.nl, 0);
    assert_int_equal(bauta_plan_create(&plan, mask, 0, 90, NULL), 0);
    assert_int_equal(bauta_attention_forward(context, plan, &s, x[0], x[1],
                                             x[2], x[3], lse, NULL),
                     0);
    assert_int_equal(bauta_attention_backward(context, plan, &s, x[0], x[1],
                                              x[2], x[3], lse, x[4], x[5], x[6],
                                              x[7], NULL),
                     0);
    for (size_t t = 0; t < 90; t++)
        for (size_t h = 0; h < 4; h++) {
            size_t at = h * s.q_head + t * s.q_token;
            same_bits("out", grouped.out + (t * 4 + h) * 16, x[3] + at, 16);
            same_bits("dq", grouped.dq + (t * 4 + h) * 16, x[5] + at, 16);
            for (size_t d = 16; d < 21; d++) // the gaps are not written
                assert_true(isnan(x[3][at + d]) && isnan(x[5][at + d]) &&
                            isnan(x[6][at + d]) && isnan(x[7][at + d]));
        }
    for (size_t i = 0; i < 8; i++)
        free(x[i]);
    free(lse);
    bauta_plan_free(plan);
    problem_free(&grouped);
    bauta_mask_free(mask);
    bauta_context_free(context);
}

/* Bytes that the library holds, and the most it ever held. */
static size_t held, most;

static void *counting_alloc(void *user, size_t align, size_t size)
{
    (void)user;
    char *memory = aligned_alloc(align, (size + 2 * align - 1) / align * align);
    if (!memory)
        return NULL;
    memcpy(memory, &size, sizeof(size)); // in front, one alignment wide
    held += size;
    most = held > most ? held : most;
    return memory + align;
}

static void counting_free(void *user, void *memory)
{
    size_t size;
    char *front = (char *)memory - 64;
    (void)user;
    memcpy(&size, front, sizeof(size));
    held -= size;
    free(front);
}

/* Peak memory of a causal pass, forward and backward. */
static size_t memory_of(size_t tokens)
{
    static const bauta_allocator counting = { counting_alloc, counting_free,
                                              NULL };
    test_random r = test_random_from(seed + 10);
    bauta_mask *mask = NULL;
    bauta_allocator_set(&counting);
    most = 0;
    assert_int_equal(bauta_mask_causal(&mask, tokens, tokens, NULL), 0);
    bauta_context *context = test_context(NULL, 2);
    problem p = problem_make(&r, mask, 2, 1, 8, 8);
    problem_run(&p, context, BT_TILE_ROWS);
    problem_free(&p);
    bauta_context_free(context);
    bauta_mask_free(mask);
    bauta_allocator_set(NULL);
    assert_int_equal(held, 0);
    return most;
}

static void memory_grows_with_the_tokens_not_their_square(void **state)
{
    (void)state;
    size_t small = memory_of(1000), large = memory_of(4000);
    printf("%zu bytes for 1,000 tokens, %zu for 4,000\n", small, large);
    assert_true(large <= 4 * small);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_isa_threads_and_tile_give_the_same_bits),
        cmocka_unit_test(results_are_within_the_derived_bound),
        cmocka_unit_test(hidden_nan_and_infinity_change_no_bit),
        cmocka_unit_test(visible_nan_reaches_the_output),
        cmocka_unit_test(a_query_that_sees_nothing_gets_zeros),
        cmocka_unit_test(scores_of_minus_infinity_are_an_empty_row),
        cmocka_unit_test(a_document_gives_the_same_bits_alone_and_packed),
        cmocka_unit_test(a_padded_batch_gives_the_same_bits_as_its_sequences),
        cmocka_unit_test(decoding_row_by_row_equals_the_parallel_pass),
        cmocka_unit_test(strides_and_grouped_heads_change_no_bit),
        cmocka_unit_test(memory_grows_with_the_tokens_not_their_square),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
