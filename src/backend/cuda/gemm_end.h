/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_end.h - from totals to results: bias, activation, residual, rounding.
 * The order is in gemm.h. Every operation is one that the compiler must not
 * contract or reorder, so that all kernels give the same bits. */
#ifndef BT_CUDA_GEMM_END_H
#define BT_CUDA_GEMM_END_H

#include "backend/cpu/kernels/activations.h"
#include "backend/cuda/gemm_task.h"
#include "backend/cuda/hopper.h"

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

/* 2^x and 1 / x, 2 and 1 ulp. */
BT_DEVICE float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

BT_DEVICE float reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / (1 + e^-x), about 4 ulp. */
BT_DEVICE float sigmoid(float x)
{
    return reciprocal(__fadd_rn(1.0f, exp2_approx(__fmul_rn(x, -1.44269504f))));
}

/* 2 y of gelu(x) = x (1 + tanh(y)) / 2 = x sigmoid(2 y). */
BT_DEVICE float gelu_argument(float x)
{
    return __fmul_rn(x, __fmaf_rn(0.0713548163f, __fmul_rn(x, x), 1.59576912f));
}

/* e^(-x^2 / 2) */
BT_DEVICE float gaussian(float x)
{
    return exp2_approx(__fmul_rn(__fmul_rn(x, x), -0.721347520f));
}

/* Phi(x), the normal distribution's integral, for |x| <= 14; see
 * activations.h. */
BT_DEVICE float normal_cdf(float x, float bell)
{
    float a = fabsf(x), n, d;
    n = __fmaf_rn(BT_PHI_N4, a, BT_PHI_N3);
    n = __fmaf_rn(n, a, BT_PHI_N2);
    n = __fmaf_rn(n, a, BT_PHI_N1);
    n = __fmaf_rn(n, a, BT_PHI_N0);
    d = __fmaf_rn(BT_PHI_D5, a, BT_PHI_D4);
    d = __fmaf_rn(d, a, BT_PHI_D3);
    d = __fmaf_rn(d, a, BT_PHI_D2);
    d = __fmaf_rn(d, a, BT_PHI_D1);
    d = __fmaf_rn(d, a, BT_PHI_D0);
    float tail = __fmul_rn(__fmul_rn(bell, n), reciprocal(d));
    return x < 0 ? tail : __fsub_rn(1.0f, tail);
}

/* NaN stays. */
BT_DEVICE float gelu_erf(float x)
{
    float low = x < -BT_PHI_END ? -BT_PHI_END : x;
    float c = low > BT_PHI_END ? BT_PHI_END : low;
    return __fmul_rn(low, normal_cdf(c, gaussian(c)));
}

BT_DEVICE float gelu_erf_slope(float x)
{
    float low = x < -BT_PHI_END ? -BT_PHI_END : x;
    float c = low > BT_PHI_END ? BT_PHI_END : low, bell = gaussian(c);
    return __fmaf_rn(__fmul_rn(c, bell), BT_PHI_DENSITY, normal_cdf(c, bell));
}

BT_DEVICE float act_of(bt_act act, float x)
{
    switch (act) {
    case BT_ACT_RELU:
        return x < 0 ? 0.0f : x;
    case BT_ACT_GELU_ERF:
        return gelu_erf(x);
    case BT_ACT_GELU_TANH:
        return __fmul_rn(x, sigmoid(gelu_argument(x)));
    default:
        return __fmul_rn(x, sigmoid(x));
    }
}

