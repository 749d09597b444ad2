/* SPDX-License-Identifier: Apache-2.0 */
/* kv_pages.h - the pages of a KV cache in the GPU's memory.
 *
 * A page holds the keys, then the values of 64 tokens of one layer, each
 * (kv_heads, 64, width), where width is the larger one of head_dim and
 * value_dim. The kernels address pages by numbers: a page's
 * number is its distance from a base in units of BT_CUDA_PAGE_UNIT bytes, where
 * the base is the lowest address of the pool. So pages may come from any number
 * of allocations.
 *
 * A step needs the page numbers of every layer and, for each new row, the page
 * and the slot that its key and value go to. Both are made for all layers at
 * once, uploaded by one copy, and used by kv_write and paged_attention of all
 * layers. Their places in memory have room to grow, so that the arguments of
 * kernels stay the same from step to step and steps can be replayed. */
#ifndef BT_CUDA_KV_PAGES_H
#define BT_CUDA_KV_PAGES_H

#include "backend/backend.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/ops.h"

struct bt_cuda_stream;
struct bt_kv_batch;

/* What every allocation on the GPU is aligned to. */
enum { BT_CUDA_PAGE_UNIT = 256 };

/* The pages of a batch. */
typedef struct bt_cuda_kv_step {
    const struct bt_kv_batch *batch; /* whose pages these are; NULL: none */
    uint64_t version; /* another number whenever the pages are others */
    uint64_t used;    /* the version that the stream had then; for eviction */
    uint64_t checked; /* the step_graph.h step that it was checked in */
    size_t layers, blocks, rows;
    size_t stride;        /* numbers of a layer, `blocks` or more */
    unsigned char *base;  /* the lowest page */
    size_t pages;         /* a power of two, more than the largest number */
    uint32_t *words;      /* in host memory: all numbers, then all places */
    size_t word_capacity; /* of words */
    void *memory;         /* on the GPU: the same */
    size_t memory_bytes;
} bt_cuda_kv_step;

/* The step of a batch, up to date for a layer. */
bauta_status bt_cuda_kv_step_of(struct bt_cuda_stream *stream,
                                bt_cuda_kv_step **out,
                                const struct bt_kv_batch *batch, size_t layer,
                                bauta_error *err);
void bt_cuda_kv_step_release(bt_cuda_kv_step *step);

/* Whether keys and values can be written to the pages of their batch, which is
 * not empty. */
bauta_status bt_cuda_kv_write_check(const struct bt_cuda_stream *stream,
                                    const bt_kv_write_args *args,
                                    bauta_error *err);

/* Words before the places: those are pairs, and aligned like ones. */
static inline size_t bt_cuda_kv_place_start(const bt_cuda_kv_step *step)
{
    return (step->layers * step->stride + 1) / 2 * 2;
}

/* (layers, stride) page numbers, on the GPU. */
static inline const uint32_t *bt_cuda_kv_numbers(const bt_cuda_kv_step *step)
{
    return (const uint32_t *)step->memory;
}

/* (layers, rows), on the GPU. */
static inline const bt_cuda_kv_place *
bt_cuda_kv_places(const bt_cuda_kv_step *step)
{
    return (const bt_cuda_kv_place *)((const uint32_t *)step->memory +
                                      bt_cuda_kv_place_start(step));
}

/* Pages from a base on, as the kernels write and read them. */
bt_cuda_page_out bt_cuda_kv_write_pages(void *base,
                                        const bt_attention_shape *shape,
                                        bauta_dtype dtype);
bt_cuda_pages bt_cuda_kv_read_pages(const bt_cuda_kv_step *step,
                                    const bt_attention_shape *shape,
                                    bauta_dtype dtype);

#ifdef __cplusplus
extern "C" {
#endif

/* In kv_renumber.cu: for each of `layers` rows of `blocks` numbers, to[i] =
 * numbers[from[i]]. The work list of a step counts blocks of its sequences, and
 * gets the pages of each layer this way.
 *
 * `stride` 2: of pairs only the first word is a number (bt_decode_tile), and
 * negative ones stay. to (layers, to_stride words). */
bauta_status bt_cuda_kv_renumber(int32_t *to, size_t to_stride,
                                 const int32_t *from, size_t count, int stride,
                                 const uint32_t *numbers, size_t layers,
                                 size_t blocks, void *stream, bauta_error *err);

/* In kv_scatter.cu: bt_cuda_kv_write() without rotary embeddings, in float32,
 * for heads of any size. */
bauta_status bt_cuda_kv_scatter(size_t rows, size_t kv_heads, size_t dim,
                                size_t value_dim, bt_cuda_in k, bt_cuda_in v,
                                bt_cuda_page_out pages,
                                const bt_cuda_kv_place *places, void *stream,
                                bauta_error *err);

#ifdef __cplusplus
}
#endif

#endif
