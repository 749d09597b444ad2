/* SPDX-License-Identifier: Apache-2.0 */
/* x86.c - selects the twins that an x86 machine can run. */
#include "backend/cpu/kernels/x86/x86.h"

#if defined(__x86_64__)

#define AVX2(name) .name = bt_##name##_f32_avx2,
static const bt_kernels avx2 = { .isa = "avx2",
                                 .gemm_tiles = &bt_gemm_tiles_f32_avx2,
                                 BT_KERNEL_MAP(AVX2) };

#define AVX512(name) .name = bt_##name##_f32_avx512,
static const bt_kernels avx512 = { .isa = "avx512",
                                   .gemm_tiles = &bt_gemm_tiles_f32_avx512,
                                   BT_KERNEL_MAP(AVX512) };

size_t bt_kernels_x86(const bt_kernels *tables[2])
{
    size_t count = 0;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        tables[count++] = &avx2;
    if (count && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        tables[count++] = &avx512;
    return count;
}

#else

size_t bt_kernels_x86(const bt_kernels *tables[2])
{
    (void)tables;
    return 0;
}

#endif
