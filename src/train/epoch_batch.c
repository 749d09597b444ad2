/* SPDX-License-Identifier: Apache-2.0 */
/* epoch_batch.c - the gradients and the loss of a batch of an epoch.
 *
 * A batch runs in micro-batches. While the device works on the last one, the
 * host makes the plans of the next batch. With lanes, a batch is first divided
 * into a fixed number of parts, which ranks share. */
#include "train/trainer.h"

#include "base/philox.h"
#include "model/model_call.h"
#include "runtime/context.h"

/* ---- a micro-batch ----------------------------------------------------- */

void bt_microbatch_set(bt_microbatch *microbatch, const bauta_trainer *t,
                       const bt_train_batch *data)
{
    bauta_batch batch = BAUTA_BATCH_INIT, source = BAUTA_BATCH_INIT;
    bauta_objective kind = t->options.objective;
    batch.count = source.count = data->count;
    batch.lengths = data->lengths;
    batch.ids = data->ids;
    if (kind == BAUTA_OBJECTIVE_PREFIX)
        batch.prefix_lengths = data->prefix_lengths;
    source.lengths = data->source_lengths;
    source.ids = data->source;
    microbatch->target = batch;
    microbatch->source = kind == BAUTA_OBJECTIVE_MASKED ? batch : source;
    microbatch->read_target =
        kind == BAUTA_OBJECTIVE_MASKED ? NULL : &microbatch->target;
    microbatch->read_source =
        kind == BAUTA_OBJECTIVE_MASKED || kind == BAUTA_OBJECTIVE_SEQ2SEQ
            ? &microbatch->source
            : NULL;
}

static bauta_status microbatch_queue(bt_loss *loss, bauta_trainer *t,
                                     const bt_train_batch *data, size_t total,
                                     bool train, bauta_error *err)
{
    const bauta_train_options *o = &t->options;
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    bool masked = o->objective == BAUTA_OBJECTIVE_MASKED;
    bt_microbatch microbatch;
    bt_microbatch_set(&microbatch, t, data);
    options.weight = (double)data->label_count / (double)total;
    if (train) {
        options.label_smoothing = o->label_smoothing;
        options.dropout = o->dropout;
        options.seed = bt_random(o->seed, BT_RANDOM_DROPOUT, t->steps, 0);
    }
    options.source_keys = masked ? data->token_keys : data->source_keys;
    options.target_keys = data->token_keys;
    return bt_model_loss_queue(loss, t->context, t->model,
                               microbatch.read_source, microbatch.read_target,
                               data->labels, &options, train, err);
}

/* ---- a batch, in micro-batches ----------------------------------------- */

bt_epoch_batch bt_epoch_batch_at(const bt_epoch *epoch,
                                 const bauta_corpus *corpus, size_t number)
{
    size_t first = epoch->batch_offsets[number];
    return (bt_epoch_batch){ .corpus = corpus,
                             .list = epoch->examples + first,
                             .count = epoch->batch_offsets[number + 1] - first,
                             .mode = BAUTA_MODE_PARALLEL };
}

static size_t example_tokens(const bt_epoch_batch *b, size_t i)
{
    const bt_example *s = &b->list[i];
    return s->count +
           (b->corpus->pairs
                ? bt_corpus_side_length(&b->corpus->source, s->document)
                : 0);
}

/* The number of sequences, from `first` on, that make a micro-batch. */
static size_t microbatch_length(const bauta_trainer *t, const bt_epoch_batch *b,
                                size_t first)
{
    size_t tokens = 0, i = first;
    for (; i < b->count; i++) {
        tokens += example_tokens(b, i);
        if (i > first && tokens > t->options.microbatch_tokens)
            break;
    }
    return i - first;
}

/* Make the plans of the next batch, or of its first part, while the device
 * works on this one. The prefixes of the prefix objective are not known yet. */
static bauta_status plans_ahead(bauta_trainer *t, bauta_error *err)
{
    bt_train_batch *lengths = &t->partial;
    bt_microbatch microbatch;
    if (t->batch + 1 >= t->epoch.batch_count ||
        t->options.objective == BAUTA_OBJECTIVE_PREFIX)
        return BAUTA_OK;
    bt_epoch_batch next = bt_epoch_batch_at(&t->epoch, t->corpus, t->batch + 1);
    size_t count = microbatch_length(t, &next, 0);
    bauta_status status = bt_train_batch_reserve(lengths, count, 0, 0, err);
    if (status)
        return status;
    lengths->count = count;
    for (size_t i = 0; i < count; i++) {
        lengths->lengths[i] = next.list[i].count;
        if (t->corpus->pairs)
            lengths->source_lengths[i] = bt_corpus_side_length(
                &t->corpus->source, next.list[i].document);
    }
    bt_microbatch_set(&microbatch, t, lengths);
    return bt_model_plans_ahead(t->context, t->model, microbatch.read_source,
                                microbatch.read_target, err);
}

