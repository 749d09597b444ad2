/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h - general categories and properties of characters.
 *
 * Categories are those of utf8proc (Unicode 15 with utf8proc 2.8), except for
 * marks, punctuation and control characters that Hugging Face's library does
 * not know yet; see unicode.c. */
#ifndef BT_UNICODE_H
#define BT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Unicode's property White_Space. */
bool bt_is_space(uint32_t code);
/* General category P*, or one of the ASCII characters that BERT counts as
 * punctuation ($+<=>^`|~). */
bool bt_is_bert_punctuation(uint32_t code);
/* General category P* alone. */
bool bt_is_punctuation(uint32_t code);
/* General categories Cc, Cf and Co: control, format, private use. */
bool bt_is_control(uint32_t code);
/* General category Mn: an accent after decomposition. */
bool bt_is_nonspacing_mark(uint32_t code);
/* General category M*. */
bool bt_is_combining_mark(uint32_t code);
/* General category L*. */
bool bt_is_letter(uint32_t code);
/* General category N*. */
bool bt_is_number(uint32_t code);
/* \w of regular expressions: letters, marks, decimal digits, connector
 * punctuation, other alphabetic characters, and the joiners. */
bool bt_is_word_character(uint32_t code);
/* The CJK ideographs that BERT puts spaces around. */
bool bt_is_cjk_ideograph(uint32_t code);
/* The full lower-case mapping: one to three characters. */
size_t bt_unicode_lower(uint32_t out[3], uint32_t code);

#endif
