/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - the matrix product for AVX2 and AVX-512, one body for both.
 *
 * Lanes are columns of C everywhere, so each lane holds the chain of one
 * element.
 *
 * A register tile is 8 rows by 3 vectors with AVX-512 (8 x 48), 24 accumulators
 * of 32 registers, and 6 rows by 2 vectors with AVX2 (6 x 16), 12 of 16. One
 * step of k takes 11 loads for 24 fused multiply-adds, or 8 for 12, so the FMA
 * units are the limit. With AVX2 the steps of whole tiles are in assembly. */
#ifndef BT_GEMM_X86_H
#define BT_GEMM_X86_H

#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/x86/activations.h"
#include "backend/cpu/kernels/x86/packed_weight.h"
#include "backend/cpu/kernels/x86/simd.h"
#include "backend/cpu/kernels/x86/tile.h"
#include "backend/cpu/kernels/x86/x86.h"
#include "base/size.h"

#include <string.h>

enum {
    TILE_ROWS = VL == 16 ? 8 : 6,
    TILE_VECTORS = VL == 16 ? 3 : 2,
    TILE_COLUMNS = TILE_VECTORS * VL,
    /* Columns of a block. The narrow tiles of AVX2 come in pairs, so that rows
     * of A are read from the L2 cache half as often, and those of C as two
     * cache lines. */
    BLOCK_PANELS = VL == 16 ? 1 : 2,
    BLOCK_COLUMNS = BLOCK_PANELS * TILE_COLUMNS,
    PACK_PANELS = 8,    /* of A that pack_a packs at once */
    PREFETCH_ROWS = 16, /* prefetch distance in rows of memory */
    /* B panels of this depth stay in the L2 cache, 96 KiB with AVX-512, or in
     * the L1 cache, 24 KiB each with AVX2. */
    DEPTH = VL == 16 ? 512 : 384,
    PART_FLOATS = 1 << 18, /* of a thread's rows of A: 1 MiB of its L2 cache */
    PACK_AHEAD = 32,       /* floats of a panel of A prefetched for writing */
    LINE_FLOATS = LINE / sizeof(float),
    STEPS = 8,    /* of k between two prefetched lines */
    ACT_ROWS = 24 /* of C whose activations are applied together */
};

/* ---- Epilogue ---------------------------------------------------------- */

/* c += from. */
static void add_row(float *c, const float *from, size_t columns)
{
    for (size_t j = 0; j < columns; j += VL) {
        size_t lanes = columns - j;
        vf s =
            vf_add(vf_load_lanes(c + j, lanes), vf_load_lanes(from + j, lanes));
        vf_store_lanes(c + j, s, lanes);
    }
}

/* c *= by. */
static void scale_row(float *c, const float *by, size_t columns)
{
    for (size_t j = 0; j < columns; j += VL) {
        size_t lanes = columns - j;
        vf s =
            vf_mul(vf_load_lanes(c + j, lanes), vf_load_lanes(by + j, lanes));
        vf_store_lanes(c + j, s, lanes);
    }
}

static bool scaled(const bt_gemm *g)
{
    return g->packed && g->packed->scales;
}

static void epilogue_row(const bt_gemm *g, size_t row, size_t column,
                         size_t columns)
{
    float *c = g->c + row * g->ldc + column;
    if (scaled(g))
        scale_row(c, g->packed->scales + column, columns);
    if (g->bias)
        add_row(c, g->bias + column, columns);
}

/* Run the epilogue on a block of C whose chains are complete. */
static void epilogue(const bt_gemm *g, size_t row, size_t rows, size_t column,
                     size_t columns)
{
    if (!scaled(g) && !g->bias)
        return;
    for (size_t i = row; i < row + rows; i++)
        epilogue_row(g, i, column, columns);
}

/* The activations of some tiles of C that are complete, while they are in the
 * cache. Those of one tile alone would wait for its last steps. */
