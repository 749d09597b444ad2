/* SPDX-License-Identifier: Apache-2.0 */
/* states.c - hidden states of a batch, and small things that trials share. */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/size.h"

#include <string.h>

static float *states_take(size_t levels, size_t rows, size_t columns,
                          bauta_error *err)
{
    size_t count = bt_size_mul(bt_size_mul(levels, rows), columns);
    float *numbers = bt_alloc(bt_size_mul(count, sizeof(*numbers)));
    if (!numbers)
        bt_fail_memory(err, "the hidden states of an audit", count);
    return numbers;
}

bauta_status bt_states_init(bt_states *s, const bt_double *d,
                            const bauta_batch *source,
                            const bauta_batch *target, bool logits,
                            bauta_error *err)
{
    const bauta_batch *batches[] = { source, target };
    const bt_blueprint *print = &d->model.print;
    const size_t layers[] = { print->encoder.layers, print->decoder.layers };
    *s = (bt_states){ .width = print->width };
    // The head is the model's, whatever table the double has.
    s->vocabulary = d->original->print.vocab;
    for (size_t i = 0; i < 2; i++) {
        if (!batches[i])
            continue;
        s->rows[i] = bauta_batch_rows(batches[i]);
        s->levels[i] = layers[i] + 1;
        s->data[i] = states_take(s->levels[i], s->rows[i], s->width, err);
        if (!s->data[i])
            goto failed;
    }
    if (logits)
        s->logits = states_take(1, s->rows[target != NULL], s->vocabulary, err);
    if (!logits || s->logits)
        return BAUTA_OK;
failed:
    bt_states_release(s);
    return BAUTA_ERR_NOMEM;
}

void bt_states_release(bt_states *s)
{
    bt_free(s->data[0]);
    bt_free(s->data[1]);
    bt_free(s->logits);
    *s = (bt_states){ 0 };
}

bauta_status bt_states_run(bt_states *s, bauta_context *context,
                           const bt_double *d, const bauta_batch *source,
                           const bauta_batch *target, bauta_error *err)
{
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    outputs.encoder_states = s->data[0];
    outputs.decoder_states = s->data[1];
    outputs.logits = s->logits;
    return bauta_model_forward(context, &d->handle, source, target, &outputs,
                               err);
}

bauta_status bt_states_of(bt_states *s, bauta_context *context,
                          const bt_double *d, const bt_readings *read,
                          bool logits, bauta_error *err)
{
    bt_sheet sheet;
    *s = (bt_states){ 0 };
    bauta_status status = bt_sheet_init(&sheet, read, 1, err);
    if (status)
        return status;
    status = bt_states_init(s, d, sheet.source, sheet.target, logits, err);
    if (!status)
        status = bt_states_run(s, context, d, sheet.source, sheet.target, err);
    if (status)
        bt_states_release(s);
    bt_sheet_release(&sheet);
    return status;
}

/* ---- probes ------------------------------------------------------------ */

size_t bt_probe_count(const bt_auditing *a, const bt_reading *r)
{
    return bt_size_min(a->probes, r->rows);
}

size_t bt_probe_row(const bt_auditing *a, const bt_reading *r, size_t n)
{
    size_t count = bt_probe_count(a, r);
    return count > 1 ? n * (r->rows - 1) / (count - 1) : 0;
}

/* Whether a token has another embedding. */
static bool embeddings_differ(const bt_model *model, uint32_t a, uint32_t b,
                              float *memory)
{
    size_t width = model->print.width;
    bt_embedding_read(model, a, memory);
    bt_embedding_read(model, b, memory + width);
    return memcmp(memory, memory + width, width * sizeof(*memory)) != 0;
}

uint32_t bt_other_token(const bt_auditing *a, uint32_t id, size_t salt)
{
    const bt_model *model = a->model->folder->model;
    const uint32_t key[2] = { (uint32_t)a->seed, (uint32_t)(a->seed >> 32) };
    const uint32_t counter[4] = { id, (uint32_t)salt, 0x61756469, 0 };
    size_t vocab = model->print.vocab;
    uint32_t words[4];
    bt_philox(words, counter, key);
    for (size_t n = 0; n < vocab; n++) {
        uint32_t other = (uint32_t)((words[0] + n) % vocab);
        if (embeddings_differ(model, id, other, a->row))
            return other;
    }
    return id;
}

/* ---- faults ------------------------------------------------------------ */

void bt_fault_keep(bt_fault *fault, const bt_fault *other)
{
    const size_t a[] = { fault->target, fault->level, fault->row, fault->key };
    const size_t b[] = { other->target, other->level, other->row, other->key };
    size_t i = 0;
    while (i < BT_LEN(a) && a[i] == b[i])
        i++;
    if (!fault->found || (i < BT_LEN(a) && b[i] < a[i]))
        *fault = *other;
}
