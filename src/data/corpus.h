/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h - documents as tokens, inside.
 *
 * The tokens of all documents lie one behind the other, so that each token has
 * a number, by which what is random about it is drawn. */
#ifndef BT_CORPUS_H
#define BT_CORPUS_H

#include "bauta.h"

/* One side of the documents. */
typedef struct bt_side {
    uint32_t *tokens;
    size_t count, room;
    size_t *starts; /* (documents + 1) where each begins; NULL without any */
    size_t starts_room;
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
    bool pairs;
    bt_side text, source; /* source: of pairs alone */
    bt_corpus_unknown unknown;
};

/* How many tokens document i has on a side. */
static inline size_t bt_side_length(const bt_side *side, size_t i)
{
    return side->starts[i + 1] - side->starts[i];
}

/* A number that tells corpora apart: of all tokens and borders. */
uint64_t bt_corpus_digest(const bauta_corpus *corpus);

#endif
