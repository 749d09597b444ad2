/* SPDX-License-Identifier: Apache-2.0 */
/* lab_report_text.c - bauta lab: a report in the terminal. Allocates nothing,
 * so only the stream can fail. */
#include "../cli/terminal.h"
#include "lab_report.h"

#include <stdlib.h>
#include <string.h>

enum {
    TEXT = 78,      /* columns of a paragraph */
    WIDEST = 120,   /* of masks side by side */
    CELLS_MAX = 64, /* of a mask per side; larger ones are subsampled */
    GAP = 3,        /* columns between masks */
    MASKS_MAX = 8   /* side by side */
};

static void spaces(FILE *to, size_t count)
{
    while (count--)
        fputc(' ', to);
}

/* Wrap a text at `columns`. */
static void wrapped(FILE *to, const char *text, size_t indent, size_t columns)
{
    size_t column = 0;
    while (*text) {
        size_t bytes = strcspn(text, " \n");
        size_t width = text_columns_of(text, bytes);
        if (column && column + 1 + width > columns) {
            fputc('\n', to);
            column = 0;
        }
        if (column == 0) {
            spaces(to, indent);
            column = indent;
        } else if (width) {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, bytes, to);
        column += width;
        text += bytes + (text[bytes] != '\0');
    }
    fputc('\n', to);
}

/* ---- tables ------------------------------------------------------------ */

static void row_print(FILE *to, const table *t, size_t row)
{
    size_t owed = 2; // blanks, printed only before a cell
    for (size_t j = 0; j < t->columns; j++) {
        const char *cell = t->cells[row * t->columns + j];
        size_t room = t->widths[j] - text_columns(cell);
        owed += t->numbers[j] ? room : 0;
        if (*cell) {
            spaces(to, owed);
            fputs(cell, to);
            owed = 0;
        } else {
            owed += text_columns(cell);
        }
        owed += 2 + (t->numbers[j] ? 0 : room);
    }
    fputc('\n', to);
}

static void table_print(FILE *to, const table *t, bool colours)
{
    size_t width = 0;
    for (size_t j = 0; j < t->columns; j++)
        width += t->widths[j] + (j ? 2 : 0);
    fputs(colours ? "\033[2m" : "", to);
    row_print(to, t, 0);
    fputs("  ", to);
    while (width--)
        fputs("─", to);
    fputs(colours ? "\033[0m\n" : "\n", to);
    for (size_t i = 1; i <= t->rows; i++)
        row_print(to, t, i);
}

/* ---- masks ------------------------------------------------------------- */

/* A mask as it is drawn: every `step`-th query and key. */
typedef struct drawing {
    const mask_view *m;
    const char *title;
    size_t step, rows, columns, width;
} drawing;

static drawing drawing_of(const item *i, bool colours)
{
    size_t queries = bauta_mask_queries(i->of.mask.seen);
    size_t keys = bauta_mask_keys(i->of.mask.seen);
    size_t larger = queries > keys ? queries : keys;
    drawing d = { .m = &i->of.mask, .title = i->title };
    d.step = larger / CELLS_MAX + (larger % CELLS_MAX != 0);
    d.step = d.step ? d.step : 1;
    d.rows = queries / d.step + (queries % d.step != 0);
    d.columns = keys / d.step + (keys % d.step != 0);
    d.width = d.columns * (colours ? 2 : 1);
    if (text_columns(i->title) > d.width)
        d.width = text_columns(i->title);
    return d;
}

/* Every step-th pair, or a leak anywhere in the block. */
static char cell_of(const drawing *d, size_t row, size_t column)
{
    size_t queries = bauta_mask_queries(d->m->seen);
    size_t keys = bauta_mask_keys(d->m->seen);
    for (size_t i = row * d->step; i < (row + 1) * d->step && i < queries; i++)
        for (size_t j = column * d->step;
             d->m->leaks && j < (column + 1) * d->step && j < keys; j++)
            if (bauta_mask_visible(d->m->leaks, i, j))
                return '!';
    return mask_view_cell(d->m, row * d->step, column * d->step);
}

/* A row of a mask, and blanks up to the next mask. */
static void line_print(FILE *to, const drawing *d, size_t row, bool colours,
                       bool last)
{
    size_t used = row < d->rows ? d->columns * (colours ? 2 : 1) : 0;
    for (size_t j = 0; row < d->rows && j < d->columns; j++)
        mask_draw_cell(to, cell_of(d, row, j), colours);
    spaces(to, last ? 0 : d->width + GAP - used);
}

