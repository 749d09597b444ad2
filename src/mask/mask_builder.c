/* SPDX-License-Identifier: Apache-2.0 */
/* mask_builder.c - masks, row by row or band by band. */
#include "mask/mask_builder.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <assert.h>
#include <string.h>

bauta_status bt_mask_clear(bauta_mask **out, bauta_error *err)
{
    if (!out)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "out is NULL: there is no place for the mask");
    *out = NULL;
    return BAUTA_OK;
}

bauta_status bt_mask_check_size(size_t queries, size_t keys, bauta_error *err)
{
    if (queries > BT_AXIS_MAX || keys > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a mask of %zu queries over %zu keys is too large: "
                       "neither may exceed %zu",
                       queries, keys, BT_AXIS_MAX);
    return BAUTA_OK;
}

bauta_status bt_mask_builder_begin(bt_mask_builder *builder, size_t queries,
                                   size_t keys, size_t spans, bauta_error *err)
{
    *builder = (bt_mask_builder){ NULL, 0, 0, 0 };
    bauta_status status = bt_mask_check_size(queries, keys, err);
    if (status)
        return status;

    bauta_mask *mask = bt_alloc_zero(1, sizeof(*mask));
    if (!mask)
        return bt_fail_memory(err, "a mask", sizeof(*mask));
    builder->mask = mask;
    mask->queries = queries;
    mask->keys = keys;
    mask->listed = 1;

    bt_row_list *list = &mask->list;
    size_t bytes = bt_size_mul(queries + 1, sizeof(*list->start));
    list->start = bt_alloc(bytes);
    if (list->start)
        list->origin = bt_alloc(bytes);
    if (!list->origin)
        return bt_fail_memory(err, "the rows of a mask", bytes);
    list->start[0] = 0;
    return bt_mask_builder_reserve(builder, spans, err);
}

bauta_status bt_mask_builder_reserve(bt_mask_builder *builder, size_t spans,
                                     bauta_error *err)
{
    bt_row_list *list = &builder->mask->list;
    size_t need = bt_size_add(builder->used, spans);
    if (list->spans && need <= builder->capacity)
        return BAUTA_OK;

    size_t capacity = bt_size_max(need, bt_size_mul(2, builder->capacity));
    size_t bytes = bt_size_mul(capacity, sizeof(*list->spans));
    bauta_span *larger = bt_alloc(bytes);
    if (!larger)
        return bt_fail_memory(err, "the spans of a mask", bytes);
    if (builder->used)
        memcpy(larger, list->spans, builder->used * sizeof(*larger));
    bt_free(list->spans);
    list->spans = larger;
    builder->capacity = capacity;
    return BAUTA_OK;
}

bauta_span *bt_mask_builder_next(const bt_mask_builder *builder)
{
    return builder->mask->list.spans + builder->used;
}

void bt_mask_builder_add_row(bt_mask_builder *builder, size_t count,
                             size_t origin)
{
    bauta_mask *mask = builder->mask;
    bt_row_list *list = &mask->list;
    assert(builder->row < mask->queries);
    assert(builder->used + count <= builder->capacity);
    assert(!builder->row || origin >= list->origin[builder->row - 1]);
    for (size_t k = 0; k < count; k++) {
        const bauta_span *span = &list->spans[builder->used + k];
        assert(origin <= span->lo && span->lo < span->hi);
        assert(span->hi <= mask->keys);
        mask->pairs += span->hi - span->lo;
    }
    builder->used += count;
    list->origin[builder->row++] = origin;
    list->start[builder->row] = builder->used;
}

void bt_mask_builder_add_span(bt_mask_builder *builder, bauta_span span,
                              size_t origin)
{
    size_t count = span.lo < span.hi;
    if (count)
        *bt_mask_builder_next(builder) = span;
    bt_mask_builder_add_row(builder, count, origin);
}

bauta_status bt_mask_builder_end(bt_mask_builder *builder, bauta_mask **out,
                                 bauta_status status)
{
    assert(status || builder->row == builder->mask->queries);
    if (status)
        bauta_mask_free(builder->mask);
    else
        *out = builder->mask;
    builder->mask = NULL;
    return status;
}

/* ---- Bands -------------------------------------------------------------- */

/* Room for `more` elements beside `used`; NULL: out of memory. */
static void *grow(void *memory, size_t used, size_t more, size_t each,
                  size_t *capacity)
{
    size_t need = bt_size_add(used, more);
    if (memory && need <= *capacity)
        return memory;
    size_t larger = bt_size_max(need, bt_size_mul(2, *capacity));
    void *to = bt_alloc(bt_size_mul(larger, each));
    if (!to)
        return NULL;
    if (used)
        memcpy(to, memory, used * each);
    bt_free(memory);
    *capacity = larger;
    return to;
}

static bauta_status reserve_bands(bt_band_builder *builder, size_t bands,
                                  size_t spans, bauta_error *err)
{
    bauta_mask *mask = builder->mask;
    bt_band *band = grow(mask->bands, mask->band_count, bands, sizeof(*band),
                         &builder->band_capacity);
    if (!band)
        return bt_fail_memory(err, "the bands of a mask",
                              bt_size_mul(bands, sizeof(*band)));
    mask->bands = band;
    bt_band_span *span = grow(mask->band_spans, builder->used, spans,
                              sizeof(*span), &builder->span_capacity);
    if (!span)
        return bt_fail_memory(err, "the spans of a mask",
                              bt_size_mul(spans, sizeof(*span)));
    mask->band_spans = span;
    return BAUTA_OK;
}

