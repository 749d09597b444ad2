/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention_errors.c - attention calls with bad arguments return a status
 * and a message and write nothing. Calls on empty problems succeed. */
#include "allocation_faults.h"
#include "attention_problem.h"
#include "backend/cpu/kernels/kernels.h"

enum { QUERIES = 70, KEYS = 90, HEADS = 4, KV_HEADS = 2, DIM = 8, VALUE = 12 };

/* ---- A valid call, with one bad argument a test -------------------------- */

/* The pointers that calls take. */
enum {
    CONTEXT,
    OPTIONS,
    PLAN,
    SHAPE,
    CACHE,
    MADE, /* where a create call puts its object */
    IN_Q,
    IN_K,
    IN_V,
    IN_DOUT,
    OUT,
    LSE,
    DQ,
    DK,
    DV,
    POINTERS
};
static const char *const pointer_names[POINTERS] = {
    "context", "options", "plan", "shape", "cache", "out", "q", "k",
    "v",       "dout",    "out",  "lse",   "dq",    "dk",  "dv"
};

typedef struct call {
    void *p[POINTERS];
    size_t tokens; /* to append or to keep, or the capacity to create */
} call;

typedef bauta_status op_fn(const call *c, bauta_error *err);

static bauta_status op_context(const call *c, bauta_error *err)
{
    return bauta_context_create(c->p[MADE], c->p[OPTIONS], err);
}

static bauta_status op_forward(const call *c, bauta_error *err)
{
    return bauta_attention_forward(c->p[CONTEXT], c->p[PLAN], c->p[SHAPE],
                                   c->p[IN_Q], c->p[IN_K], c->p[IN_V],
                                   c->p[OUT], c->p[LSE], err);
}

static bauta_status op_backward(const call *c, bauta_error *err)
{
    return bauta_attention_backward(c->p[CONTEXT], c->p[PLAN], c->p[SHAPE],
                                    c->p[IN_Q], c->p[IN_K], c->p[IN_V],
                                    c->p[OUT], c->p[LSE], c->p[IN_DOUT],
                                    c->p[DQ], c->p[DK], c->p[DV], err);
}

static bauta_status op_cached(const call *c, bauta_error *err)
{
    return bauta_attention_cached(c->p[CONTEXT], c->p[PLAN], c->p[SHAPE],
                                  c->p[IN_Q], c->p[CACHE], c->p[OUT], c->p[LSE],
                                  err);
}

static bauta_status op_cache(const call *c, bauta_error *err)
{
    return bauta_kv_cache_create(c->p[MADE], c->p[SHAPE], c->tokens, err);
}

static bauta_status op_append(const call *c, bauta_error *err)
{
    return bauta_kv_cache_append(c->p[CACHE], c->p[SHAPE], c->tokens,
                                 c->p[IN_K], c->p[IN_V], err);
}

static bauta_status op_truncate(const call *c, bauta_error *err)
{
    return bauta_kv_cache_truncate(c->p[CACHE], c->tokens, err);
}

/* Objects for which every call succeeds. The cache is full. */
typedef struct fixture {
    call right;
    bauta_attention_shape shape;
    bauta_options options;
    void *made;
    bauta_mask *mask;
    problem data;
    size_t live;
} fixture;

static size_t refused; /* malformed calls so far */

static void fixture_init(fixture *f)
{
    test_random r = test_random_from(1);
    bauta_plan *plan = NULL;
    bauta_kv_cache *cache = NULL;
    faults_begin();
    *f = (fixture){ .options = BAUTA_OPTIONS_INIT };
    assert_int_equal(bauta_mask_causal(&f->mask, QUERIES, KEYS, NULL), 0);
    assert_int_equal(bauta_plan_create(&plan, f->mask, 0, QUERIES, NULL), 0);
    f->data = problem_make(&r, f->mask, HEADS, KV_HEADS, DIM, VALUE);
    f->shape = f->data.shape;
    assert_int_equal(bauta_kv_cache_create(&cache, &f->shape, KEYS, NULL), 0);
    assert_int_equal(bauta_kv_cache_append(cache, &f->shape, KEYS, f->data.k,
                                           f->data.v, NULL),
                     0);
    f->right = (call){ { [CONTEXT] = test_context(NULL, 2),
                         [OPTIONS] = &f->options,
                         [PLAN] = plan,
                         [SHAPE] = &f->shape,
                         [CACHE] = cache,
                         [MADE] = &f->made,
                         [IN_Q] = f->data.q,
                         [IN_K] = f->data.k,
                         [IN_V] = f->data.v,
                         [IN_DOUT] = f->data.dout,
                         [OUT] = f->data.out,
                         [LSE] = f->data.lse,
                         [DQ] = f->data.dq,
                         [DK] = f->data.dk,
                         [DV] = f->data.dv },
                       .tokens = 0 };
    f->live = faults_live();
}