/* Print as many masks side by side as fit; returns how many. */
static size_t masks_print(FILE *to, const item *items, size_t count,
                          size_t room, bool colours)
{
    drawing d[MASKS_MAX];
    size_t n = 0, width = 2, rows = 0;
    while (n < count && n < MASKS_MAX) {
        d[n] = drawing_of(&items[n], colours);
        if (n && width + d[n].width > room)
            break;
        width += d[n].width + GAP;
        rows = d[n].rows > rows ? d[n].rows : rows;
        n++;
    }
    spaces(to, 2);
    for (size_t i = 0; i < n; i++) {
        fputs(d[i].title, to);
        spaces(to, i + 1 < n ? d[i].width + GAP - text_columns(d[i].title) : 0);
    }
    fputc('\n', to);
    for (size_t row = 0; row < rows; row++) {
        spaces(to, 2);
        for (size_t i = 0; i < n; i++)
            line_print(to, &d[i], row, colours, i + 1 == n);
        fputc('\n', to);
    }
    return n;
}

/* ---- attention --------------------------------------------------------- */

/* Weights in tenths: '.' is less than one, '#' is all. */
static char tenths(float weight)
{
    int tenth = (int)(10.0f * weight);
    return tenth <= 0 ? '.' : tenth > 9 ? '#' : (char)('0' + tenth);
}

static void padded(FILE *to, const char *label, size_t columns)
{
    spaces(to,
           columns > text_columns(label) ? columns - text_columns(label) : 0);
    fputs(label, to);
}

static void attention_print(FILE *to, const attention_view *a)
{
    size_t row_width = 1, width = 1;
    for (size_t i = 0; i < a->rows + a->columns; i++) {
        size_t *widest = i < a->rows ? &row_width : &width;
        size_t own = text_columns(a->labels[i]);
        *widest = own > *widest ? own : *widest;
    }
    spaces(to, 2 + row_width);
    for (size_t j = 0; j < a->columns; j++)
        padded(to, a->labels[a->rows + j], 1 + width);
    for (size_t i = 0; i < a->rows; i++) {
        fputs("\n  ", to);
        padded(to, a->labels[i], row_width);
        for (size_t j = 0; j < a->columns; j++) {
            spaces(to, width);
            fputc(tenths(a->weights[i * a->columns + j]), to);
        }
    }
    fputs("\n  rows read columns, weights in tenths\n", to);
}

/* ---- the report -------------------------------------------------------- */

static void quote_print(FILE *to, const char *text)
{
    bool first = true; // of a line
    for (; *text; text++) {
        if (first)
            fputs("  > ", to);
        // No control characters of a model reach the terminal.
        unsigned char c = (unsigned char)*text;
        fputc(c < 0x20 && c != '\n' ? ' ' : c == 0x7F ? '?' : c, to);
        first = c == '\n';
    }
    if (!first)
        fputc('\n', to);
}

static size_t item_print(FILE *to, const item *i, size_t left, size_t room,
                         bool colours)
{
    size_t masks = 0;
    while (masks < left && i[masks].kind == ITEM_MASK)
        masks++;
    if (masks)
        return masks_print(to, i, masks, room, colours);
    if (*i->title)
        fprintf(to, colours ? "\033[1m%s\033[0m\n" : "%s\n", i->title);
    if (*i->title && i->kind != ITEM_HEADING)
        fputc('\n', to);
    if (i->kind == ITEM_TABLE)
        table_print(to, &i->of.table, colours);
    else if (i->kind == ITEM_PLOT)
        plot_draw(to, &i->of.plot, room < TEXT ? room : TEXT, colours);
    else if (i->kind == ITEM_ATTENTION)
        attention_print(to, &i->of.attention);
    else if (i->kind == ITEM_QUOTE)
        quote_print(to, i->of.quote);
    return 1;
}

static void claims_print(FILE *to, const report *r, bool colours)
{
    for (size_t i = 0; i < r->claims; i++) {
        if (r->claim[i].holds)
            continue;
        fputs(colours ? "\n\033[1;31mThis does not hold:\033[0m\n"
                      : "\nThis does not hold:\n",
              to);
        wrapped(to, r->claim[i].text, 2, TEXT);
    }
}

void report_print(const report *r, FILE *to, bool colours)
{
    if (!report_valid(r))
        return;
    size_t room = terminal_columns(to) < WIDEST ? terminal_columns(to) : WIDEST;
    fprintf(to, colours ? "\033[1;36m%s\033[0m\n\n" : "%s\n\n", r->name);
    wrapped(to, r->question, 0, TEXT);
    for (size_t i = 0; i < r->items;) {
        fputc('\n', to);
        i += item_print(to, &r->item[i], r->items - i, room, colours);
    }
    if (r->sentences)
        fputc('\n', to);
    for (size_t i = 0; i < r->sentences; i++)
        wrapped(to, r->sentence[i], 0, TEXT);
    claims_print(to, r, colours);
}
