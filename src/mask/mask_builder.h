/* SPDX-License-Identifier: Apache-2.0 */
/* mask_builder.h - builds a mask row by row or band by band, from the first row
 * to the last.
 *
 *     bt_mask_builder builder;
 *     bauta_status status =
 *         bt_mask_builder_begin(&builder, queries, keys, spans, err);
 *     for (size_t i = 0; i < queries && !status; i++) {
 *         status = bt_mask_builder_reserve(&builder, most, err);
 *         if (!status)
 *             bt_mask_builder_add_row(&builder,
 * write(bt_mask_builder_next(&builder)), 0);
 *     }
 *     return bt_mask_builder_end(&builder, out, status);
 *
 * A row is written in place, without a copy. */
#ifndef BT_MASK_BUILDER_H
#define BT_MASK_BUILDER_H

#include "mask/mask.h"

typedef struct bt_mask_builder {
    bauta_mask *mask; /* its rows before `row` are complete */
    size_t row;
    size_t used, capacity; /* spans */
} bt_mask_builder;

/* *out = NULL, or an error if out is NULL. Every constructor calls it first. */
bauta_status bt_mask_clear(bauta_mask **out, bauta_error *err);

/* Neither axis is too long. */
bauta_status bt_mask_check_size(size_t queries, size_t keys, bauta_error *err);

/* Start a mask with room for `spans` spans. Sizes are checked before anything
 * is allocated. */
bauta_status bt_mask_builder_begin(bt_mask_builder *builder, size_t queries,
                                   size_t keys, size_t spans, bauta_error *err);
/* Make room for `spans` more. The capacity doubles, so a span is copied less
 * than twice on average. */
bauta_status bt_mask_builder_reserve(bt_mask_builder *builder, size_t spans,
                                     bauta_error *err);
/* Where to write the spans of the next row. */
bauta_span *bt_mask_builder_next(const bt_mask_builder *builder);
/* Complete the next row: a canonical list of `count` spans written there. */
void bt_mask_builder_add_row(bt_mask_builder *builder, size_t count,
                             size_t origin);
/* Complete the next row with one span, or none if it is empty. There must be
 * room. */
void bt_mask_builder_add_span(bt_mask_builder *builder, bauta_span span,
                              size_t origin);
/* Hand out the mask, or free it if `status` is an error. Returns `status`. */
bauta_status bt_mask_builder_end(bt_mask_builder *builder, bauta_mask **out,
                                 bauta_status status);

/* ---- Bands -------------------------------------------------------------- */

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
