/* SPDX-License-Identifier: Apache-2.0 */
/* lab_plot.c - bauta lab: axes, and plots in characters.
 *
 *      4 ┤           o
 *        │       ··
 *      2 ┤   o ··
 *        └───┬───────┬
 *            1       2
 *
 * Each curve has its own mark for points, connected by dots. */
#include "../cli/terminal.h"
#include "lab_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- axes -------------------------------------------------------------- */

/* Values near the limits of double have no round neighbours. */
static bool is_plottable(double value, bool logarithmic)
{
    if (logarithmic)
        return value >= 1e-290 && value <= 1e290;
    return fabs(value) <= 1e290; // false for NaN
}

bool plot_shows(const plot *p, point at)
{
    return is_plottable(at.x, p->log_across) &&
           is_plottable(at.y, p->log_upward);
}

double axis_at(const axis *a, double value)
{
    if (a->logarithmic)
        return (log(value) - log(a->low)) / (log(a->high) - log(a->low));
    return (value - a->low) / (a->high - a->low);
}

void axis_label(char *to, size_t size, double value)
{
    if (fabs(value) >= 1e5 || (value != 0 && fabs(value) < 1e-3))
        snprintf(to, size, "%.1e", value);
    else
        snprintf(to, size, "%g", round(value * 1e6) / 1e6 + 0.0); // no -0
}

/* The smallest 1, 2 or 5 times a power of ten that is at least `value`. */
static double round_up(double value)
{
    double ten = pow(10.0, floor(log10(value)));
    const double steps[] = { 1.0, 2.0, 5.0 };
    for (int i = 0; i < 3; i++)
        if (value <= steps[i] * ten * (1.0 + 1e-9))
            return steps[i] * ten;
    return 10.0 * ten;
}

static void tick_add(axis *a, double value)
{
    if (a->ticks < TICKS_MAX)
        a->tick[a->ticks++] = value;
}

/* Ticks at multiples of a round step, about `want` of them. */
static void steps_tick(axis *a, size_t want)
{
    double step = round_up((a->high - a->low) / (double)want);
    for (double i = ceil(a->low / step - 1e-6);
         i * step <= a->high + 1e-6 * step && a->ticks < TICKS_MAX; i++)
        tick_add(a, i * step);
}

static void linear_fit(axis *a, size_t want)
{
    double large = fmax(fabs(a->low), fabs(a->high));
    if (a->high - a->low <= 1e-9 * large || large < 1e-280) {
        double room = large < 1e-280 ? 1.0 : 0.5 * large;
        a->low -= room;
        a->high += room;
    }
    double step = round_up((a->high - a->low) / (double)want);
    a->low = floor(a->low / step + 1e-9) * step;
    a->high = ceil(a->high / step - 1e-9) * step;
    steps_tick(a, want);
}

/* Powers of ten; within two of them also 2 and 5 times each, and within one
 * the multiples of a step. */
static void log_fit(axis *a, size_t want)
{
    double decades = log10(a->high) - log10(a->low);
    double room = pow(10.0, 0.03 * fmax(decades, 0.5));
    a->low /= room;
    a->high *= room;
    if (decades < 1.0) {
        steps_tick(a, want);
        return;
    }
    double stride = ceil(decades / (double)want);
    for (double e = floor(log10(a->low)); pow(10.0, e) <= a->high; e += stride)
        for (int i = 0; i < (decades <= 2.0 ? 3 : 1); i++) {
            double value = pow(10.0, e) * (i == 0 ? 1.0 : i == 1 ? 2.0 : 5.0);
            if (value >= a->low && value <= a->high)
                tick_add(a, value);
        }
}

