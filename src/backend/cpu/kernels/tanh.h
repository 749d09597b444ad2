/* SPDX-License-Identifier: Apache-2.0 */
/* tanh.h - the hyperbolic tangent of all kernels, with defined bits.
 *
 * As in exp2.h, only operations that round the same way in scalar and in vector
 * code are used. Up to 0.625 it is x + x^3 P(x^2) with a polynomial of degree
 * 4, so small arguments keep their relative precision (tools/fit_tanh.py); P is
 * within 0.3 u of the truth (u = 2^-24) and its evaluation adds 2 u. Beyond, it
 * is 1 - 2 / (e^(2 a) + 1) with a = |x|: the argument of the exponential is
 * rounded twice, a relative error of e enters with 2 e / (e + 1)^2, at most
 * 0.35, and division and subtraction add 2 u. So the result is within 6 u
 * everywhere. NaN stays NaN, and -0 stays -0. */
#ifndef BT_TANH_H
#define BT_TANH_H

#include "backend/cpu/kernels/exp2.h"

#define BT_TANH_SMALL 0.625f
#define BT_TANH_C0 -0x1.555552p-2f
#define BT_TANH_C1 0x1.110e1cp-3f
#define BT_TANH_C2 -0x1.b9258ap-5f
#define BT_TANH_C3 0x1.58048ep-6f
#define BT_TANH_C4 -0x1.8f8de4p-8f

static inline float bt_tanh(float x)
{
    float a = fabsf(x), z = x * x;
    float p = fmaf(BT_TANH_C4, z, BT_TANH_C3);
    p = fmaf(p, z, BT_TANH_C2);
    p = fmaf(p, z, BT_TANH_C1);
    p = fmaf(p, z, BT_TANH_C0);
    float small = fmaf(x * z, p, x);
    float e = bt_exp2(a * (float)(2 * BT_LOG2E));
    float large = copysignf(1.0f - 2.0f / (e + 1.0f), x);
    return a <= BT_TANH_SMALL ? small : large;
}

#endif
