/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_columns.h - products of few rows, for AVX2 and AVX-512: columns of C
 * directly from the operands, since all that counts is to read B once. */
#ifndef BT_GEMM_COLUMNS_X86_H
#define BT_GEMM_COLUMNS_X86_H

#include "backend/cpu/kernels/x86/gemm.h"

enum {
    DIRECT_ROWS = 16,     /* rows computed in one pass over B */
    DIRECT_LANES = 16,    /* columns computed together */
    DIRECT_FLOATS = 4096, /* of C, which stay in the L1 cache meanwhile */
    FOLD_STEPS = 8        /* rows of B that are added to C at once */
};

/* The sums of up to DIRECT_ROWS rows and DIRECT_LANES columns. */
typedef float sums[DIRECT_ROWS][DIRECT_LANES];

/* Sixteen steps of the chains of one vector of columns. */
INLINE void take_steps(sums s, size_t v, size_t rows, source a, size_t p,
                       const vf x[16])
{
    for (size_t i = 0; i < rows; i++) {
        const float *y = a.at + i * a.row + p * a.step;
        vf t = vf_load(s[i] + v * VL);
        UNROLLED_FOR (size_t q = 0; q < 16; q++)
            t = vf_fma(vf_set(y[q * a.step]), x[q], t);
        vf_store(s[i] + v * VL, t);
    }
}

/* Prefetch the same line of VL rows. */
INLINE void prefetch_lines(const float *from, size_t stride)
{
    UNROLLED_FOR (size_t r = 0; r < VL; r++)
        prefetch(from + r * stride);
}

/* Steps [p, p + 16) of the chains of one vector of columns that are rows of B's
 * memory. Whole lines are read, so conflicts in the cache do not matter. */
INLINE void chain_lines(sums s, const bt_gemm *g, size_t rows, source a,
                        size_t column, size_t v, size_t p, bool more)
{
    const float *b = g->b + (column + v * VL) * g->ldb + p;
    vf x[16];
    if (more)
        prefetch_lines(b + DIRECT_LANES * g->ldb, g->ldb);
    vf_load_transposed(x, b, g->ldb);
    if (more)
        prefetch_lines(b + DIRECT_LANES * g->ldb, g->ldb);
    take_steps(s, v, rows, a, p, x);
}

/* The chains of up to DIRECT_LANES columns from step p on, one element at a
 * time. */
static void chain_rest(sums s, const bt_gemm *g, size_t rows, source a,
                       size_t column, size_t columns, size_t p)
{
    for (; p < g->k; p++)
        for (size_t j = 0; j < columns; j++)
            for (size_t i = 0; i < rows; i++)
                s[i][j] =
                    __builtin_fmaf(a.at[i * a.row + p * a.step],
                                   g->b[(column + j) * g->ldb + p], s[i][j]);
}

/* Some columns of C that are rows of B's memory. Blocks of B are transposed in
 * registers while the next columns are prefetched (`more`: they exist). */
static void columns_transposed(const bt_gemm *g, size_t row, size_t rows,
                               size_t column, size_t columns, bool more)
{
    sums s = { 0 };
    source a = source_of(g, row);
    float *c = g->c + row * g->ldc + column;
    size_t p = 0;
    if (g->add)
        copy_rows(s[0], DIRECT_LANES, c, g->ldc, rows, columns);
    if (columns == DIRECT_LANES)
        for (; p + 16 <= g->k; p += 16)
            UNROLLED_FOR (size_t v = 0; v < DIRECT_LANES / VL; v++)
                chain_lines(s, g, rows, a, column, v, p, more);
    chain_rest(s, g, rows, a, column, columns, p);
    copy_rows(c, g->ldc, s[0], DIRECT_LANES, rows, columns);
}

/* Some columns of C that are columns of B's memory too. */
typedef struct strip {
    const float *b;
    float *c;
    size_t ldb, ldc, columns;
    source a; /* at the strip's first row and the current step */
    bool add;
    bool more; /* prefetch the next rows of B */
} strip;

/* Add `steps` rows of B to `rows` rows of C, for the columns from j on, one
 * element at a time. */
static void fold_rest(const strip *s, size_t rows, size_t steps, size_t j)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t c = j; c < s->columns; c++) {
            float t = s->add ? s->c[i * s->ldc + c] : 0.0f;
            for (size_t q = 0; q < steps; q++)
                t = __builtin_fmaf(s->a.at[i * s->a.row + q * s->a.step],
                                   s->b[q * s->ldb + c], t);
            s->c[i * s->ldc + c] = t;
        }
}

