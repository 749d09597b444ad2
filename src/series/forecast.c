/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.c - sampling continuations of columns.
 *
 * All paths of a column are sequences of one decoding session: the past is read
 * once, and each path is a fork of it. In each step a path gets the token of
 * its last value (and that of the next row's calendar), and the next value is
 * drawn from the logits. If the context is full, all paths begin again with the
 * last half of it. */
#include "series/forecast.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/size.h"
#include "base/sized.h"

#include <math.h>
#include <string.h>

/* The sampler of one column. */
typedef struct sampler {
    const bauta_series_codec *codec;
    const bauta_series *series;
    const bauta_forecast_options *options;
    bauta_context *context;
    const bauta_model *model;
    size_t column, samples, horizon, vocabulary;
    size_t tail;  /* values of the past that each path has */
    size_t first; /* row of the first of them */
    size_t each;  /* tokens of a value: 1, or 2 with the calendar */
    size_t context_values;
    double *z;                  /* (samples, tail + horizon) */
    uint32_t *tokens;           /* (samples, each x (tail + horizon)) */
    size_t *sequences;          /* (samples) of the session */
    float *logits;              /* (samples, vocabulary) */
    bauta_decode_input *inputs; /* (samples) */
    bauta_decode_session *session;
} sampler;

static double *path_z(const sampler *s, size_t i)
{
    return s->z + i * (s->tail + s->horizon);
}

static uint32_t *path_tokens(const sampler *s, size_t i)
{
    return s->tokens + i * s->each * (s->tail + s->horizon);
}

/* ---- choosing a value -------------------------------------------------- */

/* A number in [0, 1) for a path and a step. */
static double draw(const sampler *s, size_t path, size_t step)
{
    const uint64_t seed = s->options->seed;
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)step, (uint32_t)path,
                                  (uint32_t)s->column, 0x66630000u };
    uint32_t word[4];
    bt_philox(word, counter, key);
    return (double)(((uint64_t)word[0] << 32 | word[1]) >> 11) * 0x1p-53;
}

/* A bin from the softmax of the logits of all bins; BT_BINS_MAX if there is
 * none. Other tokens are no values. */
static uint32_t bin_choose(const sampler *s, const float *logits, double u)
{
    double weight[BT_BINS_MAX], max = -INFINITY, sum = 0.0;
    size_t bins = s->codec->bins;
    for (size_t b = 0; b < bins; b++)
        max = fmax(max, (double)logits[b]);
    for (size_t b = 0; b < bins; b++) {
        weight[b] =
            exp(((double)logits[b] - max) / (double)s->options->temperature);
        sum += weight[b];
    }
    if (!isfinite(sum))
        return BT_BINS_MAX;
    u *= sum;
    for (size_t b = 0; b < bins; b++)
        if ((u -= weight[b]) < 0.0)
            return (uint32_t)b;
    return (uint32_t)bins - 1;
}

/* The value of step h of all paths. */
static bauta_status values_choose(const sampler *s, size_t h, double *paths,
                                  bauta_error *err)
{
    size_t t = s->tail + h;
    for (size_t i = 0; i < s->samples; i++) {
        double *z = path_z(s, i);
        uint32_t bin =
            bin_choose(s, s->logits + i * s->vocabulary, draw(s, i, h));
        if (bin == BT_BINS_MAX)
            return bt_fail(err, BAUTA_ERR_NOT_FINITE,
                           "the model's logits are not finite");
        z[t] = z[t - s->codec->lag] +
               bt_codec_centre(s->codec, bin) * bt_codec_scale(s->codec, z, t);
        path_tokens(s, i)[s->each * t + s->each - 1] = bin;
        paths[i * s->horizon + h] = bt_codec_value(s->codec, z[t]);
    }
    return BAUTA_OK;
}

/* ---- running the model ------------------------------------------------- */

