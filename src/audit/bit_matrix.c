/* SPDX-License-Identifier: Apache-2.0 */
/* bit_matrix.c - a boolean matrix and its conversion to a mask. */
#include "audit/bit_matrix.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

bauta_status bt_bit_matrix_init(bt_bit_matrix *matrix, size_t rows, size_t keys,
                                bauta_error *err)
{
    *matrix = (bt_bit_matrix){ rows, keys, (keys + 63) / 64, NULL };
    matrix->bits =
        bt_alloc_zero(bt_size_mul(rows, matrix->words), sizeof(*matrix->bits));
    if (!matrix->bits)
        return bt_fail_memory(err, "what an audit expects",
                              bt_size_mul(rows, matrix->words));
    return BAUTA_OK;
}

void bt_bit_matrix_release(bt_bit_matrix *matrix)
{
    bt_free(matrix->bits);
    *matrix = (bt_bit_matrix){ 0 };
}

void bt_bit_matrix_or_product(bt_bit_matrix *to, size_t row,
                              const bt_bit_matrix *left,
                              const bt_bit_matrix *right)
{
    uint64_t *bits = bt_bit_matrix_row(to, row);
    for (size_t k = 0; k < left->keys; k++)
        for (size_t w = 0; bt_bit_matrix_get(left, row, k) && w < to->words;
             w++)
            bits[w] |= bt_bit_matrix_row(right, k)[w];
}

/* The spans of a row of the block-diagonal mask; for bauta_mask_rows(). */
static size_t row_spans(void *user, size_t query, bauta_span *spans,
                        size_t capacity)
{
    const bt_bit_matrix *m = user;
    size_t row = query % m->rows, shift = query / m->rows * m->keys, count = 0;
    for (size_t k = 0; k < m->keys; k++) {
        size_t lo = k;
        while (k < m->keys && bt_bit_matrix_get(m, row, k))
            k++;
        if (k == lo)
            continue;
        if (count < capacity)
            spans[count] = (bauta_span){ shift + lo, shift + k };
        count++;
    }
    return count;
}

bauta_status bt_bit_matrix_to_mask(bauta_mask **out,
                                   const bt_bit_matrix *matrix, size_t times,
                                   bauta_error *err)
{
    bt_bit_matrix view = *matrix;
    return bauta_mask_rows(out, bt_size_mul(matrix->rows, times),
                           bt_size_mul(matrix->keys, times), row_spans, &view,
                           err);
}
