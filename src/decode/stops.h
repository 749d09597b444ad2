/* SPDX-License-Identifier: Apache-2.0 */
/* stops.h - the text of new tokens as it grows, and where it must stop.
 *
 * Text is certain once no stop can begin in it any more. What may be the
 * beginning of one waits until the next tokens decide. */
#ifndef BT_STOPS_H
#define BT_STOPS_H

#include "bauta.h"

typedef struct bt_stops {
    const char *const *texts; /* none is empty */
    size_t count;
} bt_stops;

/* Where the first stop begins in a text, looked for from `from` on; SIZE_MAX:
 * nowhere. */
size_t bt_stops_find(const bt_stops *stops, const char *text, size_t length,
                     size_t from);
/* How much of a text's end may be the beginning of a stop. */
size_t bt_stops_hold(const bt_stops *stops, const char *text, size_t length);

typedef struct bt_speech {
    const bauta_tokenizer *tokenizer;
    bauta_decoder *decoder;
    bt_stops stops;
    char *text; /* NUL-terminated where there is any */
    size_t length, room;
    size_t certain;    /* bytes of it that stay, whatever comes */
    size_t told;       /* of which so many were given to the caller */
    bool stopped;      /* the text was cut before a stop */
    const char *piece; /* came out of the decoder and is not in `text` yet */
    size_t piece_length;
} bt_speech;

bauta_status bt_speech_init(bt_speech *speech, const bauta_tokenizer *tokenizer,
                            const bt_stops *stops, bauta_error *err);
void bt_speech_release(bt_speech *speech);
/* Let the text follow these tokens, before the first push: a space that stands
 * between them and it is then its own. Release after a failure. */
bauta_status bt_speech_follow(bt_speech *speech,
                              const bauta_tokenizer *tokenizer,
                              const uint32_t *before, size_t count,
                              bauta_error *err);

/* A token more. One that the tokenizer has no piece for adds nothing: models
 * may have larger vocabularies than their tokenizers. After a failure the same
 * call tries again. */
bauta_status bt_speech_push(bt_speech *speech, uint32_t token,
                            bauta_error *err);
/* No more of them: all that is left of the text becomes certain. */
bauta_status bt_speech_finish(bt_speech *speech, bauta_error *err);

#endif
