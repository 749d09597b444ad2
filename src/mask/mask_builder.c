/* SPDX-License-Identifier: Apache-2.0 */
/* mask_builder.c - masks, row by row. */
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
