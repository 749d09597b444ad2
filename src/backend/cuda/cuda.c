/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - the table of a GPU: streams, buffers, plans, and what is
 * supported. Every function here makes the stream's GPU the current one and
 * puts back what the caller's thread had.
 *
 * Activations are bfloat16 or float32; the gradients of parameters are float32
 * always. An operation goes by the types of its tensors. */
#include "backend/cuda/device.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/stream.h"
#include "base/error.h"

#include <cuda_runtime_api.h>

/* ---- The current GPU --------------------------------------------------- */

static bauta_status enter(int number, int *before, bauta_error *err)
{
    return bt_gpu_table()->enter(number, before, err);
}

static void leave(int before)
{
    bt_gpu_table()->leave(before);
}

/* Run a call that gives a status on the stream's GPU, which is the current one
 * in a step. */
#define ON_GPU(stream, err, call)                                   \
    do {                                                            \
        int before;                                                 \
        if (bt_cuda_stepping(bt_cuda_stream_of(stream)->queue))     \
            return call;                                            \
        bauta_status gpu_status =                                   \
            enter(bt_cuda_stream_of(stream)->number, &before, err); \
        if (gpu_status)                                             \
            return gpu_status;                                      \
        gpu_status = call;                                          \
        leave(before);                                              \
        return gpu_status;                                          \
    } while (0)

/* The same, after what the stream holds. */
static bauta_status after_held(bt_stream *stream, bauta_error *err)
{
    return bt_cuda_held_queue(bt_cuda_stream_of(stream), err);
}

#define ON_GPU_AFTER_HELD(stream, err, call)                \
    do {                                                    \
        bauta_status held_status = after_held(stream, err); \
        if (held_status)                                    \
            return held_status;                             \
        ON_GPU(stream, err, call);                          \
    } while (0)

/* ---- Streams ----------------------------------------------------------- */

static void stream_free(bt_stream *stream)
{
    int before;
    if (!stream || enter(bt_cuda_stream_of(stream)->number, &before, NULL))
        return;
    bt_cuda_stream_free(bt_cuda_stream_of(stream));
    leave(before);
}

static bauta_status sync_stream(bt_stream *stream, bauta_error *err)
{
    ON_GPU_AFTER_HELD(stream, err,
                      bt_cuda_stream_wait(bt_cuda_stream_of(stream), err));
}

/* ---- Steps ------------------------------------------------------------- */

/* Where it cannot begin, the work is queued as outside of steps. */
static void step_begin(bt_stream *base, uint64_t kind)
{
    bt_cuda_stream *stream = bt_cuda_stream_of(base);
    int before;
    if (bt_cuda_step_number() || enter(stream->number, &before, NULL))
        return;
    if (!stream->steps)
        stream->steps = bt_cuda_steps_create();
    if (stream->steps && bt_cuda_step_begin(stream->steps, stream->queue, kind))
        stream->before = before;
    else
        leave(before);
}

static bauta_status step_end(bt_stream *base, bauta_error *err)
{
    bt_cuda_stream *stream = bt_cuda_stream_of(base);
    if (!bt_cuda_stepping(stream->queue))
        return BAUTA_OK;
    bauta_status status = bt_cuda_held_queue(stream, err);
    int error = bt_cuda_step_end(stream->steps);
    if (!status)
        status = error ? bt_cuda_failed(error, "a step of decoding failed", err)
                       : BAUTA_OK;
    bauta_status marked = bt_cuda_sampling_mark(stream, status ? NULL : err);
    leave(stream->before);
    return status ? status : marked;
}

/* ---- Sampling in two parts --------------------------------------------- */

static bauta_status sample_queue(bt_stream *stream, bt_sampling **sampling,
                                 const bt_sample_args *args, bt_tensor *tokens,
                                 bauta_error *err)
{
    ON_GPU_AFTER_HELD(stream, err,
                      bt_cuda_sample_queue(bt_cuda_stream_of(stream), sampling,
                                           args, tokens, err));
}

static bauta_status sample_read(bt_stream *stream, bt_sampling *sampling,
                                const bt_sample_args *args, bauta_error *err)
{
    ON_GPU(stream, err,
           bt_cuda_sample_read(bt_cuda_stream_of(stream), sampling, args, err));
}

static void sampling_free(bt_sampling *sampling)
{
    int before;
    if (!sampling || enter(bt_cuda_sampling_number(sampling), &before, NULL))
        return;
    bt_cuda_sampling_free(sampling);
    leave(before);
}

/* ---- Buffers ----------------------------------------------------------- */

static bauta_status alloc_memory(void **out, size_t bytes, bauta_error *err)
{
    cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    if (!error)
        return BAUTA_OK;
    *out = NULL;
    cudaGetLastError();
    return bt_fail(err, bt_cuda_status(error), "%zu bytes on the GPU: %s",
                   bytes, cudaGetErrorString(error));
}

static bauta_status buffer_alloc(bt_stream *stream, bt_buffer *out,
                                 size_t bytes, bauta_error *err)
{
    *out = (bt_buffer){ &bt_cuda_backend, NULL, bytes };
    ON_GPU(stream, err, alloc_memory(&out->memory, bytes, err));
}

/* An address says which GPU it is on. */
static void buffer_free(bt_buffer *buffer)
{
    bt_cuda_held_leave();
    bt_cuda_step_leave();
    if (buffer->memory && cudaFree(buffer->memory))
        cudaGetLastError();
    *buffer = (bt_buffer){ 0 };
}

