/* SPDX-License-Identifier: Apache-2.0 */
/* forward_end.h - the end of an item of attention_forward.cu: its output is
 * divided by the sums, checked and stored. */
#ifndef BT_CUDA_FORWARD_END_H
#define BT_CUDA_FORWARD_END_H

#include "kernels/cuda/forward.h"

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
 * copy engine may still read the stage afterwards. */
template <int D, int EXACT>
BT_DEVICE void finish(const forward_params *p, forward_shared<D> *s, int stage,
                      const float *o, const float *base, const float *sum,
                      bool bad)
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
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = warp_row + g + r * 8;
        float all = sum[r];
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        bool empty = base[r] == -INFINITY;
        float share = empty ? 0.0f : __fdividef(1.0f, all);
        uint32_t check = 0;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            // The fma turns -0 into 0, so that no sign tells what a hidden
            // value's was.
            uint32_t two = pack_bf16(fmaf(o[i * 4 + r * 2], share, 0.0f),
                                     fmaf(o[i * 4 + r * 2 + 1], share, 0.0f));
            check = check_finite(check, two);
            *(uint32_t *)(s->q[stage] + ((i / 8) * rows + row) * PANEL +
                          (i % 8 ^ row % 8) * 8 + t * 2) = two;
        }
        if (row < item->rows) {
            bad |= (check & 0x7fff7fff) != 0;
            if (p->lse && t == 0)
                p->lse[(size_t)(item->row + row) * p->heads + item->head] =
                    empty ? -INFINITY
                          : (base[r] + __log2f(all)) * 0.693147180559945309f;
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
