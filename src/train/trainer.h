/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h - a trainer, inside.
 *
 * A step is a batch of the epoch, run in passes that memory allows, each of
 * which adds its share to the gradients; then the optimizer moves the
 * parameters. The position in the data is (epoch, batch), and everything that
 * is random follows from the seed and what it is for, so there is nothing else
 * to be saved. */
#ifndef BT_TRAINER_H
#define BT_TRAINER_H

#include "data/objective.h"
#include "model/handle.h"
#include "train/optimizer.h"

struct bauta_trainer {
    bauta_context *context;
    bauta_model *model;
    const bauta_tokenizer *tokenizer; /* or NULL */
    const bauta_corpus *corpus;
    bauta_train_options options; /* with everything chosen */
    bt_cutting cutting;
    bt_objective objective;
    bt_optimizer *optimizer;
    bt_entry **trained; /* (trained_count) in the optimizer's order */
    size_t trained_count;
    float *average; /* of all weights in memory, or NULL */
    size_t steps;
    size_t epoch_number, batch; /* of the next step */
    bt_epoch epoch;
    bt_filling filling;
    bt_filling part; /* of a mode that runs a batch in other parts */
    float *logits;   /* of the modes that predict */
    size_t logits_room;
    void (*progress)(void *user, size_t done, size_t all); /* or NULL */
    void *progress_user;
};

/* A filled batch as bauta.h's calls take it; which of the two a model reads
 * depends on its kind, and the other one is NULL. */
typedef struct bt_pass {
    bauta_batch source, target;
    const bauta_batch *read_source, *read_target;
} bt_pass;
void bt_pass_set(bt_pass *pass, const bauta_trainer *trainer,
                 const bt_filling *filling);

/* Loss and gradients of a filled batch by teacher forcing: its mean, times
 * counted / total. */
bauta_status bt_pass_run(bauta_trainer *trainer, const bt_filling *filling,
                         size_t total, double *loss, bauta_error *err);

/* Go to a batch of an epoch. */
bauta_status bt_trainer_seek(bauta_trainer *trainer, size_t epoch, size_t batch,
                             bauta_error *err);
/* After the last batch of an epoch, go to the first one of the next epoch.
 * Every reader of the next batch calls this first: a checkpoint taken at the
 * end of an epoch is resumed with `batch` at the epoch's batch_count. */
bauta_status bt_trainer_next(bauta_trainer *trainer, bauta_error *err);

/* The same in another mode; see modes.c. */
bauta_status bt_mode_run(bauta_trainer *trainer, bauta_mode mode,
                         bt_filling *filling, size_t total, double *loss,
                         bauta_error *err);

#endif
