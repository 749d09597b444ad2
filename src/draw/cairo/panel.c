/* SPDX-License-Identifier: Apache-2.0 */
/* panel.c - one picture of a figure: cells, border, labels.
 *
 * A small number of cells is drawn as vector shapes, which stay sharp at any
 * zoom. Many would take megabytes, so they are drawn as an image. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "draw/cairo/canvas.h"
#include "draw/label.h"
#include "draw/raster.h"
#include "mask/mask.h"

#include <math.h>
#include <stdio.h>

/* ---- Cells --------------------------------------------------------------- */

static void row_shapes(const bt_canvas *c, const bt_picture *p, size_t row,
                       double x, double y)
{
    double cell = c->layout.cell;
    bt_spans seen = bt_mask_spans(p->mask, row);
    for (size_t k = 0; k < seen.count; k++) {
        double from = x + cell * (double)seen.at[k].lo;
        double width = cell * (double)(seen.at[k].hi - seen.at[k].lo);
        // One rectangle below all cells of the span, so that no hatching shows
        // where two of them meet.
        bt_colour_set(c->cr, p->input.weights ? c->palette.weight[0]
                                              : c->palette.seen);
        cairo_rectangle(c->cr, from, y, width, cell);
        cairo_fill(c->cr);
        for (size_t j = seen.at[k].lo; p->input.weights && j < seen.at[k].hi;
             j++) {
            size_t index =
                bt_colour_index(p->input.weights[row * p->input.columns + j]);
            if (index == 0)
                continue;
            bt_colour_set(c->cr, c->palette.weight[index]);
            cairo_rectangle(c->cr, x + cell * (double)j, y, cell, cell);
            cairo_fill(c->cr);
        }
    }
}

static void cells_as_shapes(const bt_canvas *c, const bt_picture *p, double x,
                            double y)
{
    double cell = c->layout.cell;
    bt_hatch_draw(c, x, y, cell * (double)p->input.columns,
                  cell * (double)p->input.rows);
    cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_NONE);
    for (size_t i = 0; i < p->input.rows; i++)
        row_shapes(c, p, i, x, y + cell * (double)i);
    cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_DEFAULT);
}

/* Pixels of a side: a whole number per cell, or several cells to a pixel. */
static size_t pixels_for(const bt_canvas *c, size_t cells)
{
    double pixels = ceil(c->layout.cell * c->layout.scale * (double)cells);
    return pixels < 1.0 ? 1 : (size_t)pixels;
}

static bauta_status cells_as_image(const bt_canvas *c, const bt_picture *p,
                                   double x, double y, bauta_error *err)
{
    size_t width = pixels_for(c, p->input.columns),
           height = pixels_for(c, p->input.rows);
    cairo_surface_t *image =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)width, (int)height);
    bauta_status status = BAUTA_OK;
    if (cairo_surface_status(image))
        status = bt_fail_memory(err, "a picture", 4 * width * height);
    else
        status = bt_raster_draw(
            (uint32_t *)(void *)cairo_image_surface_get_data(image),
            (size_t)cairo_image_surface_get_stride(image) / 4, width, height,
            (size_t)(4.0 * c->layout.scale), p, &c->palette, err);
    if (!status) {
        cairo_surface_mark_dirty(image);
        cairo_save(c->cr);
        cairo_translate(c->cr, x, y);
        cairo_scale(c->cr, 1.0 / c->layout.scale, 1.0 / c->layout.scale);
        cairo_set_source_surface(c->cr, image, 0.0, 0.0);
        cairo_pattern_set_filter(cairo_get_source(c->cr), CAIRO_FILTER_NEAREST);
        cairo_paint(c->cr);
        cairo_restore(c->cr);
    }
    cairo_surface_destroy(image);
    return status;
}

/* Grid lines make the cells of a mask without weights countable. */
static void grid_draw(const bt_canvas *c, const bt_picture *p, double x,
                      double y)
{
    double cell = c->layout.cell;
    double right = x + cell * (double)p->input.columns;
    double below = y + cell * (double)p->input.rows;
    if (p->input.weights || cell < 8.0)
        return;
    for (size_t i = 1; i < p->input.rows; i++) {
        cairo_move_to(c->cr, x, y + cell * (double)i);
        cairo_line_to(c->cr, right, y + cell * (double)i);
    }
    for (size_t j = 1; j < p->input.columns; j++) {
        cairo_move_to(c->cr, x + cell * (double)j, y);
        cairo_line_to(c->cr, x + cell * (double)j, below);
    }
    cairo_set_source_rgba(c->cr, 1.0, 1.0, 1.0, 0.5);
    cairo_set_line_width(c->cr, 0.5);
    cairo_stroke(c->cr);
}

/* ---- The border of the mask ---------------------------------------------- */

static size_t spans_most(const bauta_mask *mask)
{
    size_t most = 0;
    for (size_t i = 0; i < mask->queries; i++)
        most = bt_size_max(most, bt_mask_spans(mask, i).count);
    return most;
}

/* Lines along the upper edge of a row, for keys that only one of two adjacent
 * rows sees. */
static void edge_draw(const bt_canvas *c, bt_spans keys, double x, double y)
{
    for (size_t k = 0; k < keys.count; k++) {
        cairo_move_to(c->cr, x + c->layout.cell * (double)keys.at[k].lo, y);
        cairo_line_to(c->cr, x + c->layout.cell * (double)keys.at[k].hi, y);
    }
}

static void sides_draw(const bt_canvas *c, bt_spans keys, double x, double y)
{
    for (size_t k = 0; k < 2 * keys.count; k++) {
        const bauta_span *s = &keys.at[k / 2];
        double at = x + c->layout.cell * (double)(k % 2 ? s->hi : s->lo);
        cairo_move_to(c->cr, at, y);
        cairo_line_to(c->cr, at, y + c->layout.cell);
    }
}

