/* SPDX-License-Identifier: Apache-2.0 */
/* x86.c - the twins that an x86 machine can run. */
#include "kernels/x86/x86.h"

#if defined(__x86_64__)

static const bt_kernels avx2 = {
    .isa = "avx2",
    .exp = bt_exp_f32_avx2,
    .row_max = bt_row_max_f32_avx2,
    .row_exp_sum = bt_row_exp_sum_f32_avx2,
    .transpose = bt_transpose_f32_avx2,
    .attention_forward = bt_attention_forward_f32_avx2,
    .attention_backward = bt_attention_backward_f32_avx2,
    .gemm_columns = bt_gemm_columns_f32_avx2,
    .gemm_tiles = &bt_gemm_tiles_f32_avx2,
};

static const bt_kernels avx512 = {
    .isa = "avx512",
    .exp = bt_exp_f32_avx512,
    .row_max = bt_row_max_f32_avx512,
    .row_exp_sum = bt_row_exp_sum_f32_avx512,
    .transpose = bt_transpose_f32_avx512,
    .attention_forward = bt_attention_forward_f32_avx512,
    .attention_backward = bt_attention_backward_f32_avx512,
    .gemm_columns = bt_gemm_columns_f32_avx512,
    .gemm_tiles = &bt_gemm_tiles_f32_avx512,
};

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
