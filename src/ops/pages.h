/* SPDX-License-Identifier: Apache-2.0 */
/* pages.h - keys and values in pages, which sequences share.
 *
 * A page is a block of 64 tokens of one layer, laid out as the kernels read it:
 * for each key head its keys, transposed, and then its values in panels of
 * columns.
 *
 *     head 0: kt (head_dim, 64), v (64 * value_pad);  head 1: ...
 *
 * A book is the table of a sequence's pages, a row a block and a column a
 * layer. Appending never moves a page. A fork copies the table and counts one
 * reference more to each page; whoever writes to a page that others have too
 * copies it first. Pages that are no longer seen are given back, and leave an
 * empty place in the table.
 *
 * Pages come from a pool, which keeps those that come back for the next who
 * asks, and may be bounded. What stands in a page behind the tokens is never
 * seen, be it zeros or what the page held before. */
#ifndef BT_PAGES_H
#define BT_PAGES_H

#include "base/memory.h"
#include "kernels/kernels.h"
#include "mask/plan.h"
#include "ops/shape.h"

typedef struct bt_page {
    size_t references;
    struct bt_page *next;       /* of the idle ones */
    const struct bt_page *from; /* whose tokens are still to be copied here */
    _Alignas(BT_ALIGN) float data[];
} bt_page;

/* Floats of one key head in a page: its keys and its values. */
static inline size_t bt_page_head(const bt_shape *shape)
{
    return (shape->head_dim + shape->value_pad) * BT_BLOCK;
}

static inline size_t bt_page_count(size_t tokens)
{
    return tokens / BT_BLOCK + (tokens % BT_BLOCK != 0);
}

/* ---- the pool ---------------------------------------------------------- */

typedef struct bt_pool {
    bt_shape shape; /* of which kv_heads, head_dim and value_dim count */
    size_t bytes;   /* of a page */
    uint64_t bound; /* bytes of the pages that are taken; 0: none */
    size_t taken;   /* pages */
    size_t made;    /* pages, taken or idle */
    size_t owners;  /* of the pool */
    bt_page *idle;
    struct bt_slab *slabs; /* the memory of all pages */
} bt_pool;

/* One owner has it then. */
bauta_status bt_pool_create(bt_pool **out, const bt_shape *shape,
                            uint64_t bound, bauta_error *err);
bt_pool *bt_pool_share(bt_pool *pool);
/* The last owner frees the pool; no page is taken then. */
void bt_pool_drop(bt_pool *pool);

/* ---- books ------------------------------------------------------------- */

typedef struct bt_book {
    bt_pool *pool; /* which outlives the book */
    size_t layers, tokens;
    size_t blocks;   /* rows of the table: those of the tokens, and more while
                        room is reserved */
    bt_page **pages; /* (blocks, layers) */
    size_t room;     /* entries that there is memory for */
} bt_book;

void bt_book_init(bt_book *book, bt_pool *pool, size_t layers);
/* Another book of the same pages. */
bauta_status bt_book_fork(bt_book *to, const bt_book *from, bauta_error *err);
void bt_book_release(bt_book *book);

static inline bt_page *bt_book_page(const bt_book *book, size_t layer,
                                    size_t block)
{
    return book->pages[block * book->layers + layer];
}

/* Pages of its own for `tokens` more in every layer, which can then be written.
 * On failure the book is as it was. */
bauta_status bt_book_reserve(bt_book *book, size_t tokens, bauta_error *err);
/* The same in two halves: many books take their pages one after the other, and
 * then, whatever came of that and before anything is written or given back,
 * threads may copy what must be copied, each some of the books. */
bauta_status bt_book_take(bt_book *book, size_t tokens, bauta_error *err);
void bt_book_settle(bt_book *book);
/* What was written behind the tokens belongs to them now. */
void bt_book_advance(bt_book *book, size_t tokens);
/* Keep the first `tokens` tokens, and no room behind them. */
void bt_book_truncate(bt_book *book, size_t tokens);
/* Give back the pages of a layer that lie wholly before a token. */
void bt_book_forget(bt_book *book, size_t layer, size_t token);

/* Ask for the cache lines that the next token's key will be written to. */
void bt_book_ask(const bt_book *book, size_t layer, const bt_shape *shape,
                 size_t kv_head);
/* Keys and values of `rows` tokens of one key head, to where `at` tokens lie
 * before them; read through the strides of the shape. Heads and tokens may be
 * written by different threads. */
void bt_book_write(const bt_book *book, size_t layer, const bt_kernels *kernels,
                   const bt_shape *shape, size_t kv_head, size_t at,
                   size_t rows, const float *k, const float *v);

#endif
