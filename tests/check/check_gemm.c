/* SPDX-License-Identifier: Apache-2.0 */
/* check_gemm.c - the matrix product: every twin and thread count against the
 * reference, bit for bit, and the reference against double precision. */
#include "backend/cpu/gemm.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "guard_page.h"
#include "test_pools.h"

static test_random randoms;

/* The parameters of a case; the matrices follow from them. */
typedef struct shape {
    size_t m, n, k;
    bool trans_a, trans_b, add, bias;
    size_t pad; /* floats between the end of a row and the next */
    bool odd;   /* insert NaN, infinities and zeros */
} shape;

enum { MARGIN = 37 }; /* floats before C that must stay as they are */

/* The operands of a case, each ending at an unreadable page. */
typedef struct operands {
    guarded a, b, c, bias;
    float *want, *start; /* like c, margin included */
    bt_gemm gemm;
} operands;

static guarded matrix(const shape *s, size_t rows, size_t columns)
{
    size_t count =
        rows && columns ? (rows - 1) * (columns + s->pad) + columns : 0;
    guarded g = guarded_create(count);
    floats_fill(&randoms, g.data, count);
    if (s->odd)
        floats_insert_special(&randoms, g.data, count, 1 + count / 100);
    return g;
}

static operands operands_create(const shape *s)
{
    operands o = {
        .a = matrix(s, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k),
        .b = matrix(s, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n),
        .bias = matrix(s, 1, s->n),
    };
    size_t count = MARGIN;
    if (s->m && s->n)
        count += (s->m - 1) * (s->n + s->pad) + s->n;
    o.c = guarded_create(count);
    o.want = malloc(count * sizeof(float));
    o.start = malloc(count * sizeof(float));
    assert_true(o.want && o.start);
    floats_fill(&randoms, o.start, count);
    o.gemm = (bt_gemm){
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .a = o.a.data,
        .lda = (s->trans_a ? s->m : s->k) + s->pad,
        .trans_a = s->trans_a,
        .b = o.b.data,
        .ldb = (s->trans_b ? s->k : s->n) + s->pad,
        .trans_b = s->trans_b,
        .c = o.c.data + MARGIN,
        .ldc = s->n + s->pad,
        .add = s->add,
        .bias = s->bias ? o.bias.data : NULL,
    };
    return o;
}

static void operands_free(operands *o)
{
    guarded_free(&o->a);
    guarded_free(&o->b);
    guarded_free(&o->c);
    guarded_free(&o->bias);
    free(o->want);
    free(o->start);
}

/* C before the product. Without `add` its elements must not be read, so they
 * are NaN; memory around them must not be written. */
static void restart(operands *o)
{
    const bt_gemm *g = &o->gemm;
    memcpy(o->c.data, o->start, o->c.count * sizeof(float));
    for (size_t i = 0; i < g->m && !g->add; i++)
        for (size_t j = 0; j < g->n; j++)
            g->c[i * g->ldc + j] = NAN;
}

static void compare(const operands *o, const shape *s, const char *isa,
                    int threads)
{
    size_t at = floats_differ(o->c.data, o->want, o->c.count);
    if (at == o->c.count)
        return;
    fail_msg("%s, %d threads: m %zu n %zu k %zu, op %c%c, add %d bias %d "
             "pad %zu odd %d: float %td of C is %a, want %a",
             isa, threads, s->m, s->n, s->k, s->trans_a ? 't' : 'n',
             s->trans_b ? 't' : 'n', s->add, s->bias, s->pad, s->odd,
             (ptrdiff_t)at - MARGIN, (double)o->c.data[at],
             (double)o->want[at]);
}

/* One case on every instruction set: the direct kernel, then the product on
 * one, two and four threads. */
static void check(const shape *s)
{
    const char *names[8];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    operands o = operands_create(s);
    bt_cpu cpu = { .kernels = NULL };

    restart(&o);
    bt_gemm_columns_f32_c(&o.gemm, 0, s->n);
    memcpy(o.want, o.c.data, o.c.count * sizeof(float));
    for (size_t i = 1; i < count; i++) {
        const bt_kernels *kernels = bt_kernels_get(names[i]);
        restart(&o);
        kernels->gemm_columns(&o.gemm, 0, s->n);
        compare(&o, s, names[i], 0);
        cpu.kernels = kernels;
        for (size_t t = 0; t < TEST_POOLS; t++) {
            cpu.pool = test_pools[t];
            restart(&o);
            assert_int_equal(bt_gemm_f32(&cpu, &o.gemm, NULL), BAUTA_OK);
            compare(&o, s, names[i], bt_cpu_threads(&cpu));
        }
    }
    bt_arena_release(&cpu.workspace);
    operands_free(&o);
}

