/* SPDX-License-Identifier: Apache-2.0 */
/* forward_end.h - the end of a chunk of attention_forward.cu, whose sums join
 * those of the chunks before, and of an item, whose output is divided by the
 * sums, checked and stored. */
#ifndef BT_CUDA_FORWARD_END_H
#define BT_CUDA_FORWARD_END_H

#include "kernels/cuda/forward.h"
#include "kernels/cuda/softmax.h"

/* What the chunks of an item came to rests outside the registers, thread by
 * thread, and a thread touches only what is its own: bases and sums in shared
 * memory, and of the output as many columns as there is room for; the others in
 * the GPU's memory, where they stay in the L2. Reading them takes long, so some
 * are asked for early: while the last values of the chunk are multiplied, as
 * many as there are registers for. */
template <int D> struct resting {
    static constexpr int near = kind<D>::near; /* times four floats */
    static constexpr int early = kind<D>::early;
    static constexpr int all = D / 8;
    static constexpr int threads = kind<D>::groups * GROUP;
};

template <int D> BT_DEVICE float4 *rest_of(const forward_params *p)
{
    typedef resting<D> of;
    return p->rest + (size_t)blockIdx.x * (of::all * of::threads) +
           threadIdx.x - GROUP;
}

/* The chunk ends here; its last values are still to come. */
template <int D>
BT_DEVICE void end_chunk(const forward_params *p, forward_shared<D> *s,
                         float *base, float *sum, bool rested, float4 *early)
{
    typedef resting<D> of;
    s->done[threadIdx.x - GROUP] =
        make_float4(base[0], base[1], sum[0], sum[1]);
    base[0] = base[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
    if (rested)
#pragma unroll
        for (int i = 0; i < of::early; i++)
            early[i] = __ldcg(rest_of<D>(p) + (of::near + i) * of::threads);
}

BT_DEVICE float4 merge_four(float4 total, const float *o, merge a, merge b)
{
    return make_float4(merge_add(total.x, o[0], a), merge_add(total.y, o[1], a),
                       merge_add(total.z, o[2], b),
                       merge_add(total.w, o[3], b));
}

/* Four floats of the output that rests. */
template <int D>
BT_DEVICE float4 rest_get(const forward_params *p, const forward_shared<D> *s,
                          const float4 *early, int i)
{
    typedef resting<D> of;
    return i < of::near ? s->near[i * of::threads + threadIdx.x - GROUP]
           : i < of::near + of::early ? early[i - of::near]
                                      : __ldcg(rest_of<D>(p) + i * of::threads);
}

template <int D>
BT_DEVICE void rest_set(const forward_params *p, forward_shared<D> *s, int i,
                        float4 x)
{
    typedef resting<D> of;
    if (i < of::near)
        s->near[i * of::threads + threadIdx.x - GROUP] = x;
    else
        __stcg(rest_of<D>(p) + i * of::threads, x);
}

/* The end of a chunk that is not the last one of its item; `rested`: nor the
 * first one. */
template <int D>
BT_DEVICE void rest_chunk(const forward_params *p, forward_shared<D> *s,
                          const float *o, const float4 *early, bool rested)
{
    float4 *known = &s->rest[threadIdx.x - GROUP];
    float4 done = s->done[threadIdx.x - GROUP];
    float all[2] = { row_sum(done.z), row_sum(done.w) };
    if (!rested) {
        *known = make_float4(done.x, done.y, all[0], all[1]);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            rest_set<D>(p, s, i,
                        make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2],
                                    o[4 * i + 3]));
        return;
    }
    float4 was = *known;
    merge a = merge_of(&was.x, done.x), b = merge_of(&was.y, done.y);
    *known = make_float4(was.x, was.y, merge_add(was.z, all[0], a),
                         merge_add(was.w, all[1], b));
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        rest_set<D>(p, s, i,
                    merge_four(rest_get<D>(p, s, early, i), o + 4 * i, a, b));
}

/* The end of an item's last chunk: its sums become those of all chunks. */
template <int D>
BT_DEVICE void wake_chunks(const forward_params *p, const forward_shared<D> *s,
                           float *o, const float4 *early, float *base,
                           float *all)
{
    float4 was = s->rest[threadIdx.x - GROUP];
    merge a = merge_of(&was.x, base[0]), b = merge_of(&was.y, base[1]);
    base[0] = was.x;
    base[1] = was.y;
    all[0] = merge_add(was.z, all[0], a);
    all[1] = merge_add(was.w, all[1], b);
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        float4 x = merge_four(rest_get<D>(p, s, early, i), o + 4 * i, a, b);
        o[4 * i] = x.x;
        o[4 * i + 1] = x.y;
        o[4 * i + 2] = x.z;
        o[4 * i + 3] = x.w;
    }
}

/* A warp's 16 rows of the output leave through shared memory, where its queries
 * were: whole by the copy engine, or row by row where the tile ends. */
template <int D, int EXACT>
BT_DEVICE void store_rows(const forward_params *p, uint16_t *stage,
                          const work *item, int warp_row)
{
    const int chunks = D / 8; // of 16 bytes in a row
    int lane = threadIdx.x % 32;
    // EXACT reads again what it stores, so there no engine is between.
    if (!EXACT && warp_row + 16 <= item->rows) {
        fence_async();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < D / PANEL; i++)
                store_box(&p->o, i * PANEL, item->head, item->row + warp_row,
                          stage + (i * kind<D>::rows + warp_row) * PANEL);
            store_commit();
        }
        return;
    }
    __syncwarp();
#pragma unroll 1
    for (int at = lane; at < 16 * chunks; at += 32) {
        int row = warp_row + at / chunks, chunk = at % chunks;
        uint16_t *panel =
            stage + (chunk / 8) * kind<D>::rows * PANEL + row * PANEL;
        if (row < item->rows && chunk * 8 < p->head_dim)
            *(uint4 *)(p->out + (size_t)(item->row + row) * p->out_token +
                       (size_t)item->head * p->out_head + chunk * 8) =
                *(uint4 *)(panel + (chunk % 8 ^ row % 8) * 8);
    }
    fence_async();
}

/* EXACT, passes 1 and 2: where something was counted the output gets +-inf. */
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
 * copy engine may still read the stage afterwards. `rested`: it had chunks
 * before. */
template <int D, int EXACT>
BT_DEVICE void finish(const forward_params *p, forward_shared<D> *s, int stage,
                      float *o, const float4 *early, bool rested, bool bad)
{
    const int rows = kind<D>::rows;
    int warp = threadIdx.x / 32 - 4; // of those that compute
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int warp_row = warp * 16;
    const work *item = &s->item[stage];

    if (EXACT && item->pass) {
        taint_rows<D>(p, o, item, warp_row + g, t);
        return;
    }
    float4 done = s->done[threadIdx.x - GROUP];
    float base[2] = { done.x, done.y };
    float all[2] = { row_sum(done.z), row_sum(done.w) };
    if (rested)
        wake_chunks<D>(p, s, o, early, base, all);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = warp_row + g + r * 8;
        float share = share_of(base[r], all[r]);
        uint32_t check = 0;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            uint32_t two =
                output_of(o[i * 4 + r * 2], o[i * 4 + r * 2 + 1], share);
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
    store_rows<D, EXACT>(p, s->q[stage], item, warp_row);
    if (!EXACT) {
        bad = __any_sync(~0u, bad);
        if (lane == 0)
            p->redo[(size_t)item->item * BT_REDO_BYTES + warp] = bad;
    }
}

/* done_with, for a stage whose output may still be on its way. */
BT_DEVICE void done_storing(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        store_read();
    done_with(empty);
}

#endif
