/* SPDX-License-Identifier: Apache-2.0 */
/* shortmap.h - a hash table from strings of up to 16 bytes to ids, for the
 * lookup of every word of a text. A key is two machine words in its slot, so a
 * lookup touches one cache line and compares no bytes. */
#ifndef BT_SHORTMAP_H
#define BT_SHORTMAP_H

#include "base/hash.h"
#include "bauta.h"

enum { BT_SHORTMAP_KEY_MAX = 16, BT_SHORTMAP_NONE = UINT32_MAX };

typedef struct bt_shortmap_slot {
    uint64_t words[2];
    uint32_t size; /* 0: the slot is empty */
    uint32_t id;
} bt_shortmap_slot;

typedef struct bt_shortmap {
    bt_shortmap_slot *slots; /* with linear probing */
    size_t mask;             /* number of slots - 1 */
    size_t filled;
    uint64_t key;
} bt_shortmap;

bauta_status bt_shortmap_init(bt_shortmap *map, bauta_error *err);
void bt_shortmap_release(bt_shortmap *map);

/* Add a string of 1 to 16 bytes that is not in the map. */
bauta_status bt_shortmap_add(bt_shortmap *map, const char *bytes, size_t size,
                             uint32_t id, bauta_error *err);

/* The slot of a key, or the empty one where it belongs. */
static inline bt_shortmap_slot *bt_shortmap_slot_of(const bt_shortmap *map,
                                                    const uint64_t words[2],
                                                    size_t size)
{
    uint64_t hash = bt_hash_mix(words[0] ^ map->key,
                                words[1] ^ BT_HASH_ODD ^ (uint64_t)size << 56);
    for (size_t i = (size_t)hash;; i++) {
        bt_shortmap_slot *s = map->slots + (i & map->mask);
        if ((s->words[0] == words[0] && s->words[1] == words[1] &&
             s->size == size) ||
            s->size == 0)
            return s;
    }
}

/* The id of a string of 1 to 16 bytes, or BT_SHORTMAP_NONE. */
static inline uint32_t bt_shortmap_find(const bt_shortmap *map,
                                        const char *bytes, size_t size)
{
    uint64_t words[2];
    bt_hash_words(words, bytes, size);
    return bt_shortmap_slot_of(map, words, size)->id;
}

#endif
