/* SPDX-License-Identifier: Apache-2.0 */
/* mask.h - a mask as it is stored: the spans of all rows, one behind the
 * other. The essay is in mask.c. */
#ifndef BT_MASK_H
#define BT_MASK_H

#include "bauta.h"
#include "mask/spans.h"

/* Most queries, and most keys, that a mask may have. No position, no sum of
 * two positions and no product of the two sizes then leaves its type. */
#define BT_AXIS_MAX ((size_t)INT32_MAX)

struct bauta_mask {
    size_t queries, keys;
    size_t *start;     /* (queries + 1) row i owns spans start[i]..start[i+1] */
    size_t *origin;    /* (queries) never decreasing, and no span before it */
    bauta_span *spans; /* (start[queries]) sorted and disjoint in each row;
                          none empty, no two of a row touching */
    uint64_t pairs;
};

static inline bt_spans bt_mask_spans(const bauta_mask *mask, size_t row)
{
    size_t start = mask->start[row];
    return (bt_spans){ mask->spans + start, mask->start[row + 1] - start };
}

/* How many keys are at the position of a row or before it: the row's own
 * position and one, or 0 for a row that stands before every key. */
static inline size_t bt_mask_past(size_t queries, size_t keys, size_t row)
{
    size_t past = row + 1 + keys;
    return past > queries ? past - queries : 0;
}

/* The keys that a causal query sees which has `past` keys at its position or
 * before it: the last `window` of those (0: all of them), or, where it is one
 * of the first `prefix` positions, all of these. */
static inline bauta_span bt_causal_span(size_t past, size_t window,
                                        size_t prefix)
{
    if (past <= prefix)
        return (bauta_span){ 0, prefix };
    return (bauta_span){ window && past > window ? past - window : 0, past };
}

#endif
