/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_tokenizer.h - the parts of a tokenizer from a SentencePiece
 * model, shared by SentencePiece's own tokenizers and Marian's. */
#ifndef BT_SENTENCEPIECE_TOKENIZER_H
#define BT_SENTENCEPIECE_TOKENIZER_H

#include "formats/sentencepiece_proto.h"
#include "text/tokenizer.h"

/* Fail if the model uses a feature that is not supported. */
bauta_status bt_sentencepiece_check(const bt_sentencepiece *model,
                                    const char *path, bauta_error *err);
/* The pieces by id. The caller owns *out even after a failure. */
bauta_status bt_sentencepiece_vocab(bt_vocab **out,
                                    const bt_sentencepiece *model,
                                    const char *path, bauta_error *err);
/* `codes`: keep a language code at the start of a text; see normalizer.h. */
bauta_status bt_sentencepiece_normalizer(bt_normalizer **out,
                                         const bt_sentencepiece *model,
                                         const bt_vocab *vocab, bool codes,
                                         const char *path, bauta_error *err);
/* The model; `vocab` must outlive it. */
bauta_status bt_sentencepiece_subword(bt_subword_model **out,
                                      const bt_sentencepiece *model,
                                      const bt_vocab *vocab, const char *path,
                                      bauta_error *err);

#endif
