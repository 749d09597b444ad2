/* SPDX-License-Identifier: Apache-2.0 */
/* model_call.c - a model's forward pass over a batch: logits, hidden states,
 * loss and gradients.
 *
 * The context keeps the tape's memory and the plans of the last batch, so that
 * a call with the same shapes as the last one allocates nothing. */
#include "model/model_call.h"
#include "base/size.h"
#include "base/sized.h"
#include "mask/mask.h"
#include "runtime/context.h"

#include <math.h>

/* ---- checks ------------------------------------------------------------ */

static bauta_status reads_check(const char *name, bool reads,
                                const bauta_batch *batch, bt_stacks stacks,
                                bauta_error *err)
{
    static const char *const kinds[] = {
        [BT_DECODER_ONLY] = "a decoder-only model reads target",
        [BT_ENCODER_ONLY] = "an encoder-only model reads source",
        [BT_ENCODER_DECODER] = "an encoder-decoder reads source and target",
    };
    if (reads == (batch != NULL))
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is %s: %s", name,
                   batch ? "not NULL" : "NULL", kinds[stacks]);
}

static bauta_status cross_check(const bt_model_call *call, bauta_error *err)
{
    const bauta_mask *cross = call->target->cross_mask;
    size_t queries = bauta_batch_rows(call->target);
    size_t keys = bauta_batch_rows(call->source);
    if (call->source->count != call->target->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "source has %zu sequences, target %zu",
                       call->source->count, call->target->count);
    if (cross && (cross->queries != queries || cross->keys != keys))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "target: the cross mask is %zu over %zu, the batches "
                       "have %zu rows over %zu",
                       cross->queries, cross->keys, queries, keys);
    return BAUTA_OK;
}

/* A cross mask without cross-attention would be ignored, so it is an error. */
static bauta_status no_cross_check(const char *name, const bauta_batch *batch,
                                   bauta_error *err)
{
    if (!batch || !batch->cross_mask)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s: a cross mask, where there is no cross-attention", name);
}

static bauta_status batches_check(const bt_model_call *call, bauta_error *err)
{
    const bt_model_config *config = &call->model->config;
    bt_stacks stacks = config->stacks;
    bauta_status status = reads_check("source", stacks != BT_DECODER_ONLY,
                                      call->source, stacks, err);
    if (!status)
        status = reads_check("target", stacks != BT_ENCODER_ONLY, call->target,
                             stacks, err);
    if (!status && call->source)
        status = bt_batch_check(call->source, "source", config, err);
    if (!status && call->target)
        status = bt_batch_check(call->target, "target", config, err);
    if (!status)
        status = no_cross_check("source", call->source, err);
    if (!status && stacks == BT_ENCODER_DECODER)
        return cross_check(call, err);
    return status ? status : no_cross_check("target", call->target, err);
}

bauta_status bt_model_call_check(bt_model_call *call, bauta_context *context,
                                 const bauta_model *model,
                                 const bauta_batch *source,
                                 const bauta_batch *target, bauta_error *err)
{
    BT_NEED(context, err);
    BT_NEED(model, err);
    *call = (bt_model_call){ .context = context, .model = model->store->model };
    bauta_status status = bt_model_check_device(model, context, err);
    if (!status)
        status = BT_SIZED_READ(&call->batches[0], BAUTA_BATCH_INIT, source,
                               "source", err);
    if (!status)
        status = BT_SIZED_READ(&call->batches[1], BAUTA_BATCH_INIT, target,
                               "target", err);
    call->source = source ? &call->batches[0] : NULL;
    call->target = target ? &call->batches[1] : NULL;
    return status ? status : batches_check(call, err);
}

/* ---- inputs ------------------------------------------------------------ */

static bt_forward_input input_of(const bt_packed_batch *rows)
{
    return (bt_forward_input){ .tokens = rows->tokens,
                               .ids = rows->ids,
                               .positions = rows->positions,
                               .token_types = rows->token_types };
}

/* The mask of an attention without the rule of a layer. */
static bt_batch_mask batch_mask_of(const bt_model_call *call,
                                   bauta_attention_kind attention)
{
    if (attention == BAUTA_ATTENTION_CROSS)
        return (bt_batch_mask){ .queries = call->decoder_batch.axis,
                                .keys = call->encoder_batch.axis,
                                .extra = call->decoder_batch.cross_mask };
    const bt_packed_batch *rows = attention == BAUTA_ATTENTION_ENCODER
                                      ? &call->encoder_batch
                                      : &call->decoder_batch;
    return (bt_batch_mask){ .queries = rows->axis,
                            .keys = rows->axis,
                            .prefixes = rows->prefix_lengths,
                            .extra = rows->mask };
}

