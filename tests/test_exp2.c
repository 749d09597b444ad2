/* SPDX-License-Identifier: Apache-2.0 */
/* test_exp2.c - the shared exponential and logarithm are as close as their
 * comments say. */
#include "backend/cpu/kernels/exp2.h"
#include "testing.h"

static void exp2_is_within_its_bound(void **state)
{
    (void)state;
    // Every 257th float of the range, both signs: 8 million of them.
    double worst = 0;
    for (uint32_t bits = 0x20000000; bits < 0x42fe0000; bits += 257) {
        float x;
        memcpy(&x, &bits, sizeof(x));
        for (int sign = 0; sign < 2; sign++, x = -x) {
            if (x < BT_EXP2_MIN)
                continue;
            double want = exp2((double)x);
            double error = fabs((double)bt_exp2(x) - want) / want;
            worst = fmax(worst, error * 0x1p24);
        }
    }
    printf("worst relative error %.3f u\n", worst);
    assert_true(worst <= 3.1);
}

static void exp2_is_exact_where_it_must_be(void **state)
{
    (void)state;
    assert_true(bt_exp2(0.0f) == 1.0f && bt_exp2(-0.0f) == 1.0f);
    for (int n = -125; n <= 127; n++)
        assert_true(bt_exp2((float)n) == ldexpf(1.0f, n));
    assert_true(bt_exp2(-125.5f) == 0.0f);
    assert_true(bt_exp2(-1e30f) == 0.0f && bt_exp2(-INFINITY) == 0.0f);
    assert_true(bt_exp2(1e30f) == 0x1p127f && bt_exp2(INFINITY) == 0x1p127f);
    assert_true(isnan(bt_exp2(NAN)));
}

static void exp_is_within_its_bound(void **state)
{
    (void)state;
    double worst = 0;
    for (float x = -86.6f; x < 88.0f; x += 0x1p-16f) {
        double want = exp((double)x);
        double error = fabs((double)bt_exp(x) - want) / want;
        worst = fmax(worst, error * 0x1p24);
    }
    printf("worst relative error %.3f u\n", worst);
    assert_true(worst <= 5.1);
    assert_true(bt_exp(0.0f) == 1.0f && bt_exp(-INFINITY) == 0.0f);
    assert_true(bt_exp(INFINITY) == 0x1p127f && isnan(bt_exp(NAN)));
    assert_true(bt_exp(-1e30f) == 0.0f && bt_exp(1e30f) == 0x1p127f);
}

static void log2_is_within_its_bound(void **state)
{
    (void)state;
    double worst = 0;
    for (double x = 0x1p-60; x < 0x1p60; x *= 1.000013)
        worst = fmax(worst, fabs(bt_log2(x) - log2(x)));
    printf("worst absolute error 2^%.1f\n", log2(worst));
    assert_true(worst <= 0x1p-40);
    assert_true(bt_log2(1.0) == 0.0 && bt_log2(0x1p-149) == -149.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp2_is_within_its_bound),
        cmocka_unit_test(exp2_is_exact_where_it_must_be),
        cmocka_unit_test(exp_is_within_its_bound),
        cmocka_unit_test(log2_is_within_its_bound),
    };
    return cmocka_run_group_tests_name("exp2", tests, NULL, NULL);
}