static void fixture_release(fixture *f)
{
    bauta_context_free(f->right.p[CONTEXT]);
    bauta_plan_free(f->right.p[PLAN]);
    bauta_kv_cache_free(f->right.p[CACHE]);
    bauta_mask_free(f->mask);
    problem_free(&f->data);
    assert_int_equal(faults_end(), 0);
}

/* Outputs are poisoned by NaN; a call that writes one changes it. */
static void assert_untouched(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_true(isnan(x[i]));
}

/* The call returns this status and a message with these words in it; it
 * creates, writes and keeps nothing. The same without an error argument. */
static void refuse(fixture *f, const call *c, op_fn *op, bauta_status want,
                   const char *message)
{
    bauta_error err = { BAUTA_OK, "" };
    f->made = f;
    bauta_status status = op(c, &err);
    if (status != want || err.status != want || !strstr(err.message, message))
        fail_msg("want %d \"%s\", got %d \"%s\"", (int)want, message,
                 (int)status, err.message);
    if (f->made != f)
        assert_null(f->made);
    assert_int_equal(op(c, NULL), want);
    assert_int_equal(faults_live(), f->live);
    assert_int_equal(bauta_kv_cache_tokens(f->right.p[CACHE]), KEYS);
    assert_untouched(f->data.out, f->data.no);
    assert_untouched(f->data.lse, f->data.nl);
    assert_untouched(f->data.dq, f->data.nq);
    assert_untouched(f->data.dk, f->data.nk);
    assert_untouched(f->data.dv, f->data.nv);
    refused++;
}

static void refuse_argument(fixture *f, const call *c, op_fn *op,
                            const char *message)
{
    refuse(f, c, op, BAUTA_ERR_ARGUMENT, message);
}

/* ---- Malformed calls ----------------------------------------------------- */

static void every_missing_pointer_is_named(void **state)
{
    (void)state;
    static const struct {
        op_fn *op;
        size_t count;
        int needs[12];
    } ops[] = {
        { op_context, 1, { MADE } },
        { op_forward, 7, { CONTEXT, PLAN, SHAPE, IN_Q, IN_K, IN_V, OUT } },
        { op_backward,
          12,
          { CONTEXT, PLAN, SHAPE, IN_Q, IN_K, IN_V, OUT, LSE, IN_DOUT, DQ, DK,
            DV } },
        { op_cached, 6, { CONTEXT, PLAN, SHAPE, IN_Q, CACHE, OUT } },
        { op_cache, 2, { MADE, SHAPE } },
        { op_append, 4, { CACHE, SHAPE, IN_K, IN_V } },
        { op_truncate, 1, { CACHE } },
    };
    fixture f;
    fixture_init(&f);
    for (size_t i = 0; i < BT_LEN(ops); i++)
        for (size_t k = 0; k < ops[i].count; k++) {
            call c = f.right;
            char message[64];
            int pointer = ops[i].needs[k];
            c.p[pointer] = NULL;
            snprintf(message, sizeof(message), "%s is NULL",
                     pointer_names[pointer]);
            refuse_argument(&f, &c, ops[i].op, message);
        }
    fixture_release(&f);
}

/* All calls that take a shape. */
static op_fn *const shaped[] = { op_forward, op_backward, op_cached, op_cache,
                                 op_append };

#define FIELD(name) #name, offsetof(bauta_attention_shape, name)

