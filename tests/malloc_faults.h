/* SPDX-License-Identifier: Apache-2.0 */
/* malloc_faults.h - a malloc() that fails on demand, for the libraries below
 * ours.
 *
 * A test program that includes this defines malloc() and its relatives, which
 * jansson, cairo, fontconfig and PCRE2 then use as well. It needs glibc, whose
 * own functions do the work; with a sanitizer there is nothing to define, and
 * starve_works is false.
 *
 *     starve_arm(k, false);      // allocation k from here fails, once
 *     status = the_call();
 *     if (!starve_disarm())      // it made fewer
 *         break; */
#ifndef BT_STARVE_H
#define BT_STARVE_H

#include "testing.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static struct {
    atomic_size_t left; /* allocations up to the one that fails; 0: none */
    atomic_bool dry;    /* all that come after it fail, too */
    atomic_bool failed;
} starve;

static inline void starve_arm(size_t k, bool dry)
{
    atomic_store(&starve.failed, false);
    atomic_store(&starve.dry, dry);
    atomic_store(&starve.left, k + 1);
}

/* No more failures; returns whether there was one. */
static inline bool starve_disarm(void)
{
    atomic_store(&starve.left, 0);
    return atomic_load(&starve.failed);
}

#if defined(__GLIBC__) && !defined(BT_SANITIZED)

enum { starve_works = true };

static inline bool starve_now(void)
{
    size_t left = atomic_load_explicit(&starve.left, memory_order_relaxed);
    if (left == 0)
        return false;
    if (left > 1) {
        atomic_store_explicit(&starve.left, left - 1, memory_order_relaxed);
        return false;
    }
    bool now = !atomic_load(&starve.failed) || atomic_load(&starve.dry);
    atomic_store(&starve.failed, true);
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
    return starve_now() ? NULL : __libc_malloc(size);
}

STARVE_SEEN void *calloc(size_t count, size_t size)
{
    return starve_now() ? NULL : __libc_calloc(count, size);
}

STARVE_SEEN void *realloc(void *memory, size_t size)
{
    return starve_now() ? NULL : __libc_realloc(memory, size);
}

STARVE_SEEN void *aligned_alloc(size_t align, size_t size)
{
    return starve_now() ? NULL : __libc_memalign(align, size);
}

STARVE_SEEN int posix_memalign(void **out, size_t align, size_t size)
{
    void *memory = starve_now() ? NULL : __libc_memalign(align, size);
    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}

#else
enum { starve_works = false };
#endif

#endif
