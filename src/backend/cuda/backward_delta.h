/* SPDX-License-Identifier: Apache-2.0 */
/* backward_delta.h - delta = rowsum(dO * O), which the gradients of the scores
 * need: its arithmetic, and how the kernel of dQ makes it.
 *
 * A group that begins an item has its dO in shared memory. O comes beside it,
 * and each warp makes the sums of its 16 rows, in the order of
 * attention_delta.cu. They go to memory for the fix-up kernel; an otherwise
 * idle warp copies them to row_stats, in the order of the steps over queries,
 * for the kernel of dK and dV. */
#ifndef BT_CUDA_BACKWARD_DELTA_H
#define BT_CUDA_BACKWARD_DELTA_H

#include "backend/cuda/backward.h"

#include <limits.h>

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

/* Added up over the D / 8 lanes of a row. */
template <int D> BT_DEVICE float sum_lanes(float sum)
{
#pragma unroll
    for (int k = D / 16; k > 0; k /= 2)
        sum += __shfl_xor_sync(~0u, sum, k);
    return sum;
}

/* delta of rows g and g + 8 of a warp's 16, for lane 4 * g + t; `out`, `dout`:
 * a group's tiles. */
template <int D>
BT_DEVICE void sum_rows(float *delta, const uint16_t *out, const uint16_t *dout)
{
    const int lanes = D / 8, rows = 32 / lanes, rounds = 8 / rows;
    int lane = threadIdx.x % 32, chunk = lane % lanes, g = lane / 4;
    int first = threadIdx.x / 32 % 4 * 16 + lane / lanes;
#pragma unroll
    for (int i = 0; i < 2 * rounds; i++) {
        int row = first + i * rows;
        int at =
            (chunk / 8 * GROUP_ROWS + row) * PANEL + (chunk % 8 ^ row % 8) * 8;
        float sum = sum_lanes<D>(
            dot_eight(*(const uint4 *)(out + at), *(const uint4 *)(dout + at)));
        sum = __shfl_sync(~0u, sum, g % rows * lanes);
        if (i % rounds == g / rows)
            delta[i / rounds] = sum;
    }
}

/* Orders this thread's writes to any memory before accesses by the copy engine.
 */
BT_DEVICE void fence_proxy_async_all(void)
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* The first step that ends after `row`; the steps are in the order of rows. */
BT_DEVICE int find_step(const backward_params *p, int row)
{
    int lane = threadIdx.x % 32, low = 0, high = p->steps;
    while (low < high) {
        int stride = (high - low + 31) / 32;
        int mine = min(low + (lane + 1) * stride, high) - 1;
        bt_loop_step step = p->step_list[mine];
        int before = __popc(__ballot_sync(~0u, step.row + step.rows <= row));
        if (before == 32)
            return high;
        int from = low + before * stride;
        high = min(from + stride, high) - 1;
        low = from;
    }
    return low;
}

/* The statistics of an item's rows in the order of the steps, when they are
 * made. */
BT_DEVICE void store_row_stats(const backward_params *p, const backward_work *w,
                               uint64_t *made, uint32_t phase)
{
    int at_step = find_step(p, w->row), lane = threadIdx.x % 32;
    bt_loop_step steps = { INT_MAX / 2,
                           0 }; // lane i has the i-th from there on
    if (at_step + lane < p->steps)
        steps = p->step_list[at_step + lane];
    step_stats *to = p->row_stats + (size_t)w->head * p->steps + at_step;
    barrier_wait(made, phase);
    for (int k = 0;; k++, to++) {
        int first = __shfl_sync(~0u, steps.row, k) - w->row;
        int rows = __shfl_sync(~0u, steps.rows, k);
        if (first >= w->rows)
            return;
#pragma unroll
        for (int i = lane; i < STEP; i += 32) {
            // What fills a step up is stored with its last row.
            int row = first + min(i, rows - 1);
            if (row < 0 || row >= w->rows)
                continue;
            size_t at = (size_t)(w->row + row) * p->heads + w->head;
            to->delta[i] = i < rows ? __ldcg(p->delta + at) : 0.0f;
            to->lse[i] = i < rows ? __ldg(p->lse + at) * LOG2_E : 0.0f;
        }
    }
}

/* One warp runs this. */
template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE void copy_row_stats(const backward_params *p,
                              backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    pipeline_state items = {};
    for (;; pipeline_advance(&items, 2)) {
        const backward_work *w = &s->item[items.index];
        barrier_wait(&s->item_full[items.index], items.phase);
        if (w->item < 0)
            break;
        store_row_stats(p, w, &s->delta_made[items.index], items.phase);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(&s->item_empty[items.index]);
    }
    // The kernel of dK and dV may begin: its copy engine sees them all.
    __threadfence();
    fence_proxy_async_all();
    __syncwarp();
    launch_dependents();
}

#endif
