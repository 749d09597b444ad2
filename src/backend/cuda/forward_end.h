/* SPDX-License-Identifier: Apache-2.0 */
/* forward_end.h - the end of a chunk of attention_forward.cu, whose sums join
 * those of the chunks before, and of an item, whose output is divided by the
 * sums, checked and stored. */
#ifndef BT_CUDA_FORWARD_END_H
#define BT_CUDA_FORWARD_END_H

#include "backend/cuda/forward.h"
#include "backend/cuda/softmax.h"

/* The accumulated result of an item's previous chunks is kept outside the
 * registers. Each thread reads and writes its own part: bases and sums are in
 * shared memory, and so are as many columns of the output as fit; the others
 * are in global memory, where they stay in the L2. That has a long latency, so
 * as many as there are registers for are loaded while the last values of the
 * chunk are multiplied. */
template <int D> struct acc_layout {
    static constexpr int acc_shared =
        kernel_traits<D>::acc_shared; /* times four floats */
    static constexpr int prefetched = kernel_traits<D>::prefetched;
    static constexpr int all = D / 8;
    static constexpr int threads = kernel_traits<D>::groups * GROUP;
};

template <int D> BT_DEVICE float4 *chunk_acc_of(const forward_params *p)
{
    typedef acc_layout<D> of;
    return p->chunk_acc + (size_t)blockIdx.x * (of::all * of::threads) +
           threadIdx.x - GROUP;
}

/* The chunk ends here; its last values are still to come. */
template <int D>
BT_DEVICE void end_chunk(const forward_params *p, forward_shared<D> *s,
                         float *base, float *sum, bool accumulated,
                         float4 *prefetched)
{
    typedef acc_layout<D> of;
    s->chunk_stats[threadIdx.x - GROUP] =
        make_float4(base[0], base[1], sum[0], sum[1]);
    base[0] = base[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
    if (accumulated)
#pragma unroll
        for (int i = 0; i < of::prefetched; i++)
            prefetched[i] =
                __ldcg(chunk_acc_of<D>(p) + (of::acc_shared + i) * of::threads);
}

/* What is not finite is merged by FIXUP, as decoding does: any such result
 * leads there. */
template <int FIXUP>
BT_DEVICE float4 merge_four(float4 total, const float *o, merge a, merge b)
{
    if (FIXUP)
        return make_float4(merge_nonfinite(total.x, o[0], a),
                           merge_nonfinite(total.y, o[1], a),
                           merge_nonfinite(total.z, o[2], b),
                           merge_nonfinite(total.w, o[3], b));
    return make_float4(merge_add(total.x, o[0], a), merge_add(total.y, o[1], a),
                       merge_add(total.z, o[2], b),
                       merge_add(total.w, o[3], b));
}

/* Four floats of the accumulated output. */
template <int D>
BT_DEVICE float4 acc_load(const forward_params *p, const forward_shared<D> *s,
                          const float4 *prefetched, int i)
{
    typedef acc_layout<D> of;
    return i < of::acc_shared
               ? s->acc_shared[i * of::threads + threadIdx.x - GROUP]
           : i < of::acc_shared + of::prefetched
               ? prefetched[i - of::acc_shared]
               : __ldcg(chunk_acc_of<D>(p) + i * of::threads);
}

template <int D>
BT_DEVICE void acc_store(const forward_params *p, forward_shared<D> *s, int i,
                         float4 x)
{
    typedef acc_layout<D> of;
    if (i < of::acc_shared)
        s->acc_shared[i * of::threads + threadIdx.x - GROUP] = x;
    else
        __stcg(chunk_acc_of<D>(p) + i * of::threads, x);
}

/* The end of a chunk that is not the last one of its item; `rested`: nor the
 * first one. */
template <int D, int FIXUP>
BT_DEVICE void accumulate_chunk(const forward_params *p, forward_shared<D> *s,
                                const float *o, const float4 *prefetched,
                                bool accumulated)
{
    float4 *stats = &s->chunk_acc[threadIdx.x - GROUP];
    float4 chunk = s->chunk_stats[threadIdx.x - GROUP];
    float all[2] = { row_sum(chunk.z), row_sum(chunk.w) };
    if (!accumulated) {
        *stats = make_float4(chunk.x, chunk.y, all[0], all[1]);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            acc_store<D>(p, s, i,
                         make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2],
                                     o[4 * i + 3]));
        return;
    }
    float4 total = *stats;
    merge a = merge_of(&total.x, chunk.x), b = merge_of(&total.y, chunk.y);
    *stats = make_float4(total.x, total.y, merge_add(total.z, all[0], a),
                         merge_add(total.w, all[1], b));
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        acc_store<D>(p, s, i,
                     merge_four<FIXUP>(acc_load<D>(p, s, prefetched, i),
                                       o + 4 * i, a, b));
}

