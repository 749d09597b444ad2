/* SPDX-License-Identifier: Apache-2.0 */
/* company.c - what lies beside a sequence: others, padding, or nothing at all.
 */
#include "audit/audit.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rows that must be equal ------------------------------------------- */

/* Row `i` of `want` and row `j` of `got`, behind every layer and the head. */
static void rows_compare(bt_auditing *a, bt_fault *fault, const bt_states *want,
                         size_t i, const bt_states *got, size_t j, bool target)
{
    bool top = target == (a->read.target.count > 0);
    size_t bytes = want->width * sizeof(float);
    bt_fault found = BT_FAULT_INIT;
    found.found = true;
    found.target = target;
    found.row = i;
    for (size_t l = 0; l < want->levels[target]; l++) {
        a->compared++;
        found.level = l;
        if (memcmp(bt_states_row(want, target, l, i),
                   bt_states_row(got, target, l, j), bytes) == 0)
            continue;
        bt_fault_keep(fault, &found);
        return;
    }
    if (!top || !want->logits)
        return;
    size_t v = want->vocabulary;
    if (memcmp(want->logits + i * v, got->logits + j * v, v * sizeof(float)) ==
        0)
        return;
    snprintf(found.detail, sizeof(found.detail), "in the head");
    bt_fault_keep(fault, &found);
}

/* ---- other sequences --------------------------------------------------- */

/* Sequences `list` by themselves, against their rows of the whole. */
static bauta_status some_compare(bt_auditing *a, const bt_double *d,
                                 const bt_states *whole, const size_t *list,
                                 size_t count, bt_fault *fault,
                                 bauta_error *err)
{
    bt_readings some;
    bt_states got;
    bauta_status status = bt_readings_pick(&some, &a->read, list, count, err);
    if (status)
        return status;
    status = bt_states_of(&got, a->context, d, &some, true, err);
    for (size_t side = 0; !status && side < 2; side++) {
        const bt_reading *r = side ? &some.target : &some.source;
        const bt_reading *all = side ? &a->read.target : &a->read.source;
        for (size_t j = 0; j < r->rows; j++)
            rows_compare(a, fault, whole,
                         all->starts[list[r->sequence[j]]] +
                             bt_reading_position(r, j),
                         &got, j, side);
    }
    bt_states_release(&got);
    bt_readings_release(&some);
    return status;
}

bauta_status bt_try_company(bt_auditing *a, bt_double *d, bt_fault *fault,
                            bauta_error *err)
{
    size_t count = bt_readings_top(&a->read)->count;
    bt_states whole;
    size_t *list = bt_alloc_zero(count + 1, sizeof(*list));
    if (!list)
        return bt_fail_memory(err, "a list of sequences", count);
    bauta_status status =
        bt_states_of(&whole, a->context, d, &a->read, true, err);
    for (size_t s = 0; !status && s < count; s++)
        status = some_compare(a, d, &whole, &s, 1, fault, err);
    // In another order, and one of them twice.
    for (size_t s = 0; s < count; s++)
        list[s] = count - 1 - s;
    if (!status)
        status = some_compare(a, d, &whole, list, count + 1, fault, err);
    bt_states_release(&whole);
    bt_free(list);
    return status;
}

/* A row of padding is 0, whatever stood there. */
static void padding_compare(bt_auditing *a, bt_fault *fault,
                            const bt_states *got, size_t i, size_t row,
                            bool target)
{
    bt_fault found = BT_FAULT_INIT;
    found.found = true;
    found.target = target;
    found.row = i; // the last one before it
    snprintf(found.detail, sizeof(found.detail), "a row behind it is not 0");
    for (size_t l = 0; l < got->levels[target]; l++) {
        const float *x = bt_states_row(got, target, l, row);
        a->compared++;
        for (size_t c = 0; c < got->width; c++)
            if (x[c] != 0.0f) {
                bt_fault_keep(fault, &found);
                return;
            }
    }
}

/* ---- padding ----------------------------------------------------------- */

typedef struct padded {
    bauta_batch batch;
    uint32_t *ids, *types;
    bauta_mask *mask, *cross;
} padded;

static void padded_release(padded *p)
{
    bt_free(p->ids);
    bt_free(p->types);
    bauta_mask_free(p->mask);
    bauta_mask_free(p->cross);
}

static size_t stride_of(const bt_reading *r)
{
    size_t longest = 0;
    for (size_t s = 0; s < r->count; s++)
        longest = bt_size_max(longest, r->lengths[s]);
    return longest + 3;
}

/* Where a row lies when sequences are padded. */
static size_t padded_row(const bt_reading *r, size_t row)
{
    return r->sequence[row] * stride_of(r) + bt_reading_position(r, row);
}

