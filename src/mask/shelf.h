/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.h - the masks of a batch of sequences, and their plans kept from call
 * to call.
 *
 * Batches of the same lengths come again and again, in training and in tests
 * of speed. So each attention of a model has a place on the shelf, where its
 * last plan stays until another one is asked for. */
#ifndef BT_SHELF_H
#define BT_SHELF_H

#include "bauta.h"

/* Sequences on an axis of tokens: one behind the other, or each at a multiple
 * of the stride. */
typedef struct bt_axis {
    size_t count;
    const size_t *lengths; /* (count) */
    size_t stride;         /* 0: one behind the other */
} bt_axis;

/* The mask of one attention. Its own rows and keys are always packed; the axes
 * say how those of `extra` lie. */
typedef struct bt_batch_mask {
    bt_axis queries, keys;
    bool causal;             /* queries and keys are the same */
    size_t window;           /* of a causal one; 0: none */
    const size_t *prefixes;  /* (count) of a causal one, or NULL: none */
    const bauta_mask *extra; /* hides more, or NULL */
} bt_batch_mask;

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

/* The plan of a mask, which stays on the shelf. One with an extra mask or
 * prefixes is made anew each time. */
bauta_status bt_shelf_get(bt_shelf *shelf, const bauta_plan **out,
                          bt_place place, const bt_batch_mask *mask,
                          bauta_error *err);
void bt_shelf_release(bt_shelf *shelf);

#endif
