/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c - values to tokens and back; see codec.h. */
#include "series/codec.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

/* Larger r fall into the outermost bins. */
static const double r_most = 6.0;

/* ---- the past ---------------------------------------------------------- */

static bauta_status fail_log(const bauta_series *series, size_t column,
                             size_t row, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "column \"%s\", row %zu: the model works with logarithms, "
                   "because it was trained on positive values, and this one "
                   "is not positive",
                   bt_quote(series->names[column]).text, row + 1);
}

bauta_status bt_observed_init(bt_observed *past,
                              const bauta_series_codec *codec,
                              const bauta_series *series, size_t column,
                              size_t rows, size_t room, bauta_error *err)
{
    const double *values = series->values[column];
    size_t bytes = bt_size_mul(bt_size_add(rows, room), sizeof(double));
    *past = (bt_observed){ .z = bt_alloc(bytes) };
    if (!past->z)
        return bt_fail_memory(err, "a column", bytes);
    while (past->first < rows && isnan(values[past->first]))
        past->first++;
    for (size_t row = past->first; row < rows; row++) {
        double x = values[row];
        if (codec->log && x <= 0.0) {
            bt_observed_release(past);
            return fail_log(series, column, row, err);
        }
        past->z[past->count] = isnan(x)     ? past->z[past->count - 1]
                               : codec->log ? log(x)
                                            : x;
        past->count++;
    }
    return BAUTA_OK;
}

void bt_observed_release(bt_observed *past)
{
    bt_free(past->z);
    *past = (bt_observed){ 0 };
}

/* ---- one value --------------------------------------------------------- */

/* A few differences give a first scale. */
size_t bt_codec_start(const bauta_series_codec *codec)
{
    return codec->lag + bt_size_max(4, codec->lag / 2);
}

uint32_t bt_codec_quantize(const bauta_series_codec *codec, double r)
{
    double most = asinh(r_most), bins = (double)codec->bins;
    double place = floor((asinh(r) + most) / (2.0 * most) * bins);
    if (isnan(place))
        place = bins / 2.0;
    return place < 0.0          ? 0
           : place > bins - 1.0 ? (uint32_t)codec->bins - 1
                                : (uint32_t)place;
}

double bt_codec_centre(const bauta_series_codec *codec, uint32_t bin)
{
    double most = asinh(r_most);
    return sinh(((double)bin + 0.5) / (double)codec->bins * 2.0 * most - most);
}

double bt_codec_value(const bauta_series_codec *codec, double z)
{
    return codec->log ? exp(fmin(z, 700.0)) : z;
}

uint32_t bt_codec_calendar_token(const bauta_series_codec *codec,
                                 const bauta_series *series, size_t row)
{
    size_t last = series->rows - 1;
    int64_t date = row <= last
                       ? series->dates[row]
                       : bt_interval_add(&series->interval, series->dates[last],
                                         row - last);
    return (uint32_t)(codec->bins + bt_calendar_place(&series->interval, date));
}

/* ---- a column ---------------------------------------------------------- */

size_t bt_codec_tokens(const bauta_series_codec *codec,
                       const bauta_series *series, const bt_observed *past,
                       size_t begin, size_t end, double factor,
                       uint32_t *tokens)
{
    size_t count = 0;
    for (size_t t = begin; t < end; t++) {
        double d = past->z[t] - past->z[t - codec->lag];
        if (codec->calendar)
            tokens[count++] =
                bt_codec_calendar_token(codec, series, past->first + t);
        tokens[count++] = bt_codec_quantize(
            codec, factor * d / bt_codec_scale(codec, past->z, t));
    }
    return count;
}

bauta_status bt_codec_check(const bauta_series_codec *codec,
                            const bauta_series *series, size_t column,
                            bauta_error *err)
{
    if (column >= series->columns)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there is no column %zu in a table of %zu", column,
                       series->columns);
    if (codec->calendar &&
        bt_interval_calendar(&series->interval) != codec->calendar)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model was trained on dates with %zu places in a "
                       "week, and the table %s",
                       codec->calendar,
                       series->dates ? "has others" : "has no dates");
    return BAUTA_OK;
}

bauta_status bauta_series_encode(const bauta_series_codec *codec,
                                 const bauta_series *series, size_t column,
                                 size_t rows, uint32_t *tokens, size_t capacity,
                                 size_t *count, bauta_error *err)
{
    bt_observed past;
    BT_NEED(codec, err);
    BT_NEED(series, err);
    BT_NEED(count, err);
    *count = 0;
    if (capacity)
        BT_NEED(tokens, err);
    bauta_status status = bt_codec_check(codec, series, column, err);
    if (status)
        return status;
    if (rows > series->rows)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there are no %zu rows in a table of %zu", rows,
                       series->rows);
    status = bt_observed_init(&past, codec, series, column, rows, 0, err);
    if (status)
        return status;
    size_t start = bt_codec_start(codec), each = codec->calendar ? 2 : 1;
    if (past.count <= start)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "column \"%s\" has %zu values, and a model with a "
                         "lag of %zu needs more than %zu",
                         bt_quote(series->names[column]).text, past.count,
                         codec->lag, start);
    else
        *count = each * (past.count - start);
    if (!status)
        bt_codec_tokens(codec, series, &past, start,
                        start +
                            bt_size_min(past.count - start, capacity / each),
                        1.0, tokens);
    bt_observed_release(&past);
    return status;
}

uint64_t bt_series_digest(const bauta_series *series, size_t column,
                          size_t rows)
{
    uint64_t digest = bt_digest_mix(1, rows);
    for (size_t i = 0; i < rows; i++) {
        double x = series->values[column][i];
        uint64_t bits = UINT64_C(0x7ff8000000000000);
        if (!isnan(x))
            memcpy(&bits, &x, sizeof(bits));
        digest = bt_digest_mix(digest, bits);
    }
    return digest;
}

/* ---- settings ---------------------------------------------------------- */

size_t bauta_series_codec_season(const bauta_series_codec *codec)
{
    return codec->season;
}

size_t bauta_series_codec_lag(const bauta_series_codec *codec)
{
    return codec->lag;
}

bool bauta_series_codec_log(const bauta_series_codec *codec)
{
    return codec->log;
}

size_t bauta_series_codec_calendar(const bauta_series_codec *codec)
{
    return codec->calendar;
}

size_t bauta_series_codec_trained(const bauta_series_codec *codec,
                                  const bauta_series *series, size_t column)
{
    size_t most = 0;
    if (column >= series->columns)
        return 0;
    for (size_t i = 0; i < codec->trained_count; i++) {
        const bt_trained_column *t = &codec->trained[i];
        if (t->rows > most && t->rows <= series->rows &&
            bt_series_digest(series, column, t->rows) == t->digest)
            most = t->rows;
    }
    return most;
}

void bauta_series_codec_free(bauta_series_codec *codec)
{
    if (!codec)
        return;
    bt_free(codec->trained);
    bt_free(codec);
}
