/* SPDX-License-Identifier: Apache-2.0 */
/* future_audit.c - does a value of the future reach a forecast?
 *
 * At a few rows of every column, all later values are replaced: once by others,
 * once by missing ones. What a forecast from that row is made of must keep
 * every bit: the tokens of earlier values, the scale of the next one, the
 * model's log-probabilities, and the sampled values. */
#include "base/digest.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/size.h"
#include "series/forecast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CUTS = 4, SAMPLES = 2, HORIZON_MOST = 8, COLUMNS_MOST = 16 };

typedef struct future_audit {
    bauta_context *context;
    const bauta_model *model;
    const bauta_series_codec *codec;
    const bauta_series *series; /* as it is */
    bauta_series *changed;      /* one column, changed after the cut */
    uint64_t seed;
    size_t compared;
    const char *what; /* that changed, or NULL */
} future_audit;

/* All that is known at a cut, as digests. */
typedef struct knowledge {
    uint64_t tokens, scale, logprobs, forecast;
} knowledge;

/* ---- what is known at a cut -------------------------------------------- */

static uint64_t digest_doubles(const double *numbers, size_t count)
{
    return bt_digest_bytes(1, numbers, count * sizeof(*numbers));
}

/* The log-probability of each token of the cut's past, from a pass over the
 * whole context, tokens after the cut included. */
static bauta_status logprobs_digest(const future_audit *a, uint64_t *digest,
                                    const uint32_t *tokens, size_t before,
                                    size_t after, bauta_error *err)
{
    size_t most = bt_size_min(bauta_model_max_positions(a->model), 256);
    size_t keep = bt_size_min(before, most - most / 4);
    size_t rows = keep + bt_size_min(after, most / 4);
    const uint32_t *ids = tokens + before - keep;
    uint32_t labels[256];
    float logprobs[256];
    bauta_batch batch = BAUTA_BATCH_INIT;
    batch.count = 1;
    batch.lengths = &rows;
    batch.ids = ids;
    // The row before the cut predicts a value that the cut hides.
    for (size_t i = 0; i < rows; i++)
        labels[i] = i + 1 < keep    ? ids[i + 1]
                    : i + 1 == keep ? 0
                                    : BAUTA_IGNORE;
    bauta_status status = bauta_model_logprobs(a->context, a->model, NULL,
                                               &batch, labels, logprobs, err);
    if (!status)
        *digest = bt_digest_bytes(1, logprobs, keep * sizeof(*logprobs));
    return status;
}

static bauta_status forecast_digest(const future_audit *a, uint64_t *digest,
                                    const bauta_series *series, size_t cut,
                                    bauta_error *err)
{
    bauta_forecast_options how = BAUTA_FORECAST_OPTIONS_INIT;
    bauta_forecast *f;
    how.rows = cut;
    how.samples = SAMPLES;
    how.horizon = bt_size_min(HORIZON_MOST, 2 * a->codec->season);
    how.seed = a->seed;
    bauta_status status = bauta_forecast_create(&f, a->context, a->model,
                                                a->codec, series, &how, err);
    if (!status)
        *digest = digest_doubles(f->paths, SAMPLES * how.horizon);
    bauta_forecast_free(f);
    return status;
}

static bauta_status knowledge_of(const future_audit *a, knowledge *k,
                                 const bauta_series *series, size_t cut,
                                 bauta_error *err)
{
    bt_observed past;
    size_t start = bt_codec_start(a->codec), each = a->codec->calendar ? 2 : 1;
    bauta_status status =
        bt_observed_init(&past, a->codec, series, 0, series->rows, 0, err);
    if (status)
        return status;
    size_t end = cut - past.first;
    uint32_t *tokens = bt_alloc(bt_size_mul(past.count, 2 * sizeof(*tokens)));
    if (!tokens) {
        bt_observed_release(&past);
        return bt_fail_memory(err, "tokens", past.count);
    }
    bt_codec_tokens(a->codec, series, &past, start, past.count, 1.0, tokens);
    // The calendar of the row after the cut is known, too.
    size_t before = each * (end - start) + each - 1;
    double scale = bt_codec_scale(a->codec, past.z, end);
    k->tokens = bt_digest_bytes(1, tokens, before * sizeof(*tokens));
    k->scale = digest_doubles(&scale, 1);
    status = logprobs_digest(a, &k->logprobs, tokens, before,
                             each * (past.count - start) - before, err);
    if (!status)
        status = forecast_digest(a, &k->forecast, series, cut, err);
    bt_free(tokens);
    bt_observed_release(&past);
    return status;
}