typedef struct act_tile {
    size_t rows, columns, stride; /* of all three matrices */
    float *c, *pre;
    const float *slope;
} act_tile;

INLINE void apply_act(const act_tile *t, vf (*const function)(vf))
{
    for (size_t i = 0; i < t->rows; i++)
        for (size_t j = 0; j < t->columns; j += VL) {
            size_t at = i * t->stride + j, lanes = t->columns - j;
            vf x = vf_load_lanes(t->c + at, lanes);
            if (t->pre)
                vf_store_lanes(t->pre + at, x, lanes);
            vf_store_lanes(t->c + at, function(x), lanes);
        }
}

INLINE void apply_slope(const act_tile *t, vf (*const function)(vf))
{
    for (size_t i = 0; i < t->rows; i++)
        for (size_t j = 0; j < t->columns; j += VL) {
            size_t at = i * t->stride + j, lanes = t->columns - j;
            vf x = function(vf_load_lanes(t->slope + at, lanes));
            x = vf_mul(x, vf_load_lanes(t->c + at, lanes));
            vf_store_lanes(t->c + at, x, lanes);
        }
}

#define APPLY_ACT(function) apply_act(&t, function)
#define APPLY_SLOPE(function) apply_slope(&t, function)

static void act_epilogue(const bt_gemm *g, size_t row, size_t rows,
                         size_t column, size_t columns)
{
    size_t at = row * g->ldc + column;
    act_tile t = { .rows = rows,
                   .columns = columns,
                   .stride = g->ldc,
                   .c = g->c + at,
                   .pre = g->pre ? g->pre + at : NULL,
                   .slope = g->slope ? g->slope + at : NULL };
    if (g->slope)
        ACT_SWITCH(g->act, _grad, APPLY_SLOPE)
    else
        ACT_SWITCH(g->act, , APPLY_ACT)
}

/* ---- Packing ----------------------------------------------------------- */

/* Destination of packed vectors of B: TILE_COLUMNS floats from one k to the
 * next. */
INLINE void pack_store(float *to, size_t p, size_t v, vf x)
{
    vf_store(to + p * TILE_COLUMNS + v * VL, x);
}

/* Columns of B that are contiguous in memory. */
static void pack_copied(float *to, const float *from, size_t stride,
                        size_t lanes, size_t depth)
{
    if (lanes < TILE_COLUMNS) {
        for (size_t p = 0; p < depth; p++, from += stride)
            for (size_t v = 0; v * VL < lanes; v++)
                pack_store(to, p, v,
                           vf_load_lanes(from + v * VL, lanes - v * VL));
        return;
    }
    for (size_t p = 0; p < depth; p++, from += stride)
        UNROLLED_FOR (size_t v = 0; v < TILE_VECTORS; v++) {
            prefetch(from + PREFETCH_ROWS * stride + v * VL);
            pack_store(to, p, v, vf_load(from + v * VL));
        }
}

/* vf_load_transposed() of fewer rows or columns; the others are zero. */
static void load_partial(vf x[16], const float *from, size_t stride,
                         size_t rows, size_t columns)
{
    float block[VL * 16] = { 0 };
    for (size_t r = 0; r < VL && r < rows; r++)
        for (size_t p = 0; p < 16 && p < columns; p++)
            block[r * 16 + p] = from[r * stride + p];
    vf_load_transposed(x, block, 16);
}

/* One vector of lanes that are rows of memory, with k along the rows. */
INLINE void pack_rows_of(float *to, size_t v, const float *from, size_t stride,
                         size_t lanes, size_t depth)
{
    vf x[16];
    size_t p = 0;
    for (; lanes >= VL && p + 16 <= depth; p += 16) {
        UNROLLED_FOR (size_t r = 0; r < VL; r++)
            prefetch(from + r * stride + p + 8 * LINE / sizeof(float));
        vf_load_transposed(x, from + p, stride);
        UNROLLED_FOR (size_t q = 0; q < 16; q++)
            pack_store(to, p + q, v, x[q]);
    }
    for (; p < depth; p += 16) {
        load_partial(x, from + p, stride, lanes, depth - p);
        for (size_t q = 0; q < 16 && p + q < depth; q++)
            pack_store(to, p + q, v, x[q]);
    }
}

