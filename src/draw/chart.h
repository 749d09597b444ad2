/* SPDX-License-Identifier: Apache-2.0 */
/* chart.h - charts of forecasts: checked by chart.c, drawn by cairo/ or refused
 * by none/. */
#ifndef BT_CHART_H
#define BT_CHART_H

#include "draw/picture.h"

bauta_status bt_charts_draw(const bauta_chart *charts, size_t count,
                            const char *path, bt_picture_format format,
                            bauta_error *err);

#endif
