/* SPDX-License-Identifier: Apache-2.0 */
/* kv_renumber.cu - the work list of a step of decoding for every layer: blocks
 * of sequences become pages. See kv_pages.h. */
extern "C" {
#include "base/error.h"
}

#include "backend/cuda/kv_pages.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime.h>

enum { THREADS = 256 };

/* A thread to an element of the list, a row of the grid to a layer. */
template <int STRIDE>
static __global__ void __launch_bounds__(THREADS)
    renumber(int32_t *to, size_t to_stride, const int32_t *from, size_t count,
             const uint32_t *numbers, size_t blocks)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    to += blockIdx.y * to_stride + i * STRIDE;
    from += i * STRIDE;
    numbers += blockIdx.y * blocks;
    int32_t block = from[0];
    to[0] =
        block < 0 || block >= (int64_t)blocks ? block : (int32_t)numbers[block];
    if (STRIDE == 2)
        to[1] = from[1];
}

extern "C" bauta_status bt_cuda_kv_renumber(int32_t *to, size_t to_stride,
                                            const int32_t *from, size_t count,
                                            int stride, const uint32_t *numbers,
                                            size_t layers, size_t blocks,
                                            void *stream, bauta_error *err)
{
    if (!count || !layers)
        return BAUTA_OK;
    dim3 grid((unsigned)((count + THREADS - 1) / THREADS), (unsigned)layers);
    if (stride == 2)
        launch_kernel(renumber<2>, grid, THREADS, 0, BT_START_AFTER, stream, to,
                      to_stride, from, count, numbers, blocks);
    else
        launch_kernel(renumber<1>, grid, THREADS, 0, BT_START_AFTER, stream, to,
                      to_stride, from, count, numbers, blocks);
    cudaError_t error = cudaGetLastError();
    if (error)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot renumber the pages of a step: %s",
                       cudaGetErrorString(error));
    return BAUTA_OK;
}
