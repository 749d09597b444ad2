/* SPDX-License-Identifier: Apache-2.0 */
/* backward_step.h - what attention_backward.cu does with one step, and with the
 * sums at the end: products, weights and their gradients, and the way out. */
#ifndef BT_CUDA_BACKWARD_STEP_H
#define BT_CUDA_BACKWARD_STEP_H

#include "backend/cuda/backward.h"

#include <math.h>

/* A group's stationary tile as register fragments of the products. */
template <int D>
BT_DEVICE void load_tile_fragments(uint32_t *f, const uint16_t *tile)
{
    int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 16;
    int half = threadIdx.x / 16 % 2;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int chunk = i * 2 + half;
        load_fragment(f + i * 4, tile + (chunk / 8 * GROUP_ROWS + row) * PANEL +
                                     (chunk % 8 ^ row % 8) * 8);
    }
}

/* x (64 stationary rows, 64 streamed rows) = stationary streamed^T, issued. */
template <int D, bool IN_REGISTERS>
BT_DEVICE void issue_pairs(float *x, const uint32_t *f,
                           const uint16_t *stationary, const uint16_t *streamed)
{
    uint64_t a = tile_descriptor(stationary, 16),
             b = tile_descriptor(streamed, 16);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        // 16 columns are 32 bytes; four such steps are a panel.
        uint64_t step = i / 4 * (STEP * PANEL * 2 >> 4) + i % 4 * 2;
        if (IN_REGISTERS)
            wgmma_rs_64(x, f + i * 4, b + step, i > 0);
        else
            wgmma_ss_64(x, a + step, b + step, i > 0);
    }
    wgmma_commit();
}

/* sum (64 stationary rows, D) += w streamed, issued. */
template <int D>
BT_DEVICE void issue_sum(float *sum, const uint32_t *w,
                         const uint16_t *streamed)
{
    const uint64_t panels = 2 * STEP * PANEL * 2 >> 4; // two of them
    uint64_t b = tile_descriptor(streamed, STEP * PANEL * 2);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < STEP / 16; i++) {
        uint64_t step = i * (16 * PANEL * 2 >> 4);
        if (D == 64)
            wgmma_pv_64(sum, w + i * 4, b + step);
        else
            wgmma_pv_128(sum, w + i * 4, b + step);
        if (D == 192)
            wgmma_pv_64(sum + 64, w + i * 4, b + panels + step);
        else if (D == 256)
            wgmma_pv_128(sum + 64, w + i * 4, b + panels + step);
    }
    wgmma_commit();
}

/* Hidden pairs become 0, whatever they were. */
BT_DEVICE void apply_mask(float *x, const uint64_t *word, int t)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t half[2] = { (uint32_t)word[r], (uint32_t)(word[r] >> 32) };
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t mine = half[i / 4] >> (2 * t) >> (i % 4 * 8);
            float *at = x + i * 4 + r * 2;
            at[0] = mine & 1 ? at[0] : 0.0f;
            at[1] = mine & 2 ? at[1] : 0.0f;
        }
    }
}

/* The same for packed ones. */
BT_DEVICE void apply_mask_packed(uint32_t *w, const uint64_t *word, int t)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint32_t half[2] = { (uint32_t)word[r], (uint32_t)(word[r] >> 32) };
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t mine = half[i / 4] >> (2 * t) >> (i % 4 * 8);
            w[i * 2 + r] &=
                (mine & 1 ? 0xffffu : 0) | (mine & 2 ? 0xffff0000u : 0);
        }
    }
}

/* A statistic of the thread's two columns of each eight, read from shared
 * memory where it is used, or ahead. */
typedef struct columns_in_memory {
    const float *first;
} columns_in_memory;

BT_DEVICE columns_in_memory columns_of(const float *statistic, int t)
{
    return columns_in_memory{ statistic + t * 2 };
}

BT_DEVICE float2 two_columns(columns_in_memory columns, int i)
{
    return *(const float2 *)(columns.first + i * 8);
}

BT_DEVICE float2 two_columns(const float2 *read, int i)
{
    return read[i];
}

BT_DEVICE void read_columns(float2 *to, const float *statistic, int t)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        to[i] = two_columns(columns_of(statistic, t), i);
}

/* Scores become weights. `row`: log-sum-exp of the thread's two rows, `column`
 * of the step's (KEYS), or their taint (else, FIXUP). */
template <int KEYS, int FIXUP, typename COLUMNS>
BT_DEVICE void compute_weights(float *x, const float *row, COLUMNS column,
                               float scale)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float2 two = { 0.0f, 0.0f };
        if (KEYS || FIXUP)
            two = two_columns(column, i);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float *at = x + i * 4 + k, of = k % 2 ? two.y : two.x;
            if (FIXUP && !KEYS)
                *at += of;
            *at = exp2_fast(fmaf(*at, scale, -(KEYS ? of : row[k / 2])));
        }
    }
}

