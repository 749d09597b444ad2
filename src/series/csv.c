/* SPDX-License-Identifier: Apache-2.0 */
/* csv.c - reading a table from a CSV file.
 *
 * The lines are read once. Cells are kept as numbers and as dates until the end
 * shows which columns are which: a column that holds anything else is left out,
 * unless it was asked for by name. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "series/series.h"
#include "text/io/text_file.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- cells ------------------------------------------------------------- */

static bool is_word(const char *cell, size_t size, const char *word)
{
    return size == strlen(word) && memcmp(cell, word, size) == 0;
}

/* strtod() would also take "0x1p3", "inf" and the decimal point of the locale.
 */
bool bt_series_number(double *out, const char *cell, size_t size)
{
    char number[64], *end;
    if (size == 0 || is_word(cell, size, "NA") || is_word(cell, size, "NaN")) {
        *out = NAN;
        return true;
    }
    if (size >= sizeof(number))
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!cell[i] || !strchr("0123456789+-.eE", cell[i]))
            return false;
        number[i] = cell[i] == '.' ? *localeconv()->decimal_point : cell[i];
    }
    number[size] = '\0';
    *out = strtod(number, &end);
    return end == number + size && isfinite(*out);
}

/* The next cell of a line from *at, without blanks and quotes around it. A
 * quote inside quotes is doubled, and such cells are no numbers, so the doubled
 * quotes may stay. False if the quotes are not closed. */
typedef struct cell {
    const char *text;
    size_t size;
} cell;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool cell_next(cell *out, const char *line, size_t size, size_t *at)
{
    size_t begin = *at, end = *at;
    bool quoted = false;
    for (; end < size && (quoted || line[end] != ','); end++)
        quoted ^= line[end] == '"';
    *at = end + 1;
    while (begin < end && is_blank(line[begin]))
        begin++;
    while (end > begin && is_blank(line[end - 1]))
        end--;
    if (end - begin >= 2 && line[begin] == '"' && line[end - 1] == '"') {
        begin++;
        end--;
    }
    *out = (cell){ line + begin, end - begin };
    return !quoted;
}

/* ---- columns ----------------------------------------------------------- */

typedef struct column {
    char name[BT_SERIES_NAME_MAX];
    size_t name_size;
    double *values;  /* (room), while it may be numbers */
    int64_t *dates;  /* (room), while it may be dates */
    bool is_numbers; /* so far */
    bool is_dates;
    bool any;   /* a value that is not missing */
    size_t bad; /* line of the first cell that is no number */
    bt_date_form form;
} column;

typedef struct reader {
    bauta_text_file *file;
    const bauta_series_options *options;
    column *columns;
    size_t count, rows, room;
    size_t date; /* column of the dates, or `count` */
} reader;

static bauta_status columns_begin(reader *r, const char *line, size_t size,
                                  size_t number, bauta_error *err)
{
    cell c;
    size_t count = 0;
    for (size_t at = 0; at <= size; count++)
        if (!cell_next(&c, line, size, &at))
            return bt_text_file_fail(r->file, number,
                                     "has a quote that is not closed", err);
    if (count > BT_SERIES_COLUMNS_MAX)
        return bt_text_file_fail(r->file, number, "has more than 1024 columns",
                                 err);
    r->columns = bt_alloc_zero(count, sizeof(*r->columns));
    if (!r->columns)
        return bt_fail_memory(err, "a table", count * sizeof(*r->columns));
    r->count = r->date = count;
    for (size_t i = 0, at = 0; i < count; i++) {
        column *to = &r->columns[i];
        cell_next(&c, line, size, &at);
        if (c.size >= sizeof(to->name))
            return bt_text_file_fail(r->file, number,
                                     "has a name of more than 255 bytes", err);
        memcpy(to->name, c.text, c.size);
        to->name_size = c.size;
        to->is_numbers = to->is_dates = true;
    }
    return BAUTA_OK;
}

/* A longer copy of `rows` cells of 8 bytes, or NULL; frees the old ones. What
 * is not wanted is freed only. */
