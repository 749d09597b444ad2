/* SPDX-License-Identifier: Apache-2.0 */
/* ngrams.c - the n-grams that a hypothesis shares with its references.
 *
 * An n-gram is the (n-1)-gram that begins at the same place plus one symbol.
 * (n-1)-grams have ranks, so an n-gram of any order is a pair (rank, symbol).
 * Sorting makes equal pairs adjacent, and each different pair gets a new rank.
 */
#include "score/score.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

void bt_ngrams_clear(bt_ngrams *ngrams)
{
    ngrams->count = 0;
    ngrams->sequences = 0;
    ngrams->order = 0;
}

void bt_ngrams_release(bt_ngrams *ngrams)
{
    bt_free(ngrams->symbols);
    bt_free(ngrams->ends);
    bt_free(ngrams->ranks);
    bt_free(ngrams->shared);
    bt_sorter_release(&ngrams->sorter);
    *ngrams = (bt_ngrams){ 0 };
}

bauta_status bt_ngrams_add(bt_ngrams *ngrams, const uint32_t *symbols,
                           size_t count, bauta_error *err)
{
    if (BT_ARRAY_RESERVE(ngrams->symbols, ngrams->symbols_room, ngrams->count,
                         count) ||
        BT_ARRAY_RESERVE(ngrams->ends, ngrams->ends_room, ngrams->sequences, 1))
        return bt_fail_memory(err, "the symbols of a sentence",
                              bt_size_mul(count, sizeof(*symbols)));
    if (count)
        memcpy(ngrams->symbols + ngrams->count, symbols,
               count * sizeof(*symbols));
    ngrams->count += count;
    ngrams->ends[ngrams->sequences++] = ngrams->count;
    return BAUTA_OK;
}

bauta_status bt_ngrams_begin(bt_ngrams *ngrams, bauta_error *err)
{
    if (ngrams->count >= UINT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a sentence and its references have %zu symbols, more "
                       "than %u",
                       ngrams->count, (unsigned)UINT32_MAX - 1);
    if (BT_ARRAY_RESERVE(ngrams->ranks, ngrams->ranks_room, 0, ngrams->count) ||
        BT_ARRAY_RESERVE(ngrams->shared, ngrams->shared_room, 0,
                         ngrams->sequences))
        return bt_fail_memory(err, "the n-grams of a sentence",
                              bt_size_mul(ngrams->count, sizeof(uint32_t)));
    if (ngrams->count)
        memset(ngrams->ranks, 0, ngrams->count * sizeof(*ngrams->ranks));
    return bt_sorter_reserve(&ngrams->sorter, ngrams->count, err);
}

size_t bt_ngrams_length(const bt_ngrams *ngrams, size_t sequence)
{
    return ngrams->ends[sequence] - (sequence ? ngrams->ends[sequence - 1] : 0);
}

size_t bt_ngrams_total(const bt_ngrams *ngrams, size_t sequence)
{
    size_t length = bt_ngrams_length(ngrams, sequence);
    return length < ngrams->order ? 0 : length - ngrams->order + 1;
}

/* Fill the sorter with all n-grams and their keys. */
static void collect(bt_ngrams *ngrams)
{
    bt_sorter *s = &ngrams->sorter;
    size_t at = 0, ahead = ngrams->order - 1;
    s->count = 0;
    for (size_t k = 0; k < ngrams->sequences; k++) {
        for (size_t left = bt_ngrams_total(ngrams, k); left > 0; left--, at++) {
            s->keys[at] =
                (uint64_t)ngrams->ranks[at] << 32 | ngrams->symbols[at + ahead];
            s->order[s->count++] = (uint32_t)at;
        }
        at = ngrams->ends[k];
    }
}

/* The sequence that has the n-gram at an index. */
static size_t sequence_of(const bt_ngrams *ngrams, size_t at)
{
    size_t lo = 0, hi = ngrams->sequences - 1;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (at < ngrams->ends[middle])
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo;
}

/* Count the matches of a run of equal n-grams, which is ordered by sequence. */
static void count_shared(bt_ngrams *ngrams, size_t lo, size_t hi)
{
    const uint32_t *order = ngrams->sorter.order;
    size_t own_end = lo, most = 0;
    while (own_end < hi && order[own_end] < ngrams->ends[0])
        own_end++;
    for (size_t i = own_end, next; i < hi; i = next) {
        size_t sequence = sequence_of(ngrams, order[i]);
        for (next = i + 1; next < hi; next++)
            if (order[next] >= ngrams->ends[sequence])
                break;
        size_t both = bt_size_min(own_end - lo, next - i);
        ngrams->shared[sequence] += both;
        most = bt_size_max(most, both);
    }
    ngrams->shared[0] += most;
}

void bt_ngrams_next_order(bt_ngrams *ngrams)
{
    bt_sorter *s = &ngrams->sorter;
    uint32_t rank = 0;
    ngrams->order++;
    collect(ngrams);
    bt_sorter_sort(s);
    memset(ngrams->shared, 0, ngrams->sequences * sizeof(*ngrams->shared));
    for (size_t lo = 0, hi; lo < s->count; lo = hi, rank++) {
        hi = bt_sorter_equal_end(s, lo);
        for (size_t i = lo; i < hi; i++)
            ngrams->ranks[s->order[i]] = rank;
        count_shared(ngrams, lo, hi);
    }
}
