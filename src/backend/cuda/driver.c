/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - opening a GPU. */
#include "backend/cuda/driver.h"

#include "backend/cuda/gpu.h"
#include "backend/cuda/stream.h"

static bauta_status open_stream(bt_stream **out, int number,
                                const bauta_options *options, bauta_error *err)
{
    const bt_gpu *gpu = bt_gpu_table();
    bt_cuda_stream *stream = NULL;
    int device, before;
    (void)options;
    *out = NULL;
    bauta_status status = gpu->find(number, &device, err);
    if (!status)
        status = gpu->enter(device, &before, err);
    if (status)
        return status;
    status = bt_cuda_stream_create(&stream, device, err);
    gpu->leave(before);
    if (!status)
        *out = &stream->base;
    return status;
}

const bt_device_driver bt_cuda_driver = { "cuda", open_stream };
