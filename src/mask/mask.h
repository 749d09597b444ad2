/* SPDX-License-Identifier: Apache-2.0 */
/* mask.h - a mask as it is stored: the spans of all rows, one behind the
 * other. The essay is in mask.c. */
#ifndef BT_MASK_H
#define BT_MASK_H

#include "bauta.h"

struct bauta_mask {
    size_t queries, keys;
    size_t *start;     /* (queries + 1) row i owns spans start[i]..start[i+1] */
    size_t *origin;    /* (queries) */
    bauta_span *spans; /* (start[queries]) sorted and disjoint in each row;
                          none empty, no two of a row touching */
    uint64_t pairs;
};

#endif