static void pack_transposed(float *to, const float *from, size_t stride,
                            size_t lanes, size_t depth)
{
    for (size_t v = 0; v < TILE_VECTORS && v * VL < lanes; v++)
        pack_rows_of(to, v, from + v * VL * stride, stride, lanes - v * VL,
                     depth);
}

/* Copy the rows of one step of k to each panel. Eight floats are copied for a
 * panel, of which the next step overwrites those that are not its rows; the
 * last step writes to the padding that follows the panel. */
INLINE void pack_step(float *to, size_t stride, const float *from,
                      const size_t panels)
{
    UNROLLED_FOR (size_t v = 0; v < panels; v++)
        _mm256_storeu_ps(to + v * stride,
                         _mm256_loadu_ps(from + v * TILE_ROWS));
}

/* Rows as they are in memory, `depth` floats from one to the next. */
static void pack_copied_rows(float *to, size_t stride, const bt_gemm *g,
                             size_t row, size_t rows, size_t from, size_t depth)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i / TILE_ROWS * stride + i % TILE_ROWS * depth,
               g->a + (row + i) * g->lda + from, depth * sizeof(float));
}

static void pack_a(float *to, size_t stride, const bt_gemm *g, size_t row,
                   size_t rows, size_t from, size_t depth)
{
    if (!g->trans_a) {
        pack_copied_rows(to, stride, g, row, rows, from, depth);
        return;
    }
    const float *a = g->a + from * g->lda + row;
    size_t left = g->m - row; // pack_step() reads 8 rows for each panel
    size_t whole = left < 8 ? 0 : (left - 8) / TILE_ROWS + 1;
    whole = bt_size_min(whole, rows / TILE_ROWS);
    if (whole >= PACK_PANELS) {
        for (size_t p = 0; p < depth; p++, a += g->lda, to += TILE_ROWS) {
            UNROLLED_FOR (size_t i = 0; i < PACK_PANELS * TILE_ROWS; i += 16)
                prefetch(a + PREFETCH_ROWS * g->lda + i);
            UNROLLED_FOR (size_t v = 0; v < PACK_PANELS; v++)
                prefetch_write(to + v * stride + PACK_AHEAD);
            pack_step(to, stride, a, PACK_PANELS);
        }
        return;
    }
    for (size_t p = 0; p < depth; p++, a += g->lda, to += TILE_ROWS) {
        for (size_t v = 0; v < whole; v++)
            pack_step(to + v * stride, 0, a + v * TILE_ROWS, 1);
        for (size_t i = whole * TILE_ROWS; i < rows; i++)
            to[i / TILE_ROWS * stride + i % TILE_ROWS] = a[i];
    }
}

/* The address of op(B)[from][column]. */
static const float *source_b(const bt_gemm *g, size_t column, size_t from)
{
    return g->b +
           (g->trans_b ? column * g->ldb + from : from * g->ldb + column);
}

/* A panel of packed weights as float32. A vector never spans two of their
 * panels. */
static void pack_widened(float *to, const bt_packed_weight *packed,
                         size_t column, size_t from, size_t depth)
{
    for (size_t v = 0; v < TILE_VECTORS; v++) {
        size_t output = column + v * VL;
        if (output < packed->outputs)
            widen_columns(to + v * VL, TILE_COLUMNS, packed, output, from,
                          depth);
    }
}

