/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h - one set of vector operations for AVX2 and AVX-512, so that a twin is
 * written once and compiled for both.
 *
 * vf is a vector of VL floats, vm a mask of its lanes. */
#ifndef BT_SIMD_H
#define BT_SIMD_H

#include "backend/cpu/kernels/tanh.h"

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

/* Prefetch the cache line of an address, which need not be mapped, into L2.
 * More L2 prefetches can be in flight than L1 prefetches. */
INLINE void prefetch(const void *address)
{
    _mm_prefetch((const char *)address, _MM_HINT_T1);
}

INLINE void prefetch_write(const void *address)
{
    __builtin_prefetch(address, 1);
}

/* Keep a pointer or a size, or a vector, in its register as it is now: the
 * compiler neither computes it again later nor folds its load into its uses.
 * Unrolled loops otherwise get a pointer for each step, more than there are
 * registers. */
#define KEEP(x) __asm__ volatile("" : "+r"(x))
#define KEEP_VECTOR(x) __asm__ volatile("" : "+v"(x))

/* A loop of constant length after inlining. Accumulators stay in registers only
 * if it is fully unrolled. FOUR_STEPS_FOR is a loop of any length that takes
 * four steps at once. */
#if defined(__clang__)
#define UNROLLED_FOR _Pragma("clang loop unroll(full)") for
#define FOUR_STEPS_FOR _Pragma("clang loop unroll_count(4)") for
#else
#define UNROLLED_FOR _Pragma("GCC unroll 16") for
#define FOUR_STEPS_FOR _Pragma("GCC unroll 4") for
#endif

#if defined(__AVX512F__)

#define TWIN(name) name##_avx512
enum { VL = 16 };
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
INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
INLINE vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}
/* |a| with the sign of b. */
INLINE vf vf_copysign(vf a, vf b)
{
    vf sign = vf_set(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}
INLINE vm vf_at_most(vf a, float x)
{
    return _mm512_cmp_ps_mask(a, vf_set(x), _CMP_LE_OQ);
}
INLINE vm vf_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
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

/* The first lanes, fewer than VL. */
INLINE vm vm_first(size_t lanes)
{
    return (vm)((1u << lanes) - 1);
}
/* The lower and the upper half of the lanes. */
INLINE void vf_store_halves(float *low, float *high, vf x)
{
    _mm256_storeu_ps(low, _mm512_castps512_ps256(x));
    _mm256_storeu_ps(high, _mm512_extractf32x8_ps(x, 1));
}

INLINE vf vf_pairs(vf a, vf b, const int high)
{
    __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(x, y)
                                 : _mm512_unpacklo_pd(x, y));
}

/* x[p] = column p of the VL x 16 floats at `from`, one lane per row. Each cache
 * line is read once, since rows that are some pages apart share a set of the L1
 * cache and evict each other. Blocks of 4 x 4 are transposed inside the 128-bit
 * quarters, then the quarters themselves. */
INLINE void vf_load_transposed(vf x[16], const float *from, size_t stride)
{
    UNROLLED_FOR (size_t r = 0; r < 16; r++)
        x[r] = vf_load(from + r * stride);
    UNROLLED_FOR (size_t r = 0; r < 16; r += 4) {
        vf a = _mm512_unpacklo_ps(x[r], x[r + 1]);
        vf b = _mm512_unpackhi_ps(x[r], x[r + 1]);
        vf c = _mm512_unpacklo_ps(x[r + 2], x[r + 3]);
        vf d = _mm512_unpackhi_ps(x[r + 2], x[r + 3]);
        x[r] = vf_pairs(a, c, 0);
        x[r + 1] = vf_pairs(a, c, 1);
        x[r + 2] = vf_pairs(b, d, 0);
        x[r + 3] = vf_pairs(b, d, 1);
    }
    UNROLLED_FOR (size_t r = 0; r < 4; r++) {
        vf a = _mm512_shuffle_f32x4(x[r], x[r + 4], 0x88);
        vf b = _mm512_shuffle_f32x4(x[r], x[r + 4], 0xdd);
        vf c = _mm512_shuffle_f32x4(x[r + 8], x[r + 12], 0x88);
        vf d = _mm512_shuffle_f32x4(x[r + 8], x[r + 12], 0xdd);
        x[r] = _mm512_shuffle_f32x4(a, c, 0x88);
        x[r + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        x[r + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        x[r + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#else

#define TWIN(name) name##_avx2
enum { VL = 8 };
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
INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
INLINE vf vf_abs(vf a)
{
    return _mm256_andnot_ps(vf_set(-0.0f), a);
}
INLINE vf vf_copysign(vf a, vf b)
{
    vf sign = vf_set(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b));
}
INLINE vm vf_at_most(vf a, float x)
{
    return _mm256_cmp_ps(a, vf_set(x), _CMP_LE_OQ);
}
INLINE vm vf_less(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
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
INLINE vf vf_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
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
    // By an operator, which the compiler leaves out if all lanes are chosen.
    __m256i k =
        (__m256i)m & (__m256i)_mm256_cmp_ps(x, vf_set(min), _CMP_NLT_UQ);
    return _mm256_and_ps((__m256)k, _mm256_mul_ps(a, b));
}

INLINE vm vm_first(size_t lanes)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes), lane));
}
/* The lower and the upper half of the lanes. */
INLINE void vf_store_halves(float *low, float *high, vf x)
{
    _mm_storeu_ps(low, _mm256_castps256_ps128(x));
    _mm_storeu_ps(high, _mm256_extractf128_ps(x, 1));
}