static void draw_flags(shape *s)
{
    uint32_t bits = test_u32(&randoms);
    s->trans_a = bits & 1;
    s->trans_b = bits >> 1 & 1;
    s->add = bits >> 2 & 1;
    s->bias = bits >> 3 & 1;
    s->odd = bits >> 6 & 1;
    s->pad = bits >> 7 & 1 ? test_below(&randoms, 20) : 0;
}

static void small_products_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++) {
        shape s = { .m = 1 + test_below(&randoms, 40),
                    .n = 1 + test_below(&randoms, 40),
                    .k = 1 + test_below(&randoms, 40) };
        draw_flags(&s);
        check(&s);
    }
}

/* Large enough for threads to be worth it. */
static void shared_products_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        shape s = { .m = 1 + test_below(&randoms, i % 2 ? 12 : 200),
                    .n = 40 + test_below(&randoms, 300),
                    .k = 20 + test_below(&randoms, 300) };
        draw_flags(&s);
        check(&s);
    }
}

static void every_flag_equals_the_reference(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 16; bits++)
        for (int many = 0; many < 2; many++) {
            shape s = { .m = many ? 53 : 3, .n = 101, .k = 39 };
            s.trans_a = bits & 1;
            s.trans_b = bits >> 1 & 1;
            s.add = bits >> 2 & 1;
            s.bias = bits >> 3 & 1;
            s.pad = bits % 3;
            check(&s);
        }
}

/* Every number of rows, columns and steps around the borders of tiles, panels
 * and vectors. */
static void tile_borders_equal_the_reference(void **state)
{
    (void)state;
    static const size_t rows[] = { 1,  2,  7,  8,  9,  12, 13, 14,
                                   15, 16, 17, 20, 23, 24, 25 };
    static const size_t columns[] = { 1,  7,  8,  9,  15, 16, 17, 23, 24,
                                      25, 31, 32, 33, 47, 48, 49, 97 };
    static const size_t steps[] = { 1, 7, 8, 9, 15, 16, 17 };
    for (size_t i = 0; i < BT_LEN(rows); i++)
        for (size_t j = 0; j < BT_LEN(columns); j++) {
            shape s = { .m = rows[i],
                        .n = columns[j],
                        .k = steps[test_below(&randoms, BT_LEN(steps))] };
            draw_flags(&s);
            check(&s);
        }
}

/* Long chains are split, and large operands are blocked; the widths here make
 * each block end just before, at and after a boundary. */
static void split_chains_equal_the_reference(void **state)
{
    (void)state;
    static const struct {
        size_t m, n, k;
    } sizes[] = {
        { 3, 70, 511 },   { 3, 70, 512 },   { 3, 70, 513 },    { 14, 50, 511 },
        { 14, 50, 512 },  { 14, 50, 513 },  { 17, 49, 1023 },  { 17, 49, 1024 },
        { 17, 49, 1025 }, { 13, 3, 70000 }, { 1100, 5, 1100 }, { 2500, 3, 600 },
        { 1, 1500, 33 },  { 5, 1030, 65 },  { 130, 600, 16 },  { 24, 1030, 40 },
    };
    for (size_t i = 0; i < BT_LEN(sizes); i++) {
        shape s = { .m = sizes[i].m, .n = sizes[i].n, .k = sizes[i].k };
        draw_flags(&s);
        check(&s);
    }
}

/* Several blocks of rows, the last one shorter, and of k: more than there are
 * places for packed ones. */
static void ranges_follow_each_other(void **state)
{
    (void)state;
    for (int trans_a = 0; trans_a < 2; trans_a++) {
        shape s = { .m = 1150, .n = 100, .k = 900 };
        draw_flags(&s);
        s.trans_a = trans_a;
        check(&s);
    }
}

/* A loop whose threads never come, but for one. */
static void run_one_share(void *user, size_t count,
                          void (*run)(void *loop, size_t share), void *loop)
{
    run(loop, *(const size_t *)user % count);
}

