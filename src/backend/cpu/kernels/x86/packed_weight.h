/* SPDX-License-Identifier: Apache-2.0 */
/* packed_weight.h - products of few rows with packed weights, for AVX2 and
 * AVX-512.
 *
 * Several rows share each panel that is read and widened. One row takes up to
 * twelve vectors of outputs at once, from several panels: the chains of fewer
 * would wait for each other, and memory delivers two streams faster than one.
 */
#ifndef BT_PACKED_WEIGHT_X86_H
#define BT_PACKED_WEIGHT_X86_H

#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/x86/simd.h"
#include "base/size.h"

enum {
    LINE = 64, /* bytes of a cache line */
    PANEL_VECTORS = BT_PANEL_COLUMNS / VL,
    PANEL_ROWS = VL == 16 ? 8 : 4, /* rows that share a panel */
    PANEL_PART = 3,   /* vectors of it, if there are several rows */
    ROW_VECTORS = 12, /* that one row takes together, of adjacent panels */
    /* Prefetch distances in steps of k, 4 or 6 KiB. float32 needs none: the
     * hardware prefetcher keeps up. */
    BF16_AHEAD = 42,
    INT8_AHEAD = VL == 16 ? 85 : 128
};

/* op(A) in memory. */
typedef struct source {
    const float *at;
    size_t row, step; /* floats from row to row, and from k to k */
} source;

static source source_of(const bt_gemm *g, size_t row)
{
    if (g->trans_a)
        return (source){ g->a + row, 1, g->lda };
    return (source){ g->a + row * g->lda, g->lda, 1 };
}

/* ---- Widening ---------------------------------------------------------- */

#if defined(__AVX512F__)

