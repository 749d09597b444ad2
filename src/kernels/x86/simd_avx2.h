/* SPDX-License-Identifier: Apache-2.0 */
/* simd_avx2.h - the words in which a kernel body is written, for AVX2.
 *
 * simd_avx512.h says the same in AVX-512, so one body serves both. */
#ifndef BT_SIMD_AVX2_H
#define BT_SIMD_AVX2_H

#include <immintrin.h>
#include <stddef.h>

#include "kernels/x86/unroll.h"

typedef __m256 vec;
#define W 8 /* lanes of a vec */

static inline vec v_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vec v_all(float x)
{
    return _mm256_set1_ps(x);
}

static inline vec v_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void v_store(float *to, vec x)
{
    _mm256_storeu_ps(to, x);
}

static inline __m256i v_first(size_t count)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lane);
}

/* The first `count` lanes, at most W; memory behind them is not touched, and
 * lanes behind them load as zero. */
static inline vec v_load_first(const float *from, size_t count)
{
    return _mm256_maskload_ps(from, v_first(count));
}

static inline void v_store_first(float *to, vec x, size_t count)
{
    _mm256_maskstore_ps(to, v_first(count), x);
}

/* The lower and the upper half. */
static inline void v_store_halves(float *low, float *high, vec x)
{
    _mm_storeu_ps(low, _mm256_castps256_ps128(x));
    _mm_storeu_ps(high, _mm256_extractf128_ps(x, 1));
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec v_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

/* x < 0 ? 0 : x. vmaxps returns its second operand on NaN and on two zeros. */
static inline vec v_relu(vec x)
{
    return _mm256_max_ps(v_zero(), x);
}

/* Transpose eight vectors: 4 x 4 inside the 128-bit lanes, then the lanes as a
 * 2 x 2 of their own. */
static inline __attribute__((always_inline)) void v_transpose(vec x[W])
{
    UNROLLED_FOR (int i = 0; i < W; i += 4) {
        vec a = _mm256_unpacklo_ps(x[i], x[i + 1]);
        vec b = _mm256_unpackhi_ps(x[i], x[i + 1]);
        vec c = _mm256_unpacklo_ps(x[i + 2], x[i + 3]);
        vec d = _mm256_unpackhi_ps(x[i + 2], x[i + 3]);
        x[i] = _mm256_shuffle_ps(a, c, 0x44);
        x[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        x[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        x[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    UNROLLED_FOR (int i = 0; i < 4; i++) {
        vec a = x[i], b = x[i + 4];
        x[i] = _mm256_permute2f128_ps(a, b, 0x20);
        x[i + 4] = _mm256_permute2f128_ps(a, b, 0x31);
    }
}

#endif
