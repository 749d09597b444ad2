/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_bpe.h - SentencePiece's models other than Unigram.
 *
 * Its BPE has no list of merges: any two symbols whose concatenation is a piece
 * may merge, the best score first. Here every division of a piece into two
 * symbols is a merge, ranked by the score. A symbol is a piece or a character
 * that need not be a piece: such characters get ids after the vocabulary, in a
 * vocabulary of the model, and are unknown if they remain at the end. CHAR
 * models are the same without merges. */
#ifndef BT_SENTENCEPIECE_BPE_H
#define BT_SENTENCEPIECE_BPE_H

#include "formats/sentencepiece_proto.h"
#include "text/subword/subword_model.h"

enum { BT_SENTENCEPIECE_MERGES_MAX = 1 << 22 };

bauta_status bt_sentencepiece_bpe_create(bt_subword_model **out,
                                         const bt_sentencepiece *model,
                                         const char *path, bauta_error *err);

/* WORD models: each word is a piece or unknown; `vocab` must outlive the
 * model. */
bauta_status bt_sentencepiece_word_create(bt_subword_model **out,
                                          const bt_sentencepiece *model,
                                          const bt_vocab *vocab,
                                          bauta_error *err);

#endif