bauta_status bt_microbatch_run(bauta_trainer *t, const bt_train_batch *data,
                               size_t total, bool train, bool ahead,
                               double *loss, bauta_error *err)
{
    bt_loss queued;
    bauta_status status = microbatch_queue(&queued, t, data, total, train, err);
    if (!status && ahead)
        status = plans_ahead(t, err);
    if (!status)
        status = bt_model_loss_read(t->context, &queued, err);
    if (!status)
        *loss = queued.loss;
    return status;
}

static bauta_status microbatch_fill(bauta_trainer *t, const bt_epoch_batch *b,
                                    size_t first, size_t count,
                                    bauta_error *err)
{
    return bt_train_batch_set(&t->train_batch, &t->objective, b->corpus,
                              b->list + first, count, err);
}

/* Count the labels of the whole batch, which every micro-batch needs. */
static bauta_status batch_count(bauta_trainer *t, bt_epoch_batch *b,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t first = 0, n; !status && first < b->count; first += n) {
        n = microbatch_length(t, b, first);
        status = microbatch_fill(t, b, first, n, err);
        b->counted += t->train_batch.label_count;
        b->tokens += t->train_batch.rows + t->train_batch.source_rows;
        b->filled = n;
    }
    return status;
}

bauta_status bt_epoch_batch_run(bauta_trainer *t, bt_epoch_batch *b,
                                double *loss, bauta_error *err)
{
    bauta_status status = b->total ? BAUTA_OK : batch_count(t, b, err);
    size_t total = b->total ? b->total : b->counted;
    *loss = 0.0;
    for (size_t first = 0, n; !status && first < b->count; first += n) {
        double part = 0.0;
        n = microbatch_length(t, b, first);
        if (b->filled < b->count) // otherwise batch_count() has filled it
            status = microbatch_fill(t, b, first, n, err);
        if (!status && t->train_batch.label_count)
            status = b->mode == BAUTA_MODE_PARALLEL
                         ? bt_microbatch_run(
                               t, &t->train_batch, total, !b->evaluate,
                               b->ahead && first + n == b->count, &part, err)
                         : bt_train_mode_run(t, b->mode, &t->train_batch, total,
                                             &part, err);
        *loss += part;
    }
    return status;
}

/* ---- a batch, in lanes -------------------------------------------------- */

/* The examples of one lane: an example belongs to the lane in which its first
 * token is, if the tokens of the batch are dealt out evenly. */
static bt_epoch_batch lane_of(const bt_epoch_batch *b, size_t lane,
                              size_t lanes)
{
    size_t all = 0, before = 0, first = 0, end;
    for (size_t i = 0; i < b->count; i++)
        all += example_tokens(b, i);
    while (first < b->count && before * lanes < all * lane)
        before += example_tokens(b, first++);
    for (end = first; end < b->count && before * lanes < all * (lane + 1);)
        before += example_tokens(b, end++);
    bt_epoch_batch part = *b;
    part.list = b->list + first;
    part.count = end - first;
    part.counted = part.tokens = part.filled = 0;
    return part;
}

/* Labels and tokens of the whole batch, of which every rank counts its own
 * lanes. */
static bauta_status lanes_count(bauta_trainer *t, bt_epoch_batch *b,
                                bauta_error *err)
{
    const bt_lanes *l = &t->lanes;
    bauta_status status = BAUTA_OK;
    double sums[2] = { 0.0, 0.0 };
    for (size_t i = 0; !status && i < l->own; i++) {
        bt_epoch_batch lane = lane_of(b, l->first + i, l->all);
        status = batch_count(t, &lane, err);
        sums[0] += (double)lane.counted;
        sums[1] += (double)lane.tokens;
    }
    if (!status)
        status = bt_comm_sum(t->context->comm, sums, 2, err);
    b->counted = (size_t)sums[0];
    b->tokens = (size_t)sums[1];
    return status;
}

bauta_status bt_epoch_batch_run_lanes(bauta_trainer *t, bt_epoch_batch *b,
                                      double *loss, bauta_error *err)
{
    bt_lanes *l = &t->lanes;
    bauta_status status = lanes_count(t, b, err);
    for (size_t i = 0; !status && i < l->own; i++) {
        bt_epoch_batch lane = lane_of(b, l->first + i, l->all);
        lane.total = b->counted;
        status = bt_trainer_zero(t, err);
        if (!status)
            status =
                bt_epoch_batch_run(t, &lane, &l->losses[l->first + i], err);
        if (!status)
            status =
                bt_lanes_add(l, i, t->context->stream, t->model->store, err);
    }
    return status ? status : bt_lanes_loss(l, t->context->comm, loss, err);
}
