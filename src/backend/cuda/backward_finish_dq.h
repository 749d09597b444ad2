/* SPDX-License-Identifier: Apache-2.0 */
/* backward_finish_dq.h - from the sums of dQ that backward_fused.h makes to dQ.
 *
 * The last kernel, attention_finish_dq, rounds the sums to bfloat16. It is
 * limited by memory, and waits for all sums. But the blocks of the fused kernel
 * do not end together. So attention_finish_dq_early takes their places as they
 * end: while the others still compute, its blocks, one warp each, round the
 * panels that all tiles have added to. It ends when the last items end, and
 * leaves the other panels to the last kernel. The fused kernel does not wait
 * for it, so it may come late or not at all. */
#ifndef BT_CUDA_BACKWARD_FINISH_DQ_H
#define BT_CUDA_BACKWARD_FINISH_DQ_H

#include "backend/cuda/backward_fused_load.h"

/* In place of the number of tiles that have added to a panel: it is rounded. */
enum { PANEL_FINISHED = -1 };

/* The blocks of heads of 64 end nearly together. */
template <int D> constexpr bool finishes_early = D == 128;

/* Of attention_finish_dq_early, for each block of the fused kernel. */
enum { EARLY_BLOCKS = 16 };

/* The sums of a thread in two rows, two columns of each, as bf16: x of the
 * upper row, y of the lower one. The fma turns -0 into 0. */
BT_DEVICE uint2 round_sums(float4 sums, float scale)
{
    return make_uint2(
        pack_bf16(fmaf(sums.x, scale, 0.0f), fmaf(sums.y, scale, 0.0f)),
        pack_bf16(fmaf(sums.z, scale, 0.0f), fmaf(sums.w, scale, 0.0f)));
}

/* Whether they are finite, in the rows `row` and `row` + 8 if there are. */
BT_DEVICE bool rounded_finite(uint2 two, int row, int rows)
{
    return (row >= rows || (check_finite(0, two.x) & 0x7fff7fff) == 0) &&
           (row + 8 >= rows || (check_finite(0, two.y) & 0x7fff7fff) == 0);
}

/* ---- while the fused kernel ends --------------------------------------- */

/* Lane t of four has word t of four chunks; it gets chunk t. */
BT_DEVICE uint4 transpose_four(uint4 word)
{
    bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    uint32_t a = __shfl_xor_sync(~0u, odd ? word.x : word.y, 1);
    uint32_t b = __shfl_xor_sync(~0u, odd ? word.z : word.w, 1);
    word = odd ? make_uint4(a, word.y, b, word.w)
               : make_uint4(word.x, a, word.z, b);
    a = __shfl_xor_sync(~0u, upper ? word.x : word.z, 2);
    b = __shfl_xor_sync(~0u, upper ? word.y : word.w, 2);
    return upper ? make_uint4(a, b, word.z, word.w)
                 : make_uint4(word.x, word.y, a, b);
}

/* A panel of one head's step and where it is counted: `task` of all, in which
 * the heads of a step are beside each other. */
typedef struct panel_task {
    int head, panel, step;
    size_t index;
} panel_task;

template <int D> BT_DEVICE panel_task panel_of(const finish_params *p, int task)
{
    const int panels = fused_layout<D>::panels;
    panel_task t;
    t.panel = task % panels;
    t.head = task / panels % p->heads;
    t.step = p->dense[task / panels / p->heads];
    t.index = ((size_t)t.head * p->steps + t.step) * panels + t.panel;
    return t;
}

/* Whether all tiles have added to a panel. One that no tile adds to is left to
 * the last kernel. */
template <int D> BT_DEVICE bool panel_complete(const finish_params *p, int task)
{
    panel_task t = panel_of<D>(p, task);
    int visits = p->visits[t.step];
    return visits && counter_read(p->added + t.index) == visits;
}

/* One warp rounds a panel: 16 rows and 32 columns at a time. */
template <int D> BT_DEVICE void finish_panel(const finish_params *p, int task)
{
    panel_task t = panel_of<D>(p, task);
    bt_loop_step step = p->step_list[t.step];
    int lane = threadIdx.x;
    const float4 *from = (const float4 *)(p->dq_sum + t.index * DQ_PANEL);
    bool good = true;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        int row = i / 2 * 16 + lane / 4, chunk = i % 2 * 4;
        int column = t.panel * PANEL + (chunk + lane % 4) * 8;
        const float4 *at = from + chunk * GROUP + i / 2 * 32 + lane;
        float4 sums[4];
        uint2 two[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            sums[j] = __ldcg(at + j * GROUP);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            two[j] = round_sums(sums[j], p->scale);
            good &= rounded_finite(two[j], row, step.rows);
        }
        uint4 upper =
            transpose_four(make_uint4(two[0].x, two[1].x, two[2].x, two[3].x));
        uint4 lower =
            transpose_four(make_uint4(two[0].y, two[1].y, two[2].y, two[3].y));
        uint16_t *to = p->dq + (size_t)(step.row + row) * p->token +
                       (size_t)t.head * p->head + column;
        if (column < p->head_dim && row < step.rows)
            *(uint4 *)to = upper;
        if (column < p->head_dim && row + 8 < step.rows)
            *(uint4 *)(to + 8 * p->token) = lower;
    }
    if (!good)
        p->bad[t.head / p->group] = 1;
    if (lane == 0)
        p->added[t.index] = PANEL_FINISHED;
}

