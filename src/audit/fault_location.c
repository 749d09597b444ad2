/* SPDX-License-Identifier: Apache-2.0 */
/* fault_location.c - attention, layer and head of a fault.
 *
 * The check that found the fault runs again on clones with fewer layers: the
 * first depth at which the fault appears gives the layer. Then it runs with all
 * heads of that layer ablated but one, for each head in turn. */
#include "audit/decode_fixture.h"

#include "base/error.h"

void bt_fault_keep_first(bt_fault *fault, const bt_fault *other)
{
    const size_t a[] = { fault->target, fault->level, fault->row, fault->key };
    const size_t b[] = { other->target, other->level, other->row, other->key };
    size_t i = 0;
    while (i < BT_LEN(a) && a[i] == b[i])
        i++;
    if (!fault->found || (i < BT_LEN(a) && b[i] < a[i]))
        *fault = *other;
}

typedef struct location_search {
    bt_audit_state *a;
    bt_check_fn *check;
    size_t encoder, decoder; /* layers of the clone */
    bt_fault fault;          /* of the last run */
} location_search;

/* Ablate all heads of a layer but one, in self- and cross-attention. */
static bauta_status keep_one_head(bt_model_clone *clone,
                                  bauta_attention_kind at, size_t layer,
                                  size_t head, bauta_error *err)
{
    bool target = at != BAUTA_ATTENTION_ENCODER,
         cross = at == BAUTA_ATTENTION_CROSS;
    bauta_status status =
        bt_model_clone_ablate_heads(clone, at, layer, head, err);
    if (!status && target && clone->layers[target][layer].cross.q.w.rows)
        status = bt_model_clone_ablate_heads(
            clone, cross ? BAUTA_ATTENTION_DECODER : BAUTA_ATTENTION_CROSS,
            layer, SIZE_MAX, err);
    return status;
}

/* Run the check on a clone; s->fault.found is the result. With `head`
 * BAUTA_NO_INDEX no head is ablated. */
static bauta_status check_again(location_search *s, bauta_attention_kind at,
                                size_t layer, size_t head, bauta_error *err)
{
    bt_model_clone clone;
    uint64_t compared = s->a->compared;
    s->fault = (bt_fault)BT_FAULT_INIT;
    bauta_status status = bt_model_clone_init(&clone, s->a->model, err);
    if (status)
        return status;
    bt_model_clone_set_depth(&clone, s->encoder, s->decoder);
    if (head != BAUTA_NO_INDEX)
        status = keep_one_head(&clone, at, layer, head, err);
    if (!status)
        status = s->check(s->a, &clone, &s->fault, err);
    bt_model_clone_release(&clone);
    s->a->compared = compared; // report only what the first run compared
    return status == BAUTA_ERR_UNSUPPORTED ? BAUTA_OK : status;
}

static bauta_status check_at_depth(location_search *s, size_t encoder,
                                   size_t decoder, bauta_error *err)
{
    s->encoder = encoder;
    s->decoder = decoder;
    return check_again(s, BAUTA_ATTENTION_DECODER, 0, BAUTA_NO_INDEX, err);
}

/* The smallest depth of the decoder that shows the fault, then the smallest
 * depth of the encoder. If the encoder can be removed altogether, the fault is
 * in the decoder. */
static bauta_status layer_find(location_search *s, bt_fault *fault,
                               bauta_error *err)
{
    const bt_model_config *print = &s->a->model->store->model->config;
    size_t encoder = print->encoder.layers, decoder = print->decoder.layers;
    bauta_status status = BAUTA_OK;
    size_t d = 0, e = 0;
    for (; !status && d <= decoder; d++) {
        status = check_at_depth(s, encoder, d, err);
        if (s->fault.found)
            break;
    }
    if (status || !s->fault.found)
        return status;
    bt_fault full = s->fault;
    for (; !status && e <= encoder; e++) {
        status = check_at_depth(s, e, d, err);
        if (s->fault.found)
            break;
    }
    if (status)
        return status;
    *fault = s->fault.found ? s->fault : full;
    bool in_encoder = e > 0 && e <= encoder;
    s->encoder = in_encoder ? e : e > encoder ? encoder : 0;
    s->decoder = d;
    fault->at = in_encoder ? BAUTA_ATTENTION_ENCODER : BAUTA_ATTENTION_DECODER;
    fault->layer = in_encoder ? e - 1 : d ? d - 1 : BAUTA_NO_INDEX;
    return BAUTA_OK;
}

/* The first head that shows the fault alone. If none does, no head is named. */
static bauta_status head_find(location_search *s, bt_fault *fault,
                              bauta_error *err)
{
    const bt_model_config *print = &s->a->model->store->model->config;
    bool encoder = fault->at == BAUTA_ATTENTION_ENCODER;
    bool cross = !encoder && print->stacks == BT_ENCODER_DECODER;
    size_t heads = encoder ? print->encoder.heads : print->decoder.heads;
    for (size_t k = 0; k < (cross ? 2u : 1u); k++)
        for (size_t h = 0; h < heads; h++) {
            bauta_attention_kind at = k ? BAUTA_ATTENTION_CROSS : fault->at;
            bauta_status status = check_again(s, at, fault->layer, h, err);
            if (status)
                return status;
            if (!s->fault.found)
                continue;
            fault->at = at;
            fault->head = h;
            return BAUTA_OK;
        }
    return BAUTA_OK;
}

/* A check that compares hidden states knows the layer from the level. */
static void layer_from_level(location_search *s, bt_fault *fault)
{
    const bt_model_config *print = &s->a->model->store->model->config;
    fault->at =
        fault->target ? BAUTA_ATTENTION_DECODER : BAUTA_ATTENTION_ENCODER;
    fault->layer = fault->level ? fault->level - 1 : BAUTA_NO_INDEX;
    s->encoder = fault->target ? print->encoder.layers : fault->level;
    s->decoder = fault->target ? fault->level : print->decoder.layers;
}

bauta_status bt_fault_locate(bt_audit_state *a, bt_check_fn *check,
                             bt_fault *fault, bauta_error *err)
{
    location_search s = { .a = a, .check = check };
    bauta_status status = BAUTA_OK;
    if (check == bt_check_reachability || check == bt_check_layer_visibility)
        return BAUTA_OK; // these set the location themselves
    if (check == bt_check_nan_poison)
        s.check = bt_check_token_change; // NaN passes through an ablated head
    if (fault->level != BAUTA_NO_INDEX)
        layer_from_level(&s, fault);
    else
        status = layer_find(&s, fault, err);
    if (!status && fault->layer != BAUTA_NO_INDEX)
        status = head_find(&s, fault, err);
    if (status)
        return status;
    if (check == bt_check_decode_steps)
        return bt_fault_find_key(a, s.encoder, s.decoder, bt_chunk_size_one,
                                 fault, err);
    if (check == bt_check_chunked_prefill)
        return bt_fault_find_key(a, s.encoder, s.decoder, bt_chunk_size_mixed,
                                 fault, err);
    return BAUTA_OK;
}
