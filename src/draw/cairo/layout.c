/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - how large the squares are, and where the parts of a sheet lie. */
#include "base/error.h"
#include "base/size.h"
#include "draw/cairo/canvas.h"
#include "draw/label.h"

#include <math.h>

enum {
    CELL_MAX = 26,   /* of a few tokens */
    CELL_LABEL = 7,  /* smaller squares have no labels */
    ALONE = 640,     /* side of a picture alone, at most */
    TOGETHER = 1500, /* width of the pictures that share a sheet */
    SMALL = 72,      /* of these the least */
    MARGIN = 18,
    SIDE_DOTS = 30000,
};
static const double dots_fine = 24e6, dots_most = 120e6;

static size_t longest_side(const bt_sheet *sheet)
{
    size_t most = 0;
    for (size_t i = 0; i < sheet->count; i++) {
        const bauta_picture *p = sheet->pictures[i].of;
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

static void labels_measure(bt_layout *l, const bt_sheet *sheet)
{
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
    cairo_t *cr = cairo_create(surface);
    for (size_t i = 0; i < sheet->count; i++) {
        const bauta_picture *p = sheet->pictures[i].of;
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

static void squares_init(bt_layout *l, const bt_sheet *sheet)
{
    double side = sheet->count == 1
                      ? ALONE
                      : fmin(ALONE, fmax(SMALL, (double)TOGETHER /
                                                    (double)sheet->across));
    l->cell = fmin(CELL_MAX, side / (double)longest_side(sheet));
    // So that squares and dots fall together; small ones may grow by a third.
    if (l->cell >= 0.5)
        l->cell =
            (l->cell < 3.0 ? round(2.0 * l->cell) : floor(2.0 * l->cell)) / 2.0;
    l->labels = l->cell >= CELL_LABEL;
    l->ticks = !l->labels && sheet->count == 1;
    l->font = fmin(10.0, 0.9 * l->cell);
    l->left = l->above = l->ticks ? 30.0 : 0.0;
    if (l->labels)
        labels_measure(l, sheet);
}

static void panels_measure(bt_layout *l, const bt_sheet *sheet)
{
    for (size_t i = 0; i < sheet->count; i++) {
        const bt_picture *p = &sheet->pictures[i];
        l->panel_width = fmax(l->panel_width, l->cell * (double)p->of->columns);
        l->panel_height = fmax(l->panel_height, l->cell * (double)p->of->rows);
        if (*p->title)
            l->heading = 16.0;
    }
    l->panel_width = ceil(l->panel_width + l->left) + MARGIN;
    l->panel_height = ceil(l->panel_height + l->above + l->heading) + MARGIN;
}

bauta_status bt_layout_init(bt_layout *l, const bt_sheet *sheet,
                            bauta_error *err)
{
    *l = (bt_layout){ .scale = 2.0 };
    size_t down = (sheet->count + sheet->across - 1) / sheet->across;
    squares_init(l, sheet);
    panels_measure(l, sheet);
    l->top = *sheet->title ? 40.0 : MARGIN;
    l->width =
        fmax((double)sheet->across * l->panel_width, BT_LEGEND_WIDTH) + MARGIN;
    l->height =
        l->top + (double)down * l->panel_height + BT_LEGEND_HEIGHT + MARGIN;
    if (l->width * l->height * 4.0 > dots_fine)
        l->scale = 1.0;
    if (l->width * l->height > dots_most || l->width * l->scale > SIDE_DOTS ||
        l->height * l->scale > SIDE_DOTS)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu pictures, %zu beside each other, would make a "
                       "sheet of %.0f by %.0f dots, which is too large: draw "
                       "fewer at a time",
                       sheet->count, sheet->across, l->width, l->height);
    return BAUTA_OK;
}
