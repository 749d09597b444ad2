/* SPDX-License-Identifier: Apache-2.0 */
/* cut.c - behaviours and finders; see cut.h. */
#include "text/cut.h"

#include "text/unicode.h"

/* ---- Behaviours ---------------------------------------------------------- */

static bauta_status emit(bt_cut *cut, size_t lo, size_t hi)
{
    if (cut->map) {
        lo = cut->map[lo];
        hi = cut->map[hi];
    }
    bt_split split = { cut->parent.lo + (uint32_t)lo,
                       cut->parent.lo + (uint32_t)hi, BT_NO_TOKEN,
                       cut->parent.first && lo == 0 };
    return bt_splits_add(cut->out, split, cut->err);
}

/* Whether what comes belongs to what is held. */
static bool joins(const bt_cut *cut, bool match)
{
    switch (cut->behavior) {
    case BT_CONTIGUOUS:
        return match == cut->held_match;
    case BT_MERGED_PREVIOUS:
        return match && !cut->held_match;
    case BT_MERGED_NEXT:
        return !match && cut->held_match;
    default:
        return false;
    }
}

bauta_status bt_cut_piece(bt_cut *cut, size_t lo, size_t hi, bool match)
{
    match ^= cut->invert;
    if (cut->behavior == BT_REMOVED && match)
        return BAUTA_OK;
    if (cut->behavior == BT_REMOVED || cut->behavior == BT_ISOLATED)
        return emit(cut, lo, hi);
    bauta_status status = BAUTA_OK;
    if (!cut->held || !joins(cut, match)) {
        status = bt_cut_end(cut);
        cut->lo = lo;
    }
    cut->hi = hi;
    cut->held = true;
    cut->held_match = match;
    return status;
}

bauta_status bt_cut_end(bt_cut *cut)
{
    bool held = cut->held;
    cut->held = false;
    return held ? emit(cut, cut->lo, cut->hi) : BAUTA_OK;
}

/* ---- Finders ------------------------------------------------------------- */

/* What lies between two matches. */
static bauta_status between(bt_cut *cut, size_t lo, size_t hi)
{
    return lo < hi ? bt_cut_piece(cut, lo, hi, false) : BAUTA_OK;
}

/* `matches`, or where there is none, the character `code`. */
static bauta_status cut_chars(bt_cut *cut, const char *text, size_t size,
                              bt_char_fn *matches, uint32_t code)
{
    bauta_status status = BAUTA_OK;
    size_t last = 0;
    for (size_t i = 0, length; !status && i < size; i += length) {
        uint32_t c = bt_utf8_get(text + i, size - i, &length);
        if (matches ? !matches(c) : c != code)
            continue;
        status = between(cut, last, i);
        if (!status)
            status = bt_cut_piece(cut, i, i + length, true);
        last = i + length;
    }
    if (!status)
        status = between(cut, last, size);
    return status ? status : bt_cut_end(cut);
}

bauta_status bt_cut_chars(bt_cut *cut, const char *text, size_t size,
                          bt_char_fn *matches)
{
    return cut_chars(cut, text, size, matches, 0);
}

bauta_status bt_cut_char(bt_cut *cut, const char *text, size_t size,
                         uint32_t code)
{
    return cut_chars(cut, text, size, NULL, code);
}

bauta_status bt_cut_pattern(bt_cut *cut, const char *text, size_t size,
                            bt_matcher *matcher)
{
    bt_match match = { 0, 0, 0, false };
    size_t last = 0;
    for (;;) {
        bool found;
        bauta_status status =
            bt_matcher_next(matcher, text, size, &match, &found, cut->err);
        if (!status)
            status = between(cut, last, found ? match.lo : size);
        if (!status && found)
            status = bt_cut_piece(cut, match.lo, match.hi, true);
        if (status)
            return status;
        if (!found)
            return bt_cut_end(cut);
        last = match.hi;
    }
}

/* 0 white space, 1 a word's, 2 another character. */
static int word_kind(uint32_t code)
{
    return bt_is_space(code) ? 0 : bt_is_word(code) ? 1 : 2;
}

bauta_status bt_cut_words(bt_cut *cut, const char *text, size_t size)
{
    bauta_status status = BAUTA_OK;
    size_t last = 0;
    int kind = 0;
    for (size_t i = 0, length; !status && i < size; i += length) {
        int next = word_kind(bt_utf8_get(text + i, size - i, &length));
        if (next == kind)
            continue;
        if (last < i)
            status = bt_cut_piece(cut, last, i, kind != 0);
        kind = next;
        last = i;
    }
    if (!status && last < size)
        status = bt_cut_piece(cut, last, size, kind != 0);
    return status ? status : bt_cut_end(cut);
}
