/* SPDX-License-Identifier: Apache-2.0 */
/* modes.c - the ways of training that the mask makes unnecessary.
 *
 *   sequential     what a model had to do without a mask: each position is a
 *                  pass of its own, over what lies before it. The losses and,
 *                  but for the order of additions, the gradients are those of
 *                  one parallel pass; the time is not.
 *   free-running   each position reads what the model itself predicted before
 *                  it; labels stay the true ones. Predictions are made one
 *                  after another, and then a parallel pass learns from them.
 *   scheduled      as parallel, but a share of the inputs is replaced by what
 *                  a first parallel pass predicted for their place.
 *
 * A prediction is the likeliest token; of equal ones the first. */
#include "train/trainer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "data/random.h"

#include <string.h>

/* ---- sequential -------------------------------------------------------- */

/* Sequence s of a batch as far as position t, of which only the last label
 * counts. The arrays are the batch's own. */
typedef struct cursor {
    size_t row, source_row; /* where the sequence begins */
} cursor;

static void part_set(bt_filling *part, const bt_filling *from, size_t s,
                     cursor at, size_t length)
{
    part->count = 1;
    part->rows = length;
    part->counted = 1;
    part->lengths[0] = length;
    part->source_lengths[0] = from->source_lengths[s];
    part->source_rows = from->source_lengths[s];
    part->prefixes[0] = bt_size_min(from->prefixes[s], length);
    for (size_t i = 0; i < length; i++) {
        part->ids[i] = from->ids[at.row + i];
        part->keys[i] = from->keys[at.row + i];
        part->labels[i] = BAUTA_IGNORE;
    }
    part->labels[length - 1] = from->labels[at.row + length - 1];
    for (size_t i = 0; i < part->source_rows; i++) {
        part->source[i] = from->source[at.source_row + i];
        part->source_keys[i] = from->source_keys[at.source_row + i];
    }
}

static bauta_status sequential(bauta_trainer *t, const bt_filling *from,
                               size_t total, double *loss, bauta_error *err)
{
    bauta_status status =
        bt_filling_reserve(&t->part, 1, from->rows, from->source_rows, err);
    cursor at = { 0, 0 };
    *loss = 0.0;
    for (size_t s = 0; !status && s < from->count; s++) {
        for (size_t i = 0; !status && i < from->lengths[s]; i++) {
            double one;
            if (from->labels[at.row + i] == BAUTA_IGNORE)
                continue;
            part_set(&t->part, from, s, at, i + 1);
            status = bt_pass_run(t, &t->part, total, &one, err);
            if (!status)
                *loss += one;
        }
        at.row += from->lengths[s];
        at.source_row += from->source_lengths[s];
    }
    return status;
}

/* ---- predictions ------------------------------------------------------- */

/* Logits of every row, without gradients. */
static bauta_status predict(bauta_trainer *t, const bt_filling *f,
                            bauta_error *err)
{
    size_t need = bt_size_mul(f->rows, bauta_model_vocabulary(t->model));
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    bt_pass pass;
    if (need > t->logits_room) {
        bt_free(t->logits);
        t->logits = bt_alloc(bt_size_mul(need, sizeof(float)));
        t->logits_room = t->logits ? need : 0;
        if (!t->logits)
            return bt_fail_memory(err, "predictions",
                                  bt_size_mul(need, sizeof(float)));
    }
    outputs.logits = t->logits;
    bt_pass_set(&pass, t, f);
    return bauta_model_forward(t->context, t->model, pass.read_source,
                               pass.read_target, &outputs, err);
}

static uint32_t likeliest(const bauta_trainer *t, size_t row)
{
    size_t vocabulary = bauta_model_vocabulary(t->model);
    const float *z = t->logits + row * vocabulary;
    size_t best = 0;
    for (size_t i = 1; i < vocabulary; i++)
        if (z[i] > z[best])
            best = i;
    return (uint32_t)best;
}

/* The batch, each sequence only up to `length` tokens. */
static void prefix_set(bt_filling *part, const bt_filling *from, size_t length)
{
    size_t row = 0;
    part->count = from->count;
    part->rows = 0;
    part->source_rows = from->source_rows;
    for (size_t s = 0; s < from->count; s++) {
        size_t n = bt_size_min(from->lengths[s], length);
        memcpy(part->ids + part->rows, from->ids + row, n * sizeof(*part->ids));
        part->lengths[s] = n;
        part->source_lengths[s] = from->source_lengths[s];
        part->prefixes[s] = bt_size_min(from->prefixes[s], n);
        part->rows += n;
        row += from->lengths[s];
    }
    if (from->source_rows)
        memcpy(part->source, from->source,
               from->source_rows * sizeof(*part->source));
}

/* Input `length` of every sequence that has one becomes what was predicted at
 * the end of its part; but the prefix of the prefix objective is given. */
static void feed(bauta_trainer *t, bt_filling *f, size_t length)
{
    size_t row = 0, at = 0;
    for (size_t s = 0; s < f->count; s++) {
        at += t->part.lengths[s];
        if (length < f->lengths[s] && length >= f->prefixes[s])
            f->ids[row + length] = likeliest(t, at - 1);
        row += f->lengths[s];
    }
}

static bauta_status free_inputs(bauta_trainer *t, bt_filling *f,
                                bauta_error *err)
{
    size_t longest = 0;
    bauta_status status =
        bt_filling_reserve(&t->part, f->count, f->rows, f->source_rows, err);
    for (size_t s = 0; s < f->count; s++)
        longest = bt_size_max(longest, f->lengths[s]);
    for (size_t length = 1; !status && length < longest; length++) {
        prefix_set(&t->part, f, length);
        status = predict(t, &t->part, err);
        if (!status)
            feed(t, f, length);
    }
    return status;
}

/* ---- scheduled --------------------------------------------------------- */

static bauta_status scheduled_inputs(bauta_trainer *t, bt_filling *f,
                                     bauta_error *err)
{
    const bauta_train_options *o = &t->options;
    bauta_status status = predict(t, f, err);
    size_t row = 0;
    for (size_t s = 0; !status && s < f->count; s++) {
        for (size_t i = bt_size_max(f->prefixes[s], 1); i < f->lengths[s];
             i++) {
            uint64_t bits = bt_random(o->seed, BT_FOR_SAMPLING,
                                      f->keys[row + i], (uint32_t)t->steps);
            if (bt_random_unit(bits) < (double)o->sampled)
                f->ids[row + i] = likeliest(t, row + i - 1);
        }
        row += f->lengths[s];
    }
    return status;
}

bauta_status bt_mode_run(bauta_trainer *t, bauta_mode mode, bt_filling *f,
                         size_t total, double *loss, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (mode == BAUTA_MODE_SEQUENTIAL)
        return sequential(t, f, total, loss, err);
    if (mode == BAUTA_MODE_FREE)
        status = free_inputs(t, f, err);
    else if (mode == BAUTA_MODE_SCHEDULED)
        status = scheduled_inputs(t, f, err);
    return status ? status : bt_pass_run(t, f, total, loss, err);
}
