/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c - another token, or NaN, where it must not be seen. */
#include "audit/probe.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>

static const bt_reading *side_of(const bt_readings *read, bool target)
{
    return target ? &read->target : &read->source;
}

/* Look at every row of both stacks behind every layer. */
typedef void look_fn(bt_probe *p, size_t copy, bool target, size_t level,
                     size_t row, bool key_target, size_t key);

static void rows_look(bt_probe *p, size_t copy, bool key_target, size_t key,
                      look_fn *look)
{
    for (size_t s = 0; s < 2; s++)
        for (size_t l = 0; l < p->states.levels[s]; l++)
            for (size_t i = 0; i < side_of(&p->a->read, s)->rows; i++)
                look(p, copy, s, l, i, key_target, key);
}

/* ---- another token ----------------------------------------------------- */

static void token_look(bt_probe *p, size_t copy, bool target, size_t level,
                       size_t row, bool key_target, size_t key)
{
    bool same = bt_probe_same(p, target, level, copy, row);
    if (!bt_law_reaches(&p->law, target, level, row, key_target, key)) {
        if (!same)
            bt_probe_fault(p, target, level, row, key_target, key, false);
    } else if (target != key_target || row != key) {
        p->may++;
        p->did += !same;
    } else if (same) {
        bt_probe_fault(p, target, level, row, key_target, key, true);
    }
}

static void token_judge(bt_probe *p, size_t copy, bool key_target, size_t key)
{
    rows_look(p, copy, key_target, key, token_look);
}

/* Another token for every row; NULL without memory. */
static uint32_t *others_take(const bt_auditing *a, const bt_reading *r)
{
    uint32_t *others = bt_alloc_zero(r->rows, sizeof(*others));
    for (size_t i = 0; others && i < r->rows; i++)
        others[i] = bt_other_token(a, r->ids[i], i);
    return others;
}

static bauta_status tokens_differ(const bt_auditing *a, const bt_reading *r,
                                  const uint32_t *others, bauta_error *err)
{
    (void)a;
    for (size_t i = 0; i < r->rows; i++)
        if (others[i] == r->ids[i])
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "every token has the embedding of token %u",
                           (unsigned)r->ids[i]);
    return BAUTA_OK;
}

bauta_status bt_try_tokens(bt_auditing *a, bt_double *d, bt_fault *fault,
                           bauta_error *err)
{
    const bt_reading *sides[] = { &a->read.source, &a->read.target };
    uint32_t *others[] = { others_take(a, sides[0]), others_take(a, sides[1]) };
    bt_probe p = { .a = a, .d = d, .fault = fault, .judge = token_judge };
    bauta_status status = BAUTA_OK;
    if (!others[0] || !others[1])
        status = bt_fail_memory(err, "other tokens", sides[0]->rows);
    for (size_t s = 0; !status && s < 2; s++) {
        status = tokens_differ(a, sides[s], others[s], err);
        p.ids[s] = sides[s]->ids;
        p.other[s] = sides[s]->count ? others[s] : NULL;
    }
    if (!status)
        status = bt_probe_run(&p, err);
    if (!status && !fault->found && p.may && !p.did) {
        fault->found = true;
        fault->target = a->read.target.count > 0;
        snprintf(fault->detail, sizeof(fault->detail),
                 "no token changes anything that may see it");
    }
    bt_free(others[0]);
    bt_free(others[1]);
    return status;
}

/* ---- NaN --------------------------------------------------------------- */

static bool row_poisoned(const bt_probe *p, bool target, size_t level,
                         size_t copy, size_t row)
{
    const float *x = bt_probe_state(p, target, level, copy, row);
    for (size_t c = 0; c < p->states.width; c++)
        if (isnan(x[c]))
            return true;
    return false;
}

static void poison_look(bt_probe *p, size_t copy, bool target, size_t level,
                        size_t row, bool key_target, size_t key)
{
    bool may = bt_law_reaches(&p->law, target, level, row, key_target, key);
    bool is = row_poisoned(p, target, level, copy, row);
    bool same = bt_probe_same(p, target, level, copy, row);
    if (may != is || (!may && !same))
        bt_probe_fault(p, target, level, row, key_target, key, may);
}

static void poison_judge(bt_probe *p, size_t copy, bool key_target, size_t key)
{
    rows_look(p, copy, key_target, key, poison_look);
}

bauta_status bt_poison_table(bt_double *d, const bt_readings *read,
                             bauta_error *err)
{
    size_t source = read->source.rows, target = read->target.rows;
    bauta_status status = bt_double_table(d, source + target + 1, false, err);
    if (status)
        return status;
    for (size_t i = 0; i < source; i++)
        bt_double_copy(d, i, read->source.ids[i]);
    for (size_t i = 0; i < target; i++)
        bt_double_copy(d, source + i, read->target.ids[i]);
    bt_double_poison(d, source + target);
    return BAUTA_OK;
}

