/* SPDX-License-Identifier: Apache-2.0 */
/* tile_sort.c - a counting sort: lengths are small numbers. It is stable, so
 * tiles in front of the tail stay in the order of rows if all have one key. */
#include "mask/tile_sort.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* The tiles as they were. */
typedef struct sort_source {
    const unsigned char *at;
    size_t count, size, length;
    bool descending;
    size_t longest;
    size_t front; /* tiles before the tail */
} sort_source;

static const unsigned char *tile_at(const sort_source *s, size_t t)
{
    return s->at + (s->descending ? s->count - 1 - t : t) * s->size;
}

static size_t length_at(const sort_source *s, size_t t)
{
    int32_t value;
    memcpy(&value, tile_at(s, t) + s->length, sizeof(value));
    return (size_t)value;
}

/* Highest first. */
static size_t key_at(const sort_source *s, size_t t)
{
    size_t length = length_at(s, t);
    return length && t < s->front ? s->longest + 1 : length;
}

static size_t find_longest(const sort_source *s)
{
    size_t longest = 0;
    for (size_t t = 0; t < s->count; t++)
        longest = bt_size_max(longest, length_at(s, t));
    return longest;
}

static size_t find_front(const sort_source *s, size_t tail)
{
    size_t need = bt_size_mul(tail, s->longest), front = s->count;
    while (front > 0 && need > 0)
        need -= bt_size_min(need, length_at(s, --front));
    return front;
}

static void place_tiles(const sort_source *s, size_t *first, unsigned char *to)
{
    size_t keys = s->longest + 2;
    memset(first, 0, keys * sizeof(*first));
    for (size_t t = 0; t < s->count; t++)
        first[key_at(s, t)]++;
    for (size_t i = keys, at = 0; i-- > 0;) {
        size_t here = first[i];
        first[i] = at;
        at += here;
    }
    for (size_t t = 0; t < s->count; t++)
        memcpy(to + first[key_at(s, t)]++ * s->size, tile_at(s, t), s->size);
}

bauta_status bt_sort_tiles(bt_tile_sort *sort, void *tiles, size_t count,
                           size_t size, size_t length, bt_tile_order order,
                           bauta_error *err)
{
    sort_source source = { tiles, count, size, length, false, 0, 0 };
    size_t bytes = count * size;
    sort->by_row = false;
    if (!count)
        return BAUTA_OK;
    source.longest = find_longest(&source);
    if (BT_ARRAY_RESERVE(sort->first, sort->first_capacity, 0,
                         source.longest + 2) ||
        BT_ARRAY_RESERVE(sort->copy, sort->copy_capacity, 0, bytes))
        return bt_fail_memory(err, "the tiles of a plan", bytes);
    memcpy(sort->copy, tiles, bytes);
    source.at = sort->copy;
    sort->by_row = source.longest <= order.short_length;
    if (sort->by_row) {
        source.descending = order.descending;
        source.front = find_front(&source, order.tail);
    }
    place_tiles(&source, sort->first, tiles);
    return BAUTA_OK;
}

void bt_tile_sort_release(bt_tile_sort *sort)
{
    bt_free(sort->first);
    bt_free(sort->copy);
    *sort = (bt_tile_sort){ 0 };
}
