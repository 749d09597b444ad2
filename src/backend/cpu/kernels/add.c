/* SPDX-License-Identifier: Apache-2.0 */
/* add.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins. */
#include "backend/cpu/kernels/add.h"

#include <math.h>

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

void KERNEL(bt_add_f32)(float *restrict to, const float *a, const float *b,
                        size_t count)
{
    for (size_t j = 0; j < count; j++)
        to[j] = a[j] + b[j];
}

void KERNEL(bt_scale_f32)(float *restrict to, const float *restrict x,
                          float scale, size_t count, bool add)
{
    if (add)
        for (size_t j = 0; j < count; j++)
            to[j] = fmaf(x[j], scale, to[j]);
    else
        for (size_t j = 0; j < count; j++)
            to[j] = x[j] * scale;
}
