/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - a hash of bytes, for tables with open addressing.
 *
 * Words of text are short, so the time for a handful of bytes matters most: two
 * overlapping loads and two multiplications. The key is the address of the
 * table, which the author of a file cannot know, so that nobody can prepare
 * pieces that all collide. Only time depends on the key, never a result. */
#ifndef BT_HASH_H
#define BT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BT_HASH_ODD UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio */

static inline uint64_t bt_hash_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t bt_hash_load(const char *at, size_t size)
{
    uint64_t word = 0;
    memcpy(&word, at, size);
    return word;
}

/* Up to 16 bytes as two words; together with the size they are unique. */
static inline void bt_hash_words(uint64_t words[2], const char *bytes,
                                 size_t size)
{
    words[0] = words[1] = 0;
    if (size >= 8) {
        words[0] = bt_hash_load(bytes, 8);
        words[1] = bt_hash_load(bytes + size - 8, 8);
    } else if (size >= 4) {
        words[0] = bt_hash_load(bytes, 4);
        words[1] = bt_hash_load(bytes + size - 4, 4);
    } else if (size) {
        words[0] = (unsigned char)bytes[0];
        words[1] = (uint64_t)(unsigned char)bytes[size / 2] << 8 |
                   (unsigned char)bytes[size - 1];
    }
}

static inline uint64_t bt_hash(const char *bytes, size_t size, uint64_t key)
{
    uint64_t words[2];
    size_t left = size;
    key = (key ^ size) * BT_HASH_ODD;
    for (; left > 16; left -= 16, bytes += 16)
        key = bt_hash_mix(bt_hash_load(bytes, 8) ^ BT_HASH_ODD,
                          bt_hash_load(bytes + 8, 8) ^ key);
    bt_hash_words(words, bytes, left);
    return bt_hash_mix(words[0] ^ key, words[1] ^ BT_HASH_ODD) * BT_HASH_ODD;
}

#endif
