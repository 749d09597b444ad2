/* SPDX-License-Identifier: Apache-2.0 */
/* series.h - a table of numbers with dates. */
#ifndef BT_SERIES_H
#define BT_SERIES_H

#include "bauta.h"
#include "series/date.h"

enum {
    BT_SERIES_COLUMNS_MAX = 1024,
    BT_SERIES_CELLS_MAX = 1 << 26,
    BT_SERIES_NAME_MAX = 256 /* bytes */
};

struct bauta_series {
    size_t rows, columns;
    char **names;    /* (columns) */
    double **values; /* (columns) of (rows); NaN: missing */
    int64_t *dates;  /* (rows), or NULL */
    bt_date_form form;
    bt_interval interval;
};

/* An empty table with room for columns; bauta_series_free() accepts any state.
 */
bauta_status bt_series_create(bauta_series **out, size_t columns,
                              bauta_error *err);
bauta_status bt_series_set_name(bauta_series *series, size_t column,
                                const char *name, size_t size,
                                bauta_error *err);
/* Parse a cell: a number with a decimal point, or a missing value. */
bool bt_series_number(double *out, const char *cell, size_t size);

#endif
