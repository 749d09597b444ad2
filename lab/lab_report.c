/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report.c - bauta lab: the findings of an experiment.
 *
 * An experiment need not check these calls: running out of memory marks the
 * report, and all later calls do nothing. */
#include "lab_report.h"

#include "../cli/terminal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------ */

/* Grow an array by one element. The capacity doubles whenever the count is a
 * power of two, so it need not be stored. */
static void *grown(report *r, void *array, size_t count, size_t size)
{
    if (count & (count - 1))
        return array;
    void *more = realloc(array, (count ? 2 * count : 1) * size);
    r->out_of_memory = r->out_of_memory || !more;
    return more;
}

static char *copied(report *r, const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    r->out_of_memory = r->out_of_memory || !copy;
    return copy;
}

static char *text_copy(report *r, const char *text)
{
    return copied(r, text ? text : "", text ? strlen(text) : 0);
}

static char *formatted(report *r, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    r->out_of_memory = r->out_of_memory || !text;
    return text;
}

/* ---- a report ---------------------------------------------------------- */

report *report_create(const char *name, const char *question)
{
    report *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->name = text_copy(r, name);
    r->question = text_copy(r, question);
    if (!r->out_of_memory)
        return r;
    report_free(r);
    return NULL;
}

static void table_release(table *t)
{
    for (size_t i = 0; i < (1 + t->rows) * t->columns; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t->widths);
    free(t->numbers);
}

static void plot_release(plot *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->curves[i].name);
        free(p->curves[i].points);
    }
    free(p->curves);
    free(p->across);
    free(p->upward);
}

static void attention_release(attention_view *a)
{
    for (size_t i = 0; a->labels && i < a->rows + a->columns; i++)
        free(a->labels[i]);
    free(a->labels);
    free(a->weights);
}

static void item_release(item *i)
{
    free(i->title);
    switch (i->kind) {
    case ITEM_TABLE:
        table_release(&i->of.table);
        break;
    case ITEM_PLOT:
        plot_release(&i->of.plot);
        break;
    case ITEM_MASK:
        bauta_mask_free(i->of.mask.seen);
        bauta_mask_free(i->of.mask.leaks);
        break;
    case ITEM_ATTENTION:
        attention_release(&i->of.attention);
        break;
    case ITEM_QUOTE:
        free(i->of.quote);
        break;
    case ITEM_HEADING:
        break;
    }
}

void report_free(report *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->items; i++)
        item_release(&r->item[i]);
    for (size_t i = 0; i < r->sentences; i++)
        free(r->sentence[i]);
    for (size_t i = 0; i < r->claims; i++)
        free(r->claim[i].text);
    free(r->item);
    free(r->sentence);
    free(r->claim);
    json_decref(r->toy);
    free(r->name);
    free(r->question);
    free(r);
}

bool report_valid(const report *r)
{
    return r && !r->out_of_memory;
}

bool report_passed(const report *r)
{
    bool holds = report_valid(r);
    for (size_t i = 0; holds && i < r->claims; i++)
        holds = r->claim[i].holds;
    return holds;
}

/* Append an empty item; or NULL. */
static item *item_add(report *r, item_kind kind, const char *title)
{
    if (!report_valid(r))
        return NULL;
    item *more = grown(r, r->item, r->items, sizeof(*more));
    if (!more)
        return NULL;
    r->item = more;
    item *last = &r->item[r->items++];
    *last = (item){ .kind = kind };
    last->title = text_copy(r, title);
    return last;
}

/* The last item if it is of this kind; or NULL. */
static item *item_last(report *r, item_kind kind)
{
    if (!report_valid(r) || r->items == 0)
        return NULL;
    item *last = &r->item[r->items - 1];
    return last->kind == kind ? last : NULL;
}

void report_heading(report *r, const char *text)
{
    item_add(r, ITEM_HEADING, text);
}

/* ---- tables ------------------------------------------------------------ */

/* "12", "-0.5", "1e-6", "53 %", "1,024", "3x", "-": right-aligned. */
static bool is_number(const char *text)
{
    if (strcmp(text, "-") == 0)
        return true;
    text += *text == '-' || *text == '+';
    if (*text < '0' || *text > '9')
        return false;
    text += strspn(text, "0123456789.,e+-");
    return strspn(text, " %xXµmskMGns") == strlen(text);
}

static void cell_add(report *r, table *t, size_t row, size_t column,
                     const char *text, size_t length)
{
    char *cell = copied(r, text, length);
    t->cells[row * t->columns + column] = cell;
    if (!cell)
        return;
    size_t width = text_columns(cell);
    if (width > t->widths[column])
        t->widths[column] = width;
    if (row && *cell && !is_number(cell))
        t->numbers[column] = false;
}

/* Split a line at tabs into the cells of a row. The row counts once its cells
 * exist, if only as NULL, so that it can be released. */
static void row_add(report *r, table *t, size_t row, const char *line)
{
    size_t all = (1 + row) * t->columns;
    char **more = realloc(t->cells, all * sizeof(*more));
    r->out_of_memory = r->out_of_memory || !more;
    if (!more)
        return;
    t->cells = more;
    memset(more + row * t->columns, 0, t->columns * sizeof(*more));
    t->rows = row;
    for (size_t j = 0; j < t->columns; j++) {
        size_t length = strcspn(line, "\t");
        cell_add(r, t, row, j, line, length);
        line += length + (line[length] == '\t');
    }
}

