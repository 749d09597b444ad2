/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_nn.cu - large products of the form NN. See gemm_large.h. */
#include "backend/cuda/gemm_large.h"

extern "C" int bt_gemm_large_nn(bt_gemm_tile tile, const bt_gemm_task *task,
                                void *stream)
{
#define LAUNCH(name, ...)                                 \
    case BT_GEMM_##name:                                  \
        return large_launch_any<BT_GEMM_NN, __VA_ARGS__>( \
            task, (cudaStream_t)stream);
    switch (tile) {
        BT_GEMM_TILES(LAUNCH)
    default:
        return cudaErrorInvalidValue;
    }
}
