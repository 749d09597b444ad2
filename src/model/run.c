/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - a model over a batch: logits, hidden states, loss and gradients.
 *
 * The context holds the tape, whose blocks stay from call to call, and the
 * plans of the last batch; so a call like the one before allocates nothing. */
#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"
#include "model/call.h"
#include "ops/context.h"
#include "ops/linear.h"

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

static bauta_status cross_check(const bt_call *r, bauta_error *err)
{
    const bauta_mask *cross = r->target->cross;
    size_t queries = bauta_batch_rows(r->target);
    size_t keys = bauta_batch_rows(r->source);
    if (r->source->count != r->target->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "source has %zu sequences, target %zu", r->source->count,
                       r->target->count);
    if (cross && (cross->queries != queries || cross->keys != keys))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "target: the cross mask is %zu over %zu, the batches "
                       "have %zu rows over %zu",
                       cross->queries, cross->keys, queries, keys);
    return BAUTA_OK;
}

/* A cross mask anywhere else would be ignored, which its caller did not mean.
 */
static bauta_status no_cross_check(const char *name, const bauta_batch *batch,
                                   bauta_error *err)
{
    if (!batch || !batch->cross)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s: a cross mask, where there is no cross-attention", name);
}

static bauta_status batches_check(const bt_call *r, bauta_error *err)
{
    const bt_blueprint *print = &r->model->print;
    bt_stacks stacks = print->stacks;
    bauta_status status = reads_check("source", stacks != BT_DECODER_ONLY,
                                      r->source, stacks, err);
    if (!status)
        status = reads_check("target", stacks != BT_ENCODER_ONLY, r->target,
                             stacks, err);
    if (!status && r->source)
        status = bt_batch_check(r->source, "source", print, err);
    if (!status && r->target)
        status = bt_batch_check(r->target, "target", print, err);
    if (!status)
        status = no_cross_check("source", r->source, err);
    if (!status && stacks == BT_ENCODER_DECODER)
        return cross_check(r, err);
    return status ? status : no_cross_check("target", r->target, err);
}

bauta_status bt_call_check(bt_call *r, bauta_context *context,
                           const bauta_model *model, const bauta_batch *source,
                           const bauta_batch *target, bauta_error *err)
{
    BT_NEED_CPU(context, err);
    BT_NEED(model, err);
    *r = (bt_call){ .context = context,
                    .model = model->folder->model,
                    .source = source,
                    .target = target };
    return batches_check(r, err);
}

/* ---- inputs ------------------------------------------------------------ */

static bt_input input_of(const bt_rows *rows)
{
    return (bt_input){ .tokens = rows->tokens,
                       .ids = rows->ids,
                       .positions = rows->positions,
                       .types = rows->types };
}

/* The plans of an attention, one for all layers that see the same keys. */
static bauta_status plans_get(bt_call *r, bt_input *input, bauta_look_at at,
                              const bt_batch_mask *batch, bauta_error *err)
{
    const bt_blueprint *print = &r->model->print;
    bauta_status status = BAUTA_OK;
    for (size_t l = 0; l < bt_layer_count(print, at) && !status; l++) {
        bt_place place = bt_layer_place(print, at, l);
        const bauta_plan **plan = bt_input_plan(input, place);
        if (*plan)
            continue;
        bt_batch_mask mask = bt_layer_mask(print, at, l, batch);
        status = bt_shelf_get(&r->context->shelf, plan, place, &mask, err);
    }
    return status;
}

static bauta_status self_prepare(bt_call *r, bt_input *input, bauta_look_at at,
                                 const bt_rows *rows, bauta_error *err)
{
    bt_batch_mask batch = { .queries = rows->axis,
                            .keys = rows->axis,
                            .prefixes = rows->prefixes,
                            .extra = rows->mask };
    *input = input_of(rows);
    return plans_get(r, input, at, &batch, err);
}

static bauta_status cross_prepare(bt_call *r, bauta_error *err)
{
    bt_batch_mask batch = { .queries = r->decoder_rows.axis,
                            .keys = r->encoder_rows.axis,
                            .extra = r->decoder_rows.cross };
    return plans_get(r, &r->decoder, BAUTA_LOOK_CROSS, &batch, err);
}

