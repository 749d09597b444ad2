/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - the library's allocator, and arenas.
 *
 * Every allocation goes through bt_alloc(), so an embedder's allocator serves
 * all of them and a test can make the k-th one fail. */
#ifndef BT_MEMORY_H
#define BT_MEMORY_H

#include <stddef.h>

#define BT_ALIGN 64 /* a cache line, and an AVX-512 vector */

/* `size` uninitialised bytes aligned to BT_ALIGN; NULL on failure. A size of 0
 * is allowed, so NULL always means failure. */
void *bt_alloc(size_t size);
/* count x size zeroed bytes; the product is checked for overflow. */
void *bt_alloc_zero(size_t count, size_t size);
void bt_free(void *memory);

/* A bump allocator over one block, which is emptied as a whole. It is used in
 * two passes: allocate everything from an arena whose base is NULL, which only
 * measures; bt_arena_reserve() `used` bytes; then allocate again. Pieces are
 * aligned to BT_ALIGN. */
typedef struct bt_arena {
    unsigned char *base; /* NULL while measuring */
    size_t capacity;     /* bytes at base */
    size_t used;
} bt_arena;

/* The next count x size bytes, or NULL while measuring. */
void *bt_arena_alloc(bt_arena *arena, size_t count, size_t size);
/* Empty the arena and make sure that it has `size` bytes. The block is kept if
 * it is large enough. Returns 0, or -1 when there is no memory; the arena then
 * has no block. */
int bt_arena_reserve(bt_arena *arena, size_t size);
void bt_arena_release(bt_arena *arena);

#endif
