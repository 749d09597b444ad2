/* SPDX-License-Identifier: Apache-2.0 */
/* norm_row.h - the arithmetic of layer norm and RMS norm on eight columns of a
 * row. Kernels that share a row between threads in the way that ops_norm.cu
 * describes give the same bits, however they are compiled: no step here may be
 * contracted or reordered. */
#ifndef BT_CUDA_NORM_ROW_H
#define BT_CUDA_NORM_ROW_H

#include "backend/cuda/hopper.h"

/* part + the sum of eight, in a tree. */
BT_DEVICE float norm_add8(float part, const float *v)
{
    float low = __fadd_rn(__fadd_rn(v[0], v[1]), __fadd_rn(v[2], v[3]));
    float high = __fadd_rn(__fadd_rn(v[4], v[5]), __fadd_rn(v[6], v[7]));
    return __fadd_rn(part, __fadd_rn(low, high));
}

/* Subtract the mean; part + the sum of squares. Of the columns `left` are
 * there, and the others become 0. */
BT_DEVICE float norm_center8(float part, float *v, float mean, int left)
{
    float square[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = __fsub_rn(v[j], mean);
    if (left < 8)
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = j < left ? v[j] : 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++)
        square[j] = __fmul_rn(v[j], v[j]);
    return norm_add8(part, square);
}

/* 1 / the root of the mean of squares. */
BT_DEVICE float norm_scale(float square, float inverse, float epsilon)
{
    return __frsqrt_rn(__fadd_rn(__fmul_rn(square, inverse), epsilon));
}

/* From what norm_center8() leaves to the result. */
BT_DEVICE void norm_apply8(float *v, float scale, const float *gain,
                           bool has_bias, const float *bias)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float h = __fmul_rn(v[j], scale);
        v[j] =
            has_bias ? __fmaf_rn(h, gain[j], bias[j]) : __fmul_rn(h, gain[j]);
    }
}

#endif
