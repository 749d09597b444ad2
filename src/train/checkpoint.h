/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - the files of a trainer.
 *
 *     trainer.json            the record: progress, options, and digests of the
 *                             data and of the other files
 *     optimizer.safetensors   moments "first.<name>" and "second.<name>" of
 *                             every trained tensor, and with a moving average
 *                             "average.<name>" of every tensor
 *
 * They are in one folder with the model and the tokenizer. */
#ifndef BT_CHECKPOINT_H
#define BT_CHECKPOINT_H

#include "formats/safetensors.h"
#include "train/trainer.h"

#include <jansson.h>

enum { BT_CHECKPOINT_FORMAT = 1 };

/* ---- optimizer_state.c --------------------------------------------------- */

/* The tensors of optimizer.safetensors. On a single rank their data is in the
 * trainer, or in host copies of it. With several ranks, `whole` has the first
 * moments, the second ones and the average, each in the layout of the weights,
 * gathered from all ranks. */
typedef struct bt_optimizer_state {
    bt_host_copy moments, ema; /* of this rank */
    float *whole;              /* complete on rank 0 only; or NULL */
    bt_stored_tensor *tensors;
    size_t count;
    char *names;
} bt_optimizer_state;

/* With `gather`, which is collective, the state has data on rank 0; without,
 * with several ranks, only names and shapes. */
bauta_status bt_optimizer_state_init(bt_optimizer_state *state,
                                     const bauta_trainer *trainer, bool gather,
                                     bauta_error *err);
void bt_optimizer_state_release(bt_optimizer_state *state);

/* Over the names and values, in the order of the list. */
uint64_t bt_optimizer_state_digest(const bt_optimizer_state *state);
/* Check that a file has exactly these tensors, and compute the digest of its
 * values. */
bauta_status bt_optimizer_state_check(const bt_optimizer_state *state,
                                      const bt_safetensors *file,
                                      const char *path, uint64_t *digest,
                                      bauta_error *err);
/* Copy the values of a checked file into the trainer: of the own slice. */
bauta_status bt_optimizer_state_load(const bt_optimizer_state *state,
                                     const bauta_trainer *trainer,
                                     const bt_safetensors *file,
                                     bauta_error *err);

/* ---- trainer_record.c ---------------------------------------------------- */

/* The record of a trainer, for json_decref(). `weights` is a host copy of the
 * model's; `notes` may be NULL. */
bauta_status bt_trainer_record_make(json_t **out, const bauta_trainer *trainer,
                                    const float *weights,
                                    const bt_optimizer_state *state,
                                    json_t *notes, bauta_error *err);

/* Of all that ranks must have in common: options, data, weights and step. */
bauta_status bt_trainer_digest(uint64_t *out, const bauta_trainer *trainer,
                               bauta_error *err);

/* The progress of a run. */
typedef struct bt_train_progress {
    size_t step, epoch, batch, updates;
    uint64_t optimizer_digest;
} bt_train_progress;

/* Read a record, and check that it belongs to this trainer's run. */
bauta_status bt_trainer_record_read(bt_train_progress *progress,
                                    const json_t *record,
                                    const bauta_trainer *trainer,
                                    const char *path, bauta_error *err);

/* ---- checkpoint.c -------------------------------------------------------- */

/* What a checkpoint holds, before it is written. */
typedef struct bt_checkpoint_draft {
    const bauta_trainer *trainer;
    bt_host_copy weights;
    bt_optimizer_state state;
    char *record; /* rank 0 */
} bt_checkpoint_draft;

/* Take the state of a trainer. Collective. */
bauta_status bt_checkpoint_copy(bt_checkpoint_draft *draft,
                                const bauta_trainer *trainer, const char *notes,
                                bauta_error *err);
/* Whether the draft shares no memory with what a step changes, as it does where
 * the trainer's memory is the host's. */
bool bt_checkpoint_is_apart(const bt_checkpoint_draft *draft);
/* Write it to a folder; rank 0 does. */
bauta_status bt_checkpoint_write(const bt_checkpoint_draft *draft,
                                 const char *folder, bauta_error *err);
void bt_checkpoint_draft_release(bt_checkpoint_draft *draft);

#endif