static void pack_b(float *to, const bt_gemm *g, size_t column, size_t from,
                   size_t depth)
{
    if (g->packed) {
        pack_widened(to, g->packed, column, from, depth);
        return;
    }
    const float *b = source_b(g, column, from);
    if (g->trans_b)
        pack_transposed(to, b, g->ldb, g->n - column, depth);
    else
        pack_copied(to, b, g->ldb, g->n - column, depth);
}

/* ---- Prefetching the next panel ---------------------------------------- */

/* The cache lines that the next packing of B will read. They are prefetched one
 * by one while tiles compute, so that packing finds them in the L2 cache: down
 * the rows of B's memory, then the next line of each row. */
typedef struct b_prefetch {
    const char *line; /* the next one, in the first row */
    size_t row, rows, stride;
    size_t lines; /* left in each row */
} b_prefetch;

static b_prefetch prefetch_begin(const bt_gemm *g, const bt_gemm_block *block)
{
    if (block->next_depth == 0 || g->packed)
        return (b_prefetch){ .lines = 0 };
    size_t columns = bt_size_min(BLOCK_COLUMNS, g->n - block->next_column);
    size_t depth = block->next_depth;
    const float *first = source_b(g, block->next_column, block->next_from);
    size_t skew = (uintptr_t)first % LINE;
    size_t bytes = (g->trans_b ? depth : columns) * sizeof(float);
    return (b_prefetch){ .line = (const char *)first - skew,
                         .rows = g->trans_b ? columns : depth,
                         .stride = g->ldb * sizeof(float),
                         .lines = (skew + bytes + LINE - 1) / LINE };
}

INLINE void prefetch_next(b_prefetch *next)
{
    if (next->lines == 0)
        return;
    prefetch(next->line + next->row * next->stride);
    if (++next->row == next->rows) {
        next->row = 0;
        next->line += LINE;
        next->lines--;
    }
}

/* ---- Register tiles ---------------------------------------------------- */

typedef struct tile_job {
    size_t depth;
    const float *a;      /* rows of A, as the block says */
    const float *next_c; /* the next rows of C; NULL: not to be prefetched */
    size_t next_pre;     /* bytes from C to what its epilogue uses; or 0 */
    const float *b; /* the panel, or B itself if its columns are contiguous */
    float *panel;   /* to be filled from B in passing; NULL: none */
    size_t a_row, a_step, b_step;
    const float *start; /* where the chains begin: C, or zeros */
    float *c;
    size_t start_stride, ldc;
    /* The epilogue, as far as it can run in registers; each may be NULL. */
    const float *scale, *bias;
    b_prefetch *next;
} tile_job;

static const float zeros[TILE_COLUMNS];

INLINE void tile_epilogue(vf s[TILE_ROWS][TILE_VECTORS], const size_t rows,
                          const size_t vectors, const tile_job *job)
{
    if (job->scale)
        UNROLLED_FOR (size_t j = 0; j < vectors; j++) {
            vf y = vf_load(job->scale + j * VL);
            UNROLLED_FOR (size_t i = 0; i < rows; i++)
                s[i][j] = vf_mul(s[i][j], y);
        }
    if (job->bias)
        UNROLLED_FOR (size_t j = 0; j < vectors; j++) {
            vf y = vf_load(job->bias + j * VL);
            UNROLLED_FOR (size_t i = 0; i < rows; i++)
                s[i][j] = vf_add(s[i][j], y);
        }
}

/* The operands of a tile at the current step of k. */
typedef struct tile_at {
    const float *a, *b;
    float *panel;
    size_t a_step, b_step;
    size_t rows[TILE_ROWS]; /* floats from the first row of A to each */
} tile_at;

/* One step of the chains. The vectors of B and the pointers are kept in
 * registers: folded into each fused multiply-add, the loads would be more than
 * two a cycle. */
