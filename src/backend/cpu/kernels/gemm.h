/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - matrix products, in the order that defines their bits.
 *
 *     C = epilogue(C0 + op(A) op(B))
 *
 * row-major, where op() transposes or does not. Every element of C is one
 * chain of fused multiply-adds over k, in ascending order,
 *
 *     s = C0[i][j], or 0
 *     s = fma(op(A)[i][p], op(B)[p][j], s)      p = 0, 1, ... k - 1
 *
 * followed by the epilogue steps that are requested:
 *
 *     s = s * scale[j]
 *     C[i][j] = s + bias[j]
 *
 * and, in the blocked product only,
 *
 *     pre[i][j] = C[i][j],  C[i][j] = act(C[i][j])
 *     or C[i][j] = act'(slope[i][j]) * C[i][j]
 *
 * So an element depends only on one row of op(A) and one column of op(B).
 * Tiles, cache blocks, packing, threads and the number of rows computed
 * together change no bit. A twin may interrupt the chain anywhere and carry s
 * through memory, which is exact; it must neither split the sum nor append
 * terms, even zeros. */
#ifndef BT_GEMM_H
#define BT_GEMM_H

#include "backend/cpu/kernels/packed_weight.h"
#include "backend/op_types.h"

#include <stdbool.h>
#include <stddef.h>

/* One product. C overlaps no other operand; the others may overlap. If m, n or
 * k is 0, the pointers of empty operands are not used. */
typedef struct bt_gemm {
    size_t m, n, k;
    const float *a; /* (m, k), or (k, m) if trans_a; rows lda apart */
    const float *b; /* (k, n), or (n, k) if trans_b; rows ldb apart */
    float *c;       /* (m, n); rows ldc apart */
    size_t lda, ldb, ldc;
    bool trans_a, trans_b;
    /* B as packed weights: op(B)[p][j] is their input p of output j, and the
     * scales are theirs. b, ldb and trans_b are then unused and `add` is false.
     * NULL: none. */
    const bt_packed_weight *packed;
    bool add;          /* start from what C holds, not from 0 */
    const float *bias; /* (n), or NULL */
    bool has_act;      /* apply `act`, or multiply by its slope */
    bt_act act;
    float *pre;         /* like C; or NULL */
    const float *slope; /* like C; NULL: act itself */
} bt_gemm;

/* Columns first to first + count - 1 of C, with their epilogue, directly from
 * the operands. The reference defines the bits; the twins are tuned for few
 * rows, where the cost is reading B once. */
typedef void bt_gemm_columns_fn(const bt_gemm *gemm, size_t first,
                                size_t count);
bt_gemm_columns_fn bt_gemm_columns_f32_c;

/* The blocked product, for many rows: one panel of columns of op(B) at a time,
 * packed k-major so that register tiles read it sequentially, is multiplied
 * with all rows of a block. op(A) is read in place or packed into panels of
 * `rows` rows, k-major too if it is transposed, else row by row:
 *
 *     B panel  (depth, columns)   op(B)[from + p][column + j]
 *     A panel  (depth, rows)      op(A)[row + r][from + p], transposed
 *              (rows, depth)      A[row + r][from + p]
 *
 * Panels have their full width at the borders of C too; elements beyond the
 * border are not used. */
typedef struct bt_gemm_block {
    size_t row, rows;       /* of C */
    size_t column, columns; /* of C; at most one B panel */
    size_t from, depth;     /* the range of k */
    /* op(A)[row + r][from + p] is at a[r * a_row + p * a_step] for the rows of
     * the first tile, and a_tile floats further for each next tile. */
    const float *a;
    size_t a_row, a_step, a_tile;
    float *b; /* memory for the B panel, aligned to BT_ALIGN */
    /* The panel that will be packed next, to prefetch it; depth 0: unknown. */
    size_t next_column, next_from, next_depth;
} bt_gemm_block;

typedef struct bt_gemm_tiles {
    size_t rows;      /* of a register tile, and so of the panels of A */
    size_t columns;   /* of a block: one or more tiles */
    size_t pack_rows; /* rows that pack_a packs at once: some panels */
    size_t depth;     /* maximum depth of a panel */
    size_t part;      /* preferred number of floats in a thread's rows of A */
    /* Rows of A that are a multiple of so many floats apart are packed, because
     * they share sets of the L1 cache; 0: they are read in place. */
    size_t aliased;
    /* Pack some rows, pack_rows at most, into panels that are `stride` floats
     * apart. */
    void (*pack_a)(float *to, size_t stride, const bt_gemm *gemm, size_t row,
                   size_t rows, size_t from, size_t depth);
    /* Pack a panel of B and continue the chains of a block of C over its range
     * of k. The last range also runs the epilogue. */
    void (*multiply)(const bt_gemm *gemm, const bt_gemm_block *block);
} bt_gemm_tiles;

#endif
