/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c - the masks themselves: those that the library makes for a batch, and
 * what gets through layers of them, from spans alone. */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "mask/mask.h"
#include "model/layer_mask.h"

#include <string.h>

/* ---- any masks --------------------------------------------------------- */

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

/* *reach = what `mask` and the residual make of it. */
static bauta_status climb(bauta_mask **reach, const bauta_mask *mask,
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
        status = climb(&reach, masks[l], err);
        if (!status)
            *leaks = first_leak(reach, allowed, &first);
    }
    bauta_mask_free(reach);
    if (!status && *leaks && leak)
        *leak = first;
    return status;
}

/* ---- the masks of a model ---------------------------------------------- */

typedef struct survey {
    bt_auditing *a;
    const bt_blueprint *print;
    bt_law law;
    bt_fault *fault;
} survey;

static void fault_note(const survey *s, bauta_look_at at, size_t layer,
                       size_t row, size_t key, bool blind)
{
    if (s->fault->found)
        return;
    s->fault->found = true;
    s->fault->at = at;
    s->fault->layer = layer;
    s->fault->target = at != BAUTA_LOOK_ENCODER;
    s->fault->key_target = at == BAUTA_LOOK_DECODER;
    s->fault->row = row;
    s->fault->key = key;
    s->fault->blind = blind;
}

/* Pair by pair, for a mask is a few spans and a row of a grid a few words. */
static void compare(const survey *s, const bauta_mask *mask,
                    const bt_grid *grid, bauta_look_at at, size_t layer)
{
    for (size_t i = 0; i < mask->queries; i++) {
        bt_spans row = bt_mask_spans(mask, i);
        for (size_t j = 0, k = 0; j < mask->keys; j++) {
            while (k < row.count && row.at[k].hi <= j)
                k++;
            bool is = k < row.count && row.at[k].lo <= j;
            if (is != bt_grid_get(grid, i, j)) {
                fault_note(s, at, layer, i, j, !is);
                return;
            }
        }
    }
    s->a->compared += (uint64_t)mask->queries * mask->keys;
}

static bt_axis axis_of(const bt_reading *r)
{
    return (bt_axis){ .count = r->count, .lengths = r->lengths };
}

/* The mask that the library makes for an attention. */
static bauta_status mask_made(const survey *s, bauta_mask **out,
                              bauta_look_at at, size_t layer, bauta_error *err)
{
    const bt_readings *read = &s->a->read;
    const bt_reading *r =
        at == BAUTA_LOOK_ENCODER ? &read->source : &read->target;
    bool cross = at == BAUTA_LOOK_CROSS;
    const bt_grid *grid = cross ? &read->cross : &r->mask;
    bauta_mask *extra = NULL;
    bt_batch_mask batch = { .queries = axis_of(r),
                            .keys = axis_of(cross ? &read->source : r),
                            .prefixes = r->prefixes };
    bauta_status status = BAUTA_OK;
    if (grid->bits)
        status = bt_grid_mask(&extra, grid, 1, err);
    batch.extra = extra;
    bt_batch_mask mask = bt_layer_mask(s->print, at, layer, &batch);
    if (!status)
        status = bt_batch_mask_create(out, &mask, err);
    bauta_mask_free(extra);
    return status;
}

/* A stack of self-attention: each mask, then what gets through all of them. */
static bauta_status stack_survey(survey *s, bool target, bauta_error *err)
{
    const bt_blueprint *print = s->print;
    size_t layers = target ? print->decoder.layers : print->encoder.layers;
    size_t rows = target ? s->a->read.target.rows : s->a->read.source.rows;
    bauta_look_at at = target ? BAUTA_LOOK_DECODER : BAUTA_LOOK_ENCODER;
    bauta_mask *reach = NULL;
    bauta_status status = bauta_mask_window(&reach, rows, rows, 1, err);
    for (size_t l = 0; !status && l < layers; l++) {
        bauta_mask *mask = NULL;
        status = mask_made(s, &mask, at, l, err);
        if (status)
            break;
        compare(s, mask, bt_law_sees(&s->law, target, l), at, l);
        status = climb(&reach, mask, err);
        if (!status)
            compare(s, reach,
                    target ? &s->law.in_decoder[l + 1]
                           : &s->law.in_encoder[l + 1],
                    at, l);
        bauta_mask_free(mask);
    }
    bauta_mask_free(reach);
    return status;
}

static bauta_status across_survey(survey *s, bauta_error *err)
{
    bauta_mask *mask = NULL;
    bauta_status status = mask_made(s, &mask, BAUTA_LOOK_CROSS, 0, err);
    if (!status)
        compare(s, mask, &s->law.across, BAUTA_LOOK_CROSS, 0);
    bauta_mask_free(mask);
    return status;
}

bauta_status bt_try_reach(bt_auditing *a, bt_double *d, bt_fault *fault,
                          bauta_error *err)
{
    survey s = { .a = a, .print = &d->model.print, .fault = fault };
    bauta_status status = bt_law_init(&s.law, s.print, &a->read, err);
    if (status)
        return status;
    if (a->read.source.count)
        status = stack_survey(&s, false, err);
    if (!status && a->read.target.count)
        status = stack_survey(&s, true, err);
    if (!status && a->read.source.count && a->read.target.count)
        status = across_survey(&s, err);
    bt_law_release(&s.law);
    return status;
}
