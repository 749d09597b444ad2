/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - what the kernels must know of the GPU they run on. */
#include "backend/cuda/device.h"

#include "base/error.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>

bauta_status bt_cuda_status(int error)
{
    return error == cudaErrorMemoryAllocation ? BAUTA_ERR_NOMEM
                                              : BAUTA_ERR_DEVICE;
}

/* Devices that were asked before: asking the driver takes microseconds. */
enum { DEVICES = 64, UNKNOWN = 0, WRITING, KNOWN };

static bt_cuda_device devices[DEVICES];
static atomic_int known[DEVICES];

static void device_keep(int device, const bt_cuda_device *on)
{
    int unknown = UNKNOWN;
    if (device >= DEVICES ||
        !atomic_compare_exchange_strong(&known[device], &unknown, WRITING))
        return;
    devices[device] = *on;
    atomic_store_explicit(&known[device], KNOWN, memory_order_release);
}

static bauta_status device_ask(bt_cuda_device *on, int device, bauta_error *err)
{
    int major = 0, minor = 0;
    cudaError_t status = cudaDeviceGetAttribute(
        &major, cudaDevAttrComputeCapabilityMajor, device);
    if (!status)
        status = cudaDeviceGetAttribute(
            &minor, cudaDevAttrComputeCapabilityMinor, device);
    if (!status)
        status = cudaDeviceGetAttribute(&on->multiprocessors,
                                        cudaDevAttrMultiProcessorCount, device);
    if (status)
        return bt_fail(err, BAUTA_ERR_DEVICE, "no GPU: %s",
                       cudaGetErrorString(status));
    if (major * 10 + minor != BT_CAPABILITY)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the GPU has compute capability %d.%d; the kernels are "
                       "for 9.0 (Hopper)",
                       major, minor);

    // The driver's function through the runtime, so that a program need not
    // link the driver to start on a machine without one.
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    status = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (status || found != cudaDriverEntryPointSuccess)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the GPU's driver has no cuTensorMapEncodeTiled");
    on->tensor_map_encode = (bt_tensor_map_encode_fn *)function;
    return BAUTA_OK;
}

bauta_status bt_cuda_device_init(bt_cuda_device *on, bauta_error *err)
{
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error)
        return bt_fail(err, BAUTA_ERR_DEVICE, "no GPU: %s",
                       cudaGetErrorString(error));
    if (device < DEVICES &&
        atomic_load_explicit(&known[device], memory_order_acquire) == KNOWN) {
        *on = devices[device];
        return BAUTA_OK;
    }
    bauta_status status = device_ask(on, device, err);
    if (!status)
        device_keep(device, on);
    return status;
}

bauta_status bt_cuda_check_shape(const bauta_attention_shape *shape,
                                 size_t kv_heads, bauta_error *err)
{
    if (bt_cuda_width(shape->head_dim) == 0)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "no GPU kernel for a head_dim of %zu; there are "
                       "multiples of 8 up to 256",
                       shape->head_dim);
    if (shape->value_dim && shape->value_dim != shape->head_dim)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "no GPU kernel for a value_dim of %zu beside a head_dim "
                       "of %zu",
                       shape->value_dim, shape->head_dim);
    if (shape->heads == 0 || shape->heads % kv_heads)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu kv_heads do not divide %zu heads", kv_heads,
                       shape->heads);
    return BAUTA_OK;
}
