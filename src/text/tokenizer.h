/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h - a tokenizer, inside: the steps of a text's way in and out.
 *
 *     text -> added tokens cut out -> normalizer -> added tokens once more
 *          -> pre-tokenizer -> subword model -> template -> ids
 *     ids  -> pieces -> decoder -> text
 *
 * Every format comes down to this one pipeline. */
#ifndef BT_TOKENIZER_H
#define BT_TOKENIZER_H

#include "text/added.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/subword.h"
#include "text/template.h"
#include "text/vocab.h"

/* A file that the tokenizer was made from, so that saving gives it back. */
typedef struct bt_tokenizer_file {
    const char *name; /* constant */
    char *bytes;
    size_t size;
} bt_tokenizer_file;

enum { BT_TOKENIZER_FILES = 8, BT_TOKENIZER_FILE_MAX = 256 << 20 };

struct bauta_tokenizer {
    bt_vocab *vocab; /* with the added tokens */
    bt_normalizer *normalizer;
    bt_added *added;
    bt_pretokenizer *pretokenizer;
    bt_subword *model;
    bt_template single, pair;
    bt_decoding *decoding;
    bool bytelevel;         /* the model takes bytes as they came */
    bool sentencepiece;     /* an unknown piece decodes to U+2047 in spaces */
    unsigned char *special; /* (size of vocab) left out by decoding */
    uint32_t names[BAUTA_TOKEN_NAMES]; /* ids, or BT_NO_ID */

    /* Where the model has pieces of its own (Marian): theirs, and for each its
     * id in `vocab`. What the model does not know is looked up in `vocab` as
     * it stands in the text. */
    bt_vocab *pieces;
    uint32_t *ids; /* (size of pieces) */

    bauta_tokenizer *target; /* the other side of a translation, or NULL */
    bt_tokenizer_file files[BT_TOKENIZER_FILES];
    size_t file_count;
};

/* An empty one to fill; bauta_tokenizer_free() takes it in any state. */
bauta_status bt_tokenizer_create(bauta_tokenizer **out, bauta_error *err);

/* A tokenizer.json in memory. */
bauta_status bt_tokenizer_parse_json(bauta_tokenizer **out, const char *text,
                                     size_t size, const char *path,
                                     bauta_error *err);
/* vocab.json and merges.txt (or encoder.json and vocab.bpe): GPT-2's. */
bauta_status bt_tokenizer_parse_gpt2(bauta_tokenizer **out, const char *vocab,
                                     size_t vocab_size, const char *merges,
                                     size_t merges_size, const char *path,
                                     bauta_error *err);
/* vocab.txt: BERT's. */
bauta_status bt_tokenizer_parse_bert(bauta_tokenizer **out, const char *vocab,
                                     size_t size, bool lowercase,
                                     const char *path, bauta_error *err);
/* A SentencePiece model: ids, pieces and text as SentencePiece itself has
 * them, nothing put around. */
bauta_status bt_tokenizer_parse_sentencepiece(bauta_tokenizer **out,
                                              const void *bytes, size_t size,
                                              const char *path,
                                              bauta_error *err);
/* Marian's: pieces by two SentencePiece models, ids by vocab.json (or, where
 * `target_vocab` is not NULL, by one for each side), </s> behind. */
typedef struct bt_marian_files {
    const char *source, *target, *vocab, *target_vocab;
    size_t source_size, target_size, vocab_size, target_vocab_size;
} bt_marian_files;
bauta_status bt_tokenizer_parse_marian(bauta_tokenizer **out,
                                       const bt_marian_files *files,
                                       const char *path, bauta_error *err);

#endif
