/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report_svg.c - bauta lab: plots, masks and attention as SVG within a
 * page, whose style sets the colours: k0 to k5 are curves; seen, hidden, leak
 * are pairs. */
#include "../cli/lines.h"
#include "lab_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void html_text(FILE *to, const char *text)
{
    size_t left = strlen(text);
    for (size_t n; left > 0; text += n, left -= n) {
        n = utf8_character((const unsigned char *)text, left);
        unsigned char c = (unsigned char)*text;
        if (n == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
            fputs("\xEF\xBF\xBD", to);
            n = n ? n : 1;
        } else if (c == '&')
            fputs("&amp;", to);
        else if (c == '<')
            fputs("&lt;", to);
        else if (c == '>')
            fputs("&gt;", to);
        else if (c == '"')
            fputs("&quot;", to);
        else
            fwrite(text, 1, n, to);
    }
}

/* ---- curves ------------------------------------------------------------ */

/* The plot within its frame. */
enum { LEFT = 62, TOP = 26, WIDTH = 560, HEIGHT = 240, BELOW = 48, RIGHT = 18 };
enum { CURVES = 6, MARKED = 48, LABEL = 24 };

static double x_of(const axis *a, double value)
{
    return LEFT + WIDTH * axis_at(a, value);
}

static double y_of(const axis *a, double value)
{
    return TOP + HEIGHT * (1.0 - axis_at(a, value));
}

/* Lines and labels at the ticks; labels that would overlap are left out. */
static void grid_svg(FILE *to, const axis *x, const axis *y)
{
    char label[LABEL];
    double free_from = 0;
    for (size_t i = 0; i < x->ticks; i++) {
        double at = x_of(x, x->tick[i]);
        axis_label(label, sizeof(label), x->tick[i]);
        double half = 4.0 * (double)strlen(label);
        fprintf(to, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", at, TOP,
                TOP + HEIGHT);
        if (at - half < free_from)
            continue;
        free_from = at + half;
        fprintf(to,
                "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor="
                "\"middle\">%s</text>\n",
                at, TOP + HEIGHT + 17, label);
    }
    for (size_t i = 0; i < y->ticks; i++) {
        double at = y_of(y, y->tick[i]);
        axis_label(label, sizeof(label), y->tick[i]);
        fprintf(to, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, at,
                LEFT + WIDTH);
        fprintf(to,
                "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor="
                "\"end\">%s</text>\n",
                LEFT - 7, at + 4.0, label);
    }
}

/* A disc, a square, a diamond or a triangle, so that curves differ in more than
 * colour. */
static void mark_svg(FILE *to, size_t of, double x, double y)
{
    static const char *const shapes[] = { "m-4 -4h8v8h-8z",
                                          "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
                                          "m0 -5l5 9h-10z" };
    if (of % 4 == 0)
        fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x, y);
    else
        fprintf(to, "<path d=\"M%.1f %.1f%s\"/>", x, y, shapes[of % 4 - 1]);
}

static void curve_svg(FILE *to, const plot *p, size_t of, const axis *x,
                      const axis *y)
{
    const curve *c = &p->curves[of];
    bool any = false;
    fprintf(to, "<g class=\"k%zu\"><path class=\"line\" d=\"", of % CURVES);
    for (size_t i = 0; i < c->count; i++) {
        if (!plot_shows(p, c->points[i]))
            continue;
        fprintf(to, "%c%.1f %.1f", any ? 'L' : 'M', x_of(x, c->points[i].x),
                y_of(y, c->points[i].y));
        any = true;
    }
    fputs(any ? "\"/>" : "M0 0\"/>", to);
    for (size_t i = 0; c->count <= MARKED && i < c->count; i++)
        if (plot_shows(p, c->points[i]))
            mark_svg(to, of, x_of(x, c->points[i].x), y_of(y, c->points[i].y));
    fputs("</g>\n", to);
}

static void legend_html(FILE *to, const plot *p)
{
    fputs("<ul class=\"legend\">", to);
    for (size_t c = 0; c < p->count; c++) {
        fprintf(to,
                "<li><svg width=\"26\" height=\"12\" aria-hidden=\"true\">"
                "<g class=\"k%zu\"><path class=\"line\" d=\"M1 6H25\"/>",
                c % CURVES);
        mark_svg(to, c, 13, 6);
        fputs("</g></svg>", to);
        html_text(to, p->curves[c].name);
        fputs("</li>", to);
    }
    fputs("</ul>\n", to);
}

void plot_svg(FILE *to, const plot *p, const char *title)
{
    axis x, y;
    if (!plot_axes(p, 7, 5, &x, &y)) {
        fputs("<p class=\"dim\">There is nothing to draw.</p>\n", to);
        return;
    }
    fprintf(to,
            "<div class=\"wide\"><svg class=\"plot\" viewBox=\"0 0 %d %d\" "
            "role=\"img\" "
            "aria-label=\"",
            LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW);
    html_text(to, title);
    fputs("\">\n", to);
    grid_svg(to, &x, &y);
    fprintf(to, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP,
            TOP + HEIGHT, LEFT + WIDTH);
    for (size_t c = 0; c < p->count; c++)
        curve_svg(to, p, c, &x, &y);
    fprintf(to, "<text class=\"name\" x=\"%d\" y=\"14\">", 6);
    html_text(to, p->upward);
    fprintf(to,
            "</text>\n<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor="
            "\"end\">",
            LEFT + WIDTH, TOP + HEIGHT + 38);
    html_text(to, p->across);
    fputs("</text>\n</svg></div>\n", to);
    legend_html(to, p);
}