static void *cells_grown(void *cells, size_t rows, size_t room, bool wanted)
{
    void *more = wanted ? bt_alloc(bt_size_mul(room, 8)) : NULL;
    if (more && rows)
        memcpy(more, cells, 8 * rows);
    bt_free(cells);
    return more;
}

/* Room for one more row. A column that is no longer one of numbers, or of
 * dates, keeps none: so hardly any column keeps both. */
static bauta_status rows_reserve(reader *r, bauta_error *err)
{
    if (r->rows >= BT_SERIES_CELLS_MAX / r->count)
        return bt_fail(err, BAUTA_ERR_FORMAT, "%s: has more than %d cells",
                       bt_text_file_name(r->file), BT_SERIES_CELLS_MAX);
    if (r->rows < r->room)
        return BAUTA_OK;
    size_t room = r->room ? 2 * r->room : 64;
    for (size_t i = 0; i < r->count; i++) {
        column *c = &r->columns[i];
        c->values = cells_grown(c->values, r->rows, room, c->is_numbers);
        c->dates = cells_grown(c->dates, r->rows, room, c->is_dates);
        if ((c->is_numbers && !c->values) || (c->is_dates && !c->dates))
            return bt_fail_memory(err, "a table", room * sizeof(double));
    }
    r->room = room;
    return BAUTA_OK;
}

static void cell_take(column *c, const cell *from, size_t row, size_t line)
{
    bt_date_form form = BT_DATE_MONTH;
    if (c->is_numbers &&
        !bt_series_number(&c->values[row], from->text, from->size)) {
        c->is_numbers = false;
        c->bad = line;
    }
    c->any |= c->is_numbers && !isnan(c->values[row]);
    if (c->is_dates)
        c->is_dates =
            bt_date_parse(&c->dates[row], &form, from->text, from->size) &&
            (row == 0 || c->dates[row] > c->dates[row - 1]);
    if (form > c->form)
        c->form = form;
}

static bauta_status row_take(reader *r, const bt_text_line *line,
                             bauta_error *err)
{
    cell c;
    size_t at = 0, i = 0;
    bauta_status status = rows_reserve(r, err);
    for (; !status && at <= line->size; i++) {
        if (!cell_next(&c, line->text, line->size, &at))
            return bt_text_file_fail(r->file, line->number,
                                     "has a quote that is not closed", err);
        if (i < r->count)
            cell_take(&r->columns[i], &c, r->rows, line->number);
    }
    if (!status && i != r->count)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s, line %zu: has %zu cells, but the header has %zu",
                       bt_text_file_name(r->file), line->number, i, r->count);
    r->rows++;
    return status;
}

static bool line_is_empty(const bt_text_line *line)
{
    for (size_t i = 0; i < line->size; i++)
        if (!is_blank(line->text[i]))
            return false;
    return true;
}

static bauta_status lines_read(reader *r, bauta_error *err)
{
    bt_text_line line;
    for (;;) {
        bauta_status status = bt_text_file_next_line(r->file, &line, err);
        if (status || !line.text)
            return status;
        if (line.error)
            return bt_text_file_fail_invalid(r->file, &line, err);
        if (line_is_empty(&line))
            continue;
        status = r->columns
                     ? row_take(r, &line, err)
                     : columns_begin(r, line.text, line.size, line.number, err);
        if (status)
            return status;
    }
}

/* ---- choosing columns -------------------------------------------------- */

static size_t column_find(const reader *r, const char *name)
{
    size_t i = 0;
    while (i < r->count &&
           !is_word(r->columns[i].name, r->columns[i].name_size, name))
        i++;
    return i;
}

static bauta_status fail_column(const reader *r, const char *name,
                                const char *why, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s: column \"%s\" %s",
                   bt_text_file_name(r->file), bt_quote(name).text, why);
}

