/* SPDX-License-Identifier: Apache-2.0 */
/* bands.h - some rows of a mask as bands, from which the GPU's lists are made.
 *
 * A list is made of tiles of rows (or keys) and of what each sees of the other
 * side, in blocks of 64. Within a band that follows from the band's first and
 * last row, whatever lies between. So the time for a list depends on its tiles
 * and on the bands, not on the rows; and where a tile sees some of a block, the
 * bits that say what are described by a few numbers (a bt_bit_shape). Equal
 * shapes share their bits: of a causal mask there is one diagonal. */
#ifndef BT_BANDS_H
#define BT_BANDS_H

#include "mask/mask.h"

/* Bands of one origin that see something: a document, mostly. */
typedef struct bt_origin_group {
    size_t band, band_end;
    size_t key,
        key_end; /* the origin, and one past the last key that is seen */
    size_t row,
        row_end;  /* from the first row that sees something to the last */
    size_t step;  /* index of its first step of 64 rows */
    bool repeats; /* it directly follows another one and is the same, moved */
    bool dense, split; /* see bt_bands_mark_dense() */
} bt_origin_group;

/* Memory that grows and is used again, here and below: a list that is made anew
 * allocates nothing once it has been as large. */
typedef struct bt_bands {
    size_t rows, keys;
    size_t count;
    bt_band *at; /* (count) rows are counted from the first one */
    bt_band_span *spans;
    size_t origin_count;
    bt_origin_group *origins; /* (origin_count) */
    size_t capacity, span_capacity, origin_capacity;
} bt_bands;

/* Rows [first, first + rows) of a mask. Rows of a mask that has no bands are
 * joined to bands where they follow the rule. */
bauta_status bt_bands_read(bt_bands *bands, const bauta_mask *mask,
                           size_t first, size_t rows, bauta_error *err);
void bt_bands_release(bt_bands *bands);

/* Mark the origins whose keys are seen by `queries` queries or more on average
 * and not from another origin. That is decided by all rows of the mask,
 * `whole`, of which `bands` may be some: it is a matter of the document alone.
 * Of these, also mark those to be split, which have `split_rows` queries or
 * more (SIZE_MAX: none are), not all of which see all keys. */
void bt_bands_mark_dense(bt_bands *bands, const bt_bands *whole, size_t queries,
                         size_t split_rows);

/* ---- Tiles of rows ------------------------------------------------------- */

/* At most `most` rows of one origin. Rows that see nothing fit into any tile.
 * As in mask/plan.h. */
typedef struct bt_row_tile {
    size_t row, rows;
    size_t band, band_end; /* the bands that have rows of it */
    size_t origin;         /* if it sees something */
    bool sees;
    size_t next_origin; /* none before it has rows in later tiles */
} bt_row_tile;

/* The next tile; {0} is before the first one. False: there is none. */
bool bt_row_tile_next(bt_row_tile *tile, const bt_bands *bands, size_t most);

/* The origin whose first row is the tile's; NULL: there is none. */
const bt_origin_group *bt_row_tile_origin(bt_row_tile *tile,
                                          const bt_bands *bands);
/* The next tile is the one after the origin's rows. */
void bt_row_tile_skip(bt_row_tile *tile, const bt_origin_group *origin);

/* ---- What groups of 64 see ----------------------------------------------- */

/* Blocks [lo, hi) of which the same groups of a tile see something, bit g, and
 * everything, bit BT_SEES_ALL + g. */
typedef struct bt_block_segment {
    size_t lo, hi;
    uint32_t bits;
} bt_block_segment;

enum { BT_SEES_ALL = 8 };

/* Numbers that determine the bits of some rows and keys: how many of both, and
 * for each band that has rows among them which these are and what they see. */
typedef struct bt_bit_shape {
    int32_t *at;
    size_t count, capacity;
} bt_bit_shape;

/* One entry of the table: the bits of a shape. */
typedef struct bt_known_bits {
    uint64_t hash;
    size_t shape, count; /* its numbers in `known` */
    int32_t bits;
} bt_known_bits;

/* Scratch memory, and the bits that are known. */
typedef struct bt_band_scan {
    bauta_span *list[3];
    size_t list_capacity[3];
    uint64_t *edges;
    size_t edge_count, edge_capacity;
    bt_block_segment *segments;
    size_t segment_count, segment_capacity;
    bt_bit_shape shape, known;
    bt_known_bits *entries;
    size_t entry_count, entry_capacity;
    int32_t *table; /* (table_size, a power of two) entries; -1: free */
    size_t table_size;
} bt_band_scan;

void bt_band_scan_release(bt_band_scan *scan);

/* Forget all shapes. */
bauta_status bt_scan_begin(bt_band_scan *scan, bauta_error *err);

/* scan->segments = what rows [row, row + rows) of a tile see, in groups of 64,
 * of the blocks of 64 keys from the tile's origin on. */
bauta_status bt_scan_rows(bt_band_scan *scan, const bt_bands *bands,
                          const bt_row_tile *tile, size_t row, size_t rows,
                          bauta_error *err);

/* scan->segments = what keys [key, key + keys), in groups of 64, see of the
 * steps of 64 rows from the origin's first row on. */
bauta_status bt_scan_keys(bt_band_scan *scan, const bt_bands *bands,
                          const bt_origin_group *origin, size_t key,
                          size_t keys, bauta_error *err);

/* scan->shape = that of rows [row, row + rows) and keys [key, key + keys), of
 * the bands [band, band_end). */
bauta_status bt_scan_shape(bt_band_scan *scan, const bt_bands *bands,
                           size_t band, size_t band_end, size_t row,
                           size_t rows, size_t key, size_t keys,
                           bauta_error *err);

/* The bits that scan->shape was given; -1: it has none yet. */
int32_t bt_scan_find(const bt_band_scan *scan);
/* Remember its bits. */
bauta_status bt_scan_remember(bt_band_scan *scan, int32_t bits,
                              bauta_error *err);

/* Set the bits of the shape, which are 0: for each row the bits of its keys, 64
 * in a word; or for each key those of its rows. The word of row r (key r) and
 * block b of 64 is words[r * row + b * block], or, where blocks lie in pairs,
 * words[r * row + b / 2 * block + b % 2]. */
typedef struct bt_bit_layout {
    size_t row, block;
    bool pairs;
} bt_bit_layout;

void bt_scan_fill_rows(const bt_band_scan *scan, uint64_t *words,
                       bt_bit_layout layout);
void bt_scan_fill_keys(const bt_band_scan *scan, uint64_t *words,
                       bt_bit_layout layout);

#endif
