/* SPDX-License-Identifier: Apache-2.0 */
/* splitter.h - dividing one split at matches.
 *
 * A search goes over the split and reports, from left to right and without
 * gaps, the matches and the text between them. The behavior
 * (SplitDelimiterBehavior of Hugging Face's library) says which splits they
 * become. */
#ifndef BT_SPLITTER_H
#define BT_SPLITTER_H

#include "text/pretokenize/split.h"
#include "text/regex.h"

typedef enum bt_split_behavior {
    BT_SPLIT_REMOVED,              /* matches are dropped */
    BT_SPLIT_ISOLATED,             /* matches are splits of their own */
    BT_SPLIT_MERGED_WITH_PREVIOUS, /* a match belongs to the text before it */
    BT_SPLIT_MERGED_WITH_NEXT,     /* a match belongs to the text after it */
    BT_SPLIT_CONTIGUOUS            /* adjacent matches are one split */
} bt_split_behavior;

typedef struct bt_splitter {
    bt_splits *out;
    bt_split parent;
    bt_split_behavior behavior;
    bool invert;         /* matches and other text change roles */
    const uint32_t *map; /* from positions in the searched text to those in
                            the split; NULL: they are equal */
    bool held, held_match;
    size_t lo, hi; /* a piece that waits for the next one */
    bauta_error *err;
} bt_splitter;

/* Report bytes [lo, hi), a match or the text between two. */
bauta_status bt_splitter_add(bt_splitter *s, size_t lo, size_t hi, bool match);
/* The end of the split. */
bauta_status bt_splitter_end(bt_splitter *s);

/* Searches. Each ends with bt_splitter_end(). */

/* Each character of a class is a match. */
typedef bool bt_char_class_fn(uint32_t code);
bauta_status bt_split_at_chars(bt_splitter *s, const char *text, size_t size,
                               bt_char_class_fn *matches);
bauta_status bt_split_at_char(bt_splitter *s, const char *text, size_t size,
                              uint32_t code);
bauta_status bt_split_at_regex(bt_splitter *s, const char *text, size_t size,
                               bt_regex_matcher *matcher);
/* Words and runs of other characters match; white space does not. */
bauta_status bt_split_words(bt_splitter *s, const char *text, size_t size);

#endif
