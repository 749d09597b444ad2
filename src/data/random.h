/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - numbers drawn by what they are for: a seed, a purpose, and up to
 * three numbers that name the thing. There is no state. */
#ifndef BT_RANDOM_H
#define BT_RANDOM_H

#include "base/philox.h"

#include <stddef.h>

typedef enum bt_purpose {
    BT_FOR_ORDER = 1, /* of an epoch's sequences */
    BT_FOR_OFFSET,    /* where a document is cut */
    BT_FOR_HIDING,    /* which tokens are masked, and as what */
    BT_FOR_PREFIX,    /* how long a prefix is */
    BT_FOR_DROPOUT,   /* the seed of a step */
    BT_FOR_SAMPLING   /* which inputs are the model's own */
} bt_purpose;

/* 64 random bits for (purpose, a, b) under a seed. */
static inline uint64_t bt_random(uint64_t seed, bt_purpose purpose, uint64_t a,
                                 uint32_t b)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)a, (uint32_t)(a >> 32), b,
                                  0x64610000u + (uint32_t)purpose };
    uint32_t word[4];
    bt_philox(word, counter, key);
    return (uint64_t)word[0] << 32 | word[1];
}

/* From 0 to below 1, of such bits. */
static inline double bt_random_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* From 0 to below `limit` > 0, evenly but for one part in 2^32. */
static inline size_t bt_random_below(uint64_t bits, size_t limit)
{
    return (size_t)(((unsigned __int128)bits * limit) >> 64);
}

#endif
