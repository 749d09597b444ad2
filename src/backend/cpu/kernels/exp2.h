/* SPDX-License-Identifier: Apache-2.0 */
/* exp2.h - the exponential function of all kernels, with defined bits.
 *
 * 2^x = 2^n * 2^f with n the nearest integer and f in [-1/2, 1/2]; 2^f is a
 * polynomial of degree 5 that is exactly 1 at 0. Only operations that round the
 * same way in scalar and in vector code are used, so the twins do the same
 * steps on vectors.
 *
 * Adding BT_EXP2_MAGIC rounds x to an integer in the lowest bits of the sum,
 * already biased like an exponent: shifted left by 23, the sum becomes 2^n.
 *
 * Error: the polynomial is within 1.57 u of 2^f (u = 2^-24, relative), its
 * evaluation adds at most 1.5 u, the product with 2^n is exact: 3.1 u in all.
 * Below -125 the result is 0; above 127 it is 2^127; NaN stays NaN. */
#ifndef BT_EXP2_H
#define BT_EXP2_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define BT_EXP2_MAGIC 12583039.0f /* 1.5 * 2^23 + 127 */
#define BT_EXP2_MIN (-125.0f)
#define BT_EXP2_MAX 127.0f
#define BT_EXP2_C1 0x1.62e42ap-1f
#define BT_EXP2_C2 0x1.ebf9c2p-3f
#define BT_EXP2_C3 0x1.c6b6d8p-5f
#define BT_EXP2_C4 0x1.3ce8aep-7f
#define BT_EXP2_C5 0x1.5bda52p-10f

#define BT_LOG2E 1.4426950408889634
#define BT_LN2 0.6931471805599453

/* The polynomial at f, times the power of two in the bits of t. */
static inline float bt_exp2_parts(float f, float t)
{
    float p = fmaf(BT_EXP2_C5, f, BT_EXP2_C4);
    p = fmaf(p, f, BT_EXP2_C3);
    p = fmaf(p, f, BT_EXP2_C2);
    p = fmaf(p, f, BT_EXP2_C1);
    p = fmaf(p, f, 1.0f);
    uint32_t bits;
    float power;
    memcpy(&bits, &t, sizeof(bits));
    bits <<= 23;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

static inline float bt_exp2(float x)
{
    x = x > BT_EXP2_MAX ? BT_EXP2_MAX : x;
    float t = x + BT_EXP2_MAGIC;
    float y = bt_exp2_parts(x - (t - BT_EXP2_MAGIC), t);
    return x < BT_EXP2_MIN ? 0.0f : y;
}

/* e^x. x = n ln 2 + r with |r| <= ln(2) / 2. ln 2 is split in two parts, the
 * first short enough that n times it is exact, so r stays accurate for large x
 * (Cody and Waite). Error: r is within 1.1 u of ln(2) / 2, its product with
 * log2(e) within 1.5 u of 1/2, and an error of f changes 2^f by less than the
 * same amount; so 2 u in addition to the 3.1 u of bt_exp2. Below e^-86.6 the
 * result is 0, above e^88.02 it is 2^127; NaN stays NaN. */
#define BT_LN2_HIGH 0x1.62ep-1f
#define BT_LN2_LOW 0x1.0bfbe8p-15f

static inline float bt_exp(float x)
{
    float y = x * (float)BT_LOG2E;
    float t = y + BT_EXP2_MAGIC, n = t - BT_EXP2_MAGIC;
    float r = fmaf(n, -BT_LN2_LOW, fmaf(n, -BT_LN2_HIGH, x));
    float e = bt_exp2_parts(r * (float)BT_LOG2E, t);
    e = y < BT_EXP2_MIN ? 0.0f : e;
    return y > BT_EXP2_MAX ? 0x1p127f : e;
}

/* log2 of a positive normal number, in plain double operations so that its bits
 * do not depend on a C library. 2 atanh(z) with z = (r - 1) / (r + 1) and r in
 * [1/sqrt(2), sqrt(2)]: |z| < 0.172, and the truncation error after seven terms
 * is below 2^-40, far below the precision of the float that it ends in. */
static inline double bt_log2(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    // The exponent of x / sqrt(1/2), so that r starts there.
    int64_t shifted = (int64_t)(bits - 0x3fe6a09e667f3bcd) >> 52;
    bits -= (uint64_t)shifted << 52;
    double r;
    memcpy(&r, &bits, sizeof(r));
    double z = (r - 1) / (r + 1), zz = z * z;
    double sum = 1.0 / 13;
    sum = sum * zz + 1.0 / 11;
    sum = sum * zz + 1.0 / 9;
    sum = sum * zz + 1.0 / 7;
    sum = sum * zz + 1.0 / 5;
    sum = sum * zz + 1.0 / 3;
    sum = sum * zz + 1.0;
    return (double)shifted + z * sum * (2 * BT_LOG2E);
}

#endif