/* The tape, packed batches and plans. */
bauta_status bt_call_prepare(bt_call *r, bool recording, bauta_error *err)
{
    bauta_context *context = r->context;
    bauta_status status = BAUTA_OK;
    if (!context->tape)
        status = bt_tape_create(&context->tape, context->kernels,
                                context->threads, err);
    if (status)
        return status;
    r->tape = context->tape;
    bt_tape_rewind(r->tape, recording);
    if (r->source)
        bt_rows_take(&r->encoder_rows, r->tape, r->source);
    if (r->target)
        bt_rows_take(&r->decoder_rows, r->tape, r->target);
    status = bt_tape_status(r->tape, err);
    if (!status && r->source)
        status = self_prepare(r, &r->encoder, BAUTA_LOOK_ENCODER,
                              &r->encoder_rows, err);
    if (!status && r->target)
        status = self_prepare(r, &r->decoder, BAUTA_LOOK_DECODER,
                              &r->decoder_rows, err);
    if (!status && r->source && r->target)
        status = cross_prepare(r, err);
    return status;
}

/* ---- running ----------------------------------------------------------- */

bt_tensor *bt_call_stacks(bt_call *r)
{
    bt_tensor *x = NULL;
    if (r->source)
        x = bt_transformer_encode(r->tape, r->model, &r->encoder);
    if (r->target)
        x = bt_transformer_decode(r->tape, r->model, &r->decoder, x);
    return x;
}

static const bt_rows *top_rows(const bt_call *r)
{
    return r->target ? &r->decoder_rows : &r->encoder_rows;
}

/* Logits straight to where the caller wants them: in one product when they lie
 * there without gaps, else in one a sequence. Bits do not depend on that. */
static void logits_write(bt_call *r, bt_tensor *x, float *to)
{
    const bt_rows *rows = top_rows(r);
    const bt_axis *axis = &rows->axis;
    const bt_tensor *bias = bt_transformer_head_bias(r->model);
    bt_linear l = bt_linear_of(bt_transformer_head(r->model), false);
    const float *b = bias ? bias->data : NULL;
    if (!axis->stride) {
        bt_linear_y(r->tape, &l, rows->tokens, x->data, b, to);
        return;
    }
    size_t at = 0;
    for (size_t s = 0; s < axis->count; s++) {
        if (!bt_linear_y(r->tape, &l, axis->lengths[s], x->data + at * l.inputs,
                         b, to + s * axis->stride * l.outputs))
            return;
        at += axis->lengths[s];
    }
    bt_rows_zero_padding(rows, to, l.outputs);
}

/* Room for pointers to the hidden states, when they are asked for. */
static bt_tensor **states_take(bt_tape *tape, const float *asked, size_t layers)
{
    return asked ? bt_tape_take(tape, layers + 1, sizeof(bt_tensor *)) : NULL;
}

static void states_write(const bt_rows *rows, const bauta_batch *batch,
                         bt_tensor **states, size_t layers, float *to)
{
    if (!states)
        return;
    size_t each = bauta_batch_rows(batch);
    for (size_t l = 0; l <= layers; l++) {
        size_t columns = states[l]->columns;
        bt_rows_unpack(rows, to + l * each * columns, states[l]->data, columns);
    }
}

bauta_status bt_call_run(bt_call *r, const bauta_outputs *outputs,
                         bauta_error *err)
{
    const bt_blueprint *print = &r->model->print;
    size_t encoder = print->encoder.layers, decoder = print->decoder.layers;
    r->encoder.states = states_take(r->tape, outputs->encoder_states, encoder);
    r->decoder.states = states_take(r->tape, outputs->decoder_states, decoder);
    bt_tensor *x = bt_call_stacks(r);
    if (outputs->logits)
        x = bt_transformer_top(r->tape, r->model, x);
    bauta_status status = bt_tape_status(r->tape, err);
    if (status)
        return status;
    if (outputs->logits)
        logits_write(r, x, outputs->logits);
    states_write(&r->encoder_rows, r->source, r->encoder.states, encoder,
                 outputs->encoder_states);
    states_write(&r->decoder_rows, r->target, r->decoder.states, decoder,
                 outputs->decoder_states);
    return bt_tape_status(r->tape, err);
}

bauta_status bt_outputs_check(const bt_call *r, const bauta_outputs *outputs,
                              bauta_error *err)
{
    BT_NEED_SIZE(outputs, bauta_outputs, "BAUTA_OUTPUTS_INIT", err);
    if (outputs->encoder_states && !r->source)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "outputs asks for encoder_states of a model without an "
                       "encoder");
    if (outputs->decoder_states && !r->target)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "outputs asks for decoder_states of a model without a "
                       "decoder");
    return BAUTA_OK;
}

