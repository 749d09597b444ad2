/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - the rows of a mask in the GPU's memory, as they are. */
#ifndef BT_CUDA_ROWS_H
#define BT_CUDA_ROWS_H

#include "backend/cuda/cuda.h"

typedef struct bt_cuda_span {
    int32_t lo, hi;
} bt_cuda_span;

typedef struct bt_row_spans {
    int32_t count, keys;
    const int32_t *start;  /* (count + 1) row i owns spans start[i] to ... */
    const int32_t *origin; /* (count) */
    const int32_t *anchor; /* (count) the key that the row is aligned with: the
                              mask's last query with its last key */
    const bt_cuda_span *spans;
    /* Of a step of decoding; NULL: keys lie in a row. Key j of row i is in page
     * pages[table[i] + j / page_keys]. */
    const int32_t *table; /* (count) */
    const int32_t *pages;
} bt_row_spans;

struct bt_cuda_rows {
    void *memory; /* one block */
    size_t bytes; /* of it */
    bt_row_spans device;
    size_t page_keys, page_count; /* of a step: that must be there */
};

#endif