BT_DEVICE float act_slope_of(bt_act act, float x)
{
    float s, t;
    switch (act) {
    case BT_ACT_RELU:
        s = x <= 0 ? 0.0f : x; // NaN stays
        return x > 0 ? 1.0f : s;
    case BT_ACT_GELU_ERF:
        return gelu_erf_slope(x);
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

/* Four bf16 as they lie in memory; `left` are there. */
BT_DEVICE uint2 load_four(const uint16_t *from, int left)
{
    if (left >= 4)
        return *(const uint2 *)from;
    uint32_t x = from[0], y = left > 1 ? from[1] : 0;
    return make_uint2(x | y << 16, left > 2 ? from[2] : 0);
}

BT_DEVICE void four_floats(float *to, uint2 four)
{
    to[0] = low_bf16(four.x);
    to[1] = high_bf16(four.x);
    to[2] = low_bf16(four.y);
    to[3] = high_bf16(four.y);
}

/* What an end reads of a row, four columns: where slopes are taken, or the
 * residual. (Where both are, the residual is read late.) */
template <int KIND>
BT_DEVICE uint2 end_read(const bt_gemm_end &e, int row, int column, int left)
{
    size_t i = (size_t)row, j = (size_t)column;
    if (KIND >= KIND_SLOPE)
        return load_four(e.slope + i * e.ld_slope + j, left);
    if (e.residual)
        return load_four(e.residual + i * e.ld_residual + j, left);
    return make_uint2(0, 0);
}

/* As it would be stored before another operation reads it. */
BT_DEVICE float rounded(float v)
{
    return low_bf16(pack_bf16(v, 0.0f));
}

/* One element's value, from its total on; what is not there is not used. */
template <int KIND> BT_DEVICE float end_act(float v, float at)
{
    if (KIND != KIND_NONE)
        v = rounded(v);
    if (KIND >= KIND_SLOPE)
        return __fmul_rn(v, act_slope_of((bt_act)(KIND - KIND_SLOPE), at));
    if (KIND >= KIND_ACT)
        return act_of((bt_act)(KIND - KIND_ACT), v);
    return v;
}

/* The end of four elements of a row, of which `left` are there. */
template <int KIND>
BT_DEVICE void end_write(const bt_gemm_end &e, float *v, uint2 bias, uint2 read,
                         int row, int column, int left)
{
    size_t i = (size_t)row, j = (size_t)column;
    float at[4] = {}, add[4];
    if (e.bias) {
        four_floats(add, bias);
#pragma unroll
        for (int x = 0; x < 4; x++)
            v[x] = __fadd_rn(v[x], add[x]);
    }
    if (e.pre)
        store_bf16<4>(e.pre + i * e.ld_pre + j, v, left);
    if (KIND >= KIND_SLOPE)
        four_floats(at, read);
#pragma unroll
    for (int x = 0; x < 4; x++)
        v[x] = end_act<KIND>(v[x], at[x]);
    if (e.residual) {
        if (KIND >= KIND_SLOPE)
            read = load_four(e.residual + i * e.ld_residual + j, left);
        four_floats(add, read);
#pragma unroll
        for (int x = 0; x < 4; x++)
            v[x] = __fadd_rn(v[x], add[x]);
    }
    if (e.out_f32)
        store_f32<4>((float *)e.out + i * e.ldo + j, v, e.accumulate, left);
    else
        store_bf16<4>((uint16_t *)e.out + i * e.ldo + j, v, left);
}

/* The same for two elements and any kind: for kernels that do little of it. */
BT_DEVICE void end_two(const bt_gemm_end &e, float *v, int row, int column)
{
    int left = e.n - column;
    size_t i = (size_t)row, j = (size_t)column;
    float with[2];
    if (e.bias) {
        load_bf16<2>(with, e.bias + j, left);
        for (int x = 0; x < 2; x++)
            v[x] = __fadd_rn(v[x], with[x]);
    }
    if (e.pre)
        store_bf16<2>(e.pre + i * e.ld_pre + j, v, left);
    if (e.kind >= KIND_SLOPE) {
        load_bf16<2>(with, e.slope + i * e.ld_slope + j, left);
        for (int x = 0; x < 2; x++)
            v[x] =
                __fmul_rn(rounded(v[x]),
                          act_slope_of((bt_act)(e.kind - KIND_SLOPE), with[x]));
    } else if (e.kind >= KIND_ACT) {
        for (int x = 0; x < 2; x++)
            v[x] = act_of((bt_act)(e.kind - KIND_ACT), rounded(v[x]));
    }
    if (e.residual) {
        load_bf16<2>(with, e.residual + i * e.ld_residual + j, left);
        for (int x = 0; x < 2; x++)
            v[x] = __fadd_rn(v[x], with[x]);
    }
    if (e.out_f32)
        store_f32<2>((float *)e.out + i * e.ldo + j, v, e.accumulate, left);
    else
        store_bf16<2>((uint16_t *)e.out + i * e.ldo + j, v, left);
}

template <bt_act ACT> BT_DEVICE void gate_values(float (*v)[4])
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        v[0][j] = __fmul_rn(act_of(ACT, rounded(v[0][j])), rounded(v[1][j]));
}

/* Four results of a product and those that they are multiplied with, both of
 * which are stored, and then the gated activation. A product that ends so has
 * nothing but a bias. */
BT_DEVICE void gate_four(const bt_gemm_gate &g, const bt_gemm_end &e, float4 x,
                         float4 by, int row, int column)
{
    uint16_t *out = (uint16_t *)e.out + (size_t)row * e.ldo;
    float v[2][4] = { { x.x, x.y, x.z, x.w }, { by.x, by.y, by.z, by.w } };
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = column + (i == g.gate_first ? g.half : 0);
        if (e.bias) {
            float add[4];
            load_bf16<4>(add, e.bias + at, 4);
#pragma unroll
            for (int j = 0; j < 4; j++)
                v[i][j] = __fadd_rn(v[i][j], add[j]);
        }
        store_bf16<4>(out + at, v[i], 4);
    }
    switch (g.act) {
    case BT_ACT_RELU:
        gate_values<BT_ACT_RELU>(v);
        break;
    case BT_ACT_GELU_ERF:
        gate_values<BT_ACT_GELU_ERF>(v);
        break;
    case BT_ACT_GELU_TANH:
        gate_values<BT_ACT_GELU_TANH>(v);
        break;
    default:
        gate_values<BT_ACT_SILU>(v);
        break;
    }
    store_bf16<4>(g.y + (size_t)row * g.ld_y + column, v[0], 4);
}

