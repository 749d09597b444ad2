/* SPDX-License-Identifier: Apache-2.0 */
/* check_norm.c - norms of rows, and their gradients. */
#include "check.h"

#include "base/error.h"

/* The arrays of a case; outputs once for each side. */
typedef struct arrays {
    guarded x, gain, bias, dy, mean, scale, y, dx, dgain, dbias, residual, sum;
} arrays;

static arrays arrays_make(check *c, size_t rows, size_t width)
{
    arrays a = {
        check_floats(c, rows * width, 3), check_floats(c, width, 1),
        check_floats(c, width, 1),        check_floats(c, rows * width, 1),
        check_floats(c, rows, 1),         check_floats(c, rows, 1),
        check_floats(c, rows * width, 1), check_floats(c, rows * width, 1),
        check_floats(c, width, 1),        check_floats(c, width, 1),
        check_floats(c, rows * width, 3), check_floats(c, rows * width, 1),
    };
    return a;
}

static arrays arrays_copy(const arrays *from)
{
    arrays a;
    const guarded *f = &from->x;
    guarded *t = &a.x;
    for (size_t i = 0; i < sizeof(a) / sizeof(*t); i++)
        t[i] = check_copy(&f[i]);
    return a;
}

static void arrays_free(arrays *a)
{
    guarded *t = &a->x;
    for (size_t i = 0; i < sizeof(*a) / sizeof(*t); i++)
        guarded_free(&t[i]);
}

static bt_norm norm_of(const arrays *a, size_t rows, size_t width)
{
    bt_norm n = { .rows = rows,
                  .width = width,
                  .epsilon = 1e-5f,
                  .x = a->x.data,
                  .gain = a->gain.data,
                  .bias = a->bias.data,
                  .mean = a->mean.data,
                  .scale = a->scale.data,
                  .y = a->y.data,
                  .dy = a->dy.data,
                  .dx = a->dx.data,
                  .dgain = a->dgain.data,
                  .dbias = a->dbias.data };
    return n;
}

static void norm_set(bt_norm *n, const arrays *a, unsigned bits)
{
    n->kind = bits & 1 ? BT_NORM_RMS : BT_NORM_LAYER;
    n->bias = bits & 2 ? n->bias : NULL;
    n->dbias = bits & 2 ? n->dbias : NULL;
    n->add_dx = n->add_dgain = bits & 4;
    n->add_dbias = bits & 1;
    if (bits & 8) {
        n->residual = a->residual.data;
        n->sum = a->sum.data;
    }
}

static void run(const bt_kernels *kernels, const bt_norm *n, size_t cut)
{
    kernels->norm(n, 0, n->rows);
    kernels->norm_backward(n, 0, n->rows);
    kernels->norm_backward_gain(n, 0, cut); // columns may be cut anywhere
    kernels->norm_backward_gain(n, cut, n->width - cut);
}

static void norm_case(check *c, size_t rows, size_t width, size_t odd,
                      unsigned bits)
{
    arrays want = arrays_make(c, rows, width);
    floats_insert_special(&c->random, want.x.data, want.x.count, odd);
    floats_insert_special(&c->random, want.dy.data, want.dy.count, odd);
    arrays got = arrays_copy(&want);
    bt_norm n = norm_of(&want, rows, width), m = norm_of(&got, rows, width);
    norm_set(&n, &want, bits);
    norm_set(&m, &got, bits);
    run(c->reference, &n, 0);
    run(c->twin, &m, test_below(&c->random, width + 1));
    check_same(c, "mean", &want.mean, &got.mean);
    check_same(c, "scale", &want.scale, &got.scale);
    check_same(c, "y", &want.y, &got.y);
    check_same(c, "sum", &want.sum, &got.sum);
    check_same(c, "dx", &want.dx, &got.dx);
    check_same(c, "dgain", &want.dgain, &got.dgain);
    check_same(c, "dbias", &want.dbias, &got.dbias);
    arrays_free(&want);
    arrays_free(&got);
}

static void norm_compare(check *c)
{
    for (size_t width = 0; width <= 100; width++)
        for (unsigned bits = 0; bits < 16; bits++)
            norm_case(c, bits % 4 + 1, width, bits & 1 ? 2 : 0, bits);
    for (size_t rows = 0; rows < 40; rows++)
        norm_case(c, rows, 300 + rows, 0, (unsigned)rows % 16);
    norm_case(c, 3, 4099, 0, 2);
    norm_case(c, 3, 4099, 0, 10);
}

typedef struct timed {
    const bt_kernels *kernels;
    bt_norm norm;
} timed;

static void time_forward(void *argument)
{
    timed *t = argument;
    t->kernels->norm(&t->norm, 0, t->norm.rows);
}

static void time_back(void *argument)
{
    timed *t = argument;
    t->kernels->norm_backward(&t->norm, 0, t->norm.rows);
}

static void time_gain(void *argument)
{
    timed *t = argument;
    t->kernels->norm_backward_gain(&t->norm, 0, t->norm.width);
}

static void norm_bench(check *c)
{
    static void (*const calls[])(void *) = { time_forward, time_back,
                                             time_gain };
    static const char *const names[] = { "forward", "back", "gain" };
    enum { ROWS = 16, WIDTH = 4096 };
    arrays a = arrays_make(c, ROWS, WIDTH);
    timed t = { c->reference, norm_of(&a, ROWS, WIDTH) };
    for (size_t i = 0; i < BT_LEN(calls); i++) {
        t.kernels = c->reference;
        double time_c = check_time(calls[i], &t) / ROWS;
        t.kernels = c->twin;
        double twin = check_time(calls[i], &t) / ROWS;
        printf("  %-8s row of 4096: c %.0f ns, twin %.0f ns\n", names[i],
               time_c, twin);
    }
    arrays_free(&a);
}

int main(int argc, char **argv)
{
    static const check_op ops[] = { { "norm", norm_compare, norm_bench } };
    return check_main(argc, argv, ops, 1);
}
