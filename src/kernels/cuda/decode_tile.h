/* SPDX-License-Identifier: Apache-2.0 */
/* decode_tile.h - what one warp of attention_decode.cu makes of one tile: the
 * scores, weights and sums of values of 64 keys. */
#ifndef BT_CUDA_DECODE_TILE_H
#define BT_CUDA_DECODE_TILE_H

#include "kernels/cuda/decode_loading.h"

#include <math.h>

/* x (16 rows, 64 keys) = q k^T. Of q, `rows` rows are there, D + 8 apart; what
 * the others come to is of no interest. */
template <int D>
BT_DEVICE void multiply_keys(float (*x)[4], const uint16_t *q, int rows,
                             const uint16_t *k)
{
    int lane = threadIdx.x % 32;
    uint32_t row = shared_address(k) + (lane / 16 * 8 + lane % 8) * (PANEL * 2);
    uint32_t query = shared_address(q) +
                     min(lane % 16, rows - 1) * (D + 8) * 2 + lane / 16 * 16;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        x[j][0] = x[j][1] = x[j][2] = x[j][3] = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int chunk = (i % 4 * 2 + lane / 8 % 2) ^ lane % 8;
        uint32_t at = row + i / 4 * (TILE * PANEL * 2) + chunk * 16, a[4];
        load_matrices(a, query + i * 32);
#pragma unroll
        for (int j = 0; j < TILE / 16; j++) {
            uint32_t b[4];
            load_matrices(b, at + j * (16 * PANEL * 2));
            product(x[2 * j], a, b);
            product(x[2 * j + 1], a, b + 2);
        }
    }
}

/* Two bits as a mask for two bf16. */
BT_DEVICE uint32_t spread(uint64_t bits)
{
    return (bits & 1 ? 0xffffu : 0) | (bits & 2 ? 0xffff0000u : 0);
}

/* o (16 rows, D) = w v; with SOME, of the values in `word`. */
template <int D, int SOME>
BT_DEVICE void multiply_values(float (*o)[4], const uint32_t *w,
                               const uint16_t *v, uint64_t word)
{
    int lane = threadIdx.x % 32, t = lane % 4;
    uint32_t row =
        shared_address(v) + (lane / 8 % 2 * 8 + lane % 8) * (PANEL * 2);
#pragma unroll
    for (int j = 0; j < D / 8; j++)
        o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0.0f;
#pragma unroll
    for (int i = 0; i < TILE / 16; i++) {
        uint32_t low = spread(word >> (16 * i + 2 * t));
        uint32_t high = spread(word >> (16 * i + 8 + 2 * t));
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            int chunk = (j % 4 * 2 + lane / 16) ^ lane % 8;
            uint32_t b[4];
            load_transposed(b, row + i * (16 * PANEL * 2) +
                                   j / 4 * (TILE * PANEL * 2) + chunk * 16);
            if (SOME) {
                b[0] &= low;
                b[1] &= high;
                b[2] &= low;
                b[3] &= high;
            }
            product(o[2 * j], w + 4 * i, b);
            product(o[2 * j + 1], w + 4 * i, b + 2);
        }
    }
}

/* Scores of hidden keys become -infinity, whatever they were. R: the second of
 * the thread's rows. */
template <int R> BT_DEVICE void hide(float (*x)[4], uint64_t word, int t)
{
#pragma unroll
    for (int j = 0; j < TILE / 8; j++) {
        uint32_t two = (uint32_t)(word >> (8 * j + 2 * t));
        x[j][2 * R] = two & 1 ? x[j][2 * R] : -INFINITY;
        x[j][2 * R + 1] = two & 2 ? x[j][2 * R + 1] : -INFINITY;
    }
}