/* The values themselves if they are few: sizes, layers. */
static bool few_fit(axis *a, const plot *p)
{
    enum { FEW = 8 };
    for (size_t c = 0; c < p->count; c++)
        for (size_t i = 0; i < p->curves[c].count; i++) {
            point at = p->curves[c].points[i];
            size_t k = 0;
            while (k < a->ticks && a->tick[k] != at.x)
                k++;
            if (k < a->ticks || !plot_shows(p, at))
                continue;
            if (a->ticks == FEW) {
                a->ticks = 0;
                return false;
            }
            // In their order.
            for (k = a->ticks++; k > 0 && a->tick[k - 1] > at.x; k--)
                a->tick[k] = a->tick[k - 1];
            a->tick[k] = at.x;
        }
    return a->ticks > 1;
}

static void axis_fit(axis *a, size_t want)
{
    a->ticks = 0;
    if (a->logarithmic)
        log_fit(a, want);
    else
        linear_fit(a, want);
}

bool plot_axes(const plot *p, size_t across, size_t upward, axis *x, axis *y)
{
    bool any = false;
    *x = (axis){ .logarithmic = p->log_across };
    *y = (axis){ .logarithmic = p->log_upward };
    for (size_t c = 0; c < p->count; c++)
        for (size_t i = 0; i < p->curves[c].count; i++) {
            point at = p->curves[c].points[i];
            if (!plot_shows(p, at))
                continue;
            x->low = any ? fmin(x->low, at.x) : at.x;
            x->high = any ? fmax(x->high, at.x) : at.x;
            y->low = any ? fmin(y->low, at.y) : at.y;
            y->high = any ? fmax(y->high, at.y) : at.y;
            any = true;
        }
    if (!any)
        return false;
    if (!few_fit(x, p))
        axis_fit(x, across);
    axis_fit(y, upward);
    return true;
}

/* ---- characters -------------------------------------------------------- */

enum { WIDE = 72, HIGH = 16, LABEL = 24 };

typedef struct canvas {
    size_t width, margin; /* of the plot; of the labels on its left */
    bool colours;
    char mark[HIGH][WIDE]; /* 0: nothing */
    unsigned char of[HIGH][WIDE];
} canvas;

static const char marks[] = "ox+*#@";

static void mark_put(FILE *to, char mark, size_t of, bool colours)
{
    static const int shades[] = { 36, 33, 35, 32, 34, 37 };
    if (colours && mark)
        fprintf(to, "\033[%dm", shades[of % 6]);
    if (mark == '.')
        fputs("·", to);
    else
        fputc(mark ? mark : ' ', to);
    if (colours && mark)
        fputs("\033[0m", to);
}

/* Column and row of a point. */
static void cell_of(const canvas *v, const axis *x, const axis *y, point at,
                    long *column, long *row)
{
    *column = lround(axis_at(x, at.x) * (double)(v->width - 1));
    *row = HIGH - 1 - lround(axis_at(y, at.y) * (HIGH - 1));
}

/* Connect two cells with dots, where they are empty. */
static void dots_lead(canvas *v, size_t of, const long from[2],
                      const long to[2])
{
    long across = to[0] - from[0], down = to[1] - from[1];
    long steps = labs(across) > labs(down) ? labs(across) : labs(down);
    for (long s = 1; s < steps; s++) {
        double share = (double)s / (double)steps;
        long c = from[0] + lround(share * (double)across);
        long r = from[1] + lround(share * (double)down);
        if (v->mark[r][c])
            continue;
        v->mark[r][c] = '.';
        v->of[r][c] = (unsigned char)of;
    }
}

static void curve_put(canvas *v, const plot *p, size_t of, const axis *x,
                      const axis *y, bool points)
{
    const curve *c = &p->curves[of];
    long last[2] = { 0 }, now[2];
    bool any = false;
    for (size_t i = 0; i < c->count; i++) {
        if (!plot_shows(p, c->points[i]))
            continue;
        cell_of(v, x, y, c->points[i], &now[0], &now[1]);
        if (points) {
            v->mark[now[1]][now[0]] = marks[of % 6];
            v->of[now[1]][now[0]] = (unsigned char)of;
        } else if (any) {
            dots_lead(v, of, last, now);
        }
        last[0] = now[0];
        last[1] = now[1];
        any = true;
    }
}

