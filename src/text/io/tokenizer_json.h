/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.h - a tokenizer.json, from which a tokenizer is made.
 *
 * All of it is a tree but for what is large: the vocabulary is read into a
 * bt_vocab while the file is walked, and the merges stay text until the model
 * is made. The older formats (GPT-2's two files, BERT's list) are brought into
 * this shape, so that there is one reader of it. */
#ifndef BT_TOKENIZER_JSON_H
#define BT_TOKENIZER_JSON_H

#include "formats/json.h"
#include "text/tokenizer.h"

/* The most merges that are taken from a file, several times what any has. */
enum { BT_MERGES_MAX = 1 << 21 };

typedef struct bt_document {
    const char *path;
    json_t *root;    /* "vocab" and "merges" of its "model" are empty */
    bt_vocab *vocab; /* the model's pieces */
    double *scores;  /* (size of vocab) of a Unigram; else NULL */
    size_t scores_room;
    const char
        *merges; /* a JSON list, or the lines of merges.txt; NULL: none */
    size_t merges_size;
    bool merges_lines;
} bt_document;

/* Read a tokenizer.json; the text must outlive the document. Release what was
 * begun, after a failure too. */
bauta_status bt_document_init(bt_document *document, const char *text,
                              size_t size, const char *path, bauta_error *err);
/* The shape of a tokenizer.json from vocab.json and merges.txt (or encoder.json
 * and vocab.bpe), and from vocab.txt; without added tokens and template. */
bauta_status bt_document_init_gpt2(bt_document *document, const char *vocab,
                                   size_t vocab_size, const char *merges,
                                   size_t merges_size, const char *vocab_path,
                                   const char *merges_path, bauta_error *err);
bauta_status bt_document_init_bert(bt_document *document, const char *vocab,
                                   size_t size, bool lowercase,
                                   const char *path, bauta_error *err);
void bt_document_release(bt_document *document);

/* A tokenizer; takes the vocabulary out of the document, which is not referred
 * to afterwards. */
bauta_status bt_document_tokenizer(bauta_tokenizer **out, bt_document *document,
                                   bauta_error *err);

/* An object of pieces and their ids, which is next. */
bauta_status bt_document_vocab(bt_vocab *vocab, bt_json *json,
                               bauta_error *err);

/* A tokenizer being read. */
typedef struct bt_tokenizer_build {
    bauta_tokenizer *tokenizer;
    const json_t *model; /* the value of "model" */
    const char *path;
    const bt_document *document;
} bt_tokenizer_build;

/* Fill in vocabulary and model; the pre-tokenizer is there already. */
bauta_status bt_tokenizer_build_model(const bt_tokenizer_build *reading,
                                      bauta_error *err);

#endif