/* Scores become weights, 2^(score - base), base being the largest. */
template <int R>
BT_DEVICE void soften(float (*x)[4], float scale, float *base, float *sum)
{
    float top = -INFINITY, all = 0.0f;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        top = fmaxf(top, fmaxf(x[j][2 * R], x[j][2 * R + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    *base = top * scale;
    // A row that sees nothing: weights 2^(-inf - 0) = 0.
    float from = *base == -INFINITY ? 0.0f : *base;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++) {
        float *two = &x[j][2 * R];
        two[0] = exp2_fast(fmaf(two[0], scale, -from));
        two[1] = exp2_fast(fmaf(two[1], scale, -from));
        all = __fadd_rn(all, __fadd_rn(two[0], two[1]));
    }
    all = __fadd_rn(all, __shfl_xor_sync(~0u, all, 1));
    *sum = __fadd_rn(all, __shfl_xor_sync(~0u, all, 2));
}

/* The thread's two rows of a tile's sums; `only`: that query's, or -1. */
template <int D, int ROWS>
BT_DEVICE void leave_sums(tile_result<D, ROWS> *to, const float (*o)[4],
                          const int *query, int only, int rows)
{
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < (ROWS > 8 ? 2 : 1); r++) {
        if (only >= 0 ? query[r] != only : query[r] >= rows)
            continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            *(float2 *)&to->o[g + r * 8][(j * 8 ^ bank_shift(g)) + t * 2] =
                make_float2(o[j][2 * r], o[j][2 * r + 1]);
    }
}

/* A zero that depends on all scores, and so on the fragments that they are made
 * of: the compiler would let the last products slip behind an arrival, and with
 * them the wait for what ldmatrix still reads. It cannot know that a grid has
 * one layer. */
BT_DEVICE uint32_t nothing_behind(const float (*x)[4])
{
    uint32_t any = 0;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        any |= __float_as_uint(x[j][0]);
    return any & (gridDim.z - 1);
}

/* One warp, one tile. `parity`: of the quads so far, whose results were read.
 */
template <int D, int ROWS, int STAGES>
BT_DEVICE void compute_tile(const decode_params *p,
                            decode_shared<D, ROWS, STAGES> *s, ring place,
                            uint32_t parity, const bt_decode_item *item,
                            int bits, const uint16_t *q, const int *query)
{
    const int halves = ROWS > 8 ? 2 : 1;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    tile_result<D, ROWS> *result = &s->result[threadIdx.x / 32];
    const uint64_t *words = p->bits + (size_t)bits * p->unit_rows;
    uint64_t word[2] = { 0, 0 };
    float x[TILE / 8][4], o[D / 8][4], base[2], sum[2];
    uint32_t w[TILE / 4];

#pragma unroll
    for (int r = 0; r < halves; r++)
        if (bits >= 0 && query[r] < item->rows)
            word[r] = words[query[r]];
    barrier_wait(&s->k_full[place.at], place.parity);
    multiply_keys<D>(x, q, item->rows * p->group, s->k[place.at]);
    done_with(&s->k_empty[place.at] + nothing_behind(x));
    if (bits >= 0) {
        hide<0>(x, word[0], t);
        if (halves == 2)
            hide<1>(x, word[1], t);
    }
    soften<0>(x, p->scale, &base[0], &sum[0]);
    if (halves == 2)
        soften<1>(x, p->scale, &base[1], &sum[1]);
#pragma unroll
    for (int i = 0; i < TILE / 8; i++) {
        w[2 * i] = pack_bf16(x[i][0], x[i][1]);
        w[2 * i + 1] = halves == 2 ? pack_bf16(x[i][2], x[i][3]) : 0;
    }
    barrier_wait(&s->result_empty, parity ^ 1);
#pragma unroll
    for (int r = 0; r < halves; r++)
        if (t == 0 && g + r * 8 < ROWS) {
            result->base[g + r * 8] = base[r];
            result->sum[g + r * 8] = sum[r];
        }
    barrier_wait(&s->v_full[place.at], place.parity);
    if (bits < 0) {
        multiply_values<D, 0>(o, w, s->v[place.at], 0);
        leave_sums<D, ROWS>(result, o, query, -1, item->rows);
    } else {
#pragma unroll 1
        for (int i = 0; i < item->rows; i++) {
            multiply_values<D, 1>(o, w, s->v[place.at], words[i]);
            leave_sums<D, ROWS>(result, o, query, i, item->rows);
        }
    }
    done_with(&s->v_empty[place.at]);
}

#endif
