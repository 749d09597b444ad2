/* SPDX-License-Identifier: Apache-2.0 */
/* hidden_states.c - the hidden states and logits of a batch. */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

static float *states_alloc(size_t levels, size_t rows, size_t columns,
                           bauta_error *err)
{
    size_t count = bt_size_mul(bt_size_mul(levels, rows), columns);
    float *states = bt_alloc(bt_size_mul(count, sizeof(*states)));
    if (!states)
        bt_fail_memory(err, "the hidden states of an audit", count);
    return states;
}

bauta_status bt_hidden_states_init(bt_hidden_states *s,
                                   const bt_model_clone *clone,
                                   const bauta_batch *source,
                                   const bauta_batch *target, bool logits,
                                   bauta_error *err)
{
    const bauta_batch *batches[] = { source, target };
    const bt_model_config *print = &clone->model.config;
    const size_t layers[] = { print->encoder.layers, print->decoder.layers };
    *s = (bt_hidden_states){ .width = print->width };
    // A replaced embedding leaves the output head as it was.
    s->vocabulary = clone->original->model->config.vocab_size;
    for (size_t i = 0; i < 2; i++) {
        if (!batches[i])
            continue;
        s->rows[i] = bauta_batch_rows(batches[i]);
        s->levels[i] = layers[i] + 1;
        s->data[i] = states_alloc(s->levels[i], s->rows[i], s->width, err);
        if (!s->data[i])
            goto failed;
    }
    if (logits)
        s->logits =
            states_alloc(1, s->rows[target != NULL], s->vocabulary, err);
    if (!logits || s->logits)
        return BAUTA_OK;
failed:
    bt_hidden_states_release(s);
    return BAUTA_ERR_NOMEM;
}

void bt_hidden_states_release(bt_hidden_states *s)
{
    bt_free(s->data[0]);
    bt_free(s->data[1]);
    bt_free(s->logits);
    *s = (bt_hidden_states){ 0 };
}

bauta_status bt_hidden_states_run(bt_hidden_states *s, bauta_context *context,
                                  const bt_model_clone *clone,
                                  const bauta_batch *source,
                                  const bauta_batch *target, bauta_error *err)
{
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    outputs.encoder_states = s->data[0];
    outputs.decoder_states = s->data[1];
    outputs.logits = s->logits;
    return bauta_model_forward(context, &clone->handle, source, target,
                               &outputs, err);
}

bauta_status bt_hidden_states_compute(bt_hidden_states *s,
                                      bauta_context *context,
                                      const bt_model_clone *clone,
                                      const bt_probe_inputs *inputs,
                                      bool logits, bauta_error *err)
{
    bt_probe_batch batch;
    *s = (bt_hidden_states){ 0 };
    bauta_status status = bt_probe_batch_init(&batch, inputs, 1, err);
    if (status)
        return status;
    status = bt_hidden_states_init(s, clone, batch.source, batch.target, logits,
                                   err);
    if (!status)
        status = bt_hidden_states_run(s, context, clone, batch.source,
                                      batch.target, err);
    if (status)
        bt_hidden_states_release(s);
    bt_probe_batch_release(&batch);
    return status;
}