/* ---- pairs ----------------------------------------------------------------
 */

/* Two neighbouring elements of a row each, and any kind of end: for kernels of
 * few rows. What is decided by the end alone is decided once for all pairs of a
 * thread, so that each step is short and their loads overlap. */
template <int COUNT> struct end_pairs {
    float v[COUNT][2];
    uint32_t bias[COUNT]; /* as it lies in memory */
    int row[COUNT], column[COUNT];
    bool in[COUNT];
};

template <int COUNT, bt_act ACT> BT_DEVICE void act_pairs(end_pairs<COUNT> &p)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int x = 0; x < 2; x++)
            p.v[i][x] = act_of(ACT, rounded(p.v[i][x]));
}

template <int COUNT, bt_act ACT>
BT_DEVICE void slope_pairs(end_pairs<COUNT> &p, const bt_gemm_end &e)
{
    float at[COUNT][2];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (p.in[i])
            load_bf16<2>(at[i],
                         e.slope + (size_t)p.row[i] * e.ld_slope + p.column[i],
                         e.n - p.column[i]);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int x = 0; x < 2; x++)
            p.v[i][x] =
                __fmul_rn(rounded(p.v[i][x]), act_slope_of(ACT, at[i][x]));
}

template <int COUNT>
BT_DEVICE void residual_pairs(end_pairs<COUNT> &p, const bt_gemm_end &e)
{
    float add[COUNT][2];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (p.in[i])
            load_bf16<2>(add[i],
                         e.residual + (size_t)p.row[i] * e.ld_residual +
                             p.column[i],
                         e.n - p.column[i]);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int x = 0; x < 2; x++)
            p.v[i][x] = __fadd_rn(p.v[i][x], add[i][x]);
}

template <int COUNT>
BT_DEVICE void store_pairs(const end_pairs<COUNT> &p, uint16_t *to, size_t ld,
                           int n)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (p.in[i])
            store_bf16<2>(to + (size_t)p.row[i] * ld + p.column[i], p.v[i],
                          n - p.column[i]);
}

/* From totals to results. */
template <int COUNT>
BT_DEVICE void finish_pairs(end_pairs<COUNT> &p, const bt_gemm_end &e)
{
    if (e.bias) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            p.v[i][0] = __fadd_rn(p.v[i][0], low_bf16(p.bias[i]));
            p.v[i][1] = __fadd_rn(p.v[i][1], high_bf16(p.bias[i]));
        }
    }
    if (e.pre)
        store_pairs(p, e.pre, e.ld_pre, e.n);
    switch (e.kind) {
    case KIND_ACT + BT_ACT_RELU:
        act_pairs<COUNT, BT_ACT_RELU>(p);
        break;
    case KIND_ACT + BT_ACT_GELU_ERF:
        act_pairs<COUNT, BT_ACT_GELU_ERF>(p);
        break;
    case KIND_ACT + BT_ACT_GELU_TANH:
        act_pairs<COUNT, BT_ACT_GELU_TANH>(p);
        break;
    case KIND_ACT + BT_ACT_SILU:
        act_pairs<COUNT, BT_ACT_SILU>(p);
        break;
    case KIND_SLOPE + BT_ACT_RELU:
        slope_pairs<COUNT, BT_ACT_RELU>(p, e);
        break;
    case KIND_SLOPE + BT_ACT_GELU_ERF:
        slope_pairs<COUNT, BT_ACT_GELU_ERF>(p, e);
        break;
    case KIND_SLOPE + BT_ACT_GELU_TANH:
        slope_pairs<COUNT, BT_ACT_GELU_TANH>(p, e);
        break;
    case KIND_SLOPE + BT_ACT_SILU:
        slope_pairs<COUNT, BT_ACT_SILU>(p, e);
        break;
    default:
        break;
    }
    if (e.residual)
        residual_pairs(p, e);
    if (!e.out_f32) {
        store_pairs(p, (uint16_t *)e.out, e.ldo, e.n);
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (p.in[i])
            store_f32<2>((float *)e.out + (size_t)p.row[i] * e.ldo +
                             p.column[i],
                         p.v[i], e.accumulate, e.n - p.column[i]);
}

/* Two bf16 as they lie in memory; `left` are there. */
BT_DEVICE uint32_t load_two(const uint16_t *from, int left)
{
    return left >= 2 ? *(const uint32_t *)from : from[0];
}

#endif
