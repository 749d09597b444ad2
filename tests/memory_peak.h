/* SPDX-License-Identifier: Apache-2.0 */
/* memory_peak.h - the peak memory of the library and of jansson.
 *
 *     peak_begin();              // no object of bauta or jansson exists
 *     the_call();
 *     size_t bytes = peak_end(); // the peak in between
 *
 * Each block counts with its requested size and a header of 16 bytes, which is
 * what malloc() adds. Single-threaded. */
#ifndef BT_TEST_MEMORY_PEAK_H
#define BT_TEST_MEMORY_PEAK_H

#include "bauta.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct {
    size_t now, most;
} peak;

enum { PEAK_HEADER = 64, PEAK_COUNTED = 16 };

static inline void *peak_take(size_t align, size_t size)
{
    size_t all = (PEAK_HEADER + size + align - 1) / align * align;
    char *block = aligned_alloc(align, all);
    if (!block)
        return NULL;
    memcpy(block, &size, sizeof(size));
    peak.now += size + PEAK_COUNTED;
    if (peak.now > peak.most)
        peak.most = peak.now;
    return block + PEAK_HEADER;
}

static inline void peak_give(void *memory)
{
    size_t size;
    if (!memory)
        return;
    char *block = (char *)memory - PEAK_HEADER;
    memcpy(&size, block, sizeof(size));
    peak.now -= size + PEAK_COUNTED;
    free(block);
}

static inline void *peak_alloc(void *user, size_t align, size_t size)
{
    (void)user;
    return peak_take(align, size);
}

static inline void peak_free(void *user, void *memory)
{
    (void)user;
    peak_give(memory);
}

static inline void *peak_json_alloc(size_t size)
{
    return peak_take(64, size);
}

static inline void peak_begin(void)
{
    static const bauta_allocator counting = { peak_alloc, peak_free, NULL };
    peak.now = peak.most = 0;
    bauta_allocator_set(&counting);
    json_set_alloc_funcs(peak_json_alloc, peak_give);
}

static inline size_t peak_end(void)
{
    bauta_allocator_set(NULL);
    json_set_alloc_funcs(malloc, free);
    return peak.most;
}

#endif