bt_batch_mask bt_model_call_mask(const bt_model_call *call,
                                 bauta_attention_kind attention, size_t layer)
{
    bt_batch_mask batch = batch_mask_of(call, attention);
    return bt_layer_mask(&call->model->config, attention, layer, &batch);
}

/* Get the plans of an attention. Layers that see the same keys share one. */
static bauta_status plans_get(bt_model_call *call, bt_forward_input *input,
                              bauta_attention_kind attention, bauta_error *err)
{
    const bt_model_config *config = &call->model->config;
    bauta_status status = BAUTA_OK;
    for (size_t l = 0;
         l < bt_attention_layer_count(config, attention) && !status; l++) {
        bt_attention_slot slot = bt_layer_slot(config, attention, l);
        const bt_attention_plan **plan = &input->plans[slot];
        if (*plan)
            continue;
        bt_batch_mask mask = bt_model_call_mask(call, attention, l);
        status = bt_plan_cache_get(&call->context->plan_cache,
                                   call->context->stream, plan, slot, &mask,
                                   bt_tape_recording(call->tape), err);
    }
    return status;
}

static bauta_status all_plans_get(bt_model_call *call, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (call->source)
        status = plans_get(call, &call->encoder, BAUTA_ATTENTION_ENCODER, err);
    if (!status && call->target)
        status = plans_get(call, &call->decoder, BAUTA_ATTENTION_DECODER, err);
    if (!status && call->source && call->target)
        status = plans_get(call, &call->decoder, BAUTA_ATTENTION_CROSS, err);
    return status;
}

static bt_packed_batch lengths_of(const bauta_batch *batch)
{
    if (!batch)
        return (bt_packed_batch){ 0 };
    return (bt_packed_batch){ .axis = { batch->count, batch->lengths, 0 } };
}

bauta_status bt_model_plans_ahead(bauta_context *context,
                                  const bauta_model *model,
                                  const bauta_batch *source,
                                  const bauta_batch *target, bauta_error *err)
{
    bt_model_call call = { .context = context,
                           .tape = context->tape,
                           .model = model->store->model,
                           .source = source,
                           .target = target,
                           .encoder_batch = lengths_of(source),
                           .decoder_batch = lengths_of(target) };
    return all_plans_get(&call, err);
}

bauta_status bt_model_call_prepare(bt_model_call *call, bool recording,
                                   bauta_error *err)
{
    call->tape = call->context->tape;
    bt_tape_rewind(call->tape, recording);
    if (call->source)
        bt_packed_batch_init(&call->encoder_batch, call->tape, call->source);
    if (call->target)
        bt_packed_batch_init(&call->decoder_batch, call->tape, call->target);
    bauta_status status = bt_tape_status(call->tape, err);
    if (status)
        return status;
    call->encoder = input_of(&call->encoder_batch);
    call->decoder = input_of(&call->decoder_batch);
    return all_plans_get(call, err);
}

/* ---- running ----------------------------------------------------------- */

bt_tensor *bt_model_call_stacks(bt_model_call *call)
{
    bt_tensor *x = NULL;
    if (call->source)
        x = bt_transformer_encode(call->tape, call->model, &call->encoder);
    if (call->target)
        x = bt_transformer_decode(call->tape, call->model, &call->decoder, x);
    return x;
}

static const bt_packed_batch *output_rows(const bt_model_call *call)
{
    return call->target ? &call->decoder_batch : &call->encoder_batch;
}

/* Write logits directly to the caller's memory: with one product if the rows
 * are contiguous, else with one for each sequence. The bits are the same. */
static void logits_write(bt_model_call *call, bt_tensor *x, float *to)
{
    const bt_packed_batch *rows = output_rows(call);
    const bt_token_axis *axis = &rows->axis;
    size_t vocab = bt_transformer_head_weight(call->model)->rows, row = 0;
    if (!axis->stride) {
        bt_transformer_logits_to_host(call->tape, call->model, x, to);
        return;
    }
    for (size_t s = 0; s < axis->count; s++) {
        bt_tensor part = bt_tensor_rows(x, row, axis->lengths[s]);
        if (!bt_transformer_logits_to_host(call->tape, call->model, &part,
                                           to + s * axis->stride * vocab))
            return;
        row += axis->lengths[s];
    }
    bt_packed_batch_zero_padding(rows, to, vocab);
}

/* Allocate pointers to the hidden states if they are requested. */
static bt_tensor **states_take(bt_tape *tape, const float *asked, size_t layers)
{
    return asked ? bt_tape_alloc(tape, layers + 1, sizeof(bt_tensor *)) : NULL;
}

