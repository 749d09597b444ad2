/* SPDX-License-Identifier: Apache-2.0 */
/* raster.c - cells to pixels, several cells to a pixel if there are many. */
#include "draw/raster.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"

/* The cells of one axis that pixel `at` of `pixels` covers; at least one. */
static bauta_span covered(size_t at, size_t pixels, size_t cells)
{
    size_t lo = at * cells / pixels, hi = (at + 1) * cells / pixels;
    return (bauta_span){ lo, bt_size_max(hi, lo + 1) };
}

/* Raise best[x] to the largest weight of row `row` that pixel x covers. Hidden
 * pairs are skipped. */
static void row_add(float *best, size_t width, const bt_picture *p, size_t row)
{
    bt_spans seen = bt_mask_spans(p->mask, row);
    size_t columns = p->input.columns;
    const float *w = p->input.weights ? p->input.weights + row * columns : NULL;
    for (size_t x = 0, k = 0; x < width; x++) {
        bauta_span cells = covered(x, width, columns);
        while (k < seen.count && seen.at[k].hi <= cells.lo)
            k++;
        for (size_t s = k; s < seen.count && seen.at[s].lo < cells.hi; s++) {
            size_t from = bt_size_max(seen.at[s].lo, cells.lo);
            size_t to = bt_size_min(seen.at[s].hi, cells.hi);
            for (size_t j = from; j < to; j++) {
                float value = w ? w[j] : 1.0f;
                best[x] = value > best[x] ? value : best[x];
            }
        }
    }
}

static uint32_t pixel_of(bt_colour c)
{
    return 0xff000000u | (uint32_t)c.r << 16 | (uint32_t)c.g << 8 | c.b;
}

static void line_draw(uint32_t *line, const float *best, size_t width, size_t y,
                      size_t gap, const bt_picture *p,
                      const bt_palette *palette)
{
    uint32_t hidden = pixel_of(palette->hidden),
             hatch = pixel_of(palette->hatch);
    for (size_t x = 0; x < width; x++) {
        if (best[x] < 0.0f)
            line[x] = (x + y) % gap <= gap / 6 ? hatch : hidden;
        else if (!p->input.weights)
            line[x] = pixel_of(palette->seen);
        else
            line[x] = pixel_of(palette->weight[bt_colour_index(best[x])]);
    }
}

bauta_status bt_raster_draw(uint32_t *pixels, size_t stride, size_t width,
                            size_t height, size_t gap, const bt_picture *p,
                            const bt_palette *palette, bauta_error *err)
{
    float *best = bt_alloc(bt_size_mul(width, sizeof(*best)));
    if (!best)
        return bt_fail_memory(err, "a line of a picture",
                              width * sizeof(*best));
    bauta_span before = { 0, 0 };
    for (size_t y = 0; y < height; y++) {
        bauta_span rows = covered(y, height, p->input.rows);
        if (rows.lo != before.lo || rows.hi != before.hi) {
            for (size_t x = 0; x < width; x++)
                best[x] = -1.0f;
            for (size_t i = rows.lo; i < rows.hi; i++)
                row_add(best, width, p, i);
            before = rows;
        }
        line_draw(pixels + y * stride, best, width, y, gap, p, palette);
    }
    bt_free(best);
    return BAUTA_OK;
}
