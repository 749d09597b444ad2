/* SPDX-License-Identifier: Apache-2.0 */
/* stop_matcher.h - the growing text of new tokens, cut at stop strings.
 *
 * Text is stable once it cannot be part of a stop string any more. A suffix
 * that may be the beginning of one is held back until the next tokens decide.
 */
#ifndef BT_STOP_MATCHER_H
#define BT_STOP_MATCHER_H

#include "bauta.h"

typedef struct bt_stop_strings {
    const char *const *texts; /* none is empty */
    size_t count;
} bt_stop_strings;

/* The offset of the first stop string in a text, searched from `from` on;
 * SIZE_MAX: none. */
size_t bt_stop_strings_find(const bt_stop_strings *stops, const char *text,
                            size_t length, size_t from);
/* The length of the longest suffix that may be the beginning of a stop string.
 */
size_t bt_stop_strings_partial(const bt_stop_strings *stops, const char *text,
                               size_t length);

typedef struct bt_stop_matcher {
    const bauta_tokenizer *tokenizer;
    bauta_detokenizer *detokenizer;
    bt_stop_strings stops;
    char *text; /* NUL-terminated where there is any */
    size_t length, capacity;
    size_t stable;       /* bytes that no later token can change */
    size_t reported;     /* of these, bytes reported to the caller */
    bool stopped;        /* the text was cut at a stop string */
    const char *pending; /* from the detokenizer, not yet appended to `text` */
    size_t pending_length;
} bt_stop_matcher;

bauta_status bt_stop_matcher_init(bt_stop_matcher *matcher,
                                  const bauta_tokenizer *tokenizer,
                                  const bt_stop_strings *stops,
                                  bauta_error *err);
void bt_stop_matcher_release(bt_stop_matcher *matcher);
/* Before the first push: let the text continue these tokens, so that a space
 * between them and the text is kept. Release it after a failure. */
bauta_status bt_stop_matcher_prime(bt_stop_matcher *matcher,
                                   const bauta_tokenizer *tokenizer,
                                   const uint32_t *before, size_t count,
                                   bauta_error *err);

/* Append a token. A token that the tokenizer does not have adds nothing, since
 * a model's vocabulary may be larger. After a failure the call can be repeated.
 */
bauta_status bt_stop_matcher_push(bt_stop_matcher *matcher, uint32_t token,
                                  bauta_error *err);
/* No more tokens follow: the rest of the text becomes stable. */
bauta_status bt_stop_matcher_finish(bt_stop_matcher *matcher, bauta_error *err);

#endif
