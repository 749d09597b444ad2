/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h - the state of a trainer.
 *
 * A step runs one batch of the epoch in micro-batches, which bound memory and
 * accumulate gradients; then the optimizer updates the parameters. The position
 * in the data is (epoch, batch), and all random numbers are functions of the
 * seed and their purpose, so there is no other state to save. */
#ifndef BT_TRAINER_H
#define BT_TRAINER_H

#include "data/objective.h"
#include "model/api.h"
#include "train/batch_lanes.h"
#include "train/shards.h"

struct bauta_trainer {
    bauta_context *context;
    bauta_model *model;
    const bauta_tokenizer *tokenizer; /* or NULL */
    const bauta_corpus *corpus;       /* or NULL: the caller's batches only */
    bauta_train_options options;      /* with defaults resolved */
    bt_packing packing;
    bt_objective objective;
    bt_optimizer *optimizer;
    bt_named_tensor **trained; /* (trained_count) in the optimizer's order */
    size_t trained_count;
    uint64_t weights_digest; /* of all weights of this rank, when it gave those
                                of other slices away; or 0 */
    bt_shards shards; /* the own part of the optimizer's state, and of: */
    bt_buffer ema;    /* exponential moving average of the weights, or empty */
    bt_lanes lanes;
    size_t steps;
    size_t epoch_number, batch; /* of the next step */
    bt_epoch epoch;
    bt_train_batch train_batch;
    bt_train_batch partial; /* scratch of the modes other than parallel */
    float *logits;          /* scratch of the modes that predict */
    size_t logits_capacity;
    void (*progress)(void *user, size_t done, size_t all); /* or NULL */
    void *progress_user;
};

/* Resolve the defaults of the options and check them. */
bauta_status bt_train_options_resolve(bauta_train_options *options,
                                      const bauta_model *model,
                                      const bauta_corpus *corpus, /* or NULL */
                                      bauta_error *err);

/* A training batch as the public calls take it. read_source and read_target are
 * NULL where the model has no such input. */
typedef struct bt_microbatch {
    bauta_batch source, target;
    const bauta_batch *read_source, *read_target;
} bt_microbatch;
void bt_microbatch_set(bt_microbatch *microbatch, const bauta_trainer *trainer,
                       const bt_train_batch *data);

/* The loss of a micro-batch by teacher forcing: its mean times its share of the
 * `total` labels of the batch. To train, with gradients, dropout and label
 * smoothing; to evaluate, without. With `ahead` the plans of the next batch of
 * the epoch are made while the device works on this one. */
bauta_status bt_microbatch_run(bauta_trainer *trainer,
                               const bt_train_batch *data, size_t total,
                               bool train, bool ahead, double *loss,
                               bauta_error *err);

/* A batch of an epoch. bt_epoch_batch_at() sets the mode to parallel. */
typedef struct bt_epoch_batch {
    const bauta_corpus *corpus;
    const bt_example *list; /* (count) */
    size_t count;
    bauta_train_mode mode;
    bool evaluate;          /* the loss only */
    bool ahead;             /* make the plans of the next batch, too */
    size_t counted, tokens; /* of all micro-batches */
    size_t total;           /* labels of all lanes; 0: those of this batch */
    size_t filled;          /* sequences in the trainer's train_batch */
} bt_epoch_batch;
bt_epoch_batch bt_epoch_batch_at(const bt_epoch *epoch,
                                 const bauta_corpus *corpus, size_t number);

/* Add the gradients of a batch, except in evaluation; *loss is its part of the
 * mean over all labels. */
bauta_status bt_epoch_batch_run(bauta_trainer *trainer, bt_epoch_batch *batch,
                                double *loss, bauta_error *err);
/* The same in lanes: the gradients of the own ones, and the loss of all. */
bauta_status bt_epoch_batch_run_lanes(bauta_trainer *trainer,
                                      bt_epoch_batch *batch, double *loss,
                                      bauta_error *err);

/* Set the gradients of the model to 0. */
bauta_status bt_trainer_zero(bauta_trainer *trainer, bauta_error *err);

/* The float32 weights of all ranks in host memory, on rank 0 or on all of them.
 * Collective. bt_host_copy_release() frees them. */
bauta_status bt_trainer_weights(bt_host_copy *copy,
                                const bauta_trainer *trainer, bool all,
                                bauta_error *err);

/* Replace the weights by others, which are in host memory on every rank. */
bauta_status bt_trainer_set_weights(bauta_trainer *trainer,
                                    const float *weights, bauta_error *err);

/* Give all ranks the slices of the weights that their owners changed.
 * Collective. */
bauta_status bt_trainer_gather_weights(const bauta_trainer *trainer,
                                       bauta_error *err);

/* The moving average of the weights, where the options ask for one: begin it
 * with the weights, and update it after a step. */
bauta_status bt_trainer_ema_create(bauta_trainer *trainer, bauta_error *err);
bauta_status bt_trainer_ema_step(const bauta_trainer *trainer,
                                 bauta_error *err);
/* Exchange the weights and their moving average, on all ranks. */
bauta_status bt_trainer_swap_ema(const bauta_trainer *trainer,
                                 bauta_error *err);

/* Move to a batch of an epoch. */
bauta_status bt_trainer_seek(bauta_trainer *trainer, size_t epoch, size_t batch,
                             bauta_error *err);
/* After the last batch of an epoch, move to the first one of the next. Call
 * this before reading the next batch: a checkpoint from the end of an epoch
 * resumes with `batch` equal to batch_count. */
bauta_status bt_trainer_next(bauta_trainer *trainer, bauta_error *err);

/* A batch whose gradients have been computed. */
typedef struct bt_step_sums {
    double loss; /* mean over the counted labels */
    size_t counted, tokens;
} bt_step_sums;

/* The rest of a step: update weights and moving average, and fill the report
 * unless it is NULL. */
bauta_status bt_trainer_update(bauta_trainer *trainer, const bt_step_sums *sums,
                               bauta_train_report *report, bauta_error *err);

/* bt_microbatch_run() to train in a mode other than parallel; see
 * train_modes.c. */
bauta_status bt_train_mode_run(bauta_trainer *trainer, bauta_train_mode mode,
                               bt_train_batch *data, size_t total, double *loss,
                               bauta_error *err);

#endif
