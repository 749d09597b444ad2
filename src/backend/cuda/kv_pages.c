/* SPDX-License-Identifier: Apache-2.0 */
/* kv_pages.c - page numbers of a step, writing keys and values to pages, and
 * copying pages. */
#include "backend/cuda/kv_pages.h"

#include "backend/block_table.h"
#include "backend/cuda/stream.h"
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

#define NO_PAGE UINT32_MAX

/* ---- Layout ------------------------------------------------------------ */

/* Columns of a head of a page. */
static size_t page_width(const bt_attention_shape *shape)
{
    return bt_size_max(shape->head_dim, shape->value_dim);
}

/* Elements of the keys of a page, and of its values. */
static size_t half_page(const bt_attention_shape *shape)
{
    return shape->kv_heads * BT_BLOCK * page_width(shape);
}

size_t bt_cuda_kv_page_bytes(const bt_attention_shape *shape, bauta_dtype dtype)
{
    return bt_size_round(2 * half_page(shape) * bt_dtype_size(dtype),
                         BT_CUDA_PAGE_UNIT);
}

bt_cuda_page_out bt_cuda_kv_write_pages(void *base,
                                        const bt_attention_shape *shape,
                                        bauta_dtype dtype)
{
    size_t size = bt_dtype_size(dtype), width = page_width(shape);
    return (bt_cuda_page_out){ .k = base,
                               .v = (char *)base + half_page(shape) * size,
                               .page = BT_CUDA_PAGE_UNIT / size,
                               .head = BT_BLOCK * width,
                               .token = width };
}

bt_cuda_pages bt_cuda_kv_read_pages(const bt_cuda_kv_step *step,
                                    const bt_attention_shape *shape,
                                    bauta_dtype dtype)
{
    bt_cuda_page_out pages = bt_cuda_kv_write_pages(step->base, shape, dtype);
    return (bt_cuda_pages){ .k = pages.k,
                            .v = pages.v,
                            .pages = step->pages,
                            .page_keys = BT_BLOCK,
                            .page = pages.page,
                            .head = pages.head,
                            .token = pages.token };
}

static unsigned char *page_address(const bt_kv_page *page)
{
    return (unsigned char *)page->buffer->memory + page->offset;
}

/* The number of a page; 0 for one that was freed, since no row sees it, and
 * NO_PAGE for one that is out of reach. */
static uint32_t page_number(const bt_kv_page *page, const unsigned char *base)
{
    if (!page)
        return 0;
    const unsigned char *at = page_address(page);
    if (at < base)
        return NO_PAGE;
    size_t number = (size_t)(at - base) / BT_CUDA_PAGE_UNIT;
    return number < INT32_MAX ? (uint32_t)number : NO_PAGE;
}

/* ---- Steps ------------------------------------------------------------- */

void bt_cuda_kv_step_release(bt_cuda_kv_step *step)
{
    bt_cuda_block memory = { step->memory, step->memory_bytes };
    bt_cuda_block_release(&memory);
    bt_free(step->words);
    *step = (bt_cuda_kv_step){ 0 };
}

static size_t sequence_blocks(const bt_kv_sequence *sequence)
{
    return bt_kv_page_count(sequence->table->tokens + sequence->rows);
}

/* The next power of two, `least` or more. */
static size_t room_for(size_t count, size_t least)
{
    while (least < count)
        least *= 2;
    return least;
}

enum { LEAST_STRIDE = 64, LEAST_PAGES = 1 << 20 };

/* Sizes of a batch, and the lowest page of its pool. */
static void measure(bt_cuda_kv_step *step, const bt_kv_batch *batch)
{
    const bt_block_table *first =
        batch->count ? batch->sequences[0].table : NULL;
    step->layers = first ? first->layers : 0;
    step->base = first ? (unsigned char *)first->pool->lowest : NULL;
    step->blocks = step->rows = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const bt_kv_sequence *s = &batch->sequences[i];
        step->blocks += sequence_blocks(s);
        step->rows = bt_size_max(step->rows, s->row + s->rows);
    }
    step->stride = room_for(step->blocks, LEAST_STRIDE);
}

/* Where a row of a sequence goes. */
static bt_cuda_kv_place place_of(const bt_kv_sequence *s, size_t layer,
                                 size_t row, const unsigned char *base)
{
    size_t token = s->table->tokens + row;
    const bt_kv_page *page =
        bt_block_table_page(s->table, layer, token / BT_BLOCK);
    return (bt_cuda_kv_place){ page ? page_number(page, base) : NO_PAGE,
                               (uint32_t)(token % BT_BLOCK) };
}

static uint32_t *numbers_of(const bt_cuda_kv_step *step, size_t layer)
{
    return step->words + layer * step->stride;
}

static bt_cuda_kv_place *places_of(const bt_cuda_kv_step *step, size_t layer)
{
    return (bt_cuda_kv_place *)(step->words + bt_cuda_kv_place_start(step)) +
           layer * step->rows;
}

