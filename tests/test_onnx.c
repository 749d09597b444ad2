/* SPDX-License-Identifier: Apache-2.0 */
/* test_onnx.c - the Attention cases of the ONNX standard, opsets 23 and 24.
 *
 * Of the operator's outputs only Y is compared. present_key and present_value
 * are the concatenation that the test makes itself, and qk_matmul_output is the
 * matrix of scores, which this library never stores.
 *
 * Y was computed in float32 or better by the standard's own reference, which is
 * therefore rounded as well. Its chain per score has four more roundings than
 * ours, since it scales q and k by the rounded root of the scale: d + 6 in
 * place of the d + 2 that attention_oracle.h allows, and d + 6 <= 3 (d + 2).
 * Its exp is within 2.6 units in the last place, 5.2 u <= 3 (3.1 u); its sums
 * are chains of n where ours are shorter, 2 n + 1 <= 3 (n + n / 16 + 10). So Y
 * is within three bounds of the truth, ours within one, and the two within
 * four. */
#include "attention_oracle.h"
#include "attention_problem.h"
#include "backend/cpu/kernels/kernels.h"
#include "data.h"

#include <jansson.h>

enum {
    CASES = 76,
    Y_BOUNDS = 3 /* how far Y may be from the truth, see above */
};

#define VECTORS "onnx-op-vectors/vectors.safetensors"
#define MANIFEST "onnx-op-vectors/manifest.json"

/* ---- Cases --------------------------------------------------------------- */

enum { Q, K, V, MASK, PAST_K, PAST_V, NONPAD, Y, TENSORS };
static const char *const tensor_names[TENSORS] = {
    "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen",
    "Y"
};

/* (batch, heads, tokens, dim) under strides. */
typedef struct view {
    const float *x;
    size_t heads, tokens, dim;
    size_t batch, head, token; /* strides */
} view;

/* One case. A rank of 3 means (batch, tokens, heads * dim), where sequences
 * are packed back to back; 4 means (batch, heads, tokens, dim). */
typedef struct onnx_case {
    const char *name;
    tensor t[TENSORS]; /* data is NULL in those that the case has not */
    bool causal, half;
    float softcap;
    size_t q_heads, kv_heads; /* of rank 3 */
    float scale;
    size_t batch, past, keys;
    view q, k, v, y;
    float *joined_k, *joined_v; /* past and present, or NULL */
} onnx_case;

/* Which tensor a case means by a name. */
static size_t tensor_index(const onnx_case *c, const char *name)
{
    size_t i = 0;
    while (i < TENSORS && strcmp(tensor_names[i], name))
        i++;
    if (i == TENSORS)
        fail_msg("%s: input \"%s\" is unknown", c->name, name);
    return i;
}

static void tensor_get(onnx_case *c, const tensors *file, const char *name)
{
    char key[256];
    snprintf(key, sizeof(key), "%s/%s", c->name, name);
    if (!tensor_read(&c->t[tensor_index(c, name)], file, key))
        fail_msg("%s is missing or malformed", key);
}

/* An attribute that is overlooked would be a wrong answer that looks right. */
static void attributes_get(onnx_case *c, json_t *attributes)
{
    const char *name;
    json_t *value;
    json_object_foreach(attributes, name, value)
    {
        double number = json_number_value(value);
        if (!strcmp(name, "is_causal"))
            c->causal = number != 0;
        else if (!strcmp(name, "softcap"))
            c->softcap = (float)number;
        else if (!strcmp(name, "scale"))
            c->scale = (float)number;
        else if (!strcmp(name, "q_num_heads"))
            c->q_heads = (size_t)number;
        else if (!strcmp(name, "kv_num_heads"))
            c->kv_heads = (size_t)number;
        else if (strcmp(name, "qk_matmul_output_mode") &&
                 strcmp(name, "softmax_precision"))
            fail_msg("%s: attribute \"%s\" is unknown", c->name, name);
    }
}

