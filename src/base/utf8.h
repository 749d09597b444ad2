/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - decoding, encoding and validating UTF-8.
 *
 * Input may be any bytes. A byte that is not part of a well-formed character
 * (as the Unicode standard defines it: shortest form, no surrogates, nothing
 * above U+10FFFF) decodes to U+FFFD with a length of 1. */
#ifndef BT_UTF8_H
#define BT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_UTF8_REPLACEMENT = 0xFFFD };

/* Decode the character at `at`, where `size` > 0 bytes are left; *length
 * receives its length in bytes. A malformed byte gives U+FFFD and a length of
 * 1; a U+FFFD that is in the text has a length of 3. */
uint32_t bt_utf8_decode(const char *at, size_t size, size_t *length);

/* Encode a Unicode scalar value; returns its length, 1 to 4. */
size_t bt_utf8_encode(char out[4], uint32_t code);

/* The length of the character that begins with this byte, in well-formed
 * text. */
static inline size_t bt_utf8_length(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Whether this byte continues a character, in well-formed text. */
static inline bool bt_utf8_continues(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Where the character that ends at `end` > lo begins, in well-formed text. */
static inline size_t bt_utf8_char_start(const char *text, size_t lo, size_t end)
{
    size_t at = end - 1;
    while (at > lo && bt_utf8_continues(text[at]))
        at--;
    return at;
}

/* How many bytes from the start are well formed: `size` when all are. */
size_t bt_utf8_valid_prefix(const char *text, size_t size);

/* How many bytes from the start are ASCII. */
size_t bt_utf8_ascii_prefix(const char *text, size_t size);

/* How many bytes at the end are the beginning of a character that is not
 * complete: 0 to 3. */
size_t bt_utf8_incomplete_suffix(const char *text, size_t size);

#endif
