/* SPDX-License-Identifier: Apache-2.0 */
/* tile_sort.c - a counting sort: lengths are small numbers. */
#include "mask/tile_sort.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

static size_t length_of(const unsigned char *tile, size_t length)
{
    int32_t value;
    memcpy(&value, tile + length, sizeof(value));
    return (size_t)value;
}

bauta_status bt_sort_tiles(bt_tile_sort *sort, void *tiles, size_t count,
                           size_t size, size_t length, bauta_error *err)
{
    unsigned char *from = tiles;
    size_t bytes = count * size, most = 0;
    if (!count)
        return BAUTA_OK;
    for (size_t t = 0; t < count; t++)
        most = bt_size_max(most, length_of(from + t * size, length));
    if (BT_ARRAY_RESERVE(sort->first, sort->first_capacity, 0, most + 1) ||
        BT_ARRAY_RESERVE(sort->copy, sort->copy_capacity, 0, bytes))
        return bt_fail_memory(err, "the tiles of a plan", bytes);
    memset(sort->first, 0, (most + 1) * sizeof(*sort->first));
    memcpy(sort->copy, from, bytes);
    for (size_t t = 0; t < count; t++)
        sort->first[length_of(from + t * size, length)]++;
    for (size_t i = most + 1, at = 0; i-- > 0;) {
        size_t here = sort->first[i];
        sort->first[i] = at;
        at += here;
    }
    for (size_t t = 0; t < count; t++) {
        const unsigned char *tile = sort->copy + t * size;
        memcpy(from + sort->first[length_of(tile, length)]++ * size, tile,
               size);
    }
    return BAUTA_OK;
}

void bt_tile_sort_release(bt_tile_sort *sort)
{
    bt_free(sort->first);
    bt_free(sort->copy);
    *sort = (bt_tile_sort){ 0 };
}
