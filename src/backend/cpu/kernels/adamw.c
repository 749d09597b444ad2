/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins. */
#include "backend/cpu/kernels/adamw.h"

#include "backend/cpu/kernels/lanes.h"

#include <math.h>

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

/* Linear interpolation from m to g, computed from the nearer end as torch.lerp
 * does, so that beta1 = 0 gives g exactly. */
static inline float lerp_moment(const bt_adamw *a, float m, float g)
{
    return a->weight1 < 0.5f ? fmaf(a->weight1, g - m, m)
                             : fmaf(-a->beta1, g - m, g);
}

void KERNEL(bt_adamw_f32)(const bt_adamw *a, float *restrict p,
                          float *restrict m, float *restrict v,
                          const float *restrict gradient, size_t count)
{
    const bt_adamw c = *a; // a copy that the stores cannot alias
    for (size_t j = 0; j < count; j++) {
        float g = gradient[j] * c.scale;
        m[j] = lerp_moment(&c, m[j], g);
        v[j] = fmaf(c.weight2 * g, g, v[j] * c.beta2);
        float size = sqrtf(v[j]) / c.root + c.epsilon;
        p[j] = p[j] * c.keep - c.step * m[j] / size;
    }
}

double KERNEL(bt_squares_f32)(const float *x, size_t count)
{
    double lanes[BT_LANES] = { 0 };
    size_t j = 0;
    for (; j + BT_LANES <= count; j += BT_LANES)
        for (size_t t = 0; t < BT_LANES; t++)
            lanes[t] += (double)x[j + t] * (double)x[j + t];
    for (size_t t = 0; j < count; j++, t++)
        lanes[t] += (double)x[j] * (double)x[j];
    return bt_lanes_sum_double(lanes);
}
