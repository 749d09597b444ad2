/* SPDX-License-Identifier: Apache-2.0 */
/* sheet.c - a drawing as a PNG, SVG or PDF file.
 *
 * cairo uses malloc(), not the library's allocator, and reports when it fails.
 * But without memory fontconfig crashes and cairo may hang, so
 * bt_sheet_memory_check() first makes sure that there is enough for all that
 * they need. */
#include "base/error.h"
#include "base/file.h"
#include "draw/cairo/canvas.h"
#include "draw/label.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <stdlib.h>

/* Fonts, and a picture of 2000 by 2000 pixels in memory and as a file. */
enum { DRAWING_BYTES = 96 << 20 };

/* Whether malloc() can provide that much now. */
bauta_status bt_sheet_memory_check(bauta_error *err)
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

static cairo_surface_t *surface_create(const bt_sheet *sheet,
                                       bt_picture_format format, sink *to)
{
    char title[BT_LABEL_MAX];
    cairo_surface_t *surface;
    switch (format) {
    case BT_SVG:
        return cairo_svg_surface_create_for_stream(sink_write, to, sheet->width,
                                                   sheet->height);
    case BT_PDF:
        surface = cairo_pdf_surface_create_for_stream(
            sink_write, to, sheet->width, sheet->height);
        bt_title(title, sheet->title, BT_TITLE_CHARACTERS);
        cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_TITLE,
                                       title);
        // A constant date: the same pictures give the same file.
        cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATE_DATE,
                                       "2000-01-01T00:00:00Z");
        return surface;
    default:
        return cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                          (int)(sheet->width * sheet->scale),
                                          (int)(sheet->height * sheet->scale));
    }
}

static bauta_status sheet_write(sink *to, const bt_sheet *sheet,
                                bt_picture_format format, bt_draw_fn *draw,
                                void *user)
{
    cairo_surface_t *surface = surface_create(sheet, format, to);
    cairo_t *cr = cairo_create(surface);
    if (format == BT_PNG)
        cairo_scale(cr, sheet->scale, sheet->scale);
    bauta_status status = draw(cr, user, to->err);
    if (!status)
        status = status_from_cairo(to, cairo_status(cr));
    cairo_destroy(cr);
    if (!status && format == BT_PNG)
        status = status_from_cairo(
            to, cairo_surface_write_to_png_stream(surface, sink_write, to));
    cairo_surface_finish(surface);
    if (!status)
        status = status_from_cairo(to, cairo_surface_status(surface));
    cairo_surface_destroy(surface);
    return status;
}

bauta_status bt_sheet_save(const bt_sheet *sheet, const char *path,
                           bt_picture_format format, bt_draw_fn *draw,
                           void *user, bauta_error *err)
{
    bt_atomic_file *draft = NULL;
    bauta_status status = bt_sheet_memory_check(err);
    if (!status)
        status = bt_atomic_file_create(&draft, path, err);
    if (!status) {
        sink to = { draft, BAUTA_OK, err };
        status = sheet_write(&to, sheet, format, draw, user);
    }
    if (!status)
        status = bt_atomic_file_commit(draft, err);
    bt_atomic_file_free(draft);
    return status;
}
