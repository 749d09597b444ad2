/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_tokenizer.h - the parts of a tokenizer that a SentencePiece
 * model becomes, for those who put them together: SentencePiece's own
 * tokenizers and Marian's. */
#ifndef BT_SENTENCEPIECE_TOKENIZER_H
#define BT_SENTENCEPIECE_TOKENIZER_H

#include "formats/sentencepiece.h"
#include "text/tokenizer.h"

/* Whether there is nothing in it that we cannot do. */
bauta_status bt_sentencepiece_check(const bt_sentencepiece *model,
                                    const char *path, bauta_error *err);
/* The pieces by their ids. What there is of it in *out on failure is the
 * caller's. */
bauta_status bt_sentencepiece_vocab(bt_vocab **out,
                                    const bt_sentencepiece *model,
                                    const char *path, bauta_error *err);
/* `codes` is bt_sentencepiece_norm's. */
bauta_status bt_sentencepiece_normalizer(bt_normalizer **out,
                                         const bt_sentencepiece *model,
                                         const bt_vocab *vocab, bool codes,
                                         const char *path, bauta_error *err);
/* The model; `vocab` must outlive it. */
bauta_status bt_sentencepiece_subword(bt_subword **out,
                                      const bt_sentencepiece *model,
                                      const bt_vocab *vocab, const char *path,
                                      bauta_error *err);

#endif
