/* SPDX-License-Identifier: Apache-2.0 */
/* attention_backward_fused_large.cu - the backward pass of dense documents with
 * heads of 192 and 256: see backward_fused_large.h. */
#include "backend/cuda/backward_fused_launch.h"

extern "C" cudaError_t
bt_launch_backward_fused_large(int width, const backward_params *p, int blocks,
                               const finish_params *f, int finish_blocks,
                               cudaStream_t stream)
{
    return width == 192 ? launch_one<192>(p, blocks, f, finish_blocks, stream)
                        : launch_one<256>(p, blocks, f, finish_blocks, stream);
}
