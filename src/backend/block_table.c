/* SPDX-License-Identifier: Apache-2.0 */
/* block_table.c - allocates, shares, copies and frees pages; see block_table.h.
 */
#include "backend/block_table.h"

#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

enum { SLAB_BYTES = 8 << 20 };

/* Pages allocated in one block. */
typedef struct bt_slab {
    struct bt_slab *next;
    bt_buffer buffer;
    bt_kv_page pages[];
} bt_slab;

size_t bt_kv_page_count(size_t tokens)
{
    return tokens / BT_BLOCK + (tokens % BT_BLOCK != 0);
}

/* ---- The pool ---------------------------------------------------------- */

bauta_status bt_kv_pool_create(bt_kv_pool **out, const bt_backend *backend,
                               const bt_attention_shape *shape,
                               bauta_dtype dtype, uint64_t bound,
                               bauta_error *err)
{
    *out = bt_alloc_zero(1, sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "a pool of pages", sizeof(**out));
    (*out)->backend = backend;
    (*out)->shape = *shape;
    (*out)->dtype = dtype;
    (*out)->bytes = backend->kv_page_bytes(shape, dtype);
    (*out)->max_bytes = bound;
    (*out)->owners = 1;
    return BAUTA_OK;
}

bt_kv_pool *bt_kv_pool_retain(bt_kv_pool *pool)
{
    pool->owners++;
    return pool;
}

void bt_kv_pool_release(bt_kv_pool *pool)
{
    if (!pool || --pool->owners)
        return;
    while (pool->slabs) {
        bt_slab *next = pool->slabs->next;
        pool->backend->free(&pool->slabs->buffer);
        bt_free(pool->slabs);
        pool->slabs = next;
    }
    bt_free(pool);
}

/* How many pages to allocate next: as many as there are, so that a small pool
 * stays small and a large one uses huge pages of memory. */
static size_t slab_pages(const bt_kv_pool *pool)
{
    size_t count = bt_size_min(bt_size_max(pool->allocated, 1),
                               bt_size_max(SLAB_BYTES / pool->bytes, 1));
    if (pool->max_bytes) // not reached yet
        count = (size_t)bt_size_min(count, pool->max_bytes / pool->bytes -
                                               pool->allocated);
    return count;
}

/* Memory of zeros, because kernels load whole blocks and then mask the missing
 * tokens. */
static bauta_status slab_alloc(bt_slab *slab, const bt_kv_pool *pool,
                               size_t count, bt_stream *stream,
                               bauta_error *err)
{
    size_t bytes = count * pool->bytes;
    bauta_status status =
        pool->backend->alloc(stream, &slab->buffer, bytes, err);
    if (status)
        return status;
    status = pool->backend->fill(stream, &slab->buffer, 0, 0, bytes, err);
    if (status)
        pool->backend->free(&slab->buffer);
    return status;
}

/* Add free pages. */
static bauta_status slab_add(bt_kv_pool *pool, bt_stream *stream,
                             bauta_error *err)
{
    size_t count = slab_pages(pool);
    size_t bytes = sizeof(bt_slab) + count * sizeof(bt_kv_page);
    bt_slab *slab = bt_alloc_zero(1, bytes);
    if (!slab || slab_alloc(slab, pool, count, stream, NULL)) {
        bt_free(slab);
        return bt_fail_memory(err, "pages of keys and values",
                              bytes + count * pool->bytes);
    }
    slab->next = pool->slabs;
    pool->slabs = slab;
    pool->allocated += count;
    uintptr_t address = (uintptr_t)slab->buffer.memory;
    if (!pool->lowest || address < pool->lowest)
        pool->lowest = address;
    for (size_t i = count; i-- > 0;) {
        bt_kv_page *page = &slab->pages[i];
        page->buffer = &slab->buffer;
        page->offset = i * pool->bytes;
        page->next = pool->free_pages;
        pool->free_pages = page;
    }
    return BAUTA_OK;
}

/* NULL and an error if there is no memory or the limit is reached. */
static bt_kv_page *page_alloc(bt_kv_pool *pool, bt_stream *stream,
                              bauta_error *err)
{
    uint64_t bytes = (uint64_t)pool->bytes;
    if (pool->max_bytes && pool->used >= pool->max_bytes / bytes) {
        bt_fail(err, BAUTA_ERR_NOMEM,
                "%zu pages of %zu bytes are taken, and keys and values may "
                "have %llu bytes",
                pool->used, pool->bytes, (unsigned long long)pool->max_bytes);
        return NULL;
    }
    if (!pool->free_pages && slab_add(pool, stream, err))
        return NULL;
    bt_kv_page *page = pool->free_pages;
    pool->free_pages = page->next;
    page->references = 1;
    page->from = NULL;
    pool->used++;
    return page;
}

static void page_release(bt_kv_pool *pool, bt_kv_page *page)
{
    if (!page || --page->references)
        return;
    page->next = pool->free_pages;
    pool->free_pages = page;
    pool->used--;
}

/* ---- Block tables ------------------------------------------------------ */

void bt_block_table_init(bt_block_table *table, bt_kv_pool *pool, size_t layers)
{
    *table = (bt_block_table){ .pool = pool, .layers = layers };
}

bt_kv_page *bt_block_table_page(const bt_block_table *table, size_t layer,
                                size_t block)
{
    return table->pages[block * table->layers + layer];
}

