/* SPDX-License-Identifier: Apache-2.0 */
/* bit_matrix.h - a boolean matrix, one bit per (query, key) pair.
 *
 * The audit's own representation of visibility. It shares no code with
 * src/mask, which is part of what an audit checks. */
#ifndef BT_BIT_MATRIX_H
#define BT_BIT_MATRIX_H

#include "bauta.h"

typedef struct bt_bit_matrix {
    size_t rows, keys, words; /* words: uint64_t per row */
    uint64_t *bits;           /* (rows, words); NULL: no matrix */
} bt_bit_matrix;

/* All false. Rows and keys are at most a few thousand. */
bauta_status bt_bit_matrix_init(bt_bit_matrix *matrix, size_t rows, size_t keys,
                                bauta_error *err);
void bt_bit_matrix_release(bt_bit_matrix *matrix);

static inline uint64_t *bt_bit_matrix_row(const bt_bit_matrix *m, size_t row)
{
    return m->bits + row * m->words;
}

static inline bool bt_bit_matrix_get(const bt_bit_matrix *m, size_t row,
                                     size_t key)
{
    return bt_bit_matrix_row(m, row)[key / 64] >> (key % 64) & 1;
}

static inline void bt_bit_matrix_set(bt_bit_matrix *m, size_t row, size_t key)
{
    bt_bit_matrix_row(m, row)[key / 64] |= UINT64_C(1) << (key % 64);
}

/* One row of a boolean matrix product: to[row] |= left[row] * right. */
void bt_bit_matrix_or_product(bt_bit_matrix *to, size_t row,
                              const bt_bit_matrix *left,
                              const bt_bit_matrix *right);

/* A block-diagonal mask of `times` copies of the matrix. */
bauta_status bt_bit_matrix_to_mask(bauta_mask **out,
                                   const bt_bit_matrix *matrix, size_t times,
                                   bauta_error *err);

#endif