static void inputs_set(const sampler *s, size_t i, size_t sequence,
                       size_t begin, size_t end)
{
    s->inputs[i] = (bauta_decode_input)BAUTA_DECODE_INPUT_INIT;
    s->inputs[i].sequence = sequence;
    s->inputs[i].tokens = path_tokens(s, i) + begin;
    s->inputs[i].count = end - begin;
    s->inputs[i].logits = s->logits + i * s->vocabulary;
}

/* Tokens before the value of step h, in a path. */
static size_t tokens_before(const sampler *s, size_t h)
{
    return s->each * (s->tail + h) + s->each - 1;
}

/* Begin the session with tokens from `begin` on. In step 0 all paths have the
 * same, and are forks of the first. */
static bauta_status session_begin(sampler *s, size_t h, size_t begin,
                                  bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bauta_decode_session_free(s->session);
    s->session = NULL;
    status =
        bauta_decode_session_create(&s->session, s->context, s->model, err);
    for (size_t i = 0; i < s->samples && !status; i++) {
        if (h == 0 && i > 0) {
            status = bauta_decode_session_fork(s->session, s->sequences[0],
                                               &s->sequences[i], err);
            memcpy(s->logits + i * s->vocabulary, s->logits,
                   s->vocabulary * sizeof(*s->logits));
            continue;
        }
        status = bauta_decode_session_open(s->session, NULL, 0,
                                           &s->sequences[i], err);
        inputs_set(s, i, s->sequences[i], begin, tokens_before(s, h));
        if (!status)
            status =
                bauta_decode_session_append(s->session, &s->inputs[i], 1, err);
    }
    return status;
}

static bauta_status session_continue(sampler *s, size_t h, bauta_error *err)
{
    size_t end = tokens_before(s, h);
    for (size_t i = 0; i < s->samples; i++)
        inputs_set(s, i, s->sequences[i], end - s->each, end);
    return bauta_decode_session_append(s->session, s->inputs, s->samples, err);
}

static void calendar_set(const sampler *s, size_t h)
{
    size_t row = s->first + s->tail + h;
    for (size_t i = 0; s->codec->calendar && i < s->samples; i++)
        path_tokens(s, i)[s->each * (s->tail + h)] =
            bt_codec_calendar_token(s->codec, s->series, row);
}

static bauta_status paths_run(sampler *s, size_t known, double *paths,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t values = 0; // in the session
    for (size_t h = 0; h < s->horizon && !status; h++) {
        calendar_set(s, h);
        if (h == 0 || values + 1 > s->context_values) {
            size_t all = known + h;
            values = h == 0 && s->horizon <= s->context_values / 2
                         ? s->context_values - s->horizon
                         : s->context_values / 2;
            values = bt_size_min(values, all);
            status = session_begin(s, h, s->each * (s->tail + h - values), err);
        } else {
            status = session_continue(s, h, err);
        }
        values++;
        if (!status)
            status = values_choose(s, h, paths, err);
    }
    return status;
}

/* ---- one column -------------------------------------------------------- */

static bauta_status sampler_reserve(sampler *s, bauta_error *err)
{
    size_t values = bt_size_mul(s->samples, bt_size_add(s->tail, s->horizon));
    s->z = bt_alloc(bt_size_mul(values, sizeof(*s->z)));
    s->tokens = bt_alloc_zero(bt_size_mul(values, s->each), sizeof(*s->tokens));
    s->sequences = bt_alloc_zero(s->samples, sizeof(*s->sequences));
    s->inputs = bt_alloc_zero(s->samples, sizeof(*s->inputs));
    s->logits = bt_alloc_zero(bt_size_mul(s->samples, s->vocabulary),
                              sizeof(*s->logits));
    if (s->z && s->tokens && s->sequences && s->inputs && s->logits)
        return BAUTA_OK;
    return bt_fail_memory(err, "a forecast",
                          bt_size_mul(values, sizeof(*s->z)));
}

static void sampler_release(sampler *s)
{
    bauta_decode_session_free(s->session);
    bt_free(s->z);
    bt_free(s->tokens);
    bt_free(s->sequences);
    bt_free(s->inputs);
    bt_free(s->logits);
}