static onnx_case case_read(const tensors *file, const char *name,
                           json_t *manifest)
{
    onnx_case c = { .name = name };
    size_t i;
    json_t *input;
    json_array_foreach(json_object_get(manifest, "inputs"), i, input)
        tensor_get(&c, file, json_string_value(input));
    tensor_get(&c, file, "Y");
    c.half = c.t[Y].half;
    attributes_get(&c, json_object_get(manifest, "attr"));
    return c;
}

static void case_free(onnx_case *c)
{
    for (size_t i = 0; i < TENSORS; i++)
        tensor_release(&c->t[i]);
    free(c->joined_k);
    free(c->joined_v);
}

/* Whether a mask has elements that hide a key. */
static bool mask_hides(const tensor *mask)
{
    const float *x = mask->data;
    for (size_t i = 0; mask->type == TENSOR_F32 && i < mask->count; i++)
        if (x[i] == -INFINITY)
            return true;
    return mask->type == TENSOR_BOOL;
}

/* Whether a mask has numbers to add to the scores. */
static bool mask_adds(const tensor *mask)
{
    const float *x = mask->data;
    for (size_t i = 0; mask->type == TENSOR_F32 && i < mask->count; i++)
        if (x[i] != 0 && x[i] != -INFINITY)
            return true;
    return false;
}

/* ---- Layouts ------------------------------------------------------------- */

static view view_make(const float *x, size_t heads, size_t tokens, size_t dim,
                      bool tokens_outside)
{
    view w = { .x = x, .heads = heads, .tokens = tokens, .dim = dim };
    w.batch = heads * tokens * dim;
    w.head = tokens_outside ? dim : tokens * dim;
    w.token = tokens_outside ? heads * dim : dim;
    return w;
}

static view view_of(const tensor *t, size_t heads)
{
    const size_t *n = t->dims;
    if (t->rank == 3)
        return view_make(t->data, heads, n[1], n[2] / heads, true);
    assert_int_equal(t->rank, 4);
    return view_make(t->data, n[1], n[2], n[3], false);
}

static size_t view_at(const view *w, size_t batch, size_t head)
{
    return batch * w->batch + head * w->head;
}

/* Copy all of `from` to the tokens of `to` that start with `token`. */
static void view_copy(float *x, const view *to, size_t token, const view *from,
                      size_t batch)
{
    for (size_t b = 0; b < batch; b++)
        for (size_t h = 0; h < from->heads; h++)
            for (size_t t = 0; t < from->tokens; t++)
                memcpy(x + view_at(to, b, h) + (token + t) * to->token,
                       from->x + view_at(from, b, h) + t * from->token,
                       from->dim * sizeof(float));
}

/* Prepend the past, which is always of rank 4. */
static float *view_join(view *now, const tensor *past_tensor, size_t batch,
                        bool tokens_outside)
{
    if (!past_tensor->data)
        return NULL;
    view past = view_of(past_tensor, now->heads);
    view both = view_make(NULL, now->heads, past.tokens + now->tokens, now->dim,
                          tokens_outside);
    float *x = problem_floats(NULL, batch * both.batch, 0);
    view_copy(x, &both, 0, &past, batch);
    view_copy(x, &both, past.tokens, now, batch);
    both.x = x;
    *now = both;
    return x;
}

static void case_layout(onnx_case *c)
{
    bool tokens_outside = c->t[Q].rank == 3;
    c->batch = c->t[Q].dims[0];
    c->q = view_of(&c->t[Q], c->q_heads);
    c->k = view_of(&c->t[K], c->kv_heads);
    c->v = view_of(&c->t[V], c->kv_heads);
    c->y = view_of(&c->t[Y], c->q_heads);
    size_t present = c->k.tokens;
    c->joined_k = view_join(&c->k, &c->t[PAST_K], c->batch, tokens_outside);
    c->joined_v = view_join(&c->v, &c->t[PAST_V], c->batch, tokens_outside);
    c->keys = c->k.tokens;
    c->past = c->keys - present;
}