static void states_write(bt_tape *tape, const bt_packed_batch *rows,
                         const bauta_batch *batch, bt_tensor **states,
                         size_t layers, float *to)
{
    if (!states)
        return;
    size_t each = bauta_batch_rows(batch);
    for (size_t l = 0; l <= layers; l++) {
        size_t columns = states[l]->columns;
        const float *state = bt_tape_read_f32(tape, states[l]);
        if (state)
            bt_packed_batch_unpack(rows, to + l * each * columns, state,
                                   columns);
    }
}

bauta_status bt_model_call_run(bt_model_call *call,
                               const bauta_outputs *outputs, bauta_error *err)
{
    const bt_model_config *config = &call->model->config;
    size_t encoder = config->encoder.layers, decoder = config->decoder.layers;
    call->encoder.hidden_states =
        states_take(call->tape, outputs->encoder_states, encoder);
    call->decoder.hidden_states =
        states_take(call->tape, outputs->decoder_states, decoder);
    bt_tensor *x = bt_model_call_stacks(call);
    if (outputs->logits)
        x = bt_transformer_head_transform(call->tape, call->model, x);
    bauta_status status = bt_tape_status(call->tape, err);
    if (status)
        return status;
    if (outputs->logits)
        logits_write(call, x, outputs->logits);
    states_write(call->tape, &call->encoder_batch, call->source,
                 call->encoder.hidden_states, encoder, outputs->encoder_states);
    states_write(call->tape, &call->decoder_batch, call->target,
                 call->decoder.hidden_states, decoder, outputs->decoder_states);
    return bt_tape_status(call->tape, err);
}

bauta_status bt_model_call_outputs(bauta_outputs *to, const bt_model_call *call,
                                   const bauta_outputs *outputs,
                                   bauta_error *err)
{
    bauta_status status =
        BT_SIZED_READ(to, BAUTA_OUTPUTS_INIT, outputs, "outputs", err);
    if (status)
        return status;
    if (to->encoder_states && !call->source)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "outputs asks for encoder_states of a model without an "
                       "encoder");
    if (to->decoder_states && !call->target)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "outputs asks for decoder_states of a model without a "
                       "decoder");
    return BAUTA_OK;
}

static bool requests_any(const bauta_outputs *outputs)
{
    return outputs->logits || outputs->encoder_states ||
           outputs->decoder_states;
}

bauta_status bauta_model_forward(bauta_context *context,
                                 const bauta_model *model,
                                 const bauta_batch *source,
                                 const bauta_batch *target,
                                 const bauta_outputs *outputs, bauta_error *err)
{
    bt_model_call call;
    bauta_outputs asked;
    bauta_status status =
        bt_model_call_check(&call, context, model, source, target, err);
    if (status)
        return status;
    BT_NEED(outputs, err);
    status = bt_model_call_outputs(&asked, &call, outputs, err);
    if (!status && !requests_any(&asked))
        status = bt_fail(err, BAUTA_ERR_ARGUMENT, "outputs asks for nothing");
    if (!status)
        status = bt_model_call_prepare(&call, false, err);
    return status ? status : bt_model_call_run(&call, &asked, err);
}

/* ---- loss -------------------------------------------------------------- */

static bauta_status options_check(const bauta_loss_options *options,
                                  bauta_error *err)
{
    if (!(options->label_smoothing >= 0 && options->label_smoothing <= 1))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "label_smoothing is %g, not from 0 to 1",
                       (double)options->label_smoothing);
    if (!(options->dropout >= 0 && options->dropout < 1))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "dropout is %g, not from 0 to below 1",
                       (double)options->dropout);
    if (!isfinite(options->weight))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "weight is %g",
                       options->weight);
    return BAUTA_OK;
}

/* The dropout of a stack, with its keys packed like the rows. */
static bt_dropout_input dropout_of(bt_model_call *call,
                                   const bt_packed_batch *rows,
                                   const bauta_loss_options *options,
                                   const uint64_t *given, uint64_t first)
{
    bt_dropout_input dropout = { .rate = options->dropout,
                                 .seed = options->seed };
    if (options->dropout == 0 || !bt_tape_recording(call->tape))
        return (bt_dropout_input){ 0 };
    uint64_t *keys = bt_tape_alloc(call->tape, rows->tokens, sizeof(*keys));
    size_t row = 0;
    for (size_t s = 0; keys && s < rows->axis.count; s++) {
        size_t start = rows->axis.stride ? s * rows->axis.stride : row;
        for (size_t t = 0; t < rows->axis.lengths[s]; t++)
            keys[row++] = given ? given[start + t] : first + start + t;
    }
    dropout.tokens = keys;
    return dropout;
}

