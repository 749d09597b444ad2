/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - words become numbers, the same word the same number. */
#include "score/score.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

void bt_score_words_clear(bt_score_words *words)
{
    words->codes.count = 0;
    words->count = 0;
    words->sequences = 0;
}

void bt_score_words_release(bt_score_words *words)
{
    bt_codes_release(&words->codes);
    bt_sorter_release(&words->sorter);
    bt_free(words->list);
    bt_free(words->ends);
    bt_free(words->numbers);
    *words = (bt_score_words){ 0 };
}

bauta_status bt_score_words_add(bt_score_words *words, const uint32_t *codes,
                                size_t length, bauta_error *err)
{
    bt_codes *all = &words->codes;
    if (BT_ROOM(words->list, words->room, words->count, 1) ||
        BT_ROOM(all->at, all->room, all->count, length))
        return bt_fail_memory(err, "a word", sizeof(bt_word) + length);
    memcpy(all->at + all->count, codes, length * sizeof(*codes));
    words->list[words->count++] = (bt_word){ all->count, length };
    all->count += length;
    return BAUTA_OK;
}

bauta_status bt_score_words_end(bt_score_words *words, bauta_error *err)
{
    if (BT_ROOM(words->ends, words->ends_room, words->sequences, 1))
        return bt_fail_memory(err, "a sentence", sizeof(*words->ends));
    words->ends[words->sequences++] = words->count;
    return BAUTA_OK;
}

/* Give a number from *next on to each different key of the words being sorted,
 * and keep those words that have more than `length` characters. */
static void number_runs(bt_score_words *words, size_t length, uint32_t *next)
{
    bt_sorter *s = &words->sorter;
    size_t kept = 0;
    for (size_t lo = 0, hi; lo < s->count; lo = hi, ++*next) {
        hi = bt_sorter_run_end(s, lo);
        for (size_t i = lo; i < hi; i++)
            words->numbers[s->items[i].at] = *next;
    }
    for (size_t i = 0; i < s->count; i++)
        if (words->list[s->items[i].at].length > length)
            s->items[kept++] = s->items[i];
    s->count = kept;
}

static bauta_status numbers_reserve(bt_score_words *words, bauta_error *err)
{
    if (words->codes.count >= UINT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a sentence and its references have %zu characters, "
                       "more than %u",
                       words->codes.count, (unsigned)UINT32_MAX - 1);
    if (BT_ROOM(words->numbers, words->numbers_room, 0, words->count))
        return bt_fail_memory(err, "the words of a sentence",
                              bt_size_mul(words->count, sizeof(uint32_t)));
    return bt_sorter_reserve(&words->sorter, words->count, err);
}

/* The number of a word's first characters, and the next one: that pair is a new
 * number, until the word ends. Numbers are never used twice, so a word and a
 * longer one that begins with it differ. */
static bauta_status words_number(bt_score_words *words, bauta_error *err)
{
    bt_sorter *s = &words->sorter;
    uint32_t next = 1;
    bauta_status status = numbers_reserve(words, err);
    if (status)
        return status;
    for (size_t i = 0; i < words->count; i++) {
        words->numbers[i] = 0;
        s->items[s->count++] = (bt_keyed){ .at = (uint32_t)i };
    }
    for (size_t length = 0; s->count; length++) {
        for (size_t i = 0; i < s->count; i++) {
            uint32_t at = s->items[i].at;
            uint32_t code = words->codes.at[words->list[at].start + length];
            s->items[i].key = (uint64_t)words->numbers[at] << 32 | code;
        }
        bt_sorter_run(s);
        number_runs(words, length + 1, &next);
    }
    return BAUTA_OK;
}

bauta_status bt_score_words_grams(bt_score_words *words, bt_grams *grams,
                                  bauta_error *err)
{
    size_t start = 0;
    bauta_status status = words_number(words, err);
    bt_grams_clear(grams);
    for (size_t k = 0; k < words->sequences && !status; k++) {
        size_t count = words->ends[k] - start;
        // Where there are no words there is no array either.
        status = bt_grams_add(grams, count ? words->numbers + start : NULL,
                              count, err);
        start = words->ends[k];
    }
    return status ? status : bt_grams_begin(grams, err);
}
