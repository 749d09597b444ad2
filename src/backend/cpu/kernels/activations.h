/* SPDX-License-Identifier: Apache-2.0 */
/* activations.h - activation functions of one element and their derivatives:
 * ReLU, GELU and SiLU, from the normal distribution and the logistic function.
 *
 * As in exp2.h, only operations that round the same way in scalar and in vector
 * code are used. Every function keeps NaN. Arguments are clamped where the
 * result no longer changes, so that infinity times zero does not occur. Errors
 * are in u = 2^-24; "measured" is the largest error over all floats, against
 * double precision.
 *
 * Phi(-a) = e^(-a^2 / 2) R(a), a >= 0, with R = 1/2 erfcx(a / sqrt(2)), which
 * decreases slowly from 1/2. On [0, 14] R is a ratio of polynomials of degrees
 * 4 and 5 with positive coefficients, so there is no cancellation; it is
 * exactly 1/2 at 0. tools/fit_phi.py computes it: the minimax relative error by
 * exchange (Remez), then a common factor for both polynomials that minimizes
 * the cost of rounding the coefficients to float. It is within 0.15 u of R. The
 * fused steps of its evaluation add at most 4 u and 5 u, the division 1 u.
 *
 * The square of a is exact in two parts, s + r; the second enters as
 * e^(-s / 2) (1 - r / 2), which costs 1 u in addition to the 5.1 u of bt_exp;
 * the product with R another. So the tail Phi(-a) is within 17.3 u (measured:
 * 8.6) and Phi(a) = 1 - Phi(-a) within 18.3 u (measured: 3.9). Beyond a
 * = 13.16, where the tail is below the smallest normal float, it is 0. */
#ifndef BT_ACTIVATIONS_H
#define BT_ACTIVATIONS_H

#include "backend/cpu/kernels/exp2.h"

#include <stdbool.h>

/* From here on Phi(-x) is 0 and Phi(x) is 1. */
#define BT_PHI_END 14.0f

#define BT_PHI_N0 0x1.4492bcp-1f
#define BT_PHI_N1 0x1.1bd6e8p-1f
#define BT_PHI_N2 0x1.d9c6d8p-3f
#define BT_PHI_N3 0x1.a35262p-5f
#define BT_PHI_N4 0x1.52cf64p-8f
#define BT_PHI_D0 0x1.4492bcp+0f
#define BT_PHI_D1 0x1.0f67e0p+1f
#define BT_PHI_D2 0x1.8541d0p+0f
#define BT_PHI_D3 0x1.2f6de2p-1f
#define BT_PHI_D4 0x1.06c9e6p-3f
#define BT_PHI_D5 0x1.a8a152p-7f

/* 1 / sqrt(2 pi) */
#define BT_PHI_DENSITY 0x1.988454p-2f

