/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - a batch at the door: checked, and packed. */
#ifndef BT_BATCH_H
#define BT_BATCH_H

#include "mask/shelf.h"
#include "model/blueprint.h"

/* A batch as the model reads it, in the memory of a tape: sequences one behind
 * the other without padding. */
typedef struct bt_rows {
    bt_axis axis;  /* as the caller's rows lie */
    size_t tokens; /* without padding */
    uint32_t *ids, *positions;
    uint32_t *types; /* or NULL */
    const bauta_mask *mask, *cross;
    const size_t *prefixes; /* or NULL */
} bt_rows;

/* Whether a batch fits a model; `name` is "source" or "target". The sentence
 * says which sequence and position does not. */
bauta_status bt_batch_check(const bauta_batch *batch, const char *name,
                            const bt_blueprint *print, bauta_error *err);
/* Labels, which lie as the ids do. */
bauta_status bt_labels_check(const bauta_batch *batch, const uint32_t *labels,
                             size_t vocab, bauta_error *err);

/* Pack a batch that was checked; the tape fails without memory. */
void bt_rows_take(bt_rows *rows, bt_tape *tape, const bauta_batch *batch);
/* Pack values that lie as the ids do; NULL when the tape has failed. */
uint32_t *bt_rows_pack(const bt_rows *rows, bt_tape *tape,
                       const uint32_t *from);
/* The way back: packed rows of `columns` floats to where the caller's lie, and
 * 0 to the rows of padding. */
void bt_rows_unpack(const bt_rows *rows, float *to, const float *from,
                    size_t columns);
/* Only the padding. */
void bt_rows_zero_padding(const bt_rows *rows, float *to, size_t columns);

#endif
