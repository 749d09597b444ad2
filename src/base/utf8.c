/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c - decoding, encoding and validating UTF-8; see utf8.h. */
#include "base/utf8.h"

#include <string.h>

/* Whether a second byte may follow a first one. The narrower ranges exclude
 * overlong forms, surrogates and code points beyond U+10FFFF. */
static bool second_byte_valid(unsigned char first, unsigned char second)
{
    unsigned char low = 0x80, high = 0xBF;
    switch (first) {
    case 0xE0:
        low = 0xA0;
        break;
    case 0xED:
        high = 0x9F;
        break;
    case 0xF0:
        low = 0x90;
        break;
    case 0xF4:
        high = 0x8F;
        break;
    default:
        break;
    }
    return second >= low && second <= high;
}

/* How many of the bytes at `at` are a valid beginning of one character, whose
 * whole length goes to *length. 0: the first byte cannot begin a character. */
static size_t valid_bytes(const unsigned char *at, size_t size, size_t *length)
{
    if (at[0] < 0xC2 || at[0] > 0xF4) {
        *length = 1;
        return at[0] < 0x80;
    }
    *length = bt_utf8_length(at[0]);
    size_t n = size < *length ? size : *length;
    if (n < 2 || !second_byte_valid(at[0], at[1]))
        return 1;
    for (size_t i = 2; i < n; i++)
        if (!bt_utf8_continues((char)at[i]))
            return i;
    return n;
}

uint32_t bt_utf8_decode(const char *text, size_t size, size_t *length)
{
    static const unsigned char first_bits[] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *length = 1;
        return at[0];
    }
    if (valid_bytes(at, size, length) < *length) {
        *length = 1;
        return BT_UTF8_REPLACEMENT;
    }
    uint32_t code = at[0] & first_bits[*length];
    for (size_t i = 1; i < *length; i++)
        code = code << 6 | (at[i] & 0x3F);
    return code;
}

size_t bt_utf8_encode(char out[4], uint32_t code)
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

size_t bt_utf8_ascii_prefix(const char *text, size_t size)
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

size_t bt_utf8_valid_prefix(const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t i = 0, length;
    while (i < size) {
        if (at[i] < 0x80)
            i += bt_utf8_ascii_prefix(text + i, size - i);
        else if (valid_bytes(at + i, size - i, &length) == length)
            i += length;
        else
            break;
    }
    return i;
}

size_t bt_utf8_incomplete_suffix(const char *text, size_t size)
{
    size_t length;
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        const unsigned char *at = (const unsigned char *)text + size - back;
        if (bt_utf8_continues((char)*at))
            continue;
        return valid_bytes(at, back, &length) == back && back < length ? back
                                                                       : 0;
    }
    return 0;
}
