/* SPDX-License-Identifier: Apache-2.0 */
/* objective.h - from sequences to what a model reads and what it is to say.
 *
 *   causal    reads t0 t1 t2, says t1 t2 t3
 *   seq2seq   the encoder reads the source; the decoder reads start t0 t1,
 *             says t0 t1 t2
 *   masked    reads t0 [MASK] t2, says t1 where something was hidden
 *   prefix    reads as causal, says only what lies behind the prefix
 *
 * What is random is drawn by the token's number in the corpus and the epoch,
 * so it does not depend on the batch. */
#ifndef BT_OBJECTIVE_H
#define BT_OBJECTIVE_H

#include "data/epoch.h"

typedef struct bt_objective {
    bauta_objective kind; /* not AUTO */
    uint64_t seed;
    size_t epoch;
    uint32_t start; /* seq2seq: what the decoder reads first */
    uint32_t mask;  /* masked: the token that hides */
    size_t vocabulary;
    const bauta_tokenizer *tokenizer; /* masked: whose special tokens stay */
    float hidden, hidden_random, hidden_kept;
} bt_objective;

/* A batch, packed. The arrays grow as needed and are reused. */
typedef struct bt_filling {
    size_t count;           /* sequences */
    size_t *lengths;        /* (count) */
    size_t *source_lengths; /* (count) of seq2seq */
    size_t *prefixes;       /* (count) of prefix */
    size_t rows, source_rows;
    uint32_t *ids, *labels; /* (rows) */
    uint64_t *keys;         /* (rows) the number of each token */
    uint32_t *source;       /* (source_rows) */
    uint64_t *source_keys;
    size_t counted; /* labels that count */
    size_t sequence_room, row_room, source_room;
} bt_filling;

/* Fill in `count` sequences of a corpus. */
bauta_status bt_filling_set(bt_filling *filling, const bt_objective *objective,
                            const bauta_corpus *corpus,
                            const bt_example *sequences, size_t count,
                            bauta_error *err);
/* Room for so much, without a look at what is there. */
bauta_status bt_filling_reserve(bt_filling *filling, size_t count, size_t rows,
                                size_t source_rows, bauta_error *err);
void bt_filling_release(bt_filling *filling);

#endif
