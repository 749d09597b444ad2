/* SPDX-License-Identifier: Apache-2.0 */
/* check_rotary.c - rotary positions. */
#include "check.h"

enum { ROWS = 3 };

static const uint32_t positions[ROWS] = { 0, 1031, 0xfffffff0 };

/* Frequencies as models have them: 10000^(-2 c / dim). */
static guarded frequencies_make(size_t half)
{
    guarded f = guarded_create(half);
    for (size_t c = 0; c < half; c++)
        f.data[c] = (float)pow(10000, -(double)c / (double)half);
    return f;
}

static void rotary_case(check *c, size_t heads, size_t half, size_t odd,
                        unsigned bits)
{
    size_t count = ROWS * heads * 2 * half, others = bits & 4 ? heads / 2 : 0;
    size_t other = ROWS * others * 2 * half;
    guarded other_x = check_floats(c, other, 1);
    guarded other_want = check_floats(c, other, 1);
    guarded other_got = check_copy(&other_want);
    guarded x = check_floats(c, count, 1), want = check_floats(c, count, 1);
    guarded f = frequencies_make(half), got = check_copy(&want);
    floats_insert_special(&c->random, x.data, count, odd);
    bt_rotary r = { .heads = heads,
                    .dim = 2 * half,
                    .positions = positions,
                    .frequencies = f.data,
                    .x = x.data,
                    .y = want.data,
                    .back = bits & 1,
                    .add = bits & 2,
                    .other_heads = others,
                    .other_x = other_x.data,
                    .other_y = other_want.data };
    c->reference->rotary(&r, 0, ROWS);
    r.y = got.data;
    r.other_y = other_got.data;
    c->twin->rotary(&r, 1, ROWS - 1);
    c->twin->rotary(&r, 0, 1);
    check_same(c, "rotary", &want, &got);
    check_same(c, "rotary of other heads", &other_want, &other_got);
    guarded_free(&other_x);
    guarded_free(&other_want);
    guarded_free(&other_got);
    guarded_free(&x);
    guarded_free(&f);
    guarded_free(&want);
    guarded_free(&got);
}

static void rotary_compare(check *c)
{
    for (size_t half = 0; half <= 100; half++)
        for (unsigned bits = 0; bits < 8; bits++)
            rotary_case(c, half % 3 + 1, half, bits % 4 * 2, bits);
    rotary_case(c, 32, 64, 0, 0);
    rotary_case(c, 32, 64, 0, 4);
}

typedef struct timed {
    const bt_kernels *kernels;
    bt_rotary rotary;
} timed;

static void time_rotary(void *argument)
{
    timed *t = argument;
    t->kernels->rotary(&t->rotary, 1, 1);
}

static void rotary_bench(check *c)
{
    enum { HALF = 64 };
    guarded x = check_floats(c, 2 * 4096, 1), y = check_floats(c, 2 * 4096, 1);
    guarded f = frequencies_make(HALF);
    timed t = { .rotary = { .dim = 2 * HALF,
                            .positions = positions,
                            .frequencies = f.data,
                            .x = x.data,
                            .y = y.data } };
    for (size_t heads = 1; heads <= 32; heads += 31) {
        t.rotary.heads = heads;
        t.kernels = c->reference;
        double time_c = check_time(time_rotary, &t);
        t.kernels = c->twin;
        printf("  rotary of a row, %zu heads of 128: c %.0f ns, twin %.0f ns\n",
               heads, time_c, check_time(time_rotary, &t));
    }
    guarded_free(&x);
    guarded_free(&y);
    guarded_free(&f);
}

int main(int argc, char **argv)
{
    static const check_op ops[] = { { "rotary", rotary_compare,
                                      rotary_bench } };
    return check_main(argc, argv, ops, 1);
}
