/* SPDX-License-Identifier: Apache-2.0 */
/* substrings.h - the strings that occur in words again and again: what a
 * Unigram vocabulary is chosen from.
 *
 * All suffixes of all words are sorted. Strings that begin with the same
 * characters then lie together, and where they cease to agree is a string that
 * cannot be made longer without losing an occurrence. Those are the
 * candidates; all characters are, too. */
#ifndef BT_SUBSTRINGS_H
#define BT_SUBSTRINGS_H

#include "text/learn/tokenizer_trainer.h"

enum { BT_SUBSTRING_MAX = 16 }; /* characters */

typedef struct bt_substring {
    uint32_t lo, hi; /* it begins the suffixes order[lo] to order[hi - 1] */
    uint32_t size;   /* characters */
    double count;    /* how often it occurs */
} bt_substring;

/* Part of the text that is a word, or what is left and right of a NUL in one:
 * a NUL is in no piece. */
typedef struct bt_segment {
    uint32_t begin, end;
    double count;
} bt_segment;

typedef struct bt_substrings {
    uint32_t *codes; /* characters, with a 0 behind each segment */
    size_t code_count;
    bt_segment *segments;
    size_t segment_count;
    uint32_t *order; /* suffixes: where in codes they begin */
    size_t order_count;
    bt_substring *list; /* single characters first */
    size_t count, characters;
} bt_substrings;

/* Find the strings of at least two characters that occur `least` times; of
 * more than `most` those that cover most text. */
bauta_status bt_substrings_init(bt_substrings *s, const bt_words *words,
                                size_t least, size_t most, bauta_error *err);
void bt_substrings_release(bt_substrings *s);

#endif