static void a_size_out_of_range_is_named_with_its_value(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset, value;
    } fields[] = {
        { FIELD(size), 0 },
        { FIELD(size), sizeof(bauta_attention_shape) - 1 },
        { FIELD(size), 8192 },
        { FIELD(heads), 0 },
        { FIELD(heads), 65536 },
        { FIELD(heads), SIZE_MAX },
        { FIELD(kv_heads), 3 },
        { FIELD(kv_heads), 2 * HEADS },
        { FIELD(kv_heads), SIZE_MAX },
        { FIELD(head_dim), 0 },
        { FIELD(head_dim), 257 },
        { FIELD(head_dim), SIZE_MAX },
        { FIELD(value_dim), 257 },
        { FIELD(value_dim), SIZE_MAX },
        { FIELD(q_token), DIM - 1 },
        { FIELD(q_head), DIM - 1 },
        { FIELD(k_token), DIM - 1 },
        { FIELD(k_head), DIM - 1 },
        { FIELD(v_token), VALUE - 1 },
        { FIELD(v_head), VALUE - 1 },
        { FIELD(out_token), VALUE - 1 },
        { FIELD(out_head), VALUE - 1 },
        { FIELD(q_token), SIZE_MAX - 31 }, // a negative number, cast
        { FIELD(k_head), SIZE_MAX - 31 },
        { FIELD(v_token), SIZE_MAX / 4 },
        { FIELD(out_head), SIZE_MAX },
    };
    fixture f;
    fixture_init(&f);
    for (size_t i = 0; i < BT_LEN(fields); i++)
        for (size_t op = 0; op < BT_LEN(shaped); op++) {
            char message[64];
            bauta_attention_shape right = f.shape;
            memcpy((char *)&f.shape + fields[i].offset, &fields[i].value,
                   sizeof(size_t));
            snprintf(message, sizeof(message), "%s is %zu", fields[i].name,
                     fields[i].value);
            refuse_argument(&f, &f.right, shaped[op], message);
            f.shape = right;
        }
    fixture_release(&f);
}

static void a_scale_that_is_not_finite_is_named(void **state)
{
    (void)state;
    static const struct {
        float scale;
        const char *message;
    } scales[] = { { NAN, "scale is nan" },
                   { INFINITY, "scale is inf" },
                   { -INFINITY, "scale is -inf" } };
    fixture f;
    fixture_init(&f);
    for (size_t i = 0; i < BT_LEN(scales); i++)
        for (size_t op = 0; op < BT_LEN(shaped); op++) {
            f.shape.scale = scales[i].scale;
            refuse_argument(&f, &f.right, shaped[op], scales[i].message);
        }
    fixture_release(&f);
}

/* Two tasks would write the same memory. */
static void outputs_that_overlap_are_refused(void **state)
{
    (void)state;
    static const struct {
        op_fn *op;
        const char *token_name;
        size_t token, head; /* offsets of the strides */
        size_t dim;
    } outputs[] = {
        { op_forward, FIELD(out_token),
          offsetof(bauta_attention_shape, out_head), VALUE },
        { op_cached, FIELD(out_token),
          offsetof(bauta_attention_shape, out_head), VALUE },
        { op_backward, FIELD(q_token), offsetof(bauta_attention_shape, q_head),
          DIM },
        { op_backward, FIELD(k_token), offsetof(bauta_attention_shape, k_head),
          DIM },
        { op_backward, FIELD(v_token), offsetof(bauta_attention_shape, v_head),
          VALUE },
    };
    fixture f;
    fixture_init(&f);
    bauta_attention_shape right = f.shape;
    for (size_t i = 0; i < BT_LEN(outputs); i++)
        for (size_t layout = 0; layout < 2; layout++) {
            // Tokens outside, then heads outside; both one element too near.
            size_t dim = outputs[i].dim;
            size_t token = layout ? dim : dim * KV_HEADS - 1;
            size_t head = layout ? dim * QUERIES - 1 : dim;
            char message[64];
            f.shape = right;
            memcpy((char *)&f.shape + outputs[i].token, &token, sizeof(token));
            memcpy((char *)&f.shape + outputs[i].head, &head, sizeof(head));
            snprintf(message, sizeof(message), "%s is %zu",
                     outputs[i].token_name, token);
            refuse_argument(&f, &f.right, outputs[i].op, message);
        }
    fixture_release(&f);
}

