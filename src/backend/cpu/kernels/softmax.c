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

float KERNEL(bt_row_max_f32)(const float *x, size_t count)
{
    enum { WIDE = 64 }; // gcc does not vectorize the loop with sixteen
    float lanes[WIDE], max = -INFINITY;
    size_t j = 0;
    for (size_t t = 0; t < WIDE; t++)
        lanes[t] = -INFINITY;
    for (; j + WIDE <= count; j += WIDE)
        for (size_t t = 0; t < WIDE; t++)
            lanes[t] = x[j + t] > lanes[t] ? x[j + t] : lanes[t];
    for (size_t t = 0; t < WIDE; t++)
        max = lanes[t] > max ? lanes[t] : max;
    for (; j < count; j++)
        max = x[j] > max ? x[j] : max;
    return max;
}

float KERNEL(bt_row_exp_sum_f32)(float *to, const float *x, size_t count,
                                 float base)
{
    float lanes[BT_LANES] = { 0 };
    size_t j = 0;
    for (; j + BT_LANES <= count; j += BT_LANES)
        for (size_t t = 0; t < BT_LANES; t++) {
            float e = bt_exp(x[j + t] - base);
            to[j + t] = e;
            lanes[t] += e;
        }
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
