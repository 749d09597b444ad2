/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - creating a trainer, training steps, and evaluation. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/size.h"
#include "base/sized.h"
#include "model/model_call.h"
#include "runtime/context.h"
#include "train/model_optimizer.h"

#include <math.h>
#include <string.h>

/* Evaluation draws its masks as if in this epoch, which no run reaches. */
enum { EVALUATION_EPOCH = 1 << 29 };

/* ---- options ----------------------------------------------------------- */

static bauta_objective objective_of(bauta_model_kind kind)
{
    switch (kind) {
    case BAUTA_ENCODER_ONLY:
        return BAUTA_OBJECTIVE_MASKED;
    case BAUTA_ENCODER_DECODER:
        return BAUTA_OBJECTIVE_SEQ2SEQ;
    default:
        return BAUTA_OBJECTIVE_CAUSAL;
    }
}

static bauta_status objective_check(const bauta_trainer *t, bauta_error *err)
{
    static const bauta_model_kind needs[] = {
        [BAUTA_OBJECTIVE_CAUSAL] = BAUTA_DECODER_ONLY,
        [BAUTA_OBJECTIVE_SEQ2SEQ] = BAUTA_ENCODER_DECODER,
        [BAUTA_OBJECTIVE_MASKED] = BAUTA_ENCODER_ONLY,
        [BAUTA_OBJECTIVE_PREFIX] = BAUTA_DECODER_ONLY,
    };
    static const char *const names[] = {
        [BAUTA_OBJECTIVE_CAUSAL] = "causal",
        [BAUTA_OBJECTIVE_SEQ2SEQ] = "seq2seq",
        [BAUTA_OBJECTIVE_MASKED] = "masked",
        [BAUTA_OBJECTIVE_PREFIX] = "prefix",
    };
    bauta_objective objective = t->options.objective;
    bauta_model_kind kind = bauta_model_kind_of(t->model);
    bool seq2seq = objective == BAUTA_OBJECTIVE_SEQ2SEQ;
    if ((unsigned)objective >= BT_LEN(needs) || kind != needs[objective])
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the objective %s does not fit a model that is %s",
                       (unsigned)objective < BT_LEN(names) ? names[objective]
                                                           : "given",
                       bauta_model_kind_text(kind));
    if (t->corpus && bauta_corpus_pairs(t->corpus) != seq2seq)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the objective %s needs a corpus of %s",
                       names[objective], seq2seq ? "pairs" : "texts");
    if (objective == BAUTA_OBJECTIVE_MASKED &&
        t->options.mode != BAUTA_MODE_PARALLEL)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the masked objective supports the mode parallel only");
    return BAUTA_OK;
}

static bauta_status fraction_check(const char *name, double value, bool below,
                                   bauta_error *err)
{
    if (value >= 0.0 && (below ? value < 1.0 : value <= 1.0))
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is %g, not from 0 to %s1", name,
                   value, below ? "below " : "");
}

static bauta_status numbers_check(const bauta_train_options *o,
                                  bauta_error *err)
{
    bauta_status status;
    (void)((status =
                fraction_check("dropout", (double)o->dropout, true, err)) ||
           (status = fraction_check("label smoothing",
                                    (double)o->label_smoothing, false, err)) ||
           (status = fraction_check("the fraction of masked tokens",
                                    (double)o->mlm_probability, false, err)) ||
           (status = fraction_check(
                "the fraction of masked tokens that are random or kept",
                (double)o->mlm_random + (double)o->mlm_keep, false, err)) ||
           (status =
                fraction_check("the fraction of sampled tokens",
                               (double)o->scheduled_sampling, false, err)) ||
           (status = fraction_check("the decay of the moving average",
                                    o->ema_decay, true, err)));
    if (status)
        return status;
    if (!(o->learning_rate >= 0.0 && isfinite(o->learning_rate) &&
          o->min_learning_rate >= 0.0 &&
          o->min_learning_rate <= o->learning_rate))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the learning rate is %g and its minimum %g; neither "
                       "may be negative, nor the minimum larger",
                       o->learning_rate, o->min_learning_rate);
    if ((o->batch_sequences == 0 && o->batch_tokens == 0) ||
        o->gradient_accumulation_steps == 0 || o->microbatch_tokens == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the batch size, the gradient accumulation steps and "
                       "the micro-batch size must not be 0");
    if ((unsigned)o->mode > BAUTA_MODE_SCHEDULED ||
        (unsigned)o->lr_scheduler_type > BAUTA_SCHEDULE_INVERSE_SQRT)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "no such mode or schedule");
    return BAUTA_OK;
}