/* The end of the past that tokens and scales need, in every path. Returns how
 * many of its values have a token. */
static size_t past_copy(const sampler *s, const bt_observed *past)
{
    size_t start = bt_codec_start(s->codec);
    size_t known = bt_size_min(past->count - start, s->context_values);
    size_t from = past->count - s->tail;
    for (size_t i = 0; i < s->samples; i++)
        memcpy(path_z(s, i), past->z + from, s->tail * sizeof(*s->z));
    bt_codec_tokens(s->codec, s->series, past, past->count - known, past->count,
                    1.0, path_tokens(s, 0) + s->each * (s->tail - known));
    for (size_t i = 1; i < s->samples; i++)
        memcpy(path_tokens(s, i), path_tokens(s, 0),
               s->each * s->tail * sizeof(*s->tokens));
    return known;
}

static bauta_status column_run(sampler *s, size_t rows, double *paths,
                               bauta_error *err)
{
    bt_observed past;
    size_t start = bt_codec_start(s->codec);
    bauta_status status = bt_codec_check(s->codec, s->series, s->column, err);
    if (status)
        return status;
    status =
        bt_observed_init(&past, s->codec, s->series, s->column, rows, 0, err);
    if (status)
        return status;
    if (past.count <= start) {
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "column \"%s\" has %zu values, and a model with a "
                         "lag of %zu needs more than %zu",
                         bt_quote(s->series->names[s->column]).text, past.count,
                         s->codec->lag, start);
    } else {
        size_t need =
            bt_size_max(s->codec->window + s->codec->lag, s->context_values);
        s->tail = bt_size_min(past.count, need);
        s->first = past.first + past.count - s->tail;
        status = sampler_reserve(s, err);
    }
    if (!status)
        status = paths_run(s, past_copy(s, &past), paths, err);
    bt_observed_release(&past);
    return status;
}

/* ---- the call ---------------------------------------------------------- */

static bauta_status options_check(bauta_forecast_options *how,
                                  const bauta_model *model,
                                  const bauta_series_codec *codec,
                                  const bauta_series *series, bauta_error *err)
{
    size_t tokens = codec->bins + codec->calendar;
    if (how->rows == 0)
        how->rows = series->rows;
    if (how->horizon == 0)
        how->horizon = 2 * codec->season;
    if (how->rows > series->rows)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there are no %zu rows in a table of %zu", how->rows,
                       series->rows);
    if (how->horizon > BT_FORECAST_HORIZON_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a horizon of %zu is more than %d", how->horizon,
                       BT_FORECAST_HORIZON_MAX);
    if (!how->samples || how->samples > BT_FORECAST_SAMPLES_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%zu samples are not 1 to %d",
                       how->samples, BT_FORECAST_SAMPLES_MAX);
    if (!(how->temperature > 0.0f && how->temperature <= 100.0f))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the temperature is not within 0 and 100");
    if (bauta_model_kind_of(model) != BAUTA_DECODER_ONLY ||
        bauta_model_vocab_size(model) < tokens ||
        bauta_model_max_positions(model) < 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model is no decoder of at least %zu tokens and 8 "
                       "positions",
                       tokens);
    return BAUTA_OK;
}

static bauta_status columns_run(bauta_forecast *f, const sampler *common,
                                bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t c = 0; c < f->columns && !status; c++) {
        sampler s = *common;
        s.column = c;
        status = column_run(&s, common->options->rows,
                            f->paths + c * f->samples * f->horizon, err);
        sampler_release(&s);
    }
    return status;
}

