/* SPDX-License-Identifier: Apache-2.0 */
/* attention_delta.cu - rowsum(dO * O) for kernels that do not make it
 * themselves (see backward_delta.h): those of biases, dense documents and large
 * heads. */
#include "backend/cuda/backward_delta.h"

enum { HEADS = 4 }; // of a block

/* What a thread loads for one head: 16 bytes of each of its rows in O and dO,
 * and their lse. */
template <int ROUNDS> struct delta_rows {
    uint4 a[ROUNDS], b[ROUNDS];
    float lse[ROUNDS];
};

/* Rows of a step that a block takes at once are 256 / lanes apart. */
template <int D> struct delta_layout {
    static constexpr int lanes = D / 8, apart = 256 / lanes,
                         rounds = STEP / apart;
};

template <int D>
BT_DEVICE void load_rows(const delta_params *p, bt_loop_step step, int head,
                         delta_rows<delta_layout<D>::rounds> *to)
{
    typedef delta_layout<D> of;
    int lane = threadIdx.x % of::lanes, first = threadIdx.x / of::lanes;
#pragma unroll
    for (int i = 0; i < of::rounds; i++) {
        size_t row =
            (size_t)step.row + min(first + i * of::apart, step.rows - 1);
        size_t at = row * p->out_token + head * p->out_head + lane * 8;
        to->a[i] = to->b[i] = make_uint4(0, 0, 0, 0);
        if (lane * 8 < p->head_dim) {
            to->a[i] =
                __ldcs((const uint4 *)(p->out + at)); // for the last time
            to->b[i] = __ldg((const uint4 *)(p->dout + at));
        }
        to->lse[i] = __ldg(p->lse + row * p->heads + head);
    }
}

template <int D>
BT_DEVICE void store_rows(const delta_params *p, bt_loop_step step, int head,
                          step_stats *row_stats,
                          const delta_rows<delta_layout<D>::rounds> *from)
{
    typedef delta_layout<D> of;
    int lane = threadIdx.x % of::lanes, first = threadIdx.x / of::lanes;
#pragma unroll
    for (int i = 0; i < of::rounds; i++) {
        int mine = first + i * of::apart;
        float sum = sum_lanes<D>(dot_eight(from->a[i], from->b[i]));
        if (lane)
            continue;
        bool real = mine < step.rows;
        if (real)
            p->delta[((size_t)step.row + mine) * p->heads + head] = sum;
        row_stats->delta[mine] = real ? sum : 0.0f;
        row_stats->lse[mine] = real ? from->lse[i] * LOG2_E : 0.0f;
    }
}

/* A block takes one step and up to HEADS heads, which lie beside each other.
 * The loads of the next head are in flight while the sums of one are made. */
template <int D>
__global__ void __launch_bounds__(256) attention_delta(delta_params p)
{
    typedef delta_rows<delta_layout<D>::rounds> rows;
    int pieces = (p.heads + HEADS - 1) / HEADS;
    int steps = gridDim.x / pieces, at_step = blockIdx.x / pieces;
    int head = blockIdx.x % pieces * HEADS, end = min(head + HEADS, p.heads);
    bt_loop_step step = p.steps[at_step];
    step_stats *row_stats = p.row_stats + (size_t)head * steps + at_step;

    launch_dependents();
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < p.bad_count; i += blockDim.x)
            p.bad[i] = 0;
    rows now, next;
    load_rows<D>(&p, step, head, &now);
#pragma unroll
    for (int i = 0; i < HEADS; i++, head++, row_stats += steps) {
        if (head + 1 < end)
            load_rows<D>(&p, step, head + 1, &next);
        store_rows<D>(&p, step, head, row_stats, &now);
        if (head + 1 >= end)
            return;
        now = next;
    }
}

extern "C" cudaError_t bt_launch_delta(const delta_params *params, int width,
                                       size_t steps, cudaStream_t stream)
{
    size_t pieces = ((size_t)params->heads + HEADS - 1) / HEADS;
    unsigned grid = (unsigned)(steps * pieces);
    if (width > 128) // lanes of a row are a power of two
        attention_delta<256><<<grid, 256, 0, stream>>>(*params);
    else if (width == 128)
        attention_delta<128><<<grid, 256, 0, stream>>>(*params);
    else
        attention_delta<64><<<grid, 256, 0, stream>>>(*params);
    return cudaGetLastError();
}
