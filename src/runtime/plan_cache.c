/* SPDX-License-Identifier: Apache-2.0 */
/* plan_cache.c - a cache of compiled plans; see plan_cache.h. */
#include "runtime/plan_cache.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* Whether the layer's rule and the lengths determine the mask. */
static bool cacheable(const bt_batch_mask *mask)
{
    return !mask->extra && !mask->prefixes && !mask->windows;
}

/* A plan for the backward pass serves a forward pass, too. */
static bool cached(const bt_plan_cache *cache, bt_attention_slot slot,
                   const bt_batch_mask *mask, bool backward)
{
    size_t count = mask->queries.count, bytes = count * sizeof(size_t);
    const size_t *lengths = cache->slots[slot].lengths;
    return cache->slots[slot].reusable && cacheable(mask) &&
           cache->slots[slot].backward >= backward &&
           cache->slots[slot].causal == mask->causal &&
           cache->slots[slot].window == mask->window &&
           cache->slots[slot].count == count &&
           (count == 0 ||
            (memcmp(lengths, mask->queries.lengths, bytes) == 0 &&
             memcmp(lengths + count, mask->keys.lengths, bytes) == 0));
}

/* Record which mask the plan of a slot belongs to. */
static bauta_status key_store(bt_plan_cache *cache, bt_attention_slot slot,
                              const bt_batch_mask *mask, bauta_error *err)
{
    size_t count = mask->queries.count, need = bt_size_mul(2, count);
    size_t *lengths = cache->slots[slot].lengths;
    if (cache->slots[slot].capacity < need) {
        bt_free(lengths);
        lengths = bt_alloc(bt_size_mul(need, sizeof(*lengths)));
        cache->slots[slot].lengths = lengths;
        cache->slots[slot].capacity = lengths ? need : 0;
        if (!lengths)
            return bt_fail_memory(err, "the lengths of a batch",
                                  bt_size_mul(need, sizeof(*lengths)));
    }
    if (count) {
        memcpy(lengths, mask->queries.lengths, count * sizeof(*lengths));
        memcpy(lengths + count, mask->keys.lengths, count * sizeof(*lengths));
    }
    cache->slots[slot].count = count;
    cache->slots[slot].causal = mask->causal;
    cache->slots[slot].window = mask->window;
    cache->slots[slot].reusable = cacheable(mask);
    return BAUTA_OK;
}

bauta_status bt_plan_cache_get(bt_plan_cache *cache, bt_stream *stream,
                               const bt_attention_plan **out,
                               bt_attention_slot slot,
                               const bt_batch_mask *mask, bool backward,
                               bauta_error *err)
{
    bt_attention_plan **plan = &cache->slots[slot].plan;
    bauta_status status = BAUTA_OK;
    *out = NULL;
    if (!cached(cache, slot, mask, backward)) {
        cache->slots[slot].reusable = false;
        cache->slots[slot].backward = backward;
        status = stream->backend->plan_build(
            stream, plan, mask, backward ? BT_PLAN_BACKWARD : BT_PLAN_FORWARD,
            err);
        if (!status)
            status = key_store(cache, slot, mask, err);
    }
    if (!status)
        *out = *plan;
    return status;
}

void bt_plan_cache_release(bt_plan_cache *cache)
{
    for (size_t i = 0; i < BT_SLOT_COUNT; i++) {
        if (cache->slots[i].plan)
            cache->slots[i].plan->backend->plan_free(cache->slots[i].plan);
        bt_free(cache->slots[i].lengths);
    }
    *cache = (bt_plan_cache){ 0 };
}
