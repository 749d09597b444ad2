/* SPDX-License-Identifier: Apache-2.0 */
/* simd_avx512.h - the words in which a kernel body is written, for AVX-512.
 *
 * simd_avx2.h says the same in AVX2, so one body serves both. */
#ifndef BT_SIMD_AVX512_H
#define BT_SIMD_AVX512_H

#include <immintrin.h>
#include <stddef.h>

#include "kernels/x86/unroll.h"

typedef __m512 vec;
#define W 16 /* lanes of a vec */

static inline vec v_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vec v_all(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec v_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void v_store(float *to, vec x)
{
    _mm512_storeu_ps(to, x);
}

/* The first `count` lanes, at most W; memory behind them is not touched, and
 * lanes behind them load as zero. */
static inline vec v_load_first(const float *from, size_t count)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
}

static inline void v_store_first(float *to, vec x, size_t count)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), x);
}

/* The lower and the upper half. */
static inline void v_store_halves(float *low, float *high, vec x)
{
    _mm256_storeu_ps(low, _mm512_castps512_ps256(x));
    _mm256_storeu_ps(high, _mm512_extractf32x8_ps(x, 1));
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec v_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

/* x < 0 ? 0 : x. vmaxps returns its second operand on NaN and on two zeros. */
static inline vec v_relu(vec x)
{
    return _mm512_max_ps(v_zero(), x);
}

static inline vec v_unpack_low_pd(vec a, vec b)
{
    return _mm512_castpd_ps(
        _mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

static inline vec v_unpack_high_pd(vec a, vec b)
{
    return _mm512_castpd_ps(
        _mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

/* Transpose sixteen vectors: 4 x 4 inside the 128-bit lanes, then the lanes as
 * a 4 x 4 of their own. */
static inline __attribute__((always_inline)) void v_transpose(vec x[W])
{
    UNROLLED_FOR (int i = 0; i < W; i += 4) {
        vec a = _mm512_unpacklo_ps(x[i], x[i + 1]);
        vec b = _mm512_unpackhi_ps(x[i], x[i + 1]);
        vec c = _mm512_unpacklo_ps(x[i + 2], x[i + 3]);
        vec d = _mm512_unpackhi_ps(x[i + 2], x[i + 3]);
        x[i] = v_unpack_low_pd(a, c);
        x[i + 1] = v_unpack_high_pd(a, c);
        x[i + 2] = v_unpack_low_pd(b, d);
        x[i + 3] = v_unpack_high_pd(b, d);
    }
    UNROLLED_FOR (int i = 0; i < 4; i++) {
        vec a = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
        vec b = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
        vec c = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
        vec d = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
        x[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        x[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        x[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#endif
