/* SPDX-License-Identifier: Apache-2.0 */
/* sorter.c - sorting n-grams and words by their keys. */
#include "score/score.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/merge_sort.h"
#include "base/size.h"

bauta_status bt_sorter_reserve(bt_sorter *sorter, size_t count,
                               bauta_error *err)
{
    sorter->count = 0;
    if (count <= sorter->room)
        return BAUTA_OK;
    size_t room = bt_size_max(count, sorter->room + sorter->room / 2);
    bt_sorter_release(sorter);
    sorter->keys = bt_alloc(bt_size_mul(room, sizeof(*sorter->keys)));
    sorter->order = bt_alloc(bt_size_mul(room, sizeof(*sorter->order)));
    sorter->spare = bt_alloc(bt_size_mul(room, sizeof(*sorter->spare)));
    if (!sorter->keys || !sorter->order || !sorter->spare) {
        bt_sorter_release(sorter);
        return bt_fail_memory(err, "the n-grams of a sentence",
                              bt_size_mul(room, sizeof(*sorter->keys)));
    }
    sorter->room = room;
    return BAUTA_OK;
}

void bt_sorter_release(bt_sorter *sorter)
{
    bt_free(sorter->keys);
    bt_free(sorter->order);
    bt_free(sorter->spare);
    *sorter = (bt_sorter){ 0 };
}

static bool has_larger_key(const void *keys, uint32_t a, uint32_t b)
{
    const uint64_t *key = keys;
    return key[a] > key[b];
}

void bt_sorter_sort(bt_sorter *sorter)
{
    bt_merge_sort(sorter->order, sorter->spare, sorter->count, has_larger_key,
                  sorter->keys);
}

size_t bt_sorter_equal_end(const bt_sorter *sorter, size_t lo)
{
    const uint64_t *keys = sorter->keys;
    size_t hi = lo + 1;
    while (hi < sorter->count &&
           keys[sorter->order[hi]] == keys[sorter->order[lo]])
        hi++;
    return hi;
}
