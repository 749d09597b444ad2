/* SPDX-License-Identifier: Apache-2.0 */
/* epoch.h - one pass over a corpus: the training examples and their batches.
 *
 * It is a function of the corpus, the options, the seed and the epoch's number,
 * so that a run can resume anywhere. Batches are packed without padding, so
 * sorting examples by length would gain nothing. */
#ifndef BT_EPOCH_H
#define BT_EPOCH_H

#include "data/corpus.h"

/* A training example: the model reads tokens [first, first + count) of a
 * document. */
typedef struct bt_example {
    size_t document, first, count;
} bt_example;

/* How documents become examples and batches. Tokens are counted on the longer
 * side of a pair. */
typedef struct bt_packing {
    size_t context;    /* most tokens of an example */
    size_t sequences;  /* examples of a batch; 0: as many as `tokens` allows */
    size_t tokens;     /* most tokens of a batch of more than one example */
    bool next_token;   /* next-token prediction: the last token of a document is
                       never an input */
    bool in_order;     /* in the order of the corpus, split from the start of
                         each document: for validation */
    size_t max_tokens; /* most tokens of all batches, but at least one example;
                     0: no limit */
} bt_packing;

typedef struct bt_epoch {
    bt_example *examples;
    size_t count;
    size_t *batch_offsets; /* (batch_count + 1) first example of each */
    size_t batch_count;
    size_t skipped; /* documents that are empty, and pairs that are too long */
    bt_spill_buffer example_store, batch_offset_store; /* the memory of both */
} bt_epoch;

bauta_status bt_epoch_init(bt_epoch *epoch, const bauta_corpus *corpus,
                           const bt_packing *packing, uint64_t seed,
                           size_t number, bauta_error *err);
void bt_epoch_release(bt_epoch *epoch);

#endif
