/* SPDX-License-Identifier: Apache-2.0 */
/* reachability.c - the masks that the library makes for a batch, and what
 * reaches what through several layers of them. Spans only; no forward pass. */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "mask/mask.h"
#include "model/layer_mask.h"

#include <string.h>

/* ---- leaks of given masks
 * --------------------------------------------------------- */

static bauta_status masks_check(const bauta_mask *const *masks, size_t layers,
                                const bauta_mask *allowed, bauta_error *err)
{
    size_t n = allowed->queries;
    for (size_t l = 0; l < layers; l++)
        BT_NEED(masks[l], err);
    for (size_t l = 0; l <= layers; l++) {
        const bauta_mask *m = l < layers ? masks[l] : allowed;
        if (m->queries != n || m->keys != n)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "mask %zu is %zu over %zu, not %zu over %zu", l,
                           m->queries, m->keys, n, n);
    }
    return BAUTA_OK;
}

/* The first pair of `mask` that `allowed` does not have. */
static bool first_leak(const bauta_mask *mask, const bauta_mask *allowed,
                       bauta_leak *leak)
{
    for (size_t i = 0; i < mask->queries; i++) {
        bt_spans row = bt_mask_spans(mask, i), may = bt_mask_spans(allowed, i);
        for (size_t s = 0, a = 0; s < row.count; s++) {
            size_t key = row.at[s].lo;
            while (a < may.count && may.at[a].hi <= key)
                a++;
            if (a < may.count && may.at[a].lo <= key)
                key = may.at[a].hi;
            if (key >= row.at[s].hi)
                continue;
            leak->query = i;
            leak->key = key;
            return true;
        }
    }
    return false;
}

/* *reach = (mask or identity) composed with *reach: one more layer, with its
 * residual connection. */
static bauta_status add_layer(bauta_mask **reach, const bauta_mask *mask,
                              bauta_error *err)
{
    bauta_mask *own = NULL, *both = NULL, *next = NULL;
    bauta_status status =
        bauta_mask_window(&own, mask->queries, mask->keys, 1, err);
    if (!status)
        status = bauta_mask_or(&both, mask, own, err);
    if (!status)
        status = bauta_mask_compose(&next, both, *reach, err);
    bauta_mask_free(own);
    bauta_mask_free(both);
    if (status)
        return status;
    bauta_mask_free(*reach);
    *reach = next;
    return BAUTA_OK;
}

bauta_status bauta_audit_masks(const bauta_mask *const *masks, size_t layers,
                               const bauta_mask *allowed, bool *leaks,
                               bauta_leak *leak, bauta_error *err)
{
    bauta_leak first = { 0 };
    BT_NEED(masks, err);
    BT_NEED(allowed, err);
    BT_NEED(leaks, err);
    bauta_status status = masks_check(masks, layers, allowed, err);
    if (status)
        return status;
    bauta_mask *reach = NULL;
    *leaks = false;
    status = bauta_mask_window(&reach, allowed->queries, allowed->keys, 1, err);
    for (size_t l = 0; !status && !*leaks && l < layers; l++) {
        first.layer = l;
        status = add_layer(&reach, masks[l], err);
        if (!status)
            *leaks = first_leak(reach, allowed, &first);
    }
    bauta_mask_free(reach);
    if (!status && *leaks && leak)
        *leak = first;
    return status;
}

/* ---- masks of a model -------------------------------------------------- */

typedef struct mask_check {
    bt_audit_state *a;
    const bt_model_config *print;
    bt_oracle oracle;
    bt_fault *fault;
} mask_check;

static void fault_record(const mask_check *s, bauta_attention_kind at,
                         size_t layer, size_t row, size_t key, bool should_see)
{
    if (s->fault->found)
        return;
    s->fault->found = true;
    s->fault->at = at;
    s->fault->layer = layer;
    s->fault->target = at != BAUTA_ATTENTION_ENCODER;
    s->fault->key_target = at == BAUTA_ATTENTION_DECODER;
    s->fault->row = row;
    s->fault->key = key;
    s->fault->should_see = should_see;
}