INLINE void tile_step(vf s[TILE_ROWS][TILE_VECTORS], const size_t rows,
                      const size_t vectors, const bool fill, tile_at *at)
{
    vf x[TILE_VECTORS];
    UNROLLED_FOR (size_t j = 0; j < vectors; j++) {
        x[j] = vf_load(at->b + j * VL);
        KEEP_VECTOR(x[j]);
        if (fill) {
            prefetch(at->b + PREFETCH_ROWS * at->b_step + j * VL);
            vf_store(at->panel + j * VL, x[j]);
        }
    }
    UNROLLED_FOR (size_t i = 0; i < rows; i++) {
        vf y = vf_set(at->a[at->rows[i]]);
        UNROLLED_FOR (size_t j = 0; j < vectors; j++)
            s[i][j] = vf_fma(y, x[j], s[i][j]);
    }
    at->a += at->a_step;
    at->b += at->b_step;
    KEEP(at->a);
    KEEP(at->b);
    if (fill)
        at->panel += TILE_COLUMNS;
}

/* How a tile takes its steps: one by one, or STEPS at once in assembly. */
typedef enum steps_kind {
    STEPS_SINGLE,
    STEPS_IN_PLACE, /* A in place and a panel of B */
    STEPS_WEIGHTS,  /* A in place and float32 weights that are packed already */
    STEPS_PACKED    /* a panel of A and a panel of B */
} steps_kind;

#if defined(__AVX512F__)

INLINE void take_steps_at_once(vf s[TILE_ROWS][TILE_VECTORS],
                               const steps_kind kind, const float *a,
                               size_t row, const float *b)
{
    (void)s;
    (void)kind;
    (void)a;
    (void)row;
    (void)b;
}

#else

_Static_assert(STEPS == 8 && TILE_ROWS == 6 && TILE_COLUMNS == 16 &&
                   BT_PANEL_COLUMNS == 48,
               "the assembly has these constants");

INLINE void take_steps_at_once(vf s[TILE_ROWS][TILE_VECTORS],
                               const steps_kind kind, const float *a,
                               size_t row, const float *b)
{
    const float *a3 = a + 3 * row;
    row *= sizeof(float);
    if (kind == STEPS_IN_PLACE)
        __asm__ volatile(TILE_EIGHT_STEPS(TILE_STEP_IN_PLACE, 64)
                         : TILE_SUMS(s)
                         : [a] "r"(a), [a3] "r"(a3), [row] "r"(row), [b] "r"(b)
                         : TILE_CLOBBERS);
    else if (kind == STEPS_WEIGHTS)
        __asm__ volatile(TILE_EIGHT_STEPS(TILE_STEP_IN_PLACE, 192)
                         : TILE_SUMS(s)
                         : [a] "r"(a), [a3] "r"(a3), [row] "r"(row), [b] "r"(b)
                         : TILE_CLOBBERS);
    else
        __asm__ volatile(TILE_EIGHT_STEPS(TILE_STEP_PACKED, 64)
                         : TILE_SUMS(s)
                         : [a] "r"(a), [b] "r"(b)
                         : TILE_CLOBBERS);
}

#endif

/* Continue the chains of rows x vectors * VL elements of C. With `fill`, also
 * copy B to the panel. */
