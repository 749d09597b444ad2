/* SPDX-License-Identifier: Apache-2.0 */
/* guard_page.h - floats that end at an unreadable page, and their bits
 * compared.
 *
 * A kernel that reads or writes one float too far crashes at once, without a
 * sanitizer and also where sanitizers do not check (masked vector loads). */
#ifndef BT_TEST_GUARD_PAGE_H
#define BT_TEST_GUARD_PAGE_H

#include "testing.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct guarded {
    float *data; /* `count` floats; the page after the last is unreadable */
    size_t count;
    void *pages;
    size_t bytes;
} guarded;

static inline guarded guarded_create(size_t count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t used = (count * sizeof(float) + page - 1) / page * page;
    guarded g = { .count = count, .bytes = used + page };
    g.pages = mmap(NULL, g.bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.pages != MAP_FAILED);
    char *end = (char *)g.pages + used;
    assert_int_equal(mprotect(end, page, PROT_NONE), 0);
    g.data = (float *)(void *)end - count;
    return g;
}

static inline void guarded_free(guarded *g)
{
    munmap(g->pages, g->bytes);
    *g = (guarded){ NULL, 0, NULL, 0 };
}

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* The same bits, or NaN both: which NaN an operation returns is not fixed. */
static inline int float_same(float x, float y)
{
    return float_bits(x) == float_bits(y) || (isnan(x) && isnan(y));
}

/* Where two arrays first differ; `count` when they do not. */
static inline size_t floats_differ(const float *x, const float *y, size_t count)
{
    size_t i = 0;
    while (i < count && float_same(x[i], y[i]))
        i++;
    return i;
}

static inline void floats_fill(test_random *r, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = test_float(r);
}

/* Put something odd in some places: NaN, infinities, zeros of both signs, the
 * smallest number, one whose square overflows. */
static inline void floats_insert_special(test_random *r, float *x, size_t count,
                                         size_t places)
{
    static const float odd[] = { NAN,   INFINITY,  -INFINITY, 0.0f,
                                 -0.0f, 0x1p-149f, 0x1p100f };
    for (size_t i = 0; i < places && count; i++)
        x[test_below(r, count)] =
            odd[test_below(r, sizeof(odd) / sizeof(odd[0]))];
}

#endif
