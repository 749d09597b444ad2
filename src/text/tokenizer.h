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

enum {
    BT_TOKENIZER_FILES = 8,
    BT_TOKENIZER_FILE_MAX = 128 << 20, /* with a vocabulary or merges */
    BT_TOKENIZER_CONFIG_MAX = 16 << 20 /* other files beside them */
};

struct bauta_tokenizer {
    bt_vocab *vocab; /* with the added tokens */
    bt_normalizer *normalizer;
    bt_added *added;
    bt_pretokenizer *pretokenizer;
    bt_subword *model;
    bt_template single, pair;
    bt_decoding *decoding;
    bool bytelevel;         /* the model takes bytes as they came */
    bool sentencepiece;     /* an unknown piece decodes to `surface` */
    char *surface;          /* NULL: U+2047 in spaces */
    unsigned char *special; /* (size of vocab) left out by decoding */
    uint32_t names[BAUTA_TOKEN_NAMES]; /* ids, or BT_NO_ID */

    /* The model's own pieces, where they are not just `vocab`; NULL else. */
    bt_vocab *pieces;
    /* (size of pieces) Where they have other ids (Marian), what these are in
     * `vocab`; BT_NO_ID: what stands in the text is looked up there. NULL: ids
     * are the same. */
    uint32_t *ids;

    bauta_tokenizer *target; /* the other side of a translation, or NULL */
    bt_tokenizer_file files[BT_TOKENIZER_FILES];
    size_t file_count;
};

/* An empty one to fill; bauta_tokenizer_free() takes it in any state. */
bauta_status bt_tokenizer_create(bauta_tokenizer **out, bauta_error *err);

/* Keep a file for bauta_tokenizer_save(); the bytes are the tokenizer's from
 * here. `name` is a constant. */
void bt_tokenizer_keep(bauta_tokenizer *tokenizer, const char *name,
                       char *bytes, size_t size);
/* A tokenizer_config.json for one that was made here: that it is as its
 * tokenizer.json says, and which tokens have a part to play. */
bauta_status bt_tokenizer_keep_config(bauta_tokenizer *tokenizer,
                                      bauta_error *err);
/* Mark a token as special; the vocabulary must be complete. */
bauta_status bt_tokenizer_mark(bauta_tokenizer *tokenizer, uint32_t id,
                               bauta_error *err);

/* A tokenizer.json in memory. */
bauta_status bt_tokenizer_parse_json(bauta_tokenizer **out, const char *text,
                                     size_t size, const char *path,
                                     bauta_error *err);
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
