/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the current GPU. */
#ifndef BT_CUDA_DEVICE_H
#define BT_CUDA_DEVICE_H

#include "bauta.h"

#include <cuda.h>

enum { BT_CAPABILITY = 90 }; /* that the kernels are for: Hopper's 9.0 */

typedef CUresult bt_tensor_map_encode_fn(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
    const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill);

typedef struct bt_cuda_device {
    int multiprocessors;
    bt_tensor_map_encode_fn *tensor_map_encode;
} bt_cuda_device;

/* The columns that the kernels compute for a head of this size: 64, 128, 192 or
 * 256; 0 when there is no kernel for it. */
static inline size_t bt_cuda_width(size_t head_dim)
{
    bool fits = head_dim > 0 && head_dim <= 256 && head_dim % 8 == 0;
    return fits ? (head_dim + 63) / 64 * 64 : 0;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Check that there are kernels for these heads. */
bauta_status bt_cuda_check_shape(const bauta_attention_shape *shape,
                                 size_t kv_heads, bauta_error *err);

/* The status for an error of the CUDA runtime: BAUTA_ERR_NOMEM if the GPU's
 * memory ran out, else BAUTA_ERR_DEVICE. */
bauta_status bt_cuda_status(int error);

/* Fails where the current device is none that the kernels run on. */
bauta_status bt_cuda_device_init(bt_cuda_device *on, bauta_error *err);

#ifdef __cplusplus
}
#endif

#endif
