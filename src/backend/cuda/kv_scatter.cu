/* SPDX-License-Identifier: Apache-2.0 */
/* kv_scatter.cu - writing float32 heads of any size to pages. Those that the
 * attention kernels are fast for go through bt_cuda_kv_write(). */
extern "C" {
#include "base/error.h"
}

#include "backend/cuda/hopper.h"
#include "backend/cuda/kv_pages.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime.h>

enum { THREADS = 128 };

/* A block to a row; its threads share the columns. */
static __global__ void __launch_bounds__(THREADS)
    scatter(float *to, bt_cuda_page_out pages, const bt_cuda_kv_place *places,
            const float *from, size_t stride, int columns, int dim)
{
    grid_begin();
    bt_cuda_kv_place place = places[blockIdx.x];
    if (place.page == UINT32_MAX)
        return;
    to += place.page * pages.page + place.slot * pages.token;
    from += blockIdx.x * stride;
    for (int c = threadIdx.x; c < columns; c += THREADS)
        to[c / dim * pages.head + c % dim] = from[c];
}

extern "C" bauta_status bt_cuda_kv_scatter(size_t rows, size_t kv_heads,
                                           size_t dim, size_t value_dim,
                                           bt_cuda_in k, bt_cuda_in v,
                                           bt_cuda_page_out pages,
                                           const bt_cuda_kv_place *places,
                                           void *stream, bauta_error *err)
{
    if (!rows || !kv_heads)
        return BAUTA_OK;
    launch_kernel(scatter, (unsigned)rows, THREADS, 0, BT_START_EARLY_IN_STEP,
                  stream, (float *)pages.k, pages, places,
                  (const float *)k.data, k.stride, (int)(kv_heads * dim),
                  (int)dim);
    launch_kernel(scatter, (unsigned)rows, THREADS, 0, BT_START_EARLY_IN_STEP,
                  stream, (float *)pages.v, pages, places,
                  (const float *)v.data, v.stride, (int)(kv_heads * value_dim),
                  (int)value_dim);
    cudaError_t error = cudaGetLastError();
    if (error)
        return bt_fail(err, BAUTA_ERR_DEVICE, "cannot write to pages: %s",
                       cudaGetErrorString(error));
    return BAUTA_OK;
}
