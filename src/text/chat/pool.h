/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - a bounded pool of memory that is released as a whole.
 *
 * The syntax tree of a chat template and the values of one rendering are small
 * pieces that all end at the same time. */
#ifndef BT_CHAT_POOL_H
#define BT_CHAT_POOL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bt_chat_pool {
    struct bt_chat_pool_block *blocks; /* the newest first */
    unsigned char *at;                 /* free bytes of the newest block */
    size_t left;
    size_t used, limit; /* bytes of all blocks, and the most they may be */
    bool full;          /* the last failure was the limit's */
} bt_chat_pool;

/* `size` uninitialised bytes, aligned for any type. NULL beyond the limit or
 * when memory runs out; `full` tells which. */
void *bt_chat_pool_alloc(bt_chat_pool *pool, size_t size);
void bt_chat_pool_release(bt_chat_pool *pool);

#endif
