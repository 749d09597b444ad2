/* SPDX-License-Identifier: Apache-2.0 */
/* detokenizer.h - from pieces back to text: the "decoder" of a tokenizer.json.
 *
 * A detokenizer is a chain of steps. Each step passes text on as soon as no
 * later piece can change it, so the same code decodes a whole text and streams
 * one: the parts of a stream, concatenated, equal the text that is decoded at
 * once. */
#ifndef BT_DETOKENIZER_H
#define BT_DETOKENIZER_H

#include "bauta.h"

#include <jansson.h>

typedef struct bt_detokenizer_chain
    bt_detokenizer_chain; /* the steps; immutable */

/* Parse the value of "decoder"; null joins the pieces with spaces, as in
 * Hugging Face's library. */
bauta_status bt_detokenizer_chain_parse(bt_detokenizer_chain **out,
                                        const json_t *json, const char *path,
                                        bauta_error *err);
/* SentencePiece's decoding: U+2581 becomes a space and byte pieces become
 * characters. With `dummy_prefix` the first space is removed, with
 * `remove_extra` all leading spaces are. */
bauta_status bt_detokenizer_chain_sentencepiece(bt_detokenizer_chain **out,
                                                bool dummy_prefix,
                                                bool remove_extra,
                                                bauta_error *err);
void bt_detokenizer_chain_free(bt_detokenizer_chain *decoding);

typedef struct bt_detokenizer_stream
    bt_detokenizer_stream; /* the state of one text */

bauta_status bt_detokenizer_stream_create(bt_detokenizer_stream **out,
                                          const bt_detokenizer_chain *decoding,
                                          bauta_error *err);
void bt_detokenizer_stream_free(bt_detokenizer_stream *stream);

/* Add a piece, as it is in the vocabulary. Text that is final is appended to
 * the text of the stream. After a failure only call
 * bt_detokenizer_stream_reset() or bt_detokenizer_stream_free(). */
bauta_status bt_detokenizer_stream_push(bt_detokenizer_stream *stream,
                                        const char *piece, size_t size,
                                        bauta_error *err);
/* End of the pieces: text that was held back is appended. */
bauta_status bt_detokenizer_stream_finish(bt_detokenizer_stream *stream,
                                          bauta_error *err);

/* The text since the last call of this function, NUL-terminated. It is valid
 * until the next call with this stream. */
const char *bt_detokenizer_stream_take(bt_detokenizer_stream *stream,
                                       size_t *size);
/* Start another text. */
void bt_detokenizer_stream_reset(bt_detokenizer_stream *stream);

#endif
