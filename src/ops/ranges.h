/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.h - an op's rows, columns or elements in ranges, on the threads of
 * its tape. */
#ifndef BT_RANGES_H
#define BT_RANGES_H

#include "ops/tape.h"

/* Items first to first + count - 1; ranges write disjoint outputs. */
typedef void bt_range_fn(void *job, size_t first, size_t count);

/* All of `count` items, in ranges of `each`. */
void bt_ranges(const bt_tape *tape, size_t count, size_t each, bt_range_fn *run,
               void *job);

/* How many rows of so many columns are worth a task. */
size_t bt_ranges_rows(size_t columns);

/* How many of so many columns a task takes when its work is all their rows:
 * enough for each thread to have some, in whole cache lines. */
size_t bt_ranges_columns(const bt_tape *tape, size_t columns);

#endif
