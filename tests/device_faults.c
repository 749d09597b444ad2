/* SPDX-License-Identifier: Apache-2.0 */
/* device_faults.c - a backend's table whose operations misbehave. */
#include "device_faults.h"

#include "backend/block_table.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS_MAX = 128 }; /* many more than there are at a time */

/* A plan that the library has built, and what a fault makes of it. */
typedef struct seen_plan {
    const bt_attention_plan *right; /* NULL: this entry is free */
    bt_plan_use use;
    bt_batch_mask rule; /* with lengths of our own, and without `extra` */
    bauta_mask *mask;   /* what its rows see */
    bt_attention_plan *wrong;
    bool fresh; /* `wrong` is of this mask */
} seen_plan;

static const bt_backend *inner;
static bt_backend faulty;
static seen_plan plans[PLANS_MAX];
static size_t oldest;

static void need(bool there)
{
    if (!there)
        abort();
}

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    need(memory);
    return memory;
}

/* ---- Plans --------------------------------------------------------------- */

static seen_plan *find(const bt_attention_plan *right)
{
    for (size_t i = 0; i < PLANS_MAX; i++)
        if (plans[i].right == right)
            return &plans[i];
    return NULL;
}

static bool is_wrong(const bt_attention_plan *plan)
{
    for (size_t i = 0; i < PLANS_MAX; i++)
        if (plans[i].right && plans[i].wrong == plan)
            return true;
    return false;
}

static size_t *copy_sizes(const size_t *from, size_t count)
{
    size_t *to = from ? take(count, sizeof(*to)) : NULL;
    if (count && from)
        memcpy(to, from, count * sizeof(*to));
    return to;
}

static void forget_mask(seen_plan *p)
{
    free((void *)p->rule.queries.lengths);
    free((void *)p->rule.keys.lengths);
    bauta_mask_free(p->mask);
    p->mask = NULL;
    p->rule = (bt_batch_mask){ 0 };
}

static void forget(seen_plan *p)
{
    forget_mask(p);
    if (p->wrong)
        inner->plan_free(p->wrong);
    *p = (seen_plan){ 0 };
}

static void remember(const bt_attention_plan *right, const bt_batch_mask *mask,
                     bt_plan_use use)
{
    seen_plan *p = find(right);
    if (!p) { // plans may have been freed without us
        p = &plans[oldest++ % PLANS_MAX];
        if (p->right)
            forget(p);
    }
    forget_mask(p);
    p->right = right;
    p->use = use;
    p->fresh = false;
    p->rule = *mask;
    p->rule.extra = NULL;
    p->rule.queries.stride = p->rule.keys.stride = 0;
    p->rule.queries.lengths =
        copy_sizes(mask->queries.lengths, mask->queries.count);
    p->rule.keys.lengths = copy_sizes(mask->keys.lengths, mask->keys.count);
    need(!bt_batch_mask_create(&p->mask, mask, NULL));
}

static bauta_status faulty_plan_build(bt_stream *stream,
                                      bt_attention_plan **plan,
                                      const bt_batch_mask *mask,
                                      bt_plan_use use, bauta_error *err)
{
    bauta_status status = inner->plan_build(stream, plan, mask, use, err);
    if (!status)
        remember(*plan, mask, use);
    return status;
}

static void faulty_plan_free(bt_attention_plan *plan)
{
    seen_plan *p = plan ? find(plan) : NULL;
    if (p)
        forget(p);
    inner->plan_free(plan);
}

void device_faults_release(void)
{
    for (size_t i = 0; i < PLANS_MAX; i++)
        if (plans[i].right)
            forget(&plans[i]);
}

/* ---- Plans under a rule -------------------------------------------------- */

/* What row `row` of a sequence, row `query` of the mask, sees under the rule:
 * bytes of the sequence's keys. */
