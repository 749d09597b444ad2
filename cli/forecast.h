/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.h - bauta forecast: declarations shared by its files.
 *
 *   cmd_forecast.c       the verb: options, model and table
 *   forecast_backtest.c  --backtest: scores beside classical methods
 *   forecast_output.c    a forecast as CSV or JSON
 *   forecast_plot.c      charts: in the terminal, and as PNG, SVG or PDF */
#ifndef FORECAST_H
#define FORECAST_H

#include "device_options.h"
#include "options.h"

#include <bauta.h>

#include <stdio.h>

#define VERB "forecast"

enum { QUANTILES_MAX = 99 };

typedef struct settings {
    string_list rest, columns;
    const char *date, *quantile_list, *plot;
    double quantiles[QUANTILES_MAX]; /* (quantile_count) increasing */
    size_t quantile_count;
    size_t horizon, samples, rows, season, windows;
    float temperature;
    uint64_t seed;
    device_options device;
    bool backtest, show, paths, json, help;
} settings;

typedef struct forecast_job {
    const settings *s;
    bauta_context *context;
    bauta_model *model;
    bauta_series_codec *codec;
    bauta_series *series;
    size_t rows, horizon, season; /* as used */
} forecast_job;

/* A forecast after `rows` rows; CLI_FAILED after a message. */
int forecast_make(bauta_forecast **out, const forecast_job *job, size_t rows);
/* Quantiles (count, horizon) of a column, for free(); NULL after a message. */
double *forecast_quantiles(const bauta_forecast *f, size_t column,
                           const double *quantiles, size_t count);
/* The label of a row: its date, or its number from 1. */
enum { ROW_LABEL_BYTES = 32 };
const char *row_label(char text[ROW_LABEL_BYTES], const bauta_series *series,
                      size_t row);

/* Print a forecast after job->rows. */
int forecast_csv(const forecast_job *job, const bauta_forecast *f);
int forecast_json(const forecast_job *job, const bauta_forecast *f);

/* --show and --plot for a forecast after `rows` rows, with the rows that follow
 * in the table as the truth. */
int forecast_draw(const forecast_job *job, const bauta_forecast *f,
                  size_t rows);

/* --backtest */
int forecast_backtest(const forecast_job *job);

#endif
