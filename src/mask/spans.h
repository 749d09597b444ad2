/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h - lists of spans, and what can be done with two of them.
 *
 * A list is canonical when its spans are sorted, none is empty and no two
 * touch. Every set of numbers then has exactly one list, so equal sets have
 * equal bytes. All functions take canonical lists and give canonical lists, in
 * time linear in their lengths. */
#ifndef BT_SPANS_H
#define BT_SPANS_H

#include "bauta.h"

typedef struct bt_spans {
    const bauta_span *at;
    size_t count;
} bt_spans;

/* Append [lo, hi) to a list of `count` spans and return the new count. It must
 * not begin before the last one does; where it touches or overlaps that one
 * they become one, and an empty span leaves no trace. */
static inline size_t bt_spans_append(bauta_span *list, size_t count, size_t lo,
                                     size_t hi)
{
    if (lo >= hi)
        return count;
    if (count && lo <= list[count - 1].hi) {
        if (hi > list[count - 1].hi)
            list[count - 1].hi = hi;
        return count;
    }
    list[count] = (bauta_span){ lo, hi };
    return count + 1;
}

/* Write to `out`, which has room for a.count + b.count spans and overlaps
 * neither list, the union, the intersection or what of a is not in b; return
 * how many spans that is. */
typedef size_t bt_spans_fn(bauta_span *out, bt_spans a, bt_spans b);
bt_spans_fn bt_spans_or, bt_spans_and, bt_spans_without;

#endif
