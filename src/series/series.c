/* SPDX-License-Identifier: Apache-2.0 */
/* series.c - a table of numbers with dates. */
#include "series/series.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/string_writer.h"

#include <stdio.h>
#include <string.h>

bauta_status bt_series_create(bauta_series **out, size_t columns,
                              bauta_error *err)
{
    bauta_series *series = bt_alloc_zero(1, sizeof(*series));
    *out = series;
    if (series) {
        series->columns = columns;
        series->names = bt_alloc_zero(columns, sizeof(*series->names));
        series->values = bt_alloc_zero(columns, sizeof(*series->values));
    }
    if (series && series->names && series->values)
        return BAUTA_OK;
    bauta_series_free(series);
    *out = NULL;
    return bt_fail_memory(err, "a table", columns * sizeof(double *));
}

void bauta_series_free(bauta_series *series)
{
    if (!series)
        return;
    for (size_t c = 0; c < series->columns; c++) {
        if (series->names)
            bt_free(series->names[c]);
        if (series->values)
            bt_free(series->values[c]);
    }
    bt_free(series->names);
    bt_free(series->values);
    bt_free(series->dates);
    bt_free(series);
}

bauta_status bt_series_set_name(bauta_series *series, size_t column,
                                const char *name, size_t size, bauta_error *err)
{
    char *copy = bt_alloc(size + 1);
    if (!copy)
        return bt_fail_memory(err, "a name", size + 1);
    memcpy(copy, name, size);
    copy[size] = '\0';
    series->names[column] = copy;
    return BAUTA_OK;
}

static bauta_status column_fill(bauta_series *series, size_t column,
                                const double *values, bauta_error *err)
{
    size_t bytes = bt_size_mul(series->rows, sizeof(double));
    double *copy = bt_alloc(bytes);
    char name[24];
    if (!copy)
        return bt_fail_memory(err, "a column", bytes);
    series->values[column] = copy;
    for (size_t i = 0; i < series->rows; i++)
        copy[i] = values[i * series->columns + column];
    int length = snprintf(name, sizeof(name), "%zu", column + 1);
    return bt_series_set_name(series, column, name, (size_t)length, err);
}

bauta_status bauta_series_create(bauta_series **out, const double *values,
                                 size_t rows, size_t columns, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(values, err);
    if (!rows || !columns || columns > BT_SERIES_COLUMNS_MAX ||
        rows > BT_SERIES_CELLS_MAX / columns)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a table of %zu rows and %zu columns is not within 1 "
                       "and %d cells",
                       rows, columns, BT_SERIES_CELLS_MAX);
    bauta_status status = bt_series_create(out, columns, err);
    if (status)
        return status;
    (*out)->rows = rows;
    for (size_t c = 0; c < columns && !status; c++)
        status = column_fill(*out, c, values, err);
    if (status) {
        bauta_series_free(*out);
        *out = NULL;
    }
    return status;
}

size_t bauta_series_rows(const bauta_series *series)
{
    return series->rows;
}

size_t bauta_series_columns(const bauta_series *series)
{
    return series->columns;
}

const char *bauta_series_name(const bauta_series *series, size_t column)
{
    return column < series->columns ? series->names[column] : NULL;
}

const double *bauta_series_values(const bauta_series *series, size_t column)
{
    return column < series->columns ? series->values[column] : NULL;
}

bool bauta_series_has_dates(const bauta_series *series)
{
    return series->dates != NULL;
}

size_t bauta_series_season(const bauta_series *series)
{
    return bt_interval_season(&series->interval);
}

size_t bauta_series_date(const bauta_series *series, size_t row, char *text,
                         size_t size)
{
    bt_string_writer w = { text, size, 0 };
    char date[BT_DATE_BYTES] = "";
    size_t last = series->rows - 1;
    if (series->dates && row <= last + BT_SERIES_CELLS_MAX)
        bt_date_write(date,
                      row <= last
                          ? series->dates[row]
                          : bt_interval_add(&series->interval,
                                            series->dates[last], row - last),
                      series->form);
    bt_put_text(&w, date);
    return bt_put_end(&w);
}
