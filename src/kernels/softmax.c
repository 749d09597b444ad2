/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c - the reference and, included by the files of an instruction set
 * with another KERNEL, its twins. */
#include "kernels/softmax.h"

#include "kernels/exp2.h"
#include "kernels/lanes.h"

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
    float lanes[BT_LANES], max = -INFINITY;
    size_t j = 0;
    for (size_t t = 0; t < BT_LANES; t++)
        lanes[t] = -INFINITY;
    for (; j + BT_LANES <= count; j += BT_LANES)
        for (size_t t = 0; t < BT_LANES; t++)
            lanes[t] = x[j + t] > lanes[t] ? x[j + t] : lanes[t];
    for (size_t t = 0; t < BT_LANES; t++)
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
