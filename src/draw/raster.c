/* SPDX-License-Identifier: Apache-2.0 */
/* raster.c - squares to dots, and many squares to one dot; see raster.h. */
#include "draw/raster.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"

/* The squares of one axis that dot `at` of `dots` covers; at least one. */
static bauta_span covered(size_t at, size_t dots, size_t squares)
{
    size_t lo = at * squares / dots, hi = (at + 1) * squares / dots;
    return (bauta_span){ lo, bt_size_max(hi, lo + 1) };
}

/* Into best[x] goes the largest weight of row `row` that dot x covers, where
 * that is larger than what is there. What is hidden is not looked at. */
static void row_add(float *best, size_t width, const bt_picture *p, size_t row)
{
    bt_spans seen = bt_mask_spans(p->mask, row);
    size_t columns = p->of->columns;
    const float *w = p->of->weights ? p->of->weights + row * columns : NULL;
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

static uint32_t dot_of(bt_colour c)
{
    return 0xff000000u | (uint32_t)c.r << 16 | (uint32_t)c.g << 8 | c.b;
}

static void line_draw(uint32_t *line, const float *best, size_t width, size_t y,
                      size_t gap, const bt_picture *p,
                      const bt_palette *palette)
{
    uint32_t hidden = dot_of(palette->hidden), hatch = dot_of(palette->hatch);
    for (size_t x = 0; x < width; x++) {
        if (best[x] < 0.0f)
            line[x] = (x + y) % gap <= gap / 6 ? hatch : hidden;
        else if (!p->of->weights)
            line[x] = dot_of(palette->seen);
        else
            line[x] = dot_of(palette->weight[bt_colour_index(best[x])]);
    }
}

bauta_status bt_raster_draw(uint32_t *dots, size_t stride, size_t width,
                            size_t height, size_t gap, const bt_picture *p,
                            const bt_palette *palette, bauta_error *err)
{
    float *best = bt_alloc(bt_size_mul(width, sizeof(*best)));
    if (!best)
        return bt_fail_memory(err, "a line of a picture",
                              width * sizeof(*best));
    bauta_span before = { 0, 0 };
    for (size_t y = 0; y < height; y++) {
        bauta_span rows = covered(y, height, p->of->rows);
        if (rows.lo != before.lo || rows.hi != before.hi) {
            for (size_t x = 0; x < width; x++)
                best[x] = -1.0f;
            for (size_t i = rows.lo; i < rows.hi; i++)
                row_add(best, width, p, i);
            before = rows;
        }
        line_draw(dots + y * stride, best, width, y, gap, p, palette);
    }
    bt_free(best);
    return BAUTA_OK;
}
