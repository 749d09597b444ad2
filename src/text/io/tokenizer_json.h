/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.h - a parsed tokenizer.json, from which a tokenizer is built.
 *
 * It is a JSON tree except for the large parts: the vocabulary is read into a
 * bt_vocab during parsing, and the merges stay text until the model is built.
 * The older formats (GPT-2's two files, BERT's list) are converted to this
 * form, so that one function builds all of them. */
#ifndef BT_TOKENIZER_JSON_H
#define BT_TOKENIZER_JSON_H

#include "formats/json.h"
#include "text/tokenizer.h"

/* The most merges of a file, several times as many as any has. */
enum { BT_MERGES_MAX = 1 << 21 };

typedef struct bt_tokenizer_json {
    const char *path;
    json_t *root;    /* "vocab" and "merges" of its "model" are empty */
    bt_vocab *vocab; /* the model's pieces */
    double *scores;  /* (size of vocab) of a Unigram; else NULL */
    size_t scores_room;
    const char
        *merges; /* a JSON list, or the lines of merges.txt; NULL: none */
    size_t merges_size;
    bool merges_are_lines;
} bt_tokenizer_json;

/* Parse a tokenizer.json; the text must outlive the result. Release it also
 * after a failure. */
bauta_status bt_tokenizer_json_init(bt_tokenizer_json *document,
                                    const char *text, size_t size,
                                    const char *path, bauta_error *err);
/* The same from vocab.json and merges.txt (or encoder.json and vocab.bpe), and
 * from vocab.txt; without added tokens and post_processor. */
bauta_status bt_tokenizer_json_init_gpt2(bt_tokenizer_json *document,
                                         const char *vocab, size_t vocab_size,
                                         const char *merges, size_t merges_size,
                                         const char *vocab_path,
                                         const char *merges_path,
                                         bauta_error *err);
bauta_status bt_tokenizer_json_init_bert(bt_tokenizer_json *document,
                                         const char *vocab, size_t size,
                                         bool lowercase, const char *path,
                                         bauta_error *err);
void bt_tokenizer_json_release(bt_tokenizer_json *document);

/* Build a tokenizer. It takes the vocabulary and does not refer to the document
 * afterwards. */
bauta_status bt_tokenizer_json_build(bauta_tokenizer **out,
                                     bt_tokenizer_json *document,
                                     bauta_error *err);

/* Read an object of pieces and ids at the current position. */
bauta_status bt_tokenizer_json_vocab(bt_vocab *vocab, bt_json_reader *json,
                                     bauta_error *err);

/* A tokenizer that is being built. */
typedef struct bt_tokenizer_build {
    bauta_tokenizer *tokenizer;
    const json_t *model; /* the value of "model" */
    const char *path;
    const bt_tokenizer_json *document;
} bt_tokenizer_build;

/* Create the model; the pre-tokenizer must exist. */
bauta_status bt_tokenizer_build_model(const bt_tokenizer_build *build,
                                      bauta_error *err);
/* Set the added tokens, from a list as in "added_tokens". Tokens that the
 * vocabulary lacks are appended to it. */
bauta_status bt_tokenizer_build_added_tokens(const bt_tokenizer_build *build,
                                             const json_t *list,
                                             bauta_error *err);

#endif
