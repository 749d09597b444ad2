/* SPDX-License-Identifier: Apache-2.0 */
/* softcap.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins. */
#include "backend/cpu/kernels/softcap.h"

#include "backend/cpu/kernels/tanh.h"

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

void KERNEL(bt_softcap_f32)(float *y, const float *x, float cap, size_t count)
{
    for (size_t j = 0; j < count; j++)
        y[j] = cap * bt_tanh(x[j] / cap);
}

void KERNEL(bt_softcap_backward_f32)(float *dx, const float *y, const float *dy,
                                     float cap, size_t count, bool add)
{
    for (size_t j = 0; j < count; j++) {
        float t = y[j] / cap;
        float d = dy[j] * fmaf(-t, t, 1.0f);
        dx[j] = add ? dx[j] + d : d;
    }
}
