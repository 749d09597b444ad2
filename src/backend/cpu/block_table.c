/* SPDX-License-Identifier: Apache-2.0 */
/* block_table.c - allocates, shares, copies and frees pages; see block_table.h.
 */
#include "backend/cpu/block_table.h"

#include "backend/cpu/attention.h"
#include "base/array.h"
#include "base/error.h"
#include "base/size.h"

#include <string.h>

enum { SLAB_BYTES = 8 << 20 };

/* Pages allocated in one block. */
typedef struct bt_slab {
    struct bt_slab *next;
    _Alignas(BT_ALIGN) unsigned char memory[];
} bt_slab;

/* ---- The pool ---------------------------------------------------------- */

bauta_status bt_kv_pool_create(bt_kv_pool **out,
                               const bt_attention_shape *shape, uint64_t bound,
                               bauta_error *err)
{
    *out = bt_alloc_zero(1, sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "a pool of pages", sizeof(**out));
    // At most 2^16 heads of 2^8 columns, so this does not overflow.
    (*out)->shape = *shape;
    (*out)->bytes = sizeof(bt_kv_page) +
                    shape->kv_heads * bt_kv_page_head(shape) * sizeof(float);
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

/* Add free pages. They are zeroed, because kernels load whole blocks and then
 * mask the missing tokens. */
static bauta_status slab_add(bt_kv_pool *pool, bauta_error *err)
{
    size_t count = slab_pages(pool);
    size_t bytes = sizeof(bt_slab) + count * pool->bytes;
    bt_slab *slab = bt_alloc_zero(1, bytes);
    if (!slab)
        return bt_fail_memory(err, "pages of keys and values", bytes);
    slab->next = pool->slabs;
    pool->slabs = slab;
    pool->allocated += count;
    for (size_t i = count; i-- > 0;) {
        bt_kv_page *page = (void *)(slab->memory + i * pool->bytes);
        page->next = pool->free_pages;
        pool->free_pages = page;
    }
    return BAUTA_OK;
}

/* NULL and an error if there is no memory or the limit is reached. */
static bt_kv_page *page_alloc(bt_kv_pool *pool, bauta_error *err)
{
    uint64_t bytes = (uint64_t)pool->bytes;
    if (pool->max_bytes && pool->used >= pool->max_bytes / bytes) {
        bt_fail(err, BAUTA_ERR_NOMEM,
                "%zu pages of %zu bytes are taken, and keys and values may "
                "have %llu bytes",
                pool->used, pool->bytes, (unsigned long long)pool->max_bytes);
        return NULL;
    }
    if (!pool->free_pages && slab_add(pool, err))
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

/* ---- Block tables
 * ------------------------------------------------------------- */

void bt_block_table_init(bt_block_table *table, bt_kv_pool *pool, size_t layers)
{
    *table = (bt_block_table){ .pool = pool, .layers = layers };
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

/* Whole cache lines of keys. */
static void lines_copy(float *to, const float *from, size_t keys)
{
    enum { LINE = BT_ALIGN / sizeof(float) };
    for (size_t j = 0; j < keys; j += LINE)
        memcpy(to + j, from + j, LINE * sizeof(*to));
}

/* Copy the first `tokens` tokens of a page; the rest is hidden. */
static void page_copy(const bt_attention_shape *s, float *to, const float *from,
                      size_t tokens)
{
    for (size_t h = 0; h < s->kv_heads; h++) {
        for (size_t d = 0; d < s->head_dim; d++)
            lines_copy(to + d * BT_BLOCK, from + d * BT_BLOCK, tokens);
        to += s->head_dim * BT_BLOCK;
        from += s->head_dim * BT_BLOCK;
        for (size_t e = 0; e < s->value_pad; e += BT_VALUE_PANEL)
            memcpy(to + bt_value_panel_start(e), from + bt_value_panel_start(e),
                   tokens * bt_value_panel_width(s->value_pad, e) *
                       sizeof(*to));
        to += s->value_pad * BT_BLOCK;
        from += s->value_pad * BT_BLOCK;
    }
}

/* Make an entry a page of this table alone, replacing NULL or a shared page.
 * The copy of a shared one is left to bt_block_table_commit(). */
static bauta_status page_make_unique(bt_block_table *table, bt_kv_page **at,
                                     bauta_error *err)
{
    bt_kv_page *old = *at;
    if (old && old->references == 1)
        return BAUTA_OK;
    bt_kv_page *page = page_alloc(table->pool, err);
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

void bt_block_table_commit(bt_block_table *table)
{
    size_t first = table->tokens / BT_BLOCK;
    for (size_t i = first * table->layers; i < table->blocks * table->layers;
         i++) {
        bt_kv_page *page = table->pages[i];
        if (!page || !page->from)
            continue;
        page_copy(&table->pool->shape, page->data, page->from->data,
                  table->tokens % BT_BLOCK);
        page->from = NULL;
    }
}

bauta_status bt_block_table_reserve(bt_block_table *table, size_t tokens,
                                    bauta_error *err)
{
    bauta_status status = bt_block_table_alloc(table, tokens, err);
    bt_block_table_commit(table);
    return status;
}

bauta_status bt_block_table_alloc(bt_block_table *table, size_t tokens,
                                  bauta_error *err)
{
    size_t first = table->tokens / BT_BLOCK;
    size_t end = bt_kv_page_count(table->tokens + tokens);
    bauta_status status = blocks_add(table, end, err);
    for (size_t i = first * table->layers; !status && i < end * table->layers;
         i++)
        status = page_make_unique(table, &table->pages[i], err);
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

/* ---- Writing ----------------------------------------------------------- */

/* Write tokens j to j + rows - 1 of one block. */
static void block_write(float *kt, const bt_kernels *kernels,
                        const bt_attention_shape *s, size_t j, size_t rows,
                        const float *k, const float *v)
{
    float *to = kt + s->head_dim * BT_BLOCK;
    if (j == 0 && rows > 1)
        kernels->transpose(kt, k, s->k.token, rows, s->head_dim);
    else
        for (size_t r = 0; r < rows; r++)
            for (size_t d = 0; d < s->head_dim; d++)
                kt[d * BT_BLOCK + j + r] = k[r * s->k.token + d];
    for (size_t e = 0; e < s->value_dim; e += BT_VALUE_PANEL) {
        size_t width = bt_value_panel_width(s->value_pad, e);
        bt_rows_copy(to + bt_value_panel_start(e) + j * width, width, v + e,
                     s->v.token, rows,
                     bt_size_min(BT_VALUE_PANEL, s->value_dim - e), 1.0f);
    }
}

void bt_block_table_prefetch(const bt_block_table *table, size_t layer,
                             const bt_attention_shape *s, size_t kv_head)
{
    size_t j = table->tokens % BT_BLOCK;
    const bt_kv_page *page =
        bt_block_table_page(table, layer, table->tokens / BT_BLOCK);
    const float *kt = page->data + kv_head * bt_kv_page_head(s) + j;
    for (size_t d = 0; d < s->head_dim; d++)
        __builtin_prefetch(kt + d * BT_BLOCK, 1);
}

void bt_block_table_write(const bt_block_table *table, size_t layer,
                          const bt_kernels *kernels,
                          const bt_attention_shape *shape, size_t kv_head,
                          size_t at, size_t rows, const float *k,
                          const float *v)
{
    for (size_t done = 0, count; done < rows; done += count) {
        size_t j = (at + done) % BT_BLOCK;
        bt_kv_page *page =
            bt_block_table_page(table, layer, (at + done) / BT_BLOCK);
        count = bt_size_min(BT_BLOCK - j, rows - done);
        block_write(page->data + kv_head * bt_kv_page_head(shape), kernels,
                    shape, j, count, k + done * shape->k.token,
                    v + done * shape->v.token);
    }
}
