/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h - one vocabulary for AVX2 and AVX-512, so that a twin is written once
 * and compiled for both.
 *
 * vf is a vector of VL floats, vm selects some of its lanes. The registers
 * decide the register tile: TILE_ROWS x TILE_VECS accumulators beside
 * TILE_VECS loaded vectors and one broadcast. */
#ifndef BT_SIMD_H
#define BT_SIMD_H

#include "kernels/exp2.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

/* Before a loop whose length is a constant once it is inlined: accumulators
 * stay in registers only when nothing of the loop is left. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__AVX512F__)

#define TWIN(name) name##_avx512
enum { VL = 16, TILE_ROWS = 6, TILE_VECS = 4 };
typedef __m512 vf;
typedef __mmask16 vm;

INLINE vf vf_load(const float *x)
{
    return _mm512_loadu_ps(x);
}
INLINE void vf_store(float *x, vf a)
{
    _mm512_storeu_ps(x, a);
}
INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
/* b where a is NaN, as in `a > b ? a : b`. */
INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
INLINE vm vm_all(void)
{
    return 0xffff;
}
/* The lanes whose bits are set, lowest lane first. */
INLINE vm vm_bits(uint64_t bits)
{
    return (vm)bits;
}
/* All lanes or none. */
INLINE vm vm_whole(int all)
{
    return (vm)-all;
}
/* a in the chosen lanes, b in the others. */
INLINE vf vf_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
/* a * b + c in the chosen lanes, c in the others. */
INLINE vf vf_fma_where(vm m, vf a, vf b, vf c)
{
    return _mm512_mask3_fmadd_ps(a, b, c, m);
}
/* The lanes that equal x. */
INLINE vm vf_is(vf a, float x)
{
    return _mm512_cmp_ps_mask(a, vf_set(x), _CMP_EQ_OQ);
}
/* Whether a differs from b in some chosen lane. */
INLINE int vf_differ(vm m, vf a, vf b)
{
    return _mm512_mask_cmp_ps_mask(m, a, b, _CMP_NEQ_UQ) != 0;
}
/* Only the chosen lanes are read or written. */
INLINE vf vf_load_where(vm m, const float *x)
{
    return _mm512_maskz_loadu_ps(m, x);
}
INLINE void vf_store_where(vm m, float *x, vf a)
{
    _mm512_mask_storeu_ps(x, m, a);
}
/* Between a vector and eight lanes: the larger of its halves, and back. */
INLINE __m256 vf_fold_max(vf a)
{
    return _mm256_max_ps(_mm512_castps512_ps256(a),
                         _mm512_extractf32x8_ps(a, 1));
}
INLINE vf vf_from8(__m256 a)
{
    return _mm512_zextps256_ps512(a);
}
/* bits(a) << 23 as a float. */
INLINE vf vf_shift23(vf a)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23));
}
/* a * b in the chosen lanes where x is not less than `min`; else 0. */
INLINE vf vf_mul_from(vm m, vf x, float min, vf a, vf b)
{
    vm k = _mm512_mask_cmp_ps_mask(m, x, vf_set(min), _CMP_NLT_UQ);
    return _mm512_maskz_mul_ps(k, a, b);
}

#else

#define TWIN(name) name##_avx2
enum { VL = 8, TILE_ROWS = 6, TILE_VECS = 2 };
typedef __m256 vf;
typedef __m256 vm; /* a lane is chosen by all its bits */

INLINE vf vf_load(const float *x)
{
    return _mm256_loadu_ps(x);
}
INLINE void vf_store(float *x, vf a)
{
    _mm256_storeu_ps(x, a);
}
INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
INLINE vm vm_all(void)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32(-1));
}
INLINE vm vm_bits(uint64_t bits)
{
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i all = _mm256_set1_epi32((int)(bits & 0xff));
    return _mm256_castsi256_ps(
        _mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane));
}
INLINE vm vm_whole(int all)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32(-all));
}
INLINE vf vf_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}
INLINE vf vf_fma_where(vm m, vf a, vf b, vf c)
{
    return vf_select(m, vf_fma(a, b, c), c);
}
INLINE vm vf_is(vf a, float x)
{
    return _mm256_cmp_ps(a, vf_set(x), _CMP_EQ_OQ);
}
INLINE int vf_differ(vm m, vf a, vf b)
{
    return _mm256_movemask_ps(
               _mm256_and_ps(m, _mm256_cmp_ps(a, b, _CMP_NEQ_UQ))) != 0;
}
INLINE vf vf_load_where(vm m, const float *x)
{
    return _mm256_maskload_ps(x, _mm256_castps_si256(m));
}
INLINE void vf_store_where(vm m, float *x, vf a)
{
    _mm256_maskstore_ps(x, _mm256_castps_si256(m), a);
}
INLINE __m256 vf_fold_max(vf a)
{
    return a;
}
INLINE vf vf_from8(__m256 a)
{
    return a;
}
INLINE vf vf_shift23(vf a)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23));
}
INLINE vf vf_mul_from(vm m, vf x, float min, vf a, vf b)
{
    vm k = _mm256_and_ps(m, _mm256_cmp_ps(x, vf_set(min), _CMP_NLT_UQ));
    return _mm256_and_ps(k, _mm256_mul_ps(a, b));
}

#endif

/* Lane r is the largest lane of a[r], for six vectors without NaN. Rows are
 * merged as they are reduced: a tree over lanes that ends as a row of results.
 */
INLINE vf vf_max_of_six(const vf a[6])
{
    __m256 x[4];
    UNROLL for (size_t i = 0; i < 3; i++)
    {
        __m256 b = vf_fold_max(a[2 * i]), c = vf_fold_max(a[2 * i + 1]);
        x[i] =
            _mm256_max_ps(_mm256_unpacklo_ps(b, c), _mm256_unpackhi_ps(b, c));
    }
    x[3] = x[2];
    UNROLL for (size_t i = 0; i < 4; i += 2) x[i] =
        _mm256_max_ps(_mm256_shuffle_ps(x[i], x[i + 1], 0x44),
                      _mm256_shuffle_ps(x[i], x[i + 1], 0xee));
    return vf_from8(_mm256_max_ps(_mm256_permute2f128_ps(x[0], x[2], 0x20),
                                  _mm256_permute2f128_ps(x[0], x[2], 0x31)));
}

/* bt_exp2 of x <= BT_EXP2_MAX in the chosen lanes, 0 in the others. */
INLINE vf vf_exp2_where(vm m, vf x)
{
    vf magic = vf_set(BT_EXP2_MAGIC);
    vf t = vf_add(x, magic);
    vf f = vf_sub(x, vf_sub(t, magic));
    vf p = vf_fma(vf_set(BT_EXP2_C5), f, vf_set(BT_EXP2_C4));
    p = vf_fma(p, f, vf_set(BT_EXP2_C3));
    p = vf_fma(p, f, vf_set(BT_EXP2_C2));
    p = vf_fma(p, f, vf_set(BT_EXP2_C1));
    p = vf_fma(p, f, vf_set(1.0f));
    return vf_mul_from(m, x, BT_EXP2_MIN, p, vf_shift23(t));
}

#endif
