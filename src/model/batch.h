/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - checking a caller's batch and packing it without padding. */
#ifndef BT_BATCH_H
#define BT_BATCH_H

#include "mask/shelf.h"
#include "model/blueprint.h"

/* A batch as the model reads it, in the tape's memory: sequences packed back to
 * back, without padding. */
typedef struct bt_rows {
    bt_axis axis;  /* lengths and stride of the caller's rows */
    size_t tokens; /* without padding */
    uint32_t *ids, *positions;
    uint32_t *types; /* or NULL */
    const bauta_mask *mask, *cross;
    const size_t *prefixes; /* or NULL */
} bt_rows;

/* Check a batch against the model. `name` is "source" or "target". The error
 * names the sequence and the position. */
bauta_status bt_batch_check(const bauta_batch *batch, const char *name,
                            const bt_blueprint *config, bauta_error *err);
/* Check labels, which have the layout of the ids. */
bauta_status bt_labels_check(const bauta_batch *batch, const uint32_t *labels,
                             size_t vocab, bauta_error *err);

/* Pack a checked batch. When memory runs out, the tape holds the failure. */
void bt_rows_take(bt_rows *rows, bt_tape *tape, const bauta_batch *batch);
/* Pack values that have the layout of the ids. NULL when the tape has failed.
 */
uint32_t *bt_rows_pack(const bt_rows *rows, bt_tape *tape,
                       const uint32_t *from);
/* Copy packed rows of `columns` floats to the caller's layout. Padding rows
 * become 0. */
void bt_rows_unpack(const bt_rows *rows, float *to, const float *from,
                    size_t columns);
/* Set the padding rows alone to 0. */
void bt_rows_zero_padding(const bt_rows *rows, float *to, size_t columns);

#endif