/* Fill in a layer; false if a page is out of reach. */
static bool fill_layer(bt_cuda_kv_step *step, const bt_kv_batch *batch,
                       size_t layer)
{
    uint32_t *to = numbers_of(step, layer);
    bt_cuda_kv_place *places = places_of(step, layer);
    memset(places, 0xff, step->rows * sizeof(*places));
    memset(to + step->blocks, 0, (step->stride - step->blocks) * sizeof(*to));
    for (size_t i = 0; i < batch->count; i++) {
        const bt_kv_sequence *s = &batch->sequences[i];
        for (size_t b = 0; b < sequence_blocks(s); b++) {
            uint32_t number = page_number(
                bt_block_table_page(s->table, layer, b), step->base);
            if (number == NO_PAGE)
                return false;
            step->pages = bt_size_max(step->pages, (size_t)number + 1);
            *to++ = number;
        }
        for (size_t r = 0; r < s->rows; r++)
            places[s->row + r] = place_of(s, layer, r, step->base);
    }
    return true;
}

/* Whether a layer of the step is that of the batch. */
static bool layer_holds(const bt_cuda_kv_step *step, const bt_kv_batch *batch,
                        size_t layer)
{
    size_t blocks = 0, rows = 0;
    if (layer >= step->layers)
        return false;
    const uint32_t *numbers = numbers_of(step, layer);
    const bt_cuda_kv_place *places = places_of(step, layer);
    for (size_t i = 0; i < batch->count; i++) {
        const bt_kv_sequence *s = &batch->sequences[i];
        size_t count = sequence_blocks(s);
        if (s->table->layers != step->layers || s->row + s->rows > step->rows ||
            count > step->blocks - blocks)
            return false;
        for (size_t b = 0; b < count; b++)
            if (numbers[blocks + b] !=
                page_number(bt_block_table_page(s->table, layer, b),
                            step->base))
                return false;
        for (size_t r = 0; r < s->rows; r++) {
            bt_cuda_kv_place place = place_of(s, layer, r, step->base);
            if (memcmp(&places[s->row + r], &place, sizeof(place)) != 0)
                return false;
        }
        blocks += count;
        rows = bt_size_max(rows, s->row + s->rows);
    }
    return blocks == step->blocks && rows == step->rows;
}

/* Pages of one layer may be those of the last batch and pages of another not:
 * sequences that end give their pages back, and others take them. */
static bool all_layers_hold(const bt_cuda_kv_step *step,
                            const bt_kv_batch *batch)
{
    for (size_t l = 0; l < step->layers; l++)
        if (!layer_holds(step, batch, l))
            return false;
    return step->layers > 0;
}

static bauta_status build(bt_cuda_stream *stream, bt_cuda_kv_step *step,
                          const bt_kv_batch *batch, bauta_error *err)
{
    step->batch = NULL; // until it is complete
    measure(step, batch);
    step->pages = 0;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->sequences[i].table->layers != step->layers)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "sequences of %zu and of %zu layers in a batch",
                           step->layers, batch->sequences[i].table->layers);
    size_t words = bt_size_add(bt_cuda_kv_place_start(step),
                               bt_size_mul(2 * step->rows, step->layers));
    if (BT_ARRAY_RESERVE(step->words, step->word_capacity, 0, words))
        return bt_fail_memory(err, "the pages of a step",
                              bt_size_mul(words, sizeof(*step->words)));
    for (size_t l = 0; l < step->layers; l++)
        if (!fill_layer(step, batch, l))
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "pages of keys and values are too far apart in the "
                           "GPU's memory");
    step->pages = room_for(step->pages, LEAST_PAGES);
    bt_cuda_block block = { step->memory, step->memory_bytes };
    bauta_status status =
        bt_cuda_block_reserve(&block, words * sizeof(*step->words), NULL, err);
    step->memory = block.memory;
    step->memory_bytes = block.bytes;
    if (!status)
        status = bt_cuda_stream_upload(stream, step->memory, step->words,
                                       words * sizeof(*step->words), err);
    if (status)
        return status;
    step->batch = batch;
    step->version = ++stream->kv_versions;
    return BAUTA_OK;
}

bauta_status bt_cuda_kv_step_of(bt_cuda_stream *stream, bt_cuda_kv_step **out,
                                const bt_kv_batch *batch, size_t layer,
                                bauta_error *err)
{
    bt_cuda_kv_step *oldest = &stream->kv_steps[0], *step = NULL;
    for (size_t i = 0; i < BT_CUDA_KV_STEPS; i++) {
        bt_cuda_kv_step *at = &stream->kv_steps[i];
        if (at->batch == batch)
            step = at;
        if (!at->batch || (oldest->batch && at->used < oldest->used))
            oldest = at;
    }
    bauta_status status = BAUTA_OK;
    // In a step no table changes, so the first look is for all its layers.
    uint64_t number = bt_cuda_step_number();
    bool holds = step && number && step->checked == number;
    if (step && !holds)
        holds = number ? all_layers_hold(step, batch)
                       : layer_holds(step, batch, layer);
    if (!holds) {
        step = step ? step : oldest;
        status = build(stream, step, batch, err);
    }
    step->checked = status ? 0 : number;
    step->used = ++stream->kv_versions;
    *out = step;
    return status;
}