bauta_status bauta_forecast_create(bauta_forecast **out, bauta_context *context,
                                   const bauta_model *model,
                                   const bauta_series_codec *codec,
                                   const bauta_series *series,
                                   const bauta_forecast_options *options,
                                   bauta_error *err)
{
    bauta_forecast_options how;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(context, err);
    BT_NEED(model, err);
    BT_NEED(codec, err);
    BT_NEED(series, err);
    bauta_status status = BT_SIZED_READ(&how, BAUTA_FORECAST_OPTIONS_INIT,
                                        options, "options", err);
    if (!status)
        status = options_check(&how, model, codec, series, err);
    if (status)
        return status;
    size_t each = codec->calendar ? 2 : 1;
    sampler s = { .codec = codec,
                  .series = series,
                  .options = &how,
                  .context = context,
                  .model = model,
                  .samples = how.samples,
                  .horizon = how.horizon,
                  .vocabulary = bauta_model_vocab_size(model),
                  .each = each,
                  .context_values = bt_size_min(
                      bauta_model_max_positions(model) / each, 4096) };
    size_t count =
        bt_size_mul(bt_size_mul(series->columns, how.samples), how.horizon);
    bauta_forecast *f = bt_alloc_zero(1, sizeof(*f));
    if (f)
        *f = (bauta_forecast){ series->columns, how.samples, how.horizon,
                               bt_alloc(bt_size_mul(count, sizeof(double))) };
    status = f && f->paths ? columns_run(f, &s, err)
                           : bt_fail_memory(err, "a forecast",
                                            bt_size_mul(count, sizeof(double)));
    if (status)
        bauta_forecast_free(f);
    else
        *out = f;
    return status;
}

void bauta_forecast_free(bauta_forecast *forecast)
{
    if (!forecast)
        return;
    bt_free(forecast->paths);
    bt_free(forecast);
}

/* ---- the result -------------------------------------------------------- */

size_t bauta_forecast_horizon(const bauta_forecast *forecast)
{
    return forecast->horizon;
}

size_t bauta_forecast_samples(const bauta_forecast *forecast)
{
    return forecast->samples;
}

size_t bauta_forecast_columns(const bauta_forecast *forecast)
{
    return forecast->columns;
}

const double *bauta_forecast_paths(const bauta_forecast *forecast,
                                   size_t column)
{
    return column < forecast->columns
               ? forecast->paths +
                     column * forecast->samples * forecast->horizon
               : NULL;
}

double bt_quantile(const double *sorted, size_t count, double quantile)
{
    double place = quantile * (double)(count - 1);
    size_t below = bt_size_min((size_t)place, count - 1);
    size_t above = bt_size_min(below + 1, count - 1);
    double part = place - (double)below;
    return sorted[below] + part * (sorted[above] - sorted[below]);
}

/* Few thousand numbers at most. */
static void sort(double *numbers, size_t count)
{
    for (size_t gap = count / 2; gap > 0; gap /= 2)
        for (size_t i = gap; i < count; i++) {
            double x = numbers[i];
            size_t j = i;
            for (; j >= gap && numbers[j - gap] > x; j -= gap)
                numbers[j] = numbers[j - gap];
            numbers[j] = x;
        }
}

bauta_status bauta_forecast_quantile(const bauta_forecast *forecast,
                                     size_t column, double quantile,
                                     double *out, bauta_error *err)
{
    BT_NEED(forecast, err);
    BT_NEED(out, err);
    if (column >= forecast->columns)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there is no column %zu in a forecast of %zu", column,
                       forecast->columns);
    if (!(quantile >= 0.0 && quantile <= 1.0))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the quantile is not from 0 to 1");
    double *sorted = bt_alloc(forecast->samples * sizeof(*sorted));
    if (!sorted)
        return bt_fail_memory(err, "a quantile",
                              forecast->samples * sizeof(*sorted));
    const double *paths = bauta_forecast_paths(forecast, column);
    for (size_t h = 0; h < forecast->horizon; h++) {
        for (size_t i = 0; i < forecast->samples; i++)
            sorted[i] = paths[i * forecast->horizon + h];
        sort(sorted, forecast->samples);
        out[h] = bt_quantile(sorted, forecast->samples, quantile);
    }
    bt_free(sorted);
    return BAUTA_OK;
}
