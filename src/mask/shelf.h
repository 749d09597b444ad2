/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.h - a cache of compiled plans.
 *
 * Batches of the same lengths recur, in training and in benchmarks. So each
 * attention of a model has a slot that holds its last plan until a different
 * one is needed. */
#ifndef BT_SHELF_H
#define BT_SHELF_H

#include "mask/row_spans.h"

/* The attentions of a model that differ in their masks. */
typedef enum bt_place {
    BT_PLACE_ENCODER,
    BT_PLACE_DECODER,
    BT_PLACE_WINDOW, /* decoder layers with a sliding window */
    BT_PLACE_CROSS,
    BT_PLACES
} bt_place;

typedef struct bt_shelf {
    struct {
        bauta_plan *plan; /* NULL: none */
        bool reusable;    /* the key below describes the plan */
        bool causal;
        size_t window, count;
        size_t *lengths; /* (2, count) of queries and of keys */
        size_t capacity; /* of lengths */
    } slots[BT_PLACES];
} bt_shelf;

/* The plan of a mask, valid until the next call for the same slot. A mask with
 * `extra`, prefixes or per-sequence windows is compiled anew each time. */
bauta_status bt_shelf_get(bt_shelf *cache, const bauta_plan **out,
                          bt_place slot, const bt_batch_mask *mask,
                          bauta_error *err);
void bt_shelf_release(bt_shelf *cache);

#endif