INLINE void tile(const size_t rows, const size_t vectors, const bool fill,
                 const steps_kind kind, const tile_job *job)
{
    vf s[TILE_ROWS][TILE_VECTORS];
    const float *start = job->start, *next_c = job->next_c;
    size_t next_pre = job->next_pre;
    float *c = job->c;
    tile_at at = { .a = job->a,
                   .b = job->b,
                   .panel = job->panel,
                   .a_step = job->a_step,
                   .b_step = job->b_step };
    UNROLLED_FOR (size_t i = 0; i < rows; i++) {
        at.rows[i] = i * job->a_row;
        if (VL == 8 && i) // AVX-512 has more rows than index registers
            KEEP(at.rows[i]);
    }
    UNROLLED_FOR (size_t i = 0; i < rows; i++)
        UNROLLED_FOR (size_t j = 0; j < vectors; j++)
            s[i][j] = vf_load(start + i * job->start_stride + j * VL);
    size_t p = 0;
    for (; p + STEPS <= job->depth; p += STEPS) {
        prefetch_next(job->next);
        // A row at a time: all at once, they would fill the queue of misses
        // and delay the tile. Into L2, because rows a multiple of 4 KiB apart
        // share a set of L1, which has too few ways for those of two tiles.
        if (next_c && p < STEPS * TILE_ROWS) {
            UNROLLED_FOR (size_t j = 0; j < BLOCK_COLUMNS; j += LINE_FLOATS)
                prefetch(next_c + j);
            if (next_pre)
                UNROLLED_FOR (size_t j = 0; j < BLOCK_COLUMNS; j += LINE_FLOATS)
                    prefetch((const char *)(next_c + j) + next_pre);
            next_c += job->ldc;
        }
        if (kind != STEPS_SINGLE) {
            take_steps_at_once(s, kind, at.a, job->a_row, at.b);
            at.a += STEPS * at.a_step;
            at.b += STEPS * at.b_step;
            continue;
        }
        UNROLLED_FOR (size_t q = 0; q < STEPS; q++)
            tile_step(s, rows, vectors, fill, &at);
    }
    for (; p < job->depth; p++)
        tile_step(s, rows, vectors, fill, &at);
    tile_epilogue(s, rows, vectors, job);
    UNROLLED_FOR (size_t i = 0; i < rows; i++)
        UNROLLED_FOR (size_t j = 0; j < vectors; j++)
            vf_store(c + i * job->ldc + j * VL, s[i][j]);
}

typedef void tile_fn(const tile_job *job);

#define TILE(rows, vectors)                                  \
    static void tile_##rows##x##vectors(const tile_job *job) \
    {                                                        \
        tile(rows, vectors, false, STEPS_SINGLE, job);       \
    }

/* The tiles of some rows: tiles_<rows>[vectors - 1]. */
#if defined(__AVX512F__)
#define TILES(rows)                                                       \
    TILE(rows, 1)                                                         \
    TILE(rows, 2)                                                         \
    TILE(rows, 3)                                                         \
    static tile_fn *const tiles_##rows[TILE_VECTORS] = { tile_##rows##x1, \
                                                         tile_##rows##x2, \
                                                         tile_##rows##x3 }
#else
#define TILES(rows)                                                       \
    TILE(rows, 1)                                                         \
    TILE(rows, 2)                                                         \
    static tile_fn *const tiles_##rows[TILE_VECTORS] = { tile_##rows##x1, \
                                                         tile_##rows##x2 }
#endif

TILES(1);
TILES(2);
TILES(3);
TILES(4);
TILES(5);
TILES(6);
#if defined(__AVX512F__)
TILES(7);
TILES(8);
#endif

static tile_fn *const *const tiles[TILE_ROWS] = {
    tiles_1, tiles_2, tiles_3, tiles_4, tiles_5, tiles_6,
#if defined(__AVX512F__)
    tiles_7, tiles_8,
#endif
};

/* A tile that packs B in passing: its load units have time to spare. */
static void tile_fill(const tile_job *job)
{
    tile(TILE_ROWS, TILE_VECTORS, true, STEPS_SINGLE, job);
}

/* The same with one vector less. */
static void tile_fill_narrow(const tile_job *job)
{
    tile(TILE_ROWS, TILE_VECTORS - 1, true, STEPS_SINGLE, job);
}

#if defined(__AVX512F__)

static tile_fn *whole_tile(const tile_job *job)
{
    return job->panel ? tile_fill : tile_8x3;
}

#else

static void tile_in_place(const tile_job *job)
{
    tile(TILE_ROWS, TILE_VECTORS, false, STEPS_IN_PLACE, job);
}

static void tile_packed(const tile_job *job)
{
    tile(TILE_ROWS, TILE_VECTORS, false, STEPS_PACKED, job);
}

