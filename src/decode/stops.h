/* SPDX-License-Identifier: Apache-2.0 */
/* stop_matcher.h - the growing text of new tokens, cut at stop strings.
 *
 * Text is stable once it cannot be part of a stop string any more. A suffix
 * that may be the beginning of one is held back until the next tokens decide.
 */
#ifndef BT_STOP_MATCHER_H
#define BT_STOP_MATCHER_H

#include "bauta.h"

typedef struct bt_stops {
    const char *const *texts; /* none is empty */
    size_t count;
} bt_stops;

/* The offset of the first stop string in a text, searched from `from` on;
 * SIZE_MAX: none. */
size_t bt_stops_find(const bt_stops *stops, const char *text, size_t length,
                     size_t from);
/* The length of the longest suffix that may be the beginning of a stop string.
 */
size_t bt_stops_hold(const bt_stops *stops, const char *text, size_t length);

typedef struct bt_speech {
    const bauta_tokenizer *tokenizer;
    bauta_decoder *decoder;
    bt_stops stops;
    char *text; /* NUL-terminated where there is any */
    size_t length, room;
    size_t certain;    /* bytes that no later token can change */
    size_t told;       /* of these, bytes reported to the caller */
    bool stopped;      /* the text was cut at a stop string */
    const char *piece; /* from the detokenizer, not yet appended to `text` */
    size_t piece_length;
} bt_speech;

bauta_status bt_speech_init(bt_speech *matcher,
                            const bauta_tokenizer *tokenizer,
                            const bt_stops *stops, bauta_error *err);
void bt_speech_release(bt_speech *matcher);
/* Before the first push: let the text continue these tokens, so that a space
 * between them and the text is kept. Release it after a failure. */
bauta_status bt_speech_follow(bt_speech *matcher,
                              const bauta_tokenizer *tokenizer,
                              const uint32_t *before, size_t count,
                              bauta_error *err);

/* Append a token. A token that the tokenizer does not have adds nothing, since
 * a model's vocabulary may be larger. After a failure the call can be repeated.
 */
bauta_status bt_speech_push(bt_speech *matcher, uint32_t token,
                            bauta_error *err);
/* No more tokens follow: the rest of the text becomes stable. */
bauta_status bt_speech_finish(bt_speech *matcher, bauta_error *err);

#endif
