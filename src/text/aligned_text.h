/* SPDX-License-Identifier: Apache-2.0 */
/* aligned_text.h - well-formed UTF-8 with the origin of each byte, as
 * NormalizedString of Hugging Face's library.
 *
 * Normalizers read one text and append to another; the origins become the
 * offsets of the tokens. Most texts are not changed, so a text that is still
 * the original bytes stores no origins. Texts are smaller than 4 GiB. */
#ifndef BT_ALIGNED_TEXT_H
#define BT_ALIGNED_TEXT_H

#include "bauta.h"

/* The original bytes [from, to) that a byte came from; empty for an inserted
 * byte. */
typedef struct bt_origin {
    uint32_t from, to;
} bt_origin;

typedef struct bt_aligned_text {
    const char *bytes; /* well formed; the own copy, or the caller's */
    size_t size;
    char *owned;        /* NULL while the bytes are the caller's */
    size_t capacity;    /* of the copy and of origins */
    bt_origin *origins; /* (size); NULL: byte i is byte i + shift of the
                           original */
    uint32_t base_offset;
} bt_aligned_text;

/* A text over the caller's bytes, which begin `shift` bytes into the original.
 * If they are not well formed, it is a copy in which each malformed byte is
 * replaced by U+FFFD with that byte as its origin. */
bauta_status bt_aligned_text_init(bt_aligned_text *text, const char *bytes,
                                  size_t size, size_t shift, bauta_error *err);
/* An empty text to append to. */
void bt_aligned_text_init_empty(bt_aligned_text *text);
void bt_aligned_text_release(bt_aligned_text *text);
/* Release the contents of `text` and move those of `other` there. */
void bt_aligned_text_replace(bt_aligned_text *text, bt_aligned_text *other);

/* Reserve memory for `more` bytes. */
bauta_status bt_aligned_text_reserve(bt_aligned_text *text, size_t more,
                                     bauta_error *err);

/* Append `size` bytes that all have the same origin. */
bauta_status bt_aligned_text_append(bt_aligned_text *text, const char *bytes,
                                    size_t size, bt_origin origin,
                                    bauta_error *err);
/* The same for one character. */
bauta_status bt_aligned_text_append_char(bt_aligned_text *text, uint32_t code,
                                         bt_origin origin, bauta_error *err);
/* Append bytes [lo, hi) of another text with their origins. */
bauta_status bt_aligned_text_append_range(bt_aligned_text *text,
                                          const bt_aligned_text *from,
                                          size_t lo, size_t hi,
                                          bauta_error *err);

/* The origin of bytes [lo, hi): from the start of the first one's to the end of
 * the last one's. An empty range at that position if lo == hi. */
bt_origin bt_aligned_text_origin(const bt_aligned_text *text, size_t lo,
                                 size_t hi);
/* The origin of the character that ends at `end`; [0, 0) when none does. */
bt_origin bt_aligned_text_origin_before(const bt_aligned_text *text,
                                        size_t end);
/* Whether the character at `at` is a U+FFFD that replaces one malformed
 * byte. */
bool bt_aligned_text_is_repaired(const bt_aligned_text *text, size_t at);

#endif
