/* SPDX-License-Identifier: Apache-2.0 */
/* mask.h - the stored form of a mask: the spans of all rows, concatenated.
 * mask.c explains it. */
#ifndef BT_MASK_H
#define BT_MASK_H

#include "bauta.h"
#include "mask/spans.h"

/* Maximum number of queries and of keys. Positions, sums of two positions and
 * the product of the two sizes then fit their types. */
#define BT_AXIS_MAX ((size_t)INT32_MAX)

struct bauta_mask {
    size_t queries, keys;
    size_t *start;     /* (queries + 1) row i owns spans start[i]..start[i+1] */
    size_t *origin;    /* (queries) non-decreasing; no span begins before it */
    bauta_span *spans; /* (start[queries]) sorted and disjoint in each row;
                          none empty, no two of a row touching */
    uint64_t pairs;
};

static inline bt_spans bt_mask_spans(const bauta_mask *mask, size_t row)
{
    size_t start = mask->start[row];
    return (bt_spans){ mask->spans + start, mask->start[row + 1] - start };
}

/* The end of a causal row: how many keys are at the row's position or before
 * it, which is its position + 1, or 0 for a row before every key. */
static inline size_t bt_mask_causal_end(size_t queries, size_t keys, size_t row)
{
    size_t end = row + 1 + keys;
    return end > queries ? end - queries : 0;
}

/* The keys that a causal row sees, given its end: the last `window` keys before
 * the end (0: all of them), or, for one of the first `prefix` positions, the
 * whole prefix. */
static inline bauta_span bt_causal_span(size_t end, size_t window,
                                        size_t prefix)
{
    if (end <= prefix)
        return (bauta_span){ 0, prefix };
    return (bauta_span){ window && end > window ? end - window : 0, end };
}

#endif