bauta_status bt_band_builder_begin(bt_band_builder *builder, size_t queries,
                                   size_t keys, size_t bands, bauta_error *err)
{
    *builder = (bt_band_builder){ .mask = NULL };
    bauta_status status = bt_mask_check_size(queries, keys, err);
    if (status)
        return status;
    bauta_mask *mask = bt_alloc_zero(1, sizeof(*mask));
    if (!mask)
        return bt_fail_memory(err, "a mask", sizeof(*mask));
    builder->mask = mask;
    mask->queries = queries;
    mask->keys = keys;
    return reserve_bands(builder, bands, bands, err);
}

/* The pairs of a span in `rows` rows. Its width changes by at most one key from
 * row to row. */
static uint64_t pairs_of(const bt_band_span *span, size_t rows)
{
    uint64_t moved = (uint64_t)rows * (rows - 1) / 2;
    return (uint64_t)rows * (span->at.hi - span->at.lo) +
           moved * span->hi_step - moved * span->lo_step;
}

bauta_status bt_band_builder_add(bt_band_builder *builder, size_t rows,
                                 size_t origin, const bt_band_span *spans,
                                 size_t count, bauta_error *err)
{
    bauta_mask *mask = builder->mask;
    size_t key = builder->key;
    if (rows == 0)
        return BAUTA_OK;
    assert(rows <= mask->queries - builder->row);
    assert(!mask->band_count ||
           key + origin >= mask->bands[mask->band_count - 1].origin);
    bauta_status status = reserve_bands(builder, 1, count, err);
    if (status)
        return status;
    mask->bands[mask->band_count++] =
        (bt_band){ builder->row, rows, key + origin, builder->used, count };
    for (size_t k = 0; k < count; k++) {
        bauta_span last = bt_band_span_at(&spans[k], rows - 1);
        assert(origin <= spans[k].at.lo && spans[k].at.lo < spans[k].at.hi);
        assert(last.lo < last.hi && key + last.hi <= mask->keys);
        (void)last;
        bt_band_span *to = &mask->band_spans[builder->used++];
        *to = spans[k];
        to->at.lo += key;
        to->at.hi += key;
        mask->pairs += pairs_of(&spans[k], rows);
    }
    builder->row += rows;
    builder->listed = bt_size_add(builder->listed, bt_size_mul(rows, count));
    return BAUTA_OK;
}

bauta_status bt_band_builder_add_span(bt_band_builder *builder, size_t rows,
                                      size_t origin, bt_band_span span,
                                      bauta_error *err)
{
    return bt_band_builder_add(builder, rows, origin, &span,
                               span.at.lo < span.at.hi, err);
}

/* How many of `rows` rows over `keys` keys have an end of at most `end`: they
 * are the first ones. */
static size_t rows_to_end(size_t rows, size_t keys, size_t end)
{
    return end + rows > keys ? bt_size_min(end + rows - keys, rows) : 0;
}

bauta_status bt_band_builder_add_causal(bt_band_builder *builder, size_t rows,
                                        size_t keys, size_t window,
                                        size_t prefix, bauta_error *err)
{
    // Rows of the prefix, then those before the window moves, then the others.
    size_t still = bt_size_min(window ? window : keys, keys);
    const size_t cut[] = { 0, rows_to_end(rows, keys, prefix),
                           rows_to_end(rows, keys, bt_size_max(prefix, still)),
                           rows };
    for (size_t i = 0; i + 1 < BT_LEN(cut); i++) {
        size_t end = bt_mask_causal_end(rows, keys, cut[i]);
        bauta_span span = bt_causal_span(end, window, prefix);
        bauta_status status = bt_band_builder_add_span(
            builder, cut[i + 1] - cut[i], 0,
            (bt_band_span){ span, i == 2, i > 0 }, err);
        if (status)
            return status;
    }
    return BAUTA_OK;
}

bauta_status bt_band_builder_end(bt_band_builder *builder, bauta_mask **out,
                                 bauta_status status, bauta_error *err)
{
    bauta_mask *mask = builder->mask;
    builder->mask = NULL;
    assert(status || builder->row == mask->queries);
    if (!status) {
        bt_row_list *list = &mask->list;
        size_t bytes = bt_size_mul(mask->queries + 1, sizeof(*list->start));
        list->start = bt_alloc(bytes);
        list->origin = bt_alloc(bytes);
        list->spans =
            bt_alloc(bt_size_mul(builder->listed, sizeof(bauta_span)));
        if (!list->start || !list->origin || !list->spans)
            status = bt_fail_memory(
                err, "the rows of a mask",
                bt_size_add(bytes,
                            bt_size_mul(builder->listed, sizeof(bauta_span))));
    }
    if (status)
        bauta_mask_free(mask);
    else
        *out = mask;
    return status;
}