static bool asks(const bauta_outputs *outputs)
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
    bt_call r;
    bauta_status status =
        bt_call_check(&r, context, model, source, target, err);
    if (status)
        return status;
    BT_NEED(outputs, err);
    status = bt_outputs_check(&r, outputs, err);
    if (!status && !asks(outputs))
        status = bt_fail(err, BAUTA_ERR_ARGUMENT, "outputs asks for nothing");
    if (!status)
        status = bt_call_prepare(&r, false, err);
    return status ? status : bt_call_run(&r, outputs, err);
}

/* ---- loss -------------------------------------------------------------- */

static bauta_status options_check(const bauta_loss_options *options,
                                  bauta_error *err)
{
    BT_NEED_SIZE(options, bauta_loss_options, "BAUTA_LOSS_OPTIONS_INIT", err);
    if (!(options->smoothing >= 0 && options->smoothing <= 1))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "smoothing is %g, not from 0 to 1",
                       (double)options->smoothing);
    if (!(options->dropout >= 0 && options->dropout < 1))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "dropout is %g, not from 0 to below 1",
                       (double)options->dropout);
    if (!isfinite(options->weight))
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "weight is %g",
                       options->weight);
    return BAUTA_OK;
}

/* What the dropout of a stack is drawn by, packed as its rows are. */
static bt_noise noise_of(bt_call *r, const bt_rows *rows,
                         const bauta_loss_options *options,
                         const uint64_t *given, uint64_t first)
{
    bt_noise noise = { .rate = options->dropout, .seed = options->seed };
    if (options->dropout == 0 || !bt_tape_recording(r->tape))
        return (bt_noise){ 0 };
    uint64_t *keys = bt_tape_take(r->tape, rows->tokens, sizeof(*keys));
    size_t at = 0;
    for (size_t s = 0; keys && s < rows->axis.count; s++) {
        size_t start = rows->axis.stride ? s * rows->axis.stride : at;
        for (size_t t = 0; t < rows->axis.lengths[s]; t++)
            keys[at++] = given ? given[start + t] : first + start + t;
    }
    noise.tokens = keys;
    return noise;
}

static bauta_status loss_run(bt_call *r, const uint32_t *labels,
                             const bauta_loss_options *options, bt_loss *loss,
                             bauta_error *err)
{
    bt_model *model = r->model;
    uint32_t *packed = bt_rows_pack(top_rows(r), r->tape, labels);
    r->encoder.noise =
        noise_of(r, &r->encoder_rows, options, options->source_keys, 0);
    r->decoder.noise = noise_of(r, &r->decoder_rows, options,
                                options->target_keys, UINT64_C(1) << 63);
    bt_tensor *x = bt_transformer_top(r->tape, model, bt_call_stacks(r));
    *loss = bt_op_loss(r->tape, x, bt_transformer_head(model), false,
                       bt_transformer_head_bias(model), packed,
                       options->smoothing, options->weight);
    bauta_status status = bt_tape_status(r->tape, err);
    if (status || !bt_tape_recording(r->tape))
        return status;
    return bt_tape_backward(r->tape, err);
}

bauta_status bauta_model_loss(bauta_context *context, bauta_model *model,
                              const bauta_batch *source,
                              const bauta_batch *target, const uint32_t *labels,
                              const bauta_loss_options *options, double *loss,
                              size_t *counted, bauta_error *err)
{
    bt_call r;
    bt_loss result;
    bauta_loss_options chosen = BAUTA_LOSS_OPTIONS_INIT;
    bauta_status status =
        bt_call_check(&r, context, model, source, target, err);
    if (status)
        return status;
    BT_NEED(loss, err);
    if (options)
        status = options_check(options, err);
    if (!status)
        status = bt_labels_check(target ? target : source, labels,
                                 bauta_model_vocabulary(model), err);
    if (!status)
        status = bt_call_prepare(&r, model->trainable, err);
    if (!status)
        status =
            loss_run(&r, labels, options ? options : &chosen, &result, err);
    if (status)
        return status;
    *loss = result.loss;
    if (counted)
        *counted = result.counted;
    return BAUTA_OK;
}
