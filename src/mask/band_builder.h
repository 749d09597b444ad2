/* SPDX-License-Identifier: Apache-2.0 */
/* band_builder.h - builds a mask band by band, from the first row to the last.
 * It is used as mask_builder.h is. */
#ifndef BT_BAND_BUILDER_H
#define BT_BAND_BUILDER_H

#include "mask/mask.h"

typedef struct bt_band_builder {
    bauta_mask *mask; /* its rows before `row` are complete */
    size_t row;
    size_t key;  /* where the sequence that is added begins: origins and spans
                    are counted from it. The caller moves it on */
    size_t used; /* spans of the bands */
    size_t band_capacity, span_capacity;
    size_t listed; /* spans of the rows so far */
} bt_band_builder;

/* Start a mask with room for some bands. */
bauta_status bt_band_builder_begin(bt_band_builder *builder, size_t queries,
                                   size_t keys, size_t bands, bauta_error *err);
/* Add a band: `rows` rows (if 0, nothing is added) with these spans. */
bauta_status bt_band_builder_add(bt_band_builder *builder, size_t rows,
                                 size_t origin, const bt_band_span *spans,
                                 size_t count, bauta_error *err);
/* Add a band of one span, or none if it is empty. */
bauta_status bt_band_builder_add_span(bt_band_builder *builder, size_t rows,
                                      size_t origin, bt_band_span span,
                                      bauta_error *err);
/* Add the rows of a sequence of `keys` keys: each sees bt_causal_span() of its
 * end. */
bauta_status bt_band_builder_add_causal(bt_band_builder *builder, size_t rows,
                                        size_t keys, size_t window,
                                        size_t prefix, bauta_error *err);
/* Hand out the mask, or free it if `status` is an error. */
bauta_status bt_band_builder_end(bt_band_builder *builder, bauta_mask **out,
                                 bauta_status status, bauta_error *err);

#endif
