/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h - documents as tokens, inside.
 *
 * The tokens of all documents lie one behind the other, so that each token has
 * a number, by which what is random about it is drawn. */
#ifndef BT_CORPUS_H
#define BT_CORPUS_H

#include "base/store.h"

#include <stdatomic.h>

/* One side of the documents. */
typedef struct bt_side {
    uint32_t *tokens;
    size_t count;
    size_t *starts; /* (documents + 1) where each begins; NULL without any */
    bt_store token_store, start_store; /* where both are */
} bt_side;

/* Characters that the tokenizer did not know, and the first of them. */
typedef struct bt_corpus_unknown {
    uint64_t count;
    char first[8]; /* NUL-terminated, and so is the name of the file */
    char file[200];
    size_t line;
} bt_corpus_unknown;

struct bauta_corpus {
    size_t documents, skipped;
    uint64_t bytes; /* of the files */
    size_t memory;  /* of each array; see bt_store_reserve() */
    bool pairs;
    bt_side text, source;         /* source: of pairs alone */
    atomic_uint_least64_t digest; /* 0: not known yet */
    bt_corpus_unknown unknown;
};

/* How many tokens document i has on a side. */
static inline size_t bt_side_length(const bt_side *side, size_t i)
{
    return side->starts[i + 1] - side->starts[i];
}

/* Tokens join the text of the document that comes next, which
 * bt_corpus_end() then adds; for documents that are made in parts. */
bauta_status bt_corpus_put(bauta_corpus *corpus, const uint32_t *tokens,
                           size_t count, bauta_error *err);
bauta_status bt_corpus_end(bauta_corpus *corpus, bauta_error *err);

/* After much of a large corpus was read: it need not stay in memory. Readers
 * of all of it call the first of these every BT_SIDE_BLOCK tokens. */
enum { BT_SIDE_BLOCK = 4 << 20 };
void bt_side_unload(const bt_side *side);
void bt_corpus_unload(const bauta_corpus *corpus);

/* A number that tells corpora apart: of all tokens and borders. */
uint64_t bt_corpus_digest(const bauta_corpus *corpus);

#endif
