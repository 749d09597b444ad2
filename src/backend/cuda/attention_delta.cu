/* SPDX-License-Identifier: Apache-2.0 */
/* attention_delta.cu - rowsum(dO * O), which the gradients of the scores need.
 */
#include "backend/cuda/backward.h"

/* Sum of the products of eight bf16. */
BT_DEVICE float dot_eight(uint4 a, uint4 b)
{
    uint32_t x[4] = { a.x, a.y, a.z, a.w }, y[4] = { b.x, b.y, b.z, b.w };
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum =
            fmaf(__uint_as_float(x[i] << 16), __uint_as_float(y[i] << 16), sum);
        sum = fmaf(__uint_as_float(x[i] & 0xffff0000),
                   __uint_as_float(y[i] & 0xffff0000), sum);
    }
    return sum;
}

/* A block takes one step and one head; a row takes D / 8 lanes, and a warp
 * eight rows, whose loads are all in flight at once. */
template <int D> __global__ void attention_delta(delta_params p)
{
    const int lanes = D / 8, rounds = 8 * lanes / 32;
    int steps = gridDim.x / p.heads;
    // Heads lie beside each other: rows are then read whole.
    int at_step = blockIdx.x / p.heads, head = blockIdx.x % p.heads;
    bt_loop_step step = p.steps[at_step];
    int lane = threadIdx.x % lanes;
    int first = threadIdx.x / lanes;
    uint4 a[rounds], b[rounds];

    launch_dependents();
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < p.bad_count; i += blockDim.x)
            p.bad[i] = 0;
#pragma unroll
    for (int i = 0; i < rounds; i++) {
        size_t row =
            (size_t)step.row + min(first + i * (64 / rounds), step.rows - 1);
        size_t at = row * p.out_token + head * p.out_head + lane * 8;
        a[i] = b[i] = make_uint4(0, 0, 0, 0);
        if (lane * 8 < p.head_dim) {
            a[i] = __ldg((const uint4 *)(p.out + at));
            b[i] = __ldg((const uint4 *)(p.dout + at));
        }
    }
#pragma unroll
    for (int i = 0; i < rounds; i++) {
        int mine = first + i * (64 / rounds);
        float sum = dot_eight(a[i], b[i]);
#pragma unroll
        for (int k = lanes / 2; k > 0; k /= 2)
            sum += __shfl_xor_sync(~0u, sum, k);
        if (lane)
            continue;
        bool real = mine < step.rows;
        size_t at = ((size_t)step.row + mine) * p.heads + head;
        step_stats *row_stats = p.row_stats + (size_t)head * steps + at_step;
        if (real)
            p.delta[at] = sum;
        row_stats->delta[mine] = real ? sum : 0.0f;
        row_stats->lse[mine] = real ? p.lse[at] * LOG2_E : 0.0f;
    }
}

extern "C" cudaError_t bt_launch_delta(const delta_params *params, int width,
                                       size_t steps, cudaStream_t stream)
{
    unsigned grid = (unsigned)(steps * (size_t)params->heads);
    if (width > 128) // lanes of a row are a power of two
        attention_delta<256><<<grid, 256, 0, stream>>>(*params);
    else if (width == 128)
        attention_delta<128><<<grid, 256, 0, stream>>>(*params);
    else
        attention_delta<64><<<grid, 256, 0, stream>>>(*params);
    return cudaGetLastError();
}
