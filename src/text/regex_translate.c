/* SPDX-License-Identifier: Apache-2.0 */
/* regex_translate.c - see regex_translate.h.
 *
 * Most of a pattern is copied. The two engines differ in:
 *
 *     \s \S \w \W \d \D \b \B     PCRE2's \s has U+180E, its \w has no marks
 *     \h \H \v                    hexadecimal digits, U+000B
 *     \uHHHH, {,n}                not known to PCRE2
 *     (?m)                        PCRE2's (?s); ^ and $ always match at lines
 *     \p{Letter}, \p{Han}         long names; a script without its extensions
 *     [[:alpha:]]                 defined by Unicode
 *     unknown escapes             the character itself
 *
 * In Oniguruma a \w outside a class also matches the six superscripts and
 * fractions of Latin-1; inside a class it does not. */
#include "text/regex_translate.h"

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

#define SPACE_SET                                            \
    "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}" \
    "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define WORD_SET "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_OUTSIDE WORD_SET "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

typedef struct translator {
    const char *in;
    size_t size, at;
    char *out;
    size_t count, room;
    const char *path;
    bauta_error *err;
} translator;

bt_quoted bt_regex_quote(const char *pattern, size_t size)
{
    char copy[sizeof(bt_quoted) + 1] = "";
    memcpy(copy, pattern, size < sizeof(bt_quoted) ? size : sizeof(bt_quoted));
    return bt_quote(copy);
}

static bauta_status refuse(const translator *t, const char *why)
{
    return bt_fail(t->err, BAUTA_ERR_FORMAT,
                   "%s: the pattern \"%s\" %s (at byte %zu), which is not "
                   "supported",
                   bt_path_tail(t->path), bt_regex_quote(t->in, t->size).text,
                   why, t->at);
}

static bauta_status put(translator *t, const char *bytes, size_t size)
{
    if (BT_ARRAY_RESERVE(t->out, t->room, t->count, size + 1))
        return bt_fail_memory(t->err, "a pattern", t->count + size + 1);
    memcpy(t->out + t->count, bytes, size);
    t->count += size;
    t->out[t->count] = '\0';
    return BAUTA_OK;
}

static bauta_status put_text(translator *t, const char *text)
{
    return put(t, text, strlen(text));
}

/* Copy the next `size` bytes. */
static bauta_status copy(translator *t, size_t size)
{
    t->at += size;
    return put(t, t->in + t->at - size, size);
}

