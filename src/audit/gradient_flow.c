/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_flow.c - the inputs that the gradient of one output reaches.
 *
 * In each copy of a probe batch one row has a label and the others are ignored.
 * Every row of every copy has an embedding of its own, so the embedding's
 * gradient is that of each input alone. It must be exactly 0 for inputs that
 * the labelled row may not see. With an output head of NaN it must be NaN in
 * exactly the inputs that the row may see. */
#include "audit/perturbation.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>

enum { BATCH_ROWS = 2048 }; /* of a probe batch, about */

typedef enum variant { PLAIN, DROPOUT, NAN_HEAD, VARIANTS } variant;

typedef struct gradient_check {
    bt_audit_state *a;
    const bt_model_clone *base; /* the model under test */
    bt_model_clone clone;       /* with an embedding per row */
    const float *gradients;     /* of the embeddings, after a run */
    bt_oracle oracle;
    bt_probe_batch batch;
    uint32_t *labels;
    variant variant;
    size_t nonzero; /* inputs with a gradient other than 0 */
    bt_fault *fault;
} gradient_check;

/* ---- one probe batch
 * ------------------------------------------------------------ */

static size_t embedding_row(const gradient_check *f, bool target, size_t copy,
                            size_t row)
{
    const bt_probe_inputs *r = &f->a->inputs;
    size_t before = target ? f->batch.copies * r->source.rows : 0;
    size_t each = target ? r->target.rows : r->source.rows;
    return before + copy * each + row;
}

static bauta_status embeddings_write(gradient_check *f, bool target,
                                     bauta_error *err)
{
    const bt_probe_input *r = bt_probe_inputs_side(&f->a->inputs, target);
    bauta_status status = BAUTA_OK;
    for (size_t c = 0; c < f->batch.copies; c++)
        for (size_t i = 0; i < r->rows && !status; i++) {
            size_t row = embedding_row(f, target, c, i);
            *bt_probe_batch_id(&f->batch, target, r, c, i) = (uint32_t)row;
            status =
                bt_model_clone_copy_embedding(&f->clone, row, r->ids[i], err);
        }
    return status;
}

/* A clone of the clone: the embedding's size depends on the batch. */
static bauta_status clone_init(gradient_check *f, bauta_error *err)
{
    const bt_probe_inputs *r = &f->a->inputs;
    size_t rows = (r->source.rows + r->target.rows) * f->batch.copies;
    bauta_status status = bt_model_clone_init(&f->clone, &f->base->handle, err);
    if (status)
        return status;
    f->clone.original = f->base->original;
    status = bt_model_clone_replace_embedding(&f->clone, rows, true, err);
    if (!status && f->variant == NAN_HEAD)
        status = bt_model_clone_poison_output_head(&f->clone, err);
    if (status)
        bt_model_clone_release(&f->clone);
    return status;
}

/* One labelled row per copy; the NaN head knows two tokens. */
static void labels_write(const gradient_check *f, size_t first)
{
    const bt_probe_input *top = bt_probe_inputs_output(&f->a->inputs);
    size_t vocab = bt_size_min(f->clone.original->model->config.vocab_size,
                               f->clone.model.config.vocab_size);
    if (f->variant == NAN_HEAD)
        vocab = bt_size_min(vocab, 2);
    for (size_t i = 0; i < top->rows * f->batch.copies; i++)
        f->labels[i] = BAUTA_IGNORE;
    for (size_t c = 0; c < f->batch.copies; c++)
        f->labels[c * top->rows + bt_probe_row(f->a, top, first + c)] =
            (uint32_t)((first + c) % vocab);
}

static bauta_status loss_run(gradient_check *f, bauta_error *err)
{
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    double loss;
    if (f->variant == DROPOUT)
        options.dropout = 0.2f;
    options.seed = f->a->seed;
    options.weight = (double)f->batch.copies;
    return bauta_model_loss(f->a->context, &f->clone.handle, f->batch.source,
                            f->batch.target, f->labels, &options, &loss, NULL,
                            err);
}

/* ---- checking gradients
 * ------------------------------------------------------- */

typedef enum gradient_kind { ZERO, NONZERO, HAS_NAN } gradient_kind;

static gradient_kind gradient_of(const gradient_check *f, size_t row)
{
    const bt_tensor *t = &f->clone.model.tokens;
    gradient_kind kind = ZERO;
    f->a->compared++;
    for (size_t c = 0; c < t->columns; c++) {
        float g = f->gradients[row * t->columns + c];
        if (isnan(g))
            return HAS_NAN;
        if (g != 0.0f)
            kind = NONZERO;
    }
    return kind;
}

