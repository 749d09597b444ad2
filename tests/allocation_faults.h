/* SPDX-License-Identifier: Apache-2.0 */
/* allocation_faults.h - an allocator that counts live blocks and fails on
 * demand.
 *
 *     faults_begin();                 // no bauta object exists
 *     make_what_the_call_needs();
 *     for (size_t k = 0;; k++) {
 *         size_t live = faults_live();
 *         faults_arm(k);              // allocation k from here fails, once
 *         status = the_call(&out);
 *         if (!faults_disarm())       // it made fewer: this one succeeded
 *             break;
 *         assert_int_equal(status, BAUTA_ERR_NOMEM);
 *         assert_int_equal(faults_live(), live);
 *     }
 *     release_everything();
 *     assert_int_equal(faults_end(), 0);
 *
 * The counters are atomic, so the library may allocate in many threads; call
 * the functions here from one thread, while no library call runs. */
#ifndef BT_TEST_ALLOCATION_FAULTS_H
#define BT_TEST_ALLOCATION_FAULTS_H

#include "bauta.h"

#include <stdatomic.h>
#include <stdlib.h>

static struct {
    atomic_size_t live;    /* blocks handed out and not yet freed */
    atomic_size_t to_fail; /* allocations up to and with the one that fails */
    atomic_bool failed;
} faults;

static inline void *faults_alloc(void *user, size_t align, size_t size)
{
    (void)user;
    // Counting down to 0 happens once; from there it wraps to a number that
    // no test reaches.
    if (atomic_fetch_sub(&faults.to_fail, 1) == 1) {
        atomic_store(&faults.failed, true);
        return NULL;
    }
    void *memory = aligned_alloc(align, (size + align - 1) / align * align);
    if (memory)
        atomic_fetch_add(&faults.live, 1);
    return memory;
}

static inline void faults_free(void *user, void *memory)
{
    (void)user;
    atomic_fetch_sub(&faults.live, 1);
    free(memory);
}

/* Allocation k from now on fails, 0 being the next; later ones succeed
 * again. */
static inline void faults_arm(size_t k)
{
    atomic_store(&faults.failed, false);
    atomic_store(&faults.to_fail, k + 1);
}

/* No more failures; returns whether the one that was armed has happened. */
static inline bool faults_disarm(void)
{
    atomic_store(&faults.to_fail, 0);
    return atomic_load(&faults.failed);
}

static inline size_t faults_live(void)
{
    return atomic_load(&faults.live);
}

/* Install the allocator, not armed. */
static inline void faults_begin(void)
{
    static const bauta_allocator allocator = { faults_alloc, faults_free,
                                               NULL };
    atomic_store(&faults.live, 0);
    faults_disarm();
    bauta_allocator_set(&allocator);
}

/* Restore the C library's allocator; returns how many blocks still live. */
static inline size_t faults_end(void)
{
    bauta_allocator_set(NULL);
    return faults_live();
}

#endif
