/* SPDX-License-Identifier: Apache-2.0 */
/* tile_sort.h - puts tiles in the order in which a persistent grid takes them:
 * the longest first, so that the last ones to be finished are short; equal ones
 * as they were, so that neighbours share rows in the cache. */
#ifndef BT_TILE_SORT_H
#define BT_TILE_SORT_H

#include "bauta.h"

/* Memory for sorting, to be used again; {0} at first. */
typedef struct bt_tile_sort {
    size_t *first; /* (first_capacity) where tiles of a length begin */
    unsigned char *copy;
    size_t first_capacity, copy_capacity;
} bt_tile_sort;

/* Sort `count` tiles of `size` bytes by the int32_t at byte `length` of each.
 */
bauta_status bt_sort_tiles(bt_tile_sort *sort, void *tiles, size_t count,
                           size_t size, size_t length, bauta_error *err);
void bt_tile_sort_release(bt_tile_sort *sort);

#endif
