/* SPDX-License-Identifier: Apache-2.0 */
/* codec_create.c - choosing the settings of a codec by the values it is to
 * encode. Rows that are held out are not read. */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "series/codec.h"

#include <math.h>

/* The rows of a table that are not held out. */
static size_t rows_of(const bauta_series *series, size_t holdout)
{
    return series->rows > holdout ? series->rows - holdout : 0;
}

typedef struct codec_tables {
    const bauta_series *const *at;
    size_t count, holdout;
} codec_tables;

static bool all_positive(const codec_tables *t)
{
    for (size_t i = 0; i < t->count; i++)
        for (size_t c = 0; c < t->at[i]->columns; c++)
            for (size_t r = 0; r < rows_of(t->at[i], t->holdout); r++)
                if (t->at[i]->values[c][r] <= 0.0)
                    return false;
    return true;
}

/* ---- the lag ----------------------------------------------------------- */

/* Mean absolute difference of z at a distance, less the mean slope, over every
 * `stride`-th t. */
static double difference(const bt_observed *past, size_t from, size_t distance,
                         size_t stride)
{
    double slope =
        (past->z[past->count - 1] - past->z[0]) / (double)(past->count - 1);
    double sum = 0.0;
    size_t count = 0;
    for (size_t t = from; t < past->count; t += stride, count++)
        sum +=
            fabs(past->z[t] - past->z[t - distance] - slope * (double)distance);
    return sum / (double)count;
}

/* log of the error of repeating the last value over that of repeating the last
 * season, for forecasts of two seasons. A slope is no reason for either: the
 * model learns the mean of differences, however far they reach. */
static double last_over_season(const bt_observed *past, size_t season)
{
    size_t from = 2 * season;
    size_t stride = 1 + past->count / (1 + (4 << 20) / from);
    double last = 0.0;
    if (past->count <= from)
        return 0.0;
    for (size_t h = 1; h <= from; h++)
        last += difference(past, from, h, stride) / (double)from;
    double repeat = 0.5 * (difference(past, from, season, 1) +
                           difference(past, from, from, 1));
    return last > 0.0 && repeat > 0.0 ? log(last / repeat) : 0.0;
}

static bauta_status lag_choose(bauta_series_codec *codec, const codec_tables *t,
                               bauta_error *err)
{
    double votes = 0.0;
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < t->count; i++)
        for (size_t c = 0; c < t->at[i]->columns && !status; c++) {
            bt_observed past;
            status = bt_observed_init(&past, codec, t->at[i], c,
                                      rows_of(t->at[i], t->holdout), 0, err);
            if (!status)
                votes += last_over_season(&past, codec->season);
            bt_observed_release(&past);
        }
    codec->lag = votes < 0.0 ? 1 : codec->season;
    return status;
}

/* ---- the others -------------------------------------------------------- */

/* Season and calendar are the same for all tables. */
static bauta_status dates_choose(bauta_series_codec *codec,
                                 const codec_tables *t,
                                 const bauta_series_codec_options *how,
                                 bauta_error *err)
{
    const bauta_series *first = t->at[0];
    size_t calendar = bt_interval_calendar(&first->interval);
    codec->season = how->season ? how->season : bauta_series_season(first);
    bool wanted = how->calendar == BAUTA_SERIES_CALENDAR_ALWAYS ||
                  (how->calendar == BAUTA_SERIES_CALENDAR_AUTO &&
                   first->interval.kind != BT_INTERVAL_MONTHS);
    codec->calendar = wanted ? calendar : 0;
    for (size_t i = 1; i < t->count; i++)
        if (bt_interval_calendar(&t->at[i]->interval) != calendar ||
            (!how->season && bauta_series_season(t->at[i]) != codec->season))
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "tables 1 and %zu have dates at other intervals",
                           i + 1);
    return BAUTA_OK;
}

static bauta_status trained_set(bauta_series_codec *codec,
                                const codec_tables *t, bauta_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        count += t->at[i]->columns;
    if (count > BT_TRAINED_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the tables have %zu columns, more than %d", count,
                       BT_TRAINED_MAX);
    codec->trained = bt_alloc_zero(count, sizeof(*codec->trained));
    if (!codec->trained)
        return bt_fail_memory(err, "a codec", count * sizeof(*codec->trained));
    for (size_t i = 0; i < t->count; i++)
        for (size_t c = 0; c < t->at[i]->columns; c++) {
            size_t rows = rows_of(t->at[i], t->holdout);
            codec->trained[codec->trained_count++] =
                (bt_trained_column){ rows,
                                     bt_series_digest(t->at[i], c, rows) };
        }
    return BAUTA_OK;
}

static bauta_status options_check(const bauta_series_codec_options *how,
                                  bauta_error *err)
{
    if (how->season > BT_SEASON_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a season of %zu rows is more than %d", how->season,
                       BT_SEASON_MAX);
    if (how->bins < BT_BINS_MIN || how->bins > BT_BINS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%zu bins are not %d to %d",
                       how->bins, BT_BINS_MIN, BT_BINS_MAX);
    if (how->calendar > BAUTA_SERIES_CALENDAR_ALWAYS)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no calendar %d",
                       (int)how->calendar);
    return BAUTA_OK;
}

static bauta_status settings_choose(bauta_series_codec *codec,
                                    const codec_tables *t,
                                    const bauta_series_codec_options *how,
                                    bauta_error *err)
{
    bauta_status status = dates_choose(codec, t, how, err);
    if (status)
        return status;
    codec->bins = how->bins;
    codec->log = all_positive(t);
    codec->window = bt_size_max(4 * codec->season, 64);
    status = lag_choose(codec, t, err);
    return status ? status : trained_set(codec, t, err);
}

bauta_status bauta_series_codec_create(
    bauta_series_codec **out, const bauta_series *const *all, size_t count,
    const bauta_series_codec_options *options, bauta_error *err)
{
    bauta_series_codec_options how;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(all, err);
    if (!count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no table");
    for (size_t i = 0; i < count; i++)
        BT_NEED(all[i], err);
    bauta_status status = BT_SIZED_READ(&how, BAUTA_SERIES_CODEC_OPTIONS_INIT,
                                        options, "options", err);
    if (!status)
        status = options_check(&how, err);
    if (status)
        return status;
    const codec_tables t = { all, count, how.holdout };
    bauta_series_codec *codec = bt_alloc_zero(1, sizeof(*codec));
    if (!codec)
        return bt_fail_memory(err, "a codec", sizeof(*codec));
    status = settings_choose(codec, &t, &how, err);
    if (status)
        bauta_series_codec_free(codec);
    else
        *out = codec;
    return status;
}
