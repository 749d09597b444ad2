/* SPDX-License-Identifier: Apache-2.0 */
/* train_modes.c - training modes other than parallel teacher forcing.
 *
 * - sequential: one forward pass for each position, over the tokens before it,
 *   as without a causal mask. The losses equal those of one parallel pass,
 *   which is much faster, and so do the gradients up to the order of additions.
 *
 * - free-running: inputs are the model's own predictions, made one position
 *   after another; labels stay the true ones. A parallel pass then trains on
 *   them.
 *
 * - scheduled: scheduled sampling. As parallel, but a fraction of the inputs is
 *   replaced by the predictions of a first parallel pass.
 *
 * A prediction is the most likely token; of equal ones the first. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/size.h"

#include <string.h>

/* ---- sequential -------------------------------------------------------- */

/* The first rows of a sequence. */
typedef struct cursor {
    size_t row, source_row;
} cursor;

/* Copy the first `length` tokens of sequence s, with the last label only. */
static void partial_set(bt_train_batch *partial, const bt_train_batch *from,
                        size_t s, cursor at, size_t length)
{
    partial->count = 1;
    partial->rows = length;
    partial->label_count = 1;
    partial->lengths[0] = length;
    partial->source_lengths[0] = from->source_lengths[s];
    partial->source_rows = from->source_lengths[s];
    partial->prefix_lengths[0] = bt_size_min(from->prefix_lengths[s], length);
    for (size_t i = 0; i < length; i++) {
        partial->ids[i] = from->ids[at.row + i];
        partial->token_keys[i] = from->token_keys[at.row + i];
        partial->labels[i] = BAUTA_IGNORE;
    }
    partial->labels[length - 1] = from->labels[at.row + length - 1];
    for (size_t i = 0; i < partial->source_rows; i++) {
        partial->source[i] = from->source[at.source_row + i];
        partial->source_keys[i] = from->source_keys[at.source_row + i];
    }
}

static bauta_status sequential(bauta_trainer *t, const bt_train_batch *from,
                               size_t total, double *loss, bauta_error *err)
{
    bauta_status status = bt_train_batch_reserve(&t->partial, 1, from->rows,
                                                 from->source_rows, err);
    cursor at = { 0, 0 };
    *loss = 0.0;
    for (size_t s = 0; !status && s < from->count; s++) {
        for (size_t i = 0; !status && i < from->lengths[s]; i++) {
            double one;
            if (from->labels[at.row + i] == BAUTA_IGNORE)
                continue;
            partial_set(&t->partial, from, s, at, i + 1);
            status = bt_microbatch_run(t, &t->partial, total, true, false, &one,
                                       err);
            if (!status)
                *loss += one;
        }
        at.row += from->lengths[s];
        at.source_row += from->source_lengths[s];
    }
    return status;
}

/* ---- predictions ------------------------------------------------------- */

/* Compute the logits of every row, without gradients. */
static bauta_status predict(bauta_trainer *t, const bt_train_batch *data,
                            bauta_error *err)
{
    size_t need = bt_size_mul(data->rows, bauta_model_vocab_size(t->model));
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bt_microbatch microbatch;
    if (need > t->logits_capacity) {
        bt_free(t->logits);
        t->logits = bt_alloc(bt_size_mul(need, sizeof(float)));
        t->logits_capacity = t->logits ? need : 0;
        if (!t->logits)
            return bt_fail_memory(err, "predictions",
                                  bt_size_mul(need, sizeof(float)));
    }
    outputs.logits = t->logits;
    bt_microbatch_set(&microbatch, t, data);
    return bauta_model_forward(t->context, t->model, microbatch.read_source,
                               microbatch.read_target, &outputs, err);
}

static uint32_t argmax(const bauta_trainer *t, size_t row)
{
    size_t vocabulary = bauta_model_vocab_size(t->model);
    const float *z = t->logits + row * vocabulary;
    size_t best = 0;
    for (size_t i = 1; i < vocabulary; i++)
        if (z[i] > z[best])
            best = i;
    return (uint32_t)best;
}

/* Copy the batch with every sequence cut to `length` tokens. */
static void prefix_set(bt_train_batch *partial, const bt_train_batch *from,
                       size_t length)
{
    size_t row = 0;
    partial->count = from->count;
    partial->rows = 0;
    partial->source_rows = from->source_rows;
    for (size_t s = 0; s < from->count; s++) {
        size_t n = bt_size_min(from->lengths[s], length);
        memcpy(partial->ids + partial->rows, from->ids + row,
               n * sizeof(*partial->ids));
        partial->lengths[s] = n;
        partial->source_lengths[s] = from->source_lengths[s];
        partial->prefix_lengths[s] = bt_size_min(from->prefix_lengths[s], n);
        partial->rows += n;
        row += from->lengths[s];
    }
    if (from->source_rows)
        memcpy(partial->source, from->source,
               from->source_rows * sizeof(*partial->source));
}

/* Replace input `length` of every sequence by the prediction before it, except
 * in the prefix of the prefix objective. */
static void apply_predictions(bauta_trainer *t, bt_train_batch *data,
                              size_t length)
{
    size_t row = 0, at = 0;
    for (size_t s = 0; s < data->count; s++) {
        at += t->partial.lengths[s];
        if (length < data->lengths[s] && length >= data->prefix_lengths[s])
            data->ids[row + length] = argmax(t, at - 1);
        row += data->lengths[s];
    }
}

static bauta_status free_inputs(bauta_trainer *t, bt_train_batch *data,
                                bauta_error *err)
{
    size_t longest = 0;
    bauta_status status = bt_train_batch_reserve(
        &t->partial, data->count, data->rows, data->source_rows, err);
    for (size_t s = 0; s < data->count; s++)
        longest = bt_size_max(longest, data->lengths[s]);
    for (size_t length = 1; !status && length < longest; length++) {
        prefix_set(&t->partial, data, length);
        status = predict(t, &t->partial, err);
        if (!status)
            apply_predictions(t, data, length);
    }
    return status;
}

/* ---- scheduled --------------------------------------------------------- */

static bauta_status scheduled_inputs(bauta_trainer *t, bt_train_batch *data,
                                     bauta_error *err)
{
    const bauta_train_options *o = &t->options;
    bauta_status status = predict(t, data, err);
    size_t row = 0;
    for (size_t s = 0; !status && s < data->count; s++) {
        for (size_t i = bt_size_max(data->prefix_lengths[s], 1);
             i < data->lengths[s]; i++) {
            uint64_t bits =
                bt_random(o->seed, BT_RANDOM_SAMPLING,
                          data->token_keys[row + i], (uint32_t)t->steps);
            if (bt_random_unit(bits) < (double)o->scheduled_sampling)
                data->ids[row + i] = argmax(t, row + i - 1);
        }
        row += data->lengths[s];
    }
    return status;
}

bauta_status bt_train_mode_run(bauta_trainer *t, bauta_train_mode mode,
                               bt_train_batch *data, size_t total, double *loss,
                               bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (mode == BAUTA_MODE_SEQUENTIAL)
        return sequential(t, data, total, loss, err);
    if (mode == BAUTA_MODE_FREE)
        status = free_inputs(t, data, err);
    else if (mode == BAUTA_MODE_SCHEDULED)
        status = scheduled_inputs(t, data, err);
    return status ? status
                  : bt_microbatch_run(t, data, total, true, false, loss, err);
}
