/* SPDX-License-Identifier: Apache-2.0 */
/* token_visibility.c - a different token, or NaN, in place of one input.
 *
 * Rows that must not see the input keep their bits, in the whole model and in
 * each layer by itself. */
#include "audit/perturbation.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>

/* Examine one row of a copy at one level. */
typedef void row_fn(bt_perturbation *p, size_t copy, bool target, size_t level,
                    size_t row, bool key_target, size_t key);

static void rows_examine(bt_perturbation *p, size_t copy, bool key_target,
                         size_t key, row_fn *examine)
{
    for (size_t s = 0; s < 2; s++)
        for (size_t l = 0; l < p->states.levels[s]; l++)
            for (size_t i = 0; i < bt_probe_inputs_side(&p->a->inputs, s)->rows;
                 i++)
                examine(p, copy, s, l, i, key_target, key);
}

/* ---- a different token ------------------------------------------------- */

static void token_row(bt_perturbation *p, size_t copy, bool target,
                      size_t level, size_t row, bool key_target, size_t key)
{
    bool same = bt_perturbation_same(p, target, level, copy, row);
    if (!bt_oracle_reaches(&p->oracle, target, level, row, key_target, key)) {
        if (!same)
            bt_perturbation_fault(p, target, level, row, key_target, key,
                                  false);
    } else if (target != key_target || row != key) {
        p->may_change++;
        p->did_change += !same;
    } else if (same) {
        bt_perturbation_fault(p, target, level, row, key_target, key, true);
    }
}

static void token_examine(bt_perturbation *p, size_t copy, bool key_target,
                          size_t key)
{
    rows_examine(p, copy, key_target, key, token_row);
}

/* A different token for every row; NULL without memory. */
static uint32_t *different_tokens(const bt_audit_state *a,
                                  const bt_probe_input *r)
{
    uint32_t *changed = bt_alloc_zero(r->rows, sizeof(*changed));
    for (size_t i = 0; changed && i < r->rows; i++)
        changed[i] = bt_different_token(a, r->ids[i], i);
    return changed;
}

static bauta_status tokens_differ(const bt_probe_input *r,
                                  const uint32_t *changed, bauta_error *err)
{
    for (size_t i = 0; i < r->rows; i++)
        if (changed[i] == r->ids[i])
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "all tokens have the embedding of token %u",
                           (unsigned)r->ids[i]);
    return BAUTA_OK;
}

bauta_status bt_check_token_change(bt_audit_state *a, bt_model_clone *clone,
                                   bt_fault *fault, bauta_error *err)
{
    const bt_probe_input *sides[] = { &a->inputs.source, &a->inputs.target };
    uint32_t *changed[] = { different_tokens(a, sides[0]),
                            different_tokens(a, sides[1]) };
    bt_perturbation p = {
        .a = a, .clone = clone, .fault = fault, .examine = token_examine
    };
    bauta_status status = BAUTA_OK;
    if (!changed[0] || !changed[1])
        status = bt_fail_memory(err, "other tokens", sides[0]->rows);
    for (size_t s = 0; !status && s < 2; s++) {
        status = tokens_differ(sides[s], changed[s], err);
        p.ids[s] = sides[s]->ids;
        p.changed[s] = sides[s]->count ? changed[s] : NULL;
    }
    if (!status)
        status = bt_perturbation_run(&p, err);
    if (!status && !fault->found && p.may_change && !p.did_change) {
        fault->found = true;
        fault->target = a->inputs.target.count > 0;
        snprintf(fault->detail, sizeof(fault->detail),
                 "changing a token changes no row that may see it");
    }
    bt_free(changed[0]);
    bt_free(changed[1]);
    return status;
}

/* ---- NaN --------------------------------------------------------------- */

static bool row_has_nan(const bt_perturbation *p, bool target, size_t level,
                        size_t copy, size_t row)
{
    const float *x = bt_perturbation_state(p, target, level, copy, row);
    for (size_t c = 0; c < p->states.width; c++)
        if (isnan(x[c]))
            return true;
    return false;
}

static void poison_row(bt_perturbation *p, size_t copy, bool target,
                       size_t level, size_t row, bool key_target, size_t key)
{
    bool may =
        bt_oracle_reaches(&p->oracle, target, level, row, key_target, key);
    bool poisoned = row_has_nan(p, target, level, copy, row);
    bool same = bt_perturbation_same(p, target, level, copy, row);
    if (may != poisoned || (!may && !same))
        bt_perturbation_fault(p, target, level, row, key_target, key, may);
}

static void poison_examine(bt_perturbation *p, size_t copy, bool key_target,
                           size_t key)
{
    rows_examine(p, copy, key_target, key, poison_row);
}

bauta_status bt_per_row_embedding(bt_model_clone *clone,
                                  const bt_probe_inputs *inputs,
                                  bauta_error *err)
{
    size_t source = inputs->source.rows, target = inputs->target.rows;
    bauta_status status = bt_model_clone_replace_embedding(
        clone, source + target + 1, false, err);
    if (status)
        return status;
    for (size_t i = 0; i < source && !status; i++)
        status =
            bt_model_clone_copy_embedding(clone, i, inputs->source.ids[i], err);
    for (size_t i = 0; i < target && !status; i++)
        status = bt_model_clone_copy_embedding(clone, source + i,
                                               inputs->target.ids[i], err);
    return status
               ? status
               : bt_model_clone_poison_embedding(clone, source + target, err);
}

