/* SPDX-License-Identifier: Apache-2.0 */
/* test_kv_cache.c - caches that grow, shrink, free keys and fork, against a
 * model of them that is a list of tokens.
 *
 * A token is a number, and its key and value are functions of it. Whatever was
 * done to a cache, attention over it has the bits of attention over the plain
 * keys and values of its list, in which all freed tokens are NaN. */
#include "allocation_faults.h"
#include "attention_problem.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/error.h"

enum { CACHES = 5, TOKENS = 330, ROWS = 5 };

#define FLOATS ((size_t)2 * 24) /* two key heads */

static uint64_t seed;

/* A cache, and its expected contents. */
typedef struct cache_model {
    bauta_kv_cache *cache; /* NULL: none here */
    size_t tokens, gone;
    uint32_t token[TOKENS];
} cache_model;

typedef struct fixture {
    test_random r;
    bauta_context *context;
    bauta_attention_shape shape;
    cache_model all[CACHES];
    uint32_t next; /* token that never was */
} fixture;

static void token_write(uint32_t token, float *k, float *v)
{
    test_random r = test_random_from(token);
    for (size_t i = 0; i < FLOATS; i++) {
        k[i] = token ? test_float(&r) * 3 : NAN;
        v[i] = token ? test_float(&r) : NAN;
    }
}

/* Keys and values of a list, dense; freed ones are NaN. */
static void plain(const cache_model *s, float *k, float *v)
{
    for (size_t t = 0; t < s->tokens; t++)
        token_write(t < s->gone ? 0 : s->token[t], k + t * FLOATS,
                    v + t * FLOATS);
}

static float *floats(size_t count)
{
    float *x = calloc(count + 1, sizeof(*x));
    assert_non_null(x);
    return x;
}

/* ---- operations on a cache ----------------------------------------------- */

/* Append tokens. Token 0, which is NaN, is for keys that will be freed before
 * any query sees them. */
static void append(fixture *w, cache_model *s, size_t count, bool junk)
{
    bauta_error err;
    float *k = floats(count * FLOATS), *v = floats(count * FLOATS);
    for (size_t t = 0; t < count; t++) {
        uint32_t token = junk ? 0 : w->next++;
        s->token[s->tokens + t] = token;
        token_write(token, k + t * FLOATS, v + t * FLOATS);
    }
    if (bauta_kv_cache_append(s->cache, &w->shape, count, k, v, &err))
        fail_msg("%s", err.message);
    s->tokens += count;
    free(k);
    free(v);
}

static void truncate_to(cache_model *s, size_t tokens)
{
    bool held = tokens == 0 || tokens > s->gone;
    bauta_status status = bauta_kv_cache_truncate(s->cache, tokens, NULL);
    assert_int_equal(status, held ? BAUTA_OK : BAUTA_ERR_ARGUMENT);
    if (held)
        s->tokens = tokens;
    if (tokens == 0)
        s->gone = 0;
}

static void forget(cache_model *s, size_t tokens)
{
    assert_int_equal(bauta_kv_cache_evict(s->cache, tokens, NULL), 0);
    size_t gone = tokens / BT_BLOCK * BT_BLOCK;
    s->gone = gone > s->gone ? gone : s->gone;
}

static void fork_to(const cache_model *from, cache_model *to)
{
    if (from == to)
        return;
    bauta_kv_cache_free(to->cache);
    *to = *from;
    assert_int_equal(bauta_kv_cache_fork(&to->cache, from->cache, NULL), 0);
}

/* ---- attention ----------------------------------------------------------- */

/* Rows that see random spans of the tokens held. */
static bauta_mask *mask_draw(test_random *r, const cache_model *s, size_t rows)
{
    bauta_mask *mask = NULL;
    unsigned char *visible = calloc(rows * s->tokens + 1, 1);
    assert_non_null(visible);
    for (size_t i = 0; i < rows; i++) {
        bool seen = test_below(r, 4) > 0;
        for (size_t j = s->gone; j < s->tokens; j++) {
            visible[i * s->tokens + j] = seen;
            if (test_below(r, 60) == 0)
                seen = !seen;
        }
    }
    assert_int_equal(bauta_mask_dense(&mask, rows, s->tokens, visible, NULL),
                     0);
    free(visible);
    return mask;
}

