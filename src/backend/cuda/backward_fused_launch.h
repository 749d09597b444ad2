/* SPDX-License-Identifier: Apache-2.0 */
/* backward_fused_launch.h - launching the kernels for dense documents. */
#ifndef BT_CUDA_BACKWARD_FUSED_LAUNCH_H
#define BT_CUDA_BACKWARD_FUSED_LAUNCH_H

#include "backend/cuda/backward_finish_dq.h"
#include "backend/cuda/backward_fused_large.h"

/* The kernel for heads of D columns, its threads, and what they share. */
template <int D, int FIXUP, bool LARGE = (D > 128)> struct fused_kernel {
    typedef fused_shared<D, 3> shared;
    static constexpr unsigned threads = GROUP * (fused_layout<D>::groups + 1);
    static constexpr auto function = attention_backward_fused<D, 3, FIXUP>;
};

template <int D, int FIXUP> struct fused_kernel<D, FIXUP, true> {
    typedef fused_large_shared<D> shared;
    static constexpr unsigned threads = GROUP * (LARGE_GROUPS + 1);
    static constexpr auto function = attention_backward_fused_large<D, FIXUP>;
};

/* A launch whose prologue may overlap the previous kernel. */
template <typename PARAMS>
static cudaError_t launch_early(void (*kernel)(PARAMS), const PARAMS *params,
                                unsigned blocks, unsigned threads, int bytes,
                                cudaStream_t stream)
{
    cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status)
        return status;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = (size_t)bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, *params);
}

/* One kernel for the gradients of dense documents, after delta, and those that
 * round dQ. */
template <int D, int FIXUP>
static cudaError_t launch_fused(const backward_params *p, int blocks,
                                const finish_params *f, int finish_blocks,
                                cudaStream_t stream)
{
    typedef fused_kernel<D, FIXUP> kernel;
    const int bytes = sizeof(typename kernel::shared);
    static_assert(bytes <= 227 * 1024, "shared memory of a block");
    cudaError_t status = cudaSuccess;
    if (blocks)
        status = launch_early(kernel::function, p, (unsigned)blocks,
                              kernel::threads, bytes, stream);
    if constexpr (finishes_early<D> && !FIXUP)
        if (!status && blocks)
            status =
                launch_early(attention_finish_dq_early<D>, f,
                             (unsigned)blocks * EARLY_BLOCKS, 32, 0, stream);
    if (!status && finish_blocks)
        status = launch_early(attention_finish_dq<D, FIXUP>, f,
                              (unsigned)finish_blocks, 256, 0, stream);
    return status;
}

/* And what is not finite, once more. */
template <int D>
static cudaError_t launch_one(const backward_params *p, int blocks,
                              const finish_params *f, int finish_blocks,
                              cudaStream_t stream)
{
    cudaError_t status =
        launch_fused<D, 0>(p, blocks, f, finish_blocks, stream);
    if (!status)
        status = launch_fused<D, 1>(p, blocks, f, finish_blocks, stream);
    return status;
}

#endif
