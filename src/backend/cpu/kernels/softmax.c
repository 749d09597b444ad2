/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins. */
#include "backend/cpu/kernels/softmax.h"

#include "backend/cpu/kernels/exp2.h"
#include "backend/cpu/kernels/lanes.h"

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

void KERNEL(bt_exp_f32)(float *to, const float *x, size_t count)
{
    for (size_t j = 0; j < count; j++)
        to[j] = bt_exp(x[j]);
}

/* Reduced by halves: one chain over the lanes would take longer than the rest
 * of a short row. */
static float lanes_max(float lanes[64])
{
    for (size_t t = 0; t < 32; t++)
        lanes[t] = lanes[t + 32] > lanes[t] ? lanes[t + 32] : lanes[t];
    for (size_t t = 0; t < 16; t++)
        lanes[t] = lanes[t + 16] > lanes[t] ? lanes[t + 16] : lanes[t];
    for (size_t width = 8; width; width /= 2)
        for (size_t t = 0; t < width; t++)
            lanes[t] =
                lanes[t + width] > lanes[t] ? lanes[t + width] : lanes[t];
    return lanes[0];
}

float KERNEL(bt_row_max_f32)(const float *x, size_t count)
{
    enum { WIDE = 64 }; // gcc does not vectorize the loop with sixteen
    float lanes[WIDE], max = -INFINITY;
    for (size_t j = 0; j < count && count < WIDE; j++)
        max = x[j] > max ? x[j] : max;
    if (count < WIDE)
        return max;
    for (size_t t = 0; t < WIDE; t++)
        lanes[t] = -INFINITY;
    for (size_t j = 0; j < count; j += WIDE) {
        const float *from = x + (j + WIDE <= count ? j : count - WIDE);
        for (size_t t = 0; t < WIDE; t++)
            lanes[t] = from[t] > lanes[t] ? from[t] : lanes[t];
    }
    return lanes_max(lanes);
}

float KERNEL(bt_row_exp_sum_f32)(float *to, const float *x, size_t count,
                                 float base)
{
    // An array of sums would stay in memory, and every sum wait for a store.
    bt_sixteen sum = { 0 }, v;
    float lanes[BT_LANES], e[BT_LANES];
    size_t j = 0;
    for (; j + BT_LANES <= count; j += BT_LANES) {
        for (size_t t = 0; t < BT_LANES; t++)
            e[t] = bt_exp(x[j + t] - base);
        memcpy(&v, e, sizeof(v));
        memcpy(to + j, e, sizeof(v));
        sum += v;
    }
    memcpy(lanes, &sum, sizeof(lanes));
    for (size_t t = 0; j < count; j++, t++) {
        to[j] = bt_exp(x[j] - base);
        lanes[t] += to[j];
    }
    return bt_lanes_sum(lanes);
}

double KERNEL(bt_row_sum_f32)(const float *x, size_t count)
{
    double lanes[BT_LANES] = { 0 };
    size_t j = 0;
    for (; j + BT_LANES <= count; j += BT_LANES)
        for (size_t t = 0; t < BT_LANES; t++)
            lanes[t] += (double)x[j + t];
    for (size_t t = 0; j < count; j++, t++)
        lanes[t] += (double)x[j];
    return bt_lanes_sum_double(lanes);
}

void KERNEL(bt_row_affine_f32)(float *x, size_t count, float scale, float shift)
{
    for (size_t j = 0; j < count; j++)
        x[j] = fmaf(x[j], scale, shift);
}
