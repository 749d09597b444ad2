/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - where a fault comes from.
 *
 * A model is cut shorter and shorter: the layer with which the fault first
 * appears is the one. Then the heads of that layer are silenced but one at a
 * time. Both go through the trial that found the fault, on doubles. */
#include "audit/stage.h"

typedef struct place {
    bt_auditing *a;
    bt_trial *trial;
    size_t encoder, decoder; /* layers of the double */
    bt_fault fault;          /* of the last trial */
} place;

static bauta_status choose(bt_double *d, bauta_look_at at, size_t layer,
                           size_t head, bauta_error *err)
{
    bool target = at != BAUTA_LOOK_ENCODER, cross = at == BAUTA_LOOK_CROSS;
    const bt_stack_print *stack =
        target ? &d->model.print.decoder : &d->model.print.encoder;
    bt_layer *l = &d->layers[target][layer];
    bauta_status status =
        bt_double_silence(d, cross ? &l->cross : &l->self, stack, head, err);
    if (!status && target && l->cross.q.w.rows)
        status = bt_double_silence(d, cross ? &l->self : &l->cross, stack,
                                   SIZE_MAX, err);
    return status;
}

/* Try a double of some layers; *fault.found tells. `head` BAUTA_NOWHERE: with
 * all heads. */
static bauta_status again(place *p, bauta_look_at at, size_t layer, size_t head,
                          bauta_error *err)
{
    bt_double d;
    uint64_t compared = p->a->compared;
    p->fault = (bt_fault)BT_FAULT_INIT;
    bauta_status status = bt_double_init(&d, p->a->model, err);
    if (status)
        return status;
    bt_double_cut(&d, p->encoder, p->decoder);
    if (head != BAUTA_NOWHERE)
        status = choose(&d, at, layer, head, err);
    if (!status)
        status = p->trial(p->a, &d, &p->fault, err);
    bt_double_release(&d);
    p->a->compared = compared; // it counts what the check compared
    return status == BAUTA_ERR_UNSUPPORTED ? BAUTA_OK : status;
}

static bauta_status with_layers(place *p, size_t encoder, size_t decoder,
                                bauta_error *err)
{
    p->encoder = encoder;
    p->decoder = decoder;
    return again(p, BAUTA_LOOK_DECODER, 0, BAUTA_NOWHERE, err);
}

/* The first depth of the decoder, then, if it is the encoder's fault, that of
 * the encoder. */
static bauta_status layer_find(place *p, bt_fault *fault, bauta_error *err)
{
    const bt_blueprint *print = &p->a->model->folder->model->print;
    size_t encoder = print->encoder.layers, decoder = print->decoder.layers;
    bauta_status status = BAUTA_OK;
    bt_fault full = *fault;
    size_t d = 0, e = 0;
    for (; !status && d <= decoder; d++) {
        status = with_layers(p, encoder, d, err);
        if (p->fault.found)
            break;
    }
    if (status || !p->fault.found)
        return status;
    full = p->fault;
    for (; !status && e <= encoder; e++) {
        status = with_layers(p, e, d, err);
        if (p->fault.found)
            break;
    }
    if (status)
        return status;
    *fault = p->fault.found ? p->fault : full;
    bool blames = e > 0 && e <= encoder;
    p->encoder = blames ? e : e > encoder ? encoder : 0;
    p->decoder = d;
    fault->at = blames ? BAUTA_LOOK_ENCODER : BAUTA_LOOK_DECODER;
    fault->layer = blames ? e - 1 : d ? d - 1 : BAUTA_NOWHERE;
    return BAUTA_OK;
}

/* Which heads of which attention; left as it was where no head alone has it. */
static bauta_status head_find(place *p, bt_fault *fault, bauta_error *err)
{
    const bt_blueprint *print = &p->a->model->folder->model->print;
    bool encoder = fault->at == BAUTA_LOOK_ENCODER;
    bool cross = !encoder && print->stacks == BT_ENCODER_DECODER;
    size_t heads = encoder ? print->encoder.heads : print->decoder.heads;
    for (size_t k = 0; k < (cross ? 2u : 1u); k++)
        for (size_t h = 0; h < heads; h++) {
            bauta_look_at at = k ? BAUTA_LOOK_CROSS : fault->at;
            bauta_status status = again(p, at, fault->layer, h, err);
            if (status)
                return status;
            if (!p->fault.found)
                continue;
            fault->at = at;
            fault->head = h;
            return BAUTA_OK;
        }
    return BAUTA_OK;
}

/* Where hidden states were compared, the level is the layer. */
static void level_take(place *p, bt_fault *fault)
{
    const bt_blueprint *print = &p->a->model->folder->model->print;
    fault->at = fault->target ? BAUTA_LOOK_DECODER : BAUTA_LOOK_ENCODER;
    fault->layer = fault->level ? fault->level - 1 : BAUTA_NOWHERE;
    p->encoder = fault->target ? print->encoder.layers : fault->level;
    p->decoder = fault->target ? fault->level : print->decoder.layers;
}

bauta_status bt_fault_place(bt_auditing *a, bt_trial *trial, bt_fault *fault,
                            bauta_error *err)
{
    place p = { .a = a, .trial = trial };
    bauta_status status = BAUTA_OK;
    if (trial == bt_try_reach || trial == bt_try_sight)
        return BAUTA_OK; // it knows
    if (trial == bt_try_poison)
        p.trial = bt_try_tokens; // NaN times a silenced head is NaN
    if (fault->level != BAUTA_NOWHERE)
        level_take(&p, fault);
    else
        status = layer_find(&p, fault, err);
    if (!status && fault->layer != BAUTA_NOWHERE)
        status = head_find(&p, fault, err);
    if (!status && (trial == bt_try_steps || trial == bt_try_pieces))
        status = bt_key_find(a, p.encoder, p.decoder,
                             trial == bt_try_steps ? bt_piece_single
                                                   : bt_piece_several,
                             fault, err);
    return status;
}
