/* SPDX-License-Identifier: Apache-2.0 */
/* check_adamw.c - a step of AdamW, and the sum of squares. */
#include "check.h"

static const bt_adamw usual = { .scale = 0.75f,
                                .keep = 0.9999f,
                                .beta1 = 0.9f,
                                .weight1 = 0.1f,
                                .beta2 = 0.999f,
                                .weight2 = 0.001f,
                                .root = 0.0316227766f,
                                .epsilon = 1e-8f,
                                .step = 0.003f };

/* The four arrays of a step, p, m, v and the gradient; v is never negative. */
typedef struct arrays {
    guarded x[4];
} arrays;

static arrays arrays_create(check *c, size_t count, size_t odd)
{
    arrays a;
    for (size_t i = 0; i < 4; i++) {
        a.x[i] = check_floats(c, count, 1);
        if (i == 3)
            floats_insert_special(&c->random, a.x[i].data, count, odd);
    }
    for (size_t j = 0; j < count; j++)
        a.x[2].data[j] = fabsf(a.x[2].data[j]);
    return a;
}

static arrays arrays_copy(const arrays *from)
{
    arrays a;
    for (size_t i = 0; i < 4; i++)
        a.x[i] = check_copy(&from->x[i]);
    return a;
}

static void arrays_free(arrays *a)
{
    for (size_t i = 0; i < 4; i++)
        guarded_free(&a->x[i]);
}

static void step(const bt_kernels *kernels, const bt_adamw *constants,
                 arrays *a)
{
    kernels->adamw(constants, a->x[0].data, a->x[1].data, a->x[2].data,
                   a->x[3].data, a->x[0].count);
}

static void adamw_case(check *c, const bt_adamw *constants, size_t count,
                       size_t odd)
{
    static const char *const names[] = { "p", "m", "v", "gradient" };
    arrays want = arrays_create(c, count, odd), got = arrays_copy(&want);
    for (int steps = 0; steps < 3; steps++) {
        step(c->reference, constants, &want);
        step(c->twin, constants, &got);
    }
    for (size_t i = 0; i < 4; i++)
        check_same(c, names[i], &want.x[i], &got.x[i]);
    check_same_double(c, "squares",
                      c->reference->squares(want.x[3].data, count),
                      c->twin->squares(want.x[3].data, count));
    arrays_free(&want);
    arrays_free(&got);
}

static void adamw_compare(check *c)
{
    bt_adamw heavy = usual; // beta1 below 1/2: m starts from the gradient
    heavy.beta1 = 0.25f;
    heavy.weight1 = 0.75f;
    for (size_t count = 0; count < 100; count++) {
        adamw_case(c, &usual, count, 0);
        adamw_case(c, &usual, count, 3);
        adamw_case(c, &heavy, count, 1);
    }
    adamw_case(c, &usual, 50257, 0);
    adamw_case(c, &usual, 50257, 9);
}

typedef struct timed {
    const bt_kernels *kernels;
    arrays a;
    double squares;
} timed;

static void time_adamw(void *argument)
{
    timed *t = argument;
    step(t->kernels, &usual, &t->a);
}

static void time_squares(void *argument)
{
    timed *t = argument;
    t->squares += t->kernels->squares(t->a.x[3].data, t->a.x[3].count);
}

static void adamw_bench(check *c)
{
    timed t = { c->reference, arrays_create(c, 32768, 0), 0 };
    double adamw_c = check_time(time_adamw, &t);
    double squares_c = check_time(time_squares, &t);
    t.kernels = c->twin;
    double adamw_twin = check_time(time_adamw, &t);
    double squares_twin = check_time(time_squares, &t);
    printf("  adamw of 32768: c %.0f ns, twin %.0f ns; squares: c %.0f ns, "
           "twin %.0f ns\n",
           adamw_c, adamw_twin, squares_c, squares_twin);
    arrays_free(&t.a);
}

int main(int argc, char **argv)
{
    static const check_op ops[] = { { "adamw", adamw_compare, adamw_bench } };
    return check_main(argc, argv, ops, 1);
}
