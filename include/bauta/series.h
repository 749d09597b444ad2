/* SPDX-License-Identifier: Apache-2.0 */
/* bauta/series.h - time series: tables of numbers, their tokens, forecasts,
 * classical baselines and scores. */
#ifndef BAUTA_SERIES_H
#define BAUTA_SERIES_H

#include "core.h"
#include "model.h"
#include "text.h"
#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tables ------------------------------------------------------------ */

/* A table of numbers: rows in the order of time, one column for each series,
 * and optionally a date for each row. */
typedef struct bauta_series bauta_series;

typedef struct bauta_series_options {
    size_t size;
    const char *date; /* the column of dates; NULL: the first column whose cells
                         are all dates, if there is one */
    const char *const *columns; /* (column_count) names of the columns to read;
                                   NULL: all whose cells are numbers */
    size_t column_count;
} bauta_series_options;
#define BAUTA_SERIES_OPTIONS_INIT \
    BAUTA_INIT(bauta_series_options, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_series_options, BAUTA_NO_DEFAULTS)

/* Load a CSV file: a header line with names, then one line for each row, cells
 * separated by commas, optionally in double quotes. A number has a decimal
 * point; an empty cell, "NA" and "NaN" are missing values, which are NaN here.
 * Dates are written 2024-05, 2024-05-31, 2024-05-31 23:30 or with seconds, and
 * increase from row to row. Empty lines are skipped. Files follow the rules of
 * bauta/text.h; at most 1,024 columns, 2^26 cells. `options` may be NULL. */
BAUTA_API bauta_status bauta_series_load(bauta_series **out, const char *path,
                                         const bauta_series_options *options,
                                         bauta_error *err);
/* A table without dates from values (rows, columns) in memory, which are
 * copied. Columns are named 1, 2, ... */
BAUTA_API bauta_status bauta_series_create(bauta_series **out,
                                           const double *values, size_t rows,
                                           size_t columns, bauta_error *err);
BAUTA_API void bauta_series_free(bauta_series *series);

BAUTA_API size_t bauta_series_rows(const bauta_series *series);
BAUTA_API size_t bauta_series_columns(const bauta_series *series);
/* The name of a column; NULL if there is none of this index. */
BAUTA_API const char *bauta_series_name(const bauta_series *series,
                                        size_t column);
/* The values of a column (rows); NULL if there is none of this index. */
BAUTA_API const double *bauta_series_values(const bauta_series *series,
                                            size_t column);
BAUTA_API bool bauta_series_has_dates(const bauta_series *series);
/* The date of a row as "2024-05" or longer, also of rows after the last one,
 * which continue the interval; "" without dates. Works like snprintf. */
BAUTA_API size_t bauta_series_date(const bauta_series *series, size_t row,
                                   char *text, size_t size);
/* Rows in a season, from the interval of the dates: 12 months, 4 quarters, 7
 * days (5 without weekends), 52 weeks, or one day of smaller intervals. 1
 * without dates, or if the interval is another one. */
BAUTA_API size_t bauta_series_season(const bauta_series *series);

/* ---- Tokens ------------------------------------------------------------ */

/* A codec turns the values of a column into tokens for a causal model. The
 * token of a value is its difference from the value one `lag` earlier (of
 * logarithms, if `log`), divided by a scale and quantized to bins. Lag is a
 * season or one row. The scale is the mean difference over the `window` values
 * before it. So a token depends on its value and earlier ones only, and given
 * the earlier values a token yields the value back, up to the bin's width.
 * Optionally each value has a second token before it: its place in the
 * calendar, which is an input only and not predicted. */
typedef struct bauta_series_codec bauta_series_codec;

/* Which tables have tokens of the calendar: the month or quarter, the day of
 * the week, or the time of the week. */
typedef enum bauta_series_calendar {
    BAUTA_SERIES_CALENDAR_AUTO = 0, /* with dates a day or less apart; the
                                       season tells months well enough */
    BAUTA_SERIES_CALENDAR_NONE = 1,
    BAUTA_SERIES_CALENDAR_ALWAYS = 2 /* with dates */
} bauta_series_calendar;

typedef struct bauta_series_codec_options {
    size_t size;
    size_t season;  /* rows; 0: bauta_series_season() */
    size_t bins;    /* 16 to 1024 */
    size_t holdout; /* rows at the end that are not looked at */
    bauta_series_calendar calendar;
} bauta_series_codec_options;
#define BAUTA_SERIES_CODEC_OPTIONS_DEFAULTS(X) X(bins, 100)
#define BAUTA_SERIES_CODEC_OPTIONS_INIT \
    BAUTA_INIT(bauta_series_codec_options, BAUTA_SERIES_CODEC_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_series_codec_options, BAUTA_SERIES_CODEC_OPTIONS_DEFAULTS)

