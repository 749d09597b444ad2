/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_f32.h - matrix products in float32 on the GPU, seen from C.
 *
 * Each element of the result is one chain of fused multiply-adds over k, in
 * order, which starts from 0 or, with `add`, from what the output holds; the
 * bias is added last. That is the CPU's order, so these are the CPU's bits, and
 * neither tiles nor the number of rows change one. */
#ifndef BT_CUDA_GEMM_F32_H
#define BT_CUDA_GEMM_F32_H

#include "backend/cuda/gemm.h"

/* The forms of gemm.h. Any sizes, strides and alignments; out overlaps no
 * operand. */
typedef struct bt_cuda_gemm_f32_args {
    bt_gemm_form form;
    size_t m, n, k;
    const float *a, *b;
    size_t lda, ldb;
    float *out; /* (m, n) */
    size_t ldo;
    const float *bias; /* (n), or NULL */
    bool add;
} bt_cuda_gemm_f32_args;

#ifdef __cplusplus
extern "C"
#endif
    bauta_status
    bt_cuda_gemm_f32(const bt_cuda_gemm_f32_args *product, void *stream,
                     bauta_error *err);

#endif
