/* SPDX-License-Identifier: Apache-2.0 */
/* x86.h - what of x86 the table of kernels sees. */
#ifndef BT_X86_H
#define BT_X86_H

#include "kernels/kernels.h"

/* Append the tables that this machine can run ("avx2", then "avx512") and
 * return how many; 0 on other architectures. */
size_t bt_kernels_x86(const bt_kernels *tables[2]);

bt_exp_fn bt_exp_f32_avx2, bt_exp_f32_avx512;
bt_row_max_fn bt_row_max_f32_avx2, bt_row_max_f32_avx512;
bt_row_exp_sum_fn bt_row_exp_sum_f32_avx2, bt_row_exp_sum_f32_avx512;
bt_transpose_fn bt_transpose_f32_avx2, bt_transpose_f32_avx512;
bt_attention_forward_fn bt_attention_forward_f32_avx2,
    bt_attention_forward_f32_avx512;
bt_attention_backward_fn bt_attention_backward_f32_avx2,
    bt_attention_backward_f32_avx512;
bt_gemm_columns_fn bt_gemm_columns_f32_avx2, bt_gemm_columns_f32_avx512;
extern const bt_gemm_tiles bt_gemm_tiles_f32_avx2, bt_gemm_tiles_f32_avx512;

#endif
