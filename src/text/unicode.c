/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - UTF-8, and the kinds of characters; see unicode.h.
 *
 * Categories are utf8proc's, which are those of a recent Unicode. ASCII, which
 * most text is, is decided without a look at its tables. */
#include "text/unicode.h"

#include <string.h>
#include <utf8proc.h>

/* ---- UTF-8 --------------------------------------------------------------- */

/* The least and greatest second byte that may follow a first one: this is
 * where overlong forms, surrogates and what is beyond U+10FFFF are told. */
static bool second_fits(unsigned char first, unsigned char second)
{
    unsigned char least = 0x80, most = 0xBF;
    switch (first) {
    case 0xE0:
        least = 0xA0;
        break;
    case 0xED:
        most = 0x9F;
        break;
    case 0xF0:
        least = 0x90;
        break;
    case 0xF4:
        most = 0x8F;
        break;
    default:
        break;
    }
    return second >= least && second <= most;
}

/* How many of the bytes from `at` on are right as the beginning of one
 * character, of *length bytes when it is whole. 0: the first is not one that
 * begins a character. */
static size_t right_bytes(const unsigned char *at, size_t size, size_t *length)
{
    if (at[0] < 0xC2 || at[0] > 0xF4) {
        *length = 1;
        return at[0] < 0x80;
    }
    *length = bt_utf8_length(at[0]);
    size_t n = size < *length ? size : *length;
    if (n < 2 || !second_fits(at[0], at[1]))
        return 1;
    for (size_t i = 2; i < n; i++)
        if ((at[i] & 0xC0) != 0x80)
            return i;
    return n;
}

uint32_t bt_utf8_get(const char *text, size_t size, size_t *length)
{
    static const unsigned char first_bits[] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *length = 1;
        return at[0];
    }
    if (right_bytes(at, size, length) < *length) {
        *length = 1;
        return BT_REPLACEMENT;
    }
    uint32_t code = at[0] & first_bits[*length];
    for (size_t i = 1; i < *length; i++)
        code = code << 6 | (at[i] & 0x3F);
    return code;
}

size_t bt_utf8_put(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00u >> length & 0xFF) | code);
    return length;
}

size_t bt_utf8_ascii(const char *text, size_t size)
{
    size_t i = 0;
    for (uint64_t word; i + 8 <= size; i += 8) {
        memcpy(&word, text + i, 8);
        if (word & 0x8080808080808080u)
            break;
    }
    while (i < size && !(text[i] & 0x80))
        i++;
    return i;
}

size_t bt_utf8_valid(const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t i = 0, length;
    while (i < size) {
        if (at[i] < 0x80)
            i += bt_utf8_ascii(text + i, size - i);
        else if (right_bytes(at + i, size - i, &length) == length)
            i += length;
        else
            break;
    }
    return i;
}

size_t bt_utf8_unfinished(const char *text, size_t size)
{
    size_t length;
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        const unsigned char *at = (const unsigned char *)text + size - back;
        if ((*at & 0xC0) == 0x80)
            continue;
        return right_bytes(at, back, &length) == back && back < length ? back
                                                                       : 0;
    }
    return 0;
}

/* ---- Kinds --------------------------------------------------------------- */

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool bt_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r');
    return code == 0x85 || code == 0xA0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

/* What the C locale's ispunct() says. */
static bool ascii_punctuation(uint32_t code)
{
    return code > ' ' && code < 0x7F && !(code >= '0' && code <= '9') &&
           !((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
}

bool bt_is_bert_punctuation(uint32_t code)
{
    return code < 0x80 ? ascii_punctuation(code) : bt_is_punctuation(code);
}

bool bt_is_punctuation(uint32_t code)
{
    if (code < 0x80)
        return ascii_punctuation(code) && !strchr("$+<=>^`|~", (int)code);
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool bt_is_other(uint32_t code)
{
    if (code < 0x80)
        return code < ' ' || code == 0x7F;
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_CC;
}

bool bt_is_mark(uint32_t code)
{
    return code >= 0x300 && category(code) == UTF8PROC_CATEGORY_MN;
}

bool bt_is_any_mark(uint32_t code)
{
    utf8proc_category_t c =
        code < 0x300 ? UTF8PROC_CATEGORY_CN : category(code);
    return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool bt_is_number(uint32_t code)
{
    if (code < 0x80)
        return code >= '0' && code <= '9';
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool bt_is_letter(uint32_t code)
{
    if (code < 0x80)
        return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool bt_is_word(uint32_t code)
{
    if (code < 0x80)
        return bt_is_letter(code) || bt_is_number(code) || code == '_';
    switch (category(code)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    case UTF8PROC_CATEGORY_SO: // letters in circles and squares
        return (code >= 0x24B6 && code <= 0x24E9) ||
               (code >= 0x1F130 && code <= 0x1F149) ||
               (code >= 0x1F150 && code <= 0x1F169) ||
               (code >= 0x1F170 && code <= 0x1F189);
    default:
        return bt_is_letter(code) || bt_is_any_mark(code) || code == 0x200C ||
               code == 0x200D;
    }
}

bool bt_is_ideograph(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        { 0x3400, 0x4DBF },   { 0x4E00, 0x9FFF },   { 0xF900, 0xFAFF },
        { 0x20000, 0x2A6DF }, { 0x2A700, 0x2B73F }, { 0x2B740, 0x2B81F },
        { 0x2B920, 0x2CEAF }, { 0x2F800, 0x2FA1F },
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (code <= ranges[i][1])
            return code >= ranges[i][0];
    return false;
}

size_t bt_lower(uint32_t out[3], uint32_t code)
{
    if (code < 0x80)
        out[0] = code >= 'A' && code <= 'Z' ? code + 0x20 : code;
    else
        out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    if (code != 0x130)
        return 1;
    out[0] = 'i'; // the one that becomes two characters: the dot stays
    out[1] = 0x307;
    return 2;
}
