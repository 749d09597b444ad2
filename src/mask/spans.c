/* SPDX-License-Identifier: Apache-2.0 */
/* spans.c - merges of two sorted lists. */
#include "mask/spans.h"

#include "base/size.h"

size_t bt_spans_union(bauta_span *out, bt_spans a, bt_spans b)
{
    size_t count = 0, i = 0, j = 0;
    while (i < a.count || j < b.count) {
        bool from_a = j == b.count || (i < a.count && a.at[i].lo <= b.at[j].lo);
        bauta_span next = from_a ? a.at[i++] : b.at[j++];
        count = bt_spans_append(out, count, next.lo, next.hi);
    }
    return count;
}

size_t bt_spans_intersect(bauta_span *out, bt_spans a, bt_spans b)
{
    size_t count = 0, i = 0, j = 0;
    while (i < a.count && j < b.count) {
        count = bt_spans_append(out, count, bt_size_max(a.at[i].lo, b.at[j].lo),
                                bt_size_min(a.at[i].hi, b.at[j].hi));
        if (a.at[i].hi < b.at[j].hi)
            i++;
        else
            j++;
    }
    return count;
}

size_t bt_spans_subtract(bauta_span *out, bt_spans a, bt_spans b)
{
    size_t count = 0, j = 0;
    for (size_t i = 0; i < a.count; i++) {
        size_t lo = a.at[i].lo, hi = a.at[i].hi;
        while (j < b.count && b.at[j].hi <= lo)
            j++;
        for (; j < b.count && b.at[j].lo < hi; j++) {
            count = bt_spans_append(out, count, lo, b.at[j].lo);
            lo = b.at[j].hi;
            if (lo > hi)
                break; // b[j] may also cover part of the next span of a
        }
        count = bt_spans_append(out, count, lo, hi);
    }
    return count;
}