static void row_write(unsigned char *to, const seen_plan *p, size_t query,
                      size_t row, size_t first_key, size_t keys, rule_fn *rule)
{
    bool *was = take(keys, sizeof(*was));
    row_view v = { .row = row, .in_chunk = row, .keys = keys, .was = was };
    for (size_t j = 0; j < keys; j++) {
        was[j] = bauta_mask_visible(p->mask, query, first_key + j);
        if (was[j]) {
            v.lo = v.hi ? v.lo : j;
            v.hi = j + 1;
        }
    }
    for (size_t j = 0; j < keys; j++)
        to[first_key + j] = rule(&v, j);
    free(was);
}

/* The sequences without a rule of their own, under a mask that says it all. */
const bt_attention_plan *device_faults_plan(bt_stream *stream,
                                            const bt_attention_plan *plan,
                                            rule_fn *rule)
{
    seen_plan *p = find(plan);
    need(p && p->use != BT_PLAN_DECODE);
    if (p->fresh)
        return p->wrong;
    bt_batch_mask mask = p->rule;
    bauta_mask *shown = NULL;
    unsigned char *visible = take(plan->rows * plan->keys, 1);
    for (size_t i = 0, query = 0, key = 0; i < mask.queries.count; i++) {
        size_t rows = mask.queries.lengths[i], keys = mask.keys.lengths[i];
        for (size_t r = 0; r < rows; r++)
            row_write(visible + (query + r) * plan->keys, p, query + r, r, key,
                      keys, rule);
        query += rows;
        key += keys;
    }
    need(!bauta_mask_dense(&shown, plan->rows, plan->keys, visible, NULL));
    free(visible);
    mask.causal = false;
    mask.window = 0;
    mask.prefixes = mask.windows = NULL;
    mask.extra = shown;
    need(!inner->plan_build(stream, &p->wrong, &mask, p->use, NULL));
    bauta_mask_free(shown);
    p->fresh = true;
    return p->wrong;
}

/* Whether the key before the window of each sequence is in a page of the
 * window, since the page before it may have been freed. */
static bool keys_before_windows(const bt_batch_mask *mask)
{
    for (size_t i = 0; i < mask->queries.count; i++) {
        size_t seen = mask->keys.lengths[i] - mask->queries.lengths[i] + 1;
        if (seen > mask->window && (seen - mask->window) % BT_BLOCK == 0)
            return false;
    }
    return true;
}

const bt_attention_plan *device_faults_step(bt_stream *stream,
                                            const bt_attention_plan *plan)
{
    seen_plan *p = find(plan);
    need(p && p->use == BT_PLAN_DECODE);
    if (p->fresh)
        return p->wrong;
    bt_batch_mask mask = p->rule;
    if (fault_is("window-short-in-steps"))
        mask.window -= mask.window > 1;
    else if (fault_is("window-long-in-steps"))
        mask.window += mask.window && keys_before_windows(&mask);
    else if (fault_is("top-left-in-steps"))
        mask.keys = mask.queries;
    else if (fault_is("pieces-see-ahead"))
        mask.causal = false;
    if (!mask.causal)
        mask.window = 0;
    need(!inner->plan_build(stream, &p->wrong, &mask, p->use, NULL));
    p->fresh = true;
    return p->wrong;
}

/* ---- Tensors ------------------------------------------------------------- */

/* The elements of a tensor as float32, dense, for free(). */
static float *fetch(bt_stream *stream, const bt_tensor *t)
{
    size_t count = t->rows * t->columns;
    float *to = take(count, sizeof(*to));
    void *raw = take(count, bt_dtype_size(t->dtype));
    need(!bt_tensor_download(stream, raw, t, NULL));
    need(bt_convert_f32(to, raw, t->dtype, count));
    free(raw);
    return to;
}

static void store(bt_stream *stream, const bt_tensor *t, const float *from)
{
    size_t count = t->rows * t->columns;
    void *raw = take(count, bt_dtype_size(t->dtype));
    need(bt_convert_from_f32(raw, t->dtype, from, count));
    need(!bt_tensor_upload(stream, t, raw, NULL));
    free(raw);
}