static void one_thread_takes_the_units_of_all(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    bt_cpu cpu = { .kernels = bt_kernels_get(NULL) };
    for (size_t share = 0; share < THREADS; share++)
        for (int trans_a = 0; trans_a < 2; trans_a++) {
            shape s = { .m = 700, .n = 130, .k = 600 };
            draw_flags(&s);
            s.trans_a = trans_a;
            operands o = operands_create(&s);
            restart(&o);
            bt_gemm_columns_f32_c(&o.gemm, 0, s.n);
            memcpy(o.want, o.c.data, o.c.count * sizeof(float));
            restart(&o);
            assert_int_equal(bt_thread_pool_create_custom(&cpu.pool, THREADS,
                                                          run_one_share, &share,
                                                          NULL),
                             BAUTA_OK);
            assert_int_equal(bt_gemm_f32(&cpu, &o.gemm, NULL), BAUTA_OK);
            compare(&o, &s, cpu.kernels->isa, THREADS);
            bt_thread_pool_free(cpu.pool);
            operands_free(&o);
        }
    bt_arena_release(&cpu.workspace);
}

/* Rows of A that are a multiple of 4 KiB apart are copied by some kernels. */
static void aliased_rows_equal_the_reference(void **state)
{
    (void)state;
    static const size_t rows[] = { 13, 48, 49, 101 };
    static const size_t columns[] = { 127, 128, 145 };
    for (size_t i = 0; i < BT_LEN(rows); i++)
        for (size_t j = 0; j < BT_LEN(columns); j++)
            for (size_t k = 1024; k <= 3072; k += 1024) {
                shape s = { .m = rows[i], .n = columns[j], .k = k };
                draw_flags(&s);
                s.trans_a = false;
                s.pad = 0;
                check(&s);
            }
}

/* The product, then the activation of each row of C, or its slope at `slope`
 * times C, by the reference. */
static void want_act(operands *o, bt_act act, const float *slope)
{
    const bt_kernels *c = bt_kernels_get("c");
    const bt_gemm *g = &o->gemm;
    restart(o);
    bt_gemm_columns_f32_c(g, 0, g->n);
    for (size_t i = 0; i < g->m; i++) {
        float *row = g->c + i * g->ldc;
        if (slope)
            c->act_backward(act, row, slope + i * g->ldc, row, NULL, g->n,
                            false);
        else
            c->act(act, row, row, NULL, g->n, false);
    }
    memcpy(o->want, o->c.data, o->c.count * sizeof(float));
}

/* The same as an epilogue, on every instruction set and number of threads. */
static void check_act(operands *o, const shape *s)
{
    const char *names[8];
    size_t count = bt_kernels_names(names, BT_LEN(names));
    for (size_t i = 1; i < count; i++)
        for (size_t t = 0; t < TEST_POOLS; t++) {
            bt_cpu cpu = { .kernels = bt_kernels_get(names[i]),
                           .pool = test_pools[t] };
            restart(o);
            assert_true(bt_gemm_blocked(&cpu, &o->gemm));
            assert_int_equal(bt_gemm_f32(&cpu, &o->gemm, NULL), BAUTA_OK);
            compare(o, s, names[i], bt_cpu_threads(&cpu));
            bt_arena_release(&cpu.workspace);
        }
}

static void activations_follow_the_product(void **state)
{
    (void)state;
    for (size_t n = 1; n < 150; n += 1 + n / 4) {
        shape s = { .m = 13 + n % 40, .n = n, .k = 700, .pad = n % 3 };
        s.bias = s.odd = n % 2;
        s.trans_b = n % 5 == 0;
        operands o = operands_create(&s), pre = operands_create(&s);
        bt_act act = (bt_act)test_below(&randoms, 4);
        want_act(&o, act, NULL);
        o.gemm.has_act = true;
        o.gemm.act = act;
        check_act(&o, &s);
        o.gemm.pre = pre.c.data + MARGIN; // the product as it is without act
        memcpy(pre.c.data, o.start, o.c.count * sizeof(float));
        check_act(&o, &s);
        o.gemm.has_act = false;
        restart(&o);
        bt_gemm_columns_f32_c(&o.gemm, 0, n);
        assert_int_equal(floats_differ(pre.c.data, o.c.data, o.c.count),
                         o.c.count);
        o.gemm.pre = NULL;
        want_act(&o, act, pre.c.data + MARGIN);
        o.gemm.has_act = true;
        o.gemm.slope = pre.c.data + MARGIN;
        check_act(&o, &s);
        operands_free(&o);
        operands_free(&pre);
    }
}

