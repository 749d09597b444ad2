/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - sequences on a stage, for the trials that go step by step. */
#ifndef BT_AUDIT_STAGE_H
#define BT_AUDIT_STAGE_H

#include "audit/audit.h"
#include "decode/stage.h"

typedef struct bt_cast {
    bt_stage *stage;
    size_t count;         /* sources, and sequences */
    bt_memory **memories; /* (count) NULL where there are no sources */
    bt_sequence **sequences;
    bt_feed *feeds;
    float *logits; /* (count, stride) */
    size_t vocabulary, stride;
} bt_cast;

/* A stage of the double on which each source has been read, and `each` empty
 * sequences of every reading: those of reading s from s * each on. */
bauta_status bt_cast_init(bt_cast *cast, bt_auditing *a, const bt_double *d,
                          const bt_readings *read, size_t each,
                          bauta_error *err);
void bt_cast_release(bt_cast *cast);

/* BAUTA_ERR_UNSUPPORTED where the model does not go step by step. */
bauta_status bt_cast_possible(const bt_auditing *a, bauta_error *err);

/* The readings without what only a batch has: masks and prefixes. */
bauta_status bt_readings_plain(bt_readings *to, const bt_readings *from,
                               bauta_error *err);

/* Read, `piece(step)` tokens at a time, all sequences together, and compare the
 * logits behind each piece with those of the parallel pass; or, with no states
 * to compare with, see where there is NaN, for which `poisoned` is the row that
 * has it. */
typedef size_t bt_piece_fn(size_t step);
bauta_status bt_cast_read(bt_cast *cast, bt_auditing *a,
                          const bt_readings *read, bt_piece_fn *piece,
                          const bt_states *want, const bt_law *law,
                          size_t poisoned, bt_fault *fault, bauta_error *err);

/* How the trials of this kind read. */
size_t bt_piece_single(size_t step);
size_t bt_piece_several(size_t step);

/* Which key is to blame for a fault of reading in pieces, by NaN. */
bauta_status bt_key_find(bt_auditing *a, size_t encoder, size_t decoder,
                         bt_piece_fn *piece, bt_fault *fault, bauta_error *err);

#endif
