/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c - what a mask is, and queries on it.
 *
 * A mask says which keys each query may see. Drawn with a line for each query
 * and a column for each key, '#' where the query sees the key:
 *
 *     causal        window of 2   prefix of 3   sinks of 1,   all
 *                                               window of 2
 *     #....         #....         ###..         #....         #####
 *     ##...         ##...         ###..         ##...         #####
 *     ###..         .##..         ###..         ###..         #####
 *     ####.         ..##.         ####.         #.##.         #####
 *     #####         ...##         #####         #..##         #####
 *
 * Spans. In each of these a row is a few runs of '#', and in masks used in
 * practice the runs are few and long. So a row is stored as a list of its runs,
 * the spans [lo, hi), and a mask is the concatenation of these lists:
 *
 *     row 3 above   #.##.            spans  ... [0,1) [2,4) [0,1) [3,5)
 *     row 4 above   #..##            start  ... ^3          ^4          ^end
 *
 * This run-length code is exact for any boolean matrix. Its memory is
 * proportional to the number of spans, not to queries x keys. Union,
 * intersection and complement are merges of sorted lists (below). The lists
 * are canonical: equal masks have equal bytes.
 *
 * Bands. In most masks the spans also change little from row to row: an end
 * stays where it is or moves on by one key. Consecutive rows that do so are a
 * band, stored as the spans of its first row and the two steps of each:
 *
 *     causal          one band     [0, 1)  ends  +0 +1
 *     window of 2     two          [0, 1)  ends  +0 +1,  then [1, 3)  +1 +1
 *
 * Constructors of regular masks, packing and the algebra make bands, in time
 * and memory that do not depend on the number of rows, and the GPU's work lists
 * are made from bands. The list of all rows is filled when somebody asks for
 * it. Masks of irregular rows have the list alone.
 *
 * Positions. Query i of n over m keys is at position i + m - n: the last query
 * aligns with the last key. A decoding step, one query over all keys so far, is
 * then the last row of the square mask, and a chunk of four new tokens its last
 * four rows:
 *
 *     causal, 2 over 5     ####.        causal, 5 over 2     ..
 *                          #####                             ..
 *                                                            ..
 *     Rows before every key see nothing:                     #.
 *                                                            ##
 *
 * A batch is a mask. Sequences of any lengths are packed back to back on one
 * token axis, and the mask keeps them apart. There is no batch dimension and no
 * padding, and a sequence gives the same results alone and in any batch,
 * because the mask alone decides what it sees:
 *
 *     documents 3, 2       the same, causal      padded to 3, 3: lengths 3, 2
 *
 *     ###..                #....                 ###...
 *     ###..                ##...                 ###...
 *     ###..                ###..                 ###...
 *     ...##                ...#.                 ...##.
 *     ...##                ...##                 ...##.
 *                                                ......
 *
 * Origin. Arithmetic in blocks of 64 keys depends on where the blocks begin. So
 * that a document's bits do not depend on what precedes it, each row has an
 * origin, the key from which its blocks are counted: the first key of its
 * document, or 0. In the drawings above the last rows have origin 3. A row
 * never sees a key before its origin. AND takes the larger of two origins and
 * OR the smaller, which preserves this; NOT resets the origin to 0. Origins
 * never decrease from row to row: constructors make them so, and the row-wise
 * maximum and minimum of two non-decreasing columns are non-decreasing. So the
 * rows of one origin are contiguous. */
#include "mask/mask.h"

#include "base/memory.h"
#include "base/size.h"

#include <pthread.h>
#include <string.h>

void bauta_mask_free(bauta_mask *mask)
{
    if (!mask)
        return;
    bt_free(mask->list.start);
    bt_free(mask->list.origin);
    bt_free(mask->list.spans);
    bt_free(mask->bands);
    bt_free(mask->band_spans);
    bt_free(mask);
}

static void list_band(const bauta_mask *mask, const bt_band *band)
{
    const bt_row_list *list = &mask->list;
    const bt_band_span *spans = mask->band_spans + band->span;
    size_t at = list->start[band->row];
    for (size_t i = 0; i < band->rows; i++) {
        list->origin[band->row + i] = band->origin;
        for (size_t k = 0; k < band->spans; k++)
            list->spans[at++] = bt_band_span_at(&spans[k], i);
        list->start[band->row + i + 1] = at;
    }
}

void bt_mask_list_rows(const bauta_mask *mask)
{
    static pthread_mutex_t filling = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&filling);
    if (!__atomic_load_n(&mask->listed, __ATOMIC_RELAXED)) {
        mask->list.start[0] = 0;
        for (size_t b = 0; b < mask->band_count; b++)
            list_band(mask, &mask->bands[b]);
        // The mask is unchanged for all who see it.
        __atomic_store_n(&((bauta_mask *)mask)->listed, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&filling);
}

bool bt_mask_same_pairs(const bauta_mask *a, const bauta_mask *b)
{
    if (a == b)
        return true;
    if (a->queries != b->queries || a->keys != b->keys || a->pairs != b->pairs)
        return false;
    const bt_row_list *x = bt_mask_rows(a), *y = bt_mask_rows(b);
    size_t rows = a->queries;
    return !memcmp(x->start, y->start, (rows + 1) * sizeof(*x->start)) &&
           !memcmp(x->spans, y->spans, x->start[rows] * sizeof(*x->spans));
}

size_t bauta_mask_queries(const bauta_mask *mask)
{
    return mask->queries;
}

size_t bauta_mask_keys(const bauta_mask *mask)
{
    return mask->keys;
}

/* Index of the first span of a row that ends after `key`, or the count if there
 * is none. O(log count). */
static size_t span_ending_after(bt_spans row, size_t key)
{
    size_t lo = 0, hi = row.count;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (row.at[middle].hi > key)
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo;
}

bool bauta_mask_visible(const bauta_mask *mask, size_t query, size_t key)
{
    bt_spans row = bt_mask_spans(mask, query);
    size_t at = span_ending_after(row, key);
    return at < row.count && row.at[at].lo <= key;
}

const bauta_span *bauta_mask_row(const bauta_mask *mask, size_t query,
                                 size_t *count)
{
    bt_spans row = bt_mask_spans(mask, query);
    *count = row.count;
    return row.at;
}

size_t bauta_mask_origin(const bauta_mask *mask, size_t query)
{
    return bt_mask_rows(mask)->origin[query];
}

uint64_t bauta_mask_pairs(const bauta_mask *mask)
{
    return mask->pairs;
}

bool bauta_mask_is_causal(const bauta_mask *mask, size_t *query, size_t *key)
{
    for (size_t i = 0; i < mask->queries; i++) {
        size_t end = bt_mask_causal_end(mask->queries, mask->keys, i);
        bt_spans row = bt_mask_spans(mask, i);
        size_t at = span_ending_after(row, end);
        if (at == row.count)
            continue;
        if (query)
            *query = i;
        if (key)
            *key = bt_size_max(row.at[at].lo, end);
        return false;
    }
    return true;
}

/* ---- Spans: merges of two sorted lists ---------------------------------- */

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
