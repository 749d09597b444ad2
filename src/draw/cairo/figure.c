/* SPDX-License-Identifier: Apache-2.0 */
/* figure.c - a figure of one or more pictures as PNG, SVG or PDF, with cairo.
 *
 * cairo uses malloc(), not the library's allocator, and reports when it fails.
 * But without memory fontconfig crashes and cairo may hang, so memory_check()
 * first makes sure that there is enough for all that they need. */
#include "base/error.h"
#include "base/file.h"
#include "draw/cairo/canvas.h"
#include "draw/label.h"
#include "mask/mask.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <stdlib.h>

static const uint64_t shapes_most = 40000;

/* Fonts, and a picture of 2000 by 2000 pixels in memory and as a file. */
enum { DRAWING_BYTES = 96 << 20 };

/* Whether malloc() can provide that much now. */
static bauta_status memory_check(bauta_error *err)
{
    void *volatile memory =
        malloc(DRAWING_BYTES); // keeps the compiler from removing it
    bool there = memory != NULL;
    free(memory);
    return there ? BAUTA_OK : bt_fail_memory(err, "a figure", DRAWING_BYTES);
}

/* ---- Writing ------------------------------------------------------------- */

/* The output stream of cairo, with the error that cairo cannot report. */
typedef struct sink {
    bt_atomic_file *draft;
    bauta_status status;
    bauta_error *err;
} sink;

static cairo_status_t sink_write(void *user, const unsigned char *bytes,
                                 unsigned size)
{
    sink *s = user;
    if (!s->status)
        s->status = bt_atomic_file_write(s->draft, bytes, size, s->err);
    return s->status ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

static bauta_status status_from_cairo(sink *s, cairo_status_t status)
{
    if (s->status || status == CAIRO_STATUS_SUCCESS)
        return s->status;
    if (status == CAIRO_STATUS_NO_MEMORY)
        return bt_fail_memory(s->err, "a figure", 0);
    return bt_fail(s->err, BAUTA_ERR_IO, "cairo cannot draw the figure: %s",
                   cairo_status_to_string(status));
}

/* ---- Drawing ------------------------------------------------------------- */

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

static cairo_surface_t *surface_create(const bt_figure *figure,
                                       const bt_layout *l,
                                       bt_picture_format format, sink *to)
{
    char title[BT_LABEL_MAX];
    cairo_surface_t *surface;
    switch (format) {
    case BT_SVG:
        return cairo_svg_surface_create_for_stream(sink_write, to, l->width,
                                                   l->height);
    case BT_PDF:
        surface = cairo_pdf_surface_create_for_stream(sink_write, to, l->width,
                                                      l->height);
        bt_title(title, figure->title, BT_TITLE_CHARACTERS);
        cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_TITLE,
                                       title);
        // A constant date: the same pictures give the same file.
        cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATE_DATE,
                                       "2000-01-01T00:00:00Z");
        return surface;
    default:
        return cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                          (int)(l->width * l->scale),
                                          (int)(l->height * l->scale));
    }
}

static bool few_cells(const bt_figure *figure)
{
    uint64_t pairs = 0;
    for (size_t i = 0; i < figure->count; i++)
        pairs += figure->pictures[i].mask->pairs;
    return pairs <= shapes_most;
}

static bauta_status figure_write(sink *to, const bt_figure *figure,
                                 const bt_layout *layout,
                                 bt_picture_format format)
{
    bt_canvas c = { .layout = *layout };
    cairo_surface_t *surface = surface_create(figure, layout, format, to);
    c.cr = cairo_create(surface);
    c.shapes = format != BT_PNG && few_cells(figure);
    bt_palette_init(&c.palette, false);
    if (format == BT_PNG)
        cairo_scale(c.cr, layout->scale, layout->scale);
    bauta_status status = figure_draw(&c, figure, to->err);
    if (!status)
        status = status_from_cairo(to, cairo_status(c.cr));
    cairo_destroy(c.cr);
    if (!status && format == BT_PNG)
        status = status_from_cairo(
            to, cairo_surface_write_to_png_stream(surface, sink_write, to));
    cairo_surface_finish(surface);
    if (!status)
        status = status_from_cairo(to, cairo_surface_status(surface));
    cairo_surface_destroy(surface);
    return status;
}

bauta_status bt_figure_save(const bt_figure *figure, const char *path,
                            bt_picture_format format, bauta_error *err)
{
    bt_layout layout;
    bt_atomic_file *draft = NULL;
    bauta_status status = memory_check(err);
    if (!status)
        status = bt_layout_init(&layout, figure, err);
    if (!status)
        status = bt_atomic_file_create(&draft, path, err);
    if (!status) {
        sink to = { draft, BAUTA_OK, err };
        status = figure_write(&to, figure, &layout, format);
    }
    if (!status)
        status = bt_atomic_file_commit(draft, err);
    bt_atomic_file_free(draft);
    return status;
}
