/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - stateless random numbers: functions of a seed, a purpose and two
 * indices. */
#ifndef BT_RANDOM_H
#define BT_RANDOM_H

#include "base/philox.h"

#include <stddef.h>

typedef enum bt_random_purpose {
    BT_RANDOM_ORDER = 1, /* the order of an epoch's examples */
    BT_RANDOM_OFFSET,    /* the first split of a document */
    BT_RANDOM_MASKING,   /* which tokens are masked, and how */
    BT_RANDOM_PREFIX,    /* the length of a prefix */
    BT_RANDOM_DROPOUT,   /* the dropout seed of a step */
    BT_RANDOM_SAMPLING   /* which inputs scheduled sampling replaces */
} bt_random_purpose;

/* 64 random bits for (purpose, a, b) under a seed. */
static inline uint64_t bt_random(uint64_t seed, bt_random_purpose purpose,
                                 uint64_t a, uint32_t b)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)a, (uint32_t)(a >> 32), b,
                                  0x64610000u + (uint32_t)purpose };
    uint32_t word[4];
    bt_philox(word, counter, key);
    return (uint64_t)word[0] << 32 | word[1];
}

/* A number in [0, 1) from 64 random bits. */
static inline double bt_random_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* An integer in [0, limit) from 64 random bits, limit > 0; uniform up to one
 * part in 2^32. */
static inline size_t bt_random_below(uint64_t bits, size_t limit)
{
    return (size_t)(((unsigned __int128)bits * limit) >> 64);
}

#endif
