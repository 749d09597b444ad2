/* SPDX-License-Identifier: Apache-2.0 */
/* malloc_faults.h - a malloc() that fails on demand, for the libraries below
 * ours.
 *
 * A test program that includes this defines malloc() and its relatives, which
 * jansson, cairo, fontconfig and PCRE2 then use as well. It needs glibc, whose
 * own functions do the work; with a sanitizer there is nothing to define, and
 * malloc_faults_supported is false.
 *
 *     malloc_faults_arm(k, false);      // allocation k from here fails, once
 *     status = the_call();
 *     if (!malloc_faults_disarm())      // it made fewer
 *         break; */
#ifndef BT_TEST_MALLOC_FAULTS_H
#define BT_TEST_MALLOC_FAULTS_H

#include "testing.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static struct {
    atomic_size_t left; /* allocations up to the one that fails; 0: none */
    atomic_bool dry;    /* all that come after it fail, too */
    atomic_bool failed;
} malloc_faults;

static inline void malloc_faults_arm(size_t k, bool dry)
{
    atomic_store(&malloc_faults.failed, false);
    atomic_store(&malloc_faults.dry, dry);
    atomic_store(&malloc_faults.left, k + 1);
}

/* No more failures; returns whether there was one. */
static inline bool malloc_faults_disarm(void)
{
    atomic_store(&malloc_faults.left, 0);
    return atomic_load(&malloc_faults.failed);
}

#if defined(__GLIBC__) && !defined(BT_SANITIZED)

enum { malloc_faults_supported = true };

static inline bool malloc_fails_now(void)
{
    size_t left =
        atomic_load_explicit(&malloc_faults.left, memory_order_relaxed);
    if (left == 0)
        return false;
    if (left > 1) {
        atomic_store_explicit(&malloc_faults.left, left - 1,
                              memory_order_relaxed);
        return false;
    }
    bool now =
        !atomic_load(&malloc_faults.failed) || atomic_load(&malloc_faults.dry);
    atomic_store(&malloc_faults.failed, true);
    if (now)
        errno = ENOMEM;
    return now;
}

/* Seen by the shared libraries, although the tests hide their names. */
#define STARVE_SEEN __attribute__((visibility("default")))

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);

STARVE_SEEN void *malloc(size_t size)
{
    return malloc_fails_now() ? NULL : __libc_malloc(size);
}

STARVE_SEEN void *calloc(size_t count, size_t size)
{
    return malloc_fails_now() ? NULL : __libc_calloc(count, size);
}

STARVE_SEEN void *realloc(void *memory, size_t size)
{
    return malloc_fails_now() ? NULL : __libc_realloc(memory, size);
}

STARVE_SEEN void *aligned_alloc(size_t align, size_t size)
{
    return malloc_fails_now() ? NULL : __libc_memalign(align, size);
}

STARVE_SEEN int posix_memalign(void **out, size_t align, size_t size)
{
    void *memory = malloc_fails_now() ? NULL : __libc_memalign(align, size);
    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}

#else
enum { malloc_faults_supported = false };
#endif

#endif