INLINE vf vf_load_halves(const float *low, const float *high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)),
                                _mm_loadu_ps(high), 1);
}

/* x[p] = column p of the VL x 16 floats at `from`, one lane per row. Each load
 * combines row r and row r + 4, so that shuffles inside the 128-bit halves do
 * the rest. */
INLINE void vf_load_transposed(vf x[16], const float *from, size_t stride)
{
    UNROLLED_FOR (size_t p = 0; p < 16; p += 4) {
        vf row[4];
        UNROLLED_FOR (size_t r = 0; r < 4; r++)
            row[r] = vf_load_halves(from + r * stride + p,
                                    from + (r + 4) * stride + p);
        vf a = _mm256_unpacklo_ps(row[0], row[1]);
        vf b = _mm256_unpackhi_ps(row[0], row[1]);
        vf c = _mm256_unpacklo_ps(row[2], row[3]);
        vf d = _mm256_unpackhi_ps(row[2], row[3]);
        x[p] = _mm256_shuffle_ps(a, c, 0x44);
        x[p + 1] = _mm256_shuffle_ps(a, c, 0xee);
        x[p + 2] = _mm256_shuffle_ps(b, d, 0x44);
        x[p + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
}

#endif

/* Lane r is the largest lane of a[r], for six vectors without NaN. The vectors
 * are merged while they are reduced. */
INLINE vf vf_max_of_six(const vf a[6])
{
    __m256 x[4];
    UNROLLED_FOR (size_t i = 0; i < 3; i++) {
        __m256 b = vf_fold_max(a[2 * i]), c = vf_fold_max(a[2 * i + 1]);
        x[i] =
            _mm256_max_ps(_mm256_unpacklo_ps(b, c), _mm256_unpackhi_ps(b, c));
    }
    x[3] = x[2];
    UNROLLED_FOR (size_t i = 0; i < 4; i += 2)
        x[i] = _mm256_max_ps(_mm256_shuffle_ps(x[i], x[i + 1], 0x44),
                             _mm256_shuffle_ps(x[i], x[i + 1], 0xee));
    return vf_from8(_mm256_max_ps(_mm256_permute2f128_ps(x[0], x[2], 0x20),
                                  _mm256_permute2f128_ps(x[0], x[2], 0x31)));
}

/* The polynomial of bt_exp2_parts. */
INLINE vf vf_exp2_polynomial(vf f)
{
    vf p = vf_fma(vf_set(BT_EXP2_C5), f, vf_set(BT_EXP2_C4));
    p = vf_fma(p, f, vf_set(BT_EXP2_C3));
    p = vf_fma(p, f, vf_set(BT_EXP2_C2));
    p = vf_fma(p, f, vf_set(BT_EXP2_C1));
    return vf_fma(p, f, vf_set(1.0f));
}

/* bt_exp2 of x <= BT_EXP2_MAX in the chosen lanes, 0 in the others. */
INLINE vf vf_exp2_where(vm m, vf x)
{
    vf magic = vf_set(BT_EXP2_MAGIC);
    vf t = vf_add(x, magic);
    vf p = vf_exp2_polynomial(vf_sub(x, vf_sub(t, magic)));
    return vf_mul_from(m, x, BT_EXP2_MIN, p, vf_shift23(t));
}

/* bt_tanh. */
INLINE vf vf_tanh(vf x)
{
    vf a = vf_abs(x), z = vf_mul(x, x), one = vf_set(1.0f);
    vf p = vf_fma(vf_set(BT_TANH_C4), z, vf_set(BT_TANH_C3));
    p = vf_fma(p, z, vf_set(BT_TANH_C2));
    p = vf_fma(p, z, vf_set(BT_TANH_C1));
    p = vf_fma(p, z, vf_set(BT_TANH_C0));
    vf small = vf_fma(vf_mul(x, z), p, x);
    vf y = vf_mul(a, vf_set((float)(2 * BT_LOG2E)));
    y = vf_min(vf_set(BT_EXP2_MAX), y); // y where y is NaN
    vf e = vf_exp2_where(vm_all(), y);
    vf large = vf_sub(one, vf_div(vf_set(2.0f), vf_add(e, one)));
    return vf_select(vf_at_most(a, BT_TANH_SMALL), small,
                     vf_copysign(large, x));
}

/* Load or store the first `lanes` lanes, at least 1. Memory beyond them is not
 * accessed, and missing lanes load as zero. */
INLINE vf vf_load_lanes(const float *from, size_t lanes)
{
    return lanes >= VL ? vf_load(from) : vf_load_where(vm_first(lanes), from);
}

INLINE void vf_store_lanes(float *to, vf x, size_t lanes)
{
    if (lanes >= VL)
        vf_store(to, x);
    else
        vf_store_where(vm_first(lanes), to, x);
}

#endif
