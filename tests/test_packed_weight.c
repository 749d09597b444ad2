/* SPDX-License-Identifier: Apache-2.0 */
/* test_packed_weight.c - weights as bfloat16 and int8: the value of an element,
 * and the product with them on every instruction set and number of threads. */
#include "backend/cpu/gemm.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "guard_page.h"
#include "tensor/tensor.h"
#include "test_pools.h"

static test_random randoms;

/* A float32 matrix and its packed form. */
typedef struct matrix {
    size_t outputs, inputs, stride;
    bool turned;
    float *w;
    bt_packed_weight compact;
} matrix;

static float weight(const matrix *m, size_t output, size_t input)
{
    return m->turned ? m->w[input * m->stride + output]
                     : m->w[output * m->stride + input];
}

static matrix matrix_create(bauta_dtype type, size_t outputs, size_t inputs,
                            bool turned)
{
    matrix m = { .outputs = outputs, .inputs = inputs, .turned = turned };
    size_t rows = turned ? inputs : outputs;
    size_t lanes = bt_size_round(outputs, BT_PANEL_COLUMNS);
    m.stride = (turned ? outputs : inputs) + test_below(&randoms, 3);
    m.w = malloc((rows * m.stride + 1) * sizeof(float));
    assert_non_null(m.w);
    for (size_t i = 0; i < rows * m.stride; i++)
        m.w[i] = test_float(&randoms);
    m.compact = (bt_packed_weight){
        .type = type,
        .outputs = outputs,
        .inputs = inputs,
        .panels = bt_alloc(bt_packed_weight_bytes(type, outputs, inputs)),
        .scales = type == BAUTA_INT8 ? bt_alloc(lanes * sizeof(float)) : NULL,
    };
    assert_non_null(m.compact.panels);
    for (size_t p = 0; p < bt_packed_weight_panels(outputs); p++)
        assert_true(
            bt_packed_weight_pack(&m.compact, p, m.w, m.stride, turned));
    return m;
}

static void matrix_free(matrix *m)
{
    free(m->w);
    bt_free(m->compact.panels);
    bt_free(m->compact.scales);
}

static float bf16_of(float x)
{
    unsigned char half[2];
    float back;
    assert_true(bt_convert_from_f32(half, BAUTA_BFLOAT16, &x, 1));
    assert_true(bt_convert_f32(&back, half, BAUTA_BFLOAT16, 1));
    return back;
}

/* ---- elements ---------------------------------------------------------- */

static void bfloat16_is_the_nearest_number(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        matrix m = matrix_create(BAUTA_BFLOAT16, 1 + test_below(&randoms, 150),
                                 1 + test_below(&randoms, 40), i % 2);
        for (size_t j = 0; j < m.outputs; j++)
            for (size_t p = 0; p < m.inputs; p++)
                assert_true(bt_packed_weight_at(&m.compact, j, p) ==
                            bf16_of(weight(&m, j, p)));
        matrix_free(&m);
    }
}

static void bfloat16_rounds_every_kind_of_number(void **state)
{
    (void)state;
    static const float kinds[] = { 0.0f,       -0.0f,       INFINITY,
                                   -INFINITY,  0x1p-149f,   0x1.fffffep127f,
                                   0x1.01p0f,  0x1.03p0f,   0x1.010002p0f,
                                   -0x1.01p0f, 0x1.fep-127f };
    size_t count = BT_LEN(kinds);
    uint16_t panel[BT_LEN(kinds) * BT_PANEL_COLUMNS];
    bt_packed_weight c = { BAUTA_BFLOAT16, 1, count, panel, NULL };
    assert_true(bt_packed_weight_pack(&c, 0, kinds, count, false));
    for (size_t i = 0; i < count; i++) {
        float got = bt_packed_weight_at(&c, 0, i), want = bf16_of(kinds[i]);
        assert_memory_equal(&got, &want, sizeof(got));
    }
    assert_true(bt_packed_weight_pack(&c, 0, (float[BT_LEN(kinds)]){ NAN },
                                      count, false));
    assert_true(isnan(bt_packed_weight_at(&c, 0, 0)));
}

/* The quotient by the scale is rounded, so an element times the scale is off
 * by half a scale at most, and a little for the rounding of the quotient. */
