/* SPDX-License-Identifier: Apache-2.0 */
/* work_list.h - a plan as the GPU kernels read it.
 *
 * The same tiles and blocks as in mask/plan.h, in int32 and for blocks of 128
 * keys: the plan's 64-key blocks are taken in pairs, counted from the tile's
 * origin, so a row's blocks stay a matter of its origin alone. A pair is full
 * when both halves are; otherwise each row has 128 bits, bit j of them set
 * when the row sees key j of the pair. Hidden pairs are not there.
 *
 * Tiles stand longest first, which is the order in which a persistent grid
 * takes them: the last ones to be finished are then short. */
#ifndef BT_CUDA_WORKLIST_H
#define BT_CUDA_WORKLIST_H

#include "bauta.h"

enum { BT_PAIR = 128 }; /* keys in a pair of blocks */

typedef struct bt_work_tile {
    int32_t row, rows; /* of the plan */
    int32_t run;       /* first of its runs */
    int32_t pairs;     /* that its runs have together; 0: sees nothing */
    int32_t key;       /* its rows' origin: chunks are counted from there */
    int32_t plan;      /* which one of several */
} bt_work_tile;

/* `count` consecutive pairs, the first one beginning at `key`. */
typedef struct bt_work_run {
    int32_t key, count;
    int32_t bits;   /* index of the first pair's bits; -1: full */
    int32_t halves; /* bit 2 g + h set: of each pair, rows 64 g to 64 g + 63 of
                       the tile see something of half h; -1: full */
} bt_work_run;

typedef struct bt_worklist {
    size_t rows, keys, tile_rows;
    size_t tile_count, run_count, bits_count;
    size_t empty_count;  /* tiles that see nothing: the last ones */
    bool chunked;        /* a tile sees something of several chunks */
    bt_work_tile *tiles; /* (tile_count) */
    bt_work_run *runs;   /* (run_count) by tile, then key */
    uint64_t *bits;      /* (bits_count, tile_rows, 2) */
} bt_worklist;

/* The list of several plans, whose first rows are `rows` of the whole. For
 * chunks of `chunk` keys, see chunk.h. Fails when a tile of a plan has more
 * than `tile_rows` rows. */
bauta_status bt_worklist_init(bt_worklist *list, const bauta_plan *const *plans,
                              const size_t *rows, size_t count,
                              size_t tile_rows, size_t chunk, bauta_error *err);
void bt_worklist_release(bt_worklist *list);

#endif
