/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h - a tokenizer: the pipeline that every format is reduced to.
 *
 *     text -> added tokens -> normalizer -> normalized added tokens
 *          -> pre-tokenizer -> subword model -> template -> ids
 *     ids  -> pieces -> detokenizer -> text */
#ifndef BT_TOKENIZER_H
#define BT_TOKENIZER_H

#include "text/added_tokens.h"
#include "text/detokenize/detokenizer.h"
#include "text/normalize/normalizer.h"
#include "text/post_processor.h"
#include "text/pretokenize/pretokenizer.h"
#include "text/subword/subword_model.h"
#include "text/subword/vocab.h"

/* A file that the tokenizer was made from; saving writes it back. */
typedef struct bt_tokenizer_file {
    const char *name; /* constant */
    char *bytes;
    size_t size;
} bt_tokenizer_file;

enum {
    BT_TOKENIZER_FILES = 8,
    BT_TOKENIZER_FILE_MAX = 128 << 20, /* bytes, with vocabulary or merges */
    BT_TOKENIZER_CONFIG_MAX = 16 << 20 /* bytes, of other files */
};

struct bauta_tokenizer {
    bt_vocab *vocab; /* including the added tokens */
    bt_normalizer *normalizer;
    bt_added_tokens *added_tokens;
    bt_pretokenizer *pretokenizer;
    bt_subword_model *model;
    bt_template single, pair;
    bt_detokenizer_chain *detokenizer;
    bool bytelevel;            /* the model encodes bytes, not characters */
    bool sentencepiece;        /* the unknown piece decodes to the surface */
    char *unknown_surface;     /* NULL: U+2047 between spaces */
    unsigned char *is_special; /* (size of vocab) skipped by decoding */
    uint32_t special_ids[BAUTA_TOKEN_COUNT]; /* ids, or BT_NO_ID */

    /* The pieces of the model if they differ from `vocab`; else NULL. */
    bt_vocab *model_vocab;
    bauta_tokenizer *target; /* the target side of a translation, or NULL */
    bt_tokenizer_file files[BT_TOKENIZER_FILES];
    size_t file_count;
};

/* An empty tokenizer to fill; bauta_tokenizer_free() accepts any state. */
bauta_status bt_tokenizer_create(bauta_tokenizer **out, bauta_error *err);

/* Store a file for bauta_tokenizer_save(). The tokenizer owns the bytes from
 * here on; `name` is a constant. */
void bt_tokenizer_store_file(bauta_tokenizer *tokenizer, const char *name,
                             char *bytes, size_t size);
/* Store a tokenizer_config.json for a tokenizer that was created here: its
 * class is that of a plain tokenizer.json, and it names the special tokens. */
bauta_status bt_tokenizer_store_config(bauta_tokenizer *tokenizer,
                                       bauta_error *err);
/* Parse a tokenizer.json that was created here, and store it with its config.
 * Takes the text, even on failure. */
bauta_status bt_tokenizer_create_json(bauta_tokenizer **out, char *text,
                                      size_t size, bauta_error *err);

/* A set of code points, one bit each, and a tokenizer of these characters. */
enum { BT_CHAR_SET_WORDS = 0x110000 / 64 };
void bt_char_set_add(uint64_t *set, const char *text, size_t length);
bauta_status bt_tokenizer_create_characters(bauta_tokenizer **out,
                                            const uint64_t *set,
                                            bauta_error *err);

/* Mark a token as special; the vocabulary must be complete. */
bauta_status bt_tokenizer_mark_special(bauta_tokenizer *tokenizer, uint32_t id,
                                       bauta_error *err);

/* Parse a tokenizer.json in memory. */
bauta_status bt_tokenizer_parse_json(bauta_tokenizer **out, const char *text,
                                     size_t size, const char *path,
                                     bauta_error *err);
/* Parse a SentencePiece model: ids, pieces and text as in SentencePiece itself,
 * without special tokens around the text. */
bauta_status bt_tokenizer_parse_sentencepiece(bauta_tokenizer **out,
                                              const void *bytes, size_t size,
                                              const char *path,
                                              bauta_error *err);
/* Marian's tokenizers: pieces from two SentencePiece models, ids from
 * vocab.json (or, if `target_vocab` is not NULL, from one for each side), </s>
 * at the end. */
typedef struct bt_marian_files {
    const char *source, *target, *vocab, *target_vocab;
    size_t source_size, target_size, vocab_size, target_vocab_size;
} bt_marian_files;
bauta_status bt_tokenizer_parse_marian(bauta_tokenizer **out,
                                       const bt_marian_files *files,
                                       const char *path, bauta_error *err);

#endif
