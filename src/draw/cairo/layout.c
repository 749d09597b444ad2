/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - the size of the cells and the place of the parts of a figure. */
#include "base/error.h"
#include "base/size.h"
#include "draw/cairo/canvas.h"
#include "draw/label.h"

#include <math.h>

enum {
    CELL_MAX = 26,   /* with few tokens */
    CELL_LABEL = 7,  /* smaller cells have no labels */
    ALONE = 640,     /* largest side of a single picture */
    TOGETHER = 1500, /* width of several pictures together */
    SMALL = 72,      /* smallest side of one of them */
    MARGIN = 18,
    SIDE_PIXELS = 30000,
};
static const double pixels_fine = 24e6, pixels_most = 120e6;

static size_t longest_side(const bt_figure *figure)
{
    size_t most = 0;
    for (size_t i = 0; i < figure->count; i++) {
        const bauta_picture *p = &figure->pictures[i].input;
        most = bt_size_max(most, bt_size_max(p->rows, p->columns));
    }
    return most;
}

/* The widest of some labels. */
static double labels_width(cairo_t *cr, const char *const *labels, size_t count,
                           double font)
{
    char text[BT_LABEL_MAX];
    double widest = 0.0;
    for (size_t i = 0; i < count; i++) {
        bt_label(text, labels ? labels[i] : NULL, i, BT_LABEL_CHARACTERS);
        widest = fmax(widest, bt_text_width(cr, text, font));
    }
    return widest;
}

static void labels_measure(bt_layout *l, const bt_figure *figure)
{
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
    cairo_t *cr = cairo_create(surface);
    for (size_t i = 0; i < figure->count; i++) {
        const bauta_picture *p = &figure->pictures[i].input;
        l->left =
            fmax(l->left, labels_width(cr, p->row_labels, p->rows, l->font));
        l->above = fmax(
            l->above, labels_width(cr, p->column_labels, p->columns, l->font));
    }
    l->left += 6.0;
    l->above += 6.0;
    cairo_destroy(cr);
    cairo_surface_destroy(surface);
}

static void cells_init(bt_layout *l, const bt_figure *figure)
{
    double side = figure->count == 1
                      ? ALONE
                      : fmin(ALONE, fmax(SMALL, (double)TOGETHER /
                                                    (double)figure->across));
    l->cell = fmin(CELL_MAX, side / (double)longest_side(figure));
    // Align cells to pixels; small cells may grow by a third.
    if (l->cell >= 0.5)
        l->cell =
            (l->cell < 3.0 ? round(2.0 * l->cell) : floor(2.0 * l->cell)) / 2.0;
    l->labels = l->cell >= CELL_LABEL;
    l->ticks = !l->labels && figure->count == 1;
    l->font = fmin(10.0, 0.9 * l->cell);
    l->left = l->above = l->ticks ? 30.0 : 0.0;
    if (l->labels)
        labels_measure(l, figure);
}

static void panels_measure(bt_layout *l, const bt_figure *figure)
{
    for (size_t i = 0; i < figure->count; i++) {
        const bt_picture *p = &figure->pictures[i];
        l->panel_width =
            fmax(l->panel_width, l->cell * (double)p->input.columns);
        l->panel_height =
            fmax(l->panel_height, l->cell * (double)p->input.rows);
        if (*p->title)
            l->heading = 16.0;
    }
    l->panel_width = ceil(l->panel_width + l->left) + MARGIN;
    l->panel_height = ceil(l->panel_height + l->above + l->heading) + MARGIN;
}

bauta_status bt_layout_init(bt_layout *l, const bt_figure *figure,
                            bauta_error *err)
{
    *l = (bt_layout){ .scale = 2.0 };
    size_t down = (figure->count + figure->across - 1) / figure->across;
    cells_init(l, figure);
    panels_measure(l, figure);
    l->top = *figure->title ? 40.0 : MARGIN;
    l->width =
        fmax((double)figure->across * l->panel_width, BT_LEGEND_WIDTH) + MARGIN;
    l->height =
        l->top + (double)down * l->panel_height + BT_LEGEND_HEIGHT + MARGIN;
    if (l->width * l->height * 4.0 > pixels_fine)
        l->scale = 1.0;
    if (l->width * l->height > pixels_most ||
        l->width * l->scale > SIDE_PIXELS || l->height * l->scale > SIDE_PIXELS)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu pictures, %zu side by side, would make a figure "
                       "of %.0f by %.0f points, which is too large: draw "
                       "fewer at a time",
                       figure->count, figure->across, l->width, l->height);
    return BAUTA_OK;
}
