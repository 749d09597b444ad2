/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - starting kernels. */
#include "backend/cuda/launch.h"

#include "backend/cuda/step_graph.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

enum { SHARED_UNASKED = 48 << 10 }; /* bytes that every kernel may have */

static cudaError_t allow_shared(const bt_cuda_kernel *kernel)
{
    size_t bytes = kernel->shared_limit ? kernel->shared_limit : kernel->shared;
    if (bytes <= SHARED_UNASKED)
        return cudaSuccess;
    return cudaFuncSetAttribute(kernel->function,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)bytes);
}

int bt_cuda_launch_now(const bt_cuda_kernel *kernel, void *const *args,
                       bool early, void *queue)
{
    cudaLaunchAttribute attributes[2];
    unsigned count = 0;
    cudaError_t error = allow_shared(kernel);
    if (error)
        return error;
    if (early) {
        attributes[count].id =
            cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (kernel->cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count].val.clusterDim.x = kernel->cluster;
        attributes[count].val.clusterDim.y = 1;
        attributes[count++].val.clusterDim.z = 1;
    }
    cudaLaunchConfig_t config = {
        .gridDim = { kernel->grid[0], kernel->grid[1], kernel->grid[2] },
        .blockDim = { kernel->threads, 1, 1 },
        .dynamicSmemBytes = kernel->shared,
        .stream = (cudaStream_t)queue,
        .attrs = attributes,
        .numAttrs = count,
    };
    // Arguments are copied, not changed.
    return cudaLaunchKernelExC(&config, kernel->function,
                               (void **)(uintptr_t)args);
}

int bt_cuda_launch(const bt_cuda_kernel *kernel, void *const *args,
                   const size_t *sizes, size_t count, void *queue)
{
    if (bt_cuda_stepping(queue))
        return bt_cuda_step_kernel(kernel, args, sizes, count);
    return bt_cuda_launch_now(kernel, args, kernel->start == BT_START_EARLY,
                              queue);
}
