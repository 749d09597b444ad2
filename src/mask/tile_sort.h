/* SPDX-License-Identifier: Apache-2.0 */
/* tile_sort.h - puts tiles in the order in which a persistent grid takes them.
 *
 * Longest first: then the last ones to be finished are short. Equal ones stay
 * as they were, so that neighbours share rows in the cache. But where all tiles
 * are short, this order reads the rows that a tile sees once for every length,
 * each time after those of all other tiles, and the cache has lost them. Such
 * tiles keep the order of their rows: those that see the same ones are near
 * each other. Only the last tiles, the tail, are then longest first. */
#ifndef BT_TILE_SORT_H
#define BT_TILE_SORT_H

#include "bauta.h"

#include <stdbool.h>

/* {0}: longest first. */
typedef struct bt_tile_order {
    size_t short_length; /* by row if no tile is longer than this; of these: */
    size_t tail; /* the last tiles, which have as much length as this many of
                    the longest, are longest first */
    bool descending; /* the last row first */
} bt_tile_order;

/* Memory for sorting, to be used again; {0} at first. */
typedef struct bt_tile_sort {
    size_t *first; /* (first_capacity) where tiles of a length begin */
    unsigned char *copy;
    size_t first_capacity, copy_capacity;
    bool by_row; /* the tiles that were sorted last are */
} bt_tile_sort;

/* Sort `count` tiles of `size` bytes, which are in the order of their rows, by
 * the int32_t at byte `length` of each. Those of length 0 come last. */
bauta_status bt_sort_tiles(bt_tile_sort *sort, void *tiles, size_t count,
                           size_t size, size_t length, bt_tile_order order,
                           bauta_error *err);
void bt_tile_sort_release(bt_tile_sort *sort);

#endif
