/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c - what a mask is, and the questions one can ask it.
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
 * Spans. In each of these a row is a few runs of '#', and in every mask that
 * people use the runs are few and long. So a row is stored as the list of its
 * runs, the spans [lo, hi), and a mask is the lists of its rows, one behind
 * the other:
 *
 *     row 3 above   #.##.            spans  ... [0,1) [2,4) [0,1) [3,5)
 *     row 4 above   #..##            start  ... ^3          ^4          ^end
 *
 * That is exact for any boolean matrix, being its run-length code; it takes
 * memory in proportion to what the mask says and not to queries x keys; and
 * union, intersection and complement are walks along sorted lists (spans.c).
 * The lists are canonical: equal masks have equal bytes.
 *
 * Positions. Query i of n over m keys stands at position i + m - n: the last
 * query meets the last key. A step of decoding, one query over all the keys so
 * far, is then simply the last row of the square mask, and a chunk of four new
 * tokens its last four rows:
 *
 *     causal, 2 over 5     ####.        causal, 5 over 2     ..
 *                          #####                             ..
 *                                                            ..
 *     Rows that stand before every key                       #.
 *     have no past and see nothing:                          ##
 *
 * A batch is a mask. Sequences of any lengths lie one behind the other on one
 * axis of tokens, and the mask keeps them apart. No batch dimension exists and
 * no padding is needed; that a sequence computes the same alone and in company
 * is a property of the mask, and whoever asks the mask cannot forget it:
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
 * Origin. Arithmetic in blocks of 64 keys depends on where the blocks begin.
 * So that a document's bits do not depend on what lies before it, each row has
 * an origin, the key from which its blocks are counted: the first key of its
 * document, or 0. In the drawings above the last rows have origin 3. A row
 * never sees a key before its origin. AND keeps the later of two origins and
 * OR the earlier, for which this stays true; NOT sees everything and goes back
 * to 0. Origins never decrease from row to row: in the masks that set them
 * they do not, and the later and the earlier of two such columns are such
 * columns again. So the rows of one origin lie together. */
#include "mask/mask.h"

#include "base/memory.h"
#include "base/size.h"

void bauta_mask_free(bauta_mask *mask)
{
    if (!mask)
        return;
    bt_free(mask->start);
    bt_free(mask->origin);
    bt_free(mask->spans);
    bt_free(mask);
}

size_t bauta_mask_queries(const bauta_mask *mask)
{
    return mask->queries;
}

size_t bauta_mask_keys(const bauta_mask *mask)
{
    return mask->keys;
}

/* Index of the first span of a row that ends behind `key`; the count when
 * there is none. O(log count). */
static size_t span_ending_behind(bt_spans row, size_t key)
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
    size_t at = span_ending_behind(row, key);
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
    return mask->origin[query];
}

uint64_t bauta_mask_pairs(const bauta_mask *mask)
{
    return mask->pairs;
}

bool bauta_mask_is_causal(const bauta_mask *mask, size_t *query, size_t *key)
{
    for (size_t i = 0; i < mask->queries; i++) {
        size_t past = bt_mask_past(mask->queries, mask->keys, i);
        bt_spans row = bt_mask_spans(mask, i);
        size_t at = span_ending_behind(row, past);
        if (at == row.count)
            continue;
        if (query)
            *query = i;
        if (key)
            *key = bt_size_max(row.at[at].lo, past);
        return false;
    }
    return true;
}
