/* SPDX-License-Identifier: Apache-2.0 */
/* sorter.c - a bottom-up merge sort: stable, n log n for any input. */
#include "score/score.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

bauta_status bt_sorter_reserve(bt_sorter *sorter, size_t count,
                               bauta_error *err)
{
    sorter->count = 0;
    if (count <= sorter->room)
        return BAUTA_OK;
    size_t room = bt_size_max(count, sorter->room + sorter->room / 2);
    size_t bytes = bt_size_mul(room, sizeof(*sorter->items));
    bt_sorter_release(sorter);
    sorter->items = bt_alloc(bytes);
    sorter->spare = bt_alloc(bytes);
    if (!sorter->items || !sorter->spare) {
        bt_sorter_release(sorter);
        return bt_fail_memory(err, "the n-grams of a sentence", bytes);
    }
    sorter->room = room;
    return BAUTA_OK;
}

void bt_sorter_release(bt_sorter *sorter)
{
    bt_free(sorter->items);
    bt_free(sorter->spare);
    *sorter = (bt_sorter){ 0 };
}

/* Merge the sorted ranges [lo, middle) and [middle, hi). */
static void merge(bt_sort_item *to, const bt_sort_item *from, size_t lo,
                  size_t middle, size_t hi)
{
    size_t a = lo, b = middle;
    for (size_t i = lo; i < hi; i++)
        to[i] = a < middle && (b == hi || from[a].key <= from[b].key)
                    ? from[a++]
                    : from[b++];
}

void bt_sorter_sort(bt_sorter *sorter)
{
    size_t count = sorter->count;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t lo = 0; lo < count; lo += 2 * width)
            merge(sorter->spare, sorter->items, lo,
                  bt_size_min(lo + width, count),
                  bt_size_min(lo + 2 * width, count));
        bt_sort_item *sorted = sorter->spare;
        sorter->spare = sorter->items;
        sorter->items = sorted;
    }
}

size_t bt_sorter_equal_end(const bt_sorter *sorter, size_t lo)
{
    size_t hi = lo + 1;
    while (hi < sorter->count && sorter->items[hi].key == sorter->items[lo].key)
        hi++;
    return hi;
}
