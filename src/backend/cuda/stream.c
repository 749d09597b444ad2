/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - the queue, the staging memory and the workspace of a stream. */
#include "backend/cuda/stream.h"

#include "backend/cuda/device.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

enum {
    STAGING_HALF = 4 << 20, /* bytes */
    STAGING_ALIGN = 64,
    LANDING_BYTES = 64 << 10
};

bauta_status bt_cuda_failed(int error, const char *what, bauta_error *err)
{
    cudaGetLastError(); // reported; the next call starts without an error
    return bt_fail(err, bt_cuda_status(error), "%s: %s", what,
                   cudaGetErrorString((cudaError_t)error));
}

/* ---- Memory of the GPU ------------------------------------------------- */

bauta_status bt_cuda_block_reserve(bt_cuda_block *block, size_t bytes,
                                   bool *grown, bauta_error *err)
{
    if (grown)
        *grown = false;
    if (block->memory && bytes <= block->bytes)
        return BAUTA_OK;
    bt_cuda_block_release(block);
    // Batches differ a little: a quarter more saves the next few calls.
    bytes = bt_size_round(bt_size_add(bytes, bytes / 4 + 1), 4096);
    cudaError_t error = cudaMalloc(&block->memory, bytes);
    if (error) {
        block->memory = NULL;
        cudaGetLastError();
        return bt_fail(err, bt_cuda_status(error), "%zu bytes on the GPU: %s",
                       bytes, cudaGetErrorString(error));
    }
    block->bytes = bytes;
    if (grown)
        *grown = true;
    return BAUTA_OK;
}

void bt_cuda_block_release(bt_cuda_block *block)
{
    if (block->memory)
        bt_cuda_step_leave();
    cudaFree(block->memory); // waits for those who use it
    *block = (bt_cuda_block){ 0 };
}

bauta_status bt_cuda_stream_scratch(bt_cuda_stream *stream, void **out,
                                    size_t bytes, bauta_error *err)
{
    bauta_status status =
        bt_cuda_block_reserve(&stream->scratch, bytes, NULL, err);
    *out = stream->scratch.memory;
    return status;
}

/* ---- Copies ------------------------------------------------------------ */

static bauta_status staging_init(bt_cuda_staging *staging, bauta_error *err)
{
    cudaError_t error =
        cudaMallocHost((void **)&staging->memory, 2 * (size_t)STAGING_HALF);
    if (error)
        staging->memory = NULL;
    for (int i = 0; i < 2 && !error; i++)
        error = cudaEventCreateWithFlags((cudaEvent_t *)&staging->read[i],
                                         cudaEventDisableTiming);
    return error ? bt_cuda_failed(error, "cannot allocate pinned memory", err)
                 : BAUTA_OK;
}

static void staging_release(bt_cuda_staging *staging)
{
    for (int i = 0; i < 2; i++)
        if (staging->read[i])
            cudaEventDestroy((cudaEvent_t)staging->read[i]);
    cudaFreeHost(staging->memory);
}

/* Go on with the other half once it was read. */
static cudaError_t staging_turn(bt_cuda_stream *stream)
{
    bt_cuda_staging *staging = &stream->staging;
    cudaError_t error = cudaEventRecord(
        (cudaEvent_t)staging->read[staging->half], (cudaStream_t)stream->queue);
    if (error)
        return error;
    staging->half = !staging->half;
    staging->used = 0;
    return cudaEventSynchronize((cudaEvent_t)staging->read[staging->half]);
}

/* At most a half at once. */
static cudaError_t upload_part(bt_cuda_stream *stream, void *to,
                               const void *from, size_t bytes)
{
    bt_cuda_staging *staging = &stream->staging;
    cudaError_t error = cudaSuccess;
    bool done = false;
    if (bt_cuda_stepping(stream->queue))
        error = (cudaError_t)bt_cuda_step_upload(to, from, bytes, &done);
    if (error || done)
        return error;
    if (bytes > STAGING_HALF - staging->used)
        error = staging_turn(stream);
    if (error)
        return error;
    unsigned char *at =
        staging->memory + (size_t)staging->half * STAGING_HALF + staging->used;
    memcpy(at, from, bytes);
    staging->used = bt_size_min(
        bt_size_round(staging->used + bytes, STAGING_ALIGN), STAGING_HALF);
    return cudaMemcpyAsync(to, at, bytes, cudaMemcpyHostToDevice,
                           (cudaStream_t)stream->queue);
}

bauta_status bt_cuda_stream_upload(bt_cuda_stream *stream, void *to,
                                   const void *from, size_t bytes,
                                   bauta_error *err)
{
    for (size_t done = 0; done < bytes;) {
        size_t part = bt_size_min(bytes - done, STAGING_HALF);
        cudaError_t error = upload_part(stream, (char *)to + done,
                                        (const char *)from + done, part);
        if (error)
            return bt_cuda_failed(error, "cannot copy to the GPU", err);
        done += part;
    }
    return BAUTA_OK;
}

static bauta_status wait_now(bt_cuda_stream *stream, bauta_error *err)
{
    cudaError_t error = cudaStreamSynchronize((cudaStream_t)stream->queue);
    if (error)
        return bt_cuda_failed(error, "the GPU's work failed", err);
    bt_cuda_steps_waited(stream->steps);
    return BAUTA_OK;
}