bauta_status bt_block_table_fork(bt_block_table *to, const bt_block_table *from,
                                 bauta_error *err)
{
    size_t blocks = bt_kv_page_count(from->tokens);
    size_t entries = blocks * from->layers;
    bt_block_table_init(to, from->pool, from->layers);
    if (BT_ARRAY_RESERVE(to->pages, to->capacity, 0, entries))
        return bt_fail_memory(err, "a table of pages",
                              bt_size_mul(entries, sizeof(*to->pages)));
    to->tokens = from->tokens;
    to->blocks = blocks;
    for (size_t i = 0; i < entries; i++) {
        to->pages[i] = from->pages[i];
        if (to->pages[i])
            to->pages[i]->references++;
    }
    return BAUTA_OK;
}

void bt_block_table_truncate(bt_block_table *table, size_t tokens)
{
    size_t blocks = bt_kv_page_count(tokens);
    for (size_t i = blocks * table->layers; i < table->blocks * table->layers;
         i++)
        page_release(table->pool, table->pages[i]);
    table->tokens = tokens;
    table->blocks = blocks;
}

void bt_block_table_release(bt_block_table *table)
{
    bt_block_table_truncate(table, 0);
    bt_free(table->pages);
    table->pages = NULL;
    table->capacity = 0;
}

/* Make an entry a page of this table alone, replacing NULL or a shared page.
 * The copy of a shared one is left to bt_block_tables_commit(). */
static bauta_status page_make_unique(bt_block_table *table, bt_kv_page **at,
                                     bt_stream *stream, bauta_error *err)
{
    bt_kv_page *old = *at;
    if (old && old->references == 1)
        return BAUTA_OK;
    bt_kv_page *page = page_alloc(table->pool, stream, err);
    if (!page)
        return BAUTA_ERR_NOMEM;
    if (old) { // others hold it, so it stays valid
        page->from = old;
        page_release(table->pool, old);
    }
    *at = page;
    return BAUTA_OK;
}

static bauta_status blocks_add(bt_block_table *table, size_t blocks,
                               bauta_error *err)
{
    size_t have = table->blocks * table->layers, want = blocks * table->layers;
    if (want <= have)
        return BAUTA_OK;
    if (BT_ARRAY_RESERVE(table->pages, table->capacity, have, want - have))
        return bt_fail_memory(err, "a table of pages",
                              bt_size_mul(want, sizeof(*table->pages)));
    memset(table->pages + have, 0, (want - have) * sizeof(*table->pages));
    table->blocks = blocks;
    return BAUTA_OK;
}

/* Copies that are collected until there are enough for a call. */
typedef struct copy_list {
    const bt_kv_pool *pool;
    bt_stream *stream;
    size_t count;
    bt_kv_copy_item items[64];
} copy_list;

static bauta_status copies_run(copy_list *l, bauta_error *err)
{
    bt_kv_copy_args args = { l->pool, l->count, l->items };
    l->count = 0;
    return args.count ? l->pool->backend->kv_copy(l->stream, &args, err)
                      : BAUTA_OK;
}

static bauta_status copies_add(copy_list *l, const bt_block_table *table,
                               bauta_error *err)
{
    size_t first = table->tokens / BT_BLOCK;
    bauta_status status = BAUTA_OK;
    for (size_t i = first * table->layers;
         i < table->blocks * table->layers && !status; i++) {
        bt_kv_page *page = table->pages[i];
        if (!page || !page->from)
            continue;
        l->items[l->count++] =
            (bt_kv_copy_item){ page->from, page, table->tokens % BT_BLOCK };
        page->from = NULL;
        if (l->count == BT_LEN(l->items))
            status = copies_run(l, err);
    }
    return status;
}

bauta_status bt_block_tables_commit(bt_block_table *const *tables, size_t count,
                                    bt_stream *stream, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (count == 0)
        return BAUTA_OK;
    copy_list l = { .pool = tables[0]->pool, .stream = stream };
    for (size_t i = 0; i < count && !status; i++)
        status = copies_add(&l, tables[i], err);
    return status ? status : copies_run(&l, err);
}

bauta_status bt_block_table_reserve(bt_block_table *table, bt_stream *stream,
                                    size_t tokens, bauta_error *err)
{
    bauta_status status = bt_block_table_alloc(table, stream, tokens, err);
    bauta_status copied =
        bt_block_tables_commit(&table, 1, stream, status ? NULL : err);
    return status ? status : copied;
}

bauta_status bt_block_table_alloc(bt_block_table *table, bt_stream *stream,
                                  size_t tokens, bauta_error *err)
{
    size_t first = table->tokens / BT_BLOCK;
    size_t end = bt_kv_page_count(table->tokens + tokens);
    bauta_status status = blocks_add(table, end, err);
    for (size_t i = first * table->layers; !status && i < end * table->layers;
         i++)
        status = page_make_unique(table, &table->pages[i], stream, err);
    if (status)
        bt_block_table_truncate(table, table->tokens);
    return status;
}

void bt_block_table_advance(bt_block_table *table, size_t tokens)
{
    table->tokens += tokens;
}

/* Pages before a NULL entry have been freed already, so a step frees only the
 * last few. */
void bt_block_table_free_before(bt_block_table *table, size_t layer,
                                size_t token)
{
    for (size_t block = token / BT_BLOCK; block-- > 0;) {
        bt_kv_page **at = &table->pages[block * table->layers + layer];
        if (!*at)
            break;
        page_release(table->pool, *at);
        *at = NULL;
    }
}
