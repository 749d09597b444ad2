/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h - software prefetch of the next task's rows while a kernel
 * computes.
 *
 * Heads are interleaved in memory, so the rows of one head are far apart and
 * the hardware prefetcher misses them. A kernel with such a list prefetches a
 * few rows between its strips: few enough not to fill the miss buffers, and
 * enough that the next task finds its rows in the cache. No result depends on
 * it. */
#ifndef BT_PREFETCH_H
#define BT_PREFETCH_H

#include <stddef.h>

enum {
    BT_PREFETCH_RANGES = 10,
    BT_PREFETCH_LINE = 16 /* floats in a cache line */
};

typedef struct bt_prefetch {
    struct {
        const float *rows;
        size_t stride, count, columns;
    } part[BT_PREFETCH_RANGES];
    size_t parts, total; /* ranges, and rows in all of them */
    size_t part_at, row_at;
    size_t pace; /* rows per bt_prefetch_some() */
} bt_prefetch;

/* An empty list. The ranges stay uninitialised. */
static inline void bt_prefetch_init(bt_prefetch *list)
{
    list->parts = list->total = 0;
    list->part_at = list->row_at = list->pace = 0;
}

/* Add a range of rows; ignored when the list is full. */
static inline void bt_prefetch_add(bt_prefetch *list, const float *rows,
                                   size_t stride, size_t count, size_t columns)
{
    if (list->parts == BT_PREFETCH_RANGES)
        return;
    list->part[list->parts].rows = rows;
    list->part[list->parts].stride = stride;
    list->part[list->parts].count = count;
    list->part[list->parts].columns = columns;
    list->parts++;
    list->total += count;
}

/* Prefetch the next `pace` rows. */
static inline void bt_prefetch_some(bt_prefetch *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->pace && list->part_at < list->parts; i++) {
        size_t part = list->part_at;
        const float *row =
            list->part[part].rows + list->row_at * list->part[part].stride;
        for (size_t c = 0; c < list->part[part].columns; c += BT_PREFETCH_LINE)
            __builtin_prefetch(row + c, 0, 2);
        if (++list->row_at == list->part[part].count) {
            list->part_at++;
            list->row_at = 0;
        }
    }
}

#endif
