/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - putting numbers in order by what they stand for.
 *
 * A merge sort: what counts as equal stays in the order it had, so the result
 * depends on nothing but the comparison; and n log n comparisons are the most
 * that any input can cost. */
#ifndef BT_ORDER_H
#define BT_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether `b` must come before `a`, which stands before it now. */
typedef bool bt_order_fn(const void *user, uint32_t a, uint32_t b);

/* Sort list[0] to list[count - 1]; `spare` has room for as many. */
void bt_order(uint32_t *list, uint32_t *spare, size_t count,
              bt_order_fn *swapped, const void *user);

#endif
