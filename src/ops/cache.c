/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - the keys and values of one sequence, packed as they arrive.
 *
 * The layout is the one that the kernels read: blocks of 64 keys, keys
 * transposed. So a prefill over the cache packs nothing, and a step of decoding
 * streams each block once, front to back. */
#include "base/error.h"
#include "ops/attention.h"

struct bauta_cache {
    bt_shape shape; /* of which kv_heads, head_dim and value_dim count */
    size_t tokens, capacity;
    bt_packed packed;
};

bauta_status bauta_cache_create(bauta_cache **out, const bauta_attention *shape,
                                size_t capacity, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    bt_shape s;
    bauta_status status = bt_shape_resolve(&s, shape, err);
    if (status)
        return status;
    bauta_cache *cache = bt_alloc_zero(1, sizeof(*cache));
    if (!cache)
        return bt_fail_memory(err, "a cache", sizeof(*cache));
    cache->shape = s;
    cache->capacity = capacity;
    cache->packed.blocks = bt_size_round(capacity, BT_BLOCK) / BT_BLOCK;
    size_t keys = bt_size_mul(s.kv_heads * BT_BLOCK, cache->packed.blocks);
    // Zeros, because the kernels load whole blocks and hide what is not there.
    cache->packed.kt =
        bt_alloc_zero(keys, s.head_dim * sizeof(*cache->packed.kt));
    cache->packed.v =
        bt_alloc_zero(keys, s.value_pad * sizeof(*cache->packed.v));
    if (!cache->packed.kt || !cache->packed.v) {
        bauta_cache_free(cache);
        return bt_fail(err, BAUTA_ERR_NOMEM,
                       "out of memory: a cache of %zu tokens", capacity);
    }
    *out = cache;
    return BAUTA_OK;
}

void bauta_cache_free(bauta_cache *cache)
{
    if (!cache)
        return;
    bt_free(cache->packed.kt);
    bt_free(cache->packed.v);
    bt_free(cache);
}

static bauta_status shape_matches(const bauta_cache *cache, const bt_shape *s,
                                  bauta_error *err)
{
    const bt_shape *c = &cache->shape;
    if (s->kv_heads == c->kv_heads && s->head_dim == c->head_dim &&
        s->value_dim == c->value_dim)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the cache holds %zu heads of %zu and %zu, the shape has "
                   "%zu of %zu and %zu",
                   c->kv_heads, c->head_dim, c->value_dim, s->kv_heads,
                   s->head_dim, s->value_dim);
}

/* Put one key and one value of one head into their places. */
static void token_put(bauta_cache *cache, size_t kv_head, size_t token,
                      const float *k, const float *v)
{
    const bt_shape *s = &cache->shape;
    size_t block = token / BT_BLOCK, j = token % BT_BLOCK;
    float *kt = bt_packed_keys(&cache->packed, s, kv_head, block);
    float *to = bt_packed_values(&cache->packed, s, kv_head, block);
    for (size_t d = 0; d < s->head_dim; d++)
        kt[d * BT_BLOCK + j] = k[d];
    for (size_t e = 0; e < s->value_dim; e++)
        to[bt_panel_start(e) + j * bt_panel_width(s->value_pad, e) +
           e % BT_PANEL] = v[e];
}

bauta_status bauta_cache_append(bauta_cache *cache,
                                const bauta_attention *shape, size_t tokens,
                                const float *k, const float *v,
                                bauta_error *err)
{
    BT_NEED(cache, err);
    BT_NEED(k, err);
    BT_NEED(v, err);
    bt_shape s;
    bauta_status status = bt_shape_resolve(&s, shape, err);
    if (!status)
        status = shape_matches(cache, &s, err);
    if (status)
        return status;
    if (tokens > cache->capacity - cache->tokens)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the cache has room for %zu tokens and holds %zu: %zu "
                       "more do not fit",
                       cache->capacity, cache->tokens, tokens);
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < s.kv_heads; h++)
            token_put(cache, h, cache->tokens + t,
                      k + t * s.k.token + h * s.k.head,
                      v + t * s.v.token + h * s.v.head);
    cache->tokens += tokens;
    return BAUTA_OK;
}

size_t bauta_cache_tokens(const bauta_cache *cache)
{
    return cache->tokens;
}

bauta_status bauta_cache_truncate(bauta_cache *cache, size_t tokens,
                                  bauta_error *err)
{
    BT_NEED(cache, err);
    if (tokens > cache->tokens)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "cannot keep %zu tokens of a cache that holds %zu",
                       tokens, cache->tokens);
    cache->tokens = tokens;
    return BAUTA_OK;
}

static bauta_status plan_fits(const bauta_plan *plan, const bauta_cache *cache,
                              bauta_error *err)
{
    if (plan->key_end > cache->tokens)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plan sees key %zu, the cache holds %zu tokens",
                       plan->key_end - 1, cache->tokens);
    if (!plan->one_origin)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plan has rows whose origin is not 0, and a cache "
                       "holds one sequence");
    return BAUTA_OK;
}

bauta_status bauta_attention_cached(bauta_context *context,
                                    const bauta_plan *plan,
                                    const bauta_attention *shape,
                                    const float *q, const bauta_cache *cache,
                                    float *out, float *lse, bauta_error *err)
{
    BT_NEED(context, err);
    BT_NEED(plan, err);
    BT_NEED(q, err);
    BT_NEED(cache, err);
    BT_NEED(out, err);
    bt_forward f = { .plan = plan,
                     .kernels = context->kernels,
                     .q = q,
                     .packed = cache->packed,
                     .out = out,
                     .lse = lse };
    bauta_status status = bt_shape_resolve(&f.shape, shape, err);
    if (!status)
        status = shape_matches(cache, &f.shape, err);
    if (!status)
        status = plan_fits(plan, cache, err);
    if (!status)
        status = bt_strides_apart(&f.shape.out, "out", plan->rows,
                                  f.shape.heads, f.shape.value_dim, err);
    if (status)
        return status;
    bt_arena measure = { NULL, 0, 0 };
    bt_forward_prepare(&f, &measure, context->threads);
    if (bt_arena_reserve(&context->workspace, measure.used))
        return bt_fail_memory(err, "the workspace of attention_cached",
                              measure.used);
    bt_forward_prepare(&f, &context->workspace, context->threads);
    bt_forward_run(&f, context->threads);
    return BAUTA_OK;
}
