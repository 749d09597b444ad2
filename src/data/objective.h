/* SPDX-License-Identifier: Apache-2.0 */
/* objective.h - training objectives: from examples to inputs and labels.
 *
 *             inputs                            labels
 *   causal    t0 t1 t2                          t1 t2 t3
 *   seq2seq   encoder: the source;              t0 t1 t2
 *             decoder: start t0 t1
 *   masked    t0 [MASK] t2                      t1, at masked tokens only
 *   prefix    as causal                         as causal, after the prefix
 * only
 *
 * Random numbers are keyed by the token's index in the corpus and the epoch, so
 * they do not depend on the batch. */
#ifndef BT_OBJECTIVE_H
#define BT_OBJECTIVE_H

#include "data/epoch.h"

typedef struct bt_objective {
    bauta_objective kind; /* not AUTO */
    uint64_t seed;
    size_t epoch;
    uint32_t decoder_start_token; /* seq2seq: the decoder's first input */
    uint32_t mask_token;          /* masked: the mask token */
    size_t vocab_size;
    const bauta_tokenizer
        *tokenizer; /* masked: special tokens are not masked */
    float mlm_probability, mlm_random, mlm_keep;
} bt_objective;

/* The inputs and labels of a packed batch. The arrays grow and are reused. */
typedef struct bt_train_batch {
    size_t count;           /* sequences */
    size_t *lengths;        /* (count) */
    size_t *source_lengths; /* (count) of seq2seq */
    size_t *prefix_lengths; /* (count) of prefix */
    size_t rows, source_rows;
    uint32_t *ids, *labels; /* (rows) */
    uint64_t *token_keys;   /* (rows) index of each token in the corpus */
    uint32_t *source;       /* (source_rows) */
    uint64_t *source_keys;
    size_t label_count; /* labels other than BAUTA_IGNORE */
    size_t sequence_capacity, row_capacity, source_capacity;
} bt_train_batch;

/* Fill the batch with `count` examples of a corpus. */
bauta_status bt_train_batch_set(bt_train_batch *batch,
                                const bt_objective *objective,
                                const bauta_corpus *corpus,
                                const bt_example *examples, size_t count,
                                bauta_error *err);
/* Reserve memory; the contents are lost. */
bauta_status bt_train_batch_reserve(bt_train_batch *batch, size_t count,
                                    size_t rows, size_t source_rows,
                                    bauta_error *err);
void bt_train_batch_release(bt_train_batch *batch);

#endif
