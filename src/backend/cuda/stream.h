/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - a stream on a GPU: its queue of work, the memory between the host
 * and the GPU, and the workspace of its operations.
 *
 * All memory here grows to the largest need and is kept, so a step that is not
 * larger than those before allocates nothing. Work of a stream runs in order,
 * so one workspace serves all its operations, one after the other. */
#ifndef BT_CUDA_STREAM_H
#define BT_CUDA_STREAM_H

#include "backend/backend.h"
#include "backend/cuda/held.h"
#include "backend/cuda/kv_pages.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/step_graph.h"

extern const bt_backend bt_cuda_backend;

/* ---- Memory of the GPU ------------------------------------------------- */

typedef struct bt_cuda_block {
    void *memory;
    size_t bytes;
} bt_cuda_block;

/* Make sure that a block has `bytes` bytes. If it must grow, it is replaced
 * once all queued work is done, and its contents are lost; *grown, unless that
 * is NULL, says so. */
bauta_status bt_cuda_block_reserve(bt_cuda_block *block, size_t bytes,
                                   bool *grown, bauta_error *err);
void bt_cuda_block_release(bt_cuda_block *block);

/* ---- Staging ----------------------------------------------------------- */

/* Pinned memory in two halves. Data that goes to the GPU is copied into the
 * current half, and the copy engine reads it from there. A half is filled again
 * when everything in it was read. */
typedef struct bt_cuda_staging {
    unsigned char *memory;
    size_t used; /* of the current half */
    int half;
    void *read[2]; /* events: the copies of a half are done */
} bt_cuda_staging;

/* ---- Sampled tokens ---------------------------------------------------- */

/* What was sampled. The kernels write it to the GPU's memory and to the
 * host's. */
typedef struct bt_cuda_sampling {
    bt_sampling base;
    int number;           /* of the GPU */
    bt_cuda_block inputs; /* options of the rows, and lists of tokens */
    bt_buffer sampled;    /* on the GPU: bt_cuda_sampled of each row */
    void *landing;        /* the same, in pinned memory */
    size_t bytes;         /* of each */
    void *landed;         /* event */
    uint64_t step;        /* that is done then, see step_graph.h */
} bt_cuda_sampling;

/* ---- The optimizer's slots --------------------------------------------- */

/* Slots and pieces of bt_cuda_adamw() in the GPU's memory, with a copy in host
 * memory to tell whether they are still those of the caller. */
typedef struct bt_cuda_adamw_lists {
    bt_cuda_slot *slots; /* in host memory: (capacity) */
    size_t count, capacity;
    size_t pieces;
    bt_cuda_block memory; /* state, slots, pieces, squares */
} bt_cuda_adamw_lists;

/* ---- Streams ----------------------------------------------------------- */

enum { BT_CUDA_KV_STEPS = 4 }; /* batches of a KV cache that are remembered */

typedef struct bt_cuda_stream {
    bt_stream base;
    int number;      /* of the GPU */
    void *queue;     /* the cudaStream_t that work is queued on */
    void *own_queue; /* the one that is freed with the stream */
    bt_cuda_staging staging;
    unsigned char *landing; /* pinned memory for small downloads */
    bt_cuda_block products; /* workspace of bt_cuda_gemm() */
    bt_cuda_block scratch;  /* workspace of everything else */
    bt_cuda_adamw_lists adamw;
    bt_cuda_kv_step kv_steps[BT_CUDA_KV_STEPS];
    bt_cuda_sampling sampling;  /* that is read at once */
    bt_cuda_sampling *unmarked; /* queued in the current step, or NULL: its
                                   event is to be recorded at the end */
    uint64_t kv_versions;       /* that were given out */
    bt_cuda_steps *steps;       /* NULL until the first one */
    bt_cuda_held held;
    int before; /* in a step: the device that was current before */
} bt_cuda_stream;

static inline bt_cuda_stream *bt_cuda_stream_of(bt_stream *stream)
{
    return (bt_cuda_stream *)stream;
}

/* A stream of the current GPU, which has this number. */
bauta_status bt_cuda_stream_create(bt_cuda_stream **out, int number,
                                   bauta_error *err);
/* Waits for queued work. */
void bt_cuda_stream_free(bt_cuda_stream *stream);

/* Queue on a cudaStream_t of the caller's from now on (NULL: the default
 * stream), after what is queued already. */
bauta_status bt_cuda_stream_use(bt_stream *stream, void *queue,
                                bauta_error *err);

bauta_status bt_cuda_stream_wait(bt_cuda_stream *stream, bauta_error *err);

/* Queue a copy to the GPU; `from` was read when the call returns. In a step it
 * may happen earlier, see step_graph.h. */
bauta_status bt_cuda_stream_upload(bt_cuda_stream *stream, void *to,
                                   const void *from, size_t bytes,
                                   bauta_error *err);
/* Copy from the GPU and wait for it. */
bauta_status bt_cuda_stream_download(bt_cuda_stream *stream, void *to,
                                     const void *from, size_t bytes,
                                     bauta_error *err);
