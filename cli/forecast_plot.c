/* SPDX-License-Identifier: Apache-2.0 */
/* forecast_plot.c - charts of a forecast: in the terminal, and in files. */
#include "cli.h"
#include "forecast.h"
#include "terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of history that a chart shows: three seasons or the horizon twice, and
 * at least 24. */
static size_t history_shown(const forecast_job *job, size_t rows)
{
    size_t wanted = 3 * job->season;
    if (wanted < 2 * job->horizon)
        wanted = 2 * job->horizon;
    if (wanted < 24)
        wanted = 24;
    return wanted < rows ? wanted : rows;
}

/* ---- one chart --------------------------------------------------------- */

typedef struct chart {
    bauta_chart c;
    double *quantiles, *truth;
    char title[300], first[ROW_LABEL_BYTES], begin[ROW_LABEL_BYTES],
        last[ROW_LABEL_BYTES];
} chart;

/* The truth, as far as the table has it. */
static double *truth_of(const forecast_job *job, size_t column, size_t rows)
{
    size_t all = bauta_series_rows(job->series);
    const double *values = bauta_series_values(job->series, column);
    double *truth = malloc(job->horizon * sizeof(*truth));
    for (size_t h = 0; truth && h < job->horizon; h++)
        truth[h] = rows + h < all ? values[rows + h] : NAN;
    return truth;
}

static int chart_init(chart *to, const forecast_job *job,
                      const bauta_forecast *f, size_t column, size_t rows)
{
    const settings *s = job->s;
    const char *name = bauta_series_name(job->series, column);
    size_t shown = history_shown(job, rows);
    to->c = (bauta_chart)BAUTA_CHART_INIT;
    // An even number of quantiles has no middle one: leave out the last.
    size_t count = s->quantile_count - (s->quantile_count % 2 == 0);
    to->quantiles = forecast_quantiles(f, column, s->quantiles, count);
    if (!to->quantiles)
        return CLI_FAILED;
    if (rows < bauta_series_rows(job->series) &&
        !(to->truth = truth_of(job, column, rows)))
        return cli_fail(VERB, "out of memory");
    snprintf(to->title, sizeof(to->title), "%s", name);
    to->c.title = to->title;
    to->c.history = bauta_series_values(job->series, column) + rows - shown;
    to->c.history_count = shown;
    to->c.horizon = job->horizon;
    to->c.quantile_count = count;
    to->c.quantiles = to->quantiles;
    to->c.truth = to->truth;
    to->c.first = row_label(to->first, job->series, rows - shown);
    to->c.begin = row_label(to->begin, job->series, rows);
    to->c.last = row_label(to->last, job->series, rows + job->horizon - 1);
    return CLI_OK;
}

static void chart_release(chart *c)
{
    free(c->quantiles);
    free(c->truth);
}

/* ---- the terminal ------------------------------------------------------ */

enum { GRID_ROWS = 16, GRID_COLUMNS_MAX = 160, AXIS = 11 };

typedef struct grid {
    const char *cells[GRID_ROWS][GRID_COLUMNS_MAX];
    size_t columns, points;
    double low, high;
} grid;

static void range_include(grid *g, double y)
{
    if (isfinite(y)) {
        g->low = fmin(g->low, y);
        g->high = fmax(g->high, y);
    }
}

static void grid_init(grid *g, const bauta_chart *c)
{
    size_t columns = terminal_columns(stdout);
    memset(g, 0, sizeof(*g));
    columns = columns > AXIS + 20 ? columns - AXIS : 20;
    g->columns = columns > 100 ? 100 : columns;
    g->points = c->history_count + c->horizon;
    g->low = INFINITY;
    g->high = -INFINITY;
    for (size_t i = 0; i < c->history_count; i++)
        range_include(g, c->history[i]);
    for (size_t i = 0; i < c->quantile_count * c->horizon; i++)
        range_include(g, c->quantiles[i]);
    for (size_t i = 0; c->truth && i < c->horizon; i++)
        range_include(g, c->truth[i]);
    if (!(g->high > g->low))
        g->high = g->low + 1.0;
}

static size_t grid_row(const grid *g, double y)
{
    double part = (y - g->low) / (g->high - g->low);
    return (size_t)lround((1.0 - fmin(fmax(part, 0.0), 1.0)) * (GRID_ROWS - 1));
}

static size_t grid_column(const grid *g, size_t point)
{
    return g->points > 1 ? point * (g->columns - 1) / (g->points - 1) : 0;
}

static void grid_put(grid *g, size_t point, double y, const char *sign)
{
    if (isfinite(y))
        g->cells[grid_row(g, y)][grid_column(g, point)] = sign;
}

static void grid_fill(grid *g, const bauta_chart *c)
{
    size_t from = c->history_count, middle = c->quantile_count / 2;
    const double *low = c->quantiles;
    const double *high = c->quantiles + (c->quantile_count - 1) * c->horizon;
    for (size_t h = 0; h < c->horizon; h++) {
        size_t column = grid_column(g, from + h);
        if (!isfinite(low[h]) || !isfinite(high[h]))
            continue;
        for (size_t r = grid_row(g, high[h]); r <= grid_row(g, low[h]); r++)
            g->cells[r][column] = "░";
    }
    for (size_t i = 0; i < from; i++)
        grid_put(g, i, c->history[i], "•");
    for (size_t h = 0; h < c->horizon; h++)
        grid_put(g, from + h, c->quantiles[middle * c->horizon + h], "─");
    for (size_t h = 0; c->truth && h < c->horizon; h++)
        grid_put(g, from + h, c->truth[h], "×");
}

static void chart_show(const bauta_chart *c)
{
    static grid g;
    grid_init(&g, c);
    grid_fill(&g, c);
    printf("%s\n", c->title);
    for (size_t r = 0; r < GRID_ROWS; r++) {
        double y = g.high - (g.high - g.low) * (double)r / (GRID_ROWS - 1);
        if (r % 5 == 0)
            printf("%9.4g ┤", y);
        else
            printf("%9s │", "");
        for (size_t x = 0; x < g.columns; x++)
            fputs(g.cells[r][x] ? g.cells[r][x] : " ", stdout);
        putchar('\n');
    }
    printf("%11s%s to %s; • history, ─ median from %s, ░ band%s\n\n", "",
           c->first, c->last, c->begin, c->truth ? ", × truth" : "");
}

/* ---- all columns ------------------------------------------------------- */

static int charts_save(const char *path, const chart *charts, size_t count)
{
    bauta_error err;
    bauta_chart *plain = malloc(count * sizeof(*plain));
    if (!plain)
        return cli_fail(VERB, "out of memory");
    for (size_t i = 0; i < count; i++)
        plain[i] = charts[i].c;
    bauta_status status = bauta_chart_save(path, plain, count, &err);
    free(plain);
    return status ? cli_fail(VERB, "%s", err.message) : CLI_OK;
}

int forecast_draw(const forecast_job *job, const bauta_forecast *f, size_t rows)
{
    size_t count = bauta_forecast_columns(f);
    chart *charts = calloc(count, sizeof(*charts));
    int failed = charts ? CLI_OK : cli_fail(VERB, "out of memory");
    for (size_t i = 0; i < count && !failed; i++)
        failed = chart_init(&charts[i], job, f, i, rows);
    for (size_t i = 0; i < count && !failed && job->s->show && !job->s->json;
         i++)
        chart_show(&charts[i].c);
    if (!failed && job->s->plot)
        failed = charts_save(job->s->plot, charts, count);
    for (size_t i = 0; charts && i < count; i++)
        chart_release(&charts[i]);
    free(charts);
    return failed;
}
