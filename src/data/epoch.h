/* SPDX-License-Identifier: Apache-2.0 */
/* epoch.h - one pass through a corpus: which sequences, in which batches.
 *
 * A function of the corpus, the options, the seed and the epoch alone, so that
 * a run can begin anywhere. Sequences lie packed in a batch, without padding,
 * so there is nothing to gain by sorting them. */
#ifndef BT_EPOCH_H
#define BT_EPOCH_H

#include "data/corpus.h"

/* Tokens [first, first + count) of a document are what the model reads. */
typedef struct bt_example {
    size_t document, first, count;
} bt_example;

typedef struct bt_cutting {
    size_t context;   /* the longest sequence */
    size_t sequences; /* in a batch; 0: as many as `tokens` allows */
    size_t tokens;    /* in a batch, of the longer side, unless one sequence
                         alone has more */
    bool shifted;     /* the next token is predicted: the last token of a
                         document is never read */
    bool ordered;     /* in the order of the corpus, cut from the start: for
                         validation */
    size_t limit;     /* tokens of all batches, of the longer side, unless one
                         sequence alone has more; 0: all there are */
} bt_cutting;

typedef struct bt_epoch {
    bt_example *list;
    size_t count;
    size_t *batches; /* (batch_count + 1) where each begins in the list */
    size_t batch_count;
    size_t skipped; /* documents: pairs that are too long, and empty ones */
    bt_store list_store, batch_store; /* where both are */
} bt_epoch;

bauta_status bt_epoch_init(bt_epoch *epoch, const bauta_corpus *corpus,
                           const bt_cutting *how, uint64_t seed, size_t number,
                           bauta_error *err);
void bt_epoch_release(bt_epoch *epoch);

#endif
