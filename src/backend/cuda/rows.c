/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - bringing the rows of a mask to the GPU. */
#include "backend/cuda/rows.h"

#include "backend/cuda/device.h"
#include "backend/cuda/step_graph.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/decode_list.h"
#include "mask/mask.h"
#include "mask/plan.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* Rows of several masks, as words of 32 bits: starts, origins, anchors, spans
 * and, where there are pages, the rows' tables and the pages, back to back. */
typedef struct row_words {
    size_t rows, spans, tables, pages; /* how many of each */
    size_t page_keys;                  /* 0: there are no pages */
    size_t page_count;                 /* one more than the last page */
    int32_t *start, *origin, *anchor, *span, *table, *page;
} row_words;

/* Pages of a sequence up to the last that one of its rows sees. */
static size_t pages_of(const bt_decode_sequence *s, size_t page_keys)
{
    const bt_row_list *rows = bt_mask_rows(s->mask);
    size_t end = 0;
    for (size_t i = rows->start[s->first]; i < rows->start[s->first + s->rows];
         i++)
        end = bt_size_max(end, rows->spans[i].hi);
    return page_keys ? bt_size_round(end, page_keys) / page_keys : 0;
}

static void measure(row_words *w, const bt_decode_sequence *sequences,
                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const bt_decode_sequence *s = &sequences[i];
        const size_t *start = bt_mask_rows(s->mask)->start + s->first;
        w->rows = bt_size_add(w->rows, s->rows);
        w->spans = bt_size_add(w->spans, start[s->rows] - start[0]);
        w->pages = bt_size_add(w->pages, pages_of(s, w->page_keys));
    }
    w->tables = w->page_keys ? w->rows : 0;
}

static size_t measured(const row_words *w)
{
    size_t count = bt_size_add(bt_size_mul(w->rows, 3), 1);
    count = bt_size_add(count, bt_size_mul(w->spans, 2));
    return bt_size_add(count, bt_size_add(w->tables, w->pages));
}

static void point(row_words *w, int32_t *memory)
{
    w->start = memory;
    w->origin = w->start + w->rows + 1;
    w->anchor = w->origin + w->rows;
    w->span = w->anchor + w->rows;
    w->table = w->span + 2 * w->spans;
    w->page = w->table + w->tables;
}

/* Only pages of which something is seen are looked up. */
static void fill_pages(row_words *w, const bt_decode_sequence *s, size_t at)
{
    const bt_row_list *rows = bt_mask_rows(s->mask);
    for (size_t i = rows->start[s->first]; i < rows->start[s->first + s->rows];
         i++) {
        bauta_span span = rows->spans[i];
        for (size_t p = span.lo / w->page_keys;
             p <= (span.hi - 1) / w->page_keys; p++) {
            w->page[at + p] = (int32_t)s->block_table[p];
            w->page_count =
                bt_size_max(w->page_count, (size_t)s->block_table[p] + 1);
        }
    }
}

static void fill(row_words *w, const bt_decode_sequence *sequences,
                 size_t count)
{
    size_t row = 0, span = 0, page = 0;
    for (size_t i = 0; i < count; i++) {
        const bt_decode_sequence *s = &sequences[i];
        const bt_row_list *list = bt_mask_rows(s->mask);
        size_t pages = pages_of(s, w->page_keys);
        for (size_t r = s->first; r < s->first + s->rows; r++, row++) {
            w->start[row] = (int32_t)span;
            w->origin[row] = (int32_t)list->origin[r];
            w->anchor[row] = (int32_t)((ptrdiff_t)(r + s->mask->keys) -
                                       (ptrdiff_t)s->mask->queries);
            if (w->page_keys)
                w->table[row] = (int32_t)page;
            for (size_t j = list->start[r]; j < list->start[r + 1]; j++) {
                w->span[2 * span] = (int32_t)list->spans[j].lo;
                w->span[2 * span++ + 1] = (int32_t)list->spans[j].hi;
            }
        }
        if (pages)
            fill_pages(w, s, page);
        page += pages;
    }
    w->start[row] = (int32_t)span;
}

/* Memory that has `bytes` bytes, and what was there is lost. */
static bauta_status reserve(bt_cuda_rows *rows, size_t bytes, bauta_error *err)
{
    if (bytes <= rows->bytes)
        return BAUTA_OK;
    bt_cuda_step_leave();
    cudaFree(rows->memory); // waits for those who use it
    rows->bytes = 0;
    cudaError_t status = cudaMalloc(&rows->memory, bytes);
    if (status) {
        rows->memory = NULL;
        cudaGetLastError(); // reported; the next call starts without an error
        return bt_fail(err, bt_cuda_status(status), "%zu bytes on the GPU: %s",
                       bytes, cudaGetErrorString(status));
    }
    rows->bytes = bytes;
    return BAUTA_OK;
}

/* A copy that is complete when the call returns: those who use it may have a
 * stream that does not wait for this one. */
static int copy_now(void *to, const int32_t *words, size_t bytes)
{
    cudaError_t status = cudaMemcpy(to, words, bytes, cudaMemcpyHostToDevice);
    if (!status)
        status = cudaStreamSynchronize(NULL);
    return status;
}

