/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins. */
#include "backend/cpu/kernels/rotary.h"

#include "backend/cpu/kernels/cos_sin.h"

#include <math.h>

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

enum { ROTARY_CHUNK = 64 }; /* columns at a time */

static void cos_sin_of_position(float *restrict cosine, float *restrict sine,
                                double position,
                                const float *restrict frequencies, size_t count)
{
    for (size_t c = 0; c < count; c++)
        bt_cos_sin(position * (double)frequencies[c], &cosine[c], &sine[c]);
}

/* Rotate the pairs of some columns of one head. */
static void rotate(float *restrict y, const float *restrict x, size_t half,
                   const float *restrict cosine, const float *restrict sine,
                   size_t count, bool add)
{
    float *restrict y2 = y + half;
    const float *restrict x2 = x + half;
    for (size_t c = 0; c < count; c++) {
        float a = fmaf(-x2[c], sine[c], x[c] * cosine[c]);
        float b = fmaf(x[c], sine[c], x2[c] * cosine[c]);
        y[c] = add ? y[c] + a : a;
        y2[c] = add ? y2[c] + b : b;
    }
}

/* The same for all heads of a row. */
static void rotate_heads(float *y, const float *x, size_t heads, size_t dim,
                         const float *cosine, const float *sine, size_t count,
                         bool add)
{
    for (size_t h = 0; h < heads; h++)
        rotate(y + h * dim, x + h * dim, dim / 2, cosine, sine, count, add);
}

void KERNEL(bt_rotary_f32)(const bt_rotary *rotary, size_t first, size_t count)
{
    float cosine[ROTARY_CHUNK], sine[ROTARY_CHUNK];
    size_t dim = rotary->dim, half = dim / 2;
    for (size_t i = first; i < first + count; i++) {
        double position = (double)rotary->positions[i];
        if (rotary->back)
            position = -position;
        for (size_t c = 0, n; c < half; c += n) {
            n = half - c < ROTARY_CHUNK ? half - c : ROTARY_CHUNK;
            cos_sin_of_position(cosine, sine, position, rotary->frequencies + c,
                                n);
            size_t at = i * rotary->heads * dim + c;
            rotate_heads(rotary->y + at, rotary->x + at, rotary->heads, dim,
                         cosine, sine, n, rotary->add);
            at = i * rotary->other_heads * dim + c;
            if (rotary->other_heads)
                rotate_heads(rotary->other_y + at, rotary->other_x + at,
                             rotary->other_heads, dim, cosine, sine, n,
                             rotary->add);
        }
    }
}
