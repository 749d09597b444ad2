/* SPDX-License-Identifier: Apache-2.0 */
/* parallel_ranges.h - parallel loops over ranges of rows, columns or elements.
 */
#ifndef BT_PARALLEL_RANGES_H
#define BT_PARALLEL_RANGES_H

#include "base/thread_pool.h"

/* Items first to first + count - 1. Ranges write disjoint outputs. */
typedef void bt_range_fn(void *job, size_t first, size_t count);

/* Run all of `count` items in ranges of `each`. */
void bt_parallel_ranges(bt_thread_pool *pool, size_t count, size_t each,
                        bt_range_fn *run, void *job);

/* How many rows of `columns` elements make a task worth starting. */
size_t bt_rows_per_task(size_t columns);

/* How many of `columns` columns a task takes if it processes all rows of them:
 * an equal share for each thread, in whole cache lines. */
size_t bt_columns_per_task(int threads, size_t columns);

#endif
