/* SPDX-License-Identifier: Apache-2.0 */
/* baseline.c - classical forecasts to compare with.
 *
 * Each method gives a point forecast and the standard deviation of its error at
 * each step, from its residuals within the history. Holt-Winters works on
 * logarithms if all values are positive: an additive season there is a
 * multiplicative one of the values. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "series/codec.h"

#include <math.h>

const char *bauta_baseline_name(bauta_baseline baseline)
{
    static const char *const names[] = { "seasonal naive", "drift",
                                         "Holt-Winters" };
    return baseline < BAUTA_BASELINES ? names[baseline] : "unknown";
}

/* The history without gaps, and what a method makes of it. */
typedef struct problem {
    double *y; /* (rows) */
    size_t rows, season, horizon;
    double *point, *deviation; /* (horizon) */
    bool log;                  /* the values are exp() of y */
} problem;

/* ---- seasonal naive and drift ------------------------------------------ */

static double deviation_of(double squares, size_t count)
{
    return count ? sqrt(squares / (double)count) : 0.0;
}

static void seasonal_naive(problem *p)
{
    size_t season = bt_size_min(p->season, p->rows);
    double squares = 0.0;
    for (size_t t = season; t < p->rows; t++)
        squares += pow(p->y[t] - p->y[t - season], 2.0);
    double deviation = deviation_of(squares, p->rows - season);
    for (size_t h = 0; h < p->horizon; h++) {
        p->point[h] = p->y[p->rows - season + h % season];
        p->deviation[h] = deviation * sqrt((double)(h / season + 1));
    }
}

static void drift(problem *p)
{
    size_t n = p->rows;
    double slope = n > 1 ? (p->y[n - 1] - p->y[0]) / (double)(n - 1) : 0.0;
    double squares = 0.0;
    for (size_t t = 1; t < n; t++)
        squares += pow(p->y[t] - p->y[t - 1] - slope, 2.0);
    double deviation = deviation_of(squares, n - 1);
    for (size_t h = 0; h < p->horizon; h++) {
        double steps = (double)(h + 1);
        p->point[h] = p->y[n - 1] + slope * steps;
        p->deviation[h] = deviation * sqrt(steps * (1.0 + steps / (double)n));
    }
}

/* ---- Holt-Winters ------------------------------------------------------ */

typedef struct smoothing {
    double alpha, beta, gamma, damping;
} smoothing;

typedef struct smoothed {
    double level, trend;
    double *season; /* (season) by t modulo the season; NULL: none */
} smoothed;

/* Level and season from the first two seasons, trend from their difference. */
static void smoothed_init(smoothed *s, const problem *p)
{
    size_t m = p->season;
    s->level = p->y[0];
    s->trend = 0.0;
    if (!s->season)
        return;
    double first = 0.0, second = 0.0;
    for (size_t i = 0; i < m; i++) {
        first += p->y[i] / (double)m;
        second += p->y[m + i] / (double)m;
    }
    s->trend = (second - first) / (double)m;
    s->level = first - s->trend * 0.5 * (double)(m + 1);
    for (size_t i = 0; i < m; i++)
        s->season[i] = 0.5 * (p->y[i] - first + p->y[m + i] - second);
}

/* Read value t; returns the error of its prediction. */
static double smoothed_read(smoothed *s, const problem *p, const smoothing *by,
                            size_t t)
{
    double *season = s->season ? &s->season[t % p->season] : NULL;
    double trend = by->damping * s->trend;
    double error = p->y[t] - (s->level + trend + (season ? *season : 0.0));
    s->level += trend + by->alpha * error;
    s->trend = trend + by->alpha * by->beta * error;
    if (season)
        *season += by->gamma * (1.0 - by->alpha) * error;
    return error;
}

/* The sum of squared errors of one step, after the first season. */
static double smoothed_run(smoothed *s, const problem *p, const smoothing *by)
{
    double squares = 0.0;
    size_t from = s->season ? p->season : 1;
    smoothed_init(s, p);
    for (size_t t = 0; t < p->rows; t++) {
        double error = smoothed_read(s, p, by, t);
        squares += t < from ? 0.0 : error * error;
    }
    return squares;
}

static smoothing smoothing_choose(smoothed *s, const problem *p)
{
    static const double alphas[] = { 0.02, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9 };
    static const double betas[] = { 0.0, 0.03, 0.1, 0.3 };
    static const double gammas[] = { 0.0, 0.05, 0.15, 0.4 };
    static const double dampings[] = { 1.0, 0.98, 0.9 };
    smoothing best = { 0.1, 0.0, 0.0, 1.0 };
    double least = INFINITY;
    for (size_t i = 0;
         i < BT_LEN(alphas) * BT_LEN(betas) * BT_LEN(gammas) * BT_LEN(dampings);
         i++) {
        size_t a = i % BT_LEN(alphas), rest = i / BT_LEN(alphas);
        size_t b = rest % BT_LEN(betas);
        rest /= BT_LEN(betas);
        smoothing by = { alphas[a], betas[b], gammas[rest % BT_LEN(gammas)],
                         dampings[rest / BT_LEN(gammas)] };
        if (!s->season && by.gamma > 0.0)
            continue;
        double squares = smoothed_run(s, p, &by);
        if (squares < least) {
            least = squares;
            best = by;
        }
    }
    return best;
}

