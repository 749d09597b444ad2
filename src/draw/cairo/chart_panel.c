/* SPDX-License-Identifier: Apache-2.0 */
/* chart_panel.c - charts of forecasts, one below the other. */
#include "draw/cairo/canvas.h"
#include "draw/chart.h"
#include "draw/label.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 720, PANEL = 260, LEFT = 64, RIGHT = 16, TOP = 28, BOTTOM = 34 };

static const bt_colour grey = { 0xd8, 0xd8, 0xdc };
static const bt_colour band = { 0x2a, 0x78, 0xc8 };
static const bt_colour truth = { 0xd0, 0x5a, 0x1e };

/* One chart at a place of the sheet, with the range of its values. */
typedef struct panel {
    cairo_t *cr;
    const bauta_chart *c;
    double y0, low, high;
} panel;

static void range_include(panel *p, const double *values, size_t count)
{
    for (size_t i = 0; values && i < count; i++)
        if (isfinite(values[i])) {
            p->low = fmin(p->low, values[i]);
            p->high = fmax(p->high, values[i]);
        }
}

static void range_set(panel *p)
{
    const bauta_chart *c = p->c;
    p->low = INFINITY;
    p->high = -INFINITY;
    range_include(p, c->history, c->history_count);
    range_include(p, c->quantiles, c->quantile_count * c->horizon);
    range_include(p, c->truth, c->horizon);
    if (!(p->high > p->low)) {
        p->low = isfinite(p->low) ? p->low - 1.0 : 0.0;
        p->high = p->low + 2.0;
    }
}

static double x_of(const panel *p, size_t point)
{
    size_t points = p->c->history_count + p->c->horizon;
    return LEFT + (double)point * (WIDTH - LEFT - RIGHT) /
                      (double)(points > 1 ? points - 1 : 1);
}

static double y_of(const panel *p, double value)
{
    double part = (value - p->low) / (p->high - p->low);
    return p->y0 + TOP + (1.0 - part) * (PANEL - TOP - BOTTOM);
}

/* The value to draw: what is not finite is at the lower edge. */
static double drawn(const panel *p, double value)
{
    return y_of(p, isfinite(value) ? value : p->low);
}

/* A line through values; a missing one interrupts it. */
static void line_draw(const panel *p, const double *values, size_t count,
                      size_t first, bt_colour colour, double width)
{
    bool pen = false;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            pen = false;
            continue;
        }
        (pen ? cairo_line_to : cairo_move_to)(p->cr, x_of(p, first + i),
                                              y_of(p, values[i]));
        pen = true;
    }
    bt_colour_set(p->cr, colour);
    cairo_set_line_width(p->cr, width);
    cairo_stroke(p->cr);
}

/* The outer bands are lighter than the inner ones, which cover them. */
static void bands_draw(const panel *p)
{
    const bauta_chart *c = p->c;
    for (size_t k = 0; k < c->quantile_count / 2; k++) {
        const double *low = c->quantiles + k * c->horizon;
        const double *high =
            c->quantiles + (c->quantile_count - 1 - k) * c->horizon;
        for (size_t h = 0; h < c->horizon; h++)
            cairo_line_to(p->cr, x_of(p, c->history_count + h),
                          drawn(p, high[h]));
        for (size_t h = c->horizon; h-- > 0;)
            cairo_line_to(p->cr, x_of(p, c->history_count + h),
                          drawn(p, low[h]));
        cairo_close_path(p->cr);
        cairo_set_source_rgba(p->cr, band.r / 255.0, band.g / 255.0,
                              band.b / 255.0, 0.22);
        cairo_fill(p->cr);
    }
}

static void axes_draw(const panel *p)
{
    char text[32];
    bt_colour_set(p->cr, grey);
    cairo_set_line_width(p->cr, 0.7);
    for (int i = 0; i <= 4; i++) {
        double y = y_of(p, p->low + (p->high - p->low) * i / 4.0);
        cairo_move_to(p->cr, LEFT, y);
        cairo_line_to(p->cr, WIDTH - RIGHT, y);
    }
    double begin = x_of(p, p->c->history_count);
    cairo_move_to(p->cr, begin, p->y0 + TOP);
    cairo_line_to(p->cr, begin, p->y0 + PANEL - BOTTOM);
    cairo_stroke(p->cr);
    bt_colour_set(p->cr, bt_ink);
    for (int i = 0; i <= 4; i++) {
        double value = p->low + (p->high - p->low) * i / 4.0;
        snprintf(text, sizeof(text), "%.4g", value);
        bt_text_draw(p->cr, text, 9.0, LEFT - 6.0, y_of(p, value) + 3.0, true);
    }
}

static void labels_draw(const panel *p)
{
    const bauta_chart *c = p->c;
    char title[BT_LABEL_MAX];
    double y = p->y0 + PANEL - BOTTOM + 14.0;
    bt_colour_set(p->cr, bt_ink);
    bt_title(title, c->title ? c->title : "", BT_TITLE_CHARACTERS);
    bt_text_draw(p->cr, title, 12.0, LEFT, p->y0 + 16.0, false);
    bt_text_draw(p->cr,
                 c->truth ? "history black, median and bands blue, truth orange"
                          : "history black, median and bands blue",
                 9.0, WIDTH - RIGHT, p->y0 + 16.0, true);
    if (c->first)
        bt_text_draw(p->cr, c->first, 9.0, LEFT, y, false);
    if (c->begin)
        bt_text_draw(p->cr, c->begin, 9.0, x_of(p, c->history_count) - 4.0, y,
                     true);
    if (c->last)
        bt_text_draw(p->cr, c->last, 9.0, WIDTH - RIGHT, y, true);
}

typedef struct chart_drawing {
    const bauta_chart *charts;
    size_t count;
} chart_drawing;

static bauta_status drawing_draw(cairo_t *cr, void *user, bauta_error *err)
{
    const chart_drawing *d = user;
    (void)err; // bt_sheet_save() asks cairo
    cairo_set_source_rgb(cr, 1.0, 1.0, 1.0);
    cairo_paint(cr);
    for (size_t i = 0; i < d->count; i++) {
        const bauta_chart *c = &d->charts[i];
        panel p = { .cr = cr, .c = c, .y0 = (double)(i * PANEL) };
        range_set(&p);
        axes_draw(&p);
        bands_draw(&p);
        line_draw(&p, c->history, c->history_count, 0, bt_ink, 1.1);
        line_draw(&p, c->quantiles + c->quantile_count / 2 * c->horizon,
                  c->horizon, c->history_count, band, 1.6);
        if (c->truth)
            line_draw(&p, c->truth, c->horizon, c->history_count, truth, 1.1);
        labels_draw(&p);
    }
    return BAUTA_OK;
}

bauta_status bt_charts_draw(const bauta_chart *charts, size_t count,
                            const char *path, bt_picture_format format,
                            bauta_error *err)
{
    chart_drawing d = { charts, count };
    const bt_sheet sheet = { "forecast", WIDTH, (double)(count * PANEL),
                             count > 8 ? 1.0 : 2.0 };
    return bt_sheet_save(&sheet, path, format, drawing_draw, &d, err);
}
