/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - twins of kernels against their reference.
 *
 * A check program compares every twin that this machine can run with the plain
 * C reference, on random data from a printed seed, in buffers that end at an
 * unreadable page, bit for bit. The same program measures:
 *
 *     check_attention                  compare
 *     check_attention --bench          compare, then time reference and twins
 *     BAUTA_SEED=7 check_attention     other random data */
#ifndef BT_TEST_CHECK_H
#define BT_TEST_CHECK_H

#include "backend/cpu/kernels/kernels.h"
#include "guard_page.h"

#include <time.h>

typedef struct check {
    const bt_kernels *reference, *twin;
    test_random random;
    size_t compared, failed; /* arrays */
    bool bench;
} check;

typedef struct check_op {
    const char *name;
    void (*compare)(check *c); /* all its cases */
    void (*bench)(check *c);   /* prints a line for c->twin; may be NULL */
} check_op;

/* `count` floats in [-size, size) that end at an unreadable page. */
static inline guarded check_floats(check *c, size_t count, float size)
{
    guarded g = guarded_create(count);
    for (size_t i = 0; i < count; i++)
        g.data[i] = test_float(&c->random) * size;
    return g;
}

static inline guarded check_copy(const guarded *from)
{
    guarded g = guarded_create(from->count);
    memcpy(g.data, from->data, from->count * sizeof(float));
    return g;
}

/* Count one comparison; print where it fails. */
static inline void check_same(check *c, const char *what, const guarded *want,
                              const guarded *got)
{
    size_t i = floats_differ(want->data, got->data, want->count);
    c->compared++;
    if (i == want->count)
        return;
    if (++c->failed <= 20)
        printf("  %s: %s[%zu]: want %a, got %a\n", c->twin->isa, what, i,
               (double)want->data[i], (double)got->data[i]);
}

/* The same for one double: the same bits, or NaN both. */
static inline void check_same_double(check *c, const char *what, double want,
                                     double got)
{
    c->compared++;
    if (memcmp(&want, &got, sizeof(want)) == 0 || (isnan(want) && isnan(got)))
        return;
    if (++c->failed <= 20)
        printf("  %s: %s: want %a, got %a\n", c->twin->isa, what, want, got);
}

static inline double check_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The shortest time of a call, in nanoseconds. */
static inline double check_time(void (*call)(void *), void *argument)
{
    double best = 1e30;
    for (int i = 0; i < 30; i++) {
        double start = check_seconds();
        call(argument);
        double taken = 1e9 * (check_seconds() - start);
        if (taken < best)
            best = taken;
    }
    return best;
}

/* Every op on every twin. Returns the exit status. */
static inline int check_main(int argc, char **argv, const check_op *ops,
                             size_t count)
{
    const char *names[8];
    size_t isas = bt_kernels_names(names, 8);
    bool bench = argc > 1 && strcmp(argv[1], "--bench") == 0;
    uint64_t seed = test_seed();
    size_t failed = 0;
    if (isas < 2)
        printf("this machine runs the reference only: nothing to compare\n");
    for (size_t isa = 1; isa < isas; isa++)
        for (size_t i = 0; i < count; i++) {
            check c = { .reference = bt_kernels_get("c"),
                        .twin = bt_kernels_get(names[isa]),
                        .random = test_random_from(seed + i),
                        .bench = bench };
            ops[i].compare(&c);
            printf("%-20s %-8s %6zu compared, %zu failed\n", ops[i].name,
                   names[isa], c.compared, c.failed);
            failed += c.failed;
            if (bench && ops[i].bench)
                ops[i].bench(&c);
        }
    return failed != 0;
}

#endif