static size_t margin_of(const axis *y)
{
    size_t width = 1;
    for (size_t i = 0; i < y->ticks; i++) {
        char label[LABEL];
        axis_label(label, sizeof(label), y->tick[i]);
        width = strlen(label) > width ? strlen(label) : width;
    }
    return width;
}

static void row_draw(FILE *to, const canvas *v, const axis *y, long row)
{
    char label[LABEL] = "";
    for (size_t i = 0; i < y->ticks; i++)
        if (lround(axis_at(y, y->tick[i]) * (HIGH - 1)) == HIGH - 1 - row)
            axis_label(label, sizeof(label), y->tick[i]);
    fprintf(to, "  %*s %s", (int)v->margin, label, *label ? "┤" : "│");
    size_t width = v->width;
    while (width > 0 && !v->mark[row][width - 1])
        width--; // no blanks at the end of a line
    for (size_t c = 0; c < width; c++)
        mark_put(to, v->mark[row][c], v->of[row][c], v->colours);
    fputc('\n', to);
}

/* The x axis with its ticks, and labels as far as there is room. */
static void across_draw(FILE *to, const canvas *v, const axis *x)
{
    char labels[WIDE + LABEL + 1];
    bool ticks[WIDE] = { false };
    size_t used = 0;
    memset(labels, ' ', sizeof(labels));
    for (size_t i = 0; i < x->ticks; i++) {
        char label[LABEL];
        axis_label(label, sizeof(label), x->tick[i]);
        size_t at =
            (size_t)lround(axis_at(x, x->tick[i]) * (double)(v->width - 1));
        size_t half = strlen(label) / 2, from = at > half ? at - half : 0;
        ticks[at] = true;
        if (used && from <= used)
            continue;
        memcpy(labels + from, label, strlen(label));
        used = from + strlen(label);
    }
    labels[used] = '\0';
    fprintf(to, "  %*s └", (int)v->margin, "");
    for (size_t c = 0; c < v->width; c++)
        fputs(ticks[c] ? "┬" : "─", to);
    fprintf(to, "\n  %*s  %s\n", (int)v->margin, "", labels);
}

static void legend_draw(FILE *to, const plot *p, const canvas *v)
{
    size_t column = 0, room = v->width + v->margin;
    for (size_t c = 0; c < p->count; c++) {
        size_t width = text_columns(p->curves[c].name) + 5;
        if (column && column + width > room) {
            fputc('\n', to);
            column = 0;
        }
        fprintf(to, column ? "   " : "  %*s  ", (int)v->margin, "");
        mark_put(to, marks[c % 6], c, v->colours);
        fprintf(to, " %s", p->curves[c].name);
        column += width;
    }
    fputc('\n', to);
}

void plot_draw(FILE *to, const plot *p, size_t columns, bool colours)
{
    canvas v = { .colours = colours };
    axis x, y;
    if (!plot_axes(p, 6, 5, &x, &y)) {
        fputs("  (there is nothing to draw)\n", to);
        return;
    }
    v.margin = margin_of(&y);
    v.width = columns > v.margin + 24 ? columns - v.margin - 4 : 20;
    v.width = v.width < WIDE ? v.width : WIDE;
    for (int points = 0; points < 2; points++)
        for (size_t c = 0; c < p->count; c++)
            curve_put(&v, p, c, &x, &y, points == 1);
    fprintf(to, "  %s\n", p->upward);
    for (long row = 0; row < HIGH; row++)
        row_draw(to, &v, &y, row);
    across_draw(to, &v, &x);
    size_t label = text_columns(p->across), left = v.margin + v.width + 2;
    fprintf(to, "  %*s%s\n\n", label < left ? (int)(left - label) : 0, "",
            p->across);
    legend_draw(to, p, &v);
}
