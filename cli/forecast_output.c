/* SPDX-License-Identifier: Apache-2.0 */
/* forecast_output.c - a forecast as CSV or JSON. */
#include "cli.h"
#include "forecast.h"
#include "json_output.h"

#include <stdlib.h>
#include <string.h>

const char *row_label(char text[ROW_LABEL_BYTES], const bauta_series *series,
                      size_t row)
{
    if (bauta_series_has_dates(series))
        bauta_series_date(series, row, text, ROW_LABEL_BYTES);
    else
        snprintf(text, ROW_LABEL_BYTES, "%zu", row + 1);
    return text;
}

/* A name as a CSV cell. */
static void cell_print(const char *name)
{
    if (!strpbrk(name, ",\"")) {
        fputs(name, stdout);
        return;
    }
    putchar('"');
    fputs(name, stdout); // quotes inside are still doubled, as they were read
    putchar('"');
}

static int column_csv(const forecast_job *job, const bauta_forecast *f,
                      size_t column)
{
    const settings *s = job->s;
    char label[ROW_LABEL_BYTES];
    double *values =
        forecast_quantiles(f, column, s->quantiles, s->quantile_count);
    if (!values)
        return CLI_FAILED;
    for (size_t h = 0; h < job->horizon; h++) {
        cell_print(bauta_series_name(job->series, column));
        printf(",%s", row_label(label, job->series, job->rows + h));
        for (size_t k = 0; k < s->quantile_count; k++)
            printf(",%.9g", values[k * job->horizon + h]);
        putchar('\n');
    }
    free(values);
    return CLI_OK;
}

int forecast_csv(const forecast_job *job, const bauta_forecast *f)
{
    int failed = CLI_OK;
    printf("column,%s", bauta_series_has_dates(job->series) ? "date" : "row");
    for (size_t k = 0; k < job->s->quantile_count; k++)
        printf(",%g", job->s->quantiles[k]);
    putchar('\n');
    for (size_t c = 0; c < bauta_forecast_columns(f) && !failed; c++)
        failed = column_csv(job, f, c);
    return failed;
}

/* ---- JSON -------------------------------------------------------------- */

static json_t *numbers_json(const double *numbers, size_t count)
{
    json_t *all = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(all, json_number(numbers[i]));
    return all;
}

static json_t *quantiles_json(const forecast_job *job, const double *values)
{
    json_t *all = json_object();
    for (size_t k = 0; k < job->s->quantile_count; k++) {
        char key[32];
        snprintf(key, sizeof(key), "%g", job->s->quantiles[k]);
        json_object_set_new(
            all, key, numbers_json(values + k * job->horizon, job->horizon));
    }
    return all;
}

static json_t *column_json(const forecast_job *job, const bauta_forecast *f,
                           size_t column)
{
    const settings *s = job->s;
    const char *name = bauta_series_name(job->series, column);
    double *values =
        forecast_quantiles(f, column, s->quantiles, s->quantile_count);
    if (!values)
        return NULL;
    json_t *one = json_pack("{s:o,s:o}", "name", json_text(name, strlen(name)),
                            "quantiles", quantiles_json(job, values));
    free(values);
    json_t *paths = s->paths ? json_array() : NULL;
    for (size_t i = 0; paths && i < s->samples; i++)
        json_array_append_new(
            paths,
            numbers_json(bauta_forecast_paths(f, column) + i * job->horizon,
                         job->horizon));
    if (paths)
        json_object_set_new(one, "paths", paths);
    return one;
}

int forecast_json(const forecast_job *job, const bauta_forecast *f)
{
    json_exit_on_oom();
    json_t *columns = json_array(), *labels = json_array();
    for (size_t h = 0; h < job->horizon; h++) {
        char label[ROW_LABEL_BYTES];
        row_label(label, job->series, job->rows + h);
        json_array_append_new(labels, json_string(label));
    }
    for (size_t c = 0; c < bauta_forecast_columns(f); c++) {
        json_t *one = column_json(job, f, c);
        if (!one) {
            json_decref(columns);
            json_decref(labels);
            return CLI_FAILED;
        }
        json_array_append_new(columns, one);
    }
    return json_line(
        VERB,
        json_pack("{s:I,s:I,s:I,s:I,s:o,s:o}", "rows", (json_int_t)job->rows,
                  "horizon", (json_int_t)job->horizon, "season",
                  (json_int_t)job->season, "samples",
                  (json_int_t)job->s->samples,
                  bauta_series_has_dates(job->series) ? "dates" : "row_numbers",
                  labels, "columns", columns));
}
