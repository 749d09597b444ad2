/* SPDX-License-Identifier: Apache-2.0 */
/* check_finite.c - finding the first layer that produces NaN or infinity. */
#include "base/error.h"
#include "base/size.h"
#include "base/string_writer.h"
#include "model/model_call.h"

#include <math.h>

/* The index of the first NaN or infinity, or `count`. */
static size_t first_bad(const float *numbers, size_t count)
{
    size_t i = 0;
    while (i < count && isfinite(numbers[i]))
        i++;
    return i;
}

/* The same for logits, where -infinity is allowed. */
static size_t first_bad_logit(const float *logits, size_t count)
{
    size_t i = 0;
    while (i < count && (isfinite(logits[i]) || logits[i] == -INFINITY))
        i++;
    return i;
}

static const char *name_of(float number)
{
    return isnan(number) ? "NaN" : "infinity";
}

/* Append the token and the sequence of a packed row. */
static void put_row(bt_string_writer *w, const bt_packed_batch *rows,
                    size_t row)
{
    size_t sequence = 0;
    while (row >= rows->axis.lengths[sequence])
        row -= rows->axis.lengths[sequence++];
    bt_put(w, " at token %zu of sequence %zu", row, sequence);
}

/* Append the first tensor that holds NaN or infinity. Packed tensors, and those
 * on other devices, are not searched. */
static void put_weights(bt_string_writer *w, const bauta_model *model)
{
    bool all = true;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const bt_tensor *t = model->tensors[i].tensor;
        const float *data = bt_tensor_host(t);
        size_t count = t->rows * t->columns;
        size_t at = data ? first_bad(data, count) : count;
        all = all && data;
        if (at == count)
            continue;
        bt_put(w, "; tensor %s holds %s", model->tensors[i].name,
               name_of(data[at]));
        return;
    }
    if (all)
        bt_put_text(w, "; all weights are finite, so the values overflow");
}

static bauta_status fail(const char *message, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_NOT_FINITE, "%s", message);
}

/* Check the hidden states of a stack: index 0 is the embeddings, index l is
 * layer l - 1. */
static bauta_status stack_check(const bauta_model *model, const char *stack,
                                bt_tape *tape, bt_tensor *const *states,
                                size_t layers, const bt_packed_batch *rows,
                                bauta_error *err)
{
    for (size_t l = 0; l <= layers; l++) {
        const bt_tensor *x = states[l];
        const float *state = bt_tape_read_f32(tape, x);
        if (!state)
            return bt_tape_status(tape, err);
        size_t count = x->rows * x->columns, at = first_bad(state, count);
        if (at == count)
            continue;
        char message[sizeof(err->message)];
        bt_string_writer w = { message, sizeof(message), 0 };
        if (l)
            bt_put(&w, "%s layer %zu gives ", stack, l - 1);
        else
            bt_put(&w, "the embeddings of the %s give ", stack);
        bt_put_text(&w, name_of(state[at]));
        put_row(&w, rows, at / x->columns);
        put_weights(&w, model);
        bt_put_end(&w);
        return fail(message, err);
    }
    return BAUTA_OK;
}

/* Row by row, since the logits of all rows may take much more memory than the
 * hidden states. */
static bauta_status head_check(const bauta_model *model, bt_model_call *r,
                               bt_tensor *x, bauta_error *err)
{
    const bt_packed_batch *rows =
        r->target ? &r->decoder_batch : &r->encoder_batch;
    size_t vocab = bt_transformer_head_weight(r->model)->rows;
    float *logits = bt_tape_alloc(r->tape, vocab, sizeof(*logits));
    for (size_t i = 0; logits && i < rows->tokens; i++) {
        bt_tensor row = bt_tensor_rows(x, i, 1);
        if (!bt_transformer_logits_to_host(r->tape, r->model, &row, logits))
            break;
        size_t at = first_bad_logit(logits, vocab);
        if (at == vocab)
            continue;
        char message[sizeof(err->message)];
        bt_string_writer w = { message, sizeof(message), 0 };
        bt_put(&w, "the head gives %s for id %zu", name_of(logits[at]), at);
        put_row(&w, rows, i);
        put_weights(&w, model);
        bt_put_end(&w);
        return fail(message, err);
    }
    return bt_tape_status(r->tape, err);
}

bauta_status bt_model_call_check_states(bt_model_call *r,
                                        const bauta_model *model,
                                        bt_tensor **last, bauta_error *err)
{
    const bt_model_config *config = &r->model->config;
    size_t encoder = config->encoder.layers, decoder = config->decoder.layers;
    r->encoder.hidden_states =
        bt_tape_alloc(r->tape, encoder + 1, sizeof(bt_tensor *));
    r->decoder.hidden_states =
        bt_tape_alloc(r->tape, decoder + 1, sizeof(bt_tensor *));
    *last = bt_model_call_stacks(r);
    bauta_status status = bt_tape_status(r->tape, err);
    if (!status && r->source)
        status =
            stack_check(model, "encoder", r->tape, r->encoder.hidden_states,
                        encoder, &r->encoder_batch, err);
    if (!status && r->target)
        status =
            stack_check(model, "decoder", r->tape, r->decoder.hidden_states,
                        decoder, &r->decoder_batch, err);
    return status;
}

static bauta_status run(const bauta_model *model, bt_model_call *r,
                        bauta_error *err)
{
    bt_tensor *x;
    bauta_status status = bt_model_call_check_states(r, model, &x, err);
    if (status)
        return status;
    x = bt_transformer_head_transform(r->tape, r->model, x);
    status = bt_tape_status(r->tape, err);
    return status ? status : head_check(model, r, x, err);
}

bauta_status bauta_model_check_finite(bauta_context *context,
                                      const bauta_model *model,
                                      const bauta_batch *source,
                                      const bauta_batch *target,
                                      bauta_error *err)
{
    bt_model_call r;
    bauta_status status =
        bt_model_call_check(&r, context, model, source, target, err);
    if (!status)
        status = bt_model_call_prepare(&r, false, err);
    return status ? status : run(model, &r, err);
}
