/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - a replaceable allocator, and arenas. */
#include "base/memory.h"

#include "base/size.h"
#include "bauta.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Large blocks request huge pages: workspaces are read with strides that would
 * otherwise miss the TLB on every row. */
enum { HUGE_PAGE = 2 << 20 };

static void *libc_alloc(void *user, size_t align, size_t size)
{
    (void)user;
    bool huge = size >= 2 * (size_t)HUGE_PAGE;
    if (huge)
        align = HUGE_PAGE;
    size_t rounded = bt_size_round(size, align); // aligned_alloc requires it
    void *memory = rounded == SIZE_MAX ? NULL : aligned_alloc(align, rounded);
#if defined(MADV_HUGEPAGE)
    if (memory && huge)
        (void)madvise(memory, rounded, MADV_HUGEPAGE); // only a hint
#endif
    return memory;
}

static void libc_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static const bauta_allocator libc_allocator = { libc_alloc, libc_free, NULL };
static bauta_allocator current = { libc_alloc, libc_free, NULL };

void bauta_allocator_set(const bauta_allocator *allocator)
{
    current = allocator ? *allocator : libc_allocator;
}

void *bt_alloc(size_t size)
{
    if (size > PTRDIFF_MAX)
        return NULL;
    return current.alloc(current.user, BT_ALIGN, size ? size : 1);
}

void *bt_alloc_zero(size_t count, size_t size)
{
    size_t bytes = bt_size_mul(count, size);
    void *memory = bt_alloc(bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void bt_free(void *memory)
{
    if (memory)
        current.free(current.user, memory);
}

void *bt_arena_alloc(bt_arena *arena, size_t count, size_t size)
{
    size_t at = arena->used;
    size_t bytes = bt_size_round(bt_size_mul(count, size), BT_ALIGN);
    arena->used = bt_size_add(at, bytes);
    if (!arena->base)
        return NULL;
    assert(arena->used <= arena->capacity);
    return arena->base + at;
}

int bt_arena_reserve(bt_arena *arena, size_t size)
{
    arena->used = 0;
    if (arena->base && size <= arena->capacity)
        return 0;
    bt_arena_release(arena);
    arena->base = bt_alloc(size);
    if (!arena->base)
        return -1;
    arena->capacity = size;
    return 0;
}

void bt_arena_release(bt_arena *arena)
{
    bt_free(arena->base);
    *arena = (bt_arena){ NULL, 0, 0 };
}
