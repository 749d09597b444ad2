/* SPDX-License-Identifier: Apache-2.0 */
/* grams.c - how many n-grams a sentence shares with its references.
 *
 * An n-gram is the (n-1)-gram that begins at the same place, and one symbol
 * more. The former has a rank, so every n-gram is a pair of numbers, however
 * large n is; sorted, equal ones lie together and get the next rank. */
#include "score/score.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

void bt_grams_clear(bt_grams *grams)
{
    grams->count = 0;
    grams->sequences = 0;
    grams->order = 0;
}

void bt_grams_release(bt_grams *grams)
{
    bt_free(grams->symbols);
    bt_free(grams->ends);
    bt_free(grams->ranks);
    bt_free(grams->shared);
    bt_sorter_release(&grams->sorter);
    *grams = (bt_grams){ 0 };
}

bauta_status bt_grams_add(bt_grams *grams, const uint32_t *symbols,
                          size_t count, bauta_error *err)
{
    if (BT_ROOM(grams->symbols, grams->symbols_room, grams->count, count) ||
        BT_ROOM(grams->ends, grams->ends_room, grams->sequences, 1))
        return bt_fail_memory(err, "the symbols of a sentence",
                              bt_size_mul(count, sizeof(*symbols)));
    if (count)
        memcpy(grams->symbols + grams->count, symbols,
               count * sizeof(*symbols));
    grams->count += count;
    grams->ends[grams->sequences++] = grams->count;
    return BAUTA_OK;
}

bauta_status bt_grams_begin(bt_grams *grams, bauta_error *err)
{
    if (grams->count >= UINT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a sentence and its references have %zu symbols, more "
                       "than %u",
                       grams->count, (unsigned)UINT32_MAX - 1);
    if (BT_ROOM(grams->ranks, grams->ranks_room, 0, grams->count) ||
        BT_ROOM(grams->shared, grams->shared_room, 0, grams->sequences))
        return bt_fail_memory(err, "the n-grams of a sentence",
                              bt_size_mul(grams->count, sizeof(uint32_t)));
    if (grams->count)
        memset(grams->ranks, 0, grams->count * sizeof(*grams->ranks));
    return bt_sorter_reserve(&grams->sorter, grams->count, err);
}

size_t bt_grams_length(const bt_grams *grams, size_t sequence)
{
    return grams->ends[sequence] - (sequence ? grams->ends[sequence - 1] : 0);
}

size_t bt_grams_total(const bt_grams *grams, size_t sequence)
{
    size_t length = bt_grams_length(grams, sequence);
    return length < grams->order ? 0 : length - grams->order + 1;
}

/* Every n-gram with its key. */
static void collect(bt_grams *grams)
{
    bt_sorter *s = &grams->sorter;
    size_t at = 0, ahead = grams->order - 1;
    s->count = 0;
    for (size_t k = 0; k < grams->sequences; k++) {
        for (size_t left = bt_grams_total(grams, k); left > 0; left--, at++)
            s->items[s->count++] =
                (bt_keyed){ (uint64_t)grams->ranks[at] << 32 |
                                grams->symbols[at + ahead],
                            (uint32_t)at, (uint32_t)k };
        at = grams->ends[k];
    }
}

/* Equal n-grams, in the order of their sequences: what the first one shares
 * with each of the others. */
static void share(bt_grams *grams, size_t lo, size_t hi)
{
    const bt_keyed *items = grams->sorter.items;
    size_t mine = lo, most = 0;
    while (mine < hi && items[mine].owner == 0)
        mine++;
    for (size_t i = mine, next; i < hi; i = next) {
        for (next = i + 1; next < hi; next++)
            if (items[next].owner != items[i].owner)
                break;
        size_t both = bt_size_min(mine - lo, next - i);
        grams->shared[items[i].owner] += both;
        most = bt_size_max(most, both);
    }
    grams->shared[0] += most;
}

void bt_grams_next(bt_grams *grams)
{
    bt_sorter *s = &grams->sorter;
    uint32_t rank = 0;
    grams->order++;
    collect(grams);
    bt_sorter_run(s);
    memset(grams->shared, 0, grams->sequences * sizeof(*grams->shared));
    for (size_t lo = 0, hi; lo < s->count; lo = hi, rank++) {
        hi = bt_sorter_run_end(s, lo);
        for (size_t i = lo; i < hi; i++)
            grams->ranks[s->items[i].at] = rank;
        share(grams, lo, hi);
    }
}
