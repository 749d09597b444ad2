/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.h - pairs of columns turned by an angle that grows with the position.
 *
 * In each head of a row the pair (a, b) in columns c and c + dim / 2 is turned
 * by the angle position * frequencies[c]:
 *
 *     a cos - b sin,  b cos + a sin
 *
 * each one product and one fused step. The angle is a product of doubles,
 * exact for positions below 2^29. Its cosine and sine are computed in double,
 * within 2^-44, by polynomials of our own so that no bit depends on a C
 * library, and rounded to float. That is cheap beside the turning of all heads,
 * so nothing is stored for the way back. */
#ifndef BT_ROTARY_H
#define BT_ROTARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_rotary {
    size_t heads, dim;         /* dim is even */
    const uint32_t *positions; /* (rows) */
    const float *frequencies;  /* (dim / 2) */
    const float *x;            /* (rows, heads * dim) */
    float *y;                  /* (rows, heads * dim); overlaps nothing */
    bool back;                 /* turn by the negative angle */
    bool add;                  /* to what y holds */
} bt_rotary;

/* Rows first to first + count - 1. */
typedef void bt_rotary_fn(const bt_rotary *rotary, size_t first, size_t count);
bt_rotary_fn bt_rotary_f32_c;

#endif