/* ---- Masks --------------------------------------------------------------- */

/* Keys are seen from the first one to a point, which may move with the row. */
typedef struct prefix_rule {
    bool causal;
    size_t end;       /* keys from here on are hidden from all */
    ptrdiff_t offset; /* a causal row i ends after key i + offset */
} prefix_rule;

static size_t prefix_row(void *user, size_t query, bauta_span *spans,
                         size_t capacity)
{
    const prefix_rule *rule = user;
    ptrdiff_t end = (ptrdiff_t)rule->end;
    if (rule->causal && (ptrdiff_t)query + rule->offset + 1 < end)
        end = (ptrdiff_t)query + rule->offset + 1;
    if (end <= 0)
        return 0;
    if (capacity)
        spans[0] = (bauta_span){ 0, (size_t)end };
    return 1;
}

/* ONNX aligns causality at the upper left of the present keys, and where it
 * knows how many keys are real, at the lower right of these. */
static bauta_mask *prefix_mask(const onnx_case *c, size_t batch)
{
    bauta_mask *mask = NULL;
    size_t queries = c->q.tokens;
    prefix_rule rule = { .causal = c->causal,
                         .end = c->keys,
                         .offset = (ptrdiff_t)c->past };
    if (c->t[NONPAD].data) {
        int64_t real = ((const int64_t *)c->t[NONPAD].data)[batch];
        assert_in_range(real, 0, c->keys);
        rule.end = (size_t)real;
        rule.offset = (ptrdiff_t)real - (ptrdiff_t)queries;
    }
    assert_int_equal(
        bauta_mask_rows(&mask, queries, c->keys, prefix_row, &rule, NULL), 0);
    return mask;
}

/* Element (batch, head, query, key) of a mask of any rank: dimensions are
 * aligned at the last one, and one of size 1 stands for all. Opset 24 lets the
 * last one end early; later keys are hidden. False: there is no element. */
static bool mask_element(const tensor *mask, const size_t index[4],
                         size_t *element)
{
    size_t at = 0, skipped = 4 - mask->rank;
    for (size_t i = 0; i < mask->rank; i++) {
        size_t size = mask->dims[i], k = size == 1 ? 0 : index[skipped + i];
        if (k >= size) {
            assert_int_equal(i + 1, mask->rank);
            return false;
        }
        at = at * size + k;
    }
    *element = at;
    return true;
}

static bool mask_shows(const tensor *mask, const size_t index[4])
{
    size_t at;
    if (!mask_element(mask, index, &at))
        return false;
    if (mask->type == TENSOR_BOOL)
        return ((const unsigned char *)mask->data)[at];
    return ((const float *)mask->data)[at] != -INFINITY;
}

/* The steps of a mask from one index of a dimension to the next, 0 where one
 * stands for all. Dimensions are counted from the last one. */
static size_t mask_step(const tensor *mask, size_t from_last)
{
    size_t step = 1;
    if (from_last >= mask->rank || mask->dims[mask->rank - 1 - from_last] == 1)
        return 0;
    for (size_t i = 0; i < from_last; i++)
        step *= mask->dims[mask->rank - 1 - i];
    return step;
}

static bauta_mask *dense_mask(const onnx_case *c, size_t batch, size_t head)
{
    bauta_mask *mask = NULL;
    size_t n = c->q.tokens, m = c->keys;
    unsigned char *dense = malloc(n * m + 1);
    assert_non_null(dense);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            dense[i * m + j] =
                mask_shows(&c->t[MASK], (const size_t[]){ batch, head, i, j });
    assert_int_equal(bauta_mask_dense(&mask, n, m, dense, NULL), 0);
    free(dense);
    return mask;
}

