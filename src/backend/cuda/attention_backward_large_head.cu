/* SPDX-License-Identifier: Apache-2.0 */
/* attention_backward_large_head.cu - the backward pass with heads of 192 and
 * 256, but for dense documents (attention_backward_fused_large.cu).
 *
 * The program of attention_backward.cu, but a thread has registers for one sum
 * of such a head. So dK and dV have a kernel each, with the same items, one
 * after the other: eight products instead of seven. A block has memory for one
 * buffer of stationary tiles, with heads of 256 for those of one group, whose
 * tiles are then 64 rows; and for three stages of steps, but (dV, which keeps
 * only keys, apart) for two of their second halves. */
#include "backend/cuda/backward_kernel.h"

/* A kernel and its fix-up kernel. They share the tile counter and the fix-up
 * flags with the other kernels of the same side, so they run one by one. */
template <int D, int GROUPS, int KEYS, int BIAS>
static cudaError_t launch_pair(const backward_params *params, int blocks,
                               cudaStream_t stream)
{
    if (!blocks)
        return cudaSuccess;
    cudaError_t status =
        launch<D, GROUPS, 3, KEYS, BIAS>(params, blocks, false, stream);
    if (!status)
        status = launch<D, GROUPS, 3, KEYS, FIXUP | BIAS>(params, blocks, false,
                                                          stream);
    return status;
}

template <int D, int GROUPS, int BIAS>
static cudaError_t launch_large_head(const backward_params *dq, int dq_blocks,
                                     const backward_params *dkv, int dkv_blocks,
                                     cudaStream_t stream)
{
    cudaError_t status =
        launch_pair<D, GROUPS, MAKES_DQ, BIAS>(dq, dq_blocks, stream);
    if (!status)
        status =
            launch_pair<D, GROUPS, MAKES_DK, BIAS>(dkv, dkv_blocks, stream);
    if (!status)
        status =
            launch_pair<D, GROUPS, MAKES_DV, BIAS>(dkv, dkv_blocks, stream);
    return status;
}

template <int BIAS>
static cudaError_t launch_width(int width, const backward_params *dq,
                                int dq_blocks, const backward_params *dkv,
                                int dkv_blocks, cudaStream_t stream)
{
    return width == 192 ? launch_large_head<192, 2, BIAS>(dq, dq_blocks, dkv,
                                                          dkv_blocks, stream)
                        : launch_large_head<256, 1, BIAS>(dq, dq_blocks, dkv,
                                                          dkv_blocks, stream);
}

extern "C" cudaError_t bt_launch_backward_large_head(
    const delta_params *delta, int width, size_t steps,
    const backward_params *dq, int dq_blocks, const backward_params *dkv,
    int dkv_blocks, bt_bias_kind bias, cudaStream_t stream)
{
    cudaError_t status = cudaSuccess;
    if (steps)
        status = bt_launch_delta(delta, width, steps, stream);
    if (status)
        return status;
    if (bias == BT_BIAS_TENSOR)
        return launch_width<BIASED | TENSOR>(width, dq, dq_blocks, dkv,
                                             dkv_blocks, stream);
    return bias
               ? launch_width<BIASED>(width, dq, dq_blocks, dkv, dkv_blocks,
                                      stream)
               : launch_width<0>(width, dq, dq_blocks, dkv, dkv_blocks, stream);
}