/* Make the first element of a tensor a little larger: the next number of its
 * type. */
static void nudge(bt_stream *stream, const bt_tensor *t)
{
    bt_tensor one = *t;
    one.rows = one.columns = 1;
    float *x = fetch(stream, &one);
    *x = t->dtype == BAUTA_FLOAT32 ? nextafterf(*x, INFINITY)
                                   : *x + fabsf(*x) * 0x1p-7f;
    store(stream, &one, x);
    free(x);
}

/* ---- Attention ----------------------------------------------------------- */

/* A row that sees nothing has a sum of weights of 0; divide by it. */
static void empty_rows_divide(bt_stream *stream, const bt_attention_args *args)
{
    const seen_plan *p = find(args->plan);
    for (size_t row = 0; p && row < args->out->rows; row++) {
        size_t spans;
        bauta_mask_row(p->mask, row, &spans);
        if (spans)
            continue;
        bt_tensor one = *args->out;
        one.offset += row * one.stride;
        one.rows = 1;
        float *nan = take(one.columns, sizeof(*nan));
        for (size_t i = 0; i < one.columns; i++)
            nan[i] = NAN;
        store(stream, &one, nan);
        free(nan);
    }
}

/* Values of hidden keys of a row's sequence count with a weight of 0, so that
 * NaN among them becomes part of the result. */
static void hidden_values_add(bt_stream *stream, const bt_attention_args *args)
{
    const seen_plan *p = find(args->plan);
    size_t group = args->heads / args->kv_heads;
    size_t dim = args->v->columns / args->kv_heads;
    size_t columns = args->out->columns;
    float *v = fetch(stream, args->v), *out = fetch(stream, args->out);
    for (size_t i = 0, query = 0, key = 0; p && i < p->rule.queries.count;
         i++) {
        size_t rows = p->rule.queries.lengths[i],
               keys = p->rule.keys.lengths[i];
        for (size_t r = query; r < query + rows; r++)
            for (size_t j = key; j < key + keys; j++) {
                if (bauta_mask_visible(p->mask, r, j))
                    continue;
                for (size_t c = 0; c < columns; c++)
                    out[r * columns + c] +=
                        0 * v[j * args->v->columns + c / dim / group * dim +
                              c % dim];
            }
        query += rows;
        key += keys;
    }
    store(stream, args->out, out);
    free(v);
    free(out);
}

static bauta_status faulty_attention(bt_stream *stream,
                                     const bt_attention_args *args,
                                     bauta_error *err)
{
    bauta_status status = inner->attention(stream, args, err);
    if (!status && fault_is("empty-row-is-nan"))
        empty_rows_divide(stream, args);
    if (!status && fault_is("large-negative"))
        hidden_values_add(stream, args);
    return status;
}

static bauta_status faulty_attention_grad(bt_stream *stream,
                                          const bt_attention_grad_args *args,
                                          bauta_error *err)
{
    bt_attention_grad_args wrong = *args;
    rule_fn *rule = fault_backward_rule();
    if (rule)
        wrong.plan = device_faults_plan(stream, args->plan, rule);
    return inner->attention_grad(stream, &wrong, err);
}

/* ---- The KV cache -------------------------------------------------------- */

/* A copy of a matrix with its heads in reverse order. */
static bt_tensor heads_swapped(bt_stream *stream, const bt_tensor *from,
                               size_t heads, bt_buffer *memory)
{
    size_t dim = from->columns / heads, columns = from->columns;
    float *x = fetch(stream, from), *y = take(from->rows * columns, sizeof(*y));
    for (size_t i = 0; i < from->rows; i++)
        for (size_t h = 0; h < heads; h++)
            memcpy(y + i * columns + (heads - 1 - h) * dim,
                   x + i * columns + h * dim, dim * sizeof(*y));
    need(!inner->alloc(stream, memory,
                       from->rows * columns * bt_dtype_size(from->dtype),
                       NULL));
    bt_tensor to = bt_tensor_of(memory, from->dtype, from->rows, columns);
    store(stream, &to, y);
    free(x);
    free(y);
    return to;
}

