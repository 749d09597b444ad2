/* SPDX-License-Identifier: Apache-2.0 */
/* cos_sin.h - cosine and sine with defined bits, for rotary embeddings.
 *
 * As in exp2.h, only operations that round the same way everywhere are used, so
 * the CPU's twins and the GPU share them. */
#ifndef BT_COS_SIN_H
#define BT_COS_SIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* pi / 2 in two parts: n times the first is subtracted with a fused step, then
 * n times the second corrects the remainder. */
#define BT_HALF_PI_HIGH 0x1.921fb54442d18p+0
#define BT_HALF_PI_LOW 0x1.1a62633145c07p-54
#define BT_TWO_OVER_PI 0x1.45f306dc9c883p-1

static inline double bt_with_sign(double x, uint64_t sign)
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
static inline void bt_cos_sin(double angle, float *cosine, float *sine)
{
    double t = angle * BT_TWO_OVER_PI + 0x1.8p52, n = t - 0x1.8p52;
    double r = fma(-n, BT_HALF_PI_LOW, fma(-n, BT_HALF_PI_HIGH, angle)),
           z = r * r;
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
    *sine = (float)bt_with_sign(low, quadrant >> 1 & 1);
    *cosine = (float)bt_with_sign(high, (quadrant + 1) >> 1 & 1);
}

#endif
