/* SPDX-License-Identifier: Apache-2.0 */
/* reading.c - batches as an audit holds them. */
#include "audit/reading.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* `times` x `count` elements of `size` bytes, the same ones again and again;
 * NULL without memory. */
static void *repeated(const void *from, size_t count, size_t size, size_t times)
{
    size_t bytes = bt_size_mul(count, size);
    char *to = bt_alloc(bt_size_mul(bytes, times));
    for (size_t t = 0; to && bytes && t < times; t++)
        memcpy(to + t * bytes, from, bytes);
    return to;
}

/* ---- from the caller's batches ----------------------------------------- */

/* Where row `row` of a reading lies in the caller's batch. */
static size_t given_row(const bt_reading *r, const bauta_batch *b, size_t row)
{
    size_t s = r->sequence[row];
    return b->stride ? s * b->stride + bt_reading_position(r, row) : row;
}

static bool arrays_take(bt_reading *r, const bauta_batch *b)
{
    r->lengths = bt_alloc_zero(r->count, sizeof(*r->lengths));
    r->starts = bt_alloc_zero(r->count, sizeof(*r->starts));
    r->sequence = bt_alloc_zero(r->rows, sizeof(*r->sequence));
    r->ids = bt_alloc_zero(r->rows, sizeof(*r->ids));
    if (b->types)
        r->types = bt_alloc_zero(r->rows, sizeof(*r->types));
    if (b->prefixes)
        r->prefixes = repeated(b->prefixes, r->count, sizeof(*r->prefixes), 1);
    return r->lengths && r->starts && r->sequence && r->ids &&
           (r->types || !b->types) && (r->prefixes || !b->prefixes);
}

static void rows_fill(bt_reading *r, const bauta_batch *b)
{
    size_t row = 0;
    for (size_t s = 0; s < r->count; s++) {
        r->lengths[s] = b->lengths ? b->lengths[s] : b->stride;
        r->starts[s] = row;
        for (size_t t = 0; t < r->lengths[s]; t++, row++) {
            r->sequence[row] = s;
            size_t from = given_row(r, b, row);
            r->ids[row] = b->ids[from];
            if (r->types)
                r->types[row] = b->types[from];
        }
    }
}

/* A mask of the caller's rows, by the rows of readings. */
static bauta_status mask_take(bt_grid *to, const bauta_mask *mask,
                              const bt_reading *queries,
                              const bauta_batch *given, const bt_reading *keys,
                              const bauta_batch *given_keys, bauta_error *err)
{
    if (!mask)
        return BAUTA_OK;
    bauta_status status = bt_grid_init(to, queries->rows, keys->rows, err);
    for (size_t i = 0; !status && i < queries->rows; i++)
        for (size_t j = 0; j < keys->rows; j++)
            if (bauta_mask_visible(mask, given_row(queries, given, i),
                                   given_row(keys, given_keys, j)))
                bt_grid_set(to, i, j);
    return status;
}

static bauta_status reading_init(bt_reading *r, const bauta_batch *b,
                                 bauta_error *err)
{
    if (!b)
        return BAUTA_OK;
    r->count = b->count;
    for (size_t s = 0; s < b->count; s++)
        r->rows += b->lengths ? b->lengths[s] : b->stride;
    if (!arrays_take(r, b))
        return bt_fail_memory(err, "the batch of an audit", r->rows);
    rows_fill(r, b);
    return mask_take(&r->mask, b->mask, r, b, r, b, err);
}

bauta_status bt_readings_init(bt_readings *r, const bauta_batch *source,
                              const bauta_batch *target, bauta_error *err)
{
    *r = (bt_readings){ 0 };
    bauta_status status = reading_init(&r->source, source, err);
    if (!status)
        status = reading_init(&r->target, target, err);
    if (!status && source && target)
        status = mask_take(&r->cross, target->cross, &r->target, target,
                           &r->source, source, err);
    if (status)
        bt_readings_release(r);
    return status;
}

static void reading_release(bt_reading *r)
{
    bt_free(r->lengths);
    bt_free(r->starts);
    bt_free(r->prefixes);
    bt_free(r->sequence);
    bt_free(r->ids);
    bt_free(r->types);
    bt_grid_release(&r->mask);
}

void bt_readings_release(bt_readings *r)
{
    reading_release(&r->source);
    reading_release(&r->target);
    bt_grid_release(&r->cross);
    *r = (bt_readings){ 0 };
}

/* ---- some of them ------------------------------------------------------ */

/* Which row of `from` each row of `to` is. */
static size_t picked_row(const bt_reading *to, const bt_reading *from,
                         const size_t *list, size_t row)
{
    return from->starts[list[to->sequence[row]]] + bt_reading_position(to, row);
}