/* ---- Writing and copying ----------------------------------------------- */

bauta_status bt_cuda_kv_write_check(const bt_cuda_stream *stream,
                                    const bt_kv_write_args *args,
                                    bauta_error *err)
{
    const bt_kv_pool *pool = args->batch->sequences[0].table->pool;
    BT_CUDA_NEED_SAME(stream, err, kv_write, args->k, args->v, args->q,
                      args->q_out);
    BT_CUDA_NEED_F32(stream, err, kv_write, args->frequencies);
    BT_CUDA_NEED_HERE(stream, err, kv_write, args->positions);
    if (pool->dtype != args->k->dtype)
        return bt_fail(
            err, BAUTA_ERR_ARGUMENT, "kv_write: keys of %s for pages of %s",
            bt_dtype_name(args->k->dtype), bt_dtype_name(pool->dtype));
    if (pool->dtype != BAUTA_FLOAT32 &&
        pool->shape.head_dim != pool->shape.value_dim)
        return bt_unsupported(&stream->base, BT_OP_kv_write, pool->dtype, err);
    if (args->q && pool->shape.head_dim != pool->shape.value_dim)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "kv_write: rotated heads of %zu with values of %zu",
                       pool->shape.head_dim, pool->shape.value_dim);
    return BAUTA_OK;
}

bauta_status bt_cuda_op_kv_write(bt_cuda_stream *stream,
                                 const bt_kv_write_args *args, bauta_error *err)
{
    const bt_tensor *k = args->k, *v = args->v;
    bt_cuda_kv_step *step;
    if (!args->batch->count || !k->rows)
        return BAUTA_OK;
    const bt_kv_pool *pool = args->batch->sequences[0].table->pool;
    const bt_attention_shape *s = &pool->shape;
    bauta_status status = bt_cuda_kv_write_check(stream, args, err);
    if (!status)
        status =
            bt_cuda_kv_step_of(stream, &step, args->batch, args->layer, err);
    if (status)
        return status;
    if (step->rows > k->rows || (args->q && step->rows != args->q->rows))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "kv_write: %zu rows for sequences of %zu", k->rows,
                       step->rows);
    bt_cuda_kv_write_args own = {
        .dtype = k->dtype,
        .rows = step->rows,
        .heads = args->q ? args->heads : 0,
        .kv_heads = s->kv_heads,
        .dim = s->head_dim,
        .positions = bt_cuda_address(args->positions),
        .frequencies = bt_cuda_address(args->frequencies),
        .q = bt_cuda_read(args->q),
        .q_out = bt_cuda_write(args->q_out),
        .k = bt_cuda_read(k),
        .v = bt_cuda_read(v),
        .pages = bt_cuda_kv_write_pages(step->base, s, pool->dtype),
        .places = bt_cuda_kv_places(step) + args->layer * step->rows,
    };
    if (s->head_dim == s->value_dim && s->head_dim % 2 == 0)
        return bt_cuda_kv_write(&own, stream->queue, err);
    return bt_cuda_kv_scatter(own.rows, own.kv_heads, s->head_dim, s->value_dim,
                              own.k, own.v, own.pages, own.places,
                              stream->queue, err);
}

bauta_status bt_cuda_op_kv_copy(bt_cuda_stream *stream,
                                const bt_kv_copy_args *args, bauta_error *err)
{
    const bt_kv_pool *pool = args->pool;
    size_t bytes = args->count * sizeof(bt_cuda_kv_copy_item);
    unsigned char *base = NULL;
    void *memory = NULL;
    bauta_status status = BAUTA_OK;
    if (!args->count)
        return BAUTA_OK;
    for (size_t i = 0; i < args->count; i++) {
        const bt_kv_page *both[] = { args->items[i].from, args->items[i].to };
        for (size_t j = 0; j < BT_LEN(both); j++)
            if (!base || page_address(both[j]) < base)
                base = page_address(both[j]);
    }
    bt_cuda_kv_copy_item *items = bt_alloc(bytes);
    if (!items)
        return bt_fail_memory(err, "copies of pages", bytes);
    for (size_t i = 0; i < args->count; i++) {
        const bt_kv_copy_item *given = &args->items[i];
        items[i] = (bt_cuda_kv_copy_item){ page_number(given->from, base),
                                           page_number(given->to, base),
                                           (uint32_t)given->tokens };
        if (items[i].from == NO_PAGE || items[i].to == NO_PAGE)
            status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                             "pages of keys and values are too far apart in "
                             "the GPU's memory");
    }
    if (!status)
        status = bt_cuda_stream_scratch(stream, &memory, bytes, err);
    if (!status)
        status = bt_cuda_stream_upload(stream, memory, items, bytes, err);
    if (!status)
        status = bt_cuda_kv_copy(
            pool->dtype, pool->shape.kv_heads, page_width(&pool->shape),
            bt_cuda_kv_write_pages(base, &pool->shape, pool->dtype), memory,
            args->count, stream->queue, err);
    bt_free(items);
    return status;
}
