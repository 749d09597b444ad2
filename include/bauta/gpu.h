/* SPDX-License-Identifier: Apache-2.0 */
/* bauta/gpu.h - attention on NVIDIA GPUs. */
#ifndef BAUTA_GPU_H
#define BAUTA_GPU_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Masked attention over GPU memory: forward, backward and paged decoding. A
 * context with the device "cuda" (the first usable GPU) or "cuda:1" (CUDA's
 * number 1) serves the calls of this header and those that run models
 * (bauta_model_to() moves a model to its GPU); calls that compute on host
 * memory reject it, and those of this header reject other contexts, with
 * BAUTA_ERR_UNSUPPORTED.
 *
 * The guarantees for masks hold here too: a hidden key or value changes no bit,
 * a query that sees nothing gets out 0, lse -infinity and gradient 0, and the
 * bits of a row depend neither on other documents nor on the run. They are not
 * the bits of the CPU.
 *
 * The library contains CUDA's runtime and works without a GPU or a driver. The
 * kernels are for Hopper (H100, H200).
 *
 * The number of usable GPUs: 0 without one, without a driver, and in a library
 * built without CUDA; bauta_context_create() then reports the reason. */
BAUTA_API size_t bauta_gpu_count(void);

/* GPU memory, for programs that do not use CUDA themselves. Sizes are in bytes.
 * Memory is aligned to 256 bytes and freed with the same context, also while
 * queued work uses it. */
BAUTA_API bauta_status bauta_gpu_alloc(bauta_context *context, void **out,
                                       size_t bytes, bauta_error *err);
BAUTA_API void bauta_gpu_free(bauta_context *context, void *memory);

/* Copy to and from the GPU, after the queued work. Both return when the copy is
 * done. */
BAUTA_API bauta_status bauta_gpu_upload(bauta_context *context, void *to,
                                        const void *from, size_t bytes,
                                        bauta_error *err);
BAUTA_API bauta_status bauta_gpu_download(bauta_context *context, void *to,
                                          const void *from, size_t bytes,
                                          bauta_error *err);

/* The calls below return when their work is queued. Wait until everything
 * queued on the context's stream is done, and report its errors. */
BAUTA_API bauta_status bauta_gpu_synchronize(bauta_context *context,
                                             bauta_error *err);

/* Queue the calls of this header on a stream of the caller from now on (a
 * cudaStream_t of the context's GPU), which must stay valid. NULL, the default,
 * is CUDA's default stream. Models have a stream of their own. */
BAUTA_API bauta_status bauta_gpu_stream_set(bauta_context *context,
                                            void *stream, bauta_error *err);

/* Rows [first, first + rows) of a mask in GPU memory, compiled for the heads of
 * a shape. Create it once for all layers and steps with the mask, or update it
 * for every batch; it keeps no reference to mask and shape. It also holds
 * scratch memory: calls that use it must be ordered on one stream.
 *
 * Sums are float32 for both types:
 *
 *   float32   any shape; plain, for small models and comparisons
 *   bfloat16  on tensor cores: head_dim a multiple of 8 and equal to value_dim,
 *             a positive scale; tensors aligned to 16 bytes, strides multiples
 *             of 8, values below 2^90 in magnitude */
typedef struct bauta_gpu_plan bauta_gpu_plan;

/* `backward`: whether it must serve the backward pass too. */
BAUTA_API bauta_status bauta_gpu_plan_create(
    bauta_gpu_plan **out, bauta_context *context, const bauta_mask *mask,
    size_t first, size_t rows, const bauta_attention_shape *shape,
    bauta_dtype dtype, bool backward, bauta_error *err);
/* Let the plan be for rows [first, first + rows) of another mask. In bfloat16
 * it returns when the copy is queued on the context's stream, and allocates
 * only if the plan never was as large; a mask of documents that are causal,
 * windowed or bidirectional takes tens of microseconds. In float32 it waits for
 * the copy. After a failure the plan has no rows. */
BAUTA_API bauta_status bauta_gpu_plan_update(bauta_context *context,
                                             bauta_gpu_plan *plan,
                                             const bauta_mask *mask,
                                             size_t first, size_t rows,
                                             bauta_error *err);
/* Waits until the GPU has done the queued work. */
BAUTA_API void bauta_gpu_plan_free(bauta_gpu_plan *plan);

/* As bauta_attention_forward() and bauta_attention_backward(), over tensors of
 * the plan's type in GPU memory. Strides are in elements; heads and dims of the
 * shape must be those of the plan. lse is float32; the forward pass accepts
 * NULL. The order of sums is fixed: equal inputs give equal bits. */
