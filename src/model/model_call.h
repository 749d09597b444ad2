/* SPDX-License-Identifier: Apache-2.0 */
/* model_call.h - one forward pass of a model: check, prepare, run. */
#ifndef BT_MODEL_CALL_H
#define BT_MODEL_CALL_H

#include "model/api.h"
#include "model/batch.h"
#include "model/transformer.h"

typedef struct bt_model_call {
    bauta_context *context;
    bt_tape *tape;
    bt_model *model;
    bauta_batch batches[2];             /* copies of the caller's */
    const bauta_batch *source, *target; /* NULL where the model reads none */
    bt_packed_batch encoder_batch, decoder_batch;
    bt_forward_input encoder, decoder;
} bt_model_call;

/* Start a call: check that the batches fit the model and each other. */
bauta_status bt_model_call_check(bt_model_call *call, bauta_context *context,
                                 const bauta_model *model,
                                 const bauta_batch *source,
                                 const bauta_batch *target, bauta_error *err);
/* Copy the caller's outputs, and check that the model has what they ask for. */
bauta_status bt_model_call_outputs(bauta_outputs *to, const bt_model_call *call,
                                   const bauta_outputs *outputs,
                                   bauta_error *err);
/* Rewind the tape, pack the batches into it, and get the attention plans. */
bauta_status bt_model_call_prepare(bt_model_call *call, bool recording,
                                   bauta_error *err);
/* The mask of an attention in a layer, of a prepared call. */
bt_batch_mask bt_model_call_mask(const bt_model_call *call,
                                 bauta_attention_kind attention, size_t layer);
/* Run the stacks. Returns the hidden states of the last one, or NULL when the
 * tape has failed. */
bt_tensor *bt_model_call_stacks(bt_model_call *call);
/* Run the model and write the outputs. */
bauta_status bt_model_call_run(bt_model_call *call,
                               const bauta_outputs *outputs, bauta_error *err);

/* bauta_model_loss() in two parts, so that the caller can work while a device
 * does: queue everything, then wait for the loss. With gradients, which need a
 * trainable model, or without; without them there is no dropout either. */
bauta_status bt_model_loss_queue(bt_loss *loss, bauta_context *context,
                                 const bauta_model *model,
                                 const bauta_batch *source,
                                 const bauta_batch *target,
                                 const uint32_t *labels,
                                 const bauta_loss_options *options,
                                 bool gradients, bauta_error *err);
bauta_status bt_model_loss_read(bauta_context *context, bt_loss *loss,
                                bauta_error *err);
/* Make the plans of packed batches whose turn comes next, in place of those of
 * the call that is queued. Of the batches only the lengths are read. */
bauta_status bt_model_plans_ahead(bauta_context *context,
                                  const bauta_model *model,
                                  const bauta_batch *source,
                                  const bauta_batch *target, bauta_error *err);

/* ---- check_finite.c ------------------------------------------------------ */

/* Run the stacks of a prepared call. BAUTA_ERR_NOT_FINITE names the first layer
 * that gives NaN or infinity; otherwise *last is their result. */
bauta_status bt_model_call_check_states(bt_model_call *call,
                                        const bauta_model *model,
                                        bt_tensor **last, bauta_error *err);

#endif
