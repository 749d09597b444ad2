/* SPDX-License-Identifier: Apache-2.0 */
/* decode_list.h - a step of decoding as the GPU kernel reads it.
 *
 * A unit is up to 16 rows of one key head: the query heads of its group, times
 * as many queries of one sequence as fit. Its keys are counted from 0 in
 *
 *     tiles      of 64 keys, a page or a part of one: what a warp reads
 *     quads      of 4 tiles, one for each warp
 *     stretches  of 8 quads, 2048 keys
 *
 * and its result is a tree over all of these that depends on the keys alone:
 * the tiles of a quad are summed in order, the quads of a stretch in a binary
 * tree, the stretches in order. What is not visible is not in the list, and
 * nothing where it would be in the tree is exact.
 *
 * An item of work is a node of that tree: a whole stretch, a half, a quarter or
 * one quad. How much of a unit is one item is therefore free: whole stretches
 * where there are enough of them to keep every multiprocessor busy, smaller
 * ones for what remains, and no bit of a row depends on it. Whoever finishes
 * the last item of a unit adds up the rest of the tree, which the unit's
 * entries describe. */
#ifndef BT_CUDA_DECODE_LIST_H
#define BT_CUDA_DECODE_LIST_H

#include "kernels/cuda/cuda.h"

enum {
    BT_DECODE_ROWS = 16, /* of a unit, at most */
    BT_QUAD = 4,         /* tiles in a quad */
    BT_LEVELS = 3,       /* of the tree in a stretch */
    BT_STRETCH = 8,      /* quads in a stretch: 2^BT_LEVELS */
    BT_STRETCH_TILES = BT_STRETCH * BT_QUAD
};

typedef struct bt_decode_tile {
    int32_t block; /* 64 keys of the pool of pages; -1: not visible */
    int32_t bits;  /* where its bits are; -1: all rows see all 64 keys */
} bt_decode_tile;

/* The same for all key heads: there are item_count * kv_heads to be done. */
typedef struct bt_decode_item {
    int32_t row, rows; /* queries of the step */
    int32_t level;     /* it is 2^level quads */
    int32_t slot;      /* where its result goes; -1: it is the unit's only item
                          and its result the output */
    int32_t unit, parts;    /* and how many items the unit has */
    int32_t entry, entries; /* the unit's slice of the entries */
    bt_decode_tile tiles[BT_STRETCH_TILES];
} bt_decode_item;

/* What a unit's tree is made of, stretch by stretch, each one complete. */
typedef struct bt_decode_entry {
    int32_t slot;         /* -1: nothing */
    int16_t first, level; /* quads [first, first + 2^level) of the stretch */
} bt_decode_entry;

typedef struct bt_decode_list {
    size_t rows, unit_rows; /* queries in all, and at most in a unit */
    size_t pages;           /* one more than the last page that is read */
    size_t tiles;           /* that are read, by each key head */
    size_t unit_count, item_count, entry_count, bits_count, slot_count;
    bt_decode_item *items;    /* (item_count) long ones first */
    bt_decode_entry *entries; /* (entry_count) by unit */
    uint64_t *bits;           /* (bits_count, unit_rows) bit j: sees key j */
} bt_decode_list;

/* Whether the rows are there and count from key 0; else a sentence. */
bauta_status bt_decode_check_rows(const bt_decode_sequence *sequence,
                                  size_t index, bauta_error *err);

/* For `group` query heads to each of `kv_heads`, and `workers` blocks of
 * threads that work at a time. */
bauta_status bt_decode_list_init(bt_decode_list *list,
                                 const bt_decode_sequence *sequences,
                                 size_t count, size_t group, size_t kv_heads,
                                 size_t page_keys, size_t workers,
                                 bauta_error *err);
void bt_decode_list_release(bt_decode_list *list);

#endif
