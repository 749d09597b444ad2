/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - the one door to the heap, and the arena behind it.
 *
 * Every allocation of the library goes through bt_alloc, so that an embedder's
 * allocator serves them all and a test can make the k-th one fail. */
#ifndef BT_MEMORY_H
#define BT_MEMORY_H

#include <stddef.h>

#define BT_ALIGN 64 /* a cache line, and an AVX-512 vector */

/* `size` bytes, uninitialised, aligned to BT_ALIGN; NULL when there are none.
 * A size of 0 is served, so NULL always means failure. */
void *bt_alloc(size_t size);
/* count x size zero bytes; the product is checked. */
void *bt_alloc_zero(size_t count, size_t size);
void bt_free(void *memory);

/* An arena is one block that is cut from the front and emptied at once. First
 * measure: take everything from an arena whose base is NULL, which only adds
 * up; then bt_arena_reserve() what `used` says, and take it all again. Pieces
 * are aligned to BT_ALIGN. */
typedef struct bt_arena {
    unsigned char *base; /* NULL while measuring */
    size_t capacity;     /* bytes at base */
    size_t used;
} bt_arena;

/* Next `count` x `size` bytes, or NULL when measuring. */
void *bt_arena_take(bt_arena *arena, size_t count, size_t size);
/* Empty the arena and make room for `size` bytes; what it held is gone. It
 * keeps its block when that is large enough. Returns 0, or -1 when there is
 * no memory (the arena is then empty and without a block). */
int bt_arena_reserve(bt_arena *arena, size_t size);
void bt_arena_release(bt_arena *arena);

#endif