/* Whether the last items of the fused kernel are about to end. */
BT_DEVICE bool fused_kernel_ends(const finish_params *p)
{
    return __any_sync(~0u, (int)__ldcg(p->tile_counter) >= p->items);
}

/* A block has every gridDim.x-th panel, and each lane watches some of these. */
template <int D>
__global__ void __launch_bounds__(32) attention_finish_dq_early(finish_params p)
{
    int tasks = p.dense_count * p.heads * fused_layout<D>::panels;
    launch_dependents();
    bool ends = fused_kernel_ends(&p);
    while (!ends) {
        for (int i = blockIdx.x; i < tasks && !ends; i += 32 * gridDim.x) {
            int mine = i + (int)(threadIdx.x * gridDim.x);
            uint32_t complete =
                __ballot_sync(~0u, mine < tasks && panel_complete<D>(&p, mine));
            __syncwarp(); // what a lane has seen is there for the others
            for (; complete && !ends; complete &= complete - 1) {
                finish_panel<D>(&p, i + (__ffs((int)complete) - 1) *
                                            (int)gridDim.x);
                ends = fused_kernel_ends(&p);
            }
        }
        __nanosleep(2000);
        ends = fused_kernel_ends(&p);
    }
    grid_dependency_wait(); // those that wait for this one wait for both
}

/* ---- after it ---------------------------------------------------------- */

/* A step's sum of one head, in the layout of the threads that made it, becomes
 * rows of dQ: half of the threads, half of the columns. Also resets the
 * counters for the next launch. Tasks after the last step are rows that are in
 * none, and get zeros. */
template <int D, int FIXUP>
BT_DEVICE void finish_step(const finish_params *p, int head, int task,
                           uint32_t (*words)[D / 2 + 4])
{
    const int fours = D / 2 / 8, chunks = D / 8;
    const int count = dq_counters<D>;
    bool sum = task < p->dense_count;
    int at = sum ? p->dense[task] : 0;
    bt_loop_step step = sum ? p->step_list[at] : p->gaps[task - p->dense_count];
    int thread = threadIdx.x % GROUP, half = threadIdx.x / GROUP;
    int row = thread / 32 * 16 + thread % 32 / 4;
    size_t index = (size_t)head * p->steps + at;
    int *counters = p->added + index * count;
    int first = sum ? counters[0] : 0, second = sum ? counters[count - 1] : 0;
    int added = half ? second : first;
    bool is_sum = added && added != PANEL_FINISHED;
    bool good = true;
    if (first == PANEL_FINISHED && second == PANEL_FINISHED) {
        __syncthreads(); // all have read the counters
        if (thread == 0)
            counters[half % count] = 0;
        return;
    }
    const float4 *from =
        (const float4 *)(p->dq_sum + (index * 2 + half) * (STEP * D / 2));
    float4 four[fours];
#pragma unroll
    for (int i = 0; i < fours; i++) {
        four[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (is_sum)
            four[i] = __ldcg(from + i * GROUP + thread);
    }
#pragma unroll
    for (int i = 0; i < fours; i++) {
        uint2 two = round_sums(four[i], p->scale);
        int column = half * fours * 4 + i * 4 + thread % 4; // of two
        words[row][column] = two.x;
        words[row + 8][column] = two.y;
        good &= rounded_finite(two, row, step.rows);
    }
    if (!FIXUP && !good)
        p->bad[head / p->group] = 1;
    __syncthreads();
    if (sum && thread == 0)
        counters[half % count] = 0;
    for (int i = threadIdx.x; i < step.rows * chunks; i += 256) {
        int r = i / chunks, chunk = i % chunks;
        bool done = (chunk < chunks / 2 ? first : second) == PANEL_FINISHED;
        if (chunk * 8 < p->head_dim && !done)
            *(uint4 *)(p->dq + (size_t)(step.row + r) * p->token +
                       (size_t)head * p->head + chunk * 8) =
                *(const uint4 *)&words[r][chunk * 4];
    }
    __syncthreads();
}

template <int D, int FIXUP>
__global__ void __launch_bounds__(256) attention_finish_dq(finish_params p)
{
    __shared__ __align__(16) uint32_t words[STEP][D / 2 + 4];
    grid_dependency_wait();
    launch_dependents();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *p.tile_counter = 0;
    // Heads lie beside each other, so rows are written whole.
    for (int i = blockIdx.x; i < p.task_count * p.heads; i += gridDim.x) {
        int head = i % p.heads;
        if (!FIXUP || p.bad[head / p.group])
            finish_step<D, FIXUP>(&p, head, i / p.heads, words);
    }
}

#endif