/* Choose the settings of a codec by the values of tables, except the last
 * `holdout` rows of each: log if all values are positive, and the lag at which
 * differences predict two seasons better. `options` may be NULL. */
BAUTA_API bauta_status bauta_series_codec_create(
    bauta_series_codec **out, const bauta_series *const *tables, size_t count,
    const bauta_series_codec_options *options, bauta_error *err);
/* The codec of a model folder: series.json. BAUTA_ERR_UNSUPPORTED if there is
 * none. The folder of a run stands for its best checkpoint. */
BAUTA_API bauta_status bauta_series_codec_load(bauta_series_codec **out,
                                               const char *folder,
                                               bauta_error *err);
BAUTA_API void bauta_series_codec_free(bauta_series_codec *codec);
/* The settings. */
BAUTA_API size_t bauta_series_codec_season(const bauta_series_codec *codec);
BAUTA_API size_t bauta_series_codec_lag(const bauta_series_codec *codec);
BAUTA_API bool bauta_series_codec_log(const bauta_series_codec *codec);
BAUTA_API size_t bauta_series_codec_calendar(const bauta_series_codec *codec);
/* How many rows of a column the model was trained on: those of a training
 * column whose values it begins with; 0 if it is none. */
BAUTA_API size_t bauta_series_codec_trained(const bauta_series_codec *codec,
                                            const bauta_series *series,
                                            size_t column);

/* The tokenizer of the tokens, for a trainer. It carries series.json, which a
 * checkpoint then contains. */
BAUTA_API bauta_status bauta_series_codec_tokenizer(
    bauta_tokenizer **out, const bauta_series_codec *codec, bauta_error *err);
/* The tokens of the first `rows` rows of a column: as many as fit into tokens
 * (capacity), and in *count how many there are. The values of the first season
 * have none. A table whose dates do not fit the codec is BAUTA_ERR_ARGUMENT,
 * and so is a column that is too short. */
BAUTA_API bauta_status bauta_series_encode(const bauta_series_codec *codec,
                                           const bauta_series *series,
                                           size_t column, size_t rows,
                                           uint32_t *tokens, size_t capacity,
                                           size_t *count, bauta_error *err);
/* The columns of tables, except the last `holdout` rows, as documents for a
 * trainer. Short ones are repeated with scaled differences, and synthetic
 * series are added, up to 20,000 values. */
BAUTA_API bauta_status bauta_series_corpus(bauta_corpus **out,
                                           const bauta_series_codec *codec,
                                           const bauta_series *const *tables,
                                           size_t count, size_t holdout,
                                           bauta_error *err);

/* ---- Forecasts --------------------------------------------------------- */

typedef struct bauta_forecast_options {
    size_t size;
    size_t rows;       /* of the table that are read; 0: all. Later rows change
                          no bit of the forecast */
    size_t horizon;    /* rows to forecast; 0: two seasons */
    size_t samples;    /* paths; at most 10,000 */
    float temperature; /* of sampling; 1: that of the model */
    uint64_t seed;
} bauta_forecast_options;
#define BAUTA_FORECAST_OPTIONS_DEFAULTS(X) \
    X(samples, 100) X(temperature, 1.0f) X(seed, 1)
#define BAUTA_FORECAST_OPTIONS_INIT \
    BAUTA_INIT(bauta_forecast_options, BAUTA_FORECAST_OPTIONS_DEFAULTS)
BAUTA_SIZED(bauta_forecast_options, BAUTA_FORECAST_OPTIONS_DEFAULTS)

/* Sampled continuations of the columns of a table. */
typedef struct bauta_forecast bauta_forecast;

/* Sample continuations of every column. Every path is a function of the seed,
 * its number and the column alone. `options` may be NULL. */
BAUTA_API bauta_status bauta_forecast_create(
    bauta_forecast **out, bauta_context *context, const bauta_model *model,
    const bauta_series_codec *codec, const bauta_series *series,
    const bauta_forecast_options *options, bauta_error *err);