static bauta_status grid_pick(bt_grid *grid, const bt_grid *from,
                              const bt_reading *to, const bt_reading *of,
                              const bt_reading *keys, const bt_reading *of_keys,
                              const size_t *list, bauta_error *err)
{
    if (!from->bits)
        return BAUTA_OK;
    bauta_status status = bt_grid_init(grid, to->rows, keys->rows, err);
    for (size_t i = 0; !status && i < to->rows; i++)
        for (size_t j = 0; j < keys->rows; j++)
            if (bt_grid_get(from, picked_row(to, of, list, i),
                            picked_row(keys, of_keys, list, j)))
                bt_grid_set(grid, i, j);
    return status;
}

static bauta_status reading_pick(bt_reading *to, const bt_reading *from,
                                 const size_t *list, size_t count,
                                 bauta_error *err)
{
    bauta_batch like = BAUTA_BATCH_INIT;
    if (!from->count)
        return BAUTA_OK;
    to->count = count;
    for (size_t s = 0; s < count; s++)
        to->rows += from->lengths[list[s]];
    like.types = from->types;
    if (!arrays_take(to, &like))
        return bt_fail_memory(err, "the batch of an audit", to->rows);
    if (from->prefixes)
        to->prefixes = bt_alloc_zero(count, sizeof(*to->prefixes));
    if (from->prefixes && !to->prefixes)
        return bt_fail_memory(err, "the batch of an audit", count);
    size_t row = 0;
    for (size_t s = 0; s < count; s++) {
        to->starts[s] = row;
        to->lengths[s] = from->lengths[list[s]];
        if (to->prefixes)
            to->prefixes[s] = from->prefixes[list[s]];
        for (size_t t = 0; t < to->lengths[s]; t++, row++) {
            to->sequence[row] = s;
            to->ids[row] = from->ids[from->starts[list[s]] + t];
            if (to->types)
                to->types[row] = from->types[from->starts[list[s]] + t];
        }
    }
    return grid_pick(&to->mask, &from->mask, to, from, to, from, list, err);
}

bauta_status bt_readings_pick(bt_readings *to, const bt_readings *from,
                              const size_t *list, size_t count,
                              bauta_error *err)
{
    *to = (bt_readings){ 0 };
    bauta_status status =
        reading_pick(&to->source, &from->source, list, count, err);
    if (!status)
        status = reading_pick(&to->target, &from->target, list, count, err);
    if (!status)
        status = grid_pick(&to->cross, &from->cross, &to->target, &from->target,
                           &to->source, &from->source, list, err);
    if (status)
        bt_readings_release(to);
    return status;
}

/* ---- sheets ------------------------------------------------------------ */

static bauta_status side_init(bt_sheet_side *side, const bt_reading *r,
                              const bt_grid *cross, size_t copies,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    side->lengths = repeated(r->lengths, r->count, sizeof(size_t), copies);
    side->ids = repeated(r->ids, r->rows, sizeof(uint32_t), copies);
    if (r->types)
        side->types = repeated(r->types, r->rows, sizeof(uint32_t), copies);
    if (r->prefixes)
        side->prefixes =
            repeated(r->prefixes, r->count, sizeof(size_t), copies);
    if (!side->lengths || !side->ids || (r->types && !side->types) ||
        (r->prefixes && !side->prefixes))
        return bt_fail_memory(err, "the sheets of an audit", r->rows * copies);
    if (r->mask.bits)
        status = bt_grid_mask(&side->mask, &r->mask, copies, err);
    if (!status && cross->bits)
        status = bt_grid_mask(&side->cross, cross, copies, err);
    side->batch = (bauta_batch)BAUTA_BATCH_INIT;
    side->batch.count = r->count * copies;
    side->batch.lengths = side->lengths;
    side->batch.ids = side->ids;
    side->batch.types = side->types;
    side->batch.mask = side->mask;
    side->batch.cross = side->cross;
    side->batch.prefixes = side->prefixes;
    return status;
}

bauta_status bt_sheet_init(bt_sheet *sheet, const bt_readings *r, size_t copies,
                           bauta_error *err)
{
    const bt_grid none = { 0 };
    bauta_status status = BAUTA_OK;
    *sheet = (bt_sheet){ .copies = copies };
    if (r->source.count) {
        status = side_init(&sheet->sides[0], &r->source, &none, copies, err);
        sheet->source = &sheet->sides[0].batch;
    }
    if (!status && r->target.count) {
        status =
            side_init(&sheet->sides[1], &r->target, &r->cross, copies, err);
        sheet->target = &sheet->sides[1].batch;
    }
    if (status)
        bt_sheet_release(sheet);
    return status;
}

void bt_sheet_release(bt_sheet *sheet)
{
    for (size_t i = 0; i < BT_LEN(sheet->sides); i++) {
        bt_sheet_side *side = &sheet->sides[i];
        bt_free(side->lengths);
        bt_free(side->prefixes);
        bt_free(side->ids);
        bt_free(side->types);
        bauta_mask_free(side->mask);
        bauta_mask_free(side->cross);
    }
    *sheet = (bt_sheet){ 0 };
}
