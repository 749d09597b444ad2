/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_end.h - from totals to results: bias, activation, residual, rounding.
 * The order is in gemm.h. Every operation is one that the compiler must not
 * contract or reorder, so that all kernels give the same bits. */
#ifndef BT_CUDA_GEMM_END_H
#define BT_CUDA_GEMM_END_H

#include "kernels/cuda/gemm_task.h"
#include "kernels/cuda/hopper.h"

enum { KIND_NONE = 0, KIND_ACT = 1, KIND_SLOPE = 5 };

BT_DEVICE float low_bf16(uint32_t two)
{
    return __uint_as_float(two << 16);
}

BT_DEVICE float high_bf16(uint32_t two)
{
    return __uint_as_float(two & 0xffff0000u);
}

/* ---- activations ----------------------------------------------------------
 */

/* 1 / (1 + e^-x), about 4 ulp. */
BT_DEVICE float sigmoid(float x)
{
    return __frcp_rn(__fadd_rn(1.0f, exp2f(__fmul_rn(x, -1.44269504f))));
}

/* 2 y of gelu(x) = x (1 + tanh(y)) / 2 = x sigmoid(2 y). */
BT_DEVICE float gelu_argument(float x)
{
    return __fmul_rn(x, __fmaf_rn(0.0713548163f, __fmul_rn(x, x), 1.59576912f));
}

/* Phi(x): the normal distribution's integral. */
BT_DEVICE float normal_cdf(float x)
{
    return __fmul_rn(0.5f, erfcf(__fmul_rn(x, -0.707106781f)));
}

BT_DEVICE float act_of(bt_act act, float x)
{
    switch (act) {
    case BT_ACT_RELU:
        return x < 0 ? 0.0f : x;
    case BT_ACT_GELU_ERF:
        return __fmul_rn(x, normal_cdf(x));
    case BT_ACT_GELU_TANH:
        return __fmul_rn(x, sigmoid(gelu_argument(x)));
    default:
        return __fmul_rn(x, sigmoid(x));
    }
}

BT_DEVICE float act_slope_of(bt_act act, float x)
{
    float s, t, bell;
    switch (act) {
    case BT_ACT_RELU:
        return x > 0 ? 1.0f : 0.0f;
    case BT_ACT_GELU_ERF:
        bell = exp2f(__fmul_rn(__fmul_rn(x, x), -0.721347520f));
        return __fmaf_rn(__fmul_rn(x, 0.398942280f), bell, normal_cdf(x));
    case BT_ACT_GELU_TANH:
        s = sigmoid(gelu_argument(x));
        t = __fmaf_rn(0.214064449f, __fmul_rn(x, x), 1.59576912f);
        t = __fmul_rn(__fmul_rn(x, t), __fmaf_rn(-s, s, s));
        return __fadd_rn(s, t);
    default:
        s = sigmoid(x);
        return __fmaf_rn(x, __fmaf_rn(-s, s, s), s);
    }
}

/* ---- elements of a row -----------------------------------------------------
 */

/* COUNT (2 or 4) bf16 of a row; where the row ends before, those that there
 * are, and zeros. */
template <int COUNT>
BT_DEVICE void load_bf16(float *to, const uint16_t *from, int left)
{
    if (left >= COUNT) {
        uint32_t two[COUNT / 2];
        if constexpr (COUNT == 4) {
            uint2 four = *(const uint2 *)from;
            two[0] = four.x;
            two[1] = four.y;
        } else {
            two[0] = *(const uint32_t *)from;
        }
#pragma unroll
        for (int x = 0; x < COUNT; x++)
            to[x] = x % 2 ? high_bf16(two[x / 2]) : low_bf16(two[x / 2]);
    } else {
#pragma unroll
        for (int x = 0; x < COUNT; x++)
            to[x] = x < left ? low_bf16(from[x]) : 0.0f;
    }
}

template <int COUNT>
BT_DEVICE void store_bf16(uint16_t *to, const float *from, int left)
{
    uint32_t two[COUNT / 2];
#pragma unroll
    for (int x = 0; x < COUNT; x += 2)
        two[x / 2] = pack_bf16(from[x], from[x + 1]);
    if (left < COUNT) {
#pragma unroll
        for (int x = 0; x < COUNT; x++)
            if (x < left)
                to[x] = (uint16_t)(two[x / 2] >> x % 2 * 16);
    } else if constexpr (COUNT == 4) {
        *(uint2 *)to = make_uint2(two[0], two[1]);
    } else {
        *(uint32_t *)to = two[0];
    }
}

template <int COUNT>
BT_DEVICE void store_f32(float *to, const float *from, bool accumulate,
                         int left)
{
    if (left < COUNT) {
#pragma unroll
        for (int x = 0; x < COUNT; x++)
            if (x < left)
                to[x] = accumulate ? __fadd_rn(to[x], from[x]) : from[x];
    } else if constexpr (COUNT == 4) {
        float4 v = make_float4(from[0], from[1], from[2], from[3]);
        if (accumulate) {
            float4 old = *(const float4 *)to;
            v = make_float4(__fadd_rn(old.x, v.x), __fadd_rn(old.y, v.y),
                            __fadd_rn(old.z, v.z), __fadd_rn(old.w, v.w));
        }
        *(float4 *)to = v;
    } else {
        float2 v = make_float2(from[0], from[1]);
        if (accumulate) {
            float2 old = *(const float2 *)to;
            v = make_float2(__fadd_rn(old.x, v.x), __fadd_rn(old.y, v.y));
        }
        *(float2 *)to = v;
    }
}

/* From the totals of COUNT elements at (row, column) to memory; there is at
 * least one. Columns begin at multiples of COUNT. */
template <int COUNT>
BT_DEVICE void end_elements(const bt_gemm_end &e, float *v, int row, int column)
{
    int left = e.n - column;
    size_t i = (size_t)row, j = (size_t)column;
    float with[COUNT];
    if (e.bias) {
        load_bf16<COUNT>(with, e.bias + j, left);
#pragma unroll
        for (int x = 0; x < COUNT; x++)
            v[x] = __fadd_rn(v[x], with[x]);
    }
    if (e.pre)
        store_bf16<COUNT>(e.pre + i * e.ld_pre + j, v, left);
    if (e.kind >= KIND_SLOPE) {
        load_bf16<COUNT>(with, e.slope + i * e.ld_slope + j, left);
        for (int x = 0; x < COUNT; x++)
            v[x] = __fmul_rn(
                v[x], act_slope_of((bt_act)(e.kind - KIND_SLOPE), with[x]));
    } else if (e.kind >= KIND_ACT) {
        for (int x = 0; x < COUNT; x++)
            v[x] = act_of((bt_act)(e.kind - KIND_ACT), v[x]);
    }
    if (e.residual) {
        load_bf16<COUNT>(with, e.residual + i * e.ld_residual + j, left);
#pragma unroll
        for (int x = 0; x < COUNT; x++)
            v[x] = __fadd_rn(v[x], with[x]);
    }
    if (e.out_f32)
        store_f32<COUNT>((float *)e.out + i * e.ldo + j, v, e.accumulate, left);
    else
        store_bf16<COUNT>((uint16_t *)e.out + i * e.ldo + j, v, left);
}

#endif
