/* SPDX-License-Identifier: Apache-2.0 */
/* forecast_backtest.c - bauta forecast --backtest: forecasts of known rows,
 * scored beside classical methods on the same rows. */
#include "cli.h"
#include "forecast.h"
#include "json_output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double levels[] = { 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9 };
enum { LEVELS = sizeof(levels) / sizeof(levels[0]) };

/* The model, then the baselines. */
enum { METHODS = 1 + BAUTA_BASELINES };
static const char *method_name(size_t method)
{
    return method ? bauta_baseline_name((bauta_baseline)(method - 1)) : "bauta";
}

/* Sums over windows and columns. */
typedef struct totals {
    double mase, loss;
    size_t count;
} totals;

typedef struct backtest {
    const forecast_job *job;
    totals all[METHODS];
    totals *columns; /* (columns, METHODS) */
} backtest;

static void totals_add(totals *t, const bauta_forecast_score *score)
{
    if (!isfinite(score->mase) || !isfinite(score->weighted_quantile_loss))
        return;
    t->mase += score->mase;
    t->loss += score->weighted_quantile_loss;
    t->count++;
}

/* A model that was trained on the rows it is to forecast proves nothing. */
static int trained_check(const forecast_job *job, size_t first)
{
    for (size_t c = 0; c < bauta_series_columns(job->series); c++) {
        size_t trained = bauta_series_codec_trained(job->codec, job->series, c);
        if (trained > first)
            return cli_fail(
                VERB,
                "the model was trained on the first %zu rows of this table, "
                "and the backtest begins after %zu; train it with --holdout "
                "%zu or more",
                trained, first, bauta_series_rows(job->series) - first);
    }
    return CLI_OK;
}

/* Score the quantiles of one method on one column after `rows`. */
static int method_score(backtest *b, size_t method, size_t column, size_t rows,
                        const double *values)
{
    const forecast_job *job = b->job;
    const double *series = bauta_series_values(job->series, column);
    bauta_forecast_score score = BAUTA_FORECAST_SCORE_INIT;
    bauta_error err;
    if (bauta_forecast_evaluate(series, rows, job->season, levels, LEVELS,
                                values, series + rows, job->horizon, &score,
                                &err))
        return cli_fail(VERB, "%s", err.message);
    totals_add(&b->all[method], &score);
    totals_add(&b->columns[column * METHODS + method], &score);
    return CLI_OK;
}

static int column_score(backtest *b, const bauta_forecast *f, size_t column,
                        size_t rows)
{
    const forecast_job *job = b->job;
    bauta_error err;
    double *values = forecast_quantiles(f, column, levels, LEVELS);
    int failed = values ? method_score(b, 0, column, rows, values) : CLI_FAILED;
    for (size_t m = 1; m < METHODS && !failed; m++) {
        if (bauta_baseline_forecast((bauta_baseline)(m - 1),
                                    bauta_series_values(job->series, column),
                                    rows, job->season, levels, LEVELS,
                                    job->horizon, values, &err))
            failed = cli_fail(VERB, "%s", err.message);
        else
            failed = method_score(b, m, column, rows, values);
    }
    free(values);
    return failed;
}

static int window_run(backtest *b, size_t window)
{
    const forecast_job *job = b->job;
    size_t rows = bauta_series_rows(job->series) - (window + 1) * job->horizon;
    bauta_forecast *f = NULL;
    int failed = forecast_make(&f, job, rows);
    for (size_t c = 0; !failed && c < bauta_series_columns(job->series); c++)
        failed = column_score(b, f, c, rows);
    if (!failed && window == 0 && (job->s->show || job->s->plot))
        failed = forecast_draw(job, f, rows);
    bauta_forecast_free(f);
    return failed;
}

/* ---- results ----------------------------------------------------------- */

static void table_print(const backtest *b)
{
    const forecast_job *job = b->job;
    printf("%zu %s of %zu rows, season %zu, %zu %s\n", job->s->windows,
           job->s->windows == 1 ? "window" : "windows", job->horizon,
           job->season, bauta_series_columns(job->series),
           bauta_series_columns(job->series) == 1 ? "column" : "columns");
    printf("%-16s %8s %24s\n", "method", "MASE", "weighted quantile loss");
    for (size_t m = 0; m < METHODS; m++)
        printf("%-16s %8.4f %24.5f\n", method_name(m),
               b->all[m].mase / (double)b->all[m].count,
               b->all[m].loss / (double)b->all[m].count);
}

static json_t *methods_json(const totals *of)
{
    json_t *all = json_object();
    for (size_t m = 0; m < METHODS; m++)
        json_object_set_new(
            all, method_name(m),
            json_pack("{s:o,s:o}", "mase",
                      json_number(of[m].mase / (double)of[m].count),
                      "weighted_quantile_loss",
                      json_number(of[m].loss / (double)of[m].count)));
    return all;
}

static int json_print(const backtest *b)
{
    const forecast_job *job = b->job;
    json_exit_on_oom();
    json_t *columns = json_array();
    for (size_t c = 0; c < bauta_series_columns(job->series); c++) {
        const char *name = bauta_series_name(job->series, c);
        json_array_append_new(
            columns,
            json_pack("{s:o,s:o}", "name", json_text(name, strlen(name)),
                      "methods", methods_json(b->columns + c * METHODS)));
    }
    return json_line(VERB, json_pack("{s:I,s:I,s:I,s:o,s:o}", "windows",
                                     (json_int_t)job->s->windows, "horizon",
                                     (json_int_t)job->horizon, "season",
                                     (json_int_t)job->season, "methods",
                                     methods_json(b->all), "columns", columns));
}

int forecast_backtest(const forecast_job *job)
{
    size_t rows = bauta_series_rows(job->series);
    size_t tested = job->s->windows * job->horizon;
    if (tested >= rows)
        return cli_fail(VERB,
                        "%zu windows of %zu rows are more than the %zu rows "
                        "of the table",
                        job->s->windows, job->horizon, rows);
    backtest b = { .job = job };
    b.columns =
        calloc(bauta_series_columns(job->series) * METHODS, sizeof(*b.columns));
    int failed = b.columns ? trained_check(job, rows - tested)
                           : cli_fail(VERB, "out of memory");
    for (size_t w = 0; w < job->s->windows && !failed; w++)
        failed = window_run(&b, w);
    if (!failed && job->s->json)
        failed = json_print(&b);
    else if (!failed)
        table_print(&b);
    free(b.columns);
    return failed ? failed : cli_finish(VERB);
}