static bauta_status loss_queue(bt_model_call *call, const uint32_t *labels,
                               const bauta_loss_options *options, bt_loss *loss,
                               bauta_error *err)
{
    bt_model *model = call->model;
    const bt_packed_batch *rows = output_rows(call);
    const uint32_t *packed =
        bt_packed_batch_pack(rows, call->tape, labels, sizeof(*packed));
    const float *weights = NULL;
    if (options->label_weights)
        weights = bt_packed_batch_pack(rows, call->tape, options->label_weights,
                                       sizeof(*weights));
    call->encoder.dropout = dropout_of(call, &call->encoder_batch, options,
                                       options->source_keys, 0);
    call->decoder.dropout = dropout_of(call, &call->decoder_batch, options,
                                       options->target_keys, UINT64_C(1) << 63);
    bt_tensor *x = bt_transformer_head_transform(call->tape, model,
                                                 bt_model_call_stacks(call));
    *loss = bt_op_cross_entropy(
        call->tape, x, bt_transformer_head_weight(model), false,
        bt_transformer_head_bias(model), model->config.head_softcap, packed,
        weights, options->label_smoothing, options->weight);
    bauta_status status = bt_tape_status(call->tape, err);
    if (!status && bt_tape_recording(call->tape))
        status = bt_tape_backward(call->tape, err);
    return status;
}

bauta_status bt_model_loss_queue(bt_loss *loss, bauta_context *context,
                                 const bauta_model *model,
                                 const bauta_batch *source,
                                 const bauta_batch *target,
                                 const uint32_t *labels,
                                 const bauta_loss_options *options,
                                 bool gradients, bauta_error *err)
{
    bt_model_call call;
    bauta_loss_options chosen;
    bauta_status status =
        bt_model_call_check(&call, context, model, source, target, err);
    if (!status)
        status = BT_SIZED_READ(&chosen, BAUTA_LOSS_OPTIONS_INIT, options,
                               "options", err);
    if (!status)
        status = options_check(&chosen, err);
    if (!status)
        status = bt_labels_check(call.target ? call.target : call.source,
                                 labels, call.model->config.vocab_size, err);
    if (!status && chosen.label_weights)
        status = bt_label_weights_check(call.target ? call.target : call.source,
                                        labels, chosen.label_weights, err);
    if (!status)
        status = bt_model_call_prepare(&call, gradients, err);
    if (!status)
        status = loss_queue(&call, labels, &chosen, loss, err);
    if (!status && gradients)
        status = bt_model_finish_write(model, context, err);
    return status;
}

bauta_status bt_model_loss_read(bauta_context *context, bt_loss *loss,
                                bauta_error *err)
{
    bt_loss_read(context->tape, loss);
    return bt_tape_status(context->tape, err);
}

bauta_status bauta_model_loss(bauta_context *context, bauta_model *model,
                              const bauta_batch *source,
                              const bauta_batch *target, const uint32_t *labels,
                              const bauta_loss_options *options, double *loss,
                              size_t *counted, bauta_error *err)
{
    bt_loss result;
    BT_NEED(context, err);
    BT_NEED(model, err);
    BT_NEED(loss, err);
    bauta_status status =
        bt_model_loss_queue(&result, context, model, source, target, labels,
                            options, model->trainable, err);
    if (!status)
        status = bt_model_loss_read(context, &result, err);
    if (status)
        return status;
    *loss = result.loss;
    if (counted)
        *counted = result.counted;
    return BAUTA_OK;
}

/* ---- log-probabilities -------------------------------------------------- */

static bauta_status logprobs_run(bt_model_call *call, const uint32_t *labels,
                                 float *logprobs, bauta_error *err)
{
    bt_model *model = call->model;
    const bt_packed_batch *rows = output_rows(call);
    const uint32_t *packed =
        bt_packed_batch_pack(rows, call->tape, labels, sizeof(*packed));
    float *each = bt_tape_alloc(call->tape, rows->tokens, sizeof(*each));
    bt_tensor *x = bt_transformer_head_transform(call->tape, model,
                                                 bt_model_call_stacks(call));
    bt_op_logprobs(call->tape, x, bt_transformer_head_weight(model), false,
                   bt_transformer_head_bias(model), model->config.head_softcap,
                   packed, each);
    bauta_status status = bt_tape_status(call->tape, err);
    if (!status)
        bt_packed_batch_unpack(rows, logprobs, each, 1);
    return status;
}

bauta_status
bauta_model_logprobs(bauta_context *context, const bauta_model *model,
                     const bauta_batch *source, const bauta_batch *target,
                     const uint32_t *labels, float *logprobs, bauta_error *err)
{
    bt_model_call call;
    bauta_status status =
        bt_model_call_check(&call, context, model, source, target, err);
    if (status)
        return status;
    BT_NEED(logprobs, err);
    status = bt_labels_check(target ? target : source, labels,
                             call.model->config.vocab_size, err);
    if (!status)
        status = bt_model_call_prepare(&call, false, err);
    return status ? status : logprobs_run(&call, labels, logprobs, err);
}
