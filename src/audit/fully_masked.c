/* SPDX-License-Identifier: Apache-2.0 */
/* fully_masked.c - queries that see no key.
 *
 * Every third row of one attention sees nothing. Its hidden states must be
 * those of a clone in which that attention is ablated, and no gradient may
 * become NaN. */
#include "audit/audit.h"

#include "base/size.h"

#include <math.h>
#include <string.h>

enum { EVERY = 3, PROBES = 8 };

/* Empty every third row of the caller's mask, or of one that shows all. */
static bauta_status rows_hide(bt_bit_matrix *mask, size_t rows, size_t keys,
                              bauta_error *err)
{
    if (!mask->bits) {
        bauta_status status = bt_bit_matrix_init(mask, rows, keys, err);
        if (status)
            return status;
        memset(mask->bits, 0xff, rows * mask->words * sizeof(*mask->bits));
    }
    for (size_t i = 0; i < rows; i += EVERY)
        memset(bt_bit_matrix_row(mask, i), 0,
               mask->words * sizeof(*mask->bits));
    return BAUTA_OK;
}

static bauta_status ablate_all_layers(bt_model_clone *clone,
                                      bauta_attention_kind at, bauta_error *err)
{
    size_t layers = at == BAUTA_ATTENTION_ENCODER
                        ? clone->model.config.encoder.layers
                        : clone->model.config.decoder.layers;
    bauta_status status = BAUTA_OK;
    for (size_t l = 0; !status && l < layers; l++)
        status = bt_model_clone_ablate_heads(clone, at, l, SIZE_MAX, err);
    return status;
}

static void rows_compare(bt_audit_state *a, bauta_attention_kind at,
                         const bt_hidden_states *want,
                         const bt_hidden_states *got, bt_fault *fault)
{
    bool target = at != BAUTA_ATTENTION_ENCODER;
    for (size_t l = 0; l < want->levels[target]; l++)
        for (size_t i = 0; i < want->rows[target]; i += EVERY) {
            a->compared++;
            // NaN passes through an ablated head, so it could be in both.
            if (memcmp(bt_hidden_state(want, target, l, i),
                       bt_hidden_state(got, target, l, i),
                       want->width * sizeof(float)) == 0 &&
                !isnan(bt_hidden_state(got, target, l, i)[0]))
                continue;
            bt_fault found = bt_fault_at(target, l, i);
            bt_fault_keep_first(fault, &found);
            return;
        }
}

/* With fully masked rows in a->inputs: the forward pass, then gradients. */
static bauta_status masked_rows_check(bt_audit_state *a, bt_model_clone *clone,
                                      bauta_attention_kind at, bt_fault *fault,
                                      bauta_error *err)
{
    bt_model_clone ablated;
    bt_hidden_states want = { 0 }, got = { 0 };
    size_t probes = a->probes;
    bauta_status status = bt_model_clone_init(&ablated, &clone->handle, err);
    if (status)
        return status;
    // Rows that see the source must not pass it on to those that do not.
    if (at == BAUTA_ATTENTION_CROSS)
        status = ablate_all_layers(clone, BAUTA_ATTENTION_DECODER, err);
    if (!status && at == BAUTA_ATTENTION_CROSS)
        status = ablate_all_layers(&ablated, BAUTA_ATTENTION_DECODER, err);
    if (!status)
        status = ablate_all_layers(&ablated, at, err);
    if (!status)
        status = bt_hidden_states_compute(&want, a->context, &ablated,
                                          &a->inputs, false, err);
    if (!status)
        status = bt_hidden_states_compute(&got, a->context, clone, &a->inputs,
                                          false, err);
    if (!status)
        rows_compare(a, at, &want, &got, fault);
    bt_hidden_states_release(&want);
    bt_hidden_states_release(&got);
    bt_model_clone_release(&ablated);
    if (status || fault->found || !bt_model_clone_trainable(clone))
        return status;
    a->probes = bt_size_min(probes, PROBES);
    status = bt_check_gradients(a, clone, fault, err);
    a->probes = probes;
    return status;
}

static bauta_status attention_check(bt_audit_state *a, bt_model_clone *clone,
                                    bauta_attention_kind at, bt_fault *fault,
                                    bauta_error *err)
{
    bt_probe_inputs given = a->inputs, masked;
    bool target = at != BAUTA_ATTENTION_ENCODER,
         cross = at == BAUTA_ATTENTION_CROSS;
    bauta_status status = bt_probe_inputs_copy(&masked, &given, err);
    if (status)
        return status;
    bt_probe_input *r = target ? &masked.target : &masked.source;
    status = rows_hide(cross ? &masked.cross : &r->mask, r->rows,
                       cross ? masked.source.rows : r->rows, err);
    a->inputs = masked;
    if (!status)
        status = masked_rows_check(a, clone, at, fault, err);
    a->inputs = given;
    bt_probe_inputs_release(&masked);
    return status;
}

bauta_status bt_check_fully_masked(bt_audit_state *a, bt_model_clone *clone,
                                   bt_fault *fault, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (a->inputs.source.count && clone->model.config.encoder.layers)
        status = attention_check(a, clone, BAUTA_ATTENTION_ENCODER, fault, err);
    if (!status && !fault->found && a->inputs.target.count)
        status = attention_check(a, clone, BAUTA_ATTENTION_DECODER, fault, err);
    if (!status && !fault->found && a->inputs.target.count &&
        a->inputs.source.count)
        status = attention_check(a, clone, BAUTA_ATTENTION_CROSS, fault, err);
    return status;
}
