/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtype.c - every half and bfloat to float32 and back, and the rounding
 * between any two neighbours. */
#include "guard_page.h"
#include "tensor/tensor.h"

static void types_have_names_and_sizes(void **state)
{
    (void)state;
    bauta_dtype dtype;
    for (int i = 0; i < BT_DTYPE_COUNT; i++) {
        assert_true(bt_dtype_find(&dtype, bt_dtype_name((bauta_dtype)i)));
        assert_int_equal(dtype, i);
    }
    assert_int_equal(bt_dtype_size(BAUTA_BFLOAT16), 2);
    assert_int_equal(bt_dtype_size(BAUTA_UINT64), 8);
    assert_string_equal(bt_dtype_name(BAUTA_FLOAT8_E4M3), "F8_E4M3");
    assert_false(bt_dtype_find(&dtype, "f32"));
    assert_false(bt_dtype_find(&dtype, ""));
}

static float widened(uint16_t bits, bauta_dtype dtype)
{
    float x;
    assert_true(bt_convert_f32(&x, &bits, dtype, 1));
    return x;
}

static uint16_t narrowed(float x, bauta_dtype dtype)
{
    uint16_t bits;
    assert_true(bt_convert_from_f32(&bits, dtype, &x, 1));
    return bits;
}

/* The value of the bits of a type with this many mantissa bits. */
static double meaning(unsigned bits, int mantissa_bits, int bias)
{
    int top = (1 << (15 - mantissa_bits)) - 1;
    int exponent = (int)(bits >> mantissa_bits) & top;
    int mantissa = (int)bits & ((1 << mantissa_bits) - 1);
    double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == top)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits),
                        exponent - bias - mantissa_bits);
}

static const struct {
    bauta_dtype dtype;
    int mantissa_bits, bias;
    uint16_t infinity;
} types[] = { { BAUTA_FLOAT16, 10, 15, 0x7c00 },
              { BAUTA_BFLOAT16, 7, 127, 0x7f80 } };

static void every_pattern_round_trips_through_float32(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (unsigned bits = 0; bits < 65536; bits++) {
            float x = widened((uint16_t)bits, types[t].dtype);
            double want = meaning(bits, types[t].mantissa_bits, types[t].bias);
            uint16_t back = narrowed(x, types[t].dtype);
            if (isnan(want)) {
                // Sign and payload go both ways; only a signalling NaN is
                // made quiet when it is narrowed.
                unsigned quiet = 1u << (types[t].mantissa_bits - 1);
                assert_true(isnan(x));
                assert_int_equal(back, bits | quiet);
                assert_int_equal(float_bits(x) >> 31, bits >> 15);
            } else {
                assert_true((double)x == want && !signbit(x) == !signbit(want));
                assert_int_equal(back, bits);
            }
        }
}

/* Between each finite magnitude and the next (the last one's next being where
 * infinity would be): half way goes to the even one, anything else to the
 * nearer. All these float32 numbers are exact. */
static void narrowing_rounds_to_nearest_ties_to_even(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (unsigned bits = 0; bits < types[t].infinity; bits++) {
            bauta_dtype dtype = types[t].dtype;
            double low = meaning(bits, types[t].mantissa_bits, types[t].bias);
            double gap = low - meaning(bits ? bits - 1 : 0,
                                       types[t].mantissa_bits, types[t].bias);
            if (bits + 1 < types[t].infinity || bits == 0)
                gap = meaning(bits + 1, types[t].mantissa_bits, types[t].bias) -
                      low;
            float half = (float)(low + gap / 2);
            uint16_t even = (uint16_t)(bits + (bits & 1));
            uint16_t up = (uint16_t)(bits + 1);
            assert_int_equal(narrowed(half, dtype), even);
            assert_int_equal(narrowed(-half, dtype), even | 0x8000);
            assert_int_equal(narrowed(nextafterf(half, 0), dtype), bits);
            assert_int_equal(narrowed(nextafterf(half, INFINITY), dtype), up);
        }
}

static void extremes_narrow_to_infinity_zero_and_nan(void **state)
{
    (void)state;
    assert_int_equal(narrowed(65519.996f, BAUTA_FLOAT16), 0x7bff);
    assert_int_equal(narrowed(65520.0f, BAUTA_FLOAT16), 0x7c00);
    assert_int_equal(narrowed(-3e38f, BAUTA_FLOAT16), 0xfc00);
    assert_int_equal(narrowed(3.4028235e38f, BAUTA_BFLOAT16), 0x7f80);
    assert_int_equal(narrowed(0x1p-25f, BAUTA_FLOAT16), 0);
    assert_int_equal(narrowed(0x1.000002p-25f, BAUTA_FLOAT16), 1);
    assert_int_equal(narrowed(-0x1p-149f, BAUTA_FLOAT16), 0x8000);
    // A NaN whose payload lies in the bits that are cut off.
    uint32_t word = 0xff800001;
    float x;
    memcpy(&x, &word, sizeof(x));
    assert_int_equal(narrowed(x, BAUTA_FLOAT16), 0xfe00);
    assert_int_equal(narrowed(x, BAUTA_BFLOAT16), 0xffc0);
}

static void unaligned_arrays_convert(void **state)
{
    (void)state;
    unsigned char bytes[16] = { 0 };
    const float want[3] = { 1.5f, -2.0f, 0x1p-24f };
    static const bauta_dtype dtypes[] = { BAUTA_FLOAT32, BAUTA_FLOAT16,
                                          BAUTA_BFLOAT16 };
    float got[3];
    for (size_t t = 0; t < 3; t++)
        for (size_t shift = 0; shift < 4; shift++) {
            assert_true(bt_convert_from_f32(bytes + shift, dtypes[t], want, 3));
            assert_true(bt_convert_f32(got, bytes + shift, dtypes[t], 3));
            assert_memory_equal(got, want, sizeof(want));
        }
    assert_true(bt_convert_f32(NULL, NULL, BAUTA_FLOAT32, 0));
    assert_false(bt_convert_f32(got, bytes, BAUTA_FLOAT64, 1));
    assert_false(bt_convert_from_f32(bytes, BAUTA_INT8, want, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_have_names_and_sizes),
        cmocka_unit_test(every_pattern_round_trips_through_float32),
        cmocka_unit_test(narrowing_rounds_to_nearest_ties_to_even),
        cmocka_unit_test(extremes_narrow_to_infinity_zero_and_nan),
        cmocka_unit_test(unaligned_arrays_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
