/* SPDX-License-Identifier: Apache-2.0 */
/* mask.h - lists of spans, and the stored form of a mask: bands of rows that
 * follow one rule, or the spans of all rows, concatenated. mask.c explains it.
 */
#ifndef BT_MASK_H
#define BT_MASK_H

#include "base/size.h"
#include "bauta.h"

/* ---- Spans -------------------------------------------------------------- */

/* A list is canonical when its spans are sorted, none is empty and no two
 * touch. A set then has exactly one list, so equal sets have equal bytes. All
 * functions take and return canonical lists, in time linear in their lengths.
 */
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

/* ---- Bit sets of 64-bit words ------------------------------------------- */

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

/* ---- Masks -------------------------------------------------------------- */

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
