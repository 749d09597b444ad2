/* SPDX-License-Identifier: Apache-2.0 */
/* canvas.h - where a sheet is drawn, and how its parts lie. Lengths are in
 * units, of which an inch has 72; a dot of a PNG is half a unit, or a whole one
 * where the sheet is large. */
#ifndef BT_CANVAS_H
#define BT_CANVAS_H

#include "draw/colour.h"
#include "draw/picture.h"

#include <cairo.h>

enum { BT_LABEL_CHARACTERS = 18, BT_TITLE_CHARACTERS = 120 };

typedef struct bt_layout {
    double cell;                      /* side of a square */
    bool labels;                      /* there is room for them */
    bool ticks;                       /* there is not, but for some numbers */
    double font;                      /* of labels */
    double left, above;               /* room for labels */
    double heading;                   /* room for the title of a picture */
    double panel_width, panel_height; /* of the largest picture */
    double top;                       /* room for the title of the sheet */
    double width, height;             /* of the sheet */
    double scale;                     /* dots to a unit */
} bt_layout;

typedef struct bt_canvas {
    cairo_t *cr;
    bool shapes; /* squares are drawn as such, else as dots */
    bt_layout layout;
    bt_palette palette;
} bt_canvas;

/* Lay a sheet out; one that would be too large is refused. */
bauta_status bt_layout_init(bt_layout *layout, const bt_sheet *sheet,
                            bauta_error *err);

/* One picture, with its title and labels, whose corner is at x, y. */
bauta_status bt_panel_draw(const bt_canvas *canvas, const bt_picture *p,
                           double x, double y, bauta_error *err);
/* What the colours mean; its corner is at x, y. */
void bt_legend_draw(const bt_canvas *canvas, bool weights, double x, double y);
enum { BT_LEGEND_WIDTH = 400, BT_LEGEND_HEIGHT = 34 };

/* ---- what these have in common ------------------------------------------- */

void bt_colour_set(cairo_t *cr, bt_colour colour);
/* How wide a text is, and draw it: from x on, or up to it. */
double bt_text_width(cairo_t *cr, const char *text, double size);
void bt_text_draw(cairo_t *cr, const char *text, double size, double x,
                  double y, bool right);
/* A rectangle as what is hidden looks. */
void bt_hatch_draw(const bt_canvas *canvas, double x, double y, double width,
                   double height);

#endif