static void border_lines(const bt_canvas *c, const bauta_mask *mask,
                         bauta_span *space, double x, double y)
{
    bt_spans before = { NULL, 0 };
    for (size_t i = 0; i <= mask->queries; i++) {
        bt_spans row = { NULL, 0 };
        if (i < mask->queries)
            row = bt_mask_spans(mask, i);
        double at = y + c->layout.cell * (double)i;
        edge_draw(c, (bt_spans){ space, bt_spans_subtract(space, row, before) },
                  x, at);
        edge_draw(c, (bt_spans){ space, bt_spans_subtract(space, before, row) },
                  x, at);
        sides_draw(c, row, x, at);
        before = row;
    }
}

static bauta_status border_draw(const bt_canvas *c, const bt_picture *p,
                                double x, double y, bauta_error *err)
{
    const bauta_mask *mask = p->mask;
    // Many tiny spans would be all border.
    if (c->layout.cell < 3.0 &&
        bt_mask_rows(mask)->start[mask->queries] > 4 * mask->queries)
        return BAUTA_OK;
    size_t bytes = bt_size_mul(2 * spans_most(mask) + 1, sizeof(bauta_span));
    bauta_span *space = bt_alloc(bytes);
    if (!space)
        return bt_fail_memory(err, "the border of a mask", bytes);
    border_lines(c, mask, space, x, y);
    bt_colour_set(c->cr, c->palette.border);
    cairo_set_line_width(c->cr, c->layout.cell >= 8.0 ? 1.4 : 0.7);
    cairo_set_line_cap(c->cr, CAIRO_LINE_CAP_SQUARE);
    cairo_stroke(c->cr);
    bt_free(space);
    return BAUTA_OK;
}

/* ---- Labels -------------------------------------------------------------- */

/* Without labels, number every 1st, 2nd, 5th, 10th... row. */
static size_t tick_step(double cell)
{
    size_t step = 1;
    for (size_t k = 0; cell * (double)step < 24.0; k++)
        step = step / (k % 3 == 2 ? 2 : 1) * (k % 3 == 2 ? 5 : 2);
    return step;
}

static void label_draw(const bt_canvas *c, const char *const *labels, size_t i,
                       double x, double y, bool column)
{
    const bt_layout *l = &c->layout;
    char text[BT_LABEL_MAX];
    double font = l->labels ? l->font : 8.0, middle = l->cell * 0.5;
    bt_label(text, l->labels && labels ? labels[i] : NULL, i,
             BT_LABEL_CHARACTERS);
    if (!column) {
        bt_text_draw(c->cr, text, font, x - 4.0,
                     y + l->cell * (double)i + middle + 0.35 * font, true);
        return;
    }
    cairo_save(c->cr);
    cairo_translate(c->cr, x + l->cell * (double)i + middle + 0.35 * font,
                    y - 4.0);
    cairo_rotate(c->cr, -1.5707963267948966);
    bt_text_draw(c->cr, text, font, 0.0, 0.0, false);
    cairo_restore(c->cr);
}

static void labels_draw(const bt_canvas *c, const bt_picture *p, double x,
                        double y)
{
    size_t step = c->layout.labels  ? 1
                  : c->layout.ticks ? tick_step(c->layout.cell)
                                    : SIZE_MAX;
    bt_colour_set(c->cr, bt_ink);
    if (step == SIZE_MAX)
        return;
    for (size_t i = 0; i < p->input.rows; i += step)
        label_draw(c, p->input.row_labels, i, x, y, false);
    for (size_t j = 0; j < p->input.columns; j += step)
        label_draw(c, p->input.column_labels, j, x, y, true);
}

/* Fit the title into the panel. A default title has shorter forms; the caller's
 * is cut. */
static void heading_fit(const bt_canvas *c, const bt_picture *p,
                        char text[BT_LABEL_MAX])
{
    double space = c->layout.panel_width - 6.0;
    bool by_default = !p->input.title && p->input.weights;
    bt_title(text, p->title, BT_TITLE_CHARACTERS);
    if (by_default && bt_text_width(c->cr, text, 9.0) > space)
        snprintf(text, BT_LABEL_MAX, "layer %zu, head %zu", p->input.layer,
                 p->input.head);
    if (by_default && bt_text_width(c->cr, text, 9.0) > space)
        snprintf(text, BT_LABEL_MAX, "%zu, %zu", p->input.layer, p->input.head);
    for (size_t most = BT_TITLE_CHARACTERS;
         !by_default && most > 4 && bt_text_width(c->cr, text, 9.0) > space;
         most--)
        bt_title(text, p->title, most);
}

static void heading_draw(const bt_canvas *c, const bt_picture *p, double x,
                         double y)
{
    char text[BT_LABEL_MAX];
    heading_fit(c, p, text);
    bt_colour_set(c->cr, bt_ink);
    bt_text_draw(c->cr, text, 9.0, x, y + 11.0, false);
}

bauta_status bt_panel_draw(const bt_canvas *c, const bt_picture *p, double x,
                           double y, bauta_error *err)
{
    double left = x + c->layout.left;
    double top = y + c->layout.heading + c->layout.above;
    bauta_status status = BAUTA_OK;
    heading_draw(c, p, x, y);
    if (c->shapes)
        cells_as_shapes(c, p, left, top);
    else
        status = cells_as_image(c, p, left, top, err);
    if (!status) {
        grid_draw(c, p, left, top);
        status = border_draw(c, p, left, top, err);
    }
    if (!status)
        labels_draw(c, p, left, top);
    return status;
}