static void tile_weights(const tile_job *job)
{
    tile(TILE_ROWS, TILE_VECTORS, false, STEPS_WEIGHTS, job);
}

/* The tile whose assembly has the job's distances from one k to the next. */
static tile_fn *whole_tile(const tile_job *job)
{
    if (job->panel)
        return tile_fill;
    if (job->a_step == TILE_ROWS && job->b_step == TILE_COLUMNS)
        return tile_packed;
    if (job->a_step == 1 && job->b_step == TILE_COLUMNS)
        return tile_in_place;
    if (job->a_step == 1 && job->b_step == BT_PANEL_COLUMNS)
        return tile_weights;
    return tile_6x2;
}

#endif

static void copy_rows(float *to, size_t to_stride, const float *from,
                      size_t stride, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j += VL)
            vf_store_lanes(to + i * to_stride + j,
                           vf_load_lanes(from + i * stride + j, columns - j),
                           columns - j);
}

/* A tile whose last vector extends beyond C works on a copy. */
static void run_border_tile(tile_fn *run, tile_job job, size_t rows,
                            size_t columns)
{
    float copy[TILE_ROWS * TILE_COLUMNS] = { 0 };
    float *c = job.c;
    size_t ldc = job.ldc;
    job.c = copy;
    job.ldc = TILE_COLUMNS;
    if (job.start != zeros) {
        copy_rows(copy, TILE_COLUMNS, c, ldc, rows, columns);
        job.start = copy;
        job.start_stride = TILE_COLUMNS;
    }
    run(&job);
    copy_rows(c, ldc, copy, TILE_COLUMNS, rows, columns);
}

/* Run one panel of A against the panel of B. */
static void run_tile(const tile_job *job, size_t rows, size_t columns)
{
    size_t vectors = (columns + VL - 1) / VL;
    tile_fn *run = tiles[rows - 1][vectors - 1];
    if (rows == TILE_ROWS && columns == TILE_COLUMNS)
        whole_tile(job)(job);
    else if (job->panel)
        tile_fill_narrow(job);
    else if (columns % VL == 0)
        run(job);
    else
        run_border_tile(run, *job, rows, columns);
}

/* A panel of B for one tile of columns. */
typedef struct b_panel {
    const float *at;
    size_t step;            /* floats from one k to the next */
    size_t column, columns; /* of C */
    float *fill; /* filled from B by the first tile; NULL: complete */
} b_panel;

/* Panel i of the block: packed now, unless the first tile does it in passing or
 * the weights are packed as float32 already. */
static b_panel panel_of(const bt_gemm *g, const bt_gemm_block *block, size_t i)
{
    size_t column = block->column + i * TILE_COLUMNS;
    size_t end = block->column + block->columns;
    b_panel p = { .at = block->b + i * TILE_COLUMNS * block->depth,
                  .step = TILE_COLUMNS,
                  .column = column,
                  .columns = bt_size_min(TILE_COLUMNS, end - column) };
    float *to = block->b + i * TILE_COLUMNS * block->depth;
    if (g->packed && g->packed->type == BAUTA_FLOAT32) {
        p.at = (const float *)panel_at(g->packed, column, block->from);
        p.step = BT_PANEL_COLUMNS;
    } else if (!g->packed && !g->trans_b && block->rows >= TILE_ROWS &&
               (p.columns == TILE_COLUMNS || p.columns == TILE_COLUMNS - VL)) {
        p.fill = to;
    } else {
        pack_b(to, g, column, block->from, block->depth);
    }
    return p;
}