static bauta_status faulty_kv_write(bt_stream *stream,
                                    const bt_kv_write_args *args,
                                    bauta_error *err)
{
    bt_buffer keys, values;
    size_t heads = args->batch->sequences[0].table->pool->shape.kv_heads;
    if (!fault_is("heads-swapped-in-steps") || args->layer != fault_layer())
        return inner->kv_write(stream, args, err);
    bt_tensor k = heads_swapped(stream, args->k, heads, &keys);
    bt_tensor v = heads_swapped(stream, args->v, heads, &values);
    bt_kv_write_args wrong = *args;
    wrong.k = &k;
    wrong.v = &v;
    bauta_status status = inner->kv_write(stream, &wrong, err);
    need(!inner->sync(stream, NULL));
    inner->free(&keys);
    inner->free(&values);
    return status;
}

/* Rows see the first keys of their sequence, as if no token were before them:
 * the plan says so, and so do these block tables. */
static bauta_status faulty_paged_attention(bt_stream *stream,
                                           const bt_paged_attention_args *args,
                                           bauta_error *err)
{
    if (!fault_is("top-left-in-steps") || !is_wrong(args->plan))
        return inner->paged_attention(stream, args, err);
    size_t count = args->batch->count;
    bt_block_table *tables = take(count, sizeof(*tables));
    bt_kv_sequence *sequences = take(count, sizeof(*sequences));
    bt_kv_batch batch = { count, sequences };
    bt_paged_attention_args wrong = *args;
    wrong.batch = &batch;
    for (size_t i = 0; i < count; i++) {
        sequences[i] = args->batch->sequences[i];
        tables[i] = *sequences[i].table;
        tables[i].tokens = 0;
        sequences[i].table = &tables[i];
    }
    bauta_status status = inner->paged_attention(stream, &wrong, err);
    free(tables);
    free(sequences);
    return status;
}

/* Copying a page leaves out its last token. */
static bauta_status
faulty_kv_copy(bt_stream *stream, const bt_kv_copy_args *args, bauta_error *err)
{
    bt_kv_copy_item items[64];
    bt_kv_copy_args wrong = { args->pool, args->count, items };
    if (!fault_is("copy-one-short"))
        return inner->kv_copy(stream, args, err);
    need(args->count <= BT_LEN(items));
    for (size_t i = 0; i < args->count; i++) {
        items[i] = args->items[i];
        items[i].tokens -= items[i].tokens > 0;
    }
    return inner->kv_copy(stream, &wrong, err);
}

/* ---- Products ------------------------------------------------------------ */

static bauta_status faulty_linear(bt_stream *stream, const bt_linear_args *args,
                                  bauta_error *err)
{
    bauta_status status = inner->linear(stream, args, err);
    if (!status && fault_is("sums-by-batch") && args->x->rows > 40)
        nudge(stream, args->layers[0].y);
    return status;
}

/* ---- The table ----------------------------------------------------------- */

/* Keys are written by an operation of their own, steps are not replayed. */
void device_faults_install(bt_stream *stream)
{
    inner = stream->backend;
    faulty = *inner;
    faulty.fusions &=
        ~(unsigned)(BT_FUSE_ROTARY_KV_WRITE | BT_FUSE_KV_WRITE_ATTENTION);
    faulty.step_begin = NULL;
    faulty.sample_queue = NULL;
    faulty.plan_build = faulty_plan_build;
    faulty.plan_free = faulty_plan_free;
    faulty.attention = faulty_attention;
    faulty.attention_grad = faulty_attention_grad;
    faulty.kv_write = faulty_kv_write;
    faulty.kv_copy = faulty_kv_copy;
    faulty.paged_attention = faulty_paged_attention;
    faulty.linear = faulty_linear;
    stream->backend = &faulty;
}