/* The mask of one head of one sequence. */
static bauta_mask *sequence_mask(const onnx_case *c, size_t batch, size_t head)
{
    bauta_mask *prefix = prefix_mask(c, batch), *mask = NULL;
    if (!c->t[MASK].data)
        return prefix;
    bauta_mask *dense = dense_mask(c, batch, head);
    assert_int_equal(bauta_mask_and(&mask, prefix, dense, NULL), 0);
    bauta_mask_free(prefix);
    bauta_mask_free(dense);
    return mask;
}

static bool mask_differs_by_head(const tensor *mask)
{
    return mask->data && mask->rank >= 3 && mask->dims[mask->rank - 3] > 1;
}

/* A batch is a mask: sequences [first, first + count), packed. */
static bauta_mask *batch_mask(const onnx_case *c, size_t first, size_t count,
                              size_t head)
{
    enum { BATCH_MAX = 8 };
    bauta_mask *each[BATCH_MAX], *mask = NULL;
    assert_in_range(count, 1, BATCH_MAX);
    for (size_t b = 0; b < count; b++)
        each[b] = sequence_mask(c, first + b, head);
    assert_int_equal(
        bauta_mask_pack(&mask, count, (const bauta_mask *const *)each, NULL),
        0);
    for (size_t b = 0; b < count; b++)
        bauta_mask_free(each[b]);
    return mask;
}

/* ---- Running ------------------------------------------------------------- */

static bauta_attention_shape case_shape(const onnx_case *c, size_t heads)
{
    bauta_attention_shape s = BAUTA_ATTENTION_SHAPE_INIT;
    s.heads = heads;
    s.kv_heads = heads == c->q.heads ? c->k.heads : 1;
    s.head_dim = c->q.dim;
    s.value_dim = c->v.dim;
    s.scale = c->scale;
    s.q_token = c->q.token;
    s.q_head = c->q.head;
    s.k_token = c->k.token;
    s.k_head = c->k.head;
    s.v_token = c->v.token;
    s.v_head = c->v.head;
    s.out_token = c->y.token;
    s.out_head = c->y.head;
    return s;
}

enum { ROWS_MAX = 64 };

/* The numbers of the mask that are added, from sequence `batch` and head `head`
 * on; sequences after it share them. */
static bauta_attention_bias case_bias(const onnx_case *c, size_t batch,
                                      size_t count, size_t head,
                                      uint32_t rows[ROWS_MAX])
{
    const tensor *mask = &c->t[MASK];
    bauta_attention_bias bias = BAUTA_ATTENTION_BIAS_INIT;
    bias.softcap = c->softcap;
    if (!mask->data || !mask_adds(mask))
        return bias;
    assert_true(mask_step(mask, 0) == 1 && count * c->q.tokens <= ROWS_MAX);
    assert_true(count == 1 || !mask_step(mask, 3));
    for (size_t i = 0; i < count * c->q.tokens; i++)
        rows[i] = (uint32_t)(i % c->q.tokens);
    bias.tensor = (const float *)mask->data + batch * mask_step(mask, 3) +
                  head * mask_step(mask, 2);
    bias.tensor_row = mask_step(mask, 1);
    bias.tensor_head = mask_step(mask, 2);
    bias.tensor_rows = rows;
    return bias;
}

/* One call: `count` sequences from `batch` on, `heads` heads from `head` on. */
static void case_call(const onnx_case *c, bauta_context *context, float *out,
                      size_t batch, size_t count, size_t head, size_t heads)
{
    bauta_error err = { BAUTA_OK, "" };
    bauta_plan *plan = NULL;
    bauta_mask *mask = batch_mask(c, batch, count, head);
    bauta_attention_shape shape = case_shape(c, heads);
    uint32_t rows[ROWS_MAX];
    bauta_attention_bias bias = case_bias(c, batch, count, head, rows);
    shape.bias = &bias;
    size_t kv_head = head / (c->q.heads / c->k.heads);
    bauta_status status =
        bauta_plan_create(&plan, mask, 0, count * c->q.tokens, &err);
    if (!status)
        status = bauta_attention_forward(
            context, plan, &shape, c->q.x + view_at(&c->q, batch, head),
            c->k.x + view_at(&c->k, batch, kv_head),
            c->v.x + view_at(&c->v, batch, kv_head),
            out + view_at(&c->y, batch, head), NULL, &err);
    if (status)
        fail_msg("%s: %s", c->name, err.message);
    bauta_plan_free(plan);
    bauta_mask_free(mask);
}

