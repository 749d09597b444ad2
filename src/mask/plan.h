/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - a mask compiled for the kernels.
 *
 * Rows are cut into tiles of at most `tile_rows` rows with one origin; a tile
 * never straddles a document. Keys are cut into blocks of 64, counted from the
 * origin. The blocks of one origin are a grid; grids lie one behind the other
 * in `blocks`, and a tile's block b is blocks[tile.grid + b].
 *
 * A tile visits runs of blocks, in order. Hidden blocks are in no run; a run is
 * either full (every row of the tile sees all 64 keys of every block: no mask
 * code runs) or partial (a 64-bit word for each block and row; bit j set: the
 * row sees key j of the block).
 *
 *        block   0        1        2        3            tile of 4 rows
 *     row 0   ########|########|##......|........
 *     row 1   ########|########|###.....|........      run {0, 2} full
 *     row 2   ########|########|####....|........      run {2, 1} partial,
 *     row 3   ########|########|#####...|........        4 words
 *
 * A grid ends with the last key that a row of its origin sees. So its last
 * block may hold fewer than 64 keys and is then partial, and no kernel needs
 * to read a key that lies behind, be it of the next document or not there.
 * Grids of packed documents do not overlap; grids of origins that were mixed
 * by OR may, and a key is then in a block of each.
 *
 * The transposed plan says for each block which tiles visit it, again as runs
 * of consecutive tiles, full or one partial tile at a time. */
#ifndef BT_PLAN_H
#define BT_PLAN_H

#include "bauta.h"

enum {
    BT_BLOCK = 64,     /* keys in a block, bits in a word */
    BT_TILE_ROWS = 96, /* rows in a tile, unless a test asks otherwise */
    BT_TILE_ROWS_MAX = 192
};

#define BT_FULL SIZE_MAX /* `words` of a run that needs none */

/* Consecutive blocks of a tile. Word of block first + k and row r of the tile:
 * plan->words[words + k * tile.rows + r]. */
typedef struct bt_run {
    size_t first, count; /* blocks, counted within the tile's grid */
    size_t words;        /* or BT_FULL */
} bt_run;

typedef struct bt_tile {
    size_t row, rows; /* rows of the plan (not of the mask) */
    size_t grid;      /* first block of its grid in plan->blocks; 0 in a tile
                         that sees nothing */
    size_t run, runs; /* its slice of plan->runs */
    size_t visits;    /* blocks in its runs: the cost of the tile */
} bt_tile;

/* Consecutive tiles that visit a block. Full: any count. Partial: count is 1
 * and row r of that tile has the word plan->words[words + r]. */
typedef struct bt_visit {
    size_t first, count; /* tiles */
    size_t words;        /* or BT_FULL */
} bt_visit;

typedef struct bt_key_block {
    size_t key;           /* first key */
    size_t keys;          /* 64, or fewer in the last block of a grid, which
                             ends with the last key that a row of it sees */
    size_t visit, visits; /* its slice of plan->visits */
} bt_key_block;

struct bauta_plan {
    size_t rows, keys;
    size_t key_end;  /* behind the last key that any row sees; 0: none */
    bool one_origin; /* every row with a visible key has origin 0 */
    uint64_t pairs;
    size_t tile_count, run_count, block_count, visit_count, word_count;
    bt_tile *tiles;       /* by row; rows that see nothing are in tiles too */
    bt_run *runs;         /* by tile, then block */
    bt_key_block *blocks; /* by grid, then key; some in the middle of a grid
                             may have no visits */
    bt_visit *visits;     /* by block, then tile */
    uint64_t *words;
};

/* bauta_plan_create with another tile size, 1 to BT_TILE_ROWS_MAX. */
bauta_status bt_plan_create(bauta_plan **out, const bauta_mask *mask,
                            size_t first, size_t rows, size_t tile_rows,
                            bauta_error *err);

#endif
