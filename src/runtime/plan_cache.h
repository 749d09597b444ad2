/* SPDX-License-Identifier: Apache-2.0 */
/* plan_cache.h - a cache of compiled plans.
 *
 * Batches of the same lengths recur, in training and in benchmarks. So each
 * attention of a model has a slot that holds its last plan until a different
 * one is needed. */
#ifndef BT_PLAN_CACHE_H
#define BT_PLAN_CACHE_H

#include "backend/backend.h"

/* The attentions of a model that differ in their masks. */
typedef enum bt_attention_slot {
    BT_SLOT_ENCODER,
    BT_SLOT_DECODER,
    BT_SLOT_WINDOW, /* decoder layers with a sliding window */
    BT_SLOT_CROSS,
    BT_SLOT_COUNT
} bt_attention_slot;

typedef struct bt_plan_cache {
    struct {
        bt_attention_plan *plan; /* NULL: none */
        bool reusable;           /* the key below describes the plan */
        bool causal, backward;
        size_t window, count;
        size_t *lengths; /* (2, count) of queries and of keys */
        size_t capacity; /* of lengths */
    } slots[BT_SLOT_COUNT];
} bt_plan_cache;

/* The plan of a mask, valid until the next call for the same slot; `backward`
 * if gradients are computed. A mask with `extra`, prefixes or per-sequence
 * windows is compiled anew each time. */
bauta_status bt_plan_cache_get(bt_plan_cache *cache, bt_stream *stream,
                               const bt_attention_plan **out,
                               bt_attention_slot slot,
                               const bt_batch_mask *mask, bool backward,
                               bauta_error *err);
void bt_plan_cache_release(bt_plan_cache *cache);

#endif