static void compare(fixture *w, const cache_model *s)
{
    size_t rows = 1 + test_below(&w->r, ROWS);
    size_t columns = w->shape.heads * w->shape.head_dim;
    bauta_mask *mask = mask_draw(&w->r, s, rows);
    bauta_plan *plan = NULL;
    bauta_error err;
    float *k = floats(s->tokens * FLOATS), *v = floats(s->tokens * FLOATS);
    float *q = problem_floats(&w->r, rows * columns, 2);
    float *out = floats(2 * rows * columns);
    float *lse = floats(2 * rows * w->shape.heads);
    plain(s, k, v);
    assert_int_equal(bauta_plan_create(&plan, mask, 0, rows, NULL), 0);
    if (bauta_attention_forward(w->context, plan, &w->shape, q, k, v, out, lse,
                                &err) ||
        bauta_attention_cached(w->context, plan, &w->shape, q, s->cache,
                               out + rows * columns,
                               lse + rows * w->shape.heads, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < rows * columns; i++)
        if (isnan(out[i]))
            fail_msg("out[%zu] is NaN", i);
    same_bits("out", out, out + rows * columns, rows * columns);
    same_bits("lse", lse, lse + rows * w->shape.heads, rows * w->shape.heads);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    free(k);
    free(v);
    free(q);
    free(out);
    free(lse);
}

/* ---- random operations --------------------------------------------------- */

static void fixture_init(fixture *w, const char *isa, int threads,
                         uint64_t number)
{
    *w = (fixture){ .r = test_random_from(number),
                    .context = test_context(isa, threads),
                    .shape = BAUTA_ATTENTION_SHAPE_INIT,
                    .next = 1 };
    w->shape.heads = 4;
    w->shape.kv_heads = 2;
    w->shape.head_dim = FLOATS / 2;
    assert_int_equal(
        bauta_kv_cache_create(&w->all[0].cache, &w->shape, TOKENS, NULL), 0);
}

static void fixture_release(fixture *w)
{
    for (size_t i = 0; i < CACHES; i++)
        bauta_kv_cache_free(w->all[i].cache);
    bauta_context_free(w->context);
}

static void random_operation(fixture *w, cache_model *s)
{
    test_random *r = &w->r;
    size_t room = TOKENS - s->tokens, before = s->tokens;
    size_t some = test_below(r, 2) ? 1 : test_below(r, 90);
    switch (test_below(r, 8)) {
    case 0:
        fork_to(s, &w->all[test_below(r, CACHES)]);
        break;
    case 1:
        truncate_to(s, test_below(r, s->tokens + 1));
        break;
    case 2:
        forget(s, test_below(r, s->tokens + 1));
        break;
    case 3:
        append(w, s, some < room ? some : room, true);
        truncate_to(s, before);
        break;
    default:
        append(w, s, some < room ? some : room, false);
    }
    assert_int_equal(bauta_kv_cache_tokens(s->cache), s->tokens);
}

/* A junk token that cannot be truncated (its page is the first one left) would
 * be seen, so the sequence is always truncated to a token that is held. */
static void fixture_live(fixture *w, size_t steps)
{
    for (size_t i = 0; i < steps; i++) {
        cache_model *s = &w->all[test_below(&w->r, CACHES)];
        if (!s->cache)
            continue;
        if (s->tokens == s->gone && s->gone)
            append(w, s, 1, false);
        random_operation(w, s);
        compare(w, &w->all[0]);
        if (s->cache)
            compare(w, s);
    }
}

static void random_operations_keep_caches_equal_to_token_lists(void **state)
{
    (void)state;
    const char *isas[8];
    size_t count = bt_kernels_names(isas, BT_LEN(isas));
    for (size_t i = 0; i < 3 * count; i++) {
        fixture w;
        faults_begin();
        fixture_init(&w, isas[i % count], 1 << (i / count), seed + i);
        fixture_live(&w, 150);
        fixture_release(&w);
        assert_int_equal(faults_end(), 0);
    }
}

/* ---- memory -------------------------------------------------------------- */

static void freeing_old_tokens_bounds_a_cache(void **state)
{
    (void)state;
    enum { LONG = 20000, WINDOW = 100 };
    fixture w;
    faults_begin();
    fixture_init(&w, NULL, 1, seed);
    bauta_kv_cache *cache = NULL;
    float k[FLOATS] = { 0 }, v[FLOATS] = { 0 };
    assert_int_equal(bauta_kv_cache_create(&cache, &w.shape, LONG, NULL), 0);
    size_t live = faults_live();
    for (size_t t = 0; t < LONG; t++) {
        assert_int_equal(bauta_kv_cache_append(cache, &w.shape, 1, k, v, NULL),
                         0);
        if (t + 1 > WINDOW)
            assert_int_equal(bauta_kv_cache_evict(cache, t + 1 - WINDOW, NULL),
                             0);
        // Pages come in slabs of 1, 1 and 2: each is a block of memory and a
        // block that describes its pages. And the table.
        assert_true(faults_live() <= live + 7);
    }
    bauta_kv_cache_free(cache);
    fixture_release(&w);
    assert_int_equal(faults_end(), 0);
}

/* Of a fork only the page that both write to is copied. */
static void forks_share_until_one_writes(void **state)
{
    (void)state;
    fixture w;
    faults_begin();
    fixture_init(&w, NULL, 1, seed);
    append(&w, &w.all[0], 200, false);
    size_t live = faults_live();
    fork_to(&w.all[0], &w.all[1]);
    assert_int_equal(faults_live(), live + 2); // the cache and its table
    append(&w, &w.all[1], 1, false);
    // The last page, in a new slab: its memory and what describes it.
    assert_int_equal(faults_live(), live + 4);
    append(&w, &w.all[0], 1, false);
    append(&w, &w.all[1], 50, false);
    assert_int_equal(faults_live(), live + 4);
    bauta_kv_cache_free(w.all[0].cache); // the pages stay alive
    w.all[0].cache = NULL;
    compare(&w, &w.all[1]);
    fixture_release(&w);
    assert_int_equal(faults_end(), 0);
}

static bauta_status append_one(fixture *w, cache_model *s, bauta_error *err)
{
    float k[FLOATS], v[FLOATS];
    token_write(w->next, k, v);
    bauta_status status =
        bauta_kv_cache_append(s->cache, &w->shape, 1, k, v, err);
    if (!status)
        s->token[s->tokens++] = w->next++;
    return status;
}

/* A failed allocation leaves the cache, and the one it shares pages with,
 * unchanged. */
static void caches_survive_each_failing_allocation(void **state)
{
    (void)state;
    fixture w;
    faults_begin();
    fixture_init(&w, NULL, 1, seed);
    append(&w, &w.all[0], 127, false);
    for (size_t k = 0, done = 0; done < 3; k++) {
        bauta_error err;
        bauta_kv_cache *made = NULL;
        faults_arm(k);
        bauta_status status =
            done == 0 ? bauta_kv_cache_fork(&made, w.all[0].cache, &err)
                      : append_one(&w, &w.all[1], &err);
        if (faults_disarm()) {
            assert_int_equal(status, BAUTA_ERR_NOMEM);
            assert_non_null(strstr(err.message, "out of memory"));
            assert_null(made);
        } else {
            assert_int_equal(status, BAUTA_OK);
            if (done == 0) {
                w.all[1] = w.all[0];
                w.all[1].cache = made;
            }
            done++; // then a shared page, then a new one
            k = SIZE_MAX;
        }
        compare(&w, &w.all[0]);
        if (done)
            compare(&w, &w.all[1]);
    }
    fixture_release(&w);
    assert_int_equal(faults_end(), 0);
}

/* ---- refusals ------------------------------------------------------------ */

static void refused(bauta_status status, const bauta_error *err,
                    const char *message)
{
    assert_int_equal(status, BAUTA_ERR_ARGUMENT);
    if (!strstr(err->message, message))
        fail_msg("want \"%s\", got \"%s\"", message, err->message);
}

static void freed_tokens_cannot_be_read(void **state)
{
    (void)state;
    fixture w;
    bauta_error err;
    bauta_mask *mask = NULL;
    bauta_plan *plan = NULL;
    float q[4 * FLOATS] = { 0 }, out[4 * FLOATS];
    fixture_init(&w, NULL, 1, seed);
    bauta_kv_cache *cache = w.all[0].cache;
    append(&w, &w.all[0], 200, false);
    refused(bauta_kv_cache_evict(cache, 201, &err), &err, "evict 201 tokens");
    forget(&w.all[0], 130);
    refused(bauta_kv_cache_truncate(cache, 128, &err), &err, "token 127");
    assert_int_equal(bauta_mask_window(&mask, 1, 200, 73, NULL), 0);
    assert_int_equal(bauta_plan_create(&plan, mask, 0, 1, NULL), 0);
    refused(bauta_attention_cached(w.context, plan, &w.shape, q, cache, out,
                                   NULL, &err),
            &err, "keys from 64 to 127");
    refused(bauta_kv_cache_fork(NULL, cache, &err), &err, "out is NULL");
    refused(bauta_kv_cache_fork(&cache, NULL, &err), &err, "cache is NULL");
    assert_null(cache);
    refused(bauta_kv_cache_evict(NULL, 0, &err), &err, "cache is NULL");
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    fixture_release(&w);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_keep_caches_equal_to_token_lists),
        cmocka_unit_test(freeing_old_tokens_bounds_a_cache),
        cmocka_unit_test(forks_share_until_one_writes),
        cmocka_unit_test(caches_survive_each_failing_allocation),
        cmocka_unit_test(freed_tokens_cannot_be_read),
    };
    return cmocka_run_group_tests_name("kv_cache", tests, NULL, NULL);
}