static void a_context_refuses_unknown_options_by_name(void **state)
{
    (void)state;
    static const struct {
        size_t size;
        int threads;
        const char *isa;
        bauta_status status;
        const char *message;
    } options[] = {
        { 0, 1, NULL, BAUTA_ERR_ARGUMENT, "options.size is 0" },
        { 12, 1, NULL, BAUTA_ERR_ARGUMENT, "options.size is 12" },
        { 8192, 1, NULL, BAUTA_ERR_ARGUMENT, "options.size is 8192" },
        { sizeof(bauta_options), -1, NULL, BAUTA_ERR_ARGUMENT,
          "threads is -1" },
        { sizeof(bauta_options), INT32_MIN, NULL, BAUTA_ERR_ARGUMENT,
          "threads is -2147483648" },
        { sizeof(bauta_options), 1025, NULL, BAUTA_ERR_ARGUMENT,
          "threads is 1025" },
        { sizeof(bauta_options), 1, "", BAUTA_ERR_UNSUPPORTED, "\"\"" },
        { sizeof(bauta_options), 1, "sse9", BAUTA_ERR_UNSUPPORTED, "\"sse9\"" },
        { sizeof(bauta_options), 1, "C", BAUTA_ERR_UNSUPPORTED, "\"C\"" },
        { sizeof(bauta_options), 1, "avx", BAUTA_ERR_UNSUPPORTED, "\"avx\"" },
        { sizeof(bauta_options), 1, "%s%n", BAUTA_ERR_UNSUPPORTED, "\"%s%n\"" },
    };
    fixture f;
    fixture_init(&f);
    for (size_t i = 0; i < BT_LEN(options); i++) {
        f.options.size = options[i].size;
        f.options.threads = options[i].threads;
        f.options.isa = options[i].isa;
        refuse(&f, &f.right, op_context, options[i].status, options[i].message);
    }
    char isa[1000]; // longer than a message
    memset(isa, 'x', sizeof(isa));
    isa[sizeof(isa) - 1] = '\0';
    f.options.isa = isa;
    refuse(&f, &f.right, op_context, BAUTA_ERR_UNSUPPORTED, "\"xxx");
    fixture_release(&f);
}

static void a_cache_of_another_shape_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t kv_heads, head_dim, value_dim;
        const char *message;
    } shapes[] = {
        { 4, DIM, VALUE, "holds 2 heads of 8 and 12, the shape has 4 of 8" },
        { 2, 16, VALUE, "the shape has 2 of 16 and 12" },
        { 2, DIM, DIM, "the shape has 2 of 8 and 8" },
    };
    fixture f;
    fixture_init(&f);
    for (size_t i = 0; i < BT_LEN(shapes); i++) {
        f.shape.kv_heads = shapes[i].kv_heads;
        f.shape.head_dim = shapes[i].head_dim;
        f.shape.value_dim = shapes[i].value_dim;
        refuse_argument(&f, &f.right, op_append, shapes[i].message);
        refuse_argument(&f, &f.right, op_cached, shapes[i].message);
    }
    fixture_release(&f);
}

static void a_full_cache_refuses_tokens(void **state)
{
    (void)state;
    static const struct {
        op_fn *op;
        size_t tokens;
        bauta_status status;
        const char *message;
    } calls[] = {
        { op_append, 1, BAUTA_ERR_ARGUMENT, "90 tokens and holds 90: 1 more" },
        { op_append, SIZE_MAX, BAUTA_ERR_ARGUMENT, ": 18446744073709551615 " },
        { op_truncate, KEYS + 1, BAUTA_ERR_ARGUMENT, "keep 91 tokens" },
        { op_truncate, SIZE_MAX, BAUTA_ERR_ARGUMENT, "18446744073709551615" },
        { op_cache, SIZE_MAX, BAUTA_ERR_ARGUMENT, "18446744073709551615 " },
        { op_cache, (size_t)1 << 31, BAUTA_ERR_ARGUMENT, "2147483648 tokens" },
    };
    fixture f;
    fixture_init(&f);
    for (size_t i = 0; i < BT_LEN(calls); i++) {
        call c = f.right;
        c.tokens = calls[i].tokens;
        refuse(&f, &c, calls[i].op, calls[i].status, calls[i].message);
    }
    fixture_release(&f);
}

static void a_plan_that_sees_more_than_the_cache_holds_is_refused(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    for (size_t tokens = 0; tokens < KEYS; tokens += KEYS - 1) {
        call c = f.right;
        bauta_kv_cache *cache = NULL;
        char message[64];
        assert_int_equal(bauta_kv_cache_create(&cache, &f.shape, KEYS, NULL),
                         0);
        assert_int_equal(bauta_kv_cache_append(cache, &f.shape, tokens,
                                               f.data.k, f.data.v, NULL),
                         0);
        c.p[CACHE] = cache;
        f.live = faults_live();
        snprintf(message, sizeof(message), "key 89, the cache holds %zu",
                 tokens);
        refuse_argument(&f, &c, op_cached, message);
        bauta_kv_cache_free(cache);
    }
    fixture_release(&f);
}

