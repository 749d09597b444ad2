/* SPDX-License-Identifier: Apache-2.0 */
/* word_ids.c - equal words get equal ids. */
#include "score/score.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

void bt_word_ids_clear(bt_word_ids *words)
{
    words->codes.count = 0;
    words->count = 0;
    words->sequences = 0;
}

void bt_word_ids_release(bt_word_ids *words)
{
    bt_codepoints_release(&words->codes);
    bt_sorter_release(&words->sorter);
    bt_free(words->list);
    bt_free(words->ends);
    bt_free(words->ids);
    *words = (bt_word_ids){ 0 };
}

bauta_status bt_word_ids_add(bt_word_ids *words, const uint32_t *codes,
                             size_t length, bauta_error *err)
{
    bt_codepoints *all = &words->codes;
    if (BT_ARRAY_RESERVE(words->list, words->room, words->count, 1) ||
        BT_ARRAY_RESERVE(all->at, all->room, all->count, length))
        return bt_fail_memory(err, "a word", sizeof(bt_word_range) + length);
    memcpy(all->at + all->count, codes, length * sizeof(*codes));
    words->list[words->count++] = (bt_word_range){ all->count, length };
    all->count += length;
    return BAUTA_OK;
}

bauta_status bt_word_ids_end_sequence(bt_word_ids *words, bauta_error *err)
{
    if (BT_ARRAY_RESERVE(words->ends, words->ends_room, words->sequences, 1))
        return bt_fail_memory(err, "a sentence", sizeof(*words->ends));
    words->ends[words->sequences++] = words->count;
    return BAUTA_OK;
}

/* Give an id, from *next on, to each different key of the sorted words. Then
 * keep only the words of more than `length` characters. */
static void assign_ids_to_runs(bt_word_ids *words, size_t length,
                               uint32_t *next)
{
    bt_sorter *s = &words->sorter;
    size_t kept = 0;
    for (size_t lo = 0, hi; lo < s->count; lo = hi, ++*next) {
        hi = bt_sorter_equal_end(s, lo);
        for (size_t i = lo; i < hi; i++)
            words->ids[s->order[i]] = *next;
    }
    for (size_t i = 0; i < s->count; i++)
        if (words->list[s->order[i]].length > length)
            s->order[kept++] = s->order[i];
    s->count = kept;
}

static bauta_status ids_reserve(bt_word_ids *words, bauta_error *err)
{
    if (words->codes.count >= UINT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a sentence and its references have %zu characters, "
                       "more than %u",
                       words->codes.count, (unsigned)UINT32_MAX - 1);
    if (BT_ARRAY_RESERVE(words->ids, words->ids_room, 0, words->count))
        return bt_fail_memory(err, "the words of a sentence",
                              bt_size_mul(words->count, sizeof(uint32_t)));
    return bt_sorter_reserve(&words->sorter, words->count, err);
}

/* Character by character, the pair (id of the prefix, next character) becomes
 * the id of the longer prefix, until the word ends. An id is used only once, so
 * a word differs from a longer one that begins with it. */
static bauta_status assign_ids(bt_word_ids *words, bauta_error *err)
{
    bt_sorter *s = &words->sorter;
    uint32_t next = 1;
    bauta_status status = ids_reserve(words, err);
    if (status)
        return status;
    for (size_t i = 0; i < words->count; i++) {
        words->ids[i] = 0;
        s->order[s->count++] = (uint32_t)i;
    }
    for (size_t length = 0; s->count; length++) {
        for (size_t i = 0; i < s->count; i++) {
            uint32_t at = s->order[i];
            uint32_t code = words->codes.at[words->list[at].start + length];
            s->keys[at] = (uint64_t)words->ids[at] << 32 | code;
        }
        bt_sorter_sort(s);
        assign_ids_to_runs(words, length + 1, &next);
    }
    return BAUTA_OK;
}

bauta_status bt_word_ids_ngrams(bt_word_ids *words, bt_ngrams *ngrams,
                                bauta_error *err)
{
    size_t start = 0;
    bauta_status status = assign_ids(words, err);
    bt_ngrams_clear(ngrams);
    for (size_t k = 0; k < words->sequences && !status; k++) {
        size_t count = words->ends[k] - start;
        // Without words there is no array.
        status = bt_ngrams_add(ngrams, count ? words->ids + start : NULL, count,
                               err);
        start = words->ends[k];
    }
    return status ? status : bt_ngrams_begin(ngrams, err);
}