static bauta_status holt_winters(problem *p, bauta_error *err)
{
    smoothed s = { 0 };
    bool seasonal = p->season > 1 && p->rows >= 2 * p->season;
    if (seasonal && !(s.season = bt_alloc_zero(p->season, sizeof(double))))
        return bt_fail_memory(err, "a season", p->season * sizeof(double));
    smoothing by = smoothing_choose(&s, p);
    double squares = smoothed_run(&s, p, &by);
    double deviation = deviation_of(squares, p->rows);
    double trend = 0.0, damping = 1.0, variance = 1.0;
    for (size_t h = 0; h < p->horizon; h++) {
        damping *= by.damping;
        trend += damping * s.trend;
        p->point[h] = s.level + trend +
                      (seasonal ? s.season[(p->rows + h) % p->season] : 0.0);
        p->deviation[h] = deviation * sqrt(variance);
        variance += pow(by.alpha * (1.0 + by.beta * (double)(h + 1)), 2.0);
    }
    bt_free(s.season);
    return BAUTA_OK;
}

/* ---- the call ---------------------------------------------------------- */

/* The quantile of the standard normal distribution, by bisection. */
static double normal_quantile(double q)
{
    double low = -9.0, high = 9.0;
    for (int i = 0; i < 60; i++) {
        double middle = 0.5 * (low + high);
        if (0.5 * erfc(-middle / sqrt(2.0)) < q)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

/* Copy the history; a missing value is the one before it. */
static bauta_status history_read(problem *p, const double *values, size_t rows,
                                 bool smooth, bauta_error *err)
{
    size_t first = 0;
    while (first < rows && isnan(values[first]))
        first++;
    if (first == rows)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "all values are missing");
    p->rows = rows - first;
    p->log = smooth;
    for (size_t t = 0; t < p->rows; t++) {
        double x = values[first + t];
        p->y[t] = isnan(x) ? p->y[t - 1] : x;
        p->log &= p->y[t] > 0.0;
    }
    for (size_t t = 0; p->log && t < p->rows; t++)
        p->y[t] = log(p->y[t]);
    return BAUTA_OK;
}

static bauta_status method_run(problem *p, bauta_baseline baseline,
                               bauta_error *err)
{
    if (baseline == BAUTA_BASELINE_EXPONENTIAL)
        return holt_winters(p, err);
    if (baseline == BAUTA_BASELINE_DRIFT)
        drift(p);
    else
        seasonal_naive(p);
    return BAUTA_OK;
}

static void quantiles_write(const problem *p, const double *quantiles,
                            size_t count, double *out)
{
    for (size_t k = 0; k < count; k++) {
        double normal = normal_quantile(quantiles[k]);
        for (size_t h = 0; h < p->horizon; h++) {
            double y = p->point[h] +
                       (quantiles[k] == 0.5 ? 0.0 : normal * p->deviation[h]);
            out[k * p->horizon + h] = p->log ? exp(fmin(y, 700.0)) : y;
        }
    }
}

static bauta_status arguments_check(bauta_baseline baseline, size_t rows,
                                    size_t season, const double *quantiles,
                                    size_t count, size_t horizon,
                                    bauta_error *err)
{
    if (baseline < 0 || baseline >= BAUTA_BASELINES)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no baseline %d",
                       (int)baseline);
    if (!rows || !season || season > BT_SEASON_MAX || !horizon ||
        rows > BT_SERIES_CELLS_MAX || horizon > BT_SERIES_CELLS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu rows, a season of %zu or a horizon of %zu is out "
                       "of range",
                       rows, season, horizon);
    for (size_t k = 0; k < count; k++)
        if (!(quantiles[k] > 0.0 && quantiles[k] < 1.0))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "a quantile is not between 0 and 1");
    return BAUTA_OK;
}

bauta_status bauta_baseline_forecast(bauta_baseline baseline,
                                     const double *values, size_t rows,
                                     size_t season, const double *quantiles,
                                     size_t count, size_t horizon, double *out,
                                     bauta_error *err)
{
    BT_NEED(values, err);
    BT_NEED(quantiles, err);
    BT_NEED(out, err);
    bauta_status status =
        arguments_check(baseline, rows, season, quantiles, count, horizon, err);
    if (status)
        return status;
    problem p = { .season = season, .horizon = horizon };
    p.y = bt_alloc(bt_size_mul(rows, sizeof(double)));
    p.point = bt_alloc(bt_size_mul(2 * horizon, sizeof(double)));
    status = p.y && p.point
                 ? history_read(&p, values, rows,
                                baseline == BAUTA_BASELINE_EXPONENTIAL, err)
                 : bt_fail_memory(err, "a baseline", rows * sizeof(double));
    if (!status) {
        p.deviation = p.point + horizon;
        status = method_run(&p, baseline, err);
    }
    if (!status)
        quantiles_write(&p, quantiles, count, out);
    bt_free(p.y);
    bt_free(p.point);
    return status;
}
