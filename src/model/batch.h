/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h - checking a caller's batch and packing it without padding. */
#ifndef BT_BATCH_H
#define BT_BATCH_H

#include "model/model_config.h"
#include "runtime/plan_cache.h"

/* A batch as the model reads it: sequences packed back to back, without
 * padding. Ids and types of a batch with padding are copied to the tape; those
 * of a packed batch are the caller's. */
typedef struct bt_packed_batch {
    bt_token_axis axis; /* lengths and stride of the caller's rows */
    size_t tokens;      /* without padding */
    const uint32_t *ids;
    const uint32_t *token_types; /* or NULL */
    uint32_t *positions;
    const bauta_mask *mask, *cross_mask;
    const size_t *prefix_lengths; /* or NULL */
} bt_packed_batch;

/* Check a batch against the model. `name` is "source" or "target". The error
 * names the sequence and the position. */
bauta_status bt_batch_check(const bauta_batch *batch, const char *name,
                            const bt_model_config *config, bauta_error *err);
/* Check labels, which have the layout of the ids. */
bauta_status bt_labels_check(const bauta_batch *batch, const uint32_t *labels,
                             size_t vocab, bauta_error *err);
/* Check that the weights of all labels that count are finite. */
bauta_status bt_label_weights_check(const bauta_batch *batch,
                                    const uint32_t *labels,
                                    const float *weights, bauta_error *err);
/* The number of checked labels that count: neither BAUTA_IGNORE nor padding. */
size_t bt_labels_count(const bauta_batch *batch, const uint32_t *labels);
/* The number of tokens of a checked batch, without padding. */
size_t bt_batch_tokens(const bauta_batch *batch);

/* Pack a checked batch. When memory runs out, the tape holds the failure. */
void bt_packed_batch_init(bt_packed_batch *rows, bt_tape *tape,
                          const bauta_batch *batch);
/* Pack values of `size` bytes that have the layout of the ids. They are not
 * copied if they are packed already. NULL when the tape has failed. */
const void *bt_packed_batch_pack(const bt_packed_batch *rows, bt_tape *tape,
                                 const void *from, size_t size);
/* Copy packed rows of `columns` floats to the caller's layout. Padding rows
 * become 0. */
void bt_packed_batch_unpack(const bt_packed_batch *rows, float *to,
                            const float *from, size_t columns);
/* Set the padding rows alone to 0. */
void bt_packed_batch_zero_padding(const bt_packed_batch *rows, float *to,
                                  size_t columns);

#endif
