/* SPDX-License-Identifier: Apache-2.0 */
/* added.h - tokens that are found in the text itself, before anything else:
 * "<|endoftext|>", "[MASK]" and what users added.
 *
 * They are found in two passes, as Hugging Face's library does: those that are
 * not to be normalised in the text as it came, the others in the normalised
 * text (where they stand as they look normalised). In each pass the leftmost
 * match wins, and of several there the longest. Time is linear in the text. */
#ifndef BT_ADDED_H
#define BT_ADDED_H

#include "text/normalizer.h"
#include "text/split.h"

typedef struct bt_added_token {
    const char *content; /* copied */
    size_t size;
    uint32_t id;
    bool special;        /* not looked for by "literal" encoding */
    bool single_word;    /* only where no word character touches it */
    bool lstrip, rstrip; /* takes the white space on that side along */
    bool normalized;
} bt_added_token;

typedef struct bt_added bt_added;

/* `normalizer` (may be NULL) is what normalized tokens pass through. An empty
 * content is ignored. */
bauta_status bt_added_create(bt_added **out, const bt_added_token *tokens,
                             size_t count, const bt_normalizer *normalizer,
                             const char *path, bauta_error *err);
void bt_added_free(bt_added *added);

/* Whether there are tokens that are found in text of this kind. */
bool bt_added_some(const bt_added *added, bool normalized);
/* Whether there are none. */
bool bt_added_empty(const bt_added *added);
/* Whether what is found on one side of white space, first of a run, does not
 * depend on the other side; see boundary.h. */
bool bt_added_local(const bt_added *added);

/* Find tokens in bytes [lo, hi) of a well-formed text: appends splits that
 * cover the range, tokens and what lies between them. With `literal` special
 * tokens are text (but nothing else is found inside them). NULL finds none. */
bauta_status bt_added_split(const bt_added *added, bool normalized,
                            bool literal, const char *text, size_t lo,
                            size_t hi, bt_splits *out, bauta_error *err);

#endif
