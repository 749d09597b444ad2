/* SPDX-License-Identifier: Apache-2.0 */
/* chart_panel.c - the error of a build without cairo. */
#include "base/error.h"
#include "base/file.h"
#include "draw/chart.h"

bauta_status bt_charts_draw(const bauta_chart *charts, size_t count,
                            const char *path, bt_picture_format format,
                            bauta_error *err)
{
    (void)charts;
    (void)count;
    (void)format;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "%s: this library was built without cairo, which draws PNG, "
                   "SVG and PDF",
                   bt_path_tail(path));
}