/* ---- create and free --------------------------------------------------- */

/* Find tokens outside of the model's vocabulary before the first step. */
static bauta_status tokens_check(const bt_corpus_side *side, size_t vocabulary,
                                 bauta_error *err)
{
    for (size_t i = 0; i < side->count; i++) {
        if (side->tokens[i] >= vocabulary)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "the corpus has token %u, but the model's "
                           "vocabulary has %zu tokens",
                           (unsigned)side->tokens[i], vocabulary);
        if (i % BT_CORPUS_SIDE_BLOCK == 0)
            bt_corpus_side_unload(side);
    }
    bt_corpus_side_unload(side);
    return BAUTA_OK;
}

static bauta_status objective_set(bauta_trainer *t, bauta_error *err)
{
    const bauta_train_options *o = &t->options;
    bt_objective *to = &t->objective;
    *to = (bt_objective){ .kind = o->objective,
                          .seed = o->seed,
                          .vocab_size = bauta_model_vocab_size(t->model),
                          .tokenizer = t->tokenizer,
                          .mlm_probability = o->mlm_probability,
                          .mlm_random = o->mlm_random,
                          .mlm_keep = o->mlm_keep };
    if (o->objective == BAUTA_OBJECTIVE_SEQ2SEQ) {
        to->decoder_start_token = (uint32_t)bt_config_reader_size_or(
            t->model->store->reader, "decoder_start_token_id", SIZE_MAX);
        if (to->decoder_start_token >= to->vocab_size)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "the model's config has no decoder_start_token_id");
    }
    if (o->objective != BAUTA_OBJECTIVE_MASKED)
        return BAUTA_OK;
    if (t->tokenizer)
        to->mask_token =
            bauta_tokenizer_special_token(t->tokenizer, BAUTA_TOKEN_MASK);
    if (!t->tokenizer || to->mask_token >= to->vocab_size)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the masked objective needs a tokenizer with a mask "
                       "token");
    return BAUTA_OK;
}

static void packing_set(bauta_trainer *t)
{
    const bauta_train_options *o = &t->options;
    t->packing = (bt_packing){
        .context = o->context_length,
        .sequences =
            bt_size_mul(o->batch_sequences, o->gradient_accumulation_steps),
        .tokens = bt_size_mul(o->batch_tokens, o->gradient_accumulation_steps),
        .next_token = o->objective == BAUTA_OBJECTIVE_CAUSAL ||
                      o->objective == BAUTA_OBJECTIVE_PREFIX,
    };
}

/* Take the own slice of the float32 weights. Ranks whose weights differ are
 * found later, by their digests. */
static bauta_status masters_take(bauta_trainer *t, bauta_error *err)
{
    const bt_model_store *store = t->model->store;
    bt_stream *stream = t->context->stream;
    bt_host_copy weights;
    bauta_status status =
        bt_shards_take(&t->shards, t->context->comm, stream, store, err);
    if (status || !t->shards.masters.memory)
        return status;
    status = bt_host_copy_init(&weights, stream, &store->weights, err);
    if (status)
        return status;
    t->weights_digest = bt_model_weights_digest(t->model, weights.data);
    bt_host_copy_release(&weights);
    return BAUTA_OK;
}

static bauta_status optimizer_create(bauta_trainer *t, bauta_error *err)
{
    const bauta_train_options *o = &t->options;
    bt_optimizer_options options = { o->adam_beta1, o->adam_beta2,
                                     o->adam_epsilon, o->weight_decay,
                                     o->max_grad_norm };
    t->trained = bt_alloc_zero(t->model->tensor_count, sizeof(*t->trained));
    if (!t->trained)
        return bt_fail_memory(err, "a list of parameters",
                              t->model->tensor_count * sizeof(*t->trained));
    bt_comm *comm = t->context->comm;
    bauta_status status = bt_shards_init(&t->shards, comm, t->model, err);
    if (!status)
        status = masters_take(t, err);
    if (!status)
        status = bt_model_optimizer_create(
            &t->optimizer, t->context->stream, t->trained, &t->trained_count,
            t->model, &options, (bt_decay_rule){ 0 }, &t->shards, err);
    if (!status && comm->count > 1)
        status = bt_optimizer_share(t->optimizer, comm, t->shards.pieces, err);
    return status;
}

