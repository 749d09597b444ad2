/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - matrix products on threads. */
#ifndef BT_CPU_GEMM_H
#define BT_CPU_GEMM_H

#include "backend/cpu/cpu.h"

/* Compute the product that kernels/gemm.h defines. The workspace is emptied and
 * grows to the need of the largest product, at most some megabytes plus some
 * hundred kilobytes per thread, so a repeated call allocates nothing. Fails
 * only when there is no memory for it; C is then unchanged. */
bauta_status bt_gemm_f32(bt_cpu *cpu, const bt_gemm *gemm, bauta_error *err);

/* Whether it is a blocked product, which has an activation as its epilogue. */
bool bt_gemm_blocked(const bt_cpu *cpu, const bt_gemm *gemm);

/* Independent products. Those of few rows run in one parallel loop, since
 * starting threads can cost more than such a product. */
enum { BT_GEMM_GROUP_MAX = 4 /* at most; more are computed one by one */ };
bauta_status bt_gemm_grouped_f32(bt_cpu *cpu, const bt_gemm *gemms,
                                 size_t count, bauta_error *err);

#endif
