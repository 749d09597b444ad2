/* SPDX-License-Identifier: Apache-2.0 */
/* loop_list.h - a plan as the backward kernels read it.
 *
 * In a kernel a tile of rows of one side is stationary, and it loops over the
 * other side in steps of 64 rows: for dQ over keys, for dK and dV over queries.
 * Each side has a list of its own, of the same form. The rows of a tile are
 * divided into groups of 64. A group skips steps of which it sees nothing, and
 * a step of which it sees everything needs no mask. For other steps each row of
 * the tile has a word: bit j set, it and row j of the step see each other.
 *
 * Steps do not depend on tiles. Keys are cut from the origin, as the plan's
 * blocks are; queries from the first row of an origin that sees something. So
 * what is summed over steps has bits that are a matter of the document alone,
 * however the plan is cut and whatever lies before the document.
 *
 * Dense origins (bt_bands_mark_dense) are for a kernel that makes all gradients
 * at once: their tiles of keys also add to the gradients of the queries of each
 * step that they visit, one after the other: in the order of the keys, but in
 * passes that leave tiles out. A visit's rank is the number of tiles that add
 * to the step before it; and a tile follows all those that it waits for. They
 * have no tiles of queries. The tiles of some of them are split: query heads
 * that share a key head are summed apart. */
#ifndef BT_CUDA_LOOP_LIST_H
#define BT_CUDA_LOOP_LIST_H

#include "mask/bands.h"
#include "mask/tile_sort.h"

enum { BT_STEP = 64, BT_STEP_GROUPS = 3 /* at most, in a tile */ };

/* Tiles of a pass that follow each other begin at least this many keys apart.
 * The kernel streams queries downwards, and a tile follows the one before it at
 * a distance of about 1.6 steps. In a causal document the follower, which is
 * shorter, ends first, and the tiles that take the places of both are apart by
 * the difference of lengths less this distance. That must be at least the
 * distance again, or all that follow wait a little longer than the one before.
 */
enum { BT_PASS_KEYS = 192 };

/* Flags of a step: bit g, group g of the tile sees something of it; bit
 * BT_STEP_PARTIAL + g, but not everything. */
enum { BT_STEP_PARTIAL = 8 };

typedef struct bt_loop_tile {
    int32_t row, rows;
    int32_t run, runs; /* its slice of the runs */
    int32_t steps;     /* that its runs have together; 0: sees nothing */
    int32_t visit;     /* index of its first step's rank; over queries only */
    int32_t pass;      /* of the dense ones; over queries only */
    int32_t order; /* highest first: dense ones, of these the ones that are not
                      split, by pass, then those of the most steps, except to
                      keep ranks in order */
} bt_loop_tile;

/* `count` consecutive steps with the same flags. */
typedef struct bt_loop_run {
    int32_t row;
    int32_t padded_row; /* row in a numbering in which every step has 64 rows */
    int32_t count;
    int32_t flags;
    int32_t bits; /* index of the first step's words; -1: partial for none */
} bt_loop_run;

/* Rows of a step; step s is at places 64 s to 64 s + 63. */
typedef struct bt_loop_step {
    int32_t row, rows;
} bt_loop_step;

typedef struct bt_loop_list {
    size_t tile_rows;
    size_t tile_count, run_count, bits_count, step_count;
    size_t empty_count;      /* tiles that see nothing: the last ones */
    bt_loop_tile *tiles;     /* (tile_count) by order, then row; or by row */
    bt_loop_run *runs;       /* (run_count) by tile, then row */
    uint64_t *bits;          /* (bits_count, tile_rows) shared by equal runs */
    bt_loop_step *step_list; /* (step_count) steps over queries */
    size_t gap_count;
    bt_loop_step *gaps; /* (gap_count) queries that are in no step */
    size_t visit_count;
    size_t dense_count;  /* tiles over queries: the first ones */
    size_t split_count;  /* the last ones of these */
    size_t dense_visits; /* of theirs */
    size_t chain_count;  /* of them wait for none: documents, mostly */
    int32_t *ranks; /* (visit_count) if there are any; by tile, then step */
    int32_t *step_visits; /* (step_count) likewise: of dense tiles. As many
                             numbers of scratch memory follow */
    size_t dense_step_count;
    int32_t *dense_steps; /* (dense_step_count) indices of their steps */
    size_t tile_capacity, run_capacity, bits_capacity; /* words of bits */
    size_t step_capacity, gap_capacity, rank_capacity, dense_step_capacity;
    size_t step_visit_capacity;
    bt_band_scan scan;
    bt_tile_sort sort;
} bt_loop_list;

/* Tiles of queries that loop over keys, but for those of dense origins: those
 * of the plan, of at most `most` rows, in pieces where they have more than
 * `tile_rows`. A list that was made before is made anew in its memory; at first
 * it is {0}. */
bauta_status bt_loop_list_over_keys(bt_loop_list *list, const bt_bands *bands,
                                    size_t most, size_t tile_rows,
                                    bt_tile_order order, bauta_error *err);

/* Tiles of keys that loop over queries. Every key is in one tile, also one
 * that nobody sees. Where there are dense ones, none are ordered by row. */
bauta_status bt_loop_list_over_queries(bt_loop_list *list,
                                       const bt_bands *bands, size_t tile_rows,
                                       bt_tile_order order, bauta_error *err);

void bt_loop_list_release(bt_loop_list *list);

#endif
