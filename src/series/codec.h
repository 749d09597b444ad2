/* SPDX-License-Identifier: Apache-2.0 */
/* codec.h - values to tokens and back.
 *
 * z are the values of a column from its first one on, missing ones replaced by
 * the one before, and logarithms if the codec says so. Of z[t] the token is
 *
 *     r = (z[t] - z[t - lag]) / scale(t),   bin = quantize(r)
 *     scale(t) = mean of |z[u] - z[u - lag]| over the `window` u before t
 *
 * Bins are equally wide in asinh(r), so small differences have finer ones. The
 * scale of t is a function of values before t, and nothing else of a column is
 * ever measured: there is no place where a later value could enter. */
#ifndef BT_CODEC_H
#define BT_CODEC_H

#include "series/series.h"

enum {
    BT_SEASON_MAX = 1 << 16,
    BT_BINS_MIN = 16,
    BT_BINS_MAX = 1024,
    BT_TRAINED_MAX = 2048 /* columns that a model is trained on */
};

/* A column that the model was trained on. */
typedef struct bt_trained_column {
    size_t rows;
    uint64_t digest; /* of its values */
} bt_trained_column;

struct bauta_series_codec {
    size_t season, lag, bins, window;
    size_t calendar; /* places; 0: no tokens of the calendar */
    bool log;
    size_t trained_count;
    bt_trained_column *trained; /* (trained_count) */
};

/* The values of a column as the codec sees them. */
typedef struct bt_observed {
    double *z; /* (count + room) */
    size_t count;
    size_t first; /* row of z[0] */
} bt_observed;

/* The first `rows` rows, with room for more. */
bauta_status bt_observed_init(bt_observed *past,
                              const bauta_series_codec *codec,
                              const bauta_series *series, size_t column,
                              size_t rows, size_t room, bauta_error *err);
void bt_observed_release(bt_observed *past);

/* The first t that has a token. */
size_t bt_codec_start(const bauta_series_codec *codec);
/* scale(t), from z[t - window - lag] to z[t - 1]. */
double bt_codec_scale(const bauta_series_codec *codec, const double *z,
                      size_t t);
/* The bin of r, and the r in the middle of a bin. */
uint32_t bt_codec_quantize(const bauta_series_codec *codec, double r);
double bt_codec_centre(const bauta_series_codec *codec, uint32_t bin);
/* The value of z. */
double bt_codec_value(const bauta_series_codec *codec, double z);
/* The token of the calendar of a row, which may be after the last one. */
uint32_t bt_codec_calendar_token(const bauta_series_codec *codec,
                                 const bauta_series *series, size_t row);

/* Tokens of a column's t from `begin` to `end` - 1 with r multiplied by
 * `factor`; tokens has room for them. Returns their number. */
size_t bt_codec_tokens(const bauta_series_codec *codec,
                       const bauta_series *series, const bt_observed *past,
                       size_t begin, size_t end, double factor,
                       uint32_t *tokens);

/* Whether the table has the dates that the codec needs, and the column. */
bauta_status bt_codec_check(const bauta_series_codec *codec,
                            const bauta_series *series, size_t column,
                            bauta_error *err);
/* A digest of the first rows of a column. */
uint64_t bt_series_digest(const bauta_series *series, size_t column,
                          size_t rows);

/* series.json as text, for bt_free(); and from text. */
bauta_status bt_codec_write(char **out, const bauta_series_codec *codec,
                            bauta_error *err);
bauta_status bt_codec_parse(bauta_series_codec **out, const char *text,
                            size_t size, const char *path, bauta_error *err);

#endif