/* As few calls as the layout and the mask allow: in rank 3 the batch is one
 * token axis; in rank 4 a sequence's heads lie between it and the next. */
static float *case_run(const onnx_case *c, bauta_context *context)
{
    float *out = problem_floats(NULL, c->t[Y].count, 0);
    size_t count = c->t[Q].rank == 3 ? c->batch : 1;
    const tensor *mask = &c->t[MASK];
    bool by_head = mask_differs_by_head(mask) && mask_hides(mask);
    size_t heads = by_head ? 1 : c->q.heads;
    for (size_t b = 0; b < c->batch; b += count)
        for (size_t h = 0; h < c->q.heads; h += heads)
            case_call(c, context, out, b, count, h, heads);
    return out;
}

/* ---- Comparing ----------------------------------------------------------- */

/* One head of one sequence, dense: (tokens, dim). */
static float *head_gather(const float *x, const view *w, size_t batch,
                          size_t head)
{
    float *dense = problem_floats(NULL, w->tokens * w->dim, 0);
    for (size_t t = 0; t < w->tokens; t++)
        memcpy(dense + t * w->dim, x + view_at(w, batch, head) + t * w->token,
               w->dim * sizeof(float));
    return dense;
}

/* Errors as a share of the allowed error. */
typedef struct errors {
    double ours, theirs, between;
} errors;

/* Ours and theirs against the truth, then against each other. */
static errors outputs_compare(oracle *o, const float *ours, const float *theirs,
                              size_t count, bool half)
{
    errors e = { .ours = oracle_error(o->out, ours, count) };
    double own[count + 1];
    for (size_t i = 0; i < count; i++) {
        own[i] = o->out[i].bound;
        o->out[i].bound *= Y_BOUNDS * (half ? 0x1p13 : 1);
        o->out[i].bound += half ? 0x1p-24 : 0;
    }
    e.theirs = oracle_error(o->out, theirs, count);
    for (size_t i = 0; i < count; i++) {
        o->out[i].value = (double)theirs[i];
        o->out[i].bound += own[i];
    }
    e.between = oracle_error(o->out, ours, count);
    return e;
}

/* The numbers that the mask adds for one head, (queries, keys); or NULL. */
static double *head_bias(const onnx_case *c, size_t batch, size_t head)
{
    const tensor *mask = &c->t[MASK];
    if (!mask->data || !mask_adds(mask))
        return NULL;
    double *bias = calloc(c->q.tokens * c->keys + 1, sizeof(*bias));
    assert_non_null(bias);
    for (size_t i = 0; i < c->q.tokens; i++)
        for (size_t j = 0; j < c->keys; j++) {
            size_t at;
            if (mask_element(mask, (const size_t[]){ batch, head, i, j }, &at))
                bias[i * c->keys + j] = (double)((const float *)mask->data)[at];
        }
    return bias;
}