/* y = dP becomes dS, with the weights x. */
template <int KEYS, typename COLUMNS>
BT_DEVICE void compute_ds(float *y, const float *x, const float *row,
                          COLUMNS column)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float2 two = { 0.0f, 0.0f };
        if (KEYS)
            two = two_columns(column, i);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float of = KEYS ? (k % 2 ? two.y : two.x) : row[k / 2];
            y[i * 4 + k] = (y[i * 4 + k] - of) * x[i * 4 + k];
        }
    }
}

/* The same with weights that are packed already. */
BT_DEVICE void compute_ds_packed(float *y, const uint32_t *w,
                                 columns_in_memory column)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float2 two = two_columns(column, i);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t both = w[i * 2 + k];
            float *at = y + i * 4 + k * 2;
            at[0] = (at[0] - two.x) * __uint_as_float(both << 16);
            at[1] = (at[1] - two.y) * __uint_as_float(both & 0xffff0000);
        }
    }
}

BT_DEVICE void pack_pairs(uint32_t *w, const float *x)
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
}

/* FIXUP: two bf16, with 0 for what is not finite. */
BT_DEVICE uint32_t filter_pair(uint32_t two)
{
    uint32_t low = (two & 0x7f80) == 0x7f80 ? 0 : two & 0xffff;
    uint32_t high = (two & 0x7f800000) == 0x7f800000 ? 0 : two & 0xffff0000;
    return low | high;
}

/* FIXUP: all groups together clean the rows of a step and taint those that
 * were not finite. Values (dQ) are in no sum, so they are left as they are. */
template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE void filter_step(backward_shared<D, GROUPS, STAGES, KEYS> *s, int at,
                           int second)
{
    int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32 - 4; row < STEP; row += GROUPS * 4) {
        bool nonfinite = false;
        for (int i = 0; i < (KEYS ? 2 : 1) * (D / PANEL); i++) {
            uint16_t *half =
                i < D / PANEL ? s->streamed[at][0] : second_half(s, at, second);
            uint32_t *at_word =
                (uint32_t *)(half + (i % (D / PANEL) * STEP + row) * PANEL) +
                lane;
            uint32_t two = *at_word, filtered = filter_pair(two);
            nonfinite |= filtered != two;
            *at_word = filtered;
        }
        nonfinite = __any_sync(~0u, nonfinite);
        if (lane == 0 && (nonfinite || !KEYS))
            s->rows[at].lse[row] = nonfinite ? NAN : 0.0f;
    }
    fence_proxy_async();
    named_sync(BARRIER_FILTER, GROUPS * GROUP);
}

/* A group's gradient leaves through shared memory: a warp's 16 rows whole by
 * the copy engine, or row by row where the tile ends. Returns whether all that
 * is stored is finite. */
template <int D>
BT_DEVICE bool store_sum(const backward_params *p, int which, uint16_t *out,
                         const backward_work *w, int first, const float *sum,
                         float factor)
{
    const int chunks = D / 8; // of 16 bytes in a row
    int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 % 4 * 16;
    bool good = true;

    uint32_t check[2] = { 0, 0 };
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        uint32_t two[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            // The fma turns -0 into 0, so that no sign tells what a hidden
            // value's was.
            const float *at = sum + i * 8 + k * 2;
            two[k] =
                pack_bf16(fmaf(at[0], factor, 0.0f), fmaf(at[1], factor, 0.0f));
            check[k % 2] = check_finite(check[k % 2], two[k]);
        }
        int row = warp_row + lane % 16, chunk = i * 2 + lane / 16;
        store_fragment(out + (chunk / 8 * GROUP_ROWS + row) * PANEL +
                           (chunk % 8 ^ row % 8) * 8,
                       two);
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (first + warp_row + lane / 4 + r * 8 < w->rows)
            good &= (check[r] & 0x7fff7fff) == 0;
    if (first + warp_row + 16 <= w->rows) {
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < D / PANEL; i++)
                tma_store_box(&p->grad[which], i * PANEL, w->head,
                              w->row + first + warp_row,
                              out + (i * GROUP_ROWS + warp_row) * PANEL);
            tma_store_commit();
        }
        return good;
    }
    __syncwarp();
#pragma unroll 1
    for (int at = lane; at < 16 * chunks; at += 32) {
        int row = warp_row + at / chunks, chunk = at % chunks;
        if (first + row < w->rows && chunk * 8 < p->head_dim)
            *(uint4 *)(p->to[which] +
                       (size_t)(w->row + first + row) * p->to_token[which] +
                       (size_t)w->head * p->to_head[which] + chunk * 8) =
                *(uint4 *)(out + (chunk / 8 * GROUP_ROWS + row) * PANEL +
                           (chunk % 8 ^ row % 8) * 8);
    }
    fence_proxy_async();
    __syncwarp();
    return good;
}

#endif
