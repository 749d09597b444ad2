/* SPDX-License-Identifier: Apache-2.0 */
/* compact.h - products with compact weights for AVX2 and AVX-512, one body for
 * both.
 *
 * Few rows meet a panel as it streams by: BT_ABREAST outputs are 4 vectors with
 * AVX-512, and one row needs so many accumulators, which is just what keeps the
 * multipliers busy; more rows share what was widened. */
#ifndef BT_COMPACT_X86_H
#define BT_COMPACT_X86_H

#include "base/size.h"
#include "kernels/gemm.h"
#include "kernels/x86/simd.h"

enum {
    LINE = 64, /* bytes of a cache line */
    PANEL_VECTORS = BT_ABREAST / VL,
    PANEL_ROWS = VL == 16 ? 6 : 3, /* that meet a panel together */
    PANEL_PART = 4,    /* vectors of it, if there are several rows */
    PANEL_AHEAD = 4096 /* bytes between asking for and reading */
};

/* op(A) as it lies in memory. */
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

/* ---- widening ---------------------------------------------------------- */

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

INLINE vf widen(const bt_compact_type type, const char *from, size_t at)
{
    return type == BT_COMPACT_BF16 ? vf_from_bf16((const uint16_t *)from + at)
                                   : vf_from_int8((const int8_t *)from + at);
}

/* Where the elements of an output begin, from input `from` on. */
INLINE const char *panel_at(const bt_compact *c, size_t output, size_t from)
{
    size_t at = (output / BT_ABREAST * c->inputs + from) * BT_ABREAST +
                output % BT_ABREAST;
    return (const char *)c->panels + at * bt_compact_size(c->type);
}

/* One vector of outputs along some inputs, as float32. */
static void widen_columns(float *to, size_t step, const bt_compact *c,
                          size_t output, size_t from, size_t depth)
{
    const char *panel = panel_at(c, output, from);
    for (size_t p = 0; p < depth; p++, to += step)
        if (c->type == BT_COMPACT_BF16)
            vf_store(to, widen(BT_COMPACT_BF16, panel, p * BT_ABREAST));
        else
            vf_store(to, widen(BT_COMPACT_INT8, panel, p * BT_ABREAST));
}

/* ---- few rows ---------------------------------------------------------- */

typedef struct panel_job {
    const char *panel; /* from the first vector on */
    size_t depth;
    source a;
    float *sums; /* (rows, BT_ABREAST) from the first vector on */
} panel_job;

INLINE void panel_chains(const bt_compact_type type, const size_t rows,
                         const size_t vectors, const panel_job *job)
{
    const size_t size = type == BT_COMPACT_BF16 ? 2 : 1;
    const size_t a_row = job->a.row, a_step = job->a.step;
    const float *a = job->a.at;
    const char *panel = job->panel;
    vf s[PANEL_ROWS][PANEL_VECTORS];
    UNROLLED_FOR (size_t i = 0; i < rows; i++)
        UNROLLED_FOR (size_t v = 0; v < vectors; v++)
            s[i][v] = vf_set(0.0f);
    for (size_t p = 0; p < job->depth; p++) {
        UNROLLED_FOR (size_t l = 0; l < vectors * VL * size; l += LINE)
            prefetch(panel + PANEL_AHEAD + l);
        UNROLLED_FOR (size_t v = 0; v < vectors; v++) {
            vf x = widen(type, panel, v * VL);
            UNROLLED_FOR (size_t i = 0; i < rows; i++)
                s[i][v] = vf_fma(vf_set(a[i * a_row]), x, s[i][v]);
        }
        a += a_step;
        panel += BT_ABREAST * size;
    }
    UNROLLED_FOR (size_t i = 0; i < rows; i++)
        UNROLLED_FOR (size_t v = 0; v < vectors; v++)
            vf_store(job->sums + i * BT_ABREAST + v * VL, s[i][v]);
}

typedef void panel_fn(const panel_job *job);

#define PANEL_FN(name, type, rows, vectors)         \
    static void name##_##rows(const panel_job *job) \
    {                                               \
        panel_chains(type, rows, vectors, job);     \
    }

/* chains of one to PANEL_ROWS rows: <name>s[rows - 1]. */
#if defined(__AVX512F__)
#define PANEL_FNS(name, type)                                          \
    PANEL_FN(name, type, 1, PANEL_VECTORS)                             \
    PANEL_FN(name, type, 2, PANEL_PART)                                \
    PANEL_FN(name, type, 3, PANEL_PART)                                \
    PANEL_FN(name, type, 4, PANEL_PART)                                \
    PANEL_FN(name, type, 5, PANEL_PART)                                \
    PANEL_FN(name, type, 6, PANEL_PART)                                \
    static panel_fn *const name##s[] = { name##_1, name##_2, name##_3, \
                                         name##_4, name##_5, name##_6 }
#else
#define PANEL_FNS(name, type)              \
    PANEL_FN(name, type, 1, PANEL_VECTORS) \
    PANEL_FN(name, type, 2, PANEL_PART)    \
    PANEL_FN(name, type, 3, PANEL_PART)    \
    static panel_fn *const name##s[] = { name##_1, name##_2, name##_3 }
#endif

PANEL_FNS(bf16_chain, BT_COMPACT_BF16);
PANEL_FNS(int8_chain, BT_COMPACT_INT8);

/* The chains of `count` outputs from `output` on, all in one panel. They are
 * computed in whole vectors from the panel's first output, and those that were
 * asked for are written to C. */
static void panel_product(const bt_gemm *g, size_t output, size_t count)
{
    float sums[PANEL_ROWS * BT_ABREAST];
    size_t skip = output % BT_ABREAST;
    size_t need = bt_size_min(skip + count, BT_ABREAST);
    panel_job job = { .depth = g->k };
    for (size_t i = 0, rows; i < g->m; i += rows) {
        rows = bt_size_min(PANEL_ROWS, g->m - i);
        panel_fn *run =
            (g->compact->type == BT_COMPACT_BF16 ? bf16_chains
                                                 : int8_chains)[rows - 1];
        size_t part = rows == 1 ? BT_ABREAST : PANEL_PART * VL;
        job.a = source_of(g, i);
        for (size_t from = 0; from < need; from += part) {
            job.panel = panel_at(g->compact, output - skip + from, 0);
            job.sums = sums + from;
            run(&job);
        }
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < count; j += VL)
                vf_store_lanes(g->c + (i + r) * g->ldc + output + j,
                               vf_load(sums + r * BT_ABREAST + skip + j),
                               count - j);
    }
}

#endif
