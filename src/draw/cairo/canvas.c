/* SPDX-License-Identifier: Apache-2.0 */
/* canvas.c - text, hatching and the legend. */
#include "draw/cairo/canvas.h"

#include <math.h>
#include <stdio.h>

const bt_colour bt_ink = { 0x1b, 0x1b, 0x1f };

void bt_colour_set(cairo_t *cr, bt_colour colour)
{
    cairo_set_source_rgb(cr, colour.r / 255.0, colour.g / 255.0,
                         colour.b / 255.0);
}

static void font_set(cairo_t *cr, double size)
{
    cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cr, size);
}

double bt_text_width(cairo_t *cr, const char *text, double size)
{
    cairo_text_extents_t extents;
    font_set(cr, size);
    cairo_text_extents(cr, text, &extents);
    return extents.x_advance;
}

void bt_text_draw(cairo_t *cr, const char *text, double size, double x,
                  double y, bool right)
{
    if (right)
        x -= bt_text_width(cr, text, size);
    font_set(cr, size);
    cairo_move_to(cr, x, y);
    cairo_show_text(cr, text);
}

void bt_hatch_draw(const bt_canvas *c, double x, double y, double width,
                   double height)
{
    cairo_save(c->cr);
    cairo_rectangle(c->cr, x, y, width, height);
    cairo_clip(c->cr);
    bt_colour_set(c->cr, c->palette.hidden);
    cairo_paint(c->cr);
    for (double d = 0.0; d < width + height; d += 4.0) {
        cairo_move_to(c->cr, x + d, y);
        cairo_line_to(c->cr, x + d - height, y + height);
    }
    bt_colour_set(c->cr, c->palette.hatch);
    cairo_set_line_width(c->cr, 0.6);
    cairo_stroke(c->cr);
    cairo_restore(c->cr);
}

enum { BAR = 150, BOX = 14 };

static void scale_draw(const bt_canvas *c, double x, double y)
{
    static const double marks[] = { 0.0, 0.01, 0.1, 0.25, 0.5, 1.0 };
    char text[16];
    cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_NONE);
    for (size_t i = 0; i < BAR; i++) {
        bt_colour_set(c->cr,
                      c->palette.weight[i * (BT_COLOURS - 1) / (BAR - 1)]);
        cairo_rectangle(c->cr, x + (double)i, y, 1.0, 10.0);
        cairo_fill(c->cr);
    }
    cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_DEFAULT);
    bt_colour_set(c->cr, bt_ink);
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        double at = x + BAR * sqrt(marks[i]);
        snprintf(text, sizeof(text), "%.0f%s", 100.0 * marks[i],
                 marks[i] == 1.0 ? " %" : "");
        bt_text_draw(c->cr, text, 7.0,
                     at - 0.5 * bt_text_width(c->cr, text, 7.0), y + 18.0,
                     false);
    }
}

static double legend_text(const bt_canvas *c, const char *text, double x,
                          double y)
{
    bt_colour_set(c->cr, bt_ink);
    bt_text_draw(c->cr, text, 8.0, x, y + 8.0, false);
    return x + bt_text_width(c->cr, text, 8.0) + 14.0;
}

void bt_legend_draw(const bt_canvas *c, bool weights, double x, double y)
{
    if (weights) {
        scale_draw(c, x + 4.0, y);
        x += BAR + 26.0;
    } else {
        bt_colour_set(c->cr, c->palette.seen);
        cairo_rectangle(c->cr, x, y, BOX, 10.0);
        cairo_fill(c->cr);
        x = legend_text(c, "visible", x + BOX + 5.0, y);
    }
    bt_hatch_draw(c, x, y, BOX, 10.0);
    x = legend_text(c, "hidden", x + BOX + 5.0, y);
    bt_colour_set(c->cr, c->palette.border);
    cairo_set_line_width(c->cr, 1.4);
    cairo_rectangle(c->cr, x, y + 0.7, BOX, 8.6);
    cairo_stroke(c->cr);
    x = legend_text(c, "the mask", x + BOX + 5.0, y);
    legend_text(c, "rows: queries, columns: keys", x, y);
}
