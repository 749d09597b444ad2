/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - starting kernels. */
#include "backend/cuda/launch.h"

#include "backend/cuda/step_graph.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    SHARED_KERNELS = 512, /* a power of 2 */
    SHARED_GPUS = 16      /* GPUs that the table knows */
};

/* The shared memory that kernels have been allowed on each GPU. Asking for it
 * again before every launch would take a good part of the launch. A row is
 * taken by the first launch of a kernel and kept; where there is no row left,
 * the limit is set every time. */
static struct {
    _Atomic(const void *) function;
    atomic_size_t bytes[SHARED_GPUS];
} allowed[SHARED_KERNELS];

static atomic_size_t *allowed_row(const void *function)
{
    size_t at = (uintptr_t)function / 16;
    for (size_t i = 0; i < SHARED_KERNELS; i++) {
        size_t row = (at + i) % SHARED_KERNELS;
        const void *none = NULL;
        if (atomic_load_explicit(&allowed[row].function,
                                 memory_order_acquire) == function ||
            atomic_compare_exchange_strong(&allowed[row].function, &none,
                                           function) ||
            none == function)
            return allowed[row].bytes;
    }
    return NULL;
}

static cudaError_t allow_shared(const bt_cuda_kernel *kernel)
{
    // A limit never shrinks under a launch of another thread.
    static pthread_mutex_t raising = PTHREAD_MUTEX_INITIALIZER;
    size_t bytes = kernel->shared_limit ? kernel->shared_limit : kernel->shared;
    int gpu = 0;
    if (!bytes) // any more may exceed 48 KB with what the kernel declares
        return cudaSuccess;
    cudaError_t error = cudaGetDevice(&gpu);
    if (error)
        return error;
    atomic_size_t *row =
        gpu < SHARED_GPUS ? allowed_row(kernel->function) : NULL;
    if (row && atomic_load_explicit(&row[gpu], memory_order_acquire) >= bytes)
        return cudaSuccess;
    pthread_mutex_lock(&raising);
    if (!row || atomic_load(&row[gpu]) < bytes)
        error = cudaFuncSetAttribute(
            kernel->function, cudaFuncAttributeMaxDynamicSharedMemorySize,
            (int)bytes);
    if (row && !error && atomic_load(&row[gpu]) < bytes)
        atomic_store_explicit(&row[gpu], bytes, memory_order_release);
    pthread_mutex_unlock(&raising);
    return error;
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

/* ---- Two kernels in one launch ------------------------------------------- */

void bt_cuda_pair_release(bt_cuda_pair *pair)
{
    if (pair->exec)
        cudaGraphExecDestroy((cudaGraphExec_t)pair->exec);
    if (pair->graph)
        cudaGraphDestroy((cudaGraph_t)pair->graph);
    *pair = (bt_cuda_pair){ 0 };
}

static cudaError_t pair_capture(bt_cuda_pair *pair,
                                const bt_cuda_kernel *kernels,
                                void *const *args, cudaStream_t stream)
{
    cudaError_t error =
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error)
        return error;
    for (int i = 0; i < 2 && !error; i++) {
        error = (cudaError_t)bt_cuda_launch_now(
            &kernels[i], args, kernels[i].start == BT_START_EARLY, stream);
        if (!error)
            error = (cudaError_t)bt_cuda_captured_node(stream, &pair->nodes[i]);
    }
    cudaError_t ended =
        cudaStreamEndCapture(stream, (cudaGraph_t *)&pair->graph);
    if (!error)
        error = ended;
    return error ? error
                 : cudaGraphInstantiate((cudaGraphExec_t *)&pair->exec,
                                        (cudaGraph_t)pair->graph, 0);
}

/* Without a graph, where something fails, there are two launches. */
static void pair_create(bt_cuda_pair *pair, const bt_cuda_kernel *kernels,
                        void *const *args)
{
    cudaStream_t stream;
    bt_cuda_pair_release(pair);
    cudaError_t error =
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (!error) {
        error = pair_capture(pair, kernels, args, stream);
        cudaStreamDestroy(stream);
    }
    if (error) {
        cudaGetLastError();
        bt_cuda_pair_release(pair);
    }
    pair->function = kernels[0].function;
    pair->used = true;
    pair->failed = error != cudaSuccess;
}

/* A stream that is being captured records the kernels themselves. */
static bool captures(void *queue)
{
    enum cudaStreamCaptureStatus status;
    if (cudaStreamIsCapturing((cudaStream_t)queue, &status)) {
        cudaGetLastError();
        return true;
    }
    return status != cudaStreamCaptureStatusNone;
}

int bt_cuda_launch_pair(bt_cuda_pair *pair, const bt_cuda_kernel *kernels,
                        void *const *args, const size_t *sizes, size_t count,
                        void *queue)
{
    int error = cudaSuccess;
    bool plain = !pair || bt_cuda_stepping(queue) || captures(queue);
    // A graph takes as long to make as many launches: not for the first call.
    if (!plain && pair->function != kernels[0].function) {
        plain = !pair->used;
        pair->used = true;
        if (!plain)
            pair_create(pair, kernels, args);
    }
    if (plain || pair->failed) {
        for (int i = 0; i < 2 && !error; i++)
            error = bt_cuda_launch(&kernels[i], args, sizes, count, queue);
        return error;
    }
    for (int i = 0; i < 2 && !error; i++)
        error =
            bt_cuda_patch_kernel(pair->exec, pair->nodes[i], &kernels[i], args);
    return error ? error
                 : (int)cudaGraphLaunch((cudaGraphExec_t)pair->exec,
                                        (cudaStream_t)queue);
}
