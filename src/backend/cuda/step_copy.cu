/* SPDX-License-Identifier: Apache-2.0 */
/* step_copy.cu - the uploads of a part of a step: small copies from pinned
 * memory of the host to many places, in one launch. */
#include "backend/cuda/step_graph.h"

#include <cuda_runtime.h>
#include <stdint.h>

enum { THREADS = 256, BLOCKS = 8 }; /* of a copy */

/* A row of the grid to a copy. The host has written the memory since it was
 * last read, so the loads ask for it anew. */
static __global__ void __launch_bounds__(THREADS)
    step_copy(const __grid_constant__ bt_cuda_step_copies copies)
{
    char *to = (char *)copies.item[blockIdx.y].to;
    const char *from = (const char *)copies.item[blockIdx.y].from;
    size_t bytes = copies.item[blockIdx.y].bytes;
    size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
    size_t wide = (uintptr_t)to % 16 ? 0 : bytes / 16;
    for (size_t i = at; i < wide; i += THREADS * BLOCKS)
        ((uint4 *)to)[i] = __ldcv((const uint4 *)from + i);
    for (size_t i = wide * 16 + at; i < bytes; i += THREADS * BLOCKS)
        to[i] = __ldcv(from + i);
}

bt_cuda_kernel bt_cuda_step_copy(size_t count)
{
    bt_cuda_kernel kernel = {};
    kernel.function = (const void *)step_copy;
    kernel.grid[0] = BLOCKS;
    kernel.grid[1] = (unsigned)count;
    kernel.grid[2] = 1;
    kernel.threads = THREADS;
    return kernel;
}
