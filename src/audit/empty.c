/* SPDX-License-Identifier: Apache-2.0 */
/* empty.c - queries that see nothing.
 *
 * Every third row is hidden from everything. It must come out as if attention
 * had not been there: as in a double whose attention is silenced. And no
 * gradient may become NaN by it. */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

enum { EVERY = 3, PROBES = 8 };

/* The caller's mask, or else all, without what the empty rows see. */
static bauta_status rows_empty(bt_grid *grid, size_t rows, size_t keys,
                               bauta_error *err)
{
    if (!grid->bits) {
        bauta_status status = bt_grid_init(grid, rows, keys, err);
        if (status)
            return status;
        memset(grid->bits, 0xff, rows * grid->words * sizeof(*grid->bits));
    }
    for (size_t i = 0; i < rows; i += EVERY)
        memset(bt_grid_row(grid, i), 0, grid->words * sizeof(*grid->bits));
    return BAUTA_OK;
}

static bauta_status all_silenced(bt_double *d, bauta_look_at at,
                                 bauta_error *err)
{
    bool target = at != BAUTA_LOOK_ENCODER;
    const bt_stack_print *stack =
        target ? &d->model.print.decoder : &d->model.print.encoder;
    bauta_status status = BAUTA_OK;
    for (size_t l = 0; !status && l < stack->layers; l++) {
        bt_layer *layer = &d->layers[target][l];
        status = bt_double_silence(
            d, at == BAUTA_LOOK_CROSS ? &layer->cross : &layer->self, stack,
            SIZE_MAX, err);
    }
    return status;
}

static void rows_compare(bt_auditing *a, bauta_look_at at,
                         const bt_states *want, const bt_states *got,
                         bt_fault *fault)
{
    bool target = at != BAUTA_LOOK_ENCODER;
    for (size_t l = 0; l < want->levels[target]; l++)
        for (size_t i = 0; i < want->rows[target]; i += EVERY) {
            bt_fault found = BT_FAULT_INIT;
            a->compared++;
            // NaN is silenced by nothing, and would be in both.
            if (memcmp(bt_states_row(want, target, l, i),
                       bt_states_row(got, target, l, i),
                       want->width * sizeof(float)) == 0 &&
                !isnan(bt_states_row(got, target, l, i)[0]))
                continue;
            found.found = true;
            found.target = target;
            found.level = l;
            found.row = i;
            bt_fault_keep(fault, &found);
            return;
        }
}

/* One attention with empty rows, forward; then the gradients. */
static bauta_status emptied(bt_auditing *a, bt_double *d, bauta_look_at at,
                            bt_fault *fault, bauta_error *err)
{
    bt_double silent;
    bt_states want = { 0 }, got = { 0 };
    size_t probes = a->probes;
    bauta_status status = bt_double_init(&silent, &d->handle, err);
    if (status)
        return status;
    // Rows that do see the source must not tell the others of it.
    if (at == BAUTA_LOOK_CROSS)
        status = all_silenced(d, BAUTA_LOOK_DECODER, err);
    if (!status && at == BAUTA_LOOK_CROSS)
        status = all_silenced(&silent, BAUTA_LOOK_DECODER, err);
    if (!status)
        status = all_silenced(&silent, at, err);
    if (!status)
        status = bt_states_of(&want, a->context, &silent, &a->read, false, err);
    if (!status)
        status = bt_states_of(&got, a->context, d, &a->read, false, err);
    if (!status)
        rows_compare(a, at, &want, &got, fault);
    bt_states_release(&want);
    bt_states_release(&got);
    bt_double_release(&silent);
    if (status || fault->found || !bt_double_learns(d))
        return status;
    a->probes = bt_size_min(probes, PROBES);
    status = bt_try_gradients(a, d, fault, err);
    a->probes = probes;
    return status;
}

static bauta_status empty_at(bt_auditing *a, bt_double *d, bauta_look_at at,
                             bt_fault *fault, bauta_error *err)
{
    bt_readings given = a->read, holes;
    bool target = at != BAUTA_LOOK_ENCODER, cross = at == BAUTA_LOOK_CROSS;
    size_t count = bt_readings_top(&given)->count;
    size_t *list = bt_alloc_zero(count, sizeof(*list));
    if (!list)
        return bt_fail_memory(err, "a list of sequences", count);
    for (size_t s = 0; s < count; s++)
        list[s] = s;
    bauta_status status = bt_readings_pick(&holes, &given, list, count, err);
    bt_free(list);
    if (status)
        return status;
    bt_reading *r = target ? &holes.target : &holes.source;
    status = rows_empty(cross ? &holes.cross : &r->mask, r->rows,
                        cross ? holes.source.rows : r->rows, err);
    a->read = holes;
    if (!status)
        status = emptied(a, d, at, fault, err);
    holes = a->read;
    a->read = given;
    bt_readings_release(&holes);
    return status;
}

bauta_status bt_try_empty(bt_auditing *a, bt_double *d, bt_fault *fault,
                          bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (a->read.source.count && d->model.print.encoder.layers)
        status = empty_at(a, d, BAUTA_LOOK_ENCODER, fault, err);
    if (!status && !fault->found && a->read.target.count)
        status = empty_at(a, d, BAUTA_LOOK_DECODER, fault, err);
    if (!status && !fault->found && a->read.target.count &&
        a->read.source.count)
        status = empty_at(a, d, BAUTA_LOOK_CROSS, fault, err);
    return status;
}
