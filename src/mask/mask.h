/* SPDX-License-Identifier: Apache-2.0 */
/* mask.h - the stored form of a mask: bands of rows that follow one rule, or
 * the spans of all rows, concatenated. mask.c explains it. */
#ifndef BT_MASK_H
#define BT_MASK_H

#include "bauta.h"
#include "mask/spans.h"

/* Maximum number of queries and of keys. Positions, sums of two positions and
 * the product of the two sizes then fit their types. */
#define BT_AXIS_MAX ((size_t)INT32_MAX)

/* A span of every row of a band. From row to row each end stays or moves on by
 * one key. */
typedef struct bt_band_span {
    bauta_span at;           /* in the band's first row */
    size_t lo_step, hi_step; /* 0 or 1 */
} bt_band_span;

/* Consecutive rows of one origin with the same number of spans. */
typedef struct bt_band {
    size_t row, rows;
    size_t origin;
    size_t span, spans; /* its slice of the bands' spans; none empty, no two of
                           a row touching, in any row */
} bt_band;

/* The spans of all rows. */
typedef struct bt_row_list {
    size_t *start;     /* (queries + 1) row i owns spans start[i]..start[i+1] */
    size_t *origin;    /* (queries) non-decreasing; no span begins before it */
    bauta_span *spans; /* (start[queries]) sorted and disjoint in each row;
                          none empty, no two of a row touching */
} bt_row_list;

struct bauta_mask {
    size_t queries, keys;
    uint64_t pairs;
    size_t band_count;
    bt_band *bands;           /* NULL: the mask was built row by row */
    bt_band_span *band_spans; /* sorted in each band */
    bt_row_list list;         /* read it through bt_mask_rows() */
    int listed; /* the list is filled; until then it is memory only */
};

/* The rows of a mask. A mask of bands lists them when they are first asked for,
 * into memory that was allocated with the mask: this cannot fail, and threads
 * may share the mask. */
void bt_mask_list_rows(const bauta_mask *mask);

static inline const bt_row_list *bt_mask_rows(const bauta_mask *mask)
{
    if (!__atomic_load_n(&mask->listed, __ATOMIC_ACQUIRE))
        bt_mask_list_rows(mask);
    return &mask->list;
}

static inline bt_spans bt_mask_spans(const bauta_mask *mask, size_t row)
{
    const bt_row_list *rows = bt_mask_rows(mask);
    size_t start = rows->start[row];
    return (bt_spans){ rows->spans + start, rows->start[row + 1] - start };
}

/* Whether two masks show the same pairs. Spans are canonical, so their bytes
 * are compared. */
bool bt_mask_same_pairs(const bauta_mask *a, const bauta_mask *b);

/* A span of row `row` of a band, counted from the band's first row. */
static inline bauta_span bt_band_span_at(const bt_band_span *span, size_t row)
{
    return (bauta_span){ span->at.lo + span->lo_step * row,
                         span->at.hi + span->hi_step * row };
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
