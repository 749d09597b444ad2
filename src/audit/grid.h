/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - a boolean matrix, a bit a pair.
 *
 * What a model may see, written down pair by pair. It shares nothing with
 * src/mask, which is among what an audit tries. */
#ifndef BT_GRID_H
#define BT_GRID_H

#include "bauta.h"

typedef struct bt_grid {
    size_t rows, keys, words; /* words: of a row */
    uint64_t *bits;           /* (rows, words); NULL: no grid */
} bt_grid;

/* All false. Sizes are at most some thousands. */
bauta_status bt_grid_init(bt_grid *grid, size_t rows, size_t keys,
                          bauta_error *err);
void bt_grid_release(bt_grid *grid);

static inline uint64_t *bt_grid_row(const bt_grid *g, size_t row)
{
    return g->bits + row * g->words;
}

static inline bool bt_grid_get(const bt_grid *g, size_t row, size_t key)
{
    return bt_grid_row(g, row)[key / 64] >> (key % 64) & 1;
}

static inline void bt_grid_set(bt_grid *g, size_t row, size_t key)
{
    bt_grid_row(g, row)[key / 64] |= UINT64_C(1) << (key % 64);
}

/* to[row] |= the rows of `from` that row `row` of `through` has. */
void bt_grid_add(bt_grid *to, size_t row, const bt_grid *through,
                 const bt_grid *from);

/* The grid again and again along the diagonal, `times` times, as a mask. */
bauta_status bt_grid_mask(bauta_mask **out, const bt_grid *grid, size_t times,
                          bauta_error *err);

#endif