static errors head_compare(const onnx_case *c, const float *out, size_t batch,
                           size_t head)
{
    size_t kv_head = head / (c->q.heads / c->k.heads);
    double scale = (double)c->scale;
    bauta_mask *mask = sequence_mask(c, batch, head);
    float *q = head_gather(c->q.x, &c->q, batch, head);
    float *k = head_gather(c->k.x, &c->k, batch, kv_head);
    float *v = head_gather(c->v.x, &c->v, batch, kv_head);
    float *ours = head_gather(out, &c->y, batch, head);
    float *theirs = head_gather(c->y.x, &c->y, batch, head);
    double *bias = head_bias(c, batch, head);
    oracle o = { .mask = mask,
                 .heads = 1,
                 .kv_heads = 1,
                 .head_dim = c->q.dim,
                 .value_dim = c->v.dim,
                 .scale = scale != 0 ? scale : 1 / sqrt((double)c->q.dim),
                 .q = q,
                 .k = k,
                 .v = v,
                 .softcap = (double)c->softcap,
                 .bias = bias };
    oracle_run(&o);
    errors e =
        outputs_compare(&o, ours, theirs, c->y.tokens * c->y.dim, c->half);
    oracle_release(&o);
    free(bias);
    float *all[] = { q, k, v, ours, theirs };
    for (size_t i = 0; i < BT_LEN(all); i++)
        free(all[i]);
    bauta_mask_free(mask);
    return e;
}

static void case_check(const onnx_case *c, bauta_context *context,
                       errors *worst)
{
    float *out = case_run(c, context);
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->q.heads; h++) {
            errors e = head_compare(c, out, b, h);
            if (!(e.ours <= 1 && e.theirs <= 1 && e.between <= 1))
                fail_msg("%s, sequence %zu, head %zu: in units of the bound, "
                         "ours is off by %g, Y by %g, one from the other %g",
                         c->name, b, h, e.ours, e.theirs, e.between);
            worst->ours = fmax(worst->ours, e.ours);
            worst->theirs = fmax(worst->theirs, e.theirs);
            worst->between = fmax(worst->between, e.between);
        }
    free(out);
}

/* ---- Tests --------------------------------------------------------------- */

typedef struct suite {
    tensors *file;
    json_t *manifest;
    size_t passed;
    errors worst;
} suite;

static void suite_case(suite *s, bauta_context *context, const char *name,
                       json_t *manifest)
{
    onnx_case c = case_read(s->file, name, manifest);
    case_layout(&c);
    case_check(&c, context, &s->worst);
    s->passed++;
    case_free(&c);
}

/* All cases with one instruction set and number of threads. */
static void suite_run(suite *s, const char *isa, int threads)
{
    const char *name;
    json_t *manifest;
    bauta_context *context = test_context(isa, threads);
    s->passed = 0;
    json_object_foreach(s->manifest, name, manifest)
    {
        const char *op = json_string_value(json_object_get(manifest, "op"));
        if (op && !strcmp(op, "Attention"))
            suite_case(s, context, name, manifest);
    }
    printf("%s, threads %d: %zu passed\n", isa, threads, s->passed);
    // A case that is lost on the way is a failure, not a smaller number.
    assert_int_equal(s->passed, CASES);
    bauta_context_free(context);
}

static void attention_agrees_with_the_cases_of_the_standard(void **state)
{
    (void)state;
    char vectors[4096], manifest[4096];
    if (!test_data_path(vectors, sizeof(vectors), VECTORS) ||
        !test_data_path(manifest, sizeof(manifest), MANIFEST)) {
        printf("skipped: %d cases, for there is no " VECTORS " in "
               "BAUTA_DATA or ../shared/data\n",
               CASES);
        skip();
    }
    suite s = { .file = tensors_load(vectors),
                .manifest = json_load_file(manifest, 0, NULL) };
    assert_non_null(s.file);
    assert_non_null(s.manifest);
    const char *isas[4];
    size_t isa_count = bt_kernels_names(isas, BT_LEN(isas));
    for (size_t i = 0; i < isa_count; i++)
        for (int threads = 1; threads <= 2; threads++)
            suite_run(&s, isas[i], threads);
    printf("worst error in units of what is allowed: ours %.3f, Y %.3f, one "
           "from the other %.3f\n",
           s.worst.ours, s.worst.theirs, s.worst.between);
    tensors_free(s.file);
    json_decref(s.manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees_with_the_cases_of_the_standard),
    };
    return cmocka_run_group_tests_name("onnx", tests, NULL, NULL);
}
