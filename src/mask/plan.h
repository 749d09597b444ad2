/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - a mask compiled to a block-sparse form for the kernels.
 *
 * Rows are grouped into tiles of at most `tile_rows` rows of the same origin,
 * so a tile never spans two documents. Keys are grouped into blocks of 64,
 * counted from the origin. The blocks of one origin form a grid; the grids are
 * concatenated in `blocks`, and block b of a tile is blocks[tile.grid + b].
 *
 * A tile visits runs of blocks, in order. Hidden blocks are in no run. A run is
 * either full (every row of the tile sees all 64 keys of every block, and no
 * mask code runs) or partial (a 64-bit word per block and row: bit j set means
 * that the row sees key j of the block).
 *
 *        block   0        1        2        3            tile of 4 rows
 *     row 0   ########|########|##......|........
 *     row 1   ########|########|###.....|........      run {0, 2} full
 *     row 2   ########|########|####....|........      run {2, 1} partial,
 *     row 3   ########|########|#####...|........        4 words
 *
 * A grid ends with the last key that a row of its origin sees. Its last block
 * may hold fewer than 64 keys; it is then partial, and no kernel reads past its
 * end, where the next document begins or memory ends. Grids of packed documents
 * do not overlap. Grids of origins that were combined by OR may; a key is then
 * in a block of each.
 *
 * The transposed plan lists for each block the tiles that visit it, again as
 * runs of consecutive tiles, full or one partial tile at a time. */
#ifndef BT_PLAN_H
#define BT_PLAN_H

#include "base/memory.h"
#include "mask/batch_mask.h"

enum {
    BT_BLOCK = 64,     /* keys in a block, bits in a word */
    BT_TILE_ROWS = 96, /* rows in a tile by default */
    BT_TILE_ROWS_MAX = 192
};

#define BT_FULL SIZE_MAX /* `words` of a full run, which has none */

/* Consecutive blocks of a tile. The word of block first + k and row r of the
 * tile is plan->words[words + k * tile.rows + r]. */
typedef struct bt_block_run {
    size_t first, count; /* blocks, counted within the tile's grid */
    size_t words;        /* or BT_FULL */
} bt_block_run;

typedef struct bt_tile {
    size_t row, rows; /* rows of the plan (not of the mask) */
    size_t grid;      /* first block of its grid in plan->blocks; 0 if the tile
                         sees nothing */
    size_t run, runs; /* its slice of plan->runs */
    size_t visits;    /* number of blocks in its runs: the cost of the tile */
} bt_tile;

/* Consecutive tiles that visit a block. Full: any count. Partial: count is 1
 * and row r of that tile has the word plan->words[words + r]. */
typedef struct bt_tile_run {
    size_t first, count; /* tiles */
    size_t words;        /* or BT_FULL */
} bt_tile_run;

typedef struct bt_key_block {
    size_t key;           /* first key */
    size_t keys;          /* 64, or fewer in the last block of a grid */
    size_t visit, visits; /* its slice of plan->visits */
} bt_key_block;

struct bauta_plan {
    size_t rows, keys;
    size_t key_end;  /* one past the last key that any row sees; 0: none */
    bool one_origin; /* every row with a visible key has origin 0 */
    ptrdiff_t first_position; /* the key with which row 0 is aligned, as in the
                                 mask; negative: it is before every key */
    uint64_t pairs;
    size_t tile_count, run_count, block_count, visit_count, word_count;
    bt_tile *tiles;       /* by row; includes rows that see nothing */
    bt_block_run *runs;   /* by tile, then block */
    bt_key_block *blocks; /* by grid, then key; a block inside a grid may have
                             no visits */
    bt_tile_run *visits;  /* by block, then tile */
    uint64_t *words;
};

/* bauta_plan_create() with a given tile size, 1 to BT_TILE_ROWS_MAX. */
bauta_status bt_plan_create(bauta_plan **out, const bauta_mask *mask,
                            size_t first, size_t rows, size_t tile_rows,
                            bauta_error *err);

/* ---- Decoding ----------------------------------------------------------- */

/* The plan of a decoding step: the last rows of many sequences. Each of these
 * rows is one span (batch_mask.h), so the plan is built straight from the
 * spans, without a mask and without allocating in every step. It equals the
 * plan of bt_batch_mask_create() except that it has no visits, which only the
 * backward pass needs. A test compares the two. */

/* A plan and its memory, which grows to the size of the largest step. */
typedef struct bt_decode_plan {
    bauta_plan plan;
    bt_arena memory;
} bt_decode_plan;

/* Build the plan of a mask without `extra`. A zeroed bt_decode_plan is empty,
 * and so is it after a failure. */
bauta_status bt_decode_plan_build(bt_decode_plan *out,
                                  const bt_batch_mask *mask, bauta_error *err);
void bt_decode_plan_release(bt_decode_plan *plan);

#endif
