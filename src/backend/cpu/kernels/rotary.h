/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.h - rotary position embeddings (RoPE), half-split layout.
 *
 * In each head of a row the pair (a, b) in columns c and c + dim / 2 is rotated
 * by the angle position * frequencies[c]:
 *
 *     a cos - b sin,  b cos + a sin
 *
 * each with one product and one fused multiply-add. The angle is a product of
 * doubles, exact for positions below 2^29. Its cosine and sine are computed in
 * double, within 2^-44, by polynomials, so that no bit depends on a C library,
 * and rounded to float. That is cheap compared to rotating all heads, so
 * nothing is saved for the backward pass. */
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
    bool back;                 /* rotate by the negative angle */
    bool add;                  /* to what y holds */
    /* Another matrix, rotated by the same angles: keys beside queries. */
    size_t other_heads; /* 0: none */
    const float *other_x;
    float *other_y;
} bt_rotary;

/* Rows first to first + count - 1. */
typedef void bt_rotary_fn(const bt_rotary *rotary, size_t first, size_t count);
bt_rotary_fn bt_rotary_f32_c;

#endif
