/* SPDX-License-Identifier: Apache-2.0 */
/* canvas.h - the cairo context of a figure, its layout, and drawing functions.
 * Lengths are in points (1/72 inch). A PNG has 2 pixels per point, or 1 if the
 * figure is large. */
#ifndef BT_CANVAS_H
#define BT_CANVAS_H

#include "draw/colour.h"
#include "draw/picture.h"

#include <cairo.h>

enum { BT_LABEL_CHARACTERS = 18, BT_TITLE_CHARACTERS = 120 };

typedef struct bt_layout {
    double cell;                      /* side of a cell */
    bool labels;                      /* cells are large enough for labels */
    bool ticks;                       /* not for labels, but for some numbers */
    double font;                      /* size of labels */
    double left, above;               /* space for labels */
    double heading;                   /* space for the title of a picture */
    double panel_width, panel_height; /* of the largest picture */
    double top;                       /* space for the title of the figure */
    double width, height;             /* of the figure */
    double scale;                     /* pixels per point */
} bt_layout;

typedef struct bt_canvas {
    cairo_t *cr;
    bool shapes; /* draw cells as vector shapes, else as an image */
    bt_layout layout;
    bt_palette palette;
} bt_canvas;

/* Compute the layout; fails if the figure would be too large. */
bauta_status bt_layout_init(bt_layout *layout, const bt_figure *figure,
                            bauta_error *err);

/* Draw one picture with title and labels; its top left corner is x, y. */
bauta_status bt_panel_draw(const bt_canvas *canvas, const bt_picture *p,
                           double x, double y, bauta_error *err);
/* Draw the legend of the colours; its top left corner is x, y. */
void bt_legend_draw(const bt_canvas *canvas, bool weights, double x, double y);
enum { BT_LEGEND_WIDTH = 400, BT_LEGEND_HEIGHT = 34 };

/* A file with one drawing; the title is that of a PDF. */
typedef struct bt_sheet {
    const char *title;
    double width, height; /* points */
    double scale;         /* pixels per point of a PNG */
} bt_sheet;
typedef bauta_status bt_draw_fn(cairo_t *cr, void *user, bauta_error *err);
/* Whether there is enough memory for cairo and fonts; to be called before
 * anything is measured. bt_sheet_save() calls it, too. */
bauta_status bt_sheet_memory_check(bauta_error *err);
bauta_status bt_sheet_save(const bt_sheet *sheet, const char *path,
                           bt_picture_format format, bt_draw_fn *draw,
                           void *user, bauta_error *err);

/* ---- drawing functions --------------------------------------------------- */

/* The colour of text. */
extern const bt_colour bt_ink;
void bt_colour_set(cairo_t *cr, bt_colour colour);
/* Measure a text, and draw it: beginning at x or, with `right`, ending there.
 */
double bt_text_width(cairo_t *cr, const char *text, double size);
void bt_text_draw(cairo_t *cr, const char *text, double size, double x,
                  double y, bool right);
/* Draw a rectangle of hidden pairs. */
void bt_hatch_draw(const bt_canvas *canvas, double x, double y, double width,
                   double height);

#endif