static void int8_is_the_nearest_multiple_of_its_scale(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        matrix m = matrix_create(BAUTA_INT8, 1 + test_below(&randoms, 150),
                                 1 + test_below(&randoms, 40), i % 2);
        for (size_t j = 0; j < m.outputs; j++) {
            float max = 0, scale = m.compact.scales[j], most = 0;
            for (size_t p = 0; p < m.inputs; p++) {
                float w = weight(&m, j, p),
                      q = bt_packed_weight_at(&m.compact, j, p);
                max = fmaxf(max, fabsf(w));
                most = fmaxf(most, fabsf(q));
                assert_true(fabs((double)q * (double)scale - (double)w) <=
                            0.50001 * (double)scale);
            }
            assert_true(scale == max / 127.0f);
            assert_true(most == 127.0f || max == 0.0f);
        }
        matrix_free(&m);
    }
}

static void int8_accepts_zeros_and_denormals(void **state)
{
    (void)state;
    static const float rows[3][2] = { { 0.0f, -0.0f },
                                      { 0x1p-149f, -0x1p-149f },
                                      { 0x1p-140f, 0x1.8p-142f } };
    int8_t panel[2 * BT_PANEL_COLUMNS];
    float scales[BT_PANEL_COLUMNS], row[2];
    bt_packed_weight c = { BAUTA_INT8, 3, 2, panel, scales };
    assert_true(bt_packed_weight_pack(&c, 0, rows[0], 2, false));
    for (size_t j = 0; j < 3; j++) {
        bt_packed_weight_row(row, &c, j, 1.0f);
        assert_true(isfinite(row[0]) && isfinite(row[1]));
        assert_true(fabsf(row[0]) <= 0x1.1p-140f);
    }
}

static void int8_refuses_non_finite_numbers(void **state)
{
    (void)state;
    static const float odd[] = { NAN, -NAN, INFINITY, -INFINITY };
    int8_t panel[3 * BT_PANEL_COLUMNS];
    float scales[BT_PANEL_COLUMNS];
    bt_packed_weight c = { BAUTA_INT8, 2, 3, panel, scales };
    for (size_t i = 0; i < BT_LEN(odd); i++)
        for (size_t at = 0; at < 6; at++) {
            float w[6] = { 1, 2, 3, 4, 5, 6 };
            w[at] = odd[i];
            assert_false(bt_packed_weight_pack(&c, 0, w, 3, false));
            assert_false(bt_packed_weight_pack(&c, 0, w, 2, true));
        }
}

static void a_row_is_its_elements_times_the_scales(void **state)
{
    (void)state;
    for (int type = 0; type < 3; type++) {
        float row[37];
        matrix m = matrix_create((bauta_dtype)type, 70, 37, false);
        bt_packed_weight_row(row, &m.compact, 69, 3.0f);
        for (size_t p = 0; p < 37; p++) {
            float want = bt_packed_weight_at(&m.compact, 69, p);
            want *= m.compact.scales ? m.compact.scales[69] : 1.0f;
            assert_true(row[p] == want * 3.0f);
        }
        matrix_free(&m);
    }
}

/* ---- products ---------------------------------------------------------- */

/* Elements that a product must not read are NaN, or large where the type has no
 * NaN. */
static void poison_padding(const matrix *m)
{
    const bt_packed_weight *c = &m->compact;
    size_t lanes = bt_size_round(c->outputs, BT_PANEL_COLUMNS);
    for (size_t j = c->outputs; j < lanes; j++) {
        size_t at = j / BT_PANEL_COLUMNS * c->inputs * BT_PANEL_COLUMNS +
                    j % BT_PANEL_COLUMNS;
        for (size_t p = 0; p < c->inputs; p++, at += BT_PANEL_COLUMNS)
            if (c->type == BAUTA_FLOAT32)
                ((float *)c->panels)[at] = NAN;
            else if (c->type == BAUTA_BFLOAT16)
                ((uint16_t *)c->panels)[at] = 0x7fc0;
            else
                ((int8_t *)c->panels)[at] = 127;
        if (c->scales)
            c->scales[j] = NAN;
    }
}

