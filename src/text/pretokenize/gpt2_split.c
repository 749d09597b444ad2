/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2_split.c - see gpt2_split.h.
 *
 * Both patterns match at every position, so the matches cover a text. Each
 * function below finds the end of the match that begins at a position. The
 * alternatives are tried in the order of the pattern. */
#include "text/pretokenize/gpt2_split.h"

#include "base/array.h"
#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode.h"

#include <string.h>

enum { LETTER = 1, NUMBER, SPACE, OTHER };

/* clang-format off */
static const unsigned char ascii_kind[128] = {
    4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 4, 4,
    4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
    3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4,
    4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4,
    4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4,
};
/* clang-format on */

static int wide_kind(const char *at, size_t size, size_t *length)
{
    uint32_t code = bt_utf8_decode(at, size, length);
    return bt_is_letter(code)   ? LETTER
           : bt_is_number(code) ? NUMBER
           : bt_is_space(code)  ? SPACE
                                : OTHER;
}

/* The kind of the character at text[at], and its length; 0 at the end. */
static inline int kind_at(const char *text, size_t size, size_t at,
                          size_t *length)
{
    *length = 1;
    if (at >= size)
        return 0;
    unsigned char c = (unsigned char)text[at];
    return c < 0x80 ? ascii_kind[c] : wide_kind(text + at, size - at, length);
}

/* The end of the run of one kind that `at` is in. */
static inline size_t run_end(const char *text, size_t size, size_t at, int kind)
{
    size_t length;
    while (kind_at(text, size, at, &length) == kind)
        at += length;
    return at;
}

/* The length of 's, 't, 're, 've, 'm, 'll or 'd, with the apostrophe at `at`,
 * or 0. */
static size_t contraction(const char *text, size_t size, size_t at)
{
    char a = at + 1 < size ? text[at + 1] : '\0';
    char b = at + 2 < size ? text[at + 2] : '\0';
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') ||
                   (a == 'l' && b == 'l')
               ? 3
               : 0;
}

/* \s+(?!\S)|\s+ from `at`, which is white space: before other text the last
 * character of the run is left out, unless it is the only one. */
static size_t space_end(const char *text, size_t size, size_t at)
{
    size_t length, end = at, last = at;
    while (kind_at(text, size, end, &length) == SPACE) {
        last = end;
        end += length;
    }
    return end == size || last == at ? end : last;
}

static inline size_t gpt2_end(const char *text, size_t size, size_t at)
{
    size_t length, next;
    if (text[at] == '\'' && (length = contraction(text, size, at)))
        return at + length;
    int kind = kind_at(text, size, at, &length);
    if (text[at] == ' ') {
        int following = kind_at(text, size, at + 1, &next);
        if (following && following != SPACE)
            return run_end(text, size, at + 1 + next, following);
    }
    return kind == SPACE ? space_end(text, size, at)
                         : run_end(text, size, at + length, kind);
}

/* ---- Llama 3 ------------------------------------------------------------- */

unsigned bt_llama3_max_digits(const char *pattern)
{
    static const char head[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}";
    static const char tail[] =
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    if (strncmp(pattern, head, sizeof(head) - 1) != 0)
        return 0;
    pattern += sizeof(head) - 1;
    bool three = strncmp(pattern, "{1,3}", 5) == 0;
    return strcmp(pattern + (three ? 5 : 0), tail) != 0 ? 0 : three ? 3 : 1;
}

/* The ASCII letter at text[at] in lower case. U+017F is an s too when case is
 * ignored. */
static char folded(const char *text, size_t size, size_t at, size_t *length)
{
    *length = 1;
    if (at >= size)
        return '\0';
    if (size - at >= 2 && memcmp(text + at, "\xC5\xBF", 2) == 0) {
        *length = 2;
        return 's';
    }
    char c = text[at];
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static size_t folded_contraction(const char *text, size_t size, size_t at)
{
    size_t first, second;
    char a = folded(text, size, at + 1, &first);
    char b = folded(text, size, at + 1 + first, &second);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 1 + first;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') ||
                   (a == 'l' && b == 'l')
               ? 1 + first + second
               : 0;
}

static bool is_break(const char *text, size_t size, size_t at)
{
    return at < size && (text[at] == '\r' || text[at] == '\n');
}

/* \s*[\r\n]+|\s+(?!\S)|\s+: up to the last line break of the run, if any. */
static size_t line_end(const char *text, size_t size, size_t at)
{
    size_t length, end = 0;
    for (size_t i = at; kind_at(text, size, i, &length) == SPACE; i += length)
        if (is_break(text, size, i))
            end = i + 1;
    return end ? end : space_end(text, size, at);
}

/* [^\s\p{L}\p{N}]+[\r\n]* from such a character on. */
static size_t other_end(const char *text, size_t size, size_t at)
{
    at = run_end(text, size, at, OTHER);
    while (is_break(text, size, at))
        at++;
    return at;
}

static inline size_t llama3_end(const char *text, size_t size, size_t at,
                                unsigned digits)
{
    size_t length, next;
    if (text[at] == '\'' && (length = folded_contraction(text, size, at)))
        return at + length;
    int kind = kind_at(text, size, at, &length);
    if (kind == LETTER)
        return run_end(text, size, at + length, LETTER);
    if (kind == NUMBER) {
        for (unsigned i = 0; i < digits; i++, at += length)
            if (kind_at(text, size, at, &length) != NUMBER)
                break;
        return at;
    }
    int following = kind_at(text, size, at + length, &next);
    if (following == LETTER && !is_break(text, size, at))
        return run_end(text, size, at + length + next, LETTER);
    if (kind == OTHER)
        return other_end(text, size, at);
    if (text[at] == ' ' && following == OTHER)
        return other_end(text, size, at + 1);
    return line_end(text, size, at);
}

/* ---- Splits -------------------------------------------------------------- */

static inline bauta_status divide(bt_splits *out, const bt_split *split,
                                  const char *text, unsigned digits,
                                  bauta_error *err)
{
    size_t size = split->hi, at = split->lo;
    bool first = split->first;
    while (at < size) {
        size_t end = digits ? llama3_end(text, size, at, digits)
                            : gpt2_end(text, size, at);
        if (BT_ARRAY_RESERVE(out->list, out->capacity, out->count, 1))
            return bt_fail_memory(err, "the parts of a text",
                                  out->count * sizeof(*out->list));
        out->list[out->count++] =
            (bt_split){ (uint32_t)at, (uint32_t)end, BT_NO_TOKEN, first };
        first = false;
        at = end;
    }
    return BAUTA_OK;
}

bauta_status bt_gpt2_split(bt_splits *out, const bt_split *split,
                           const char *text, bauta_error *err)
{
    return divide(out, split, text, 0, err);
}

bauta_status bt_llama3_split(bt_splits *out, const bt_split *split,
                             const char *text, unsigned digits,
                             bauta_error *err)
{
    return divide(out, split, text, digits, err);
}
