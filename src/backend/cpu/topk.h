/* SPDX-License-Identifier: Apache-2.0 */
/* topk.h - the k largest of many numbers.
 *
 * A vocabulary has tens of thousands of scores, of which a few are wanted, so
 * nothing is sorted. A heap holds the best so far with the smallest at its
 * root, and a block whose maximum does not exceed the root is skipped. */
#ifndef BT_TOPK_H
#define BT_TOPK_H

#include "backend/cpu/kernels/kernels.h"

#include <stdint.h>

typedef struct bt_topk_item {
    float value;
    uint32_t row, id;
} bt_topk_item;

typedef struct bt_topk {
    size_t want, count;
    bt_topk_item *all; /* (want) */
} bt_topk;

/* Start empty, for at most `want` items, with an array of that size. */
bt_topk bt_topk_init(bt_topk_item *memory, size_t want);

/* Add a row: the value of id is (x[id] - less) + more. Rows come in ascending
 * order, and of equal values the first one wins. -infinity and NaN are never
 * taken. `max` is the largest x. */
void bt_topk_add_row(bt_topk *picks, const bt_kernels *kernels, const float *x,
                     size_t count, float max, uint32_t row, float less,
                     float more);

/* Sort in descending order. */
void bt_topk_sort(bt_topk *picks);

#endif
