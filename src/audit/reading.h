/* SPDX-License-Identifier: Apache-2.0 */
/* reading.h - what the stacks of a model read, packed; and sheets of it.
 *
 * A sheet is the same reading many times over in one batch, each copy a little
 * different: one pass then tries as many changes as there are copies. */
#ifndef BT_READING_H
#define BT_READING_H

#include "audit/grid.h"

/* Of one stack. count 0: the model does not have it. */
typedef struct bt_reading {
    size_t count, rows;
    size_t *lengths, *starts, *prefixes; /* (count); prefixes: or NULL */
    size_t *sequence;                    /* (rows) which one a row is of */
    uint32_t *ids, *types;               /* (rows); types: or NULL */
    bt_grid mask;                        /* (rows, rows) of the caller */
} bt_reading;

typedef struct bt_readings {
    bt_reading source, target;
    bt_grid cross; /* (rows of target, of source) of the caller */
} bt_readings;

/* Copy batches, which fit a model; NULL: none. */
bauta_status bt_readings_init(bt_readings *r, const bauta_batch *source,
                              const bauta_batch *target, bauta_error *err);
void bt_readings_release(bt_readings *r);
/* Some sequences of a reading, in any order, also more than once. */
bauta_status bt_readings_pick(bt_readings *to, const bt_readings *from,
                              const size_t *list, size_t count,
                              bauta_error *err);

/* The side that the head stands on. */
static inline const bt_reading *bt_readings_top(const bt_readings *r)
{
    return r->target.count ? &r->target : &r->source;
}

/* Where row `row` stands in its sequence. */
static inline size_t bt_reading_position(const bt_reading *r, size_t row)
{
    return row - r->starts[r->sequence[row]];
}

/* One side of a sheet. ids may be written. */
typedef struct bt_sheet_side {
    bauta_batch batch;
    size_t *lengths, *prefixes;
    uint32_t *ids, *types;
    bauta_mask *mask, *cross;
} bt_sheet_side;

typedef struct bt_sheet {
    size_t copies;
    bt_sheet_side sides[2];             /* of source and target */
    const bauta_batch *source, *target; /* NULL: the model does not read it */
} bt_sheet;

bauta_status bt_sheet_init(bt_sheet *sheet, const bt_readings *r, size_t copies,
                           bauta_error *err);
void bt_sheet_release(bt_sheet *sheet);

/* The id of a row of a copy, to be written. */
static inline uint32_t *bt_sheet_id(const bt_sheet *sheet, bool target,
                                    const bt_reading *r, size_t copy,
                                    size_t row)
{
    return &sheet->sides[target].ids[copy * r->rows + row];
}

#endif
