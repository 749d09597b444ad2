/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_x86.h - the matrix product for AVX2 and AVX-512, one body for both.
 *
 * Include simd_avx2.h or simd_avx512.h first. Lanes run along the columns of C
 * everywhere, so each lane is one element's chain.
 *
 * A register tile is W/2 rows by 3 vectors: 24 accumulators of 32 registers
 * with AVX-512 (8 x 48), 12 of 16 with AVX2 (4 x 24). One step of k then takes
 * three loads and W/2 broadcasts for 3 W/2 fused multiply-adds, which leaves
 * the multipliers as the only limit even if B streams from the second-level
 * cache. */
#ifndef BT_GEMM_X86_H
#define BT_GEMM_X86_H

#include "base/size.h"
#include "kernels/gemm.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    TILE_ROWS = W / 2,
    TILE_VECTORS = 3,
    TILE_COLUMNS = TILE_VECTORS * W,
    DEPTH = 512,      /* a B panel of this depth stays in the L2 cache */
    DIRECT_ROWS = 16, /* rows that share one reading of B */
    DIRECT_STEPS = 8, /* rows of B that are folded into C at once */
    DIRECT_COLUMNS = 512
};

/* ---- Borders ----------------------------------------------------------- */

INLINE vec load_lanes(const float *from, size_t lanes)
{
    return lanes >= W ? v_load(from) : v_load_first(from, lanes);
}

INLINE void store_lanes(float *to, vec x, size_t lanes)
{
    if (lanes >= W)
        v_store(to, x);
    else
        v_store_first(to, x, lanes);
}

/* x[p] = column p of the block at `from`, one lane a row: the transpose of up
 * to W x W floats. Lanes of rows that do not exist are zero. */
INLINE void load_transposed(vec x[W], const float *from, size_t stride,
                            size_t rows, size_t columns)
{
    UNROLLED_FOR (size_t r = 0; r < W; r++)
        x[r] = r < rows ? load_lanes(from + r * stride, columns) : v_zero();
    v_transpose(x);
}

/* ---- Epilogue ---------------------------------------------------------- */

INLINE vec activate(bt_activation activation, vec s)
{
    return activation == BT_ACTIVATION_RELU ? v_relu(s) : s;
}

static void epilogue_row(const bt_gemm *g, size_t row, size_t column,
                         size_t columns)
{
    float *c = g->c + row * g->ldc + column;
    const float *bias = g->bias ? g->bias + column : NULL;
    const float *residual =
        g->residual ? g->residual + row * g->ldr + column : NULL;
    for (size_t j = 0; j < columns; j += W) {
        size_t lanes = columns - j;
        vec s = load_lanes(c + j, lanes);
        if (bias)
            s = v_add(s, load_lanes(bias + j, lanes));
        s = activate(g->activation, s);
        if (residual)
            s = v_add(s, load_lanes(residual + j, lanes));
        store_lanes(c + j, s, lanes);
    }
}

/* Finish a block of C whose chains are complete, while it is in the cache. */
static void epilogue(const bt_gemm *g, size_t row, size_t rows, size_t column,
                     size_t columns)
{
    if (!g->bias && !g->residual && g->activation == BT_ACTIVATION_NONE)
        return;
    for (size_t i = row; i < row + rows; i++)
        epilogue_row(g, i, column, columns);
}

/* ---- Packing ----------------------------------------------------------- */

/* One vector of a panel, or its two halves `half` floats apart: pack_a writes
 * two panels at once, pack_b one. */
INLINE void emit(float *to, size_t half, vec x)
{
    if (half == W / 2)
        v_store(to, x);
    else
        v_store_halves(to, to + half, x);
}

/* Lanes are contiguous in memory. */
INLINE void pack_copied(float *to, size_t step, size_t half, const float *from,
                        size_t stride, size_t lanes, size_t depth)
{
    if (lanes >= W)
        for (size_t p = 0; p < depth; p++)
            emit(to + p * step, half, v_load(from + p * stride));
    else
        for (size_t p = 0; p < depth; p++)
            emit(to + p * step, half, v_load_first(from + p * stride, lanes));
}

/* Lanes are rows of memory, and k runs along them. */
INLINE void pack_transposed(float *to, size_t step, size_t half,
                            const float *from, size_t stride, size_t lanes,
                            size_t depth)
{
    vec x[W];
    size_t p = 0;
    if (lanes >= W)
        for (; p + W <= depth; p += W) {
            load_transposed(x, from + p, stride, W, W);
            UNROLLED_FOR (size_t q = 0; q < W; q++)
                emit(to + (p + q) * step, half, x[q]);
        }
    for (; p < depth; p += W) {
        size_t steps = bt_size_min(W, depth - p);
        load_transposed(x, from + p, stride, lanes, steps);
        for (size_t q = 0; q < steps; q++)
            emit(to + (p + q) * step, half, x[q]);
    }
}

