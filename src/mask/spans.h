/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h - lists of spans and set operations on them.
 *
 * A list is canonical when its spans are sorted, none is empty and no two
 * touch. A set then has exactly one list, so equal sets have equal bytes. All
 * functions take and return canonical lists, in time linear in their lengths.
 */
#ifndef BT_SPANS_H
#define BT_SPANS_H

#include "bauta.h"

typedef struct bt_spans {
    const bauta_span *at;
    size_t count;
} bt_spans;

/* Append [lo, hi) to a list of `count` spans and return the new count. It must
 * not begin before the last span. A span that touches or overlaps the last one
 * is merged into it; an empty one is ignored. */
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

/* Write the union, the intersection or the difference a \ b to `out` and return
 * the number of spans. `out` has room for a.count + b.count spans and overlaps
 * neither list. */
typedef size_t bt_spans_fn(bauta_span *out, bt_spans a, bt_spans b);
bt_spans_fn bt_spans_union, bt_spans_intersect, bt_spans_subtract;

#endif
