/* SPDX-License-Identifier: Apache-2.0 */
/* step_batch.c - a training step on the caller's batches.
 *
 * All batches are checked before the first gradient is computed, because each
 * needs the number of counted labels of all of them. */
#include "base/philox.h"
#include "base/size.h"
#include "base/sized.h"
#include "model/model_call.h"
#include "runtime/context.h"
#include "train/trainer.h"

/* Rows of the batches before the current one. */
typedef struct row_offsets {
    uint64_t source, target;
} row_offsets;

/* The library's copy of one of the caller's batches. */
typedef struct own_batch {
    bauta_train_batch train;
    bauta_batch source, target;
} own_batch;

static const bauta_batch *labelled(const bauta_train_batch *batch)
{
    return batch->target ? batch->target : batch->source;
}

static bauta_status batch_read(own_batch *own, const bauta_train_batch *batches,
                               size_t index, bauta_error *err)
{
    bauta_status status = BT_SIZED_ELEMENT(&own->train, BAUTA_TRAIN_BATCH_INIT,
                                           batches, index, "batches", err);
    if (!status)
        status = BT_SIZED_READ(&own->source, BAUTA_BATCH_INIT,
                               own->train.source, "source", err);
    if (!status)
        status = BT_SIZED_READ(&own->target, BAUTA_BATCH_INIT,
                               own->train.target, "target", err);
    if (!status && own->train.source)
        own->train.source = &own->source;
    if (!status && own->train.target)
        own->train.target = &own->target;
    return status;
}

/* ---- checks ------------------------------------------------------------ */

static bauta_status
batch_check(bauta_trainer *t, const bauta_train_batch *batch, bauta_error *err)
{
    bt_model_call call;
    bauta_status status = bt_model_call_check(
        &call, t->context, t->model, batch->source, batch->target, err);
    if (!status)
        status = bt_labels_check(labelled(batch), batch->labels,
                                 bauta_model_vocab_size(t->model), err);
    if (!status && batch->label_weights)
        status = bt_label_weights_check(labelled(batch), batch->labels,
                                        batch->label_weights, err);
    return status;
}

static bauta_status batches_check(bauta_trainer *t,
                                  const bauta_train_batch *batches,
                                  size_t count, bt_step_sums *sums,
                                  bauta_error *err)
{
    BT_NEED_COUNT("batches", count, BT_SIZED_MAX, err);
    if (count == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "there are no batches");
    for (size_t i = 0; i < count; i++) {
        own_batch own;
        const bauta_train_batch *b = &own.train;
        bauta_error why;
        bauta_status status = batch_read(&own, batches, i, &why);
        if (!status)
            status = batch_check(t, b, &why);
        if (status)
            return bt_fail(err, status, "batch %zu: %s", i, why.message);
        sums->counted += bt_labels_count(labelled(b), b->labels);
        if (b->source)
            sums->tokens += bt_batch_tokens(b->source);
        if (b->target)
            sums->tokens += bt_batch_tokens(b->target);
    }
    return BAUTA_OK;
}

/* ---- a batch ----------------------------------------------------------- */

static void keys_fill(uint64_t *keys, size_t rows, uint64_t first)
{
    for (size_t i = 0; i < rows; i++)
        keys[i] = first + i;
}

/* Give dropout a different key for every row of the step, so that the split
 * into batches changes no bit. */
static bauta_status keys_set(bauta_trainer *t, bauta_loss_options *o,
                             const bauta_train_batch *b, row_offsets *before,
                             bauta_error *err)
{
    size_t source = b->source ? bauta_batch_rows(b->source) : 0;
    size_t target = b->target ? bauta_batch_rows(b->target) : 0;
    bt_train_batch *scratch = &t->train_batch;
    o->source_keys = b->source_keys;
    o->target_keys = b->target_keys;
    if (o->dropout > 0 && (!b->source_keys || !b->target_keys)) {
        bauta_status status =
            bt_train_batch_reserve(scratch, 1, target, source, err);
        if (status)
            return status;
        keys_fill(scratch->source_keys, source, before->source);
        keys_fill(scratch->token_keys, target,
                  (UINT64_C(1) << 63) + before->target);
        if (!b->source_keys)
            o->source_keys = scratch->source_keys;
        if (!b->target_keys)
            o->target_keys = scratch->token_keys;
    }
    before->source += source;
    before->target += target;
    return BAUTA_OK;
}

/* Add the gradients of one batch; *loss is its part of the mean. */
static bauta_status batch_run(bauta_trainer *t, const bauta_train_batch *b,
                              size_t total, row_offsets *before, double *loss,
                              bauta_error *err)
{
    bauta_loss_options o = BAUTA_LOSS_OPTIONS_INIT;
    size_t counted = bt_labels_count(labelled(b), b->labels);
    o.weight = total ? (double)counted / (double)total : 0.0;
    o.label_weights = b->label_weights;
    o.label_smoothing = t->options.label_smoothing;
    o.dropout = t->options.dropout;
    o.seed = bt_random(t->options.seed, BT_RANDOM_DROPOUT, t->steps, 0);
    bauta_status status = keys_set(t, &o, b, before, err);
    *loss = 0.0;
    if (status || counted == 0)
        return status;
    return bauta_model_loss(t->context, t->model, b->source, b->target,
                            b->labels, &o, loss, NULL, err);
}

bauta_status bauta_trainer_step_batch(bauta_trainer *t,
                                      const bauta_train_batch *batches,
                                      size_t count, bauta_train_report *report,
                                      bauta_error *err)
{
    BT_NEED(t, err);
    BT_NEED(batches, err);
    bt_step_sums sums = { 0 };
    row_offsets before = { 0, 0 };
    bauta_status status = BAUTA_OK;
    if (report)
        status = BT_SIZED_CHECK(report, BAUTA_TRAIN_REPORT_INIT, "report", err);
    if (!status && t->lanes.all > 1)
        status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                         "a trainer with %zu lanes takes its batches from a "
                         "corpus",
                         t->lanes.all);
    if (!status)
        status = batches_check(t, batches, count, &sums, err);
    if (status)
        return status;
    status = bt_trainer_zero(t, err);
    for (size_t i = 0; i < count && !status; i++) {
        own_batch own;
        double part = 0.0;
        status = batch_read(&own, batches, i, err);
        if (!status)
            status =
                batch_run(t, &own.train, sums.counted, &before, &part, err);
        sums.loss += part;
    }
    return status ? status : bt_trainer_update(t, &sums, report, err);
}