static bauta_status date_choose(reader *r, bauta_error *err)
{
    const char *name = r->options->date;
    r->date = name ? column_find(r, name) : 0;
    if (name && r->date == r->count)
        return fail_column(r, name, "is missing", err);
    if (name && !r->columns[r->date].is_dates)
        return fail_column(r, name, "does not hold increasing dates", err);
    while (r->date < r->count && !r->columns[r->date].is_dates)
        r->date++;
    return BAUTA_OK;
}

/* Whether a column is read, and an error if it was asked for but is none of
 * numbers. */
static bauta_status column_wanted(const reader *r, size_t i, bool *wanted,
                                  bauta_error *err)
{
    const column *c = &r->columns[i];
    *wanted = i != r->date && c->is_numbers && c->any;
    if (!r->options->column_count)
        return BAUTA_OK;
    for (size_t k = 0; k < r->options->column_count; k++)
        if (column_find(r, r->options->columns[k]) == i) {
            if (*wanted)
                return BAUTA_OK;
            return bt_fail(err, BAUTA_ERR_FORMAT,
                           "%s: column \"%s\" does not hold numbers; see line "
                           "%zu",
                           bt_text_file_name(r->file),
                           bt_quote(r->options->columns[k]).text, c->bad);
        }
    *wanted = false;
    return BAUTA_OK;
}

static bauta_status names_check(const reader *r, bauta_error *err)
{
    for (size_t k = 0; k < r->options->column_count; k++) {
        BT_NEED(r->options->columns[k], err);
        if (column_find(r, r->options->columns[k]) == r->count)
            return fail_column(r, r->options->columns[k], "is missing", err);
    }
    return BAUTA_OK;
}

static void column_move(bauta_series *to, size_t at, column *c)
{
    to->values[at] = c->values;
    c->values = NULL;
}

static bauta_status series_make(bauta_series *to, reader *r, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t made = 0;
    for (size_t i = 0; i < r->count && !status; i++) {
        bool wanted;
        status = column_wanted(r, i, &wanted, err);
        if (status || !wanted)
            continue;
        status = bt_series_set_name(to, made, r->columns[i].name,
                                    r->columns[i].name_size, err);
        if (!status)
            column_move(to, made++, &r->columns[i]);
    }
    to->columns = made;
    to->rows = r->rows;
    if (r->date < r->count) {
        column *c = &r->columns[r->date];
        to->dates = c->dates;
        c->dates = NULL;
        to->form = c->form;
        to->interval = bt_interval_of(to->dates, r->rows);
    }
    if (!status && !made)
        status = bt_fail(err, BAUTA_ERR_FORMAT,
                         "%s: there is no column of numbers; the first cell "
                         "that is none is in line %zu",
                         bt_text_file_name(r->file), r->columns[0].bad);
    return status;
}

static bauta_status reader_run(reader *r, bauta_series **out, bauta_error *err)
{
    bauta_status status = lines_read(r, err);
    if (!status && !r->rows)
        status = bt_fail(err, BAUTA_ERR_FORMAT,
                         "%s: there are no rows below the header",
                         bt_text_file_name(r->file));
    if (!status)
        status = date_choose(r, err);
    if (!status)
        status = names_check(r, err);
    if (!status)
        status = bt_series_create(out, r->count, err);
    return status ? status : series_make(*out, r, err);
}

bauta_status bauta_series_load(bauta_series **out, const char *path,
                               const bauta_series_options *options,
                               bauta_error *err)
{
    bauta_series_options how;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(path, err);
    bauta_status status =
        BT_SIZED_READ(&how, BAUTA_SERIES_OPTIONS_INIT, options, "options", err);
    if (status)
        return status;
    if (how.column_count)
        BT_NEED(how.columns, err);
    reader r = { .options = &how };
    status = bauta_text_file_open(&r.file, path, err);
    if (!status)
        status = reader_run(&r, out, err);
    if (status) {
        bauta_series_free(*out);
        *out = NULL;
    }
    for (size_t i = 0; i < r.count; i++) {
        bt_free(r.columns[i].values);
        bt_free(r.columns[i].dates);
    }
    bt_free(r.columns);
    bauta_text_file_free(r.file);
    return status;
}
