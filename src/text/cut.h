/* SPDX-License-Identifier: Apache-2.0 */
/* cut.h - cutting one split at what was found in it.
 *
 * A finder walks over the bytes of the split and reports, from left to right
 * and without gaps, what matches and what lies between. The behaviour decides
 * what becomes of that. */
#ifndef BT_CUT_H
#define BT_CUT_H

#include "text/pattern.h"
#include "text/split.h"

typedef enum bt_behavior {
    BT_REMOVED,         /* matches go */
    BT_ISOLATED,        /* matches are splits of their own */
    BT_MERGED_PREVIOUS, /* a match belongs to what stands before it */
    BT_MERGED_NEXT,     /* ... to what stands behind it */
    BT_CONTIGUOUS       /* matches that touch are one split */
} bt_behavior;

typedef struct bt_cut {
    bt_splits *out;
    bt_split parent;
    bt_behavior behavior;
    bool invert;         /* what does not match is the match */
    const uint32_t *map; /* from places in what the finder sees to places in
                            the split; NULL: they are the same */
    bool held, held_match;
    size_t lo, hi; /* what is held back until the next is known */
    bauta_error *err;
} bt_cut;

bauta_status bt_cut_piece(bt_cut *cut, size_t lo, size_t hi, bool match);
/* There is no more: what was held back comes out. */
bauta_status bt_cut_end(bt_cut *cut);

/* Finders. Each ends with bt_cut_end(). */

/* A character is a match of its own. */
typedef bool bt_char_fn(uint32_t code);
bauta_status bt_cut_chars(bt_cut *cut, const char *text, size_t size,
                          bt_char_fn *matches);
bauta_status bt_cut_char(bt_cut *cut, const char *text, size_t size,
                         uint32_t code);
bauta_status bt_cut_pattern(bt_cut *cut, const char *text, size_t size,
                            bt_matcher *matcher);
/* Words and runs of other characters match, white space does not. */
bauta_status bt_cut_words(bt_cut *cut, const char *text, size_t size);

#endif
