/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - a trainer as files, in two parts.
 *
 *     trainer.json            the record: where the run is, what it was made
 *                             of, digests of what it holds
 *     optimizer.safetensors   moments "first.<name>" and "second.<name>" of
 *                             every trained tensor, "average.<name>" of all
 *
 * beside the model and the tokenizer, in one folder. */
#ifndef BT_CHECKPOINT_H
#define BT_CHECKPOINT_H

#include "formats/safetensors.h"
#include "train/trainer.h"

#include <jansson.h>

enum { BT_CHECKPOINT_FORMAT = 1 };

/* ---- moments.c ----------------------------------------------------------- */

/* The tensors of optimizer.safetensors, as they lie in a trainer. */
typedef struct bt_moments {
    bt_stored *tensors;
    size_t count;
    char *names;
} bt_moments;

bauta_status bt_moments_init(bt_moments *moments, const bauta_trainer *trainer,
                             bauta_error *err);
void bt_moments_release(bt_moments *moments);

/* Of the names, shapes and numbers, in the order of the list. */
uint64_t bt_moments_digest(const bt_moments *moments);
/* See that a file has all of them and nothing else; then *digest is that of
 * what is in the file. */
bauta_status bt_moments_check(const bt_moments *moments,
                              const bt_safetensors *file, const char *path,
                              uint64_t *digest, bauta_error *err);
/* Into the trainer, from a file that was checked. */
void bt_moments_take(const bt_moments *moments, const bt_safetensors *file);

/* ---- record.c ------------------------------------------------------------ */

/* The record of a trainer; `notes` may be NULL. For json_decref(). */
bauta_status bt_record_make(json_t **out, const bauta_trainer *trainer,
                            const bt_moments *moments, json_t *notes,
                            bauta_error *err);

/* Where a run is. */
typedef struct bt_train_progress {
    size_t step, epoch, batch, updates;
    uint64_t moments; /* the digest */
} bt_train_progress;

/* Read a record, if it is one of this trainer's run. */
bauta_status bt_record_read(bt_train_progress *place, const json_t *record,
                            const bauta_trainer *trainer, const char *path,
                            bauta_error *err);

#endif
