/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h - bit sets of 64-bit words, and their conversion to spans. */
#ifndef BT_BITS_H
#define BT_BITS_H

#include "base/size.h"
#include "mask/spans.h"

/* Set the bits [lo, hi). Consecutive words are `stride` apart. */
static inline void bt_bits_set(uint64_t *words, size_t stride, size_t lo,
                               size_t hi)
{
    while (lo < hi) {
        size_t bit = lo % 64, count = bt_size_min(64 - bit, hi - lo);
        words[lo / 64 * stride] |= UINT64_MAX >> (64 - count) << bit;
        lo += count;
    }
}

/* Write the set bits as a canonical list of spans and return its length, at
 * most half the number of bits. */
static inline size_t bt_bits_spans(bauta_span *to, const uint64_t *words,
                                   size_t count)
{
    size_t spans = 0;
    for (size_t w = 0; w < count; w++)
        for (uint64_t left = words[w]; left;) {
            size_t lo = (size_t)__builtin_ctzll(left);
            uint64_t clear = ~left & UINT64_MAX << lo;
            size_t hi = clear ? (size_t)__builtin_ctzll(clear) : 64;
            spans = bt_spans_append(to, spans, w * 64 + lo, w * 64 + hi);
            left = hi < 64 ? left & UINT64_MAX << hi : 0;
        }
    return spans;
}

#endif