/* The reference: one chain an element. */
static void reference(const bt_gemm *g, const matrix *m, float *to)
{
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++) {
            float s = 0.0f;
            for (size_t p = 0; p < g->k; p++)
                s = fmaf(g->trans_a ? g->a[p * g->lda + i]
                                    : g->a[i * g->lda + p],
                         bt_packed_weight_at(&m->compact, j, p), s);
            if (m->compact.scales)
                s *= m->compact.scales[j];
            if (g->bias)
                s += g->bias[j];
            to[i * g->n + j] = s;
        }
}

static void compare(const bt_gemm *g, const float *want, const guarded *c,
                    const char *isa, int threads)
{
    static const char *const names[] = { "float32", "bfloat16", "int8" };
    size_t at = floats_differ(c->data, want, c->count);
    if (at != c->count)
        fail_msg("%s, %d threads, %s, m %zu n %zu k %zu: element %zu is %a, "
                 "want %a",
                 isa, threads, names[g->packed->type], g->m, g->n, g->k, at,
                 (double)c->data[at], (double)want[at]);
}

static void check_everywhere(bt_gemm *g, const float *want, guarded *c)
{
    const char *names[8];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    bt_cpu cpu = { .kernels = NULL };
    for (size_t i = 0; i < count; i++)
        for (size_t t = 0; t < TEST_POOLS; t++) {
            for (size_t at = 0; at < c->count; at++)
                c->data[at] = NAN;
            cpu.kernels = bt_kernels_get(names[i]);
            cpu.pool = test_pools[t];
            assert_int_equal(bt_gemm_f32(&cpu, g, NULL), BAUTA_OK);
            compare(g, want, c, names[i], bt_cpu_threads(&cpu));
        }
    bt_arena_release(&cpu.workspace);
}

static void check(bauta_dtype type, size_t rows, size_t outputs, size_t inputs)
{
    uint32_t bits = test_u32(&randoms);
    matrix m = matrix_create(type, outputs, inputs, bits & 1);
    guarded a = guarded_create(rows * inputs), bias = guarded_create(outputs);
    guarded c = guarded_create(rows * outputs);
    float *want = malloc((rows * outputs + 1) * sizeof(float));
    assert_non_null(want);
    floats_fill(&randoms, a.data, a.count);
    floats_fill(&randoms, bias.data, bias.count);
    poison_padding(&m);
    bt_gemm g = { .m = rows,
                  .n = outputs,
                  .k = inputs,
                  .a = a.data,
                  .trans_a = bits >> 1 & 1,
                  .lda = bits >> 1 & 1 ? rows : inputs,
                  .packed = &m.compact,
                  .c = c.data,
                  .ldc = outputs,
                  .bias = bits >> 2 & 1 ? bias.data : NULL };
    reference(&g, &m, want);
    check_everywhere(&g, want, &c);
    free(want);
    guarded_free(&a);
    guarded_free(&bias);
    guarded_free(&c);
    matrix_free(&m);
}

static void products_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++)
        check((bauta_dtype)(i % 3), 1 + test_below(&randoms, 30),
              1 + test_below(&randoms, 200), 1 + test_below(&randoms, 90));
}

static void panel_boundaries_equal_the_reference(void **state)
{
    (void)state;
    static const size_t outputs[] = { 1,  7,  8,  15, 16,  47,  48,  49, 63,
                                      64, 65, 96, 97, 127, 128, 129, 192 };
    static const size_t rows[] = { 1, 2, 3, 4, 5, 6, 7, 12, 13, 16, 17 };
    for (size_t i = 0; i < BT_LEN(outputs); i++)
        for (size_t r = 0; r < BT_LEN(rows); r++)
            check((bauta_dtype)test_below(&randoms, 3), rows[r], outputs[i],
                  1 + test_below(&randoms, 20));
}

/* A row takes several panels at once: every number of vectors, each with every
 * number of lanes in the last. */
static void one_row_of_any_width_equals_the_reference(void **state)
{
    (void)state;
    for (size_t outputs = 1; outputs <= 250; outputs++)
        check((bauta_dtype)test_below(&randoms, 3), 1, outputs,
              1 + test_below(&randoms, 20));
}