/* A buffer of the layout of the weights as one row. */
static bt_tensor row_of(const bauta_trainer *t, const bt_buffer *buffer)
{
    return bt_tensor_of(buffer, BAUTA_FLOAT32, 1, t->model->store->floats);
}

/* The own slice of the float32 weights. */
static bt_tensor slice_of(const bauta_trainer *t)
{
    const bt_shards *s = &t->shards;
    bool shared = s->masters.memory;
    bt_tensor slice =
        bt_tensor_of(shared ? &s->masters : &t->model->store->weights,
                     BAUTA_FLOAT32, 1, s->floats);
    slice.offset = shared ? 0 : s->first;
    return slice;
}

/* The moving average, which has only the own slice. */
static bt_tensor ema_of(const bauta_trainer *t)
{
    return bt_tensor_of(&t->ema, BAUTA_FLOAT32, 1, t->shards.floats);
}

static bauta_status ema_create(bauta_trainer *t, bauta_error *err)
{
    bt_stream *stream = t->context->stream;
    size_t bytes = bt_size_mul(t->shards.floats, sizeof(float));
    if (t->options.ema_decay == 0.0)
        return BAUTA_OK;
    if (stream->backend->alloc(stream, &t->ema, bytes, NULL))
        return bt_fail_memory(err, "averaged weights", bytes);
    bt_tensor from = slice_of(t);
    bt_tensor to = ema_of(t);
    bt_accumulate_args args = { &from, &to, false };
    return stream->backend->accumulate(stream, &args, err);
}

/* Check the corpus, if there is one, and begin its first epoch. */
static bauta_status corpus_open(bauta_trainer *t, bauta_error *err)
{
    const bauta_train_options *o = &t->options;
    size_t vocabulary = bauta_model_vocab_size(t->model);
    bauta_status status;
    if (!t->corpus)
        return BAUTA_OK;
    (void)((status = tokens_check(&t->corpus->text, vocabulary, err)) ||
           (status = tokens_check(&t->corpus->source, vocabulary, err)) ||
           (status = objective_set(t, err)) ||
           (status = bt_epoch_init(&t->epoch, t->corpus, &t->packing, o->seed,
                                   0, err)));
    if (!status && t->epoch.batch_count == 0)
        status =
            bt_fail(err, BAUTA_ERR_ARGUMENT,
                    "the corpus has nothing to learn from: %zu documents, "
                    "of which %zu are empty or longer than %zu tokens",
                    t->corpus->documents, t->epoch.skipped, o->context_length);
    return status;
}

static bauta_status trainer_fill(bauta_trainer *t, bauta_error *err)
{
    bauta_train_options *o = &t->options;
    size_t positions = bauta_model_max_positions(t->model);
    if (o->objective == BAUTA_OBJECTIVE_AUTO)
        o->objective = objective_of(bauta_model_kind_of(t->model));
    if (o->context_length == 0 || o->context_length > positions)
        o->context_length = positions;
    if (o->lanes == 0)
        o->lanes = 1;
    packing_set(t);
    bauta_status status;
    (void)((status = numbers_check(o, err)) ||
           (status = objective_check(t, err)) ||
           (status = bt_lanes_check(o->lanes, t->context->comm, err)) ||
           (status = optimizer_create(t, err)) ||
           (status = bt_lanes_init(&t->lanes, o->lanes, t->context->comm,
                                   t->context->stream, t->model->store, err)) ||
           (status = ema_create(t, err)) || (status = corpus_open(t, err)));
    if (!status)
        bt_shards_drop(&t->shards, t->model->store);
    return status;
}

bauta_status bauta_trainer_create(bauta_trainer **out, bauta_context *context,
                                  bauta_model *model,
                                  const bauta_tokenizer *tokenizer,
                                  const bauta_corpus *corpus,
                                  const bauta_train_options *options,
                                  bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(context, err);
    BT_NEED(model, err);
    BT_NEED(options, err);
    bauta_train_options chosen;
    bauta_status status = bt_model_check_owner(model, context, err);
    if (status)
        return status;
    status = BT_SIZED_READ(&chosen, BAUTA_TRAIN_OPTIONS_INIT, options,
                           "options", err);
    if (!status)
        status = bt_model_check_trainable(model, err);
    if (status)
        return status;
    bauta_trainer *made = bt_alloc_zero(1, sizeof(*made));
    if (!made)
        return bt_fail_memory(err, "a trainer", sizeof(*made));
    made->context = context;
    made->model = model;
    made->tokenizer = tokenizer;
    made->corpus = corpus;
    made->options = chosen;
    status = trainer_fill(made, err);
    if (status)
        bauta_trainer_free(made);
    else
        *out = made;
    return status;
}

