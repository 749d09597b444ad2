/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_forecast.c - bauta forecast: continue time series; see forecast.h. */
#include "forecast.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

static const char help_text[] =
    "usage: bauta forecast MODEL FILE.csv [options]\n"
    "\n"
    "Continue the columns of a table with a model that 'bauta train' trained "
    "on\n"
    "series. Continuations are sampled, and quantiles of the samples printed "
    "as\n"
    "CSV: column, date (or row number), then one value per quantile.\n"
    "\n"
    "options\n"
    "  -m, --model DIR    MODEL, as an option\n"
    "  --horizon N        rows to forecast (default: two seasons)\n"
    "  --samples N        sampled paths (default 100)\n"
    "  --quantiles LIST   such as 0.05,0.5,0.95 (default 0.1,0.5,0.9)\n"
    "  --rows N           read only the first N rows; later ones are the truth "
    "in\n"
    "                     plots, and change no bit of the forecast\n"
    "  --column NAME      only this column; may be repeated\n"
    "  --date NAME        the column of dates (default: the first that is "
    "one)\n"
    "  --backtest         forecast the last rows of the table instead, and "
    "print\n"
    "                     MASE and weighted quantile loss beside seasonal "
    "naive,\n"
    "                     drift and Holt-Winters\n"
    "  --windows K        with --backtest: the last K horizons (default 1)\n"
    "  --show             draw history, bands and truth in the terminal\n"
    "  --plot FILE        draw them to FILE.png, FILE.svg or FILE.pdf\n"
    "  --paths            with --json: also every sampled path\n"
    "  --temp X           temperature of sampling (default 1)\n"
    "  --seed N           of the samples (default 1)\n"
    "  --device D         cpu (default), cuda or cuda:N: the GPU with this "
    "number\n"
    "  --dtype T          compute in float32 (default), or on a GPU in "
    "bfloat16\n"
    "  --threads N        0: one per core (default); does not change results\n"
    "  --json             print one JSON object\n"
    "  --help             print this text\n"
    "\n"
    "examples\n"
    "  bauta forecast runs/sales sales.csv --horizon 12\n"
    "  bauta forecast runs/sales sales.csv --quantiles 0.05,0.5,0.95 --json\n"
    "  bauta forecast runs/sales sales.csv --show\n"
    "  bauta forecast runs/sales sales.csv --backtest --plot sales.svg\n";

static int help(void)
{
    fputs(help_text, stdout);
    return cli_finish(VERB);
}

/* ---- the command line -------------------------------------------------- */

/* "0.1,0.5,0.9"; increasing, so that bands are pairs from both ends. */
static int quantiles_read(settings *s)
{
    const char *at = s->quantile_list ? s->quantile_list : "0.1,0.5,0.9";
    for (;;) {
        char *end;
        double q = strtod(at, &end);
        bool after =
            s->quantile_count == 0 || q > s->quantiles[s->quantile_count - 1];
        if (end == at || !(q > 0.0 && q < 1.0) || !after ||
            s->quantile_count == QUANTILES_MAX || (*end && *end != ','))
            return cli_usage(VERB,
                             "--quantiles is '%s', not up to %d increasing "
                             "numbers between 0 and 1 with commas",
                             s->quantile_list, QUANTILES_MAX);
        s->quantiles[s->quantile_count++] = q;
        if (!*end)
            return CLI_OK;
        at = end + 1;
    }
}

static int settings_read(settings *s, int argc, char **argv)
{
    const option table[] = {
        { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },
        { "--horizon", OPTION_SIZE, &s->horizon, NULL, 1, 65536, NULL },
        { "--samples", OPTION_SIZE, &s->samples, NULL, 1, 10000, NULL },
        { "--quantiles", OPTION_STRING, &s->quantile_list, NULL, 0, 0, NULL },
        { "--rows", OPTION_SIZE, &s->rows, NULL, 1, 1e9, NULL },
        { "--column", OPTION_STRINGS, &s->columns, NULL, 0, 0, NULL },
        { "--date", OPTION_STRING, &s->date, NULL, 0, 0, NULL },
        { "--backtest", OPTION_FLAG, &s->backtest, NULL, 0, 0, NULL },
        { "--windows", OPTION_SIZE, &s->windows, NULL, 1, 1000, NULL },
        { "--show", OPTION_FLAG, &s->show, NULL, 0, 0, NULL },
        { "--plot", OPTION_STRING, &s->plot, NULL, 0, 0, NULL },
        { "--paths", OPTION_FLAG, &s->paths, NULL, 0, 0, NULL },
        { "--temp", OPTION_FLOAT, &s->temperature, NULL, 0.001, 100, NULL },
        { "--seed", OPTION_SEED, &s->seed, NULL, 0, 0, NULL },
        DEVICE_OPTIONS(&s->device),
        { "--json", OPTION_FLAG, &s->json, NULL, 0, 0, NULL },
        { "--help", OPTION_FLAG, &s->help, NULL, 0, 0, NULL },
    };
    int usage = options_parse(VERB, table, sizeof(table) / sizeof(table[0]),
                              argc, argv, &s->rest);
    if (usage || s->help)
        return usage;
    if (s->rest.count != 2)
        return cli_usage(VERB, "%s",
                         s->rest.count < 2 ? "a model and a table are needed"
                                           : "there is more than one table");
    if (s->paths && !s->json)
        return cli_usage(VERB, "--paths needs --json");
    if (s->backtest && s->rows)
        return cli_usage(VERB, "--backtest and --rows exclude each other");
    return quantiles_read(s);
}

