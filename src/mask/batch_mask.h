/* SPDX-License-Identifier: Apache-2.0 */
/* batch_mask.h - the mask of a batch, and the keys that each of its queries
 * sees.
 *
 * The mask of a batch, the plan of a decoding step and the pages that a
 * sequence can free are all derived from bt_row_span(). model/layer_mask.c
 * fills a bt_batch_mask for a layer. */
#ifndef BT_BATCH_MASK_H
#define BT_BATCH_MASK_H

#include "mask/mask.h"

/* Sequences on a token axis: packed back to back, or each at a multiple of the
 * stride. */
typedef struct bt_token_axis {
    size_t count;
    const size_t *lengths; /* (count) */
    size_t stride;         /* 0: packed */
} bt_token_axis;

/* The mask of one attention. Its rows and keys are always packed; the axes give
 * the layout of `extra`. */
typedef struct bt_batch_mask {
    bt_token_axis queries, keys; /* causal: the queries of a sequence are its
                              last positions, so it has at least as many keys */
    const size_t *prefixes;      /* (count) if causal; NULL: none */
    const size_t *windows;       /* (count) sliding windows of the sequences, if
                                    causal (0: none); NULL: none */
    const bauta_mask *extra;     /* hides more keys; NULL: none */
    /* Set by bt_layer_mask() for the layer. */
    bool causal;
    size_t window; /* sliding window if causal; 0: none */
} bt_batch_mask;

/* Determines which keys the queries of one sequence see, without `extra`. */
typedef struct bt_row_visibility {
    size_t rows, keys;
    size_t window; /* 0: none */
    size_t prefix; /* at most keys */
} bt_row_visibility;

/* In a bidirectional attention the prefix is the whole sequence. */
bt_row_visibility bt_row_visibility_of(const bt_batch_mask *mask,
                                       size_t sequence);

/* The keys that a query sees, both counted from the start of the sequence. From
 * row to row neither end decreases, and consecutive spans overlap or touch. */
bauta_span bt_row_span(const bt_row_visibility *rule, size_t row);

/* The whole mask, with `extra`. */
bauta_status bt_batch_mask_create(bauta_mask **out, const bt_batch_mask *mask,
                                  bauta_error *err);

#endif
