/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - see pool.h. */
#include "text/chat/pool.h"

#include "base/memory.h"
#include "base/size.h"

enum { FIRST_BLOCK = 4 << 10, LARGEST_BLOCK = 256 << 10, ALIGNMENT = 16 };

typedef struct bt_chat_pool_block {
    struct bt_chat_pool_block *next;
    _Alignas(ALIGNMENT) unsigned char bytes[];
} bt_chat_pool_block;

/* A new block of `size` bytes, at the head of the list. */
static bt_chat_pool_block *block_add(bt_chat_pool *pool, size_t size)
{
    size_t all = bt_size_add(size, sizeof(bt_chat_pool_block));
    pool->full = all > pool->limit - pool->used;
    bt_chat_pool_block *block = pool->full ? NULL : bt_alloc(all);
    if (!block)
        return NULL;
    block->next = pool->blocks;
    pool->blocks = block;
    pool->used += all;
    return block;
}

void *bt_chat_pool_alloc(bt_chat_pool *pool, size_t size)
{
    size = bt_size_round(size, ALIGNMENT);
    if (size > pool->left) {
        // Blocks grow with the pool, so a small rendering takes little.
        size_t usual =
            bt_size_min(bt_size_max(pool->used, FIRST_BLOCK), LARGEST_BLOCK);
        bool alone = size > usual / 4;
        bt_chat_pool_block *block = block_add(pool, alone ? size : usual);
        if (!block)
            return NULL;
        if (alone)
            return block->bytes;
        pool->at = block->bytes;
        pool->left = usual;
    }
    void *piece = pool->at;
    pool->at += size;
    pool->left -= size;
    return piece;
}

void bt_chat_pool_release(bt_chat_pool *pool)
{
    while (pool->blocks) {
        bt_chat_pool_block *next = pool->blocks->next;
        bt_free(pool->blocks);
        pool->blocks = next;
    }
    *pool = (bt_chat_pool){ .limit = pool->limit };
}