/* A copy on a stream, which has read `words` when the call returns. */
static int copy_queued(void *to, const int32_t *words, size_t bytes,
                       void *stream)
{
    int status = cudaSuccess;
    bool done = false;
    if (bt_cuda_stepping(stream))
        status = bt_cuda_step_upload(to, words, bytes, &done);
    if (!status && !done)
        status = cudaMemcpyAsync(to, words, bytes, cudaMemcpyHostToDevice,
                                 (cudaStream_t)stream);
    return status;
}

static bauta_status upload(bt_cuda_rows *rows, const int32_t *words,
                           size_t bytes, void *const *stream, bauta_error *err)
{
    bauta_status reserved =
        reserve(rows, stream ? bytes + bytes / 2 : bytes, err);
    if (reserved)
        return reserved;
    int status = stream ? copy_queued(rows->memory, words, bytes, *stream)
                        : copy_now(rows->memory, words, bytes);
    if (status)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot copy the rows of a mask to the GPU: %s",
                       cudaGetErrorString((cudaError_t)status));
    return BAUTA_OK;
}

/* Let rows be those of some sequences. `stream` points to the one that they
 * are for; NULL: for any. */
static bauta_status update(bt_cuda_rows *r, const bt_decode_sequence *sequences,
                           size_t count, size_t page_keys, size_t keys,
                           void *const *stream, bauta_error *err)
{
    row_words w = { .page_keys = page_keys };
    bauta_status status = BAUTA_OK;
    measure(&w, sequences, count);
    size_t size = bt_size_mul(measured(&w), sizeof(int32_t));
    if (size / sizeof(int32_t) > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu rows of %zu spans: the GPU kernels count in 32 "
                       "bits",
                       w.rows, w.spans);
    int32_t *memory = bt_alloc_zero(size, 1);
    if (!memory)
        return bt_fail_memory(err, "the rows of a mask", size);
    point(&w, memory);
    fill(&w, sequences, count);
    status = upload(r, memory, size, stream, err);
    bt_free(memory);
    if (status)
        return status;
    point(&w, r->memory);
    r->page_keys = page_keys;
    r->page_count = w.page_count;
    r->device = (bt_row_spans){
        .count = (int32_t)w.rows,
        .keys = (int32_t)keys,
        .start = w.start,
        .origin = w.origin,
        .anchor = w.anchor,
        .spans = (const bt_cuda_span *)w.span,
        .table = page_keys ? w.table : NULL,
        .pages = w.page,
    };
    return BAUTA_OK;
}

/* On success the caller owns *out. */
static bauta_status create(bt_cuda_rows **out,
                           const bt_decode_sequence *sequences, size_t count,
                           size_t page_keys, size_t keys, bauta_error *err)
{
    bt_cuda_rows *r = bt_alloc_zero(1, sizeof(*r));
    if (!r)
        return bt_fail_memory(err, "the rows of a mask", sizeof(*r));
    bauta_status status =
        update(r, sequences, count, page_keys, keys, NULL, err);
    if (status)
        bt_cuda_rows_free(r);
    else
        *out = r;
    return status;
}

bauta_status bt_cuda_rows_create(bt_cuda_rows **out, const bauta_mask *mask,
                                 size_t first, size_t rows, bauta_error *err)
{
    *out = NULL;
    if (first > mask->queries || rows > mask->queries - first)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "rows %zu to %zu of a mask of %zu queries", first,
                       bt_size_add(first, rows), mask->queries);
    const bt_decode_sequence all = { mask, first, rows, NULL };
    return create(out, &all, 1, 0, mask->keys, err);
}

static bauta_status check_step(const bt_decode_sequence *sequences,
                               size_t count, size_t page_keys, bauta_error *err)
{
    if (page_keys < BT_BLOCK || (page_keys & (page_keys - 1)))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "pages of %zu keys: 64 or a larger power of two",
                       page_keys);
    for (size_t i = 0; i < count; i++) {
        bauta_status status = bt_decode_check_rows(&sequences[i], i, err);
        if (status)
            return status;
    }
    return BAUTA_OK;
}

bauta_status bt_cuda_rows_of_step(bt_cuda_rows **out,
                                  const bt_decode_sequence *sequences,
                                  size_t count, size_t page_keys,
                                  bauta_error *err)
{
    *out = NULL;
    bauta_status status = check_step(sequences, count, page_keys, err);
    return status ? status : create(out, sequences, count, page_keys, 0, err);
}

bauta_status bt_cuda_rows_next_step(bt_cuda_rows **rows,
                                    const bt_decode_sequence *sequences,
                                    size_t count, size_t page_keys,
                                    void *stream, bauta_error *err)
{
    bauta_status status = check_step(sequences, count, page_keys, err);
    if (status)
        return status;
    if (!*rows)
        *rows = bt_alloc_zero(1, sizeof(**rows));
    if (!*rows)
        return bt_fail_memory(err, "the rows of a mask", sizeof(**rows));
    return update(*rows, sequences, count, page_keys, 0, &stream, err);
}

void bt_cuda_rows_free(bt_cuda_rows *rows)
{
    if (!rows)
        return;
    bt_cuda_step_leave();
    cudaFree(rows->memory);
    bt_free(rows);
}
