/* SPDX-License-Identifier: Apache-2.0 */
/* size.h - saturating size arithmetic.
 *
 * A sum or product that overflows is SIZE_MAX and stays there, and allocating
 * SIZE_MAX bytes fails cleanly. A chain of these calls needs no other check. */
#ifndef BT_SIZE_H
#define BT_SIZE_H

#include <stddef.h>
#include <stdint.h>

static inline size_t bt_size_mul(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static inline size_t bt_size_add(size_t a, size_t b)
{
    size_t sum;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

/* Smallest multiple of `unit` that is at least `size`. */
static inline size_t bt_size_round(size_t size, size_t unit)
{
    size_t rest = size % unit;
    return rest ? bt_size_add(size, unit - rest) : size;
}

static inline size_t bt_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t bt_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
