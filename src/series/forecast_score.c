/* SPDX-License-Identifier: Apache-2.0 */
/* forecast_score.c - MASE (Hyndman and Koehler 2006) and the weighted quantile
 * loss. */
#include "base/error.h"
#include "base/sized.h"
#include "series/series.h"

#include <math.h>

/* The mean absolute seasonal difference within the history. */
static double naive_error(const double *history, size_t rows, size_t season)
{
    double sum = 0.0;
    size_t count = 0;
    for (size_t t = season; t < rows; t++) {
        double d = fabs(history[t] - history[t - season]);
        if (!isnan(d)) {
            sum += d;
            count++;
        }
    }
    return sum / (double)count; // NaN if there is none
}

static double absolute_error(const double *forecast, const double *truth,
                             size_t horizon)
{
    double sum = 0.0;
    size_t count = 0;
    for (size_t h = 0; h < horizon; h++)
        if (!isnan(truth[h])) {
            sum += fabs(truth[h] - forecast[h]);
            count++;
        }
    return sum / (double)count;
}

static double pinball(double quantile, double forecast, double truth)
{
    double d = truth - forecast;
    return d >= 0.0 ? quantile * d : (quantile - 1.0) * d;
}

static double quantile_loss(const double *quantiles, size_t count,
                            const double *forecast, const double *truth,
                            size_t horizon)
{
    double loss = 0.0, weight = 0.0;
    for (size_t h = 0; h < horizon; h++) {
        if (isnan(truth[h]))
            continue;
        weight += fabs(truth[h]);
        for (size_t k = 0; k < count; k++)
            loss += 2.0 / (double)count *
                    pinball(quantiles[k], forecast[k * horizon + h], truth[h]);
    }
    return loss / weight;
}

bauta_status bauta_forecast_evaluate(const double *history, size_t rows,
                                     size_t season, const double *quantiles,
                                     size_t count, const double *forecast,
                                     const double *truth, size_t horizon,
                                     bauta_forecast_score *score,
                                     bauta_error *err)
{
    BT_NEED(history, err);
    BT_NEED(quantiles, err);
    BT_NEED(forecast, err);
    BT_NEED(truth, err);
    BT_NEED(score, err);
    bauta_status status =
        BT_SIZED_CHECK(score, BAUTA_FORECAST_SCORE_INIT, "score", err);
    if (status)
        return status;
    size_t median = 0;
    while (median < count && quantiles[median] != 0.5)
        median++;
    if (median == count || !season)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the season is 0, or 0.5 is not among the quantiles");
    bauta_forecast_score own = BAUTA_FORECAST_SCORE_INIT;
    own.mase = absolute_error(forecast + median * horizon, truth, horizon) /
               naive_error(history, rows, season);
    own.weighted_quantile_loss =
        quantile_loss(quantiles, count, forecast, truth, horizon);
    BT_SIZED_WRITE(score, &own);
    return BAUTA_OK;
}
