/* SPDX-License-Identifier: Apache-2.0 */
/* testing.h - included by every test file: cmocka, and random numbers from a
 * printed seed that can be set. */
#ifndef BT_TEST_TESTING_H
#define BT_TEST_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/philox.h"

#include <stdio.h>
#include <stdlib.h>

/* Defined with the address and the thread sanitizer, which bring their own
 * allocator and reserve the address space. gcc and clang name them
 * differently. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BT_SANITIZED 1
#endif
#endif

/* The distance of the allocations that fail in turn and of the models that are
 * trained by one thread, in tests that take long: the thread sanitizer looks
 * for races, and the other builds have them all. */
enum {
#if defined(__SANITIZE_THREAD__)
    TEST_STRIDE = 8
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    TEST_STRIDE = 8
#else
    TEST_STRIDE = 1
#endif
#else
    TEST_STRIDE = 1
#endif
};

/* A stream of random numbers: Philox under the seed, counted upwards. */
typedef struct test_random {
    uint32_t key[2], counter[4], words[4];
    unsigned left; /* words not yet handed out */
} test_random;

static inline test_random test_random_from(uint64_t seed)
{
    test_random r = { .key = { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    return r;
}

/* The seed of a test program: BAUTA_SEED, or a fixed default. It is printed, so
 * that a failure can be reproduced and a soak can vary it. */
static inline uint64_t test_seed(void)
{
    const char *text = getenv("BAUTA_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20261115;
    printf("seed %llu (BAUTA_SEED sets another)\n", (unsigned long long)seed);
    return seed;
}

static inline uint32_t test_u32(test_random *r)
{
    if (r->left == 0) {
        bt_philox(r->words, r->counter, r->key);
        if (++r->counter[0] == 0)
            r->counter[1]++;
        r->left = 4;
    }
    return r->words[--r->left];
}

/* From 0 to below - 1. */
static inline size_t test_below(test_random *r, size_t below)
{
    return (size_t)(((uint64_t)test_u32(r) * below) >> 32);
}

/* Uniform in [-1, 1). */
static inline float test_float(test_random *r)
{
    return (float)((int32_t)test_u32(r) >> 8) * 0x1p-23f;
}

#endif
