/* SPDX-License-Identifier: Apache-2.0 */
/* chart.c - checking charts of forecasts. */
#include "draw/chart.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/sized.h"

#include <string.h>

enum { CHARTS_MAX = 64, POINTS_MAX = 1 << 20, BANDS_MAX = 99 };

static bauta_status chart_check(const bauta_chart *c, bauta_error *err)
{
    BT_NEED(c->history, err);
    BT_NEED(c->quantiles, err);
    if (!c->history_count || c->history_count > POINTS_MAX || !c->horizon ||
        c->horizon > POINTS_MAX || c->quantile_count % 2 == 0 ||
        c->quantile_count > BANDS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a chart of %zu values, %zu forecasts and %zu quantiles "
                       "cannot be drawn",
                       c->history_count, c->horizon, c->quantile_count);
    return BAUTA_OK;
}

static bauta_status format_of(bt_picture_format *format, const char *path,
                              bauta_error *err)
{
    if (bt_ends_with(path, ".png"))
        *format = BT_PNG;
    else if (bt_ends_with(path, ".svg"))
        *format = BT_SVG;
    else if (bt_ends_with(path, ".pdf"))
        *format = BT_PDF;
    else
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: the name of a chart ends in .png, .svg or .pdf",
                       bt_path_tail(path));
    return BAUTA_OK;
}

bauta_status bauta_chart_save(const char *path, const bauta_chart *charts,
                              size_t count, bauta_error *err)
{
    bt_picture_format format = BT_PNG;
    BT_NEED(path, err);
    BT_NEED(charts, err);
    if (!count || count > CHARTS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu charts in one file are not 1 to %d", count,
                       CHARTS_MAX);
    bauta_status status = format_of(&format, path, err);
    if (status)
        return status;
    bauta_chart *own = bt_alloc_zero(count, sizeof(*own));
    if (!own)
        return bt_fail_memory(err, "charts", count * sizeof(*own));
    for (size_t i = 0; i < count && !status; i++) {
        status = BT_SIZED_ELEMENT(&own[i], BAUTA_CHART_INIT, charts, i,
                                  "charts", err);
        if (!status)
            status = chart_check(&own[i], err);
    }
    if (!status)
        status = bt_charts_draw(own, count, path, format, err);
    bt_free(own);
    return status;
}