void bauta_trainer_free(bauta_trainer *trainer)
{
    if (!trainer)
        return;
    bt_epoch_release(&trainer->epoch);
    bt_train_batch_release(&trainer->train_batch);
    bt_train_batch_release(&trainer->partial);
    bt_optimizer_free(trainer->optimizer);
    bt_shards_release(&trainer->shards);
    bt_lanes_release(&trainer->lanes);
    bt_free(trainer->trained);
    if (trainer->ema.memory)
        trainer->context->stream->backend->free(&trainer->ema);
    bt_free(trainer->logits);
    bt_free(trainer);
}

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

typedef struct batch {
    const bauta_corpus *corpus;
    const bt_example *list;
    size_t count;
    bauta_train_mode mode;
    bool evaluate;          /* the loss only */
    bool ahead;             /* the next one of the epoch follows it */
    size_t counted, tokens; /* of all micro-batches */
    size_t total;           /* labels of all lanes; 0: those of this batch */
    size_t filled;          /* sequences in the trainer's train_batch */
} batch;

/* The number of sequences, from `first` on, that make a micro-batch. */
static size_t microbatch_length(const bauta_trainer *t, const batch *b,
                                size_t first)
{
    size_t tokens = 0, i = first;
    for (; i < b->count; i++) {
        const bt_example *s = &b->list[i];
        tokens += s->count;
        if (b->corpus->pairs)
            tokens += bt_corpus_side_length(&b->corpus->source, s->document);
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
    size_t *offsets = t->epoch.batch_offsets + t->batch + 1;
    if (t->batch + 1 >= t->epoch.batch_count ||
        t->options.objective == BAUTA_OBJECTIVE_PREFIX)
        return BAUTA_OK;
    batch next = { .corpus = t->corpus,
                   .list = t->epoch.examples + offsets[0],
                   .count = offsets[1] - offsets[0] };
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

static bauta_status microbatch_fill(bauta_trainer *t, const batch *b,
                                    size_t first, size_t count,
                                    bauta_error *err)
{
    return bt_train_batch_set(&t->train_batch, &t->objective, b->corpus,
                              b->list + first, count, err);
}

/* Count the labels of the whole batch, which every micro-batch needs. */
static bauta_status batch_count(bauta_trainer *t, batch *b, bauta_error *err)
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

/* Add the gradients of a batch, except in evaluation; *loss is its part of the
 * mean over all labels. */
static bauta_status batch_run(bauta_trainer *t, batch *b, double *loss,
                              bauta_error *err)
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

static batch next_batch(const bauta_trainer *t, bauta_train_mode mode)
{
    size_t first = t->epoch.batch_offsets[t->batch];
    return (batch){ .corpus = t->corpus,
                    .list = t->epoch.examples + first,
                    .count = t->epoch.batch_offsets[t->batch + 1] - first,
                    .mode = mode };
}

/* ---- a batch, in lanes -------------------------------------------------- */

static size_t example_tokens(const batch *b, size_t i)
{
    const bt_example *s = &b->list[i];
    return s->count +
           (b->corpus->pairs
                ? bt_corpus_side_length(&b->corpus->source, s->document)
                : 0);
}

/* The examples of one lane: an example belongs to the lane in which its first
 * token is, if the tokens of the batch are dealt out evenly. */
static batch lane_of(const batch *b, size_t lane, size_t lanes)
{
    size_t all = 0, before = 0, first = 0, end;
    for (size_t i = 0; i < b->count; i++)
        all += example_tokens(b, i);
    while (first < b->count && before * lanes < all * lane)
        before += example_tokens(b, first++);
    for (end = first; end < b->count && before * lanes < all * (lane + 1);)
        before += example_tokens(b, end++);
    batch part = *b;
    part.list = b->list + first;
    part.count = end - first;
    part.counted = part.tokens = part.filled = 0;
    return part;
}

/* Labels and tokens of the whole batch, of which every rank counts its own
 * lanes. */
static bauta_status lanes_count(bauta_trainer *t, batch *b, bauta_error *err)
{
    const bt_lanes *l = &t->lanes;
    bauta_status status = BAUTA_OK;
    double sums[2] = { 0.0, 0.0 };
    for (size_t i = 0; !status && i < l->own; i++) {
        batch lane = lane_of(b, l->first + i, l->all);
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

/* The gradients of the own lanes, and the loss of all of them. */
static bauta_status lanes_run(bauta_trainer *t, batch *b, double *loss,
                              bauta_error *err)
{
    bt_lanes *l = &t->lanes;
    bauta_status status = lanes_count(t, b, err);
    for (size_t i = 0; !status && i < l->own; i++) {
        batch lane = lane_of(b, l->first + i, l->all);
        lane.total = b->counted;
        status = bt_trainer_zero(t, err);
        if (!status)
            status = batch_run(t, &lane, &l->losses[l->first + i], err);
        if (!status)
            status =
                bt_lanes_add(l, i, t->context->stream, t->model->store, err);
    }
    return status ? status : bt_lanes_loss(l, t->context->comm, loss, err);
}

/* ---- a step ------------------------------------------------------------ */

bauta_status bt_trainer_zero(bauta_trainer *t, bauta_error *err)
{
    bt_tensor grads = row_of(t, &t->model->store->grads);
    return bt_tensor_zero(t->context->stream, &grads, err);
}

bauta_status bt_trainer_seek(bauta_trainer *t, size_t epoch, size_t batch_at,
                             bauta_error *err)
{
    if (epoch != t->epoch_number) {
        bt_epoch next;
        bauta_status status = bt_epoch_init(&next, t->corpus, &t->packing,
                                            t->options.seed, epoch, err);
        if (status)
            return status;
        bt_epoch_release(&t->epoch);
        t->epoch = next;
        t->epoch_number = epoch;
    }
    t->batch = batch_at;
    t->objective.epoch = epoch;
    return BAUTA_OK;
}

bauta_status bt_trainer_next(bauta_trainer *t, bauta_error *err)
{
    if (!t->corpus)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the trainer was created without a corpus");
    return t->batch < t->epoch.batch_count
               ? BAUTA_OK
               : bt_trainer_seek(t, t->epoch_number + 1, 0, err);
}

/* Update the exponential moving average. The decay is smaller in early steps,
 * so that the random initialization is forgotten. */
static bauta_status ema_step(bauta_trainer *t, bauta_error *err)
{
    bt_stream *stream = t->context->stream;
    bt_tensor average = ema_of(t);
    bt_tensor weights = slice_of(t);
    double early = (double)(1 + t->steps) / (double)(10 + t->steps);
    double decay = t->options.ema_decay < early ? t->options.ema_decay : early;
    bt_ema_args args = { &average, &weights, (float)decay,
                         (float)(1.0 - decay) };
    return t->ema.memory ? stream->backend->ema(stream, &args, err) : BAUTA_OK;
}

/* Give all ranks the slices of the weights that their owners changed, or of
 * their copies, two of which are exchanged as one float. */
static bauta_status weights_gather(const bauta_trainer *t, bauta_error *err)
{
    const bt_model_store *store = t->model->store;
    bool shared = t->shards.masters.memory;
    bt_tensor row =
        bt_tensor_of(shared ? &store->copies : &store->weights, BAUTA_FLOAT32,
                     1, shared ? store->floats / 2 : store->floats);
    return bt_comm_all_gather(t->context->comm, t->context->stream, &row,
                              shared ? t->shards.pairs : t->shards.bounds, err);
}

/* Round the weights again: all of them, or the own slice. */
static bauta_status weights_round(const bauta_trainer *t, bauta_error *err)
{
    bt_model_store *store = t->model->store;
    bt_stream *stream = t->context->stream;
    if (!t->shards.masters.memory)
        return bt_model_store_round(store, err);
    bt_tensor from = slice_of(t);
    bt_tensor to =
        bt_tensor_of(&store->copies, store->dtype, 1, t->shards.floats);
    bt_accumulate_args args = { &from, &to, false };
    to.offset = t->shards.first;
    return stream->backend->accumulate(stream, &args, err);
}

bauta_status bt_trainer_swap_ema(const bauta_trainer *t, bauta_error *err)
{
    bt_stream *stream = t->context->stream;
    bt_tensor average = ema_of(t);
    bt_tensor weights = slice_of(t);
    bt_swap_args args = { &average, &weights };
    if (!t->ema.memory)
        return BAUTA_OK;
    bauta_status status = stream->backend->swap(stream, &args, err);
    if (!status)
        status = weights_round(t, err);
    return status ? status : weights_gather(t, err);
}

/* ---- the float32 weights of all ranks ---------------------------------- */

bauta_status bt_trainer_weights(bt_host_copy *copy, const bauta_trainer *t,
                                bool all, bauta_error *err)
{
    const bt_shards *s = &t->shards;
    const bt_model_store *store = t->model->store;
    bt_stream *stream = t->context->stream;
    bt_comm *comm = t->context->comm;
    size_t bytes = bt_size_mul(store->floats, sizeof(float));
    if (!s->masters.memory)
        return bt_host_copy_init(copy, stream, &store->weights, err);
    *copy = (bt_host_copy){ .data = bt_alloc(bytes), .owned = true };
    if (!copy->data)
        return bt_fail_memory(err, "the weights of all ranks", bytes);
    bt_buffer host = bt_buffer_of_host(copy->data, bytes);
    bt_tensor row = row_of(t, &host);
    bauta_status status =
        stream->backend->download(stream, copy->data + s->first, &s->masters, 0,
                                  s->floats * sizeof(float), err);
    if (!status)
        status = all ? bt_comm_all_gather(comm, stream, &row, s->bounds, err)
                     : bt_comm_gather(comm, copy->data, s->bounds, err);
    if (status)
        bt_host_copy_release(copy);
    return status;
}

bauta_status bt_trainer_set_weights(bauta_trainer *t, const float *weights,
                                    bauta_error *err)
{
    bt_model_store *store = t->model->store;
    bt_stream *stream = t->context->stream;
    if (t->shards.masters.memory) {
        t->weights_digest = bt_model_weights_digest(t->model, weights);
        return bt_shards_store(&t->shards, stream, store, weights, err);
    }
    bauta_status status =
        stream->backend->upload(stream, &store->weights, 0, weights,
                                store->floats * sizeof(float), err);
    return status ? status : bt_model_store_round(store, err);
}

bauta_status bt_trainer_update(bauta_trainer *t, const bt_step_sums *sums,
                               bauta_train_report *report, bauta_error *err)
{
    double rate = bt_learning_rate(&t->options, t->steps + 1), norm = 0.0;
    bt_tensor grads = row_of(t, &t->model->store->grads);
    bauta_status status = bt_comm_reduce_scatter(
        t->context->comm, t->context->stream, &grads, t->shards.bounds, err);
    if (!status && sums->counted)
        status = bt_optimizer_step(t->optimizer, rate, &norm, err);
    if (!status && sums->counted && isfinite(norm))
        status = weights_gather(t, err);
    if (status)
        return status;
    t->steps++;
    status = ema_step(t, err);
    if (status || !report)
        return status;
    bauta_train_report full = {
        .size = sizeof(full),
        .step = t->steps,
        .epoch = t->epoch_number,
        .loss = sums->loss,
        .counted = sums->counted,
        .tokens = sums->tokens,
        .grad_norm = norm,
        .learning_rate = rate,
        .updated = sums->counted > 0 && isfinite(norm),
    };
    BT_SIZED_WRITE(report, &full);
    return BAUTA_OK;
}

bauta_status bauta_trainer_step(bauta_trainer *t, bauta_train_report *report,
                                bauta_error *err)
{
    BT_NEED(t, err);
    double loss;
    bauta_status status = BAUTA_OK;
    if (report)
        status = BT_SIZED_CHECK(report, BAUTA_TRAIN_REPORT_INIT, "report", err);
    if (!status)
        status = bt_trainer_next(t, err);
    if (status)
        return status;
    batch b = next_batch(t, t->options.mode);
    b.ahead = t->lanes.all <= 1;
    if (t->lanes.all > 1)
        status = lanes_run(t, &b, &loss, err);
    else if (!(status = bt_trainer_zero(t, err)))
        status = batch_run(t, &b, &loss, err);
    if (!status)
        status = bt_trainer_update(
            t, &(bt_step_sums){ loss, b.counted, b.tokens }, report, err);
    if (!status)
        t->batch++;
    return status;
}

bauta_status bauta_trainer_gradients(bauta_trainer *t, bauta_train_mode mode,
                                     double *loss, bauta_error *err)
{
    BT_NEED(t, err);
    BT_NEED(loss, err);
    if ((unsigned)mode > BAUTA_MODE_SCHEDULED)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no mode %d",
                       (int)mode);
    if (t->options.objective == BAUTA_OBJECTIVE_MASKED &&
        mode != BAUTA_MODE_PARALLEL)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the masked objective supports the mode parallel only");
    bauta_status status = bt_trainer_next(t, err);
    if (status)
        return status;
    batch b = next_batch(t, mode);
    status = bt_trainer_zero(t, err);
    return status ? status : batch_run(t, &b, loss, err);
}

size_t bauta_trainer_steps(const bauta_trainer *trainer)
{
    return trainer->steps;
}

size_t bauta_trainer_epoch_steps(const bauta_trainer *trainer)
{
    return trainer->epoch.batch_count;
}

/* ---- evaluation -------------------------------------------------------- */

/* Every rank runs every so-many-th batch. */
static bauta_status evaluate_own(bauta_trainer *t, const bauta_corpus *corpus,
                                 const bt_epoch *epoch, double *means,
                                 double *counts, bauta_error *err)
{
    const bt_comm *comm = t->context->comm;
    bauta_status status = BAUTA_OK;
    for (size_t i = (size_t)comm->rank; !status && i < epoch->batch_count;
         i += (size_t)comm->count) {
        size_t first = epoch->batch_offsets[i];
        batch b = { .corpus = corpus,
                    .list = epoch->examples + first,
                    .count = epoch->batch_offsets[i + 1] - first,
                    .mode = BAUTA_MODE_PARALLEL,
                    .evaluate = true };
        status = batch_run(t, &b, &means[i], err);
        counts[i] = (double)b.counted;
        if (!status && t->progress)
            t->progress(t->progress_user, first + b.count, epoch->count);
    }
    return status;
}

static bauta_status evaluate(bauta_trainer *t, const bauta_corpus *corpus,
                             const bt_epoch *epoch, double *loss,
                             size_t *counted, bauta_error *err)
{
    size_t batches = epoch->batch_count;
    double *means = bt_alloc_zero(2 * batches + 1, sizeof(*means)), sum = 0.0;
    size_t done = 0;
    if (!means)
        return bt_fail_memory(err, "the losses of an evaluation",
                              2 * batches * sizeof(*means));
    double *counts = means + batches;
    bauta_status status = evaluate_own(t, corpus, epoch, means, counts, err);
    if (!status)
        status = bt_comm_sum(t->context->comm, means, 2 * batches, err);
    for (size_t i = 0; !status && i < batches; i++) {
        sum += means[i] * counts[i];
        done += (size_t)counts[i];
    }
    bt_free(means);
    *loss = done ? sum / (double)done : 0.0;
    *counted = done;
    return status;
}

void bauta_trainer_on_evaluate(bauta_trainer *trainer,
                               void (*progress)(void *user, size_t done,
                                                size_t all),
                               void *user)
{
    trainer->progress = progress;
    trainer->progress_user = user;
}

bauta_status bauta_trainer_evaluate(bauta_trainer *t,
                                    const bauta_corpus *corpus, size_t limit,
                                    double *loss, size_t *counted,
                                    bauta_error *err)
{
    BT_NEED(t, err);
    BT_NEED(corpus, err);
    BT_NEED(loss, err);
    bt_packing options = t->packing;
    bt_epoch epoch;
    size_t done = 0, number = t->objective.epoch;
    if (corpus->pairs != (t->options.objective == BAUTA_OBJECTIVE_SEQ2SEQ))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the validation corpus is of another kind than the "
                       "training corpus");
    // Without a corpus, this is the first call that needs the objective.
    bauta_status status = t->corpus ? BAUTA_OK : objective_set(t, err);
    if (status)
        return status;
    options.in_order = true;
    options.sequences = 0;
    options.tokens = t->options.microbatch_tokens;
    options.max_tokens = limit;
    status = bt_epoch_init(&epoch, corpus, &options, t->options.seed, 0, err);
    if (status)
        return status;
    t->objective.epoch = EVALUATION_EPOCH;
    status = bt_trainer_swap_ema(t, err);
    if (!status) {
        status = evaluate(t, corpus, &epoch, loss, &done, err);
        bauta_status back = bt_trainer_swap_ema(t, status ? NULL : err);
        status = status ? status : back;
    }
    t->objective.epoch = number;
    bt_epoch_release(&epoch);
    if (counted)
        *counted = done;
    return status;
}
