/* SPDX-License-Identifier: Apache-2.0 */
/* regex.h - regular expressions: PCRE2 with its JIT compiler.
 *
 * The patterns of a tokenizer.json are written for other engines (Oniguruma,
 * and Rust's regex). They are translated so that \s, \w, \d and \b have their
 * Unicode meaning. The number of steps of a match is bounded by the length of
 * the text; beyond that it fails. A bt_regex is immutable and may be shared
 * between threads; the state of a search is in a bt_regex_matcher. */
#ifndef BT_REGEX_H
#define BT_REGEX_H

#include "bauta.h"

typedef struct bt_regex bt_regex;

/* `path` names the file in messages. */
bauta_status bt_regex_create(bt_regex **out, const char *pattern, size_t size,
                             const char *path, bauta_error *err);
/* A plain string instead of a pattern. */
bauta_status bt_regex_create_literal(bt_regex **out, const char *string,
                                     size_t size, bauta_error *err);
void bt_regex_free(bt_regex *pattern);

typedef struct bt_regex_matcher bt_regex_matcher;
bauta_status bt_regex_matcher_create(bt_regex_matcher **out,
                                     const bt_regex *pattern, bauta_error *err);
void bt_regex_matcher_free(bt_regex_matcher *matcher);

/* The first match in text[at, size), which is well-formed UTF-8; lookbehind
 * sees the text before `at`. *lo and *hi are SIZE_MAX if there is none. */
bauta_status bt_regex_matcher_find(bt_regex_matcher *matcher, const char *text,
                                   size_t size, size_t at, size_t *lo,
                                   size_t *hi, bauta_error *err);

/* Iterate over the matches, starting with a zeroed bt_regex_match; *found is
 * false after the last one. An empty match at the end of the previous match is
 * skipped. */
typedef struct bt_regex_match {
    size_t lo, hi;
    size_t next; /* where the next search starts */
    bool any;    /* there was a match before, which ended at hi */
} bt_regex_match;
bauta_status bt_regex_matcher_next(bt_regex_matcher *matcher, const char *text,
                                   size_t size, bt_regex_match *match,
                                   bool *found, bauta_error *err);

#endif
