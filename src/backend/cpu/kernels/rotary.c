/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c - the reference kernels. x86/pointwise_*.c include this file with
 * another KERNEL to compile the twins. */
#include "backend/cpu/kernels/rotary.h"

#include <math.h>
#include <string.h>

#ifndef KERNEL
#define KERNEL(name) name##_c
#endif

enum { ROTARY_CHUNK = 64 }; /* columns at a time */

/* pi / 2 in two parts: n times the first is subtracted with a fused step, then
 * n times the second corrects the remainder. */
#define HALF_PI_HIGH 0x1.921fb54442d18p+0
#define HALF_PI_LOW 0x1.1a62633145c07p-54
#define TWO_OVER_PI 0x1.45f306dc9c883p-1

static double with_sign(double x, uint64_t sign)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits ^= sign << 63;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* angle = n pi / 2 + r, |r| <= pi / 4. The Taylor series in r have a truncation
 * error below r^15 / 15! and r^16 / 16!, 2^-45. Adding 1.5 * 2^52 rounds to an
 * integer whose lowest bits are the quadrant: sine and cosine swap in the odd
 * ones. */
static void cos_sin(double angle, float *cosine, float *sine)
{
    double t = angle * TWO_OVER_PI + 0x1.8p52, n = t - 0x1.8p52;
    double r = fma(-n, HALF_PI_LOW, fma(-n, HALF_PI_HIGH, angle)), z = r * r;
    double s = 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * r + r;
    double c = -1.0 / 87178291200;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 1.0 / 2;
    c = c * z + 1.0;
    uint64_t quadrant;
    memcpy(&quadrant, &t, sizeof(quadrant));
    double low = quadrant & 1 ? c : s, high = quadrant & 1 ? s : c;
    *sine = (float)with_sign(low, quadrant >> 1 & 1);
    *cosine = (float)with_sign(high, (quadrant + 1) >> 1 & 1);
}

static void cos_sin_of_position(float *restrict cosine, float *restrict sine,
                                double position,
                                const float *restrict frequencies, size_t count)
{
    for (size_t c = 0; c < count; c++)
        cos_sin(position * (double)frequencies[c], &cosine[c], &sine[c]);
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

void KERNEL(bt_rotary_f32)(const bt_rotary *rotary, size_t first, size_t count)
{
    float cosine[ROTARY_CHUNK], sine[ROTARY_CHUNK];
    size_t half = rotary->dim / 2, columns = rotary->heads * rotary->dim;
    for (size_t i = first; i < first + count; i++) {
        double position = (double)rotary->positions[i];
        if (rotary->back)
            position = -position;
        for (size_t c = 0, n; c < half; c += n) {
            n = half - c < ROTARY_CHUNK ? half - c : ROTARY_CHUNK;
            cos_sin_of_position(cosine, sine, position, rotary->frequencies + c,
                                n);
            for (size_t h = 0; h < rotary->heads; h++) {
                size_t at = i * columns + h * rotary->dim + c;
                rotate(rotary->y + at, rotary->x + at, half, cosine, sine, n,
                       rotary->add);
            }
        }
    }
}
