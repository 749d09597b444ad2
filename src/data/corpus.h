/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h - tokenized documents.
 *
 * The tokens of all documents are stored back to back, so that each token has
 * an index, which keys its random numbers. */
#ifndef BT_CORPUS_H
#define BT_CORPUS_H

#include "base/spill_buffer.h"

#include <stdatomic.h>

/* One side of the documents: texts, targets or sources. */
typedef struct bt_corpus_side {
    uint32_t *tokens;
    size_t count;
    size_t *offsets; /* (documents + 1) first token of each; NULL: none */
    bt_spill_buffer token_store, offset_store; /* the memory of both */
} bt_corpus_side;

/* Characters unknown to the tokenizer, and the first of them. */
typedef struct bt_corpus_unknown {
    uint64_t count;
    char first[8]; /* NUL-terminated, like the file name */
    char file[200];
    size_t line;
} bt_corpus_unknown;

struct bauta_corpus {
    size_t documents, skipped;
    uint64_t bytes; /* of the files */
    size_t memory; /* most bytes of each array; see bt_spill_buffer_reserve() */
    bool pairs;
    uint32_t label_limit; /* tokens from this id on are inputs only, never
                             labels of next-token prediction; 0: none are */
    bt_corpus_side text, source;  /* source: only with pairs */
    atomic_uint_least64_t digest; /* 0: not computed yet */
    bt_corpus_unknown unknown;
};

/* The number of tokens of document i. */
static inline size_t bt_corpus_side_length(const bt_corpus_side *side, size_t i)
{
    return side->offsets[i + 1] - side->offsets[i];
}

/* Append tokens to a document that is not complete yet;
 * bt_corpus_end_document() completes it. */
bauta_status bt_corpus_append(bauta_corpus *corpus, const uint32_t *tokens,
                              size_t count, bauta_error *err);
bauta_status bt_corpus_end_document(bauta_corpus *corpus, bauta_error *err);

/* Release the pages of a large corpus that were read; they are read again when
 * needed. A loop over all tokens calls the first every BT_CORPUS_SIDE_BLOCK
 * tokens. */
enum { BT_CORPUS_SIDE_BLOCK = 4 << 20 };
void bt_corpus_side_unload(const bt_corpus_side *side);
void bt_corpus_unload(const bauta_corpus *corpus);

/* A digest of all tokens and document boundaries. */
uint64_t bt_corpus_digest(const bauta_corpus *corpus);

#endif
