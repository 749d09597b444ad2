/* SPDX-License-Identifier: Apache-2.0 */
/* splitter.c - see splitter.h. */
#include "text/pretokenize/splitter.h"

#include "base/utf8.h"
#include "text/unicode.h"

/* ---- Behaviors ----------------------------------------------------------- */

static bauta_status emit(bt_splitter *s, size_t lo, size_t hi)
{
    if (s->map) {
        lo = s->map[lo];
        hi = s->map[hi];
    }
    bt_split split = { s->parent.lo + (uint32_t)lo, s->parent.lo + (uint32_t)hi,
                       BT_NO_TOKEN, s->parent.first && lo == 0 };
    return bt_splits_add(s->out, split, s->err);
}

/* Whether the next piece joins the one that is held. */
static bool joins(const bt_splitter *s, bool match)
{
    switch (s->behavior) {
    case BT_SPLIT_CONTIGUOUS:
        return match == s->held_match;
    case BT_SPLIT_MERGED_WITH_PREVIOUS:
        return match && !s->held_match;
    case BT_SPLIT_MERGED_WITH_NEXT:
        return !match && s->held_match;
    default:
        return false;
    }
}

bauta_status bt_splitter_add(bt_splitter *s, size_t lo, size_t hi, bool match)
{
    match ^= s->invert;
    if (s->behavior == BT_SPLIT_REMOVED && match)
        return BAUTA_OK;
    if (s->behavior == BT_SPLIT_REMOVED || s->behavior == BT_SPLIT_ISOLATED)
        return emit(s, lo, hi);
    bauta_status status = BAUTA_OK;
    if (!s->held || !joins(s, match)) {
        status = bt_splitter_end(s);
        s->lo = lo;
    }
    s->hi = hi;
    s->held = true;
    s->held_match = match;
    return status;
}

bauta_status bt_splitter_end(bt_splitter *s)
{
    bool held = s->held;
    s->held = false;
    return held ? emit(s, s->lo, s->hi) : BAUTA_OK;
}

/* ---- Searches ------------------------------------------------------------ */

/* The text between two matches. */
static bauta_status between(bt_splitter *s, size_t lo, size_t hi)
{
    return lo < hi ? bt_splitter_add(s, lo, hi, false) : BAUTA_OK;
}

/* Match a class of characters, or `code` if `matches` is NULL. */
static bauta_status split_chars(bt_splitter *s, const char *text, size_t size,
                                bt_char_class_fn *matches, uint32_t code)
{
    bauta_status status = BAUTA_OK;
    size_t last = 0;
    for (size_t i = 0, length; !status && i < size; i += length) {
        uint32_t c = bt_utf8_decode(text + i, size - i, &length);
        if (matches ? !matches(c) : c != code)
            continue;
        status = between(s, last, i);
        if (!status)
            status = bt_splitter_add(s, i, i + length, true);
        last = i + length;
    }
    if (!status)
        status = between(s, last, size);
    return status ? status : bt_splitter_end(s);
}

bauta_status bt_split_at_chars(bt_splitter *s, const char *text, size_t size,
                               bt_char_class_fn *matches)
{
    return split_chars(s, text, size, matches, 0);
}

bauta_status bt_split_at_char(bt_splitter *s, const char *text, size_t size,
                              uint32_t code)
{
    return split_chars(s, text, size, NULL, code);
}

bauta_status bt_split_at_regex(bt_splitter *s, const char *text, size_t size,
                               bt_regex_matcher *matcher)
{
    bt_regex_match match = { 0, 0, 0, false };
    size_t last = 0;
    for (;;) {
        bool found;
        bauta_status status =
            bt_regex_matcher_next(matcher, text, size, &match, &found, s->err);
        if (!status)
            status = between(s, last, found ? match.lo : size);
        if (!status && found)
            status = bt_splitter_add(s, match.lo, match.hi, true);
        if (status)
            return status;
        if (!found)
            return bt_splitter_end(s);
        last = match.hi;
    }
}

/* 0: white space, 1: a word character, 2: another character. */
static int char_kind(uint32_t code)
{
    return bt_is_space(code) ? 0 : bt_is_word_character(code) ? 1 : 2;
}

bauta_status bt_split_words(bt_splitter *s, const char *text, size_t size)
{
    bauta_status status = BAUTA_OK;
    size_t last = 0;
    int kind = 0;
    for (size_t i = 0, length; !status && i < size; i += length) {
        int next = char_kind(bt_utf8_decode(text + i, size - i, &length));
        if (next == kind)
            continue;
        if (last < i)
            status = bt_splitter_add(s, last, i, kind != 0);
        kind = next;
        last = i;
    }
    if (!status && last < size)
        status = bt_splitter_add(s, last, size, kind != 0);
    return status ? status : bt_splitter_end(s);
}
