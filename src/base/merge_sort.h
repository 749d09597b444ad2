/* SPDX-License-Identifier: Apache-2.0 */
/* merge_sort.h - a stable sort of indices by a caller's comparison.
 *
 * Equal elements keep their order, so the result depends on nothing but the
 * comparison, and no input costs more than n log n comparisons. */
#ifndef BT_MERGE_SORT_H
#define BT_MERGE_SORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether `a`, which comes before `b` now, must come after it. */
typedef bool bt_sort_after_fn(const void *user, uint32_t a, uint32_t b);

/* Sort list[0] to list[count - 1]; `spare` is scratch of the same size. */
void bt_merge_sort(uint32_t *list, uint32_t *spare, size_t count,
                   bt_sort_after_fn *after, const void *user);

#endif