/* A mask for padded rows, in which padding sees and is seen. */
static bauta_status mask_pad(bauta_mask **out, const bt_grid *from,
                             const bt_reading *rows, const bt_reading *keys,
                             bauta_error *err)
{
    bt_grid grid;
    if (!from->bits)
        return BAUTA_OK;
    bauta_status status = bt_grid_init(&grid, rows->count * stride_of(rows),
                                       keys->count * stride_of(keys), err);
    if (status)
        return status;
    memset(grid.bits, 0xff, grid.rows * grid.words * sizeof(*grid.bits));
    for (size_t i = 0; i < rows->rows; i++)
        for (size_t j = 0; j < keys->rows; j++)
            if (!bt_grid_get(from, i, j)) {
                size_t key = padded_row(keys, j);
                bt_grid_row(&grid, padded_row(rows, i))[key / 64] &=
                    ~(UINT64_C(1) << (key % 64));
            }
    status = bt_grid_mask(out, &grid, 1, err);
    bt_grid_release(&grid);
    return status;
}

static bauta_status padded_init(padded *p, const bt_readings *read, bool target,
                                bauta_error *err)
{
    const bt_reading *r = target ? &read->target : &read->source;
    size_t stride = stride_of(r), rows = r->count * stride;
    size_t first = target ? read->source.rows : 0;
    p->batch = (bauta_batch)BAUTA_BATCH_INIT;
    p->ids = bt_alloc_zero(rows, sizeof(*p->ids));
    p->types = bt_alloc_zero(rows, sizeof(*p->types));
    if (!p->ids || !p->types)
        return bt_fail_memory(err, "a padded batch", rows);
    for (size_t i = 0; i < rows; i++)
        p->ids[i] = (uint32_t)(read->source.rows + read->target.rows);
    for (size_t i = 0; i < r->rows; i++) {
        p->ids[padded_row(r, i)] = (uint32_t)(first + i);
        if (r->types)
            p->types[padded_row(r, i)] = r->types[i];
    }
    bauta_status status = mask_pad(&p->mask, &r->mask, r, r, err);
    if (!status && target)
        status = mask_pad(&p->cross, &read->cross, r, &read->source, err);
    p->batch.count = r->count;
    p->batch.lengths = r->lengths;
    p->batch.stride = stride;
    p->batch.ids = p->ids;
    p->batch.types = r->types ? p->types : NULL;
    p->batch.mask = p->mask;
    p->batch.cross = p->cross;
    p->batch.prefixes = r->prefixes;
    return status;
}

static bauta_status padded_run(bt_auditing *a, const bt_double *d,
                               const padded sides[2], const bt_states *want,
                               bt_fault *fault, bauta_error *err)
{
    const bauta_batch *source = a->read.source.count ? &sides[0].batch : NULL;
    const bauta_batch *target = a->read.target.count ? &sides[1].batch : NULL;
    bt_states got;
    bauta_status status = bt_states_init(&got, d, source, target, true, err);
    if (status)
        return status;
    status = bt_states_run(&got, a->context, d, source, target, err);
    for (size_t s = 0; !status && s < 2; s++) {
        const bt_reading *r = s ? &a->read.target : &a->read.source;
        for (size_t i = 0; i < r->rows; i++) {
            rows_compare(a, fault, want, i, &got, padded_row(r, i), s);
            if (i + 1 == r->rows || r->sequence[i + 1] != r->sequence[i])
                padding_compare(a, fault, &got, i, padded_row(r, i) + 1, s);
        }
    }
    bt_states_release(&got);
    return status;
}

/* Packed and padded with the same table, whose last row, of padding, is NaN. */
bauta_status bt_try_padding(bt_auditing *a, bt_double *d, bt_fault *fault,
                            bauta_error *err)
{
    padded sides[2] = { { .ids = NULL }, { .ids = NULL } };
    bt_readings numbered;
    bt_states want = { 0 };
    size_t count = bt_readings_top(&a->read)->count;
    size_t *list = bt_alloc_zero(count, sizeof(*list));
    if (!list)
        return bt_fail_memory(err, "a list of sequences", count);
    for (size_t s = 0; s < count; s++)
        list[s] = s;
    bauta_status status =
        bt_readings_pick(&numbered, &a->read, list, count, err);
    bt_free(list);
    if (status)
        return status;
    for (size_t i = 0; i < numbered.source.rows; i++)
        numbered.source.ids[i] = (uint32_t)i;
    for (size_t i = 0; i < numbered.target.rows; i++)
        numbered.target.ids[i] = (uint32_t)(numbered.source.rows + i);
    status = bt_poison_table(d, &a->read, err);
    if (!status)
        status = bt_states_of(&want, a->context, d, &numbered, true, err);
    for (size_t s = 0; !status && s < 2; s++)
        if (s ? a->read.target.count : a->read.source.count)
            status = padded_init(&sides[s], &a->read, s, err);
    if (!status)
        status = padded_run(a, d, sides, &want, fault, err);
    bt_states_release(&want);
    padded_release(&sides[0]);
    padded_release(&sides[1]);
    bt_readings_release(&numbered);
    return status;
}
