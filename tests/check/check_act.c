/* SPDX-License-Identifier: Apache-2.0 */
/* check_act.c - activations and their slopes. */
#include "check.h"

#include "base/error.h"

static const struct {
    const char *name;
    bt_act act;
} acts[] = {
    { "relu", BT_ACT_RELU },
    { "gelu_erf", BT_ACT_GELU_ERF },
    { "gelu_tanh", BT_ACT_GELU_TANH },
    { "silu", BT_ACT_SILU },
};

/* Numbers of all sizes, also where the functions have saturated. */
static guarded row_make(check *c, size_t count, size_t odd)
{
    guarded x = check_floats(c, count, test_u32(&c->random) & 1 ? 6 : 100);
    floats_insert_special(&c->random, x.data, count, odd);
    return x;
}

static void act_case(check *c, size_t count, size_t odd, bool by, bool add)
{
    guarded x = row_make(c, count, odd), dy = row_make(c, count, odd);
    guarded up = row_make(c, count, odd), start = row_make(c, count, odd);
    const float *factor = by ? up.data : NULL;
    for (size_t i = 0; i < BT_LEN(acts); i++) {
        guarded want = check_copy(&start), got = check_copy(&start);
        bt_act act = acts[i].act;
        c->reference->act(act, want.data, x.data, factor, count, add);
        c->twin->act(act, got.data, x.data, factor, count, add);
        check_same(c, acts[i].name, &want, &got);
        c->reference->act_backward(act, want.data, x.data, dy.data, factor,
                                   count, add);
        c->twin->act_backward(act, got.data, x.data, dy.data, factor, count,
                              add);
        check_same(c, "slope", &want, &got);
        guarded_free(&want);
        want = check_copy(&x);
        guarded_free(&got);
        got = check_copy(&x);
        c->reference->act(act, want.data, x.data, factor, count, false);
        c->twin->act(act, got.data, got.data, factor, count, false);
        check_same(c, "in place", &want, &got);
        guarded_free(&want);
        guarded_free(&got);
    }
    guarded_free(&x);
    guarded_free(&dy);
    guarded_free(&up);
    guarded_free(&start);
}

static void act_compare(check *c)
{
    for (size_t count = 0; count <= 100; count++)
        for (unsigned bits = 0; bits < 8; bits++)
            act_case(c, count, bits & 1 ? 4 : 0, bits & 2, bits & 4);
    act_case(c, 4096, 9, true, false);
    act_case(c, 50257, 50, true, true);
}

typedef struct timed {
    const bt_kernels *kernels;
    bt_act act;
    guarded x, dy, to;
} timed;

static void time_act(void *argument)
{
    timed *t = argument;
    t->kernels->act(t->act, t->to.data, t->x.data, NULL, t->x.count, false);
}

static void time_slope(void *argument)
{
    timed *t = argument;
    t->kernels->act_backward(t->act, t->to.data, t->x.data, t->dy.data, NULL,
                             t->x.count, false);
}

static void act_bench(check *c)
{
    timed t = { .x = check_floats(c, 4096, 6),
                .dy = check_floats(c, 4096, 1),
                .to = check_floats(c, 4096, 1) };
    for (size_t i = 0; i < BT_LEN(acts); i++) {
        t.act = acts[i].act;
        t.kernels = c->reference;
        double act_c = check_time(time_act, &t);
        double slope_c = check_time(time_slope, &t);
        t.kernels = c->twin;
        double act_twin = check_time(time_act, &t);
        double slope_twin = check_time(time_slope, &t);
        printf("  %-9s of 4096: c %.0f ns, twin %.0f ns; slope: c %.0f ns, "
               "twin %.0f ns\n",
               acts[i].name, act_c, act_twin, slope_c, slope_twin);
    }
    guarded_free(&t.x);
    guarded_free(&t.dy);
    guarded_free(&t.to);
}

int main(int argc, char **argv)
{
    static const check_op ops[] = { { "act", act_compare, act_bench } };
    return check_main(argc, argv, ops, 1);
}