/* Compare a mask with the expected matrix, pair by pair. */
static void compare(const mask_check *s, const bauta_mask *mask,
                    const bt_bit_matrix *matrix, bauta_attention_kind at,
                    size_t layer)
{
    for (size_t i = 0; i < mask->queries; i++) {
        bt_spans row = bt_mask_spans(mask, i);
        for (size_t j = 0, k = 0; j < mask->keys; j++) {
            while (k < row.count && row.at[k].hi <= j)
                k++;
            bool visible = k < row.count && row.at[k].lo <= j;
            if (visible != bt_bit_matrix_get(matrix, i, j)) {
                fault_record(s, at, layer, i, j, !visible);
                return;
            }
        }
    }
    s->a->compared += (uint64_t)mask->queries * mask->keys;
}

static bt_token_axis axis_of(const bt_probe_input *r)
{
    return (bt_token_axis){ .count = r->count, .lengths = r->lengths };
}

/* Build the mask of an attention as the forward pass does. */
static bauta_status mask_create(const mask_check *s, bauta_mask **out,
                                bauta_attention_kind at, size_t layer,
                                bauta_error *err)
{
    const bt_probe_inputs *inputs = &s->a->inputs;
    const bt_probe_input *r =
        at == BAUTA_ATTENTION_ENCODER ? &inputs->source : &inputs->target;
    bool cross = at == BAUTA_ATTENTION_CROSS;
    const bt_bit_matrix *matrix = cross ? &inputs->cross : &r->mask;
    bauta_mask *extra = NULL;
    bt_batch_mask batch = { .queries = axis_of(r),
                            .keys = axis_of(cross ? &inputs->source : r),
                            .prefixes = r->prefixes };
    bauta_status status = BAUTA_OK;
    if (matrix->bits)
        status = bt_bit_matrix_to_mask(&extra, matrix, 1, err);
    batch.extra = extra;
    bt_batch_mask mask = bt_layer_mask(s->print, at, layer, &batch);
    if (!status)
        status = bt_batch_mask_create(out, &mask, err);
    bauta_mask_free(extra);
    return status;
}

/* The self-attention of a stack: each layer's mask, then the composition of all
 * layers so far. */
static bauta_status stack_check(mask_check *s, bool target, bauta_error *err)
{
    const bt_model_config *print = s->print;
    size_t layers = target ? print->decoder.layers : print->encoder.layers;
    size_t rows = target ? s->a->inputs.target.rows : s->a->inputs.source.rows;
    bauta_attention_kind at =
        target ? BAUTA_ATTENTION_DECODER : BAUTA_ATTENTION_ENCODER;
    bauta_mask *reach = NULL;
    bauta_status status = bauta_mask_window(&reach, rows, rows, 1, err);
    for (size_t l = 0; !status && l < layers; l++) {
        bauta_mask *mask = NULL;
        status = mask_create(s, &mask, at, l, err);
        if (status)
            break;
        compare(s, mask, bt_oracle_mask(&s->oracle, target, l), at, l);
        status = add_layer(&reach, mask, err);
        if (!status)
            compare(s, reach,
                    target ? &s->oracle.decoder_reach[l + 1]
                           : &s->oracle.encoder_reach[l + 1],
                    at, l);
        bauta_mask_free(mask);
    }
    bauta_mask_free(reach);
    return status;
}

static bauta_status cross_check(mask_check *s, bauta_error *err)
{
    bauta_mask *mask = NULL;
    bauta_status status = mask_create(s, &mask, BAUTA_ATTENTION_CROSS, 0, err);
    if (!status)
        compare(s, mask, &s->oracle.cross, BAUTA_ATTENTION_CROSS, 0);
    bauta_mask_free(mask);
    return status;
}

bauta_status bt_check_reachability(bt_audit_state *a, bt_model_clone *clone,
                                   bt_fault *fault, bauta_error *err)
{
    mask_check s = { .a = a, .print = &clone->model.config, .fault = fault };
    bauta_status status = bt_oracle_init(&s.oracle, s.print, &a->inputs, err);
    if (status)
        return status;
    if (a->inputs.source.count)
        status = stack_check(&s, false, err);
    if (!status && a->inputs.target.count)
        status = stack_check(&s, true, err);
    if (!status && a->inputs.source.count && a->inputs.target.count)
        status = cross_check(&s, err);
    bt_oracle_release(&s.oracle);
    return status;
}
