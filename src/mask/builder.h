/* SPDX-License-Identifier: Apache-2.0 */
/* builder.h - how every mask is made: row after row, from the first.
 *
 *     bt_builder builder;
 *     bauta_status status =
 *         bt_builder_begin(&builder, queries, keys, spans, err);
 *     for (size_t i = 0; i < queries && !status; i++) {
 *         status = bt_builder_reserve(&builder, most, err);
 *         if (!status)
 *             bt_builder_row(&builder, write(bt_builder_next(&builder)), 0);
 *     }
 *     return bt_builder_end(&builder, out, status);
 *
 * A row is written where it will stay. */
#ifndef BT_BUILDER_H
#define BT_BUILDER_H

#include "mask/mask.h"

typedef struct bt_builder {
    bauta_mask *mask; /* its rows below `row` are done */
    size_t row;
    size_t used, capacity; /* spans */
} bt_builder;

/* *out = NULL; fails when there is no *out. Every constructor starts here. */
bauta_status bt_mask_clear(bauta_mask **out, bauta_error *err);

/* Start a mask with room for `spans` spans. The sizes are checked before
 * anything is allocated. */
bauta_status bt_builder_begin(bt_builder *builder, size_t queries, size_t keys,
                              size_t spans, bauta_error *err);
/* Make room for `spans` more; each doubling copies what is there, so that a
 * span is copied less than twice on average. */
bauta_status bt_builder_reserve(bt_builder *builder, size_t spans,
                                bauta_error *err);
/* Where the spans of the next row go. */
bauta_span *bt_builder_next(const bt_builder *builder);
/* The next row is done: the canonical list of `count` spans that was written
 * there. */
void bt_builder_row(bt_builder *builder, size_t count, size_t origin);
/* The next row is one span, or nothing where it is empty; there is room. */
void bt_builder_row_span(bt_builder *builder, bauta_span span, size_t origin);
/* Hand the mask out, or release it where `status` is a failure; returns
 * `status`. */
bauta_status bt_builder_end(bt_builder *builder, bauta_mask **out,
                            bauta_status status);

#endif
