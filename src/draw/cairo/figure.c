/* SPDX-License-Identifier: Apache-2.0 */
/* figure.c - a figure of one or more pictures as PNG, SVG or PDF, with cairo. A
 * PDF has a page for each layer of each attention; the others are one sheet. */
#include "base/size.h"
#include "draw/cairo/canvas.h"
#include "draw/label.h"
#include "mask/mask.h"

#include <cairo-pdf.h>

static const uint64_t shapes_most = 40000;

static bauta_status figure_draw(const bt_canvas *c, const bt_figure *figure,
                                bauta_error *err)
{
    const bt_layout *l = &c->layout;
    char text[BT_LABEL_MAX];
    bauta_status status = BAUTA_OK;
    bool weights = false;
    cairo_set_source_rgb(c->cr, 1.0, 1.0, 1.0);
    cairo_paint(c->cr);
    cairo_set_source_rgb(c->cr, 0.1, 0.1, 0.12);
    bt_title(text, figure->title, BT_TITLE_CHARACTERS);
    bt_text_draw(c->cr, text, 13.0, 18.0, 24.0, false);
    for (size_t i = 0; i < figure->count && !status; i++) {
        size_t column = i % figure->across, row = i / figure->across;
        weights |= figure->pictures[i].input.weights != NULL;
        status = bt_panel_draw(c, &figure->pictures[i],
                               18.0 + (double)column * l->panel_width,
                               l->top + (double)row * l->panel_height, err);
    }
    if (!status)
        bt_legend_draw(c, weights, 18.0, l->height - BT_LEGEND_HEIGHT);
    return status;
}

static bool few_cells(const bt_figure *figure)
{
    uint64_t pairs = 0;
    for (size_t i = 0; i < figure->count; i++)
        pairs += figure->pictures[i].mask->pairs;
    return pairs <= shapes_most;
}

/* ---- Pages --------------------------------------------------------------- */

/* The pictures from `from` on that belong to one layer, as a figure. */
static bt_figure page_from(const bt_figure *figure, size_t from)
{
    bt_figure page = *figure;
    const bauta_picture *first = &figure->pictures[from].input;
    page.pictures += from;
    page.count = 0;
    while (from + page.count < figure->count &&
           page.pictures[page.count].input.attention == first->attention &&
           page.pictures[page.count].input.layer == first->layer)
        page.count++;
    if (figure->across_chosen)
        page.across = bt_size_min(figure->across, page.count);
    else
        for (page.across = 1; page.across * page.across < page.count;)
            page.across++;
    return page;
}

/* A figure alone, or page after page of it. */
static bauta_status pages_draw(bt_canvas *c, const bt_figure *figure,
                               bt_picture_format format, bauta_error *err)
{
    cairo_surface_t *surface = cairo_get_target(c->cr);
    bauta_status status = BAUTA_OK;
    size_t done = 0;
    while (done < figure->count && !status) {
        bt_figure page = format == BT_PDF ? page_from(figure, done) : *figure;
        c->shapes = format != BT_PNG && few_cells(&page);
        status = bt_layout_init(&c->layout, &page, err);
        if (!status && format == BT_PDF)
            cairo_pdf_surface_set_size(surface, c->layout.width,
                                       c->layout.height);
        if (!status)
            status = figure_draw(c, &page, err);
        if (!status && format == BT_PDF)
            cairo_show_page(c->cr);
        done += page.count;
    }
    return status;
}

/* Whether all pages can be laid out; *layout receives that of the first. */
static bauta_status layout_check(bt_layout *layout, const bt_figure *figure,
                                 bt_picture_format format, bauta_error *err)
{
    bt_layout other;
    bauta_status status = BAUTA_OK;
    for (size_t done = 0; done < figure->count && !status;) {
        bt_figure page = format == BT_PDF ? page_from(figure, done) : *figure;
        status = bt_layout_init(done ? &other : layout, &page, err);
        done += page.count;
    }
    return status;
}

typedef struct drawing {
    const bt_figure *figure;
    bt_picture_format format;
} drawing;

static bauta_status drawing_draw(cairo_t *cr, void *user, bauta_error *err)
{
    const drawing *d = user;
    bt_canvas c = { .cr = cr };
    bt_palette_init(&c.palette, false);
    return pages_draw(&c, d->figure, d->format, err);
}

bauta_status bt_figure_save(const bt_figure *figure, const char *path,
                            bt_picture_format format, bauta_error *err)
{
    bt_layout layout;
    bauta_status status = bt_sheet_memory_check(err);
    if (!status)
        status = layout_check(&layout, figure, format, err);
    if (status)
        return status;
    drawing d = { figure, format };
    const bt_sheet sheet = { figure->title, layout.width, layout.height,
                             layout.scale };
    return bt_sheet_save(&sheet, path, format, drawing_draw, &d, err);
}
