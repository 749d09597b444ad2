/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer.h - from pieces back to text: the "decoder" of a tokenizer.json.
 *
 * A decoder is a chain of filters. Each takes pieces one after another and
 * hands text on as soon as nothing that may follow can change it, so that the
 * same code decodes a whole text and streams one: the concatenation of what a
 * stream gives is what decoding at once gives. */
#ifndef BT_DETOKENIZER_H
#define BT_DETOKENIZER_H

#include "bauta.h"

#include <jansson.h>

typedef struct bt_decoding bt_decoding; /* what to do; immutable */

/* From the value of "decoder"; for null pieces are joined by a space, as
 * Hugging Face's library does. */
bauta_status bt_decoding_parse(bt_decoding **out, const json_t *json,
                               const char *path, bauta_error *err);
/* SentencePiece's own: U+2581 becomes a space, byte pieces become characters,
 * and the first space goes where normalisation put one (`dummy_prefix`); with
 * `remove_extra` all leading spaces go. */
bauta_status bt_decoding_sentencepiece(bt_decoding **out, bool dummy_prefix,
                                       bool remove_extra, bauta_error *err);
void bt_decoding_free(bt_decoding *decoding);

typedef struct bt_stream bt_stream; /* one text being decoded */

bauta_status bt_stream_create(bt_stream **out, const bt_decoding *decoding,
                              bauta_error *err);
void bt_stream_free(bt_stream *stream);

/* The next piece, as the vocabulary writes it. What has become certain is
 * appended to the stream's text. After a failure only bt_stream_reset() and
 * bt_stream_free() are left. */
bauta_status bt_stream_push(bt_stream *stream, const char *piece, size_t size,
                            bauta_error *err);
/* There are no more pieces: what was held back is appended. */
bauta_status bt_stream_finish(bt_stream *stream, bauta_error *err);

/* What has been decoded since the last call of this, with a NUL behind it; it
 * lives until the next call with this stream. */
const char *bt_stream_take(bt_stream *stream, size_t *size);
/* As new, for another text. */
void bt_stream_reset(bt_stream *stream);

#endif
