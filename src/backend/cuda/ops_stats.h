/* SPDX-License-Identifier: Apache-2.0 */
/* ops_stats.h - the largest of a row of logits and the sum of their
 * exponentials, in one tree wherever they are computed.
 *
 * A row is cut into slices of 512 logits. A warp has a slice: lane l groups l
 * and l + 32 of eight logits. The sum of a slice is relative to the slice's own
 * maximum: groups in a tree, a lane's groups in order, lanes in a tree. Slice i
 * is in lane i % 32 of the warp that merges them. */
#ifndef BT_CUDA_OPS_STATS_H
#define BT_CUDA_OPS_STATS_H

#include "backend/cuda/ops_device.h"

enum { SLICE = 512, SLICE_GROUPS = SLICE / 8 / 32, SLICES_MOST = 1024 };

/* The largest logit, ignoring NaN, and the sum of exp(x - max), or of exp(x)
 * if all are -infinity; NaN if a logit is NaN or +infinity. */
typedef struct slice_stats {
    float max, sum;
} slice_stats;

/* e^(x - base) as the logits' type has it; for bfloat16 the base comes as
 * -base log2(e). */
template <class T> BT_DEVICE float exp_from(float x, float base)
{
    if (sizeof(T) == sizeof(float))
        return bt_exp(x - base);
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;"
        : "=f"(y)
        : "f"(fmaf(x, (float)BT_LOG2E, base)));
    return y;
}

template <class T> BT_DEVICE float exp_base(float base)
{
    return sizeof(T) == sizeof(float) ? base : base * -(float)BT_LOG2E;
}

/* What is subtracted before exponentials are taken. */
BT_DEVICE float base_of(float max)
{
    return max == -INFINITY ? 0.0f : max;
}

/* A lane's logits of a slice, as they lie in memory. */
template <class T> struct slice_part {
    octet<T> o[SLICE_GROUPS];
};

template <class T>
BT_DEVICE slice_part<T> slice_read(const T *x, uint32_t count, uint32_t slice,
                                   bool wide)
{
    slice_part<T> part;
#pragma unroll
    for (int k = 0; k < SLICE_GROUPS; k++) {
        uint32_t column = slice * SLICE + (k * 32 + threadIdx.x % 32) * 8;
        part.o[k] = read8(x + column, (int)(count - column), wide);
    }
    return part;
}

/* The same as floats; -infinity where the row has ended. */
template <class T>
BT_DEVICE void slice_unpack(float (*v)[8], const slice_part<T> &part,
                            uint32_t count, uint32_t slice)
{
#pragma unroll
    for (int k = 0; k < SLICE_GROUPS; k++)
        unpack8(v[k], part.o[k]);
    if ((slice + 1) * SLICE <= count)
        return;
#pragma unroll
    for (int k = 0; k < SLICE_GROUPS; k++) {
        uint32_t column = slice * SLICE + (k * 32 + threadIdx.x % 32) * 8;
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[k][i] = column + i < count ? v[k][i] : -INFINITY;
    }
}

template <class T>
BT_DEVICE void slice_load(float (*v)[8], const T *x, uint32_t count,
                          uint32_t slice, bool wide)
{
    slice_unpack(v, slice_read(x, count, slice, wide), count, slice);
}

/* v is overwritten by the exponentials. */
template <class T> BT_DEVICE slice_stats slice_reduce(float (*v)[8])
{
    float max = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < SLICE_GROUPS; k++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            max = fmaxf(max, v[k][i]);
    max = lanes_max<32>(max);
    float base = exp_base<T>(base_of(max));
#pragma unroll
    for (int k = 0; k < SLICE_GROUPS; k++) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[k][i] = exp_from<T>(v[k][i], base);
        sum += sum8(v[k]);
    }
    return { max, lanes_sum<32>(sum) };
}

/* The stats of a row from those of its slices; the same in all lanes. */
BT_DEVICE slice_stats slices_merge(const slice_stats *all, uint32_t count)
{
    uint32_t lane = threadIdx.x % 32;
    float max = -INFINITY, sum = 0.0f;
    for (uint32_t i = lane; i < count; i += 32)
        max = fmaxf(max, all[i].max);
    max = lanes_max<32>(max);
    float base = base_of(max);
    for (uint32_t i = lane; i < count; i += 32)
        sum += all[i].sum * bt_exp(base_of(all[i].max) - base);
    return { max, lanes_sum<32>(sum) };
}

/* As row_stats.c. */
BT_DEVICE float lse_of(slice_stats row)
{
    if (!(isfinite(row.max) && !isnan(row.sum)))
        return NAN;
    return (float)((double)row.max + bt_log2((double)row.sum) * BT_LN2);
}

#endif
