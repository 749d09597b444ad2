/* SPDX-License-Identifier: Apache-2.0 */
/* added_tokens.h - tokens that are found in the text before anything else:
 * "<|endoftext|>", "[MASK]" and those that users added.
 *
 * As in Hugging Face's library there are two passes: tokens that are not
 * normalized are searched in the original text, the others, in their normalized
 * form, in the normalized text. In each pass the leftmost match wins, and of
 * several at one position the longest. Time is linear in the text. */
#ifndef BT_ADDED_TOKENS_H
#define BT_ADDED_TOKENS_H

#include "text/normalize/normalizer.h"
#include "text/pretokenize/split.h"

typedef struct bt_added_token {
    const char *content; /* copied */
    size_t size;
    uint32_t id;
    bool special;        /* not searched by "literal" encoding */
    bool single_word;    /* only between characters that are not \w */
    bool lstrip, rstrip; /* includes the white space on that side */
    bool normalized;
} bt_added_token;

typedef struct bt_added_tokens bt_added_tokens;

/* `normalizer` (may be NULL) is applied to tokens that are `normalized`. Tokens
 * with empty content are ignored. */
bauta_status bt_added_tokens_create(bt_added_tokens **out,
                                    const bt_added_token *tokens, size_t count,
                                    const bt_normalizer *normalizer,
                                    const char *path, bauta_error *err);
void bt_added_tokens_free(bt_added_tokens *added);

/* Whether any token is searched in normalized, or in original, text. */
bool bt_added_tokens_any(const bt_added_tokens *added, bool normalized);
/* Whether there are no tokens at all. */
bool bt_added_tokens_empty(const bt_added_tokens *added);
/* Whether the matches on one side of the start of a run of white space never
 * depend on the other side; see chunk_boundary.h. */
bool bt_added_tokens_local(const bt_added_tokens *added);

/* Find tokens in bytes [lo, hi) of a well-formed text. Appends splits that
 * cover the range: the tokens and the text between them. With `literal`,
 * special tokens are text (but no other token is found inside them). */
bauta_status bt_added_tokens_split(const bt_added_tokens *added,
                                   bool normalized, bool literal,
                                   const char *text, size_t lo, size_t hi,
                                   bt_splits *out, bauta_error *err);

#endif
