/* SPDX-License-Identifier: Apache-2.0 */
/* work_list.h - a plan as the GPU kernels read it.
 *
 * The same tiles and blocks as in mask/plan.h, in int32 and for blocks of 128
 * keys: the plan's 64-key blocks are taken in pairs, counted from the tile's
 * origin, so a row's blocks stay a matter of its origin alone. A pair is full
 * when both halves are; otherwise each row has 128 bits, bit j of them set
 * when the row sees key j of the pair. Hidden pairs are not there.
 *
 * Tiles stand in the order in which a persistent grid takes them, see
 * tile_sort.h. */
#ifndef BT_CUDA_WORKLIST_H
#define BT_CUDA_WORKLIST_H

#include "mask/bands.h"
#include "mask/tile_sort.h"

enum { BT_PAIR = 128 }; /* keys in a pair of blocks */

typedef struct bt_work_tile {
    int32_t row, rows; /* of the plan */
    int32_t run;       /* first of its runs */
    int32_t pairs;     /* that its runs have together; 0: sees nothing */
    int32_t key;       /* its rows' origin: chunks are counted from there */
    int32_t plan;      /* which one of several */
    int32_t hidden;    /* byte g: of how many of its last pairs, not of all,
                          rows 64 g to 64 g + 63 see nothing (at most 127) */
} bt_work_tile;

/* `count` consecutive pairs, the first one beginning at `key`. */
typedef struct bt_work_run {
    int32_t key, count;
    int32_t bits;   /* index of the first pair's bits; -1: full */
    int32_t halves; /* bit 2 g + h set: of each pair, rows 64 g to 64 g + 63 of
                       the tile see something of half h; -1: full */
} bt_work_run;

typedef struct bt_worklist {
    size_t rows, keys, tile_rows, chunk;
    size_t tile_count, run_count, bits_count;
    size_t empty_count;  /* tiles that see nothing: the last ones */
    bool chunked;        /* a tile sees something of several chunks */
    bt_work_tile *tiles; /* (tile_count) */
    bt_work_run *runs;   /* (run_count) by tile, then key */
    uint64_t *bits;      /* (bits_count, tile_rows, 2) shared by equal runs */
    size_t tile_capacity, run_capacity, bits_capacity; /* words of bits */
    bt_band_scan scan;
    bt_tile_sort sort;
} bt_worklist;

/* Start a list for tiles of at most `tile_rows` rows, a multiple of 64, and
 * chunks of `chunk` keys (see chunk.h). A list that was made before is used
 * again with its memory; at first it is {0}. */
bauta_status bt_worklist_begin(bt_worklist *list, size_t tile_rows,
                               size_t chunk, bauta_error *err);
/* Add the rows of plan `plan`, cut into tiles of at most `most` rows; the first
 * one is row `row` of the whole. */
bauta_status bt_worklist_add(bt_worklist *list, const bt_bands *bands,
                             size_t most, size_t row, size_t plan,
                             bauta_error *err);
/* All are there: put the tiles in order. Only tiles of one plan are added in
 * the order of their rows, and may be ordered by row. */
bauta_status bt_worklist_end(bt_worklist *list, bt_tile_order order,
                             bauta_error *err);
void bt_worklist_release(bt_worklist *list);

#endif
