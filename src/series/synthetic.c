/* SPDX-License-Identifier: Apache-2.0 */
/* synthetic.c - random series to train on; see synthetic.h. */
#include "series/synthetic.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/size.h"

#include <math.h>

/* A stream of random numbers of one series. */
typedef struct stream {
    uint32_t series, draws;
} stream;

/* A number of mean 0 and variance 1: the sum of four uniform ones. */
static double draw_normal(stream *s)
{
    static const uint32_t key[2] = { 0x73796e74u, 0x68657369u };
    const uint32_t counter[4] = { s->draws++, s->series, 0, 0 };
    uint32_t word[4];
    double sum = 0.0;
    bt_philox(word, counter, key);
    for (int i = 0; i < 4; i++)
        sum += ((double)word[i] + 0.5) * 0x1p-32 - 0.5;
    return sum * sqrt(3.0);
}

/* A deviation whose logarithm is uniform. */
static double draw_deviation(stream *s, double low, double high)
{
    static const uint32_t key[2] = { 0x73796e74u, 0x68657370u };
    const uint32_t counter[4] = { s->draws++, s->series, 0, 0 };
    uint32_t word[4];
    bt_philox(word, counter, key);
    return low * pow(high / low, ((double)word[0] + 0.5) * 0x1p-32);
}

/* z[0..count): level, slope and season change at random, and are observed with
 * noise of variance 1. `season` is scratch for the pattern. */
static void series_draw(double *z, size_t count, double *pattern, size_t season,
                        stream s)
{
    double level_noise = draw_deviation(&s, 0.03, 3.0);
    double slope_noise = draw_deviation(&s, 1e-4, 0.03);
    double season_noise = draw_deviation(&s, 0.01, 0.3);
    double amplitude = draw_deviation(&s, 0.1, 30.0);
    double slope = draw_deviation(&s, 0.003, 1.0) * draw_normal(&s);
    double level = 0.0;
    for (size_t i = 0; i < season; i++)
        pattern[i] = amplitude * draw_normal(&s);
    for (size_t t = 0; t < count; t++) {
        slope += slope_noise * draw_normal(&s);
        level += slope + level_noise * draw_normal(&s);
        pattern[t % season] += season_noise * draw_normal(&s);
        z[t] =
            level + (season > 1 ? pattern[t % season] : 0.0) + draw_normal(&s);
    }
}

bauta_status bt_synthetic_init(bt_observed *past,
                               const bauta_series_codec *codec, size_t index,
                               bauta_error *err)
{
    size_t count = bt_codec_start(codec) + BT_SYNTHETIC_VALUES;
    size_t bytes = bt_size_mul(count + codec->season, sizeof(double));
    *past = (bt_observed){ .z = bt_alloc(bytes), .count = count };
    if (!past->z)
        return bt_fail_memory(err, "a column", bytes);
    series_draw(past->z, count, past->z + count, codec->season,
                (stream){ (uint32_t)index, 0 });
    return BAUTA_OK;
}
