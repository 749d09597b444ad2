/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h - characters: UTF-8 in and out, and what kind of character it is.
 *
 * Text that comes from outside may be any bytes. A byte that is not part of a
 * well-formed character (as the Unicode standard defines it: shortest form, no
 * surrogates, nothing above U+10FFFF) stands for U+FFFD, by itself. Texts that
 * have passed bt_text_init() are well formed, and whoever works on them need
 * not ask.
 *
 * Categories are those of utf8proc's Unicode (15 with utf8proc 2.8). Hugging
 * Face's library has several versions in it: for punctuation, marks and control
 * characters Unicode 8, for the rest newer ones. So characters that came later
 * may be of another kind there; of those that Unicode 8 had, U+1734, U+1885,
 * U+1886, U+1CF2, U+1CF3, U+166D, U+A9BD and U+111C9 are. */
#ifndef BT_UNICODE_H
#define BT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BT_REPLACEMENT = 0xFFFD };

/* The character at `at`, of which there are `size` > 0 bytes; *length receives
 * how many bytes it has. One that is not well formed gives U+FFFD and a length
 * of 1. (U+FFFD that was written out has a length of 3.) */
uint32_t bt_utf8_get(const char *at, size_t size, size_t *length);

/* Write a character, a Unicode scalar value; returns its length, 1 to 4. */
size_t bt_utf8_put(char out[4], uint32_t code);

/* How long the character is that begins with this byte, in well-formed text. */
static inline size_t bt_utf8_length(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* How many bytes from the start are well formed: `size` when all are. */
size_t bt_utf8_valid(const char *text, size_t size);

/* How many bytes from the start are ASCII. */
size_t bt_utf8_ascii(const char *text, size_t size);

/* How many bytes at the end could be the beginning of a character whose rest
 * has yet to come: 0 to 3. */
size_t bt_utf8_unfinished(const char *text, size_t size);

/* Unicode's property White_Space. */
bool bt_is_space(uint32_t code);
/* General category P*, or one of the ASCII characters that BERT counts as
 * punctuation ($+<=>^`|~). */
bool bt_is_bert_punctuation(uint32_t code);
/* General category P* alone. */
bool bt_is_punctuation(uint32_t code);
/* General categories Cc, Cf and Co: control, format, private use. */
bool bt_is_other(uint32_t code);
/* General category Mn: what is left of an accent after decomposition. */
bool bt_is_mark(uint32_t code);
/* General category M*. */
bool bt_is_any_mark(uint32_t code);
/* General category L*. */
bool bt_is_letter(uint32_t code);
/* General category N*. */
bool bt_is_number(uint32_t code);
/* What regular expressions call a word character: letters, marks, decimal
 * digits, connecting punctuation, other alphabetic ones, and the joiners. */
bool bt_is_word(uint32_t code);
/* The ideographs that BERT puts spaces around. */
bool bt_is_ideograph(uint32_t code);
/* Lower case, as Unicode's full mapping has it: one to three characters. */
size_t bt_lower(uint32_t out[3], uint32_t code);

#endif