/* The end of an item's last chunk: its sums become those of all chunks. */
template <int D, int FIXUP>
BT_DEVICE void
merge_accumulated(const forward_params *p, const forward_shared<D> *s, float *o,
                  const float4 *prefetched, float *base, float *all)
{
    float4 total = s->chunk_acc[threadIdx.x - GROUP];
    merge a = merge_of(&total.x, base[0]), b = merge_of(&total.y, base[1]);
    base[0] = total.x;
    base[1] = total.y;
    all[0] = merge_add(total.z, all[0], a);
    all[1] = merge_add(total.w, all[1], b);
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        float4 x = merge_four<FIXUP>(acc_load<D>(p, s, prefetched, i),
                                     o + 4 * i, a, b);
        o[4 * i] = x.x;
        o[4 * i + 1] = x.y;
        o[4 * i + 2] = x.z;
        o[4 * i + 3] = x.w;
    }
}

/* A warp's 16 rows of the output leave through shared memory, where its queries
 * were: whole by the copy engine, or row by row where the tile ends. */
template <int D, int FIXUP>
BT_DEVICE void store_rows(const forward_params *p, uint16_t *stage,
                          const work *item, int warp_row)
{
    const int chunks = D / 8; // of 16 bytes in a row
    int lane = threadIdx.x % 32;
    // FIXUP reads again what it stores, so there no engine is between.
    if (!FIXUP && warp_row + 16 <= item->rows) {
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < D / PANEL; i++)
                tma_store_box(
                    &p->o, i * PANEL, item->head, item->row + warp_row,
                    stage + (i * kernel_traits<D>::rows + warp_row) * PANEL);
            tma_store_commit();
        }
        return;
    }
    __syncwarp();
#pragma unroll 1
    for (int at = lane; at < 16 * chunks; at += 32) {
        int row = warp_row + at / chunks, chunk = at % chunks;
        uint16_t *panel =
            stage + (chunk / 8) * kernel_traits<D>::rows * PANEL + row * PANEL;
        if (row < item->rows && chunk * 8 < p->head_dim)
            *(uint4 *)(p->out + (size_t)(item->row + row) * p->out_token +
                       (size_t)item->head * p->out_head + chunk * 8) =
                *(uint4 *)(panel + (chunk % 8 ^ row % 8) * 8);
    }
    fence_proxy_async();
}

/* FIXUP, passes 1 and 2: where something was counted the output gets +-inf. */
template <int D>
BT_DEVICE void taint_rows(const forward_params *p, const float *o,
                          const work *item, int row, int t)
{
    float much = item->pass == 1 ? INFINITY : -INFINITY;
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        int r = row + i / 2 % 2 * 8, column = i / 4 * 8 + t * 2 + i % 2;
        if (r >= item->rows || o[i] == 0.0f)
            continue;
        uint16_t *at = p->out + (size_t)(item->row + r) * p->out_token +
                       (size_t)item->head * p->out_head + column;
        float sum = __uint_as_float((uint32_t)*at << 16) + much;
        *at = (uint16_t)pack_bf16(sum, 0.0f);
    }
}

/* The end of an item: divide by the sums, store, note what is not finite. The
 * copy engine may still read the stage afterwards. `accumulated`: it had
 * chunks before. */
template <int D, int FIXUP>
BT_DEVICE void finish(const forward_params *p, forward_shared<D> *s, int stage,
                      float *o, const float4 *prefetched, bool accumulated,
                      bool bad)
{
    const int rows = kernel_traits<D>::rows;
    int warp = threadIdx.x / 32 - 4; // of those that compute
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int warp_row = warp * 16;
    const work *item = &s->item[stage];

    if (FIXUP && item->pass) {
        taint_rows<D>(p, o, item, warp_row + g, t);
        return;
    }
    float4 chunk = s->chunk_stats[threadIdx.x - GROUP];
    float base[2] = { chunk.x, chunk.y };
    float all[2] = { row_sum(chunk.z), row_sum(chunk.w) };
    if (accumulated)
        merge_accumulated<D, FIXUP>(p, s, o, prefetched, base, all);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = warp_row + g + r * 8;
        float inverse = inverse_sum(base[r], all[r]);
        uint32_t check = 0;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            uint32_t two =
                pack_output(o[i * 4 + r * 2], o[i * 4 + r * 2 + 1], inverse);
            check = check_finite(check, two);
            *(uint32_t *)(s->q[stage] + ((i / 8) * rows + row) * PANEL +
                          (i % 8 ^ row % 8) * 8 + t * 2) = two;
        }
        if (row < item->rows) {
            bad |= (check & 0x7fff7fff) != 0;
            if (p->lse && t == 0)
                p->lse[(size_t)(item->row + row) * p->heads + item->head] =
                    lse_of(base[r], all[r]);
        }
    }
    store_rows<D, FIXUP>(p, s->q[stage], item, warp_row);
    if (!FIXUP) {
        bad = __any_sync(~0u, bad);
        if (lane == 0)
            p->nonfinite_fixup[(size_t)item->item * BT_FIXUP_BYTES + warp] =
                bad;
    }
}

/* consumer_release, for a stage whose output may still be on its way. */
BT_DEVICE void consumer_release_stored(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        tma_store_wait_read();
    consumer_release(empty);
}

#endif
