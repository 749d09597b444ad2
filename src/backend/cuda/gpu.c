/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - the table of a library that was built with CUDA.
 *
 * The runtime is linked in and looks for the driver when it is first asked for
 * something, so all of this may also be called where there is none. */
#include "backend/cuda/gpu.h"

#include "backend/cuda/device.h"
#include "base/error.h"

#include <cuda_runtime_api.h>

static bauta_status failed(cudaError_t status, const char *what,
                           bauta_error *err)
{
    cudaGetLastError(); // reported; the next call starts without an error
    return bt_fail(err, BAUTA_ERR_DEVICE, "%s: %s", what,
                   cudaGetErrorString(status));
}

/* How many devices there are, of whatever kind. */
static cudaError_t devices(int *count)
{
    *count = 0;
    cudaError_t status = cudaGetDeviceCount(count);
    if (status) {
        cudaGetLastError();
        *count = 0;
    }
    return status;
}

/* The compute capability, 90 being 9.0; 0 when it is unknown. */
static int capability(int device)
{
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                               device) ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                               device)) {
        cudaGetLastError();
        return 0;
    }
    return major * 10 + minor;
}

static size_t gpu_count(void)
{
    int all;
    size_t usable = 0;
    devices(&all);
    for (int i = 0; i < all; i++)
        usable += capability(i) == BT_CAPABILITY;
    return usable;
}

static bauta_status gpu_find(int number, int *device, bauta_error *err)
{
    int all, seen = 0, driver = 0;
    cudaError_t status = devices(&all);
    if (status && cudaDriverGetVersion(&driver) == cudaSuccess && !driver)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "there is no GPU: NVIDIA's driver is not here");
    if (status)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "there is no GPU that can be used: %s",
                       cudaGetErrorString(status));
    if (number >= all)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "there is no device \"cuda:%d\": CUDA shows %d GPU%s",
                       number, all, all == 1 ? "" : "s");
    for (int i = number < 0 ? 0 : number; i < (number < 0 ? all : number + 1);
         i++) {
        seen = capability(i);
        if (seen == BT_CAPABILITY) {
            *device = i;
            return BAUTA_OK;
        }
    }
    if (!all)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED, "CUDA shows no GPU");
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "the GPU has compute capability %d.%d; the kernels are for "
                   "9.0 (Hopper)",
                   seen / 10, seen % 10);
}

enum { SAME_DEVICE = -1 }; /* there is nothing to put back */

/* The device is set in any case: that gives a thread its context. */
static bauta_status gpu_enter(int device, int *before, bauta_error *err)
{
    cudaError_t status = cudaGetDevice(before);
    if (!status)
        status = cudaSetDevice(device);
    if (status)
        return failed(status, "cannot use the GPU", err);
    if (*before == device)
        *before = SAME_DEVICE;
    return BAUTA_OK;
}

static void gpu_leave(int before)
{
    if (before != SAME_DEVICE)
        cudaSetDevice(before);
}

static bauta_status gpu_alloc(void **out, size_t bytes, bauta_error *err)
{
    cudaError_t status = cudaMalloc(out, bytes ? bytes : 1);
    if (!status)
        return BAUTA_OK;
    *out = NULL;
    if (status != cudaErrorMemoryAllocation)
        return failed(status, "cannot allocate on the GPU", err);
    cudaGetLastError();
    return bt_fail(err, BAUTA_ERR_NOMEM, "out of the GPU's memory: %zu bytes",
                   bytes);
}

static void gpu_free(void *memory)
{
    if (cudaFree(memory))
        cudaGetLastError();
}

static bauta_status gpu_wait(void *stream, bauta_error *err)
{
    cudaError_t status = cudaStreamSynchronize((cudaStream_t)stream);
    return status ? failed(status, "the GPU's work failed", err) : BAUTA_OK;
}

static bauta_status gpu_copy(void *to, const void *from, size_t bytes,
                             bool to_gpu, void *stream, bauta_error *err)
{
    cudaError_t status = cudaMemcpyAsync(to, from, bytes,
                                         to_gpu ? cudaMemcpyHostToDevice
                                                : cudaMemcpyDeviceToHost,
                                         (cudaStream_t)stream);
    if (status)
        return failed(status,
                      to_gpu ? "cannot copy to the GPU"
                             : "cannot copy from the GPU",
                      err);
    return gpu_wait(stream, err);
}

const bt_gpu *bt_gpu_table(void)
{
    static const bt_gpu table = {
        .count = gpu_count,
        .find = gpu_find,
        .enter = gpu_enter,
        .leave = gpu_leave,
        .alloc = gpu_alloc,
        .free = gpu_free,
        .copy = gpu_copy,
        .wait = gpu_wait,
        .plan_create = bt_cuda_plan_create,
        .plan_update = bt_cuda_plan_update,
        .plan_free = bt_cuda_plan_free,
        .forward_bf16 = bt_attention_forward_bf16_cuda,
        .backward_bf16 = bt_attention_backward_bf16_cuda,
        .rows_create = bt_cuda_rows_create,
        .rows_free = bt_cuda_rows_free,
        .forward_f32 = bt_attention_forward_f32_cuda,
        .backward_f32 = bt_attention_backward_f32_cuda,
        .decode_create = bt_cuda_decode_create,
        .decode_free = bt_cuda_decode_free,
        .decode_step = bt_cuda_decode_step,
        .decode_bf16 = bt_attention_decode_bf16_cuda,
        .rows_of_step = bt_cuda_rows_of_step,
        .decode_f32 = bt_attention_decode_f32_cuda,
    };
    return &table;
}