/* Long chains are cut where there are many rows, and stripes are shared. */
static void large_products_equal_the_reference(void **state)
{
    (void)state;
    static const size_t sizes[][3] = { { 1, 1500, 300 }, { 3, 700, 513 },
                                       { 13, 130, 512 }, { 17, 100, 1025 },
                                       { 40, 333, 600 }, { 1, 4100, 40 } };
    for (size_t i = 0; i < BT_LEN(sizes); i++)
        for (int type = 0; type < 3; type++)
            check((bauta_dtype)type, sizes[i][0], sizes[i][1], sizes[i][2]);
}

static void bfloat16_equals_float32_of_rounded_weights(void **state)
{
    (void)state;
    matrix m = matrix_create(BAUTA_BFLOAT16, 130, 77, false);
    float x[5 * 77], got[5 * 130], want[5 * 130];
    bt_cpu cpu = { .kernels = bt_kernels_get(NULL), .pool = test_pools[1] };
    for (size_t i = 0; i < BT_LEN(x); i++)
        x[i] = test_float(&randoms);
    for (size_t i = 0; i < m.outputs * m.stride; i++)
        m.w[i] = bf16_of(m.w[i]);
    bt_gemm g = {
        .m = 5, .n = 130, .k = 77, .a = x, .lda = 77, .c = got, .ldc = 130
    };
    g.packed = &m.compact;
    assert_int_equal(bt_gemm_f32(&cpu, &g, NULL), 0);
    g.packed = NULL;
    g.b = m.w;
    g.ldb = m.stride;
    g.trans_b = true;
    g.c = want;
    assert_int_equal(bt_gemm_f32(&cpu, &g, NULL), 0);
    assert_memory_equal(got, want, sizeof(want));
    bt_arena_release(&cpu.workspace);
    matrix_free(&m);
}

/* Three matrices of different types and sizes with one x, of few rows and of
 * many: the bits of each alone. */
static void grouped_products_equal_each_alone(void **state)
{
    (void)state;
    static const size_t outputs[] = { 300, 70, 1 };
    static float x[20 * 77], got[20 * 371], want[20 * 371];
    bt_cpu cpu = { .kernels = bt_kernels_get(NULL) };
    floats_fill(&randoms, x, BT_LEN(x));
    for (size_t rows = 1; rows <= 20; rows += 19) {
        matrix m[3];
        bt_gemm g[3];
        float *to = got;
        for (size_t i = 0; i < 3; i++) {
            m[i] = matrix_create((bauta_dtype)i, outputs[i], 77, false);
            g[i] = (bt_gemm){ .m = rows,
                              .n = outputs[i],
                              .k = 77,
                              .a = x,
                              .lda = 77,
                              .c = to,
                              .ldc = outputs[i],
                              .packed = &m[i].compact };
            reference(&g[i], &m[i], want + (to - got));
            to += rows * outputs[i];
        }
        for (size_t t = 0; t < TEST_POOLS; t++) {
            memset(got, 0xff, sizeof(got));
            cpu.pool = test_pools[t];
            assert_int_equal(bt_gemm_grouped_f32(&cpu, g, 3, NULL), BAUTA_OK);
            assert_memory_equal(got, want, rows * 371 * sizeof(float));
        }
        for (size_t i = 0; i < 3; i++)
            matrix_free(&m[i]);
    }
    bt_arena_release(&cpu.workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bfloat16_is_the_nearest_number),
        cmocka_unit_test(bfloat16_rounds_every_kind_of_number),
        cmocka_unit_test(int8_is_the_nearest_multiple_of_its_scale),
        cmocka_unit_test(int8_accepts_zeros_and_denormals),
        cmocka_unit_test(int8_refuses_non_finite_numbers),
        cmocka_unit_test(a_row_is_its_elements_times_the_scales),
        cmocka_unit_test(products_equal_the_reference),
        cmocka_unit_test(panel_boundaries_equal_the_reference),
        cmocka_unit_test(one_row_of_any_width_equals_the_reference),
        cmocka_unit_test(large_products_equal_the_reference),
        cmocka_unit_test(bfloat16_equals_float32_of_rounded_weights),
        cmocka_unit_test(grouped_products_equal_each_alone),
    };
    randoms = test_random_from(test_seed());
    return cmocka_run_group_tests_name("packed_weight", tests,
                                       test_pools_create, test_pools_free);
}
