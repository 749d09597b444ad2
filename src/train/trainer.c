/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - creating a trainer, training steps, and evaluation. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "runtime/context.h"
#include "train/model_optimizer.h"

#include <math.h>

/* Evaluation draws its masks as if in this epoch, which no run reaches. */
enum { EVALUATION_EPOCH = 1 << 29 };

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
    bauta_status status = bt_train_options_resolve(o, t->model, t->corpus, err);
    if (status)
        return status;
    packing_set(t);
    (void)((status = bt_lanes_check(o->lanes, t->context->comm, err)) ||
           (status = optimizer_create(t, err)) ||
           (status = bt_lanes_init(&t->lanes, o->lanes, t->context->comm,
                                   t->context->stream, t->model->store, err)) ||
           (status = bt_trainer_ema_create(t, err)) ||
           (status = corpus_open(t, err)));
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

/* ---- a step ------------------------------------------------------------ */

/* All gradients as one row. */
static bt_tensor grads_of(const bauta_trainer *t)
{
    const bt_model_store *store = t->model->store;
    return bt_tensor_of(&store->grads, BAUTA_FLOAT32, 1, store->floats);
}

bauta_status bt_trainer_zero(bauta_trainer *t, bauta_error *err)
{
    bt_tensor grads = grads_of(t);
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

bauta_status bt_trainer_update(bauta_trainer *t, const bt_step_sums *sums,
                               bauta_train_report *report, bauta_error *err)
{
    double rate = bt_learning_rate(&t->options, t->steps + 1), norm = 0.0;
    bt_tensor grads = grads_of(t);
    bauta_status status = bt_comm_reduce_scatter(
        t->context->comm, t->context->stream, &grads, t->shards.bounds, err);
    if (!status && sums->counted)
        status = bt_optimizer_step(t->optimizer, rate, &norm, err);
    if (!status && sums->counted && isfinite(norm))
        status = bt_trainer_gather_weights(t, err);
    if (status)
        return status;
    t->steps++;
    status = bt_trainer_ema_step(t, err);
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
    bt_epoch_batch b = bt_epoch_batch_at(&t->epoch, t->corpus, t->batch);
    b.mode = t->options.mode;
    b.ahead = t->lanes.all <= 1;
    if (t->lanes.all > 1)
        status = bt_epoch_batch_run_lanes(t, &b, &loss, err);
    else if (!(status = bt_trainer_zero(t, err)))
        status = bt_epoch_batch_run(t, &b, &loss, err);
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
    bt_epoch_batch b = bt_epoch_batch_at(&t->epoch, t->corpus, t->batch);
    b.mode = mode;
    status = bt_trainer_zero(t, err);
    return status ? status : bt_epoch_batch_run(t, &b, loss, err);
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
        bt_epoch_batch b = bt_epoch_batch_at(epoch, corpus, i);
        b.evaluate = true;
        status = bt_epoch_batch_run(t, &b, &means[i], err);
        counts[i] = (double)b.counted;
        if (!status && t->progress)
            t->progress(t->progress_user, epoch->batch_offsets[i + 1],
                        epoch->count);
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
