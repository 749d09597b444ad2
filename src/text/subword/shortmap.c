/* SPDX-License-Identifier: Apache-2.0 */
/* shortmap.c - see shortmap.h. */
#include "text/subword/shortmap.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

enum { SLOTS_FIRST = 64 };

/* Empty slots, a power of two of them, with a new hash key. */
static bauta_status slots_create(bt_shortmap *map, size_t count,
                                 bauta_error *err)
{
    size_t bytes = bt_size_mul(count, sizeof(*map->slots));
    bt_shortmap_slot *slots = bt_alloc(bytes);
    if (!slots)
        return bt_fail_memory(err, "words", bytes);
    for (size_t i = 0; i < count; i++)
        slots[i] = (bt_shortmap_slot){ { 0, 0 }, 0, BT_SHORTMAP_NONE };
    *map = (bt_shortmap){ .slots = slots,
                          .mask = count - 1,
                          .key = bt_hash_mix((uintptr_t)slots, BT_HASH_ODD) };
    return BAUTA_OK;
}

bauta_status bt_shortmap_init(bt_shortmap *map, bauta_error *err)
{
    *map = (bt_shortmap){ 0 };
    return slots_create(map, SLOTS_FIRST, err);
}

void bt_shortmap_release(bt_shortmap *map)
{
    bt_free(map->slots);
    *map = (bt_shortmap){ 0 };
}

static void slot_fill(bt_shortmap *map, const bt_shortmap_slot *from)
{
    *bt_shortmap_slot_of(map, from->words, from->size) = *from;
    map->filled++;
}

static bauta_status slots_grow(bt_shortmap *map, bauta_error *err)
{
    bt_shortmap larger;
    bauta_status status = slots_create(&larger, 2 * (map->mask + 1), err);
    if (status)
        return status;
    for (size_t i = 0; i <= map->mask; i++)
        if (map->slots[i].size)
            slot_fill(&larger, map->slots + i);
    bt_free(map->slots);
    *map = larger;
    return BAUTA_OK;
}

bauta_status bt_shortmap_add(bt_shortmap *map, const char *bytes, size_t size,
                             uint32_t id, bauta_error *err)
{
    bt_shortmap_slot slot = { { 0, 0 }, (uint32_t)size, id };
    bauta_status status = BAUTA_OK;
    if (map->filled > map->mask / 2)
        status = slots_grow(map, err);
    if (status)
        return status;
    bt_hash_words(slot.words, bytes, size);
    slot_fill(map, &slot);
    return BAUTA_OK;
}
