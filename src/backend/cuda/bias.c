/* SPDX-License-Identifier: Apache-2.0 */
/* bias.c - the softcap and the additive mask of a shape, as kernels read them.
 */
#include "backend/cuda/bias.h"

#include "base/error.h"

#define LOG2_E 1.4426950408889634

bauta_status bt_cuda_bias_init(bt_cuda_bias *bias,
                               const bauta_attention_shape *shape, float scale,
                               bauta_error *err)
{
    const bauta_attention_bias *from = shape->bias;
    double cap = (double)from->softcap;
    if (from->tensor &&
        (from->tensor_row > UINT32_MAX || from->tensor_head > UINT32_MAX))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a bias tensor with strides of %zu and %zu: the GPU "
                       "kernels count in 32 bits",
                       from->tensor_row, from->tensor_head);
    if (from->table && from->distances > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a table of %zu distances: the GPU kernels count in 32 "
                       "bits",
                       from->distances);
    *bias = (bt_cuda_bias){ .slopes = from->slopes,
                            .table = from->table,
                            .positions = from->positions,
                            .head_stride = 1,
                            .row_stride = (uint32_t)shape->heads,
                            .first = (int)from->first_distance,
                            .softcap = from->softcap,
                            .scale = (float)((double)scale * LOG2_E) };
    if (from->table)
        bias->last = (int)from->distances - 1;
    if (from->tensor) {
        bias->table = from->tensor;
        bias->tensor_rows = from->tensor_rows;
        bias->row_stride = (uint32_t)from->tensor_row;
        bias->head_stride = (uint32_t)from->tensor_head;
        bias->last = -1;
    }
    if (from->softcap != 0.0f) {
        bias->tanh_scale = (float)(2.0 * LOG2_E * (double)scale / cap);
        bias->cap = (float)(cap * LOG2_E);
    }
    return BAUTA_OK;
}
