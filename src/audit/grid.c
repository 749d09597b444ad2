/* SPDX-License-Identifier: Apache-2.0 */
/* grid.c - a boolean matrix, and a mask of it. */
#include "audit/grid.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

bauta_status bt_grid_init(bt_grid *grid, size_t rows, size_t keys,
                          bauta_error *err)
{
    *grid = (bt_grid){ rows, keys, (keys + 63) / 64, NULL };
    grid->bits =
        bt_alloc_zero(bt_size_mul(rows, grid->words), sizeof(*grid->bits));
    if (!grid->bits)
        return bt_fail_memory(err, "what an audit expects",
                              bt_size_mul(rows, grid->words));
    return BAUTA_OK;
}

void bt_grid_release(bt_grid *grid)
{
    bt_free(grid->bits);
    *grid = (bt_grid){ 0 };
}

void bt_grid_add(bt_grid *to, size_t row, const bt_grid *through,
                 const bt_grid *from)
{
    uint64_t *bits = bt_grid_row(to, row);
    for (size_t k = 0; k < through->keys; k++)
        for (size_t w = 0; bt_grid_get(through, row, k) && w < to->words; w++)
            bits[w] |= bt_grid_row(from, k)[w];
}

static size_t spans_of(void *user, size_t query, bauta_span *spans,
                       size_t capacity)
{
    const bt_grid *g = user;
    size_t row = query % g->rows, shift = query / g->rows * g->keys, count = 0;
    for (size_t k = 0; k < g->keys; k++) {
        size_t lo = k;
        while (k < g->keys && bt_grid_get(g, row, k))
            k++;
        if (k == lo)
            continue;
        if (count < capacity)
            spans[count] = (bauta_span){ shift + lo, shift + k };
        count++;
    }
    return count;
}

bauta_status bt_grid_mask(bauta_mask **out, const bt_grid *grid, size_t times,
                          bauta_error *err)
{
    bt_grid view = *grid;
    return bauta_mask_rows(out, bt_size_mul(grid->rows, times),
                           bt_size_mul(grid->keys, times), spans_of, &view,
                           err);
}