/* x limited to [low, high]; NaN stays. */
static inline float bt_clamp(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* R(a) for a in [0, 14]. */
static inline float bt_normal_tail_ratio(float a)
{
    float n = fmaf(BT_PHI_N4, a, BT_PHI_N3);
    n = fmaf(n, a, BT_PHI_N2);
    n = fmaf(n, a, BT_PHI_N1);
    n = fmaf(n, a, BT_PHI_N0);
    float d = fmaf(BT_PHI_D5, a, BT_PHI_D4);
    d = fmaf(d, a, BT_PHI_D3);
    d = fmaf(d, a, BT_PHI_D2);
    d = fmaf(d, a, BT_PHI_D1);
    d = fmaf(d, a, BT_PHI_D0);
    return n / d;
}

/* e^(-x^2 / 2) for |x| <= 14. */
static inline float bt_gaussian(float x)
{
    float s = x * x, r = fmaf(x, x, -s);
    float e = bt_exp(-0.5f * s);
    return fmaf(e, -0.5f * r, e);
}

/* Phi(x), given bell(x). */
static inline float bt_normal_cdf(float x, float bell)
{
    float tail = bell * bt_normal_tail_ratio(fabsf(x));
    return x < 0 ? tail : 1.0f - tail;
}

/* GELU, x Phi(x): x far above zero, -0 far below. 1 u more (measured: 9.1). */
static inline float bt_gelu_erf(float x)
{
    float low = x < -BT_PHI_END ? -BT_PHI_END : x;
    float c = low > BT_PHI_END ? BT_PHI_END : low;
    return low * bt_normal_cdf(c, bt_gaussian(c));
}

/* Its derivative, Phi(x) + x phi(x). The terms have opposite signs below zero
 * and cancel at -0.75, so the error is relative to Phi(x) + |x| phi(x): 19.3 u
 * (measured: 5.1). */
static inline float bt_gelu_erf_grad(float x)
{
    float c = bt_clamp(x, -BT_PHI_END, BT_PHI_END);
    float bell = bt_gaussian(c);
    return fmaf(c * bell, BT_PHI_DENSITY, bt_normal_cdf(c, bell));
}

/* 1 / (1 + e^-x) by e^-|x|, without overflow or cancellation: 5.1 u from the
 * exponential, 1 u each from sum and division (measured: 4.6). 0 below -86.6.
 */
static inline float bt_sigmoid(float x)
{
    float e = bt_exp(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/* sigmoid(x) and its complement sigmoid(-x), together. */
static inline float bt_sigmoid_both(float x, float *complement)
{
    float e = bt_exp(-fabsf(x));
    float half = 1.0f / (1.0f + e), other = e * half;
    bool negative = x < 0;
    *complement = negative ? half : other;
    return negative ? other : half;
}

/* SiLU, x sigmoid(x): 8.1 u (measured: 5.1). */
#define BT_SILU_END 90.0f /* here sigmoid(-x) is 0 */

static inline float bt_silu(float x)
{
    float low = x < -BT_SILU_END ? -BT_SILU_END : x;
    return low * bt_sigmoid(low);
}

/* Its derivative, s + x s (1 - s), relative to s + |x| s (1 - s): 19.2 u
 * (measured: 6.0). */
static inline float bt_silu_grad(float x)
{
    float c = bt_clamp(x, -BT_SILU_END, BT_SILU_END), q;
    float s = bt_sigmoid_both(c, &q);
    return fmaf(c * s, q, s);
}

/* GELU by tanh, x (1 + tanh(y)) / 2 = x s, s = sigmoid(w), w = 2 y =
 * x (K0 + K1 x^2). w is within 4 u, and a relative error of w enters with the
 * factor |w| (1 - s): so the error is relative to |x| s (1 + |w| (1 - s)), 12.1
 * u (measured: 3.3). */
#define BT_GELU_TANH_END 10.0f               /* here sigmoid(-w) is 0 */
#define BT_GELU_TANH_K0 0x1.9884533d43651p+0 /* 2 sqrt(2 / pi) */
#define BT_GELU_TANH_K1 (0.044715 * BT_GELU_TANH_K0)

static inline float bt_gelu_tanh(float x)
{
    const float k0 = (float)BT_GELU_TANH_K0, k1 = (float)BT_GELU_TANH_K1;
    float low = x < -BT_GELU_TANH_END ? -BT_GELU_TANH_END : x;
    float c = low > BT_GELU_TANH_END ? BT_GELU_TANH_END : low;
    return low * bt_sigmoid(c * fmaf(k1, c * c, k0));
}

/* Its derivative, s + x w' s (1 - s), w' = K0 + 3 K1 x^2; relative to the sum
 * of both magnitudes and with the same factor, 24 u (measured: 3.3). */
static inline float bt_gelu_tanh_grad(float x)
{
    const float k0 = (float)BT_GELU_TANH_K0, k1 = (float)BT_GELU_TANH_K1;
    const float k3 = (float)(3 * BT_GELU_TANH_K1);
    float c = bt_clamp(x, -BT_GELU_TANH_END, BT_GELU_TANH_END), q;
    float s = bt_sigmoid_both(c * fmaf(k1, c * c, k0), &q);
    return fmaf(c * fmaf(k3, c * c, k0), s * q, s);
}

/* x < 0 ? 0 : x, which keeps NaN and -0, as in the matrix product. */
static inline float bt_relu(float x)
{
    return x < 0 ? 0.0f : x;
}

/* 1 above zero, else 0. */
static inline float bt_relu_grad(float x)
{
    float flat = x <= 0 ? 0.0f : x; // NaN stays
    return x > 0 ? 1.0f : flat;
}

#endif
