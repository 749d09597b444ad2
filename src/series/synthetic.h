/* SPDX-License-Identifier: Apache-2.0 */
/* synthetic.h - random series to train on.
 *
 * A few hundred values do not teach a model how series continue in general:
 * that a level stays, a slope goes on, a season returns and noise does not.
 * Random series of a level, a slope and a season that change slowly (the basic
 * structural model, Harvey 1989), observed with noise, do. How fast each of
 * them changes is drawn for each series, so that the model has to infer it from
 * the values that it reads. */
#ifndef BT_SYNTHETIC_H
#define BT_SYNTHETIC_H

#include "series/codec.h"

/* Values of a series that have a token. */
enum { BT_SYNTHETIC_VALUES = 256 };

/* Series number `index` with the season of the codec: a function of these two.
 * For bt_observed_release(). */
bauta_status bt_synthetic_init(bt_observed *past,
                               const bauta_series_codec *codec, size_t index,
                               bauta_error *err);

#endif