/* Run one tile: the rows of A that the job has with a panel of B. */
static void multiply_tile(tile_job *job, const bt_gemm *g,
                          const bt_gemm_block *block, b_panel *p, size_t row,
                          size_t rows)
{
    bool last = block->from + block->depth == g->k;
    // Not if a vector extends beyond C: scale and bias end there.
    bool ended = last && p->columns % VL == 0;
    job->c = g->c + row * g->ldc + p->column;
    job->start = job->start_stride ? job->c : zeros;
    job->b = p->fill ? source_b(g, p->column, block->from) : p->at;
    job->b_step = p->fill ? g->ldb : p->step;
    job->panel = p->fill;
    job->scale = ended && scaled(g) ? g->packed->scales + p->column : NULL;
    job->bias = ended && g->bias ? g->bias + p->column : NULL;
    run_tile(job, rows, p->columns);
    p->fill = NULL;
    if (last && !ended)
        epilogue(g, row, rows, p->column, p->columns);
}

/* The number of tiles that prefetch the next panels. */
static size_t prefetching_tiles(const b_prefetch *next, size_t depth)
{
    return next->lines * next->rows / bt_size_max(depth / STEPS, 1) + 1;
}

/* Bytes from C to the matrix that its epilogue reads or writes beside it, for
 * prefetching; 0: there is none. */
static size_t pre_distance(const bt_gemm *g)
{
    const float *pre = g->slope ? g->slope : g->pre;
    return pre ? (size_t)((uintptr_t)pre - (uintptr_t)g->c) : 0;
}

/* Prefetch a part of the next panel of float32 weights. Tiles of AVX-512 read
 * them in place, faster than the processor finds the next lines. */
static void prefetch_weights(const bt_gemm *g, const bt_gemm_block *block,
                             size_t row, size_t rows)
{
    bool panels = g->packed && g->packed->type == BAUTA_FLOAT32 &&
                  (int)BLOCK_COLUMNS == BT_PANEL_COLUMNS;
    if (!panels)
        return;
    size_t lines = block->next_depth * BLOCK_COLUMNS / LINE_FLOATS;
    const char *line =
        panel_at(g->packed, block->next_column, block->next_from);
    size_t first = (row - block->row) * lines / block->rows;
    size_t end = (row - block->row + rows) * lines / block->rows;
    for (size_t i = first; i < end; i++)
        prefetch(line + i * LINE);
}

static void multiply(const bt_gemm *g, const bt_gemm_block *block)
{
    b_panel panels[BLOCK_PANELS] = { 0 };
    size_t end = block->row + block->rows, count = 0;
    b_prefetch next = prefetch_begin(g, block), none = { .lines = 0 };
    size_t late = prefetching_tiles(&next, block->depth);
    tile_job job = {
        .depth = block->depth,
        .a = block->a,
        .a_row = block->a_row,
        .a_step = block->a_step,
        .start_stride = g->add || block->from > 0 ? g->ldc : 0,
        .ldc = g->ldc,
        .next_pre = pre_distance(g),
    };
    bool acts = g->has_act && block->from + block->depth == g->k;
    size_t acted = block->row; // rows before it have their activations
    for (; count * TILE_COLUMNS < block->columns; count++)
        panels[count] = panel_of(g, block, count);
    for (size_t row = block->row; row < end; row += TILE_ROWS) {
        size_t rows = bt_size_min(TILE_ROWS, end - row);
        size_t below = bt_size_min(TILE_ROWS, end - row - rows);
        float *c = g->c + row * g->ldc + block->column;
        // Earlier, the rest of A would displace it from the L2 cache.
        bool soon = (end - row) / TILE_ROWS * count <= late + count;
        job.next = soon ? &next : &none;
        prefetch_weights(g, block, row, rows);
        for (size_t i = 0; i < count; i++) {
            job.next_c = i == 0 && below ? c + rows * g->ldc : NULL;
            multiply_tile(&job, g, block, &panels[i], row, rows);
        }
        job.a += block->a_tile;
        if (acts && (row + rows - acted >= ACT_ROWS || row + rows == end)) {
            act_epilogue(g, acted, row + rows - acted, block->column,
                         block->columns);
            acted = row + rows;
        }
    }
}

#endif