static void pack_a(float *to, size_t stride, const bt_gemm *g, size_t row,
                   size_t from, size_t depth)
{
    size_t rows = g->m - row;
    if (g->trans_a)
        pack_copied(to, TILE_ROWS, stride, g->a + from * g->lda + row, g->lda,
                    rows, depth);
    else
        pack_transposed(to, TILE_ROWS, stride, g->a + row * g->lda + from,
                        g->lda, rows, depth);
}

static void pack_b(float *to, const bt_gemm *g, size_t column, size_t from,
                   size_t depth)
{
    size_t end = bt_size_min(column + TILE_COLUMNS, g->n);
    for (size_t j = column; j < end; j += W, to += W)
        if (g->trans_b)
            pack_transposed(to, TILE_COLUMNS, W / 2, g->b + j * g->ldb + from,
                            g->ldb, end - j, depth);
        else
            pack_copied(to, TILE_COLUMNS, W / 2, g->b + from * g->ldb + j,
                        g->ldb, end - j, depth);
}

/* ---- Register tiles ---------------------------------------------------- */

/* Continue the chains of rows x (vectors * W) elements of C, of whose last
 * vector `lanes` lanes exist. */
INLINE void tile(const int rows, const int vectors, size_t depth,
                 const float *a, const float *b, float *c, size_t ldc,
                 size_t lanes, bool add)
{
    vec s[TILE_ROWS][TILE_VECTORS], x[TILE_VECTORS];
    const int last = vectors - 1;
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int j = 0; j < vectors; j++)
            s[i][j] = !add ? v_zero()
                           : load_lanes(c + (size_t)i * ldc + j * W,
                                        j == last ? lanes : W);
    for (size_t p = 0; p < depth; p++) {
        UNROLLED_FOR (int j = 0; j < vectors; j++)
            x[j] = v_load(b + j * W);
        UNROLLED_FOR (int i = 0; i < rows; i++) {
            vec y = v_all(a[i]);
            UNROLLED_FOR (int j = 0; j < vectors; j++)
                s[i][j] = v_fma(y, x[j], s[i][j]);
        }
        a += TILE_ROWS;
        b += TILE_COLUMNS;
    }
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int j = 0; j < vectors; j++)
            store_lanes(c + (size_t)i * ldc + j * W, s[i][j],
                        j == last ? lanes : W);
}

typedef void tile_fn(size_t depth, const float *a, const float *b, float *c,
                     size_t ldc, size_t lanes, bool add);

#define TILE(rows, vectors)                                                   \
    static void tile_##rows##x##vectors(size_t depth, const float *a,         \
                                        const float *b, float *c, size_t ldc, \
                                        size_t lanes, bool add)               \
    {                                                                         \
        tile(rows, vectors, depth, a, b, c, ldc, lanes, add);                 \
    }

/* The tiles of some rows: tiles_<rows>[vectors - 1]. */
#define TILES(rows)                                                       \
    TILE(rows, 1)                                                         \
    TILE(rows, 2)                                                         \
    TILE(rows, 3)                                                         \
    static tile_fn *const tiles_##rows[TILE_VECTORS] = { tile_##rows##x1, \
                                                         tile_##rows##x2, \
                                                         tile_##rows##x3 }

TILES(1);
TILES(2);
TILES(3);
TILES(4);
#if W == 16
TILES(5);
TILES(6);
TILES(7);
TILES(8);
#endif

static tile_fn *const *const tiles[TILE_ROWS] = {
    tiles_1, tiles_2, tiles_3, tiles_4,
#if W == 16
    tiles_5, tiles_6, tiles_7, tiles_8,
#endif
};

/* Ask for the rows of C that the next tile will continue. */
static void prefetch_rows(const float *c, size_t ldc, size_t rows,
                          size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j += 16)
            __builtin_prefetch(c + i * ldc + j, 1);
}

static void multiply(const bt_gemm *g, const bt_gemm_block *block)
{
    size_t end = block->row + block->rows;
    size_t vectors = (block->columns + W - 1) / W;
    size_t lanes = block->columns - (vectors - 1) * W;
    bool add = g->add || block->from > 0;
    const float *a = block->a;
    for (size_t row = block->row; row < end; row += TILE_ROWS) {
        size_t rows = bt_size_min(TILE_ROWS, end - row);
        size_t next = bt_size_min(TILE_ROWS, end - row - rows);
        float *c = g->c + row * g->ldc + block->column;
        prefetch_rows(c + rows * g->ldc, g->ldc, next, block->columns);
        tiles[rows - 1][vectors - 1](block->depth, a, block->b, c, g->ldc,
                                     lanes, add);
        if (block->from + block->depth == g->k)
            epilogue(g, row, rows, block->column, block->columns);
        a += block->a_stride;
    }
}

