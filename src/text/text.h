/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - a text on its way through the tokenizer: well-formed UTF-8 that
 * knows, byte for byte, where it came from.
 *
 * Normalizers rewrite it: they read one text and append to another. Most texts
 * pass unchanged, so a text that is still the original bytes stores no
 * origins. Texts are below 4 GiB. */
#ifndef BT_TEXT_H
#define BT_TEXT_H

#include "bauta.h"

/* The original bytes [from, to) that a byte stands for; empty for one that
 * was put in. */
typedef struct bt_origin {
    uint32_t from, to;
} bt_origin;

typedef struct bt_text {
    const char *bytes; /* well formed; `own`, or the caller's */
    size_t size;
    char *own;          /* NULL while the bytes are the caller's */
    size_t room;        /* of own and of origins */
    bt_origin *origins; /* (size); NULL: byte i came from [i, i + 1) + shift */
    uint32_t shift;
} bt_text;

/* A text over the caller's bytes, `shift` bytes into the original. Where they
 * are not well formed it is a copy with each wrong byte replaced by U+FFFD,
 * whose origin is that byte. Too long a text is refused. */
bauta_status bt_text_init(bt_text *text, const char *bytes, size_t size,
                          size_t shift, bauta_error *err);
/* An empty text to append to. */
void bt_text_init_empty(bt_text *text);
void bt_text_release(bt_text *text);
/* What `other` holds moves here; what was here is gone, and `other` is empty.
 */
void bt_text_become(bt_text *text, bt_text *other);

/* Room for `more` bytes, where it is known how many will come. */
bauta_status bt_text_reserve(bt_text *text, size_t more, bauta_error *err);

/* Append `size` bytes that all stand for `origin`. */
bauta_status bt_text_put(bt_text *text, const char *bytes, size_t size,
                         bt_origin origin, bauta_error *err);
/* The same of one character. */
bauta_status bt_text_put_char(bt_text *text, uint32_t code, bt_origin origin,
                              bauta_error *err);
/* Append bytes [lo, hi) of another text with their origins. */
bauta_status bt_text_copy(bt_text *text, const bt_text *from, size_t lo,
                          size_t hi, bauta_error *err);

/* The original bytes that [lo, hi) stand for: from the first one's to the
 * last one's. For lo == hi an empty range at the place. */
bt_origin bt_text_origin(const bt_text *text, size_t lo, size_t hi);
/* The origin of the character that ends at `end`; [0, 0) when none does. */
bt_origin bt_text_origin_before(const bt_text *text, size_t end);

#endif
