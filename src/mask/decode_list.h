/* SPDX-License-Identifier: Apache-2.0 */
/* decode_list.h - a step of decoding as the GPU kernel reads it.
 *
 * A unit is up to 16 rows that read the same keys: the query heads of one key
 * head (where there are more than 16, some of them) times as many queries of
 * one sequence as fit. Its keys are counted from 0 in
 *
 *     tiles    of 64 keys, a page or a part of one
 *     chunks   of BT_CHUNK keys, see chunk.h
 *
 * and an item of work is one chunk of one unit. A chunk's result depends on
 * nothing but the chunk, and whoever finishes the last item of a unit merges
 * the unit's chunks in order. Chunks that no row of the unit sees are not in
 * the list, and tiles that none sees are not read: where they would be, nothing
 * is exact. */
#ifndef BT_CUDA_DECODE_LIST_H
#define BT_CUDA_DECODE_LIST_H

#include "mask/decode_sequence.h"

enum {
    BT_DECODE_ROWS = 16, /* of a unit, at most */
    BT_CHUNK_TILES = 64  /* of a chunk, at most */
};

typedef struct bt_decode_tile {
    int32_t block; /* 64 keys of the pool of pages; -1: not visible */
    int32_t bits;  /* where its bits are; -1: all rows see all 64 keys */
} bt_decode_tile;

/* The same for all key heads, and so are its tiles, chunk_tiles of them. */
typedef struct bt_decode_item {
    int32_t row, rows;   /* queries of the step */
    int32_t unit, parts; /* and how many items the unit has; 1: the result is
                            the output */
    int32_t slot, first; /* where its result goes, and that of the unit's first
                            item, of which the others follow */
    int32_t tiles;       /* that are visible */
    int32_t key;         /* its first one: that of the chunk */
    int32_t old_tiles;   /* of the chunk, from its first one on: their keys
                            precede those of the step's new tokens */
} bt_decode_item;

typedef struct bt_decode_list {
    size_t rows, unit_rows; /* queries in all, and at most in a unit */
    size_t chunk_tiles;     /* in a chunk */
    size_t pages;           /* one more than the last page that is read */
    size_t tile_count;      /* tiles that are read, by each key head */
    size_t unit_count, item_count, bits_count;
    bt_decode_item *items; /* (item_count) long ones first */
    bt_decode_tile *tiles; /* (item_count, chunk_tiles) */
    uint64_t *bits;        /* (bits_count, unit_rows) bit j: sees key j */
} bt_decode_list;

/* Whether the rows are there and count from key 0; else a sentence. */
bauta_status bt_decode_check_rows(const bt_decode_sequence *sequence,
                                  size_t index, bauta_error *err);

/* How many units the query heads of one key head are divided into. */
static inline size_t bt_decode_head_splits(size_t group)
{
    return (group + BT_DECODE_ROWS - 1) / BT_DECODE_ROWS;
}

/* For `group` query heads to a key head and chunks of `chunk` keys. Sequences
 * of more than `most` rows are not in the list, but their rows are counted. */
bauta_status bt_decode_list_init(bt_decode_list *list,
                                 const bt_decode_sequence *sequences,
                                 size_t count, size_t most, size_t group,
                                 size_t page_keys, size_t chunk,
                                 bauta_error *err);
void bt_decode_list_release(bt_decode_list *list);

#endif