/* ---- Few rows ---------------------------------------------------------- */

/* Up to DIRECT_ROWS rows and W columns of C, where the columns are rows of B's
 * memory: blocks of W x W are transposed in registers, and each row of C takes
 * W steps of its chain from one block. */
static void columns_transposed(const bt_gemm *g, size_t row, size_t rows,
                               size_t column, size_t lanes)
{
    float sums[DIRECT_ROWS][W];
    const float *b = g->b + column * g->ldb;
    const float *a = g->a + row * (g->trans_a ? 1 : g->lda);
    size_t a_row = g->trans_a ? 1 : g->lda;
    size_t a_step = g->trans_a ? g->lda : 1;
    float *c = g->c + row * g->ldc + column;
    for (size_t i = 0; i < rows; i++)
        v_store(sums[i], g->add ? load_lanes(c + i * g->ldc, lanes) : v_zero());
    vec x[W];
    size_t p = 0;
    if (lanes >= W)
        for (; p + W <= g->k; p += W) {
            load_transposed(x, b + p, g->ldb, W, W);
            for (size_t i = 0; i < rows; i++) {
                const float *y = a + i * a_row + p * a_step;
                vec s = v_load(sums[i]);
                UNROLLED_FOR (size_t q = 0; q < W; q++)
                    s = v_fma(v_all(y[q * a_step]), x[q], s);
                v_store(sums[i], s);
            }
        }
    for (; p < g->k; p += W) {
        size_t steps = bt_size_min(W, g->k - p);
        load_transposed(x, b + p, g->ldb, lanes, steps);
        for (size_t i = 0; i < rows; i++) {
            const float *y = a + i * a_row + p * a_step;
            vec s = v_load(sums[i]);
            for (size_t q = 0; q < steps; q++)
                s = v_fma(v_all(y[q * a_step]), x[q], s);
            v_store(sums[i], s);
        }
    }
    for (size_t i = 0; i < rows; i++)
        store_lanes(c + i * g->ldc, v_load(sums[i]), lanes);
}

/* Fold `steps` rows of B into some columns of a row of C. */
INLINE void fold(float *c, const float *a, size_t a_step, const float *b,
                 size_t ldb, const int steps, size_t columns, bool add)
{
    vec y[DIRECT_STEPS];
    UNROLLED_FOR (int q = 0; q < steps; q++)
        y[q] = v_all(a[(size_t)q * a_step]);
    for (size_t j = 0; j < columns; j += W) {
        size_t lanes = columns - j;
        vec s = add ? load_lanes(c + j, lanes) : v_zero();
        UNROLLED_FOR (int q = 0; q < steps; q++)
            s = v_fma(y[q], load_lanes(b + (size_t)q * ldb + j, lanes), s);
        store_lanes(c + j, s, lanes);
    }
}

/* Some columns of C, where they are columns of B's memory too. */
static void columns_copied(const bt_gemm *g, size_t column, size_t columns)
{
    size_t a_row = g->trans_a ? 1 : g->lda;
    size_t a_step = g->trans_a ? g->lda : 1;
    size_t p = 0;
    for (; p + DIRECT_STEPS <= g->k; p += DIRECT_STEPS)
        for (size_t i = 0; i < g->m; i++)
            fold(g->c + i * g->ldc + column, g->a + i * a_row + p * a_step,
                 a_step, g->b + p * g->ldb + column, g->ldb, DIRECT_STEPS,
                 columns, g->add || p > 0);
    for (; p < g->k; p++)
        for (size_t i = 0; i < g->m; i++)
            fold(g->c + i * g->ldc + column, g->a + i * a_row + p * a_step,
                 a_step, g->b + p * g->ldb + column, g->ldb, 1, columns,
                 g->add || p > 0);
    if (g->k == 0 && !g->add)
        for (size_t i = 0; i < g->m; i++)
            for (size_t j = 0; j < columns; j++)
                g->c[i * g->ldc + column + j] = 0.0f;
}

static void columns(const bt_gemm *g, size_t first, size_t count)
{
    size_t end = first + count;
    size_t width = g->trans_b ? W : DIRECT_COLUMNS;
    for (size_t j = first; j < end; j += width) {
        size_t n = bt_size_min(width, end - j);
        if (g->trans_b)
            for (size_t i = 0; i < g->m; i += DIRECT_ROWS)
                columns_transposed(g, i, bt_size_min(DIRECT_ROWS, g->m - i), j,
                                   n);
        else
            columns_copied(g, j, n);
        epilogue(g, 0, g->m, j, n);
    }
}

#endif
