/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.h - the masks of a batch of sequences, and their plans kept from call
 * to call.
 *
 * Batches of the same lengths come again and again, in training and in tests
 * of speed. So each attention of a model has a place on the shelf, where its
 * last plan stays until another one is asked for. */
#ifndef BT_SHELF_H
#define BT_SHELF_H

#include "mask/row_spans.h"

bauta_status bt_batch_mask_create(bauta_mask **out, const bt_batch_mask *mask,
                                  bauta_error *err);

typedef enum bt_place {
    BT_PLACE_ENCODER,
    BT_PLACE_DECODER,
    BT_PLACE_WINDOW, /* decoder layers that have one */
    BT_PLACE_CROSS,
    BT_PLACES
} bt_place;

typedef struct bt_shelf {
    struct {
        bauta_plan *plan; /* NULL: none */
        bool kept;        /* it is the plan of what follows */
        bool causal;
        size_t window, count;
        size_t *lengths; /* (2, count) of queries and of keys */
        size_t room;     /* that lengths has */
    } places[BT_PLACES];
} bt_shelf;

/* The plan of a mask, which stays on the shelf. One with an extra mask,
 * prefixes or windows of sequences is made anew each time. */
bauta_status bt_shelf_get(bt_shelf *shelf, const bauta_plan **out,
                          bt_place place, const bt_batch_mask *mask,
                          bauta_error *err);
void bt_shelf_release(bt_shelf *shelf);

#endif
