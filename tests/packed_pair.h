/* SPDX-License-Identifier: Apache-2.0 */
/* packed_pair.h - two packed sequences with labels, for models of vocabulary
 * 40. */
#ifndef BT_TEST_PACKED_PAIR_H
#define BT_TEST_PACKED_PAIR_H

#include "bauta.h"
#include "testing.h"

enum { ROWS = 70, FIRST = 41 }; /* two sequences: 41 and 29 tokens */

/* Two packed sequences, and their labels: the next token. */
typedef struct packed {
    uint32_t ids[ROWS], labels[ROWS];
    size_t lengths[2];
    bauta_batch batch;
} packed;

static inline void packed_init(packed *p, uint64_t seed)
{
    test_random r = test_random_from(seed);
    for (size_t i = 0; i < ROWS; i++)
        p->ids[i] = (uint32_t)test_below(&r, 39);
    for (size_t i = 0; i < ROWS; i++)
        p->labels[i] =
            i + 1 == FIRST || i + 1 == ROWS ? BAUTA_IGNORE : p->ids[i + 1];
    p->lengths[0] = FIRST;
    p->lengths[1] = ROWS - FIRST;
    p->batch = (bauta_batch)BAUTA_BATCH_INIT;
    p->batch.count = 2;
    p->batch.lengths = p->lengths;
    p->batch.ids = p->ids;
}

#endif