static void row_check(gradient_check *f, size_t copy, size_t out, bool target,
                      size_t in)
{
    static const char *const names[] = { "", "with dropout",
                                         "with an output head of NaN" };
    bool top = f->a->inputs.target.count > 0;
    size_t level = top ? f->oracle.decoder_layers : f->oracle.encoder_layers;
    bool may = bt_oracle_reaches(&f->oracle, top, level, out, target, in);
    gradient_kind kind = gradient_of(f, embedding_row(f, target, copy, in));
    // A gradient that should be there may underflow to 0; NaN cannot.
    bool right =
        !may ? kind == ZERO : (kind == HAS_NAN) == (f->variant == NAN_HEAD);
    f->nonzero += kind != ZERO;
    if (right)
        return;
    bt_fault fault = bt_fault_at(top, BAUTA_NO_INDEX, out);
    fault.key_target = target;
    fault.key = in;
    fault.should_see = may;
    snprintf(fault.detail, sizeof(fault.detail), "%s", names[f->variant]);
    bt_fault_keep_first(f->fault, &fault);
}

static void batch_check(gradient_check *f, size_t first)
{
    const bt_probe_inputs *r = &f->a->inputs;
    const bt_probe_input *top = bt_probe_inputs_output(r);
    for (size_t c = 0; c < f->batch.copies; c++) {
        size_t out = bt_probe_row(f->a, top, first + c);
        for (size_t i = 0; i < r->source.rows; i++)
            row_check(f, c, out, false, i);
        for (size_t i = 0; i < r->target.rows; i++)
            row_check(f, c, out, true, i);
    }
}

/* ---- the check --------------------------------------------------------- */

static bauta_status gradients_run(gradient_check *f, size_t first,
                                  bauta_error *err)
{
    bauta_status status = embeddings_write(f, false, err);
    if (!status)
        status = embeddings_write(f, true, err);
    labels_write(f, first);
    if (!status)
        status = loss_run(f, err);
    if (status)
        return status;
    f->gradients = bt_model_clone_gradients(&f->clone, err);
    return f->gradients ? BAUTA_OK : BAUTA_ERR_DEVICE;
}

static bauta_status batch_run(gradient_check *f, size_t first, size_t count,
                              bauta_error *err)
{
    const bt_probe_input *top = bt_probe_inputs_output(&f->a->inputs);
    bauta_status status =
        bt_probe_batch_init(&f->batch, &f->a->inputs, count, err);
    if (status)
        return status;
    status = clone_init(f, err);
    if (!status) {
        f->labels = bt_alloc_zero(top->rows * count, sizeof(*f->labels));
        status = f->labels ? gradients_run(f, first, err)
                           : bt_fail_memory(err, "labels", top->rows * count);
        if (!status)
            batch_check(f, first);
        bt_free(f->labels);
        bt_model_clone_release(&f->clone);
    }
    bt_probe_batch_release(&f->batch);
    return status;
}

bauta_status bt_check_gradients(bt_audit_state *a, bt_model_clone *clone,
                                bt_fault *fault, bauta_error *err)
{
    gradient_check f = { .a = a, .base = clone, .fault = fault };
    const bt_probe_input *top = bt_probe_inputs_output(&a->inputs);
    size_t rows = bt_size_max(a->inputs.source.rows, a->inputs.target.rows);
    size_t together = bt_size_max(BATCH_ROWS / bt_size_max(rows, 1), 1);
    size_t probes = bt_probe_count(a, top);
    if (!bt_model_clone_trainable(clone))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a packed model has no gradients");
    bauta_status status =
        bt_oracle_init(&f.oracle, &clone->model.config, &a->inputs, err);
    if (status)
        return status;
    for (f.variant = PLAIN; !status && !fault->found && f.variant < VARIANTS;
         f.variant++) {
        f.nonzero = 0;
        for (size_t n = 0; !status && n < probes; n += together)
            status = batch_run(&f, n, bt_size_min(together, probes - n), err);
        if (!status && probes && !f.nonzero) {
            fault->found = true;
            fault->target = a->inputs.target.count > 0;
            snprintf(fault->detail, sizeof(fault->detail),
                     "no token has a gradient");
        }
    }
    bt_oracle_release(&f.oracle);
    return status;
}
