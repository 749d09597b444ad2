/* SPDX-License-Identifier: Apache-2.0 */
/* document.h - a tokenizer.json as a tree, from which a tokenizer is made.
 *
 * The older formats (GPT-2's two files, BERT's list) are brought into this
 * shape, so that there is one reader of it. */
#ifndef BT_DOCUMENT_H
#define BT_DOCUMENT_H

#include "text/tokenizer.h"

#include <jansson.h>

/* A JSON text, which must be an object. For json_decref(). */
bauta_status bt_document_read(json_t **out, const char *text, size_t size,
                              const char *path, bauta_error *err);
/* The same, with whole numbers of any size, which become reals: transformers
 * writes a model_max_length of 10^30 for "any". */
bauta_status bt_document_read_real(json_t **out, const char *text, size_t size,
                                   const char *path, bauta_error *err);

/* A tokenizer from the tree; the tree is not referred to afterwards. */
bauta_status bt_document_tokenizer(bauta_tokenizer **out,
                                   const json_t *document, const char *path,
                                   bauta_error *err);

/* The shape of a tokenizer.json from vocab.json and merges.txt (or encoder.json
 * and vocab.bpe), and from vocab.txt; without added tokens and template. For
 * json_decref(). */
bauta_status bt_document_gpt2(json_t **out, const char *vocab,
                              size_t vocab_size, const char *merges,
                              size_t merges_size, const char *vocab_path,
                              const char *merges_path, bauta_error *err);
bauta_status bt_document_bert(json_t **out, const char *vocab, size_t size,
                              bool lowercase, const char *path,
                              bauta_error *err);

#endif
