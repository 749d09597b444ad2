/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_tn.cu - large products of the form TN. See gemm_large.h. */
#include "backend/cuda/gemm_large.h"

extern "C" int bt_gemm_large_tn(bt_gemm_tile tile, const bt_gemm_task *task,
                                void *stream)
{
#define LAUNCH(name, ...)                                 \
    case BT_GEMM_##name:                                  \
        return large_launch_any<BT_GEMM_TN, __VA_ARGS__>( \
            task, (cudaStream_t)stream);
    switch (tile) {
        BT_GEMM_TILES(LAUNCH)
    default:
        return cudaErrorInvalidValue;
    }
}