/* ---- changes ----------------------------------------------------------- */

/* One column, with values after the cut that are random but stay positive, or
 * missing. */
static void column_change(future_audit *a, size_t column, size_t cut,
                          bool missing)
{
    const uint32_t key[2] = { (uint32_t)a->seed, (uint32_t)(a->seed >> 32) };
    const double *from = a->series->values[column];
    double *to = a->changed->values[0];
    for (size_t i = 0; i < a->series->rows; i++) {
        uint32_t word[4], counter[4] = { (uint32_t)i, (uint32_t)cut, 0, 1 };
        bt_philox(word, counter, key);
        double x = isnan(from[i]) ? 1.0 : from[i];
        to[i] = i < cut   ? from[i]
                : missing ? NAN
                          : (fabs(x) + 1.0) * exp2((double)(word[0] % 17) - 8);
    }
}

static void compare(future_audit *a, const knowledge *x, const knowledge *y)
{
    a->compared += 4;
    a->what = x->tokens != y->tokens       ? "the tokens of earlier values"
              : x->scale != y->scale       ? "the scale of the next value"
              : x->logprobs != y->logprobs ? "the model's probabilities"
              : x->forecast != y->forecast ? "the forecast"
                                           : NULL;
}

static bauta_status cut_check(future_audit *a, size_t column, size_t cut,
                              bauta_error *err)
{
    knowledge as_is, then;
    column_change(a, column, a->series->rows, false);
    bauta_status status = knowledge_of(a, &as_is, a->changed, cut, err);
    for (int missing = 0; missing < 2 && !status && !a->what; missing++) {
        column_change(a, column, cut, missing);
        status = knowledge_of(a, &then, a->changed, cut, err);
        if (!status)
            compare(a, &as_is, &then);
    }
    return status;
}

/* ---- all cuts ---------------------------------------------------------- */

/* The first row at which a column has a forecast; its number of rows if it has
 * none. */
static size_t first_cut(const future_audit *a, size_t column)
{
    size_t row = 0;
    while (row < a->series->rows && isnan(a->series->values[column][row]))
        row++;
    return bt_size_min(row + bt_codec_start(a->codec) + 2, a->series->rows);
}

static bauta_status columns_check(future_audit *a, char *message, size_t size,
                                  bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t columns = bt_size_min(a->series->columns, COLUMNS_MOST);
    for (size_t c = 0; c < columns && !status && !a->what; c++) {
        size_t first = first_cut(a, c), left = a->series->rows - first;
        for (size_t i = 0; i < CUTS && !status && !a->what && left; i++) {
            size_t cut = first + left * i / CUTS;
            status = bt_codec_check(a->codec, a->series, c, err);
            if (!status)
                status = cut_check(a, c, cut, err);
            if (!status && a->what)
                snprintf(message, size,
                         "column \"%s\": values after row %zu change %s",
                         bt_quote(a->series->names[c]).text, cut, a->what);
        }
    }
    if (!status && !a->compared)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the table is too short for a forecast with a lag of "
                       "%zu",
                       a->codec->lag);
    if (!status && !a->what)
        snprintf(message, size,
                 "%zu comparisons: no value of the future reaches a forecast",
                 a->compared);
    return status;
}