/* Add `steps` rows of B, times elements of A, to `rows` rows of C. */
INLINE void fold(const strip *s, const size_t rows, const size_t steps)
{
    const size_t ldb = s->ldb, ldc = s->ldc, columns = s->columns;
    const bool add = s->add, more = s->more;
    vf y[4][FOLD_STEPS];
    size_t j = 0;
    UNROLLED_FOR (size_t i = 0; i < rows; i++)
        UNROLLED_FOR (size_t q = 0; q < steps; q++)
            y[i][q] = vf_set(s->a.at[i * s->a.row + q * s->a.step]);
    for (; j + VL <= columns; j += VL) {
        const float *b = s->b + j;
        float *c = s->c + j;
        vf t[4];
        UNROLLED_FOR (size_t i = 0; i < rows; i++)
            t[i] = add ? vf_load(c + i * ldc) : vf_set(0.0f);
        UNROLLED_FOR (size_t q = 0; q < steps; q++) {
            if (more) { // twice: a full queue drops prefetches
                prefetch(b + (q + 2 * steps) * ldb);
                prefetch(b + (q + steps) * ldb);
            }
            vf x = vf_load(b + q * ldb);
            UNROLLED_FOR (size_t i = 0; i < rows; i++)
                t[i] = vf_fma(y[i][q], x, t[i]);
        }
        UNROLLED_FOR (size_t i = 0; i < rows; i++)
            vf_store(c + i * ldc, t[i]);
    }
    fold_rest(s, rows, steps, j);
}

/* The same for all rows of C and at most FOLD_STEPS rows of B. */
static void fold_steps(strip s, size_t rows, size_t steps)
{
    size_t take;
    for (; rows; rows -= take) {
        if (steps < FOLD_STEPS) {
            take = 1;
            fold_rest(&s, 1, steps, 0);
        } else if (rows >= 4) {
            take = 4;
            fold(&s, 4, 8);
        } else if (rows >= 2) {
            take = 2;
            fold(&s, 2, 8);
        } else {
            take = 1;
            fold(&s, 1, 8);
        }
        s.a.at += take * s.a.row;
        s.c += take * s.ldc;
        s.more = false; // prefetched with the first rows
    }
}

static void columns_copied(const bt_gemm *g, size_t column, size_t columns)
{
    strip s = { .b = g->b + column,
                .c = g->c + column,
                .ldb = g->ldb,
                .ldc = g->ldc,
                .columns = columns,
                .a = source_of(g, 0),
                .add = g->add };
    for (size_t p = 0; p < g->k; p += FOLD_STEPS) {
        size_t steps = bt_size_min(FOLD_STEPS, g->k - p);
        s.more = p + 2 * FOLD_STEPS <= g->k;
        fold_steps(s, g->m, steps);
        s.a.at += FOLD_STEPS * s.a.step;
        s.b += FOLD_STEPS * s.ldb;
        s.add = true;
    }
    for (size_t i = 0; i < g->m && !s.add; i++) // k is 0
        for (size_t j = 0; j < columns; j++)
            s.c[i * s.ldc + j] = 0.0f;
}

/* How many columns are computed together. Long pieces of B's rows are read
 * faster than short ones. */
static size_t direct_columns(const bt_gemm *g)
{
    if (g->trans_b)
        return DIRECT_LANES;
    return bt_size_max(DIRECT_FLOATS / bt_size_max(g->m, 1) / VL, 16) * VL;
}

/* Packed weights, panel by panel; the first and the last may be partial. */
static void columns_packed(const bt_gemm *g, size_t first, size_t count)
{
    size_t end = first + count;
    if (g->m == 1 && first % BT_PANEL_COLUMNS == 0) {
        row_product(g, first, end);
        return;
    }
    for (size_t j = first, n; j < end; j += n) {
        n = bt_size_min(BT_PANEL_COLUMNS - j % BT_PANEL_COLUMNS, end - j);
        panel_product(g, j, n);
        epilogue(g, 0, g->m, j, n);
    }
}

static void columns(const bt_gemm *g, size_t first, size_t count)
{
    size_t end = first + count, width = direct_columns(g);
    if (g->packed) {
        columns_packed(g, first, count);
        return;
    }
    for (size_t j = first; j < end; j += width) {
        size_t n = bt_size_min(width, end - j);
        bool more = j + 2 * width <= end;
        for (size_t i = 0; g->trans_b && i < g->m; i += DIRECT_ROWS)
            columns_transposed(g, i, bt_size_min(DIRECT_ROWS, g->m - i), j, n,
                               i == 0 && more);
        if (!g->trans_b)
            columns_copied(g, j, n);
        epilogue(g, 0, g->m, j, n);
    }
}

#endif
