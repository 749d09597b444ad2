/* SPDX-License-Identifier: Apache-2.0 */
/* ahead.h - rows that will be wanted soon, fetched while a kernel computes.
 *
 * Heads lie side by side in memory, so the rows of one head are far apart and
 * the hardware does not foresee them. A kernel that is handed such a list asks
 * for a few rows between its strips: too few to fill the miss buffers, enough
 * that the next task finds its rows in the cache. No result depends on it. */
#ifndef BT_AHEAD_H
#define BT_AHEAD_H

#include <stddef.h>

enum { BT_AHEAD_PARTS = 10, BT_AHEAD_LINE = 16 /* floats in a cache line */ };

typedef struct bt_ahead {
    struct {
        const float *rows;
        size_t stride, count, columns;
    } part[BT_AHEAD_PARTS];
    size_t parts, total; /* total: rows of all parts */
    size_t part_at, row_at;
    size_t pace; /* rows for each bt_ahead_some() */
} bt_ahead;

/* Add rows to the list; what does not fit is left to chance. */
static inline void bt_ahead_add(bt_ahead *ahead, const float *rows,
                                size_t stride, size_t count, size_t columns)
{
    if (ahead->parts == BT_AHEAD_PARTS)
        return;
    ahead->part[ahead->parts].rows = rows;
    ahead->part[ahead->parts].stride = stride;
    ahead->part[ahead->parts].count = count;
    ahead->part[ahead->parts].columns = columns;
    ahead->parts++;
    ahead->total += count;
}

/* Fetch the next few rows. */
static inline void bt_ahead_some(bt_ahead *ahead)
{
    if (!ahead)
        return;
    for (size_t i = 0; i < ahead->pace && ahead->part_at < ahead->parts; i++) {
        size_t part = ahead->part_at;
        const float *row =
            ahead->part[part].rows + ahead->row_at * ahead->part[part].stride;
        for (size_t c = 0; c < ahead->part[part].columns; c += BT_AHEAD_LINE)
            __builtin_prefetch(row + c, 0, 2);
        if (++ahead->row_at == ahead->part[part].count) {
            ahead->part_at++;
            ahead->row_at = 0;
        }
    }
}

#endif