/* A table like the series with one column. */
static bauta_status changed_create(future_audit *a, bauta_error *err)
{
    const bauta_series *from = a->series;
    bauta_status status = bt_series_create(&a->changed, 1, err);
    if (status)
        return status;
    bauta_series *to = a->changed;
    to->rows = from->rows;
    to->form = from->form;
    to->interval = from->interval;
    to->values[0] = bt_alloc(bt_size_mul(from->rows, sizeof(double)));
    if (from->dates)
        to->dates = bt_alloc(bt_size_mul(from->rows, sizeof(*to->dates)));
    if (!to->values[0] || (from->dates && !to->dates))
        return bt_fail_memory(err, "a table", from->rows);
    if (from->dates)
        memcpy(to->dates, from->dates, from->rows * sizeof(*to->dates));
    return bt_series_set_name(to, 0, "changed", 7, err);
}

/* ---- a table of its own ------------------------------------------------ */

/* The interval of a calendar with so many places. */
static bt_interval interval_of(size_t calendar)
{
    if (!calendar)
        return (bt_interval){ BT_INTERVAL_NONE, 0 };
    if (calendar <= 12 && calendar != 7)
        return (bt_interval){ BT_INTERVAL_MONTHS, 12 / (int64_t)calendar };
    return (bt_interval){ BT_INTERVAL_SECONDS, 7 * 86400 / (int64_t)calendar };
}

/* Positive values with a season, a trend and noise. */
static double table_value(size_t t, size_t season, uint64_t seed)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)t, 0, 0, 2 };
    uint32_t word[4];
    bt_philox(word, counter, key);
    double phase = (double)(t % season) / (double)season;
    return (100.0 + 0.2 * (double)t) * (1.0 + 0.3 * sin(6.2831853 * phase)) *
           (1.0 + 0.1 * (double)word[0] * 0x1p-32);
}

static bauta_status table_create(bauta_series **out,
                                 const bauta_series_codec *codec, uint64_t seed,
                                 bauta_error *err)
{
    size_t rows = bt_codec_start(codec) + 64 + codec->season;
    double *values = bt_alloc(rows * sizeof(*values));
    if (!values)
        return bt_fail_memory(err, "a table", rows * sizeof(*values));
    for (size_t t = 0; t < rows; t++)
        values[t] = table_value(t, codec->season, seed);
    bauta_status status = bauta_series_create(out, values, rows, 1, err);
    bt_free(values);
    if (status || !codec->calendar)
        return status;
    (*out)->interval = interval_of(codec->calendar);
    (*out)->dates = bt_alloc(rows * sizeof(*(*out)->dates));
    if (!(*out)->dates)
        return bt_fail_memory(err, "a table", rows * sizeof(*values));
    for (size_t t = 0; t < rows; t++)
        (*out)->dates[t] = bt_interval_add(&(*out)->interval, 0, t);
    return BAUTA_OK;
}

/* ---- the call ---------------------------------------------------------- */

bauta_status bauta_series_audit(bauta_context *context,
                                const bauta_model *model,
                                const bauta_series_codec *codec,
                                const bauta_series *series, uint64_t seed,
                                bool *leaks, char *message, size_t size,
                                bauta_error *err)
{
    char text[256];
    BT_NEED(context, err);
    BT_NEED(model, err);
    BT_NEED(codec, err);
    BT_NEED(leaks, err);
    if (size)
        BT_NEED(message, err);
    future_audit a = { .context = context,
                       .model = model,
                       .codec = codec,
                       .series = series,
                       .seed = seed };
    bauta_series *own = NULL;
    bauta_status status =
        series ? BAUTA_OK : table_create(&own, codec, seed, err);
    if (!series)
        a.series = own;
    if (!status)
        status = changed_create(&a, err);
    if (!status)
        status = columns_check(&a, text, sizeof(text), err);
    bauta_series_free(a.changed);
    bauta_series_free(own);
    *leaks = a.what != NULL;
    if (!status && size)
        snprintf(message, size, "%s", text);
    return status;
}