static void a_plan_of_documents_is_refused_by_a_cache(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    static const size_t lengths[] = { 30, 40 };
    call c = f.right;
    bauta_mask *mask = NULL;
    bauta_plan *plan = NULL;
    assert_int_equal(bauta_mask_documents(&mask, 2, lengths, NULL, NULL), 0);
    assert_int_equal(bauta_plan_create(&plan, mask, 0, QUERIES, NULL), 0);
    c.p[PLAN] = plan;
    f.live = faults_live();
    refuse_argument(&f, &c, op_cached, "origin");
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    fixture_release(&f);
}

/* ---- Empty problems ------------------------------------------------------ */

static void assert_all(const float *x, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        assert_true(x[i] == value);
}

static void no_queries_or_no_keys_give_zeros(void **state)
{
    (void)state;
    static const size_t sizes[][2] = { { 0, 70 }, { 70, 0 }, { 0, 0 } };
    test_random r = test_random_from(2);
    for (size_t i = 0; i < BT_LEN(sizes); i++)
        for (int threads = 1; threads <= 2; threads++) {
            bauta_mask *mask = NULL;
            bauta_context *context = test_context(NULL, threads);
            assert_int_equal(
                bauta_mask_all(&mask, sizes[i][0], sizes[i][1], NULL), 0);
            problem p = problem_make(&r, mask, HEADS, KV_HEADS, DIM, VALUE);
            problem_run(&p, context, BT_TILE_ROWS);
            assert_all(p.out, p.no, 0);
            assert_all(p.lse, p.nl, -INFINITY);
            assert_all(p.dq, p.nq, 0);
            assert_all(p.dk, p.nk, 0);
            assert_all(p.dv, p.nv, 0);
            problem_free(&p);
            bauta_mask_free(mask);
            bauta_context_free(context);
        }
}

static void a_plan_of_no_rows_writes_no_row(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    for (size_t first = 0; first <= QUERIES; first += QUERIES / 2) {
        call c = f.right;
        bauta_plan *plan = NULL;
        assert_int_equal(bauta_plan_create(&plan, f.mask, first, 0, NULL), 0);
        c.p[PLAN] = plan;
        assert_int_equal(op_forward(&c, NULL), 0);
        assert_int_equal(op_cached(&c, NULL), 0);
        assert_untouched(f.data.out, f.data.no);
        assert_untouched(f.data.lse, f.data.nl);
        assert_int_equal(op_backward(&c, NULL), 0);
        assert_untouched(f.data.dq, f.data.nq);
        assert_all(f.data.dk, f.data.nk, 0); // no query sees any key
        assert_all(f.data.dv, f.data.nv, 0);
        bauta_plan_free(plan);
    }
    fixture_release(&f);
}

static void an_empty_cache_works(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    bauta_kv_cache *cache = NULL;
    bauta_mask *mask = NULL;
    bauta_plan *plan = NULL;
    assert_int_equal(bauta_kv_cache_create(&cache, &f.shape, 0, NULL), 0);
    assert_int_equal(bauta_mask_all(&mask, QUERIES, 0, NULL), 0);
    assert_int_equal(bauta_plan_create(&plan, mask, 0, QUERIES, NULL), 0);
    call c = f.right;
    c.p[CACHE] = cache;
    c.p[PLAN] = plan;
    assert_int_equal(op_append(&c, NULL), 0);
    assert_int_equal(op_truncate(&c, NULL), 0);
    assert_int_equal(bauta_kv_cache_tokens(cache), 0);
    assert_int_equal(op_cached(&c, NULL), 0);
    assert_all(f.data.out, f.data.no, 0);
    assert_all(f.data.lse, f.data.nl, -INFINITY);
    c.tokens = 1;
    assert_int_equal(op_append(&c, NULL), BAUTA_ERR_ARGUMENT);
    bauta_kv_cache_free(cache);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
    fixture_release(&f);
}

static void outputs_of_plain_keys(fixture *f, float **out, float **lse)
{
    assert_int_equal(op_forward(&f->right, NULL), 0);
    *out = problem_floats(NULL, f->data.no, 0);
    *lse = problem_floats(NULL, f->data.nl, 0);
    memcpy(*out, f->data.out, f->data.no * sizeof(float));
    memcpy(*lse, f->data.lse, f->data.nl * sizeof(float));
}

