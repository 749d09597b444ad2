/* SPDX-License-Identifier: Apache-2.0 */
/* check_softmax.c - the exponential of an array and the softmax pieces. */
#include "check.h"

static guarded row_make(check *c, size_t count, size_t odd)
{
    guarded x = check_floats(c, count, 90);
    floats_insert_special(&c->random, x.data, count, odd);
    return x;
}

/* One number as an array, so that it is compared like all others. */
static void same_number(check *c, const char *what, float want, float got)
{
    guarded w = check_floats(c, 1, 1), g = check_floats(c, 1, 1);
    w.data[0] = want;
    g.data[0] = got;
    check_same(c, what, &w, &g);
    guarded_free(&w);
    guarded_free(&g);
}

static void softmax_case(check *c, size_t count, size_t odd)
{
    guarded x = row_make(c, count, odd);
    guarded want = check_copy(&x), got = check_copy(&x);
    c->reference->exp(want.data, x.data, count);
    c->twin->exp(got.data, x.data, count);
    check_same(c, "exp", &want, &got);
    c->twin->exp(x.data, x.data, count); // in place
    check_same(c, "exp in place", &want, &x);
    float max = c->reference->row_max(want.data, count);
    same_number(c, "max", max, c->twin->row_max(want.data, count));
    guarded again = check_copy(&want);
    float sum = c->reference->row_exp_sum(want.data, want.data, count, max);
    same_number(c, "sum", sum,
                c->twin->row_exp_sum(again.data, again.data, count, max));
    check_same(c, "exp of row", &want, &again);
    double row_sum = c->twin->row_sum(want.data, count);
    check_same_double(c, "row sum", c->reference->row_sum(want.data, count),
                      row_sum);
    c->reference->row_affine(want.data, count, 0.7f, -0.1f);
    c->twin->row_affine(again.data, count, 0.7f, -0.1f);
    check_same(c, "affine", &want, &again);
    guarded_free(&x);
    guarded_free(&want);
    guarded_free(&got);
    guarded_free(&again);
}

static void softmax_compare(check *c)
{
    for (size_t count = 0; count < 100; count++) {
        softmax_case(c, count, 0);
        softmax_case(c, count, 3);
    }
    softmax_case(c, 4096, 0);
    softmax_case(c, 50257, 5);
}

typedef struct timed {
    const bt_kernels *kernels;
    guarded x, to;
} timed;

static void time_exp(void *argument)
{
    timed *t = argument;
    t->kernels->exp(t->to.data, t->x.data, t->x.count);
}

static void time_row(void *argument)
{
    timed *t = argument;
    float max = t->kernels->row_max(t->x.data, t->x.count);
    t->kernels->row_exp_sum(t->to.data, t->x.data, t->x.count, max);
}

static void softmax_bench(check *c)
{
    timed t = { c->reference, row_make(c, 4096, 0), row_make(c, 4096, 0) };
    double exp_c = check_time(time_exp, &t), row_c = check_time(time_row, &t);
    t.kernels = c->twin;
    double exp_twin = check_time(time_exp, &t);
    double row_twin = check_time(time_row, &t);
    printf("  exp of 4096: c %.0f ns, twin %.0f ns; row softmax: c %.0f ns, "
           "twin %.0f ns\n",
           exp_c, exp_twin, row_c, row_twin);
    guarded_free(&t.x);
    guarded_free(&t.to);
}

int main(int argc, char **argv)
{
    static const check_op ops[] = { { "softmax", softmax_compare,
                                      softmax_bench } };
    return check_main(argc, argv, ops, 1);
}
