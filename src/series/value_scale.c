/* SPDX-License-Identifier: Apache-2.0 */
/* value_scale.c - the scale of a value: the only thing that is measured of a
 * column, and only before that value. */
#include "base/size.h"
#include "series/codec.h"

#include <math.h>

double bt_codec_scale(const bauta_series_codec *codec, const double *z,
                      size_t t)
{
    size_t count = bt_size_min(codec->window, t - codec->lag);
    double sum = 0.0;
    for (size_t u = t - count; u < t; u++)
        sum += fabs(z[u] - z[u - codec->lag]);
    return sum / (double)count + 1e-9 * fabs(z[t - 1]) + 1e-12;
}