/* ---- the job ----------------------------------------------------------- */

static int library_failed(const bauta_error *err)
{
    return cli_fail(VERB, "%s", err->message);
}

static int job_open(forecast_job *job)
{
    const settings *s = job->s;
    bauta_series_options how = BAUTA_SERIES_OPTIONS_INIT;
    bauta_error err;
    int failed = device_open(&job->context, VERB, &s->device);
    if (failed)
        return failed;
    how.date = s->date;
    how.columns = s->columns.at;
    how.column_count = s->columns.count;
    if (bauta_series_codec_load(&job->codec, s->rest.at[0], &err) ||
        bauta_series_load(&job->series, s->rest.at[1], &how, &err) ||
        bauta_model_load_to(&job->model, s->rest.at[0], job->context, &err))
        return library_failed(&err);
    cli_warn(VERB, bauta_model_warnings(job->model));
    job->season = bauta_series_codec_season(job->codec);
    job->horizon = s->horizon ? s->horizon : 2 * job->season;
    job->rows = s->rows ? s->rows : bauta_series_rows(job->series);
    return CLI_OK;
}

static void job_close(forecast_job *job)
{
    bauta_series_free(job->series);
    bauta_series_codec_free(job->codec);
    bauta_model_free(job->model);
    bauta_context_free(job->context);
}

int forecast_make(bauta_forecast **out, const forecast_job *job, size_t rows)
{
    bauta_forecast_options how = BAUTA_FORECAST_OPTIONS_INIT;
    bauta_error err;
    how.rows = rows;
    how.horizon = job->horizon;
    how.samples = job->s->samples;
    how.temperature = job->s->temperature;
    how.seed = job->s->seed;
    if (bauta_forecast_create(out, job->context, job->model, job->codec,
                              job->series, &how, &err))
        return library_failed(&err);
    return CLI_OK;
}

double *forecast_quantiles(const bauta_forecast *f, size_t column,
                           const double *quantiles, size_t count)
{
    size_t horizon = bauta_forecast_horizon(f);
    double *out = malloc(count * horizon * sizeof(*out));
    bauta_error err = { BAUTA_ERR_NOMEM, "out of memory" };
    bool failed = !out;
    for (size_t k = 0; k < count && !failed; k++)
        failed = bauta_forecast_quantile(f, column, quantiles[k],
                                         out + k * horizon, &err);
    if (!failed)
        return out;
    free(out);
    library_failed(&err);
    return NULL;
}

static int forecast_run(const forecast_job *job)
{
    bauta_forecast *f = NULL;
    int failed = forecast_make(&f, job, job->rows);
    if (!failed && (job->s->show || job->s->plot))
        failed = forecast_draw(job, f, job->rows);
    if (!failed && job->s->json)
        failed = forecast_json(job, f);
    else if (!failed && !job->s->show)
        failed = forecast_csv(job, f);
    bauta_forecast_free(f);
    return failed ? failed : cli_finish(VERB);
}

int forecast_main(int argc, char **argv)
{
    settings s = {
        .samples = 100, .windows = 1, .temperature = 1.0f, .seed = 1
    };
    forecast_job job = { .s = &s };
    int failed = settings_read(&s, argc, argv);
    if (!failed && s.help) {
        failed = help();
    } else if (!failed) {
        failed = job_open(&job);
        if (!failed)
            failed = s.backtest ? forecast_backtest(&job) : forecast_run(&job);
        job_close(&job);
    }
    string_list_release(&s.rest);
    string_list_release(&s.columns);
    return failed;
}