BAUTA_API void bauta_forecast_free(bauta_forecast *forecast);
BAUTA_API size_t bauta_forecast_horizon(const bauta_forecast *forecast);
BAUTA_API size_t bauta_forecast_samples(const bauta_forecast *forecast);
BAUTA_API size_t bauta_forecast_columns(const bauta_forecast *forecast);
/* The sampled paths of a column (samples, horizon); NULL if there is none of
 * this index. */
BAUTA_API const double *bauta_forecast_paths(const bauta_forecast *forecast,
                                             size_t column);
/* A quantile, from 0 to 1, of the samples of a column at each step: out
 * (horizon). Linear between samples. */
BAUTA_API bauta_status bauta_forecast_quantile(const bauta_forecast *forecast,
                                               size_t column, double quantile,
                                               double *out, bauta_error *err);

/* Classical methods to compare with. */
typedef enum bauta_baseline {
    BAUTA_BASELINE_SEASONAL_NAIVE = 0, /* the last season again and again */
    BAUTA_BASELINE_DRIFT = 1, /* the line through the first and last value */
    BAUTA_BASELINE_EXPONENTIAL = 2, /* Holt-Winters: level, damped trend and
                                       season, smoothed exponentially, with the
                                       best parameters of a grid */
    BAUTA_BASELINES = 3
} bauta_baseline;
/* "seasonal naive", "drift", "Holt-Winters". Never NULL. */
BAUTA_API const char *bauta_baseline_name(bauta_baseline baseline);
/* The quantiles (count) of a baseline after `rows` values: out (count,
 * horizon). Residuals are taken as normal. Values may be missing, but not all
 * of them. */
BAUTA_API bauta_status bauta_baseline_forecast(bauta_baseline baseline,
                                               const double *values,
                                               size_t rows, size_t season,
                                               const double *quantiles,
                                               size_t count, size_t horizon,
                                               double *out, bauta_error *err);

/* How well a forecast of one column is. Missing values of the truth are left
 * out; with none left, the scores are NaN. */
typedef struct bauta_forecast_score {
    size_t size;
    double mase; /* mean absolute error of the median, divided by that of the
                    seasonal naive method within the history */
    double weighted_quantile_loss; /* twice the pinball loss summed over the
                    truth, divided by the sum of its absolute values; mean over
                    the quantiles */
} bauta_forecast_score;
#define BAUTA_FORECAST_SCORE_INIT \
    BAUTA_INIT(bauta_forecast_score, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_forecast_score, BAUTA_NO_DEFAULTS)

/* `quantiles` (count) contain 0.5; `forecast` is (count, horizon) and `truth`
 * (horizon). */
BAUTA_API bauta_status bauta_forecast_evaluate(
    const double *history, size_t rows, size_t season, const double *quantiles,
    size_t count, const double *forecast, const double *truth, size_t horizon,
    bauta_forecast_score *score, bauta_error *err);

/* ---- Audits ------------------------------------------------------------ */

/* Whether no value of the future reaches a forecast. Values after some rows of
 * the table are replaced by others, and then by missing ones; tokens, scales
 * and log-probabilities up to there and sampled forecasts from there must keep
 * every bit. *leaks receives the answer, and `message`, of `size` bytes and
 * possibly NULL, a sentence: the first column and row that changed, or the
 * number of comparisons. Without a table, of NULL, a generated one is used. */
BAUTA_API bauta_status bauta_series_audit(
    bauta_context *context, const bauta_model *model,
    const bauta_series_codec *codec, const bauta_series *series, uint64_t seed,
    bool *leaks, char *message, size_t size, bauta_error *err);

/* ---- Charts ------------------------------------------------------------ */

/* A chart of one column: history, quantile bands, median and truth. */
typedef struct bauta_chart {
    size_t size;
    const char *title;     /* or NULL */
    const double *history; /* (history_count) */
    size_t history_count;
    size_t horizon;
    size_t quantile_count;    /* odd, at least 1, in increasing order */
    const double *quantiles;  /* (quantile_count, horizon) the values */
    const double *truth;      /* (horizon), or NULL */
    const char *first, *last; /* labels of both ends of the axis, or NULL */
    const char *begin;        /* label where the forecast begins, or NULL */
} bauta_chart;
#define BAUTA_CHART_INIT BAUTA_INIT(bauta_chart, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_chart, BAUTA_NO_DEFAULTS)

/* Write charts, one below the other, to one file, atomically. Its extension
 * selects the format: .png, .svg or .pdf; BAUTA_ERR_UNSUPPORTED if built
 * without cairo. */
BAUTA_API bauta_status bauta_chart_save(const char *path,
                                        const bauta_chart *charts, size_t count,
                                        bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