BAUTA_API bauta_status bauta_gpu_attention_forward(
    bauta_context *context, bauta_gpu_plan *plan,
    const bauta_attention_shape *shape, const void *q, const void *k,
    const void *v, void *out, float *lse, bauta_error *err);
BAUTA_API bauta_status bauta_gpu_attention_backward(
    bauta_context *context, bauta_gpu_plan *plan,
    const bauta_attention_shape *shape, const void *q, const void *k,
    const void *v, const void *out, const float *lse, const void *dout,
    void *dq, void *dk, void *dv, bauta_error *err);

/* ---- Paged decoding ---------------------------------------------------- */

/* Keys and values of many sequences in pages of `page_keys` keys, 64 or a
 * larger power of two. Page p, key head h, key j, column c is at
 * p * page_stride + h * head_stride + j * token_stride + c of both k and v;
 * strides of 0 select (pages, kv_heads, page_keys, head_dim). Keys that no
 * query sees may hold anything.
 *
 * With early_reads you promise that work queued after
 * bauta_gpu_decode_plan_update() writes only the keys and values of the step's
 * own tokens: those from the position of a sequence's first query on. bfloat16
 * attention then reads the others before the kernels queued ahead of it are
 * done, so it starts up to 5 us earlier. */
typedef struct bauta_gpu_pages {
    size_t size;
    const void *k, *v; /* in GPU memory */
    size_t pages, page_keys;
    size_t page_stride, head_stride, token_stride;
    bool early_reads;
} bauta_gpu_pages;
#define BAUTA_GPU_PAGES_DEFAULTS(X) X(page_keys, 64)
#define BAUTA_GPU_PAGES_INIT \
    BAUTA_INIT(bauta_gpu_pages, BAUTA_GPU_PAGES_DEFAULTS)
BAUTA_SIZED(bauta_gpu_pages, BAUTA_GPU_PAGES_DEFAULTS)

/* The queries of one sequence: rows [first, first + rows) of a mask over its
 * keys, in decoding the last one. Key j is key j % page_keys of page
 * block_table[j / page_keys]; entries of which no row sees a key are not read.
 * Rows that see something must have the origin 0, since pages hold one
 * sequence. */
typedef struct bauta_gpu_sequence {
    size_t size;
    const bauta_mask *mask;
    size_t first, rows;
    const uint32_t *block_table; /* in host memory */
} bauta_gpu_sequence;
#define BAUTA_GPU_SEQUENCE_INIT \
    BAUTA_INIT(bauta_gpu_sequence, BAUTA_NO_DEFAULTS)
BAUTA_SIZED(bauta_gpu_sequence, BAUTA_NO_DEFAULTS)

/* The plan of a decoding step. One step may serve many calls in order on one
 * stream: all layers of a model that share a mask. The bits of a row depend on
 * its query, on the keys and values it sees and on their positions in the
 * sequence; not on pages, other rows or sequences, or the size of the GPU. They
 * equal those of bauta_gpu_attention_forward() over the same keys, in float32
 * and in bfloat16, so a prompt may be processed at once, in chunks or token by
 * token. In bfloat16 head_dim is a multiple of 8 up to 256. */
typedef struct bauta_gpu_decode_plan bauta_gpu_decode_plan;

BAUTA_API bauta_status bauta_gpu_decode_plan_create(
    bauta_gpu_decode_plan **out, bauta_context *context,
    const bauta_attention_shape *shape, size_t page_keys, bauta_dtype dtype,
    bauta_error *err);
BAUTA_API void bauta_gpu_decode_plan_free(bauta_gpu_decode_plan *plan);

/* Set the next step, whose queries are concatenated sequence by sequence. No
 * argument is referenced afterwards. After a failure there is no step. */
BAUTA_API bauta_status bauta_gpu_decode_plan_update(
    bauta_context *context, bauta_gpu_decode_plan *plan,
    const bauta_gpu_sequence *sequences, size_t count, bauta_error *err);

/* Attention of the step's queries over the pages; q, out and lse as in
 * bauta_gpu_attention_forward(), strides of keys and values as in `pages`. */
BAUTA_API bauta_status bauta_gpu_attention_decode(
    bauta_context *context, bauta_gpu_decode_plan *plan,
    const bauta_attention_shape *shape, const void *q,
    const bauta_gpu_pages *pages, void *out, float *lse, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
