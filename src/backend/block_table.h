/* SPDX-License-Identifier: Apache-2.0 */
/* block_table.h - the paged KV cache: pages of keys and values, and block
 * tables.
 *
 * A page holds a block of 64 tokens of one layer, in the layout of its backend.
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

#include "backend/backend.h"
#include "mask/plan.h"

typedef struct bt_kv_page {
    size_t references;
    struct bt_kv_page *next;       /* in the free list */
    const struct bt_kv_page *from; /* pending copy on write; NULL: none */
    const bt_buffer *buffer;
    size_t offset; /* in bytes, in the buffer */
} bt_kv_page;

size_t bt_kv_page_count(size_t tokens);

/* ---- The pool ---------------------------------------------------------- */

typedef struct bt_kv_pool {
    const bt_backend *backend;
    bt_attention_shape shape; /* only kv_heads, head_dim and value_dim matter */
    bauta_dtype dtype;
    size_t bytes;       /* of a page */
    uint64_t max_bytes; /* limit of the bytes of pages in use; 0: none */
    size_t used;        /* pages in use */
    size_t allocated;   /* pages allocated, in use or free */
    size_t owners;      /* reference count of the pool */
    bt_kv_page *free_pages;
    struct bt_slab *slabs; /* the memory of all pages, */
    uintptr_t lowest;      /* and the lowest address of it; 0: there is none */
} bt_kv_pool;

/* The reference count starts at 1. */
bauta_status bt_kv_pool_create(bt_kv_pool **out, const bt_backend *backend,
                               const bt_attention_shape *shape,
                               bauta_dtype dtype, uint64_t bound,
                               bauta_error *err);
bt_kv_pool *bt_kv_pool_retain(bt_kv_pool *pool);
/* Frees the pool with the last reference; no page may be in use then. */
void bt_kv_pool_release(bt_kv_pool *pool);

/* ---- Block tables ------------------------------------------------------ */

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

bt_kv_page *bt_block_table_page(const bt_block_table *table, size_t layer,
                                size_t block);

/* Reserve writable pages for `tokens` more tokens in every layer, in two parts:
 * first allocate the pages of many tables, one after the other. Then, even
 * after a failure and before any page is written or freed, do the pending
 * copies of all of them. On failure of the first part the table is
 * unchanged. */
bauta_status bt_block_table_alloc(bt_block_table *table, bt_stream *stream,
                                  size_t tokens, bauta_error *err);
bauta_status bt_block_tables_commit(bt_block_table *const *tables, size_t count,
                                    bt_stream *stream, bauta_error *err);
/* Both parts for one table. */
bauta_status bt_block_table_reserve(bt_block_table *table, bt_stream *stream,
                                    size_t tokens, bauta_error *err);
/* The tokens written after the last one are now part of the sequence. */
void bt_block_table_advance(bt_block_table *table, size_t tokens);
/* Keep the first `tokens` tokens and free reserved pages. */
void bt_block_table_truncate(bt_block_table *table, size_t tokens);
/* Free the pages of a layer that end before a token. */
void bt_block_table_free_before(bt_block_table *table, size_t layer,
                                size_t token);

/* ---- Batches ----------------------------------------------------------- */

/* Rows `row` to `row + rows - 1` of a step, which follow the tokens of a block
 * table; pages are reserved for them. rows may be 0. */
typedef struct bt_kv_sequence {
    bt_block_table *table;
    size_t row, rows;
} bt_kv_sequence;

/* The sequences of a step: its rows are their new tokens, concatenated. */
typedef struct bt_kv_batch {
    size_t count;
    const bt_kv_sequence *sequences;
} bt_kv_batch;

#endif