bauta_status bt_check_nan_poison(bt_audit_state *a, bt_model_clone *clone,
                                 bt_fault *fault, bauta_error *err)
{
    size_t source = a->inputs.source.rows, target = a->inputs.target.rows;
    size_t all = source + target;
    uint32_t *ids = bt_alloc_zero(bt_size_mul(2, all), sizeof(*ids));
    if (!ids)
        return bt_fail_memory(err, "poisoned tokens", all);
    for (size_t i = 0; i < all; i++) {
        ids[i] = (uint32_t)i;
        ids[all + i] = (uint32_t)all;
    }
    bt_perturbation p = { .a = a,
                          .clone = clone,
                          .fault = fault,
                          .ids = { ids, ids + source },
                          .changed = { source ? ids + all : NULL,
                                       target ? ids + all + source : NULL },
                          .examine = poison_examine };
    bauta_status status = bt_per_row_embedding(clone, &a->inputs, err);
    if (!status)
        status = bt_perturbation_run(&p, err);
    bt_free(ids);
    return status;
}

/* ---- each layer by itself ---------------------------------------------- */

typedef struct layer_attention {
    bauta_attention_kind at;
    size_t layer;
} layer_attention;

static void layer_examine(bt_perturbation *p, size_t copy, bool key_target,
                          size_t key)
{
    const layer_attention *e = p->user;
    bool target = e->at != BAUTA_ATTENTION_ENCODER;
    const bt_bit_matrix *sees =
        e->at == BAUTA_ATTENTION_CROSS
            ? &p->oracle.cross
            : bt_oracle_mask(&p->oracle, target, e->layer);
    for (size_t i = 0; i < bt_probe_inputs_side(&p->a->inputs, target)->rows;
         i++) {
        bool may = bt_bit_matrix_get(sees, i, key) ||
                   (target == key_target && i == key);
        bool same = bt_perturbation_same(p, target, e->layer + 1, copy, i);
        if (may == same)
            bt_perturbation_fault(p, target, e->layer + 1, i, key_target, key,
                                  may);
    }
}

/* Reduce the clone to one attention with equal weights: in the layers below it
 * the same attention is ablated, the layers above are removed. Cross-attention
 * sees the embedding of the source. */
static bauta_status isolate_attention(bt_model_clone *clone,
                                      const layer_attention *e,
                                      bauta_error *err)
{
    bool target = e->at != BAUTA_ATTENTION_ENCODER;
    bauta_status status = BAUTA_OK;
    for (size_t l = 0; !status && l < e->layer; l++)
        status = bt_model_clone_ablate_heads(clone, e->at, l, SIZE_MAX, err);
    if (!status)
        status = bt_model_clone_uniform_attention(clone, e->at, e->layer, err);
    bt_model_clone_set_depth(clone, target ? 0 : e->layer + 1,
                             target ? e->layer + 1 : 0);
    return status;
}

static bauta_status layer_check(bt_audit_state *a, const layer_attention *e,
                                bt_fault *fault, bauta_error *err)
{
    bt_model_clone clone;
    const bt_probe_input *sides[] = { &a->inputs.source, &a->inputs.target };
    bool key_target = e->at == BAUTA_ATTENTION_DECODER;
    uint32_t *changed = different_tokens(a, sides[key_target]);
    if (!changed)
        return bt_fail_memory(err, "other tokens", sides[key_target]->rows);
    bt_perturbation p = { .a = a,
                          .fault = fault,
                          .clone = &clone,
                          .ids = { sides[0]->ids, sides[1]->ids },
                          .examine = layer_examine,
                          .user = e };
    p.changed[key_target] = changed;
    bauta_status status = tokens_differ(sides[key_target], changed, err);
    if (!status)
        status = bt_model_clone_init(&clone, a->model, err);
    if (!status) {
        status = isolate_attention(&clone, e, err);
        if (!status)
            status = bt_perturbation_run(&p, err);
        bt_model_clone_release(&clone);
    }
    if (fault->found) {
        fault->at = e->at;
        fault->layer = e->layer;
    }
    bt_free(changed);
    return status;
}

bauta_status bt_check_layer_visibility(bt_audit_state *a, bt_model_clone *clone,
                                       bt_fault *fault, bauta_error *err)
{
    const bt_model_config *print = &clone->model.config;
    bool both = print->stacks == BT_ENCODER_DECODER;
    bauta_status status = BAUTA_OK;
    for (size_t l = 0; !status && !fault->found && l < print->encoder.layers;
         l++)
        status = layer_check(
            a, &(layer_attention){ BAUTA_ATTENTION_ENCODER, l }, fault, err);
    for (size_t l = 0; !status && !fault->found && l < print->decoder.layers;
         l++) {
        status = layer_check(
            a, &(layer_attention){ BAUTA_ATTENTION_DECODER, l }, fault, err);
        if (!status && !fault->found && both)
            status = layer_check(
                a, &(layer_attention){ BAUTA_ATTENTION_CROSS, l }, fault, err);
    }
    return status;
}
