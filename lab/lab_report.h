/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report.h - the contents of a report, for the output formats. */
#ifndef LAB_REPORT_H
#define LAB_REPORT_H

#include "lab.h"

typedef struct table {
    size_t columns, rows;
    char **cells;   /* (1 + rows, columns); the first row is the headings */
    size_t *widths; /* (columns) in characters, of the widest cell */
    bool *
        numbers; /* (columns) whether all cells below the heading are numbers */
} table;

typedef struct point {
    double x, y;
} point;

typedef struct curve {
    char *name;
    size_t count;
    point *points;
} curve;

typedef struct plot {
    char *across, *upward;
    bool log_across, log_upward;
    size_t count;
    curve *curves;
} plot;

typedef struct mask_view {
    bauta_mask *seen;
    bauta_mask *leaks; /* visible pairs that should be hidden; NULL: none */
} mask_view;

typedef struct attention_view {
    size_t rows, columns;
    char **labels;  /* (rows + columns) of the rows, then of the columns */
    float *weights; /* (rows, columns) from 0 to 1 */
} attention_view;

typedef enum item_kind {
    ITEM_HEADING, /* has only its title */
    ITEM_TABLE,
    ITEM_PLOT,
    ITEM_MASK,
    ITEM_ATTENTION,
    ITEM_QUOTE
} item_kind;

typedef struct item {
    item_kind kind;
    char *title;
    union {
        table table;
        plot plot;
        mask_view mask;
        attention_view attention;
        char *quote;
    } of;
} item;

typedef struct claim {
    bool holds;
    char *text;
} claim;

struct report {
    char *name, *question;
    size_t items, sentences, claims;
    item *item;
    char **sentence;
    claim *claim;
    json_t *toy;        /* or NULL */
    bool out_of_memory; /* something is missing */
};

/* ---- axes -------------------------------------------------------------- */

enum { TICKS_MAX = 12 };

typedef struct axis {
    bool logarithmic;
    double low, high;
    size_t ticks;
    double tick[TICKS_MAX]; /* round numbers from low to high */
} axis;

/* The axes of a plot, with about as many ticks as given. False if there is
 * nothing to draw. */
bool plot_axes(const plot *p, size_t across, size_t upward, axis *x, axis *y);
/* The position of a value, from 0 to 1. */
double axis_at(const axis *a, double value);
/* Whether a point can be drawn. */
bool plot_shows(const plot *p, point at);
/* The label of a tick. */
void axis_label(char *to, size_t size, double value);

/* Draw in characters, within `columns`. */
void plot_draw(FILE *to, const plot *p, size_t columns, bool colours);
/* Draw as SVG; the colours are those of the page. */
void plot_svg(FILE *to, const plot *p, const char *title);
void mask_svg(FILE *to, const mask_view *m, const char *title);
void attention_svg(FILE *to, const attention_view *a, const char *title);
/* A report for the page: its conclusion, its claims, then what was measured. */
void report_html(FILE *to, const report *r);
/* One claim of it, with a link to the whole; nothing if there is no such. */
void report_claim_html(FILE *to, const report *r, size_t index);
/* Escape a text for HTML; invalid UTF-8 becomes U+FFFD. */
void html_text(FILE *to, const char *text);

/* ---- masks ------------------------------------------------------------- */

/* '#' visible, '.' hidden, '!' a leak. */
char mask_view_cell(const mask_view *m, size_t query, size_t key);
/* The number of leaks. */
uint64_t mask_view_leaks(const mask_view *m);

#endif
