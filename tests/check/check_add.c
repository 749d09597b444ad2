/* SPDX-License-Identifier: Apache-2.0 */
/* check_add.c - sums and multiples of arrays. */
#include "check.h"

static void add_case(check *c, size_t count, size_t odd)
{
    guarded a = check_floats(c, count, 1), b = check_floats(c, count, 1);
    floats_insert_special(&c->random, a.data, count, odd);
    floats_insert_special(&c->random, b.data, count, odd);
    guarded want = check_copy(&b), got = check_copy(&b);
    c->reference->scale(want.data, a.data, 0.3f, count, true);
    c->twin->scale(got.data, a.data, 0.3f, count, true);
    check_same(c, "scale, add", &want, &got);
    c->reference->scale(want.data, a.data, 1.7f, count, false);
    c->twin->scale(got.data, a.data, 1.7f, count, false);
    check_same(c, "scale", &want, &got);
    c->reference->add(want.data, a.data, b.data, count);
    c->twin->add(got.data, a.data, b.data, count);
    check_same(c, "add", &want, &got);
    guarded_free(&a);
    guarded_free(&b);
    guarded_free(&want);
    guarded_free(&got);
}

/* Sums of the rows of a matrix whose rows are three floats longer. */
static void sum_case(check *c, size_t rows, size_t count, size_t odd)
{
    size_t stride = count + 3;
    guarded from = check_floats(c, rows * stride, 1);
    guarded want = check_floats(c, count, 1), got = check_copy(&want);
    floats_insert_special(&c->random, from.data, rows * stride, odd);
    c->reference->column_sum(want.data, from.data, stride, rows, count);
    c->twin->column_sum(got.data, from.data, stride, rows, count);
    check_same(c, "column sum", &want, &got);
    guarded_free(&from);
    guarded_free(&want);
    guarded_free(&got);
}

static void add_compare(check *c)
{
    for (size_t count = 0; count <= 200; count += 7)
        for (size_t rows = 1; rows <= 40; rows += 13)
            sum_case(c, rows, count, rows % 2 ? 4 : 0);
    sum_case(c, 5, 192, 0);
    for (size_t count = 0; count <= 100; count++) {
        add_case(c, count, 0);
        add_case(c, count, 4);
    }
    add_case(c, 4099, 9);
}

typedef struct timed {
    const bt_kernels *kernels;
    guarded a, b, to;
} timed;

static void time_add(void *argument)
{
    timed *t = argument;
    t->kernels->add(t->to.data, t->a.data, t->b.data, t->a.count);
}

static void time_scale(void *argument)
{
    timed *t = argument;
    t->kernels->scale(t->to.data, t->a.data, 0.5f, t->a.count, true);
}

static void add_bench(check *c)
{
    timed t = { c->reference, check_floats(c, 4096, 1),
                check_floats(c, 4096, 1), check_floats(c, 4096, 1) };
    double add_c = check_time(time_add, &t);
    double scale_c = check_time(time_scale, &t);
    t.kernels = c->twin;
    double add_twin = check_time(time_add, &t);
    double scale_twin = check_time(time_scale, &t);
    printf("  add of 4096: c %.0f ns, twin %.0f ns; scale and add: c %.0f ns, "
           "twin %.0f ns\n",
           add_c, add_twin, scale_c, scale_twin);
    guarded_free(&t.a);
    guarded_free(&t.b);
    guarded_free(&t.to);
}

int main(int argc, char **argv)
{
    static const check_op ops[] = { { "add", add_compare, add_bench } };
    return check_main(argc, argv, ops, 1);
}
