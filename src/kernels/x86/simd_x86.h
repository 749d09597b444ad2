/* SPDX-License-Identifier: Apache-2.0 */
/* simd_x86.h - the words in which one kernel body is written for AVX2 and for
 * AVX-512. A vec has W lanes: as many as the instruction set. */
#ifndef BT_SIMD_X86_H
#define BT_SIMD_X86_H

#include <immintrin.h>
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

/* A loop of few and constant turns, written out by the compiler, so that arrays
 * of vectors live in registers. */
#if defined(__clang__)
#define UNROLLED_FOR _Pragma("clang loop unroll(full)") for
#else
#define UNROLLED_FOR _Pragma("GCC unroll 16") for
#endif

/* Ask for the line of an address, which need not exist, into the L2 cache. More
 * of them can be under way than of lines for the L1 cache. */
INLINE void prefetch(const void *address)
{
    _mm_prefetch((const char *)address, _MM_HINT_T1);
}

#if defined(__AVX512F__)

#define W 16
typedef __m512 vec;

INLINE vec v_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE vec v_all(float x)
{
    return _mm512_set1_ps(x);
}

INLINE vec v_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

INLINE void v_store(float *to, vec x)
{
    _mm512_storeu_ps(to, x);
}

INLINE __mmask16 v_first(size_t lanes)
{
    return (__mmask16)((1u << lanes) - 1);
}

/* As many lanes as exist, fewer than W; memory behind them is not touched, and
 * they load as zero. */
INLINE vec v_load_first(const float *from, size_t lanes)
{
    return _mm512_maskz_loadu_ps(v_first(lanes), from);
}

INLINE void v_store_first(float *to, vec x, size_t lanes)
{
    _mm512_mask_storeu_ps(to, v_first(lanes), x);
}

/* The lower and the upper half of the lanes. */
INLINE void v_store_halves(float *low, float *high, vec x)
{
    _mm256_storeu_ps(low, _mm512_castps512_ps256(x));
    _mm256_storeu_ps(high, _mm512_extractf32x8_ps(x, 1));
}

INLINE vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vec v_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

/* x < 0 ? 0 : x. vmaxps returns its second operand on NaN and on two zeros. */
INLINE vec v_relu(vec x)
{
    return _mm512_max_ps(v_zero(), x);
}

INLINE vec v_pairs(vec a, vec b, const int high)
{
    __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(x, y)
                                 : _mm512_unpacklo_pd(x, y));
}

/* x[p] = column p of the W x 16 floats at `from`, one lane a row. Each line is
 * read once and whole, since rows that lie some pages apart share one set of
 * the L1 cache and drive each other out. Then 4 x 4 are transposed inside the
 * 128-bit quarters, and last the quarters themselves. */
INLINE void v_load_transposed(vec x[16], const float *from, size_t stride)
{
    UNROLLED_FOR (size_t r = 0; r < 16; r++)
        x[r] = v_load(from + r * stride);
    UNROLLED_FOR (size_t r = 0; r < 16; r += 4) {
        vec a = _mm512_unpacklo_ps(x[r], x[r + 1]);
        vec b = _mm512_unpackhi_ps(x[r], x[r + 1]);
        vec c = _mm512_unpacklo_ps(x[r + 2], x[r + 3]);
        vec d = _mm512_unpackhi_ps(x[r + 2], x[r + 3]);
        x[r] = v_pairs(a, c, 0);
        x[r + 1] = v_pairs(a, c, 1);
        x[r + 2] = v_pairs(b, d, 0);
        x[r + 3] = v_pairs(b, d, 1);
    }
    UNROLLED_FOR (size_t r = 0; r < 4; r++) {
        vec a = _mm512_shuffle_f32x4(x[r], x[r + 4], 0x88);
        vec b = _mm512_shuffle_f32x4(x[r], x[r + 4], 0xdd);
        vec c = _mm512_shuffle_f32x4(x[r + 8], x[r + 12], 0x88);
        vec d = _mm512_shuffle_f32x4(x[r + 8], x[r + 12], 0xdd);
        x[r] = _mm512_shuffle_f32x4(a, c, 0x88);
        x[r + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        x[r + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        x[r + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#else

#define W 8
typedef __m256 vec;

INLINE vec v_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vec v_all(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vec v_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

INLINE void v_store(float *to, vec x)
{
    _mm256_storeu_ps(to, x);
}

INLINE __m256i v_first(size_t lanes)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes), lane);
}

/* As many lanes as exist, fewer than W; memory behind them is not touched, and
 * they load as zero. */
INLINE vec v_load_first(const float *from, size_t lanes)
{
    return _mm256_maskload_ps(from, v_first(lanes));
}

INLINE void v_store_first(float *to, vec x, size_t lanes)
{
    _mm256_maskstore_ps(to, v_first(lanes), x);
}

/* The lower and the upper half of the lanes. */
INLINE void v_store_halves(float *low, float *high, vec x)
{
    _mm_storeu_ps(low, _mm256_castps256_ps128(x));
    _mm_storeu_ps(high, _mm256_extractf128_ps(x, 1));
}

INLINE vec v_load_halves(const float *low, const float *high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)),
                                _mm_loadu_ps(high), 1);
}

INLINE vec v_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vec v_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

/* x < 0 ? 0 : x. vmaxps returns its second operand on NaN and on two zeros. */
INLINE vec v_relu(vec x)
{
    return _mm256_max_ps(v_zero(), x);
}

/* x[p] = column p of the W x 16 floats at `from`, one lane a row. Loading puts
 * four rows beside the other four, so that shuffles inside the 128-bit halves
 * do the rest. */
INLINE void v_load_transposed(vec x[16], const float *from, size_t stride)
{
    UNROLLED_FOR (size_t p = 0; p < 16; p += 4) {
        vec row[4];
        UNROLLED_FOR (size_t r = 0; r < 4; r++)
            row[r] = v_load_halves(from + r * stride + p,
                                   from + (r + 4) * stride + p);
        vec a = _mm256_unpacklo_ps(row[0], row[1]);
        vec b = _mm256_unpackhi_ps(row[0], row[1]);
        vec c = _mm256_unpacklo_ps(row[2], row[3]);
        vec d = _mm256_unpackhi_ps(row[2], row[3]);
        x[p] = _mm256_shuffle_ps(a, c, 0x44);
        x[p + 1] = _mm256_shuffle_ps(a, c, 0xee);
        x[p + 2] = _mm256_shuffle_ps(b, d, 0x44);
        x[p + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
}

#endif

/* As many lanes as exist, from 1 to any number above W. */
INLINE vec v_load_lanes(const float *from, size_t lanes)
{
    return lanes >= W ? v_load(from) : v_load_first(from, lanes);
}

INLINE void v_store_lanes(float *to, vec x, size_t lanes)
{
    if (lanes >= W)
        v_store(to, x);
    else
        v_store_first(to, x, lanes);
}

#endif
