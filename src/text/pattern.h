/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.h - regular expressions, by PCRE2 with its compiler to machine code.
 *
 * Patterns come from tokenizer.json, where they are written for other engines
 * (Oniguruma, and Rust's regex). They are translated so that \s, \w, \d and \b
 * mean what Unicode says there. The steps that matching may take are bounded by
 * the length of the text; beyond that it fails with a sentence. A pattern is
 * immutable and may be shared; what a match needs lives in a bt_matcher. */
#ifndef BT_PATTERN_H
#define BT_PATTERN_H

#include "bauta.h"

typedef struct bt_pattern bt_pattern;

/* `path` names the file in sentences. */
bauta_status bt_pattern_create(bt_pattern **out, const char *pattern,
                               size_t size, const char *path, bauta_error *err);
/* The same for a plain string that is to be found literally. */
bauta_status bt_pattern_literal(bt_pattern **out, const char *string,
                                size_t size, bauta_error *err);
void bt_pattern_free(bt_pattern *pattern);

typedef struct bt_matcher bt_matcher;
bauta_status bt_matcher_create(bt_matcher **out, const bt_pattern *pattern,
                               bauta_error *err);
void bt_matcher_free(bt_matcher *matcher);

/* The first match in text[at, size), which is well-formed UTF-8; look-behind
 * sees what is before `at`. *lo and *hi are SIZE_MAX when there is none. */
bauta_status bt_matcher_find(bt_matcher *matcher, const char *text, size_t size,
                             size_t at, size_t *lo, size_t *hi,
                             bauta_error *err);

/* One match after another, from a zeroed bt_match on: *found says whether
 * there was one more. An empty match right behind the one before it does not
 * count. */
typedef struct bt_match {
    size_t lo, hi;
    size_t at; /* where to look next */
    bool some; /* there was one before, which ended at hi */
} bt_match;
bauta_status bt_matcher_next(bt_matcher *matcher, const char *text, size_t size,
                             bt_match *match, bool *found, bauta_error *err);

#endif
