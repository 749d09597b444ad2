/* SPDX-License-Identifier: Apache-2.0 */
/* check_dropout.c - dropout, also of values that must not pass. */
#include "check.h"

enum { ROWS = 3 };

static const uint64_t tokens[ROWS] = { 0, 77, 0x123456789abcdef0 };

static bt_dropout dropout_make(check *c, size_t columns, const guarded *x)
{
    bt_dropout d = { .columns = columns,
                     .seed = test_u32(&c->random),
                     .site = test_u32(&c->random),
                     .below = test_u32(&c->random),
                     .scale = 1.25f,
                     .tokens = tokens,
                     .x = x->data };
    return d;
}

static void dropout_case(check *c, size_t columns, size_t odd, bool add)
{
    guarded x = check_floats(c, ROWS * columns, 1);
    guarded want = check_floats(c, ROWS * columns, 1);
    floats_insert_special(&c->random, x.data, x.count, odd);
    guarded got = check_copy(&want);
    bt_dropout d = dropout_make(c, columns, &x);
    d.add = add;
    d.y = want.data;
    c->reference->dropout(&d, 0, ROWS);
    d.y = got.data;
    c->twin->dropout(&d, 1, ROWS - 1);
    c->twin->dropout(&d, 0, 1);
    check_same(c, "dropout", &want, &got);
    guarded_free(&x);
    guarded_free(&want);
    guarded_free(&got);
}

static void dropout_compare(check *c)
{
    for (size_t columns = 0; columns <= 100; columns++) {
        dropout_case(c, columns, 0, false);
        dropout_case(c, columns, 5, true);
    }
    dropout_case(c, 4099, 9, false);
}

typedef struct timed {
    const bt_kernels *kernels;
    bt_dropout dropout;
} timed;

static void time_dropout(void *argument)
{
    timed *t = argument;
    t->kernels->dropout(&t->dropout, 0, 1);
}

static void dropout_bench(check *c)
{
    guarded x = check_floats(c, 4096, 1), y = check_floats(c, 4096, 1);
    timed t = { c->reference, dropout_make(c, 4096, &x) };
    t.dropout.y = y.data;
    double time_c = check_time(time_dropout, &t);
    t.kernels = c->twin;
    printf("  dropout of 4096: c %.0f ns, twin %.0f ns\n", time_c,
           check_time(time_dropout, &t));
    guarded_free(&x);
    guarded_free(&y);
}

int main(int argc, char **argv)
{
    static const check_op ops[] = { { "dropout", dropout_compare,
                                      dropout_bench } };
    return check_main(argc, argv, ops, 1);
}
