/* SPDX-License-Identifier: Apache-2.0 */
/* kv_cache.c - the public KV cache of one sequence, and attention over it.
 *
 * A cache is a block table of one layer. Pages have the layout that the kernels
 * read, so a prefill over the cache packs nothing, and a decoding step reads
 * each block once, sequentially. */
#include "backend/cpu/attention.h"
#include "backend/cpu/kv_pages.h"
#include "base/error.h"
#include "mask/mask.h"
#include "runtime/context.h"

struct bauta_kv_cache {
    size_t capacity;
    bt_block_table table;
};

/* An empty cache, with a reference to the pool. */
static bauta_status cache_new(bauta_kv_cache **out, bt_kv_pool *pool,
                              size_t capacity, bauta_error *err)
{
    bauta_kv_cache *cache = bt_alloc_zero(1, sizeof(*cache));
    if (!cache)
        return bt_fail_memory(err, "a cache", sizeof(*cache));
    cache->capacity = capacity;
    bt_block_table_init(&cache->table, bt_kv_pool_retain(pool), 1);
    *out = cache;
    return BAUTA_OK;
}

bauta_status bauta_kv_cache_create(bauta_kv_cache **out,
                                   const bauta_attention_shape *shape,
                                   size_t capacity, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    bt_attention_shape s;
    bt_kv_pool *pool = NULL;
    bauta_status status = bt_attention_shape_resolve(&s, shape, err);
    if (!status && capacity > BT_AXIS_MAX)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "capacity is %zu tokens, and no mask has more than "
                         "%zu keys",
                         capacity, BT_AXIS_MAX);
    if (!status)
        status = bt_kv_pool_create(&pool, &bt_cpu_backend, &s, BAUTA_FLOAT32, 0,
                                   err);
    if (!status)
        status = cache_new(out, pool, capacity, err);
    bt_kv_pool_release(pool);
    return status;
}

void bauta_kv_cache_free(bauta_kv_cache *cache)
{
    if (!cache)
        return;
    bt_block_table_release(&cache->table);
    bt_kv_pool_release(cache->table.pool);
    bt_free(cache);
}

bauta_status bauta_kv_cache_fork(bauta_kv_cache **out,
                                 const bauta_kv_cache *cache, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(cache, err);
    bt_block_table pages;
    bauta_status status = bt_block_table_fork(&pages, &cache->table, err);
    if (status)
        return status;
    status = cache_new(out, cache->table.pool, cache->capacity, err);
    if (status)
        bt_block_table_release(&pages);
    else
        (*out)->table = pages;
    return status;
}

static bauta_status shape_matches(const bauta_kv_cache *cache,
                                  const bt_attention_shape *s, bauta_error *err)
{
    const bt_attention_shape *c = &cache->table.pool->shape;
    if (s->kv_heads == c->kv_heads && s->head_dim == c->head_dim &&
        s->value_dim == c->value_dim)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the cache holds %zu heads of %zu and %zu, the shape has "
                   "%zu of %zu and %zu",
                   c->kv_heads, c->head_dim, c->value_dim, s->kv_heads,
                   s->head_dim, s->value_dim);
}

bauta_status bauta_kv_cache_append(bauta_kv_cache *cache,
                                   const bauta_attention_shape *shape,
                                   size_t tokens, const float *k,
                                   const float *v, bauta_error *err)
{
    BT_NEED(cache, err);
    BT_NEED(k, err);
    BT_NEED(v, err);
    bt_attention_shape s;
    bt_block_table *table = &cache->table;
    bauta_status status = bt_attention_shape_resolve(&s, shape, err);
    if (!status)
        status = shape_matches(cache, &s, err);
    if (!status && tokens > cache->capacity - table->tokens)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "the cache has room for %zu tokens and holds %zu: %zu "
                         "more do not fit",
                         cache->capacity, table->tokens, tokens);
    if (!status && tokens)
        status = bt_block_table_reserve(table, NULL, tokens, err);
    if (status)
        return status;
    for (size_t h = 0; h < s.kv_heads; h++)
        bt_kv_pages_write(table, 0, bt_kernels_get(NULL), &s, h, table->tokens,
                          tokens, k + h * s.k.head, v + h * s.v.head);
    bt_block_table_advance(table, tokens);
    return BAUTA_OK;
}

size_t bauta_kv_cache_tokens(const bauta_kv_cache *cache)
{
    return cache->table.tokens;
}

/* The page of the last token that is kept must not have been freed. */
bauta_status bauta_kv_cache_truncate(bauta_kv_cache *cache, size_t tokens,
                                     bauta_error *err)
{
    BT_NEED(cache, err);
    bt_block_table *table = &cache->table;
    if (tokens > table->tokens)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "cannot keep %zu tokens of a cache that holds %zu",
                       tokens, table->tokens);
    if (tokens && !bt_block_table_page(table, 0, (tokens - 1) / BT_BLOCK))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "cannot keep %zu tokens of a cache that has evicted "
                       "token %zu",
                       tokens, tokens - 1);
    bt_block_table_truncate(table, tokens);
    return BAUTA_OK;
}

bauta_status bauta_kv_cache_evict(bauta_kv_cache *cache, size_t tokens,
                                  bauta_error *err)
{
    BT_NEED(cache, err);
    if (tokens > cache->table.tokens)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "cannot evict %zu tokens of a cache that holds %zu",
                       tokens, cache->table.tokens);
    bt_block_table_free_before(&cache->table, 0, tokens);
    return BAUTA_OK;
}

/* Find the first visited page that was freed. */
static bool page_missing(const bauta_plan *plan, const bt_block_table *table,
                         size_t *block)
{
    for (size_t i = 0; i < plan->run_count; i++)
        for (size_t k = 0; k < plan->runs[i].count; k++) {
            *block = plan->runs[i].first + k;
            if (!bt_block_table_page(table, 0, *block))
                return true;
        }
    return false;
}

static bauta_status plan_fits(const bauta_plan *plan,
                              const bauta_kv_cache *cache, bauta_error *err)
{
    size_t block;
    const bt_block_table *table = &cache->table;
    if (plan->key_end > table->tokens)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plan sees key %zu, the cache holds %zu tokens",
                       plan->key_end - 1, table->tokens);
    if (!plan->one_origin)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plan has rows whose origin is not 0, and a cache "
                       "holds one sequence");
    if (page_missing(plan, table, &block))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plan sees keys from %zu to %zu, which the cache "
                       "has evicted",
                       block * BT_BLOCK, block * BT_BLOCK + BT_BLOCK - 1);
    return BAUTA_OK;
}

bauta_status bauta_attention_cached(bauta_context *context,
                                    const bauta_plan *plan,
                                    const bauta_attention_shape *shape,
                                    const float *q, const bauta_kv_cache *cache,
                                    float *out, float *lse, bauta_error *err)
{
    BT_NEED_CPU(context, err);
    BT_NEED(plan, err);
    BT_NEED(q, err);
    BT_NEED(cache, err);
    BT_NEED(out, err);
    bt_attention_shape s;
    bauta_status status = bt_attention_shape_resolve(&s, shape, err);
    if (!status)
        status = shape_matches(cache, &s, err);
    if (!status)
        status = plan_fits(plan, cache, err);
    if (!status)
        status = bt_attention_strides_disjoint(&s.out, "out", plan->rows,
                                               s.heads, s.value_dim, err);
    if (status)
        return status;
    return bt_attention_paged_cpu(bt_cpu_of_context(context), plan, &s, q,
                                  cache->table.pages, NULL, out, lse, err);
}