bauta_status bt_cuda_stream_fill(bt_cuda_stream *stream, void *to, int value,
                                 size_t bytes, bauta_error *err);

/* `bytes` bytes until the next operation. */
bauta_status bt_cuda_stream_scratch(bt_cuda_stream *stream, void **out,
                                    size_t bytes, bauta_error *err);

/* The error of a call of CUDA's runtime, which is reported once. */
bauta_status bt_cuda_failed(int error, const char *what, bauta_error *err);

/* ---- Tensors as the kernels take them ---------------------------------- */

/* The address of the first element; NULL for no tensor. */
static inline void *bt_cuda_address(const bt_tensor *t)
{
    if (!t || !t->buffer)
        return NULL;
    return (char *)t->buffer->memory + t->offset * bt_dtype_size(t->dtype);
}

static inline bt_cuda_in bt_cuda_read(const bt_tensor *t)
{
    return (bt_cuda_in){ bt_cuda_address(t), t ? t->stride : 0 };
}

static inline bt_cuda_out bt_cuda_write(const bt_tensor *t)
{
    return (bt_cuda_out){ bt_cuda_address(t), t ? t->stride : 0 };
}

/* ---- Types ------------------------------------------------------------- */

/* Whether all tensors, except those that are NULL, are in memory of a GPU. */
bauta_status bt_cuda_need_here(const bt_cuda_stream *stream, bt_op op,
                               const bt_tensor *const *tensors, size_t count,
                               bauta_error *err);
/* Whether a tensor is float32, as gradients of parameters and statistics are;
 * NULL is allowed. */
bauta_status bt_cuda_need_f32(const bt_cuda_stream *stream, bt_op op,
                              const bt_tensor *t, bauta_error *err);
/* Whether all tensors, except those that are NULL, have the type of the first:
 * float32 or bfloat16. Both check the place, too. */
bauta_status bt_cuda_need_same(const bt_cuda_stream *stream, bt_op op,
                               const bt_tensor *const *tensors, size_t count,
                               bauta_error *err);

/* Return an error unless it is so. All that an operation's kernels read or
 * write goes through one of these: an address of the host would end the use of
 * the GPU for the whole process. */
#define BT_CUDA_NEED_HERE(stream, err, op, ...)                             \
    do {                                                                    \
        const bt_tensor *const here[] = { __VA_ARGS__ };                    \
        bauta_status here_status = bt_cuda_need_here(                       \
            stream, BT_OP_##op, here, sizeof(here) / sizeof(here[0]), err); \
        if (here_status)                                                    \
            return here_status;                                             \
    } while (0)

#define BT_CUDA_NEED_SAME(stream, err, op, ...)                             \
    do {                                                                    \
        const bt_tensor *const same[] = { __VA_ARGS__ };                    \
        bauta_status same_status = bt_cuda_need_same(                       \
            stream, BT_OP_##op, same, sizeof(same) / sizeof(same[0]), err); \
        if (same_status)                                                    \
            return same_status;                                             \
    } while (0)

#define BT_CUDA_NEED_F32(stream, err, op, tensor)              \
    do {                                                       \
        bauta_status f32_status =                              \
            bt_cuda_need_f32(stream, BT_OP_##op, tensor, err); \
        if (f32_status)                                        \
            return f32_status;                                 \
    } while (0)

/* ---- Operations -------------------------------------------------------- */

/* Each in the file of its name, for the current GPU. */
#define BT_CUDA_OP(name)                                         \
    bauta_status bt_cuda_op_##name(bt_cuda_stream *stream,       \
                                   const bt_##name##_args *args, \
                                   bauta_error *err);
BT_OP_MAP(BT_CUDA_OP)
#undef BT_CUDA_OP

/* In sampling.c, see backend.h. */
bauta_status bt_cuda_sample_queue(bt_cuda_stream *stream,
                                  bt_sampling **sampling,
                                  const bt_sample_args *args, bt_tensor *tokens,
                                  bauta_error *err);
bauta_status bt_cuda_sample_read(bt_cuda_stream *stream, bt_sampling *sampling,
                                 const bt_sample_args *args, bauta_error *err);
void bt_cuda_sampling_free(bt_sampling *sampling);
int bt_cuda_sampling_number(const bt_sampling *sampling);
void bt_cuda_sampling_release(bt_cuda_sampling *sampling);
/* Record the event of what was sampled in the step that has ended. */
bauta_status bt_cuda_sampling_mark(bt_cuda_stream *stream, bauta_error *err);

bauta_status bt_cuda_attention_plan_build(bt_cuda_stream *stream,
                                          bt_attention_plan **plan,
                                          const bt_batch_mask *mask,
                                          bt_plan_use use, bauta_error *err);
void bt_cuda_attention_plan_free(bt_attention_plan *plan);
/* The GPU that a plan is for. */
int bt_cuda_attention_plan_number(const bt_attention_plan *plan);

/* Bytes of a page of one layer. */
size_t bt_cuda_kv_page_bytes(const bt_attention_shape *shape,
                             bauta_dtype dtype);

#endif
