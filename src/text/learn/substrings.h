/* SPDX-License-Identifier: Apache-2.0 */
/* substrings.h - frequent substrings of the words: the seed vocabulary of
 * Unigram.
 *
 * All suffixes of all words are sorted, so suffixes with a common prefix are
 * adjacent. The candidates are the prefixes that cannot be extended without
 * losing an occurrence, and all single characters. */
#ifndef BT_SUBSTRINGS_H
#define BT_SUBSTRINGS_H

#include "text/learn/tokenizer_trainer.h"

enum { BT_SUBSTRING_MAX = 16 }; /* characters */

typedef struct bt_substring {
    uint32_t lo, hi; /* it is a prefix of the suffixes lo to hi - 1 */
    uint32_t size;   /* characters */
    double count;    /* how often it occurs */
} bt_substring;

/* A word, or the parts of one on both sides of a NUL, which is in no piece. */
typedef struct bt_text_segment {
    uint32_t begin, end;
    double count;
} bt_text_segment;

typedef struct bt_substrings {
    uint32_t *codes; /* characters, with a 0 after each segment */
    size_t code_count;
    bt_text_segment *segments;
    size_t segment_count;
    uint32_t *suffixes; /* the suffix array: positions in codes */
    size_t suffix_count;
    bt_substring *list; /* single characters first */
    size_t count, characters;
} bt_substrings;

/* Find the substrings of at least two characters that occur `least` times; if
 * there are more than `most`, those that cover most text. */
bauta_status bt_substrings_init(bt_substrings *s, const bt_word_counts *words,
                                size_t least, size_t most, bauta_error *err);
void bt_substrings_release(bt_substrings *s);

#endif