bauta_status bt_cuda_stream_download(bt_cuda_stream *stream, void *to,
                                     const void *from, size_t bytes,
                                     bauta_error *err)
{
    if (!bytes)
        return BAUTA_OK;
    bool small = bytes <= LANDING_BYTES;
    cudaError_t error = cudaSuccess;
    if (bt_cuda_stepping(stream->queue))
        error = (cudaError_t)bt_cuda_step_wait();
    if (!error)
        error = cudaMemcpyAsync(small ? stream->landing : to, from, bytes,
                                cudaMemcpyDeviceToHost,
                                (cudaStream_t)stream->queue);
    if (error)
        return bt_cuda_failed(error, "cannot copy from the GPU", err);
    bauta_status status = wait_now(stream, err);
    if (!status && small)
        memcpy(to, stream->landing, bytes);
    return status;
}

bauta_status bt_cuda_stream_fill(bt_cuda_stream *stream, void *to, int value,
                                 size_t bytes, bauta_error *err)
{
    cudaError_t error = cudaSuccess;
    if (bytes && bt_cuda_stepping(stream->queue))
        error = (cudaError_t)bt_cuda_step_fill(to, value, bytes);
    else if (bytes)
        error = cudaMemsetAsync(to, value, bytes, (cudaStream_t)stream->queue);
    return error ? bt_cuda_failed(error, "cannot fill memory of the GPU", err)
                 : BAUTA_OK;
}

bauta_status bt_cuda_stream_wait(bt_cuda_stream *stream, bauta_error *err)
{
    int error = bt_cuda_stepping(stream->queue) ? bt_cuda_step_wait() : 0;
    return error ? bt_cuda_failed(error, "the GPU's work failed", err)
                 : wait_now(stream, err);
}

/* ---- Streams ----------------------------------------------------------- */

bauta_status bt_cuda_stream_create(bt_cuda_stream **out, int number,
                                   bauta_error *err)
{
    bt_cuda_device device;
    *out = NULL;
    bauta_status status = bt_cuda_device_init(&device, err);
    if (status)
        return status;
    bt_cuda_stream *stream = bt_alloc_zero(1, sizeof(*stream));
    if (!stream)
        return bt_fail_memory(err, "a stream", sizeof(*stream));
    stream->base.backend = &bt_cuda_backend;
    stream->base.dtype = BAUTA_BFLOAT16; // float32 is for the caller to set
    snprintf(stream->base.device, sizeof(stream->base.device), "cuda:%d",
             number);
    stream->number = number;
    cudaError_t error = cudaStreamCreateWithFlags(
        (cudaStream_t *)&stream->own_queue, cudaStreamNonBlocking);
    if (error)
        stream->own_queue = NULL;
    stream->queue = stream->own_queue;
    if (!error)
        error = cudaMallocHost((void **)&stream->landing, LANDING_BYTES);
    if (error)
        status = bt_cuda_failed(error, "cannot make a stream", err);
    if (!status)
        status = staging_init(&stream->staging, err);
    if (status) {
        bt_cuda_stream_free(stream);
        return status;
    }
    *out = stream;
    return BAUTA_OK;
}

void bt_cuda_stream_free(bt_cuda_stream *stream)
{
    if (!stream)
        return;
    if (stream->queue)
        cudaStreamSynchronize((cudaStream_t)stream->queue);
    bt_cuda_steps_free(stream->steps);
    staging_release(&stream->staging);
    cudaFreeHost(stream->landing);
    bt_cuda_block_release(&stream->products);
    bt_cuda_block_release(&stream->scratch);
    bt_cuda_block_release(&stream->adamw.memory);
    bt_free(stream->adamw.slots);
    for (size_t i = 0; i < BT_CUDA_KV_STEPS; i++)
        bt_cuda_kv_step_release(&stream->kv_steps[i]);
    bt_cuda_sampling_release(&stream->sampling);
    if (stream->own_queue)
        cudaStreamDestroy((cudaStream_t)stream->own_queue);
    cudaGetLastError();
    bt_free(stream);
}

bauta_status bt_cuda_stream_use(bt_stream *base, void *queue, bauta_error *err)
{
    bt_cuda_stream *stream = bt_cuda_stream_of(base);
    bauta_status status = bt_cuda_stream_wait(stream, err);
    if (!status)
        stream->queue = queue;
    return status;
}

/* ---- Types ------------------------------------------------------------- */

bauta_status bt_cuda_need_here(const bt_cuda_stream *stream, bt_op op,
                               const bt_tensor *const *tensors, size_t count,
                               bauta_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const bt_buffer *buffer = tensors[i] ? tensors[i]->buffer : NULL;
        if (buffer && buffer->backend != &bt_cuda_backend)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s: a tensor of the device \"%s\" on \"%s\"",
                           bt_op_name(op), buffer->backend->name,
                           stream->base.device);
    }
    return BAUTA_OK;
}

bauta_status bt_cuda_need_f32(const bt_cuda_stream *stream, bt_op op,
                              const bt_tensor *t, bauta_error *err)
{
    if (t && t->dtype != BAUTA_FLOAT32)
        return bt_unsupported(&stream->base, op, t->dtype, err);
    return bt_cuda_need_here(stream, op, &t, 1, err);
}

bauta_status bt_cuda_need_same(const bt_cuda_stream *stream, bt_op op,
                               const bt_tensor *const *tensors, size_t count,
                               bauta_error *err)
{
    bauta_dtype dtype = tensors[0]->dtype;
    if (dtype != BAUTA_FLOAT32 && dtype != BAUTA_BFLOAT16)
        return bt_unsupported(&stream->base, op, dtype, err);
    for (size_t i = 1; i < count; i++)
        if (tensors[i] && tensors[i]->dtype != dtype)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "the device \"%s\" has no %s of %s and %s",
                           stream->base.device, bt_op_name(op),
                           bt_dtype_name(dtype),
                           bt_dtype_name(tensors[i]->dtype));
    return bt_cuda_need_here(stream, op, tensors, count, err);
}
