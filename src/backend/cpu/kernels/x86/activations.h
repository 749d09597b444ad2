/* SPDX-License-Identifier: Apache-2.0 */
/* activations.h - the functions of kernels/activations.h on vectors, operation
 * by operation, for AVX2 and AVX-512. Compilers turn the comparisons of the
 * plain C into many more instructions than these. */
#ifndef BT_ACTIVATIONS_X86_H
#define BT_ACTIVATIONS_X86_H

#include "backend/cpu/kernels/activations.h"
#include "backend/cpu/kernels/x86/simd.h"
#include "backend/op_types.h"

/* bt_exp of x <= 0, or NaN. */
INLINE vf vf_exp_negative(vf x)
{
    vf magic = vf_set(BT_EXP2_MAGIC), log2e = vf_set((float)BT_LOG2E);
    vf y = vf_mul(x, log2e);
    vf t = vf_add(y, magic), n = vf_sub(t, magic);
    vf r = vf_fma(n, vf_set(-BT_LN2_HIGH), x);
    r = vf_fma(n, vf_set(-BT_LN2_LOW), r);
    vf p = vf_exp2_polynomial(vf_mul(r, log2e));
    return vf_mul_from(vm_all(), y, BT_EXP2_MIN, p, vf_shift23(t));
}

/* bt_clamp to [-end, end]. */
INLINE vf vf_clamp(vf x, float end)
{
    return vf_min(vf_set(end), vf_max(vf_set(-end), x));
}

INLINE vf vf_normal_tail_ratio(vf a)
{
    vf n = vf_fma(vf_set(BT_PHI_N4), a, vf_set(BT_PHI_N3));
    n = vf_fma(n, a, vf_set(BT_PHI_N2));
    n = vf_fma(n, a, vf_set(BT_PHI_N1));
    n = vf_fma(n, a, vf_set(BT_PHI_N0));
    vf d = vf_fma(vf_set(BT_PHI_D5), a, vf_set(BT_PHI_D4));
    d = vf_fma(d, a, vf_set(BT_PHI_D3));
    d = vf_fma(d, a, vf_set(BT_PHI_D2));
    d = vf_fma(d, a, vf_set(BT_PHI_D1));
    d = vf_fma(d, a, vf_set(BT_PHI_D0));
    return vf_div(n, d);
}

INLINE vf vf_gaussian(vf x)
{
    vf half = vf_set(-0.5f), s = vf_mul(x, x);
    vf r = vf_fma(x, x, vf_mul(s, vf_set(-1.0f)));
    vf e = vf_exp_negative(vf_mul(half, s));
    return vf_fma(e, vf_mul(half, r), e);
}

INLINE vf vf_normal_cdf(vf x, vf bell)
{
    vf tail = vf_mul(bell, vf_normal_tail_ratio(vf_abs(x)));
    return vf_select(vf_less(x, vf_set(0.0f)), tail,
                     vf_sub(vf_set(1.0f), tail));
}

INLINE vf vf_gelu_erf(vf x)
{
    vf low = vf_max(vf_set(-BT_PHI_END), x);
    vf c = vf_min(vf_set(BT_PHI_END), low);
    return vf_mul(low, vf_normal_cdf(c, vf_gaussian(c)));
}

INLINE vf vf_gelu_erf_grad(vf x)
{
    vf c = vf_clamp(x, BT_PHI_END), bell = vf_gaussian(c);
    return vf_fma(vf_mul(c, bell), vf_set(BT_PHI_DENSITY),
                  vf_normal_cdf(c, bell));
}

INLINE vf vf_sigmoid(vf x)
{
    vf one = vf_set(1.0f);
    vf e = vf_exp_negative(vf_copysign(x, vf_set(-1.0f)));
    return vf_div(vf_select(vf_less(x, vf_set(0.0f)), e, one), vf_add(one, e));
}

/* sigmoid(|x|), and sigmoid(-|x|). */
INLINE vf vf_sigmoid_both(vf x, vf *other)
{
    vf one = vf_set(1.0f);
    vf e = vf_exp_negative(vf_copysign(x, vf_set(-1.0f)));
    vf half = vf_div(one, vf_add(one, e));
    *other = vf_mul(e, half);
    return half;
}

INLINE vf vf_silu(vf x)
{
    vf low = vf_max(vf_set(-BT_SILU_END), x);
    return vf_mul(low, vf_sigmoid(low));
}

INLINE vf vf_silu_grad(vf x)
{
    vf c = vf_clamp(x, BT_SILU_END), other, half = vf_sigmoid_both(c, &other);
    vm negative = vf_less(c, vf_set(0.0f));
    vf s = vf_select(negative, other, half);
    vf q = vf_select(negative, half, other);
    return vf_fma(vf_mul(c, s), q, s);
}

INLINE vf vf_gelu_tanh(vf x)
{
    const float k0 = (float)BT_GELU_TANH_K0, k1 = (float)BT_GELU_TANH_K1;
    vf low = vf_max(vf_set(-BT_GELU_TANH_END), x);
    vf c = vf_min(vf_set(BT_GELU_TANH_END), low);
    vf w = vf_mul(c, vf_fma(vf_set(k1), vf_mul(c, c), vf_set(k0)));
    return vf_mul(low, vf_sigmoid(w));
}

INLINE vf vf_gelu_tanh_grad(vf x)
{
    const float k0 = (float)BT_GELU_TANH_K0, k1 = (float)BT_GELU_TANH_K1;
    const float k3 = (float)(3 * BT_GELU_TANH_K1);
    vf c = vf_clamp(x, BT_GELU_TANH_END), cc = vf_mul(c, c), other;
    vf w = vf_mul(c, vf_fma(vf_set(k1), cc, vf_set(k0)));
    vf half = vf_sigmoid_both(w, &other);
    vf s = vf_select(vf_less(w, vf_set(0.0f)), other, half);
    vf slope = vf_mul(c, vf_fma(vf_set(k3), cc, vf_set(k0)));
    return vf_fma(slope, vf_mul(half, other), s);
}

INLINE vf vf_relu(vf x)
{
    return vf_max(vf_set(0.0f), x); // keeps NaN and -0
}

INLINE vf vf_relu_grad(vf x)
{
    vf zero = vf_set(0.0f);
    vf flat = vf_select(vf_at_most(x, 0.0f), zero, x); // NaN stays
    return vf_select(vf_less(zero, x), vf_set(1.0f), flat);
}

/* Run FUNCTION(vf_<activation><suffix>): a loop for each activation. */
#define ACT_SWITCH(act, suffix, FUNCTION) \
    switch (act) {                        \
    case BT_ACT_RELU:                     \
        FUNCTION(vf_relu##suffix);        \
        break;                            \
    case BT_ACT_GELU_ERF:                 \
        FUNCTION(vf_gelu_erf##suffix);    \
        break;                            \
    case BT_ACT_GELU_TANH:                \
        FUNCTION(vf_gelu_tanh##suffix);   \
        break;                            \
    case BT_ACT_SILU:                     \
        FUNCTION(vf_silu##suffix);        \
        break;                            \
    }

#endif