/* Append the keys and values from `from` to `to`, `step` at a time. */
static void append_by(fixture *f, size_t from, size_t to, size_t step)
{
    for (size_t t = from; t < to; t += step) {
        size_t tokens = to - t < step ? to - t : step;
        assert_int_equal(
            bauta_kv_cache_append(f->right.p[CACHE], &f->shape, tokens,
                                  f->data.k + t * KV_HEADS * DIM,
                                  f->data.v + t * KV_HEADS * VALUE, NULL),
            0);
    }
    assert_int_equal(bauta_kv_cache_tokens(f->right.p[CACHE]), to);
}

static void tokens_one_by_one_or_at_once_give_the_same_bits(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    float *out, *lse;
    outputs_of_plain_keys(&f, &out, &lse);
    static const size_t steps[] = { 1, 7, 63, 64, 65, KEYS };
    for (size_t i = 0; i < BT_LEN(steps); i++) {
        assert_int_equal(bauta_kv_cache_truncate(f.right.p[CACHE], 0, NULL), 0);
        append_by(&f, 0, KEYS, steps[i]);
        assert_int_equal(op_cached(&f.right, NULL), 0);
        same_bits("out", out, f.data.out, f.data.no);
        same_bits("lse", lse, f.data.lse, f.data.nl);
    }
    free(out);
    free(lse);
    fixture_release(&f);
}

/* The freed keys were NaN. A shorter plan that starts after them still loads
 * them as part of its last block. */
static void freed_tokens_do_not_affect_results(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    float *out, *lse;
    outputs_of_plain_keys(&f, &out, &lse);
    float *nans = problem_floats(NULL, KEYS * KV_HEADS * VALUE, 0);
    for (size_t keep = 0; keep < KEYS; keep += 13) {
        bauta_kv_cache *cache = f.right.p[CACHE];
        bauta_plan *plan = NULL;
        call c = f.right;
        assert_int_equal(bauta_kv_cache_truncate(cache, keep, NULL), 0);
        assert_int_equal(bauta_kv_cache_append(cache, &f.shape, KEYS - keep,
                                               nans, nans, NULL),
                         0);
        assert_int_equal(bauta_kv_cache_truncate(cache, keep, NULL), 0);
        // Row i of the mask ends with key i + KEYS - QUERIES.
        size_t rows = keep + QUERIES > KEYS ? keep + QUERIES - KEYS : 0;
        assert_int_equal(bauta_plan_create(&plan, f.mask, 0, rows, NULL), 0);
        c.p[PLAN] = plan;
        assert_int_equal(op_cached(&c, NULL), 0);
        same_bits("out", out, f.data.out, rows * HEADS * VALUE);
        append_by(&f, keep, KEYS, KEYS);
        assert_int_equal(op_cached(&f.right, NULL), 0);
        same_bits("out", out, f.data.out, f.data.no);
        same_bits("lse", lse, f.data.lse, f.data.nl);
        bauta_plan_free(plan);
    }
    free(nans);
    free(out);
    free(lse);
    fixture_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_missing_pointer_is_named),
        cmocka_unit_test(a_size_out_of_range_is_named_with_its_value),
        cmocka_unit_test(a_scale_that_is_not_finite_is_named),
        cmocka_unit_test(outputs_that_overlap_are_refused),
        cmocka_unit_test(a_context_refuses_unknown_options_by_name),
        cmocka_unit_test(a_cache_of_another_shape_is_refused),
        cmocka_unit_test(a_full_cache_refuses_tokens),
        cmocka_unit_test(a_plan_that_sees_more_than_the_cache_holds_is_refused),
        cmocka_unit_test(a_plan_of_documents_is_refused_by_a_cache),
        cmocka_unit_test(no_queries_or_no_keys_give_zeros),
        cmocka_unit_test(a_plan_of_no_rows_writes_no_row),
        cmocka_unit_test(an_empty_cache_works),
        cmocka_unit_test(tokens_one_by_one_or_at_once_give_the_same_bits),
        cmocka_unit_test(freed_tokens_do_not_affect_results),
    };
    int failed =
        cmocka_run_group_tests_name("attention_errors", tests, NULL, NULL);
    printf("%zu malformed calls were refused\n", refused);
    return failed;
}
