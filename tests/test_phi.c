/* SPDX-License-Identifier: Apache-2.0 */
/* test_phi.c - the functions inside activations are as close to double
 * precision as activations.h says, and right at the ends of their ranges. */
#include "backend/cpu/kernels/activations.h"
#include "guard_page.h"

static const double u = 0x1p-24;

/* Every 257th float from 2^-25 up to `end`, both signs. The worst error, in u,
 * relative to the size that `want` also gives. */
typedef void want_fn(double x, double *value, double *size);

static double worst(float got(float), want_fn *want, float end)
{
    double most = 0;
    for (uint32_t bits = 0x33000000; bits < float_bits(end); bits += 257) {
        float x;
        memcpy(&x, &bits, sizeof(x));
        for (int sign = 0; sign < 2; sign++, x = -x) {
            double value, size;
            want((double)x, &value, &size);
            // Below the normal floats, and where bt_exp ends, steps are coarse.
            if (size < 0x1p-110)
                continue;
            most = fmax(most, fabs((double)got(x) - value) / (size * u));
        }
    }
    return most;
}

static double phi_of(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static void want_gelu_erf(double x, double *value, double *size)
{
    *value = x * phi_of(x);
    *size = fabs(*value);
}

static void want_gelu_erf_slope(double x, double *value, double *size)
{
    double bell = exp(-0.5 * x * x) * 0.3989422804014326779;
    *value = phi_of(x) + x * bell;
    *size = phi_of(x) + fabs(x) * bell;
}

static void want_silu(double x, double *value, double *size)
{
    *value = x / (1 + exp(-x));
    *size = fabs(*value);
}

static void want_silu_slope(double x, double *value, double *size)
{
    double s = 1 / (1 + exp(-x)), q = 1 / (1 + exp(x));
    *value = s + x * s * q;
    *size = s + fabs(x) * s * q;
}

/* The error of w enters by its factor in d log(sigmoid) = (1 - s) dw. */
static void want_gelu_tanh(double x, double *value, double *size)
{
    double w = x * (BT_GELU_TANH_K0 + BT_GELU_TANH_K1 * x * x);
    *value = 0.5 * x * (1 + tanh(w / 2));
    // tanh cancels for large -w.
    if (w < -1)
        *value = x / (1 + exp(-w));
    *size = fabs(*value) * (1 + fabs(w) / (1 + exp(w)));
}

static void want_gelu_tanh_slope(double x, double *value, double *size)
{
    double w = x * (BT_GELU_TANH_K0 + BT_GELU_TANH_K1 * x * x);
    double slope = BT_GELU_TANH_K0 + 3 * BT_GELU_TANH_K1 * x * x;
    double s = 1 / (1 + exp(-w)), q = 1 / (1 + exp(w));
    *value = s + x * slope * s * q;
    *size = (s + fabs(x) * slope * s * q) * (1 + fabs(w) * q);
}

static void functions_are_within_their_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        float (*got)(float);
        want_fn *want;
        float end;
        double bound; /* as measured over every float, see activations.h */
    } cases[] = {
        { "gelu_erf", bt_gelu_erf, want_gelu_erf, 13, 9.1 },
        { "gelu_erf_slope", bt_gelu_erf_grad, want_gelu_erf_slope, 13, 5.1 },
        { "gelu_tanh", bt_gelu_tanh, want_gelu_tanh, 20, 3.3 },
        { "gelu_tanh_slope", bt_gelu_tanh_grad, want_gelu_tanh_slope, 20, 3.3 },
        { "silu", bt_silu, want_silu, 200, 5.1 },
        { "silu_slope", bt_silu_grad, want_silu_slope, 200, 6.0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double error = worst(cases[i].got, cases[i].want, cases[i].end);
        printf("%-16s worst error %.2f u\n", cases[i].name, error);
        assert_true(error <= cases[i].bound);
    }
}

static void functions_saturate_correctly(void **state)
{
    (void)state;
    static float (*const values[])(float) = { bt_relu, bt_gelu_erf,
                                              bt_gelu_tanh, bt_silu };
    static float (*const slopes[])(float) = { bt_relu_grad, bt_gelu_erf_grad,
                                              bt_gelu_tanh_grad, bt_silu_grad };
    static const float large[] = { 100.0f, 1e30f, 3e38f, INFINITY };
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++) {
            assert_true(values[i](large[k]) == large[k]);
            assert_true(values[i](-large[k]) == 0);
            assert_true(slopes[i](large[k]) == 1);
            assert_true(slopes[i](-large[k]) == 0);
        }
        assert_true(values[i](0) == 0 && !signbit(values[i](0)));
        assert_true(signbit(values[i](-0.0f)) && values[i](-0.0f) == 0);
        assert_true(slopes[i](0) == (i ? 0.5f : 0.0f));
        assert_true(isnan(values[i](NAN)) && isnan(slopes[i](NAN)));
    }
    assert_true(signbit(bt_gelu_erf(-INFINITY)));
    assert_true(signbit(bt_gelu_tanh(-INFINITY)));
    assert_true(signbit(bt_silu(-INFINITY)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_within_their_bounds),
        cmocka_unit_test(functions_saturate_correctly),
    };
    return cmocka_run_group_tests_name("phi", tests, NULL, NULL);
}
