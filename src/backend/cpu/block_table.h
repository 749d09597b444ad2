/* SPDX-License-Identifier: Apache-2.0 */
/* block_table.h - the paged KV cache: pages of keys and values, and block
 * tables.
 *
 * A page holds a block of 64 tokens of one layer in the layout of the kernels:
 * for each key head its keys, transposed, then its values in panels of columns.
 *
 *     head 0: kt (head_dim, 64), v (64 * value_pad);  head 1: ...
 *
 * A block table lists the pages of a sequence, with a row per block and a
 * column per layer. Appending never moves a page. A fork copies the table and
 * adds a reference to each page; a shared page is copied before it is written
 * (copy on write). Pages that are no longer visible are freed and leave a NULL
 * entry.
 *
 * Pages come from a pool, which reuses freed pages and may have a limit. The
 * part of a page after its tokens is always hidden, whatever it holds. */
#ifndef BT_BLOCK_TABLE_H
#define BT_BLOCK_TABLE_H

#include "backend/cpu/attention_shape.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/memory.h"
#include "mask/plan.h"

typedef struct bt_kv_page {
    size_t references;
    struct bt_kv_page *next;       /* in the free list */
    const struct bt_kv_page *from; /* pending copy on write; NULL: none */
    _Alignas(BT_ALIGN) float data[];
} bt_kv_page;

/* Floats of one key head in a page: keys and values. */
static inline size_t bt_kv_page_head(const bt_attention_shape *shape)
{
    return (shape->head_dim + shape->value_pad) * BT_BLOCK;
}

static inline size_t bt_kv_page_count(size_t tokens)
{
    return tokens / BT_BLOCK + (tokens % BT_BLOCK != 0);
}

/* ---- The pool ---------------------------------------------------------- */

typedef struct bt_kv_pool {
    bt_attention_shape shape; /* only kv_heads, head_dim and value_dim matter */
    size_t bytes;             /* of a page */
    uint64_t max_bytes;       /* limit of the bytes of pages in use; 0: none */
    size_t used;              /* pages in use */
    size_t allocated;         /* pages allocated, in use or free */
    size_t owners;            /* reference count of the pool */
    bt_kv_page *free_pages;
    struct bt_slab *slabs; /* the memory of all pages */
} bt_kv_pool;

/* The reference count starts at 1. */
bauta_status bt_kv_pool_create(bt_kv_pool **out,
                               const bt_attention_shape *shape, uint64_t bound,
                               bauta_error *err);
bt_kv_pool *bt_kv_pool_retain(bt_kv_pool *pool);
/* Frees the pool with the last reference; no page may be in use then. */
void bt_kv_pool_release(bt_kv_pool *pool);

/* ---- Block tables
 * ------------------------------------------------------------- */

typedef struct bt_block_table {
    bt_kv_pool *pool; /* must outlive the table */
    size_t layers, tokens;
    size_t blocks;      /* rows of the table: those of the tokens, and reserved
                           ones */
    bt_kv_page **pages; /* (blocks, layers) */
    size_t capacity;    /* of pages */
} bt_block_table;

void bt_block_table_init(bt_block_table *table, bt_kv_pool *pool,
                         size_t layers);
/* A second table of the same pages. */
bauta_status bt_block_table_fork(bt_block_table *to, const bt_block_table *from,
                                 bauta_error *err);
void bt_block_table_release(bt_block_table *table);

static inline bt_kv_page *bt_block_table_page(const bt_block_table *table,
                                              size_t layer, size_t block)
{
    return table->pages[block * table->layers + layer];
}

/* Reserve writable pages for `tokens` more tokens in every layer. On failure
 * the table is unchanged. */
bauta_status bt_block_table_reserve(bt_block_table *table, size_t tokens,
                                    bauta_error *err);
/* The same in two parts: first allocate the pages of many tables, one after the
 * other; then, even after a failure and before any page is written or freed, do
 * the pending copies, which may run on several threads, a table each. */
bauta_status bt_block_table_alloc(bt_block_table *table, size_t tokens,
                                  bauta_error *err);
void bt_block_table_commit(bt_block_table *table);
/* The tokens written after the last one are now part of the sequence. */
void bt_block_table_advance(bt_block_table *table, size_t tokens);
/* Keep the first `tokens` tokens and free reserved pages. */
void bt_block_table_truncate(bt_block_table *table, size_t tokens);
/* Free the pages of a layer that end before a token. */
void bt_block_table_free_before(bt_block_table *table, size_t layer,
                                size_t token);

/* Prefetch the cache lines that the next token's key will be written to. */
void bt_block_table_prefetch(const bt_block_table *table, size_t layer,
                             const bt_attention_shape *shape, size_t kv_head);
/* Write keys and values of `rows` tokens of one key head from token `at` on; k
 * and v have the strides of the shape. Heads and tokens may be written by
 * different threads. */
void bt_block_table_write(const bt_block_table *table, size_t layer,
                          const bt_kernels *kernels,
                          const bt_attention_shape *shape, size_t kv_head,
                          size_t at, size_t rows, const float *k,
                          const float *v);

#endif