static bauta_status upload(bt_stream *stream, const bt_buffer *to,
                           size_t offset, const void *from, size_t bytes,
                           bauta_error *err)
{
    ON_GPU_AFTER_HELD(stream, err,
                      bt_cuda_stream_upload(bt_cuda_stream_of(stream),
                                            (char *)to->memory + offset, from,
                                            bytes, err));
}

static bauta_status download(bt_stream *stream, void *to, const bt_buffer *from,
                             size_t offset, size_t bytes, bauta_error *err)
{
    ON_GPU_AFTER_HELD(stream, err,
                      bt_cuda_stream_download(
                          bt_cuda_stream_of(stream), to,
                          (const char *)from->memory + offset, bytes, err));
}

static bauta_status fill(bt_stream *stream, const bt_buffer *to, size_t offset,
                         unsigned char value, size_t bytes, bauta_error *err)
{
    ON_GPU_AFTER_HELD(stream, err,
                      bt_cuda_stream_fill(bt_cuda_stream_of(stream),
                                          (char *)to->memory + offset, value,
                                          bytes, err));
}

/* ---- Plans ------------------------------------------------------------- */

static bauta_status plan_build(bt_stream *stream, bt_attention_plan **plan,
                               const bt_batch_mask *mask, bt_plan_use use,
                               bauta_error *err)
{
    ON_GPU_AFTER_HELD(stream, err,
                      bt_cuda_attention_plan_build(bt_cuda_stream_of(stream),
                                                   plan, mask, use, err));
}

static void plan_free(bt_attention_plan *plan)
{
    int before;
    if (!plan || enter(bt_cuda_attention_plan_number(plan), &before, NULL))
        return;
    bt_cuda_attention_plan_free(plan);
    leave(before);
}

/* ---- What is supported ------------------------------------------------- */

enum {
    NORM_COLUMNS = 16384, /* of a head */
    ROTARY_DIM = 1024,
    F32_HEAD_DIM = 256,
    VOCAB = 512 * 1024
};

static bool attention_fits(bauta_dtype dtype, size_t head_dim)
{
    return dtype == BAUTA_BFLOAT16 ? bt_cuda_width(head_dim) > 0
                                   : head_dim <= F32_HEAD_DIM;
}

static bool shape_fits(bt_op op, bauta_dtype dtype, const bt_op_shape *s)
{
    size_t width = s->heads ? s->columns / s->heads : s->columns;
    switch (op) {
    case BT_OP_norm:
    case BT_OP_norm_grad:
        return width <= NORM_COLUMNS;
    case BT_OP_rotary:
        return s->head_dim % 2 == 0 && s->head_dim <= ROTARY_DIM;
    case BT_OP_attention:
    case BT_OP_attention_grad:
    case BT_OP_kv_write:
    case BT_OP_kv_copy:
    case BT_OP_paged_attention:
        return !s->head_dim || attention_fits(dtype, s->head_dim);
    case BT_OP_cross_entropy:
    case BT_OP_logprobs:
        return s->columns <= VOCAB;
    default:
        return true;
    }
}

/* A number of 0 in the shape is not known. */
static bool supports(const bt_stream *stream, bt_op op, bauta_dtype dtype,
                     const bt_op_shape *shape)
{
    (void)stream;
    if (dtype != BAUTA_FLOAT32 && dtype != BAUTA_BFLOAT16)
        return false;
    if (op == BT_OP_ema && dtype != BAUTA_FLOAT32)
        return false;
    return !shape || shape_fits(op, dtype, shape);
}

/* ---- The table --------------------------------------------------------- */

/* These may be carried out together with what the stream holds. */
#define GOES_WITH_HELD(op) ((op) == BT_OP_linear || (op) == BT_OP_act)

#define ENTRY(name)                                                        \
    static bauta_status run_##name(                                        \
        bt_stream *stream, const bt_##name##_args *args, bauta_error *err) \
    {                                                                      \
        bauta_status status = BAUTA_OK;                                    \
        if (!GOES_WITH_HELD(BT_OP_##name))                                 \
            status = bt_cuda_held_queue(bt_cuda_stream_of(stream), err);   \
        if (status)                                                        \
            return status;                                                 \
        ON_GPU(stream, err,                                                \
               bt_cuda_op_##name(bt_cuda_stream_of(stream), args, err));   \
    }
BT_OP_MAP(ENTRY)

#define SLOT(name) .name = run_##name,
const bt_backend bt_cuda_backend = {
    .name = "cuda",
    // A chunk of the sum over rows of gemm.h, so that dW of a batch in parts
    // is that of the whole.
    .logits_rows = BT_GEMM_ROW_CHUNK,
    .strided = true,
    .fusions = BT_FUSE_LINEAR_ACT | BT_FUSE_ADD_NORM | BT_FUSE_ROTARY_KV_WRITE |
               BT_FUSE_KV_WRITE_ATTENTION,
    .stream_free = stream_free,
    .sync = sync_stream,
    .step_begin = step_begin,
    .step_end = step_end,
    .sample_queue = sample_queue,
    .sample_read = sample_read,
    .sampling_free = sampling_free,
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = upload,
    .download = download,
    .fill = fill,
    .plan_build = plan_build,
    .plan_free = plan_free,
    .kv_page_bytes = bt_cuda_kv_page_bytes,
    .supports = supports,
    BT_OP_MAP(SLOT)
};