/* The byte at a distance, or 0 past the end. */
static char peek(const translator *t, size_t distance)
{
    return distance < t->size - t->at ? t->in[t->at + distance] : '\0';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_hex(char c)
{
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* ---- Properties ---------------------------------------------------------- */

/* Names are compared without case, spaces, '-' and '_'. */
static bool name_is(const char *name, size_t size, const char *want)
{
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        if (c == ' ' || c == '-' || c == '_')
            continue;
        if ((is_letter(c) ? c | 0x20 : c) != *want++)
            return false;
    }
    return *want == '\0';
}

static const struct {
    const char *name, *set;
} properties[] = {
    { "letter", "L" },
    { "mark", "M" },
    { "number", "N" },
    { "punctuation", "P" },
    { "symbol", "S" },
    { "separator", "Z" },
    { "other", "C" },
    { "uppercaseletter", "Lu" },
    { "lowercaseletter", "Ll" },
    { "titlecaseletter", "Lt" },
    { "modifierletter", "Lm" },
    { "otherletter", "Lo" },
    { "nonspacingmark", "Mn" },
    { "decimalnumber", "Nd" },
    { "digit", "Nd" },
    { "alpha", "Alphabetic" },
    { "space", "White_Space" },
    { "upper", "Uppercase" },
    { "lower", "Lowercase" },
    { "alphabetic", "Alphabetic" },
    { "emoji", "Emoji" },
    { "whitespace", "White_Space" },
    { "uppercase", "Uppercase" },
    { "lowercase", "Lowercase" },
    { "any", "Any" },
};

/* One or two letters are a category. Names that are not in the list are
 * scripts, or else PCRE2 refuses them. */
static bauta_status put_property(translator *t, const char *name, size_t size)
{
    for (size_t i = 0; i < BT_LEN(properties); i++)
        if (name_is(name, size, properties[i].name))
            return put_text(t, properties[i].set);
    bauta_status status = size > 2 ? put_text(t, "sc:") : BAUTA_OK;
    return status ? status : put(t, name, size);
}

/* \p{name}, \p{^name} or \P{name}. */
static bauta_status property(translator *t)
{
    size_t lo = t->at + 3;
    const char *end =
        peek(t, 2) == '{' ? memchr(t->in + lo, '}', t->size - lo) : NULL;
    if (!end) // without braces it is the letter p
        return (t->at++, copy(t, 1));
    bool negated = peek(t, 1) == 'P';
    if (peek(t, 3) == '^') {
        negated = !negated;
        lo++;
    }
    size_t size = (size_t)(end - t->in) - lo;
    bauta_status status = put_text(t, negated ? "\\P{" : "\\p{");
    if (!status)
        status = put_property(t, t->in + lo, size);
    t->at = lo + size + 1;
    return status ? status : put_text(t, "}");
}

/* ---- Escapes ------------------------------------------------------------- */

/* \uHHHH, \xHH or \x{H...}. */
static bauta_status code_escape(translator *t)
{
    bool braces = peek(t, 2) == '{', u = peek(t, 1) == 'u';
    size_t lo = 2 + braces, most = u ? 4 : braces ? 8 : 2, n = 0;
    while (n < most && is_hex(peek(t, lo + n)))
        n++;
    if ((u && (n != 4 || braces)) || n == 0 ||
        (braces && peek(t, lo + n) != '}'))
        return refuse(t, "has a malformed code");
    if (!u && !braces && n == 2 && peek(t, 2) >= '8')
        return refuse(t, "names a single byte");
    bauta_status status = put_text(t, "\\x{");
    if (!status)
        status = put(t, t->in + t->at + lo, n);
    t->at += lo + n + braces;
    return status ? status : put_text(t, "}");
}

/* An escape that means the same inside a class and outside. */
static bauta_status plain_escape(translator *t)
{
    char c = peek(t, 1);
    switch (c) {
    case '\0':
        return t->size - t->at > 1 ? refuse(t, "holds a NUL")
                                   : refuse(t, "ends with a backslash");
    case 'p':
    case 'P':
        return property(t);
    case 'u':
    case 'x':
        return code_escape(t);
    case 'd':
    case 'D':
        t->at += 2;
        return put_text(t, c == 'd' ? "\\p{Nd}" : "\\P{Nd}");
    case 'v':
        t->at += 2;
        return put_text(t, "\\x0B");
    case 'C':
    case 'M':
    case 'c':
    case 'o':
        return refuse(t, "has an escape");
    default:
        break;
    }
    if (strchr("nrtfae", c) || is_digit(c) || !(is_letter(c) || c & 0x80))
        return copy(t, 2);
    t->at++; // drop the backslash
    return copy(t, bt_utf8_length((unsigned char)c));
}

static bauta_status escape(translator *t)
{
    static const struct {
        char letter;
        const char *text;
    } table[] = {
        { 's', "[" SPACE_SET "]" },
        { 'S', "[^" SPACE_SET "]" },
        { 'w', "[" WORD_OUTSIDE "]" },
        { 'W', "[^" WORD_OUTSIDE "]" },
        { 'h', "[0-9A-Fa-f]" },
        { 'H', "[^0-9A-Fa-f]" },
        { 'O', "(?s:.)" },
        { 'b', "(?:(?<=[" WORD_OUTSIDE "])(?![" WORD_OUTSIDE
               "])|(?<![" WORD_OUTSIDE "])(?=[" WORD_OUTSIDE "]))" },
        { 'B', "(?:(?<=[" WORD_OUTSIDE "])(?=[" WORD_OUTSIDE
               "])|(?<![" WORD_OUTSIDE "])(?![" WORD_OUTSIDE "]))" },
    };
    char c = peek(t, 1);
    for (size_t i = 0; i < BT_LEN(table); i++)
        if (c == table[i].letter) {
            t->at += 2;
            return put_text(t, table[i].text);
        }
    if (c == 'y' || c == 'Y' || c == 'g' || c == 'X')
        return refuse(t, "has an escape");
    if (c && strchr("AzZGKRNk", c))
        return copy(t, 2);
    return plain_escape(t);
}

/* ---- Classes ------------------------------------------------------------- */

/* A class cannot contain the complement of several properties, so "\W" is noted
 * in *not_word and added by class_put(). */
static bauta_status class_escape(translator *t, bool *not_word)
{
    static const struct {
        char letter;
        const char *text;
    } table[] = {
        { 's', SPACE_SET },   { 'S', "\\P{White_Space}" },
        { 'w', WORD_SET },    { 'W', "" },
        { 'h', "0-9A-Fa-f" }, { 'H', "\\x{0}-/:-@G-`g-\\x{10FFFF}" },
        { 'b', "\\x08" },
    };
    char c = peek(t, 1);
    for (size_t i = 0; i < BT_LEN(table); i++)
        if (c == table[i].letter) {
            *not_word |= c == 'W';
            t->at += 2;
            return put_text(t, table[i].text);
        }
    return plain_escape(t);
}

/* [:name:] inside a class. */
static bauta_status posix_class(translator *t)
{
    static const struct {
        const char *name, *text;
    } table[] = {
        { "[:alpha:]", "\\p{Alphabetic}" },
        { "[:digit:]", "\\p{Nd}" },
        { "[:alnum:]", "\\p{Alphabetic}\\p{Nd}" },
        { "[:space:]", SPACE_SET },
        { "[:word:]", WORD_SET },
        { "[:punct:]", "\\p{P}\\p{S}" },
        { "[:upper:]", "\\p{Uppercase}" },
        { "[:lower:]", "\\p{Lowercase}" },
        { "[:cntrl:]", "\\p{Cc}" },
        { "[:blank:]", "\\p{Zs}\\t" },
        { "[:xdigit:]", "0-9A-Fa-f" },
    };
    for (size_t i = 0; i < BT_LEN(table); i++) {
        size_t size = strlen(table[i].name);
        if (t->size - t->at >= size &&
            memcmp(t->in + t->at, table[i].name, size) == 0) {
            t->at += size;
            return put_text(t, table[i].text);
        }
    }
    return refuse(t, "has a class within a class");
}

/* The items between the brackets. */
static bauta_status class_items(translator *t, bool *not_word)
{
    bauta_status status = BAUTA_OK;
    bool first = true;
    while (!status && (first || peek(t, 0) != ']')) {
        if (t->at == t->size)
            return refuse(t, "has a class without an end");
        if (peek(t, 0) == '\\')
            status = class_escape(t, not_word);
        else if (peek(t, 0) == '[')
            status = posix_class(t);
        else if (peek(t, 0) == '&' && peek(t, 1) == '&')
            return refuse(t, "has an intersection of classes");
        else if (first && peek(t, 0) == ']')
            status = (t->at++, put_text(t, "\\]"));
        else
            status = copy(t, 1);
        first = false;
    }
    t->at++;
    return status;
}

/* With a "\W" among the items, [items \W] becomes (?:[items]|[^w]), and its
 * complement (?:(?![items])[w]). */
static bauta_status class_put(translator *t, bool negated, bool not_word,
                              const translator *items)
{
    static const char *const parts[4][3] = {
        { "[", "]", "" },
        { "[^", "]", "" },
        { "(?:[", "]|", "[^" WORD_SET "])" },
        { "(?:(?![", "])", "[" WORD_SET "])" },
    };
    static const char *const only_not_word[] = { "[^" WORD_SET "]",
                                                 "[" WORD_SET "]" };
    if (items->count == 0)
        return put_text(t, only_not_word[negated]);
    const char *const *part = parts[(not_word ? 2 : 0) + negated];
    bauta_status status = put_text(t, part[0]);
    if (!status)
        status = put(t, items->out, items->count);
    if (!status)
        status = put_text(t, part[1]);
    return status ? status : put_text(t, part[2]);
}

static bauta_status class(translator *t)
{
    bool not_word = false, negated = peek(t, 1) == '^';
    translator items = *t;
    items.out = NULL;
    items.count = items.room = 0;
    items.at += 1 + negated;
    bauta_status status = class_items(&items, &not_word);
    if (!status)
        status = class_put(t, negated, not_word, &items);
    t->at = items.at;
    bt_free(items.out);
    return status;
}

/* ---- Groups and repetitions ---------------------------------------------- */

/* (?imx-imx) and (?imx-imx:, where m is s of PCRE2. */
static bauta_status group_options(translator *t)
{
    size_t at = t->at;
    bauta_status status = copy(t, 2);
    for (char c; !status;) {
        c = peek(t, 0);
        if (c == ':' || c == ')')
            break;
        if (c != 'i' && c != 'm' && c != 'x' && c != '-')
            return refuse(t, "has an unknown option");
        t->at++;
        status = put_text(t, c == 'm'   ? "s"
                             : c == 'i' ? "i"
                             : c == 'x' ? "x"
                                        : "-");
    }
    // In the middle Oniguruma opens a group up to the next ')'.
    if (!status && peek(t, 0) == ')' && at != 0)
        return refuse(t, "sets an option in the middle");
    return status ? status : copy(t, 1);
}

static bauta_status group(translator *t)
{
    if (peek(t, 1) != '?')
        return copy(t, 1);
    switch (peek(t, 2)) {
    case ':':
    case '=':
    case '!':
    case '>':
        return copy(t, 3);
    case '<':
        return copy(t, peek(t, 3) == '=' || peek(t, 3) == '!' ? 4 : 3);
    case '#':
        while (t->at < t->size && t->in[t->at++] != ')')
            ;
        return BAUTA_OK;
    default:
        return group_options(t);
    }
}

/* {n}, {n,}, {,m} and {n,m}; anything else is literal. */
static bauta_status repetition(translator *t)
{
    size_t n = 1;
    bool comma = false, digits = false;
    for (char c; (c = peek(t, n)) && (is_digit(c) || (c == ',' && !comma));
         n++) {
        comma |= c == ',';
        digits |= is_digit(c);
    }
    if (peek(t, n) != '}' || !digits)
        return (t->at++, put_text(t, "\\{"));
    char next = peek(t, n + 1);
    if (next == '+' || (next == '?' && !comma))
        return refuse(t, "repeats a repetition");
    bauta_status status = put_text(t, peek(t, 1) == ',' ? "{0" : "{");
    t->at++;
    return status ? status : copy(t, n);
}

bauta_status bt_regex_translate(char **out, size_t *out_size,
                                const char *pattern, size_t size,
                                const char *path, bauta_error *err)
{
    translator t = { .in = pattern, .size = size, .path = path, .err = err };
    *out = NULL;
    bauta_status status = put_text(&t, "");
    while (!status && t.at < size) {
        switch (pattern[t.at]) {
        case '\\':
            status = escape(&t);
            break;
        case '[':
            status = class(&t);
            break;
        case '(':
            status = group(&t);
            break;
        case '{':
            status = repetition(&t);
            break;
        default:
            status = copy(&t, 1);
        }
    }
    if (status) {
        bt_free(t.out);
        return status;
    }
    *out = t.out;
    *out_size = t.count;
    return BAUTA_OK;
}