static void empty_products_run_the_epilogue_or_nothing(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 8; bits++)
        for (int many = 0; many < 2; many++)
            for (int flags = 0; flags < 8; flags++) {
                shape s = { .m = bits & 1 ? 0
                                 : many   ? 19
                                          : 3,
                            .n = bits & 2 ? 0 : 21,
                            .k = bits & 4 ? 0 : 5 };
                draw_flags(&s);
                check(&s);
            }
}

/* Each of the k fused steps rounds once, so the chain that starts from c obeys
 *
 *     |got - exact| <= gamma_k * (|c| + sum |a| |b|),
 *     gamma_k = k u / (1 - k u),   u = 2^-24
 *
 * (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). The double
 * precision sum has the same bound with u = 2^-53, which the factor below
 * covers. */
static void the_error_stays_below_its_bound(void **state)
{
    (void)state;
    shape s = { .m = 9, .n = 33, .k = 2000, .trans_b = true, .add = true };
    operands o = operands_create(&s);
    const bt_gemm *g = &o.gemm;
    double ku = (double)s.k * 0x1p-24;
    double gamma = ku / (1.0 - ku) * (1.0 + 0x1p-20);
    restart(&o);
    bt_gemm_columns_f32_c(g, 0, s.n);
    for (size_t i = 0; i < s.m; i++)
        for (size_t j = 0; j < s.n; j++) {
            double sum = (double)o.start[MARGIN + i * g->ldc + j];
            double size = fabs(sum);
            for (size_t p = 0; p < s.k; p++) {
                double term =
                    (double)g->a[i * g->lda + p] * (double)g->b[j * g->ldb + p];
                sum += term;
                size += fabs(term);
            }
            double error = fabs((double)g->c[i * g->ldc + j] - sum);
            assert_true(error <= gamma * size);
        }
    operands_free(&o);
}

static int allocations; /* since the test began */
static bool refuse;

static void *count_alloc(void *user, size_t align, size_t size)
{
    (void)user;
    allocations++;
    return refuse ? NULL : aligned_alloc(align, bt_size_round(size, align));
}

static void count_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void a_repeated_product_allocates_nothing(void **state)
{
    (void)state;
    static const bauta_allocator counting = { count_alloc, count_free, NULL };
    shape s = { .m = 40, .n = 70, .k = 30 };
    operands o = operands_create(&s);
    const bt_kernels *kernels = bt_kernels_get(NULL);
    bt_cpu cpu = { .kernels = kernels, .pool = test_pools[1] };
    bauta_error err;

    bauta_allocator_set(&counting);
    restart(&o);
    memcpy(o.want, o.c.data, o.c.count * sizeof(float));
    if (kernels->gemm_tiles) { // the reference needs no memory
        refuse = true;
        assert_int_equal(bt_gemm_f32(&cpu, &o.gemm, &err), BAUTA_ERR_NOMEM);
        assert_non_null(strstr(err.message, "matrix product"));
        compare(&o, &s, kernels->isa, 2); // untouched
        refuse = false;
    }
    assert_int_equal(bt_gemm_f32(&cpu, &o.gemm, &err), 0);
    allocations = 0;
    assert_int_equal(bt_gemm_f32(&cpu, &o.gemm, &err), 0);
    assert_int_equal(allocations, 0);
    bt_arena_release(&cpu.workspace);
    bauta_allocator_set(NULL);
    operands_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_products_equal_the_reference),
        cmocka_unit_test(shared_products_equal_the_reference),
        cmocka_unit_test(every_flag_equals_the_reference),
        cmocka_unit_test(tile_borders_equal_the_reference),
        cmocka_unit_test(split_chains_equal_the_reference),
        cmocka_unit_test(ranges_follow_each_other),
        cmocka_unit_test(one_thread_takes_the_units_of_all),
        cmocka_unit_test(aliased_rows_equal_the_reference),
        cmocka_unit_test(activations_follow_the_product),
        cmocka_unit_test(empty_products_run_the_epilogue_or_nothing),
        cmocka_unit_test(the_error_stays_below_its_bound),
        cmocka_unit_test(a_repeated_product_allocates_nothing),
    };
    randoms = test_random_from(test_seed());
    return cmocka_run_group_tests_name("gemm", tests, test_pools_create,
                                       test_pools_free);
}