INLINE vf vf_from_bf16(const uint16_t *x)
{
    __m256i half = _mm256_loadu_si256((const void *)x);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

INLINE vf vf_from_int8(const int8_t *x)
{
    __m128i bytes = _mm_loadu_si128((const void *)x);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

#else

INLINE vf vf_from_bf16(const uint16_t *x)
{
    __m128i half = _mm_loadu_si128((const void *)x);
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

INLINE vf vf_from_int8(const int8_t *x)
{
    __m128i bytes = _mm_loadl_epi64((const void *)x);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

#endif

INLINE vf widen(const bauta_dtype type, const char *from, size_t at)
{
    return type == BAUTA_FLOAT32    ? vf_load((const float *)from + at)
           : type == BAUTA_BFLOAT16 ? vf_from_bf16((const uint16_t *)from + at)
                                    : vf_from_int8((const int8_t *)from + at);
}

/* The address of an output's element for input `from`. */
INLINE const char *panel_at(const bt_packed_weight *c, size_t output,
                            size_t from)
{
    size_t at =
        (output / BT_PANEL_COLUMNS * c->inputs + from) * BT_PANEL_COLUMNS +
        output % BT_PANEL_COLUMNS;
    return (const char *)c->panels + at * bt_packed_element_size(c->type);
}

/* One vector of outputs over some inputs, as float32. */
INLINE void widen_along(const bauta_dtype type, float *to, size_t step,
                        const char *panel, size_t depth)
{
    for (size_t p = 0; p < depth; p++, to += step)
        vf_store(to, widen(type, panel, p * BT_PANEL_COLUMNS));
}

static void widen_columns(float *to, size_t step, const bt_packed_weight *c,
                          size_t output, size_t from, size_t depth)
{
    const char *panel = panel_at(c, output, from);
    if (c->type == BAUTA_FLOAT32)
        widen_along(BAUTA_FLOAT32, to, step, panel, depth);
    else if (c->type == BAUTA_BFLOAT16)
        widen_along(BAUTA_BFLOAT16, to, step, panel, depth);
    else
        widen_along(BAUTA_INT8, to, step, panel, depth);
}

/* ---- Few rows ---------------------------------------------------------- */

typedef struct panel_job {
    const char *panel; /* from the first vector on */
    size_t depth;
    source a;
    float *sums; /* (rows, BT_PANEL_COLUMNS) from the first vector on */
} panel_job;

/* Steps of k between the prefetch of a part of a panel and its use. */
INLINE size_t panel_ahead(const bauta_dtype type)
{
    return type == BAUTA_INT8 ? INT8_AHEAD : BF16_AHEAD;
}

/* Prefetch as much of a panel as one step of k reads. */
INLINE void prefetch_panel(const bauta_dtype type, const char *panel)
{
    const size_t bytes = BT_PANEL_COLUMNS * bt_packed_element_size(type);
    if (type != BAUTA_FLOAT32)
        UNROLLED_FOR (size_t at = 0; at < bytes; at += LINE)
            prefetch(panel + at);
}

/* The chains of several rows with one panel. */
INLINE void panel_chains(const bauta_dtype type, const size_t rows,
                         const size_t vectors, const panel_job *job)
{
    const size_t step = BT_PANEL_COLUMNS * bt_packed_element_size(type);
    const size_t a_row = job->a.row, a_step = job->a.step;
    const float *a = job->a.at;
    const char *panel = job->panel;
    vf s[PANEL_ROWS][PANEL_VECTORS];
    UNROLLED_FOR (size_t i = 0; i < rows; i++)
        UNROLLED_FOR (size_t v = 0; v < vectors; v++)
            s[i][v] = vf_set(0.0f);
    for (size_t p = 0; p < job->depth; p++) {
        prefetch_panel(type, panel + panel_ahead(type) * step);
        UNROLLED_FOR (size_t v = 0; v < vectors; v++) {
            vf x = widen(type, panel, v * VL);
            UNROLLED_FOR (size_t i = 0; i < rows; i++)
                s[i][v] = vf_fma(vf_set(a[i * a_row]), x, s[i][v]);
        }
        a += a_step;
        panel += step;
    }
    UNROLLED_FOR (size_t i = 0; i < rows; i++)
        UNROLLED_FOR (size_t v = 0; v < vectors; v++)
            vf_store(job->sums + i * BT_PANEL_COLUMNS + v * VL, s[i][v]);
}

typedef void panel_fn(const panel_job *job);

#define PANEL_FN(name, type, rows, vectors)         \
    static void name##_##rows(const panel_job *job) \
    {                                               \
        panel_chains(type, rows, vectors, job);     \
    }

/* Chains of one to PANEL_ROWS rows: <name>s[rows - 1]. */
#if defined(__AVX512F__)
#define PANEL_FNS(name, type)                   \
    PANEL_FN(name, type, 1, PANEL_VECTORS)      \
    PANEL_FN(name, type, 2, PANEL_PART)         \
    PANEL_FN(name, type, 3, PANEL_PART)         \
    PANEL_FN(name, type, 4, PANEL_PART)         \
    PANEL_FN(name, type, 5, PANEL_PART)         \
    PANEL_FN(name, type, 6, PANEL_PART)         \
    PANEL_FN(name, type, 7, PANEL_PART)         \
    PANEL_FN(name, type, 8, PANEL_PART)         \
    static panel_fn *const name##s[] = {        \
        name##_1, name##_2, name##_3, name##_4, \
        name##_5, name##_6, name##_7, name##_8  \
    }
#else
#define PANEL_FNS(name, type)                                          \
    PANEL_FN(name, type, 1, PANEL_VECTORS)                             \
    PANEL_FN(name, type, 2, PANEL_PART)                                \
    PANEL_FN(name, type, 3, PANEL_PART)                                \
    PANEL_FN(name, type, 4, PANEL_PART)                                \
    static panel_fn *const name##s[] = { name##_1, name##_2, name##_3, \
                                         name##_4 }
#endif

PANEL_FNS(f32_chain, BAUTA_FLOAT32);
PANEL_FNS(bf16_chain, BAUTA_BFLOAT16);
PANEL_FNS(int8_chain, BAUTA_INT8);

static panel_fn *const *const chains[] = { f32_chains, bf16_chains,
                                           int8_chains };

/* ---- One row ----------------------------------------------------------- */

typedef struct row_job {
    const char *panel; /* the first */
    size_t next;       /* bytes to the next panel */
    size_t depth;
    const float *a;
    size_t a_step;
    float *c;
    size_t last;               /* lanes of the last vector that exist in C */
    const float *scale, *bias; /* each may be NULL */
} row_job;

/* One step of the chains; `later` is that part of the panels which is
 * prefetched. */
INLINE void row_step(vf s[ROW_VECTORS], const bauta_dtype type,
                     const size_t vectors, const char *panel, size_t next,
                     const char *later, float a)
{
    vf y = vf_set(a);
    UNROLLED_FOR (size_t v = 0; v < vectors; v += PANEL_VECTORS)
        prefetch_panel(type, later + v / PANEL_VECTORS * next);
    UNROLLED_FOR (size_t v = 0; v < vectors; v++)
        s[v] = vf_fma(y,
                      widen(type, panel + v / PANEL_VECTORS * next,
                            v % PANEL_VECTORS * VL),
                      s[v]);
}

/* The last vector may have fewer lanes. */
INLINE size_t row_lanes(const row_job *job, const size_t vectors, size_t v)
{
    return v + 1 == vectors ? job->last : VL;
}

INLINE void row_end(vf s[ROW_VECTORS], const size_t vectors, const row_job *job)
{
    UNROLLED_FOR (size_t v = 0; v < vectors; v++) {
        size_t lanes = row_lanes(job, vectors, v);
        if (job->scale) // padded to whole panels
            s[v] = vf_mul(s[v], vf_load(job->scale + v * VL));
        if (job->bias)
            s[v] = vf_add(s[v], vf_load_lanes(job->bias + v * VL, lanes));
        vf_store_lanes(job->c + v * VL, s[v], lanes);
    }
}

INLINE void row_chains(const bauta_dtype type, const size_t vectors,
                       const row_job *job)
{
    const size_t step = BT_PANEL_COLUMNS * bt_packed_element_size(type);
    const size_t next = job->next, a_step = job->a_step, depth = job->depth;
    const size_t ahead = panel_ahead(type);
    // From there on the next panels are prefetched. AVX-512 gains nothing by
    // it, and loses where all weights are cached.
    const size_t turn = depth > ahead ? (depth - ahead) / 2 * 2 : 0;
    const float *a = job->a;
    const char *panel = job->panel, *later = panel + ahead * step;
    vf s[ROW_VECTORS];
    UNROLLED_FOR (size_t v = 0; v < vectors; v++)
        s[v] = vf_set(0.0f);
    size_t p = 0;
    for (; p + 2 <= depth; p += 2, a += 2 * a_step) {
        if (VL == 8 && p == turn)
            later += (vectors - 1) / PANEL_VECTORS * next;
        row_step(s, type, vectors, panel, next, later, a[0]);
        row_step(s, type, vectors, panel + step, next, later + step, a[a_step]);
        panel += 2 * step;
        later += 2 * step;
    }
    if (p < depth)
        row_step(s, type, vectors, panel, next, later, a[0]);
    row_end(s, vectors, job);
}

typedef void row_fn(const row_job *job);

#define ROW_FN(name, type, vectors)                  \
    static void name##_##vectors(const row_job *job) \
    {                                                \
        row_chains(type, vectors, job);              \
    }

/* Chains of one to ROW_VECTORS vectors: <name>s[vectors - 1]. */
#define ROW_FNS(name, type)                                           \
    ROW_FN(name, type, 1)                                             \
    ROW_FN(name, type, 2)                                             \
    ROW_FN(name, type, 3)                                             \
    ROW_FN(name, type, 4)                                             \
    ROW_FN(name, type, 5)                                             \
    ROW_FN(name, type, 6)                                             \
    ROW_FN(name, type, 7)                                             \
    ROW_FN(name, type, 8)                                             \
    ROW_FN(name, type, 9)                                             \
    ROW_FN(name, type, 10)                                            \
    ROW_FN(name, type, 11)                                            \
    ROW_FN(name, type, 12)                                            \
    static row_fn *const name##s[ROW_VECTORS] = {                     \
        name##_1, name##_2, name##_3, name##_4,  name##_5,  name##_6, \
        name##_7, name##_8, name##_9, name##_10, name##_11, name##_12 \
    }

ROW_FNS(f32_row, BAUTA_FLOAT32);
ROW_FNS(bf16_row, BAUTA_BFLOAT16);
ROW_FNS(int8_row, BAUTA_INT8);

static row_fn *const *const row_fns[] = { f32_rows, bf16_rows, int8_rows };

/* Outputs first to end - 1 of one row, with their epilogue; `first` begins a
 * panel. */
static void row_product(const bt_gemm *g, size_t first, size_t end)
{
    const bt_packed_weight *w = g->packed;
    source a = source_of(g, 0);
    row_job job = { .next = g->k * BT_PANEL_COLUMNS *
                            bt_packed_element_size(w->type),
                    .depth = g->k,
                    .a = a.at,
                    .a_step = a.step };
    for (size_t j = first, n; j < end; j += n) {
        n = bt_size_min(ROW_VECTORS * VL, end - j);
        size_t vectors = (n + VL - 1) / VL;
        job.panel = panel_at(w, j, 0);
        job.c = g->c + j;
        job.last = n - (vectors - 1) * VL;
        job.scale = w->scales ? w->scales + j : NULL;
        job.bias = g->bias ? g->bias + j : NULL;
        for (size_t v = 0; job.scale && v < vectors; v++)
            prefetch(job.scale + v * VL); // used at the end
        row_fns[w->type][vectors - 1](&job);
    }
}

/* ---- A panel ------------------------------------------------------------ */

/* The chains of `count` outputs from `output` on, all in one panel. Whole
 * vectors are computed from the panel's first output; the requested ones are
 * written to C. */
static void panel_product(const bt_gemm *g, size_t output, size_t count)
{
    float sums[PANEL_ROWS * BT_PANEL_COLUMNS];
    size_t skip = output % BT_PANEL_COLUMNS;
    size_t need = bt_size_min(skip + count, BT_PANEL_COLUMNS);
    panel_job job = { .depth = g->k };
    for (size_t i = 0, rows; i < g->m; i += rows) {
        rows = bt_size_min(PANEL_ROWS, g->m - i);
        panel_fn *run = chains[g->packed->type][rows - 1];
        size_t part = rows == 1 ? BT_PANEL_COLUMNS : PANEL_PART * VL;
        job.a = source_of(g, i);
        for (size_t from = 0; from < need; from += part) {
            job.panel = panel_at(g->packed, output - skip + from, 0);
            job.sums = sums + from;
            run(&job);
        }
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < count; j += VL)
                vf_store_lanes(g->c + (i + r) * g->ldc + output + j,
                               vf_load(sums + r * BT_PANEL_COLUMNS + skip + j),
                               count - j);
    }
}

#endif
