/* SPDX-License-Identifier: Apache-2.0 */
/* select.h - the best few of very many numbers.
 *
 * A vocabulary has tens of thousands of scores of which a handful is wanted, so
 * nothing is sorted: a heap keeps the best so far, its root the least of them,
 * and a block whose maximum does not beat the root is passed over whole. */
#ifndef BT_SELECT_H
#define BT_SELECT_H

#include "kernels/kernels.h"

#include <stdint.h>

typedef struct bt_pick {
    float value;
    uint32_t row, id;
} bt_pick;

typedef struct bt_picks {
    size_t want, count;
    bt_pick *all; /* (want) */
} bt_picks;

/* Nothing yet, of at most `want`; `memory` has room for so many. */
bt_picks bt_picks_start(bt_pick *memory, size_t want);

/* Offer a row: number id of it is (x[id] - less) + more. Rows come in the order
 * of their numbers, and of equal values the first one offered is better.
 * -infinity and NaN are never taken. `max` is the largest x. */
void bt_picks_row(bt_picks *picks, const bt_kernels *kernels, const float *x,
                  size_t count, float max, uint32_t row, float less,
                  float more);

/* The best one first. */
void bt_picks_sort(bt_picks *picks);

#endif
