/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.h - sampled continuations. */
#ifndef BT_FORECAST_H
#define BT_FORECAST_H

#include "series/codec.h"

enum { BT_FORECAST_SAMPLES_MAX = 10000, BT_FORECAST_HORIZON_MAX = 1 << 16 };

struct bauta_forecast {
    size_t columns, samples, horizon;
    double *paths; /* (columns, samples, horizon) */
};

/* Quantile of sorted numbers, linear between them. */
double bt_quantile(const double *sorted, size_t count, double quantile);

#endif