bauta_status bt_try_poison(bt_auditing *a, bt_double *d, bt_fault *fault,
                           bauta_error *err)
{
    size_t source = a->read.source.rows, target = a->read.target.rows;
    size_t all = source + target;
    uint32_t *ids = bt_alloc_zero(bt_size_mul(2, all), sizeof(*ids));
    if (!ids)
        return bt_fail_memory(err, "tokens that are poisoned", all);
    for (size_t i = 0; i < all; i++) {
        ids[i] = (uint32_t)i;
        ids[all + i] = (uint32_t)all;
    }
    bt_probe p = { .a = a,
                   .d = d,
                   .fault = fault,
                   .ids = { ids, ids + source },
                   .other = { source ? ids + all : NULL,
                              target ? ids + all + source : NULL },
                   .judge = poison_judge };
    bauta_status status = bt_poison_table(d, &a->read, err);
    if (!status)
        status = bt_probe_run(&p, err);
    bt_free(ids);
    return status;
}

/* ---- one layer by itself ----------------------------------------------- */

typedef struct eye {
    bauta_look_at at;
    size_t layer;
} eye;

static void sight_judge(bt_probe *p, size_t copy, bool key_target, size_t key)
{
    const eye *e = p->user;
    bool target = e->at != BAUTA_LOOK_ENCODER;
    const bt_grid *sees = e->at == BAUTA_LOOK_CROSS
                              ? &p->law.across
                              : bt_law_sees(&p->law, target, e->layer);
    for (size_t i = 0; i < side_of(&p->a->read, target)->rows; i++) {
        bool may =
            bt_grid_get(sees, i, key) || (target == key_target && i == key);
        bool same = bt_probe_same(p, target, e->layer + 1, copy, i);
        if (may == same)
            bt_probe_fault(p, target, e->layer + 1, i, key_target, key, may);
    }
}

/* A double in which only one attention of one layer passes anything on, and
 * from all that it sees alike. */
static bauta_status eye_open(bt_double *d, const eye *e, bauta_error *err)
{
    bool target = e->at != BAUTA_LOOK_ENCODER,
         cross = e->at == BAUTA_LOOK_CROSS;
    const bt_stack_print *stack =
        target ? &d->model.print.decoder : &d->model.print.encoder;
    bt_layer *layers = d->layers[target];
    bauta_status status = BAUTA_OK;
    for (size_t l = 0; !status && l < e->layer; l++)
        status =
            bt_double_silence(d, cross ? &layers[l].cross : &layers[l].self,
                              stack, SIZE_MAX, err);
    if (!status)
        status = bt_double_even(
            d, cross ? &layers[e->layer].cross : &layers[e->layer].self, err);
    // Of the source nothing but the tokens; behind the layer nothing at all.
    bt_double_cut(d, target ? 0 : e->layer + 1, target ? e->layer + 1 : 0);
    return status;
}

static bauta_status sight_at(bt_auditing *a, const eye *e, bt_fault *fault,
                             bauta_error *err)
{
    bt_double d;
    const bt_reading *sides[] = { &a->read.source, &a->read.target };
    bool key_target = e->at == BAUTA_LOOK_DECODER;
    uint32_t *others = others_take(a, sides[key_target]);
    if (!others)
        return bt_fail_memory(err, "other tokens", sides[key_target]->rows);
    bt_probe p = { .a = a,
                   .fault = fault,
                   .d = &d,
                   .ids = { sides[0]->ids, sides[1]->ids },
                   .judge = sight_judge,
                   .user = e };
    p.other[key_target] = others;
    bauta_status status = tokens_differ(a, sides[key_target], others, err);
    if (!status)
        status = bt_double_init(&d, a->model, err);
    if (!status) {
        status = eye_open(&d, e, err);
        if (!status)
            status = bt_probe_run(&p, err);
        bt_double_release(&d);
    }
    if (fault->found) {
        fault->at = e->at;
        fault->layer = e->layer;
    }
    bt_free(others);
    return status;
}

bauta_status bt_try_sight(bt_auditing *a, bt_double *d, bt_fault *fault,
                          bauta_error *err)
{
    const bt_blueprint *print = &d->model.print;
    bool both = print->stacks == BT_ENCODER_DECODER;
    bauta_status status = BAUTA_OK;
    for (size_t l = 0; !status && !fault->found && l < print->encoder.layers;
         l++)
        status = sight_at(a, &(eye){ BAUTA_LOOK_ENCODER, l }, fault, err);
    for (size_t l = 0; !status && !fault->found && l < print->decoder.layers;
         l++) {
        status = sight_at(a, &(eye){ BAUTA_LOOK_DECODER, l }, fault, err);
        if (!status && !fault->found && both)
            status = sight_at(a, &(eye){ BAUTA_LOOK_CROSS, l }, fault, err);
    }
    return status;
}
