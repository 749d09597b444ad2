/* SPDX-License-Identifier: Apache-2.0 */
/* x86.h - the x86 kernel tables. */
#ifndef BT_X86_H
#define BT_X86_H

#include "backend/cpu/kernels/kernels.h"

/* Append the tables that this machine can run ("avx2", then "avx512") and
 * return how many; 0 on other architectures. */
size_t bt_kernels_x86(const bt_kernels *tables[2]);

#define BT_X86_DECLARE(name) \
    bt_##name##_fn bt_##name##_f32_avx2, bt_##name##_f32_avx512;
BT_KERNEL_MAP(BT_X86_DECLARE)
extern const bt_gemm_tiles bt_gemm_tiles_f32_avx2, bt_gemm_tiles_f32_avx512;

#endif
