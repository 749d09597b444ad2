/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - Philox4x32-10, a counter-based random number generator.
 *
 * A pure function of a key and a counter (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). Key and counter identify what a
 * number is used for, so a resumed or re-batched run draws the same numbers and
 * there is no generator state to save. */
#ifndef BT_PHILOX_H
#define BT_PHILOX_H

#include <stddef.h>
#include <stdint.h>

/* out = the four random words for a counter and a key. */
void bt_philox(uint32_t out[4], const uint32_t counter[4],
               const uint32_t key[2]);

/* ---- Numbers for a purpose ---------------------------------------------- */

/* What the numbers of a training run are for. */
typedef enum bt_random_purpose {
    BT_RANDOM_ORDER = 1, /* the order of an epoch's examples */
    BT_RANDOM_OFFSET,    /* the first split of a document */
    BT_RANDOM_MASKING,   /* which tokens are masked, and how */
    BT_RANDOM_PREFIX,    /* the length of a prefix */
    BT_RANDOM_DROPOUT,   /* the dropout seed of a step */
    BT_RANDOM_SAMPLING   /* which inputs scheduled sampling replaces */
} bt_random_purpose;

/* 64 random bits for (purpose, a, b) under a seed. */
uint64_t bt_random(uint64_t seed, bt_random_purpose purpose, uint64_t a,
                   uint32_t b);

/* A number in [0, 1) from 64 random bits. */
double bt_random_unit(uint64_t bits);

/* An integer in [0, limit) from 64 random bits, limit > 0; uniform up to one
 * part in 2^32. */
size_t bt_random_below(uint64_t bits, size_t limit);

#endif
