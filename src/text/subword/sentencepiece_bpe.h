/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_bpe.h - SentencePiece's models that are not Unigram.
 *
 * Its BPE has no list of merges: any two symbols whose concatenation is a
 * piece may become it, the best score first. Here every way to cut a piece
 * into two symbols is a merge, and its rank is the place of the score. A
 * symbol is a piece or a single character, which need not be a piece: such
 * characters get ids behind the vocabulary, in one of the model's own, and
 * where one is left over at the end it is unknown. Character models are the
 * same without merges. */
#ifndef BT_SENTENCEPIECE_BPE_H
#define BT_SENTENCEPIECE_BPE_H

#include "formats/sentencepiece.h"
#include "text/subword/subword_model.h"

enum { BT_PIECE_MERGES_MAX = 1 << 22 };

bauta_status bt_sentencepiece_bpe(bt_subword **out,
                                  const bt_sentencepiece *model,
                                  const char *path, bauta_error *err);

/* Words between spaces, each a piece or unknown; `vocab` must outlive the
 * model. */
bauta_status bt_sentencepiece_words(bt_subword **out,
                                    const bt_sentencepiece *model,
                                    const bt_vocab *vocab, bauta_error *err);

#endif