/* ---- masks ------------------------------------------------------------- */

/* One rectangle per span; a pair is 10 by 10. */
static void spans_svg(FILE *to, const bauta_mask *mask, const char *kind)
{
    if (bauta_mask_pairs(mask) == 0)
        return;
    fprintf(to, "<path class=\"%s\" d=\"", kind);
    for (size_t i = 0; i < bauta_mask_queries(mask); i++) {
        size_t count;
        const bauta_span *spans = bauta_mask_row(mask, i, &count);
        for (size_t s = 0; s < count; s++)
            fprintf(to, "M%zu %zuh%zuv10h-%zuz", 10 * spans[s].lo, 10 * i,
                    10 * (spans[s].hi - spans[s].lo),
                    10 * (spans[s].hi - spans[s].lo));
    }
    fputs("\"/>\n", to);
}

/* Lines between pairs, for small masks. */
static void cells_svg(FILE *to, size_t queries, size_t keys)
{
    enum { GRID_MAX = 64 };
    if (queries > GRID_MAX || keys > GRID_MAX)
        return;
    fputs("<path class=\"parted\" d=\"", to);
    for (size_t i = 1; i < queries; i++)
        fprintf(to, "M0 %zuh%zu", 10 * i, 10 * keys);
    for (size_t j = 1; j < keys; j++)
        fprintf(to, "M%zu 0v%zu", 10 * j, 10 * queries);
    fputs("\"/>\n", to);
}

void mask_svg(FILE *to, const mask_view *m, const char *title)
{
    size_t queries = bauta_mask_queries(m->seen);
    size_t keys = bauta_mask_keys(m->seen);
    size_t larger = queries > keys ? queries : keys;
    // Leaves room for other masks beside it.
    double each = larger ? 288.0 / (double)larger : 1.0;
    each = each > 9.0 ? 9.0 : each;
    fprintf(to,
            "<svg class=\"mask\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %zu %zu\" role=\"img\" aria-label=\"",
            each * (double)keys, each * (double)queries, 10 * keys,
            10 * queries);
    html_text(to, title);
    fprintf(to, ": %llu of %zu pairs are visible, %llu of them are leaks\">\n",
            (unsigned long long)bauta_mask_pairs(m->seen), queries * keys,
            (unsigned long long)mask_view_leaks(m));
    fprintf(to,
            "<rect class=\"hidden\" width=\"%zu\" height=\"%zu\"/>\n"
            "<rect fill=\"url(#hatch)\" width=\"%zu\" height=\"%zu\"/>\n",
            10 * keys, 10 * queries, 10 * keys, 10 * queries);
    spans_svg(to, m->seen, "seen");
    if (m->leaks) {
        spans_svg(to, m->leaks, "leak");
        spans_svg(to, m->leaks, "crossed"); // for colour-blind readers
    }
    cells_svg(to, queries, keys);
    fputs("</svg>\n", to);
}

/* ---- attention --------------------------------------------------------- */

enum { CELL = 26, EDGE = 30 };

static void label_svg(FILE *to, size_t x, size_t y, const char *anchor,
                      const char *text)
{
    fprintf(to,
            "<text class=\"tick\" x=\"%zu\" y=\"%zu\" "
            "text-anchor=\"%s\">",
            x, y, anchor);
    html_text(to, text);
    fputs("</text>\n", to);
}

/* As in bauta_picture_save(), the colour follows the root of the weight. */
static void weight_svg(FILE *to, const attention_view *a, size_t row,
                       size_t column)
{
    double weight = (double)a->weights[row * a->columns + column];
    fprintf(to,
            "<rect class=\"seen\" x=\"%zu\" y=\"%zu\" width=\"%d\" "
            "height=\"%d\" fill-opacity=\"%.3f\"><title>",
            EDGE + CELL * column, EDGE + CELL * row, CELL - 1, CELL - 1,
            sqrt(weight));
    html_text(to, a->labels[row]);
    fputs(" reads ", to);
    html_text(to, a->labels[a->rows + column]);
    fprintf(to, ": %.1f %%</title></rect>\n", 100.0 * weight);
}

void attention_svg(FILE *to, const attention_view *a, const char *title)
{
    size_t width = EDGE + CELL * a->columns, height = EDGE + CELL * a->rows;
    fprintf(to,
            "<svg class=\"mask attention\" width=\"%zu\" height=\"%zu\" "
            "viewBox=\"0 0 %zu %zu\" role=\"img\" aria-label=\"",
            width, height, width, height);
    html_text(to, title);
    fprintf(to,
            ": weights of %zu rows and %zu columns\">\n"
            "<rect class=\"hidden\" x=\"%d\" y=\"%d\" width=\"%zu\" "
            "height=\"%zu\"/>\n",
            a->rows, a->columns, EDGE, EDGE, CELL * a->columns, CELL * a->rows);
    for (size_t j = 0; j < a->columns; j++)
        label_svg(to, EDGE + CELL * j + CELL / 2, EDGE - 9, "middle",
                  a->labels[a->rows + j]);
    for (size_t i = 0; i < a->rows; i++) {
        label_svg(to, EDGE - 8, EDGE + CELL * i + CELL / 2 + 4, "end",
                  a->labels[i]);
        for (size_t j = 0; j < a->columns; j++)
            weight_svg(to, a, i, j);
    }
    fputs("</svg>\n", to);
}