void report_table(report *r, const char *title, const char *headings)
{
    item *i = item_add(r, ITEM_TABLE, title);
    if (!i)
        return;
    size_t columns = 1;
    for (const char *c = headings; *c; c++)
        columns += *c == '\t';
    table *t = &i->of.table;
    t->widths = calloc(columns, sizeof(*t->widths));
    t->numbers = calloc(columns, sizeof(*t->numbers));
    if (!t->widths || !t->numbers) {
        r->out_of_memory = true;
        return;
    }
    for (size_t j = 0; j < columns; j++)
        t->numbers[j] = true;
    t->columns = columns;
    row_add(r, t, 0, headings);
    if (!t->cells)
        t->columns = 0;
}

void report_row(report *r, const char *format, ...)
{
    item *i = item_last(r, ITEM_TABLE);
    if (!i)
        return;
    va_list args;
    va_start(args, format);
    char *line = formatted(r, format, args);
    va_end(args);
    if (line)
        row_add(r, &i->of.table, i->of.table.rows + 1, line);
    free(line);
}

/* ---- plots ------------------------------------------------------------- */

void report_plot(report *r, const plot_options *options)
{
    item *i = item_add(r, ITEM_PLOT, options->title);
    if (!i)
        return;
    plot *p = &i->of.plot;
    p->log_across = options->log_across;
    p->log_upward = options->log_upward;
    p->across = text_copy(r, options->across);
    p->upward = text_copy(r, options->upward);
}

void report_curve(report *r, const char *name)
{
    item *i = item_last(r, ITEM_PLOT);
    if (!i)
        return;
    plot *p = &i->of.plot;
    curve *more = grown(r, p->curves, p->count, sizeof(*more));
    if (!more)
        return;
    p->curves = more;
    p->curves[p->count] = (curve){ .name = text_copy(r, name) };
    p->count++;
}

void report_point(report *r, double x, double y)
{
    item *i = item_last(r, ITEM_PLOT);
    if (!i || i->of.plot.count == 0)
        return;
    curve *c = &i->of.plot.curves[i->of.plot.count - 1];
    point *more = grown(r, c->points, c->count, sizeof(*more));
    if (!more)
        return;
    c->points = more;
    c->points[c->count++] = (point){ x, y };
}

/* ---- masks ------------------------------------------------------------- */

/* The pairs that `mask` shows and `allowed` hides. */
static bauta_status leaks_find(bauta_mask **out, const bauta_mask *mask,
                               const bauta_mask *allowed)
{
    bauta_mask *hidden = NULL;
    bauta_status status = bauta_mask_not(&hidden, allowed, NULL);
    if (!status)
        status = bauta_mask_and(out, mask, hidden, NULL);
    bauta_mask_free(hidden);
    return status;
}

void report_mask(report *r, const char *title, const bauta_mask *mask,
                 const bauta_mask *allowed)
{
    item *i = item_add(r, ITEM_MASK, title);
    if (!i)
        return;
    mask_view *m = &i->of.mask;
    // A mask AND itself is a copy.
    bauta_status status = bauta_mask_and(&m->seen, mask, mask, NULL);
    if (!status && allowed)
        status = leaks_find(&m->leaks, mask, allowed);
    r->out_of_memory = r->out_of_memory || status != BAUTA_OK;
}

char mask_view_cell(const mask_view *m, size_t query, size_t key)
{
    if (m->leaks && bauta_mask_visible(m->leaks, query, key))
        return '!';
    return bauta_mask_visible(m->seen, query, key) ? '#' : '.';
}

uint64_t mask_view_leaks(const mask_view *m)
{
    return m->leaks ? bauta_mask_pairs(m->leaks) : 0;
}

/* ---- attention --------------------------------------------------------- */

void report_attention(report *r, const char *title, size_t rows, size_t columns,
                      const char *const *row_labels,
                      const char *const *column_labels, const float *weights)
{
    item *i = item_add(r, ITEM_ATTENTION, title);
    if (!i)
        return;
    attention_view *a = &i->of.attention;
    *a = (attention_view){ .rows = rows, .columns = columns };
    a->labels = calloc(rows + columns, sizeof(*a->labels));
    a->weights = malloc(rows * columns * sizeof(*a->weights));
    if (!a->labels || !a->weights) {
        r->out_of_memory = true;
        return;
    }
    for (size_t k = 0; k < rows + columns; k++)
        a->labels[k] =
            text_copy(r, k < rows ? row_labels[k] : column_labels[k - rows]);
    memcpy(a->weights, weights, rows * columns * sizeof(*weights));
}

/* ---- toys -------------------------------------------------------------- */

void report_toy(report *r, json_t *toy)
{
    if (!report_valid(r)) {
        json_decref(toy);
        return;
    }
    json_decref(r->toy);
    r->toy = toy;
}

/* ---- words ------------------------------------------------------------- */

void report_quote(report *r, const char *title, const char *text)
{
    item *i = item_add(r, ITEM_QUOTE, title);
    if (i)
        i->of.quote = text_copy(r, text);
}

void report_conclude(report *r, const char *format, ...)
{
    char **more = report_valid(r)
                      ? grown(r, r->sentence, r->sentences, sizeof(*more))
                      : NULL;
    if (!more)
        return;
    va_list args;
    va_start(args, format);
    r->sentence = more;
    r->sentence[r->sentences++] = formatted(r, format, args);
    va_end(args);
}

void report_claim(report *r, bool holds, const char *format, ...)
{
    claim *more =
        report_valid(r) ? grown(r, r->claim, r->claims, sizeof(*more)) : NULL;
    if (!more)
        return;
    va_list args;
    va_start(args, format);
    r->claim = more;
    r->claim[r->claims++] = (claim){ holds, formatted(r, format, args) };
    va_end(args);
}
