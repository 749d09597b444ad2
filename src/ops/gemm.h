/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - a matrix product on threads. */
#ifndef BT_OPS_GEMM_H
#define BT_OPS_GEMM_H

#include "base/memory.h"
#include "bauta.h"
#include "kernels/kernels.h"

/* Compute the product that kernels/gemm.h defines. `workspace` holds nothing
 * else; it grows to what the largest product needed, at most some megabytes
 * and some hundred kilobytes a thread, so a repeated call allocates nothing.
 * Fails only when there is no memory for it; C is then untouched. */
bauta_status bt_gemm_f32(const bt_kernels *kernels, int threads,
                         const bt_gemm *gemm, bt_arena *workspace,
                         bauta_error *err);

/* Products that do not depend on each other. Those of few rows are computed in
 * one go, since threads cost more to start than such a product may take. */
enum { BT_GEMM_TOGETHER = 4 /* at most; more are computed one by one */ };
bauta_status bt_gemm_several_f32(const bt_kernels *kernels, int threads,
                                 const bt_gemm *gemms, size_t count,
                                 bt_arena *workspace, bauta_error *err);

#endif
