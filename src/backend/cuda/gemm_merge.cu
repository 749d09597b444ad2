/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_merge.cu - adds up the partial sums of a product that was spread over
 * chunks, in the order of chunks. A thread has two columns of two rows. */
#include "backend/cuda/gemm_large.h"

/* Two columns of what a float32 result holds. */
BT_DEVICE float2 held_two(const bt_gemm_end &e, int row, int column)
{
    const float *at = (const float *)e.out + row * e.ldo + column;
    if (row >= e.m)
        return make_float2(0.0f, 0.0f);
    return make_float2(at[0], column + 1 < e.n ? at[1] : 0.0f);
}

static __global__ void __launch_bounds__(256)
    gemm_merge(const __grid_constant__ bt_gemm_task t, int columns)
{
    constexpr int DOWN = BT_GEMM_TILE_ROWS / 16;
    int across = columns / 8, column, row;
    size_t slot = (size_t)t.part * DOWN * across * 32;
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= slot)
        return;
    int lane = (int)(at % 32), j = (int)(at / 32 % across);
    int i = (int)(at / 32 / across % DOWN);
    tile_at(t, t.whole * t.workers + (int)(at / 32 / across / DOWN), &row,
            &column);
    row = row * BT_GEMM_TILE_ROWS + i * 16 + lane / 4;
    column = column * columns + j * 8 + lane % 4 * 2;
    grid_dependency_wait();
    if (row >= t.end.m || column >= t.end.n)
        return;

    const float4 *from = (const float4 *)t.partial + at;
    float4 total = from[0];
    bt_gemm_end end = t.end;
    if (t.onto) {
        float2 above = held_two(end, row, column);
        float2 below = held_two(end, row + 8, column);
        total = make_float4(
            __fadd_rn(above.x, total.x), __fadd_rn(above.y, total.y),
            __fadd_rn(below.x, total.z), __fadd_rn(below.y, total.w));
        end.accumulate = false;
    }
#pragma unroll 8
    for (int x = 1; x <= t.chunks - t.head; x++) {
        float4 v = from[x * slot];
        total.x = __fadd_rn(total.x, v.x);
        total.y = __fadd_rn(total.y, v.y);
        total.z = __fadd_rn(total.z, v.z);
        total.w = __fadd_rn(total.w, v.w);
    }
    float above[2] = { total.x, total.y }, below[2] = { total.z, total.w };
    end_two(end, above, row, column);
    if (row + 8 < t.end.m)
        end_two(end, below, row + 8, column);
}

extern "C" int bt_gemm_merge(int columns, const bt_gemm_task *task,
                             void *stream)
{
    size_t threads = (size_t)task->part * BT_GEMM_TILE_ROWS * columns / 4;
    return launch_kernel(gemm_merge, (unsigned)((threads + 255) / 256), 256, 0,
                         BT_START_EARLY, stream, *task, columns);
}
