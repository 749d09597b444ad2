/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_rows.h - rows that a product of few rows computes itself and puts into
 * shared memory: a norm or a gated activation that it carries out, too. Every
 * block computes all rows that it needs, for that takes less time than a kernel
 * of its own; each row is written to memory once, by the blocks of one tile.
 *
 * Rows lie as wgmma reads them: in panels of 64 of k, ROWS rows of 128 bytes,
 * swizzled. */
#ifndef BT_CUDA_GEMM_ROWS_H
#define BT_CUDA_GEMM_ROWS_H

#include "backend/cuda/gemm_end.h"
#include "backend/cuda/norm_row.h"
#include "backend/cuda/warp.h"

enum {
    ROW_THREADS = 128, /* that compute rows */
    GATE_ROWS = 4,     /* of a gated activation at a time, */
    PANEL_UNITS = 8,   /* of eight elements in a panel */
    NORM_ROWS = 4,     /* and of a norm */
    NORM_WARPS =
        8, /* whose sums a tree adds in ops_norm.cu; 256 columns each */
    NORM_HELD = 1024 /* columns for each octet of a thread */
};

/* The part of the rows that a block needs, and which tile of how many it is. */
typedef struct row_part_of {
    int k, panels;
    int tile, tiles;
} row_part_of;

/* Where the eight elements `unit` of a row are in shared memory. */
template <int ROWS> BT_DEVICE uint4 *unit_at(uint8_t *rows, int row, int unit)
{
    return (uint4 *)(rows + unit / PANEL_UNITS * ROWS * 128 + row * 128 +
                     ((unit ^ row) & 7) * 16);
}

BT_DEVICE void unpack_eight(float *v, uint4 u)
{
    v[0] = low_bf16(u.x), v[1] = high_bf16(u.x);
    v[2] = low_bf16(u.y), v[3] = high_bf16(u.y);
    v[4] = low_bf16(u.z), v[5] = high_bf16(u.z);
    v[6] = low_bf16(u.w), v[7] = high_bf16(u.w);
}

BT_DEVICE uint4 pack_eight(const float *v)
{
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                      pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

/* ---- gated activations --------------------------------------------------- */

template <bt_act ACT> BT_DEVICE uint4 gate_eight(uint4 x, uint4 up)
{
    float v[8], w[8];
    unpack_eight(v, x);
    unpack_eight(w, up);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = __fmul_rn(act_of(ACT, v[i]), w[i]);
    return pack_eight(v);
}

template <int ROWS, bt_act ACT>
BT_DEVICE void gate_unit(const bt_gemm_rows &r, uint8_t *to, int unit,
                         const row_part_of &part)
{
    int column = part.k + unit * 8;
    for (int first = 0; first < r.m; first += GATE_ROWS) {
        uint4 v[GATE_ROWS], w[GATE_ROWS];
#pragma unroll
        for (int i = 0; i < GATE_ROWS; i++) {
            v[i] = w[i] = make_uint4(0, 0, 0, 0);
            if (first + i < r.m && column < r.k) {
                v[i] = *(const uint4 *)(r.x + (first + i) * r.ldx + column);
                w[i] =
                    *(const uint4 *)(r.with + (first + i) * r.ld_with + column);
            }
        }
#pragma unroll
        for (int i = 0; i < GATE_ROWS; i++) {
            int row = first + i;
            if (row >= r.m)
                continue;
            uint4 y = gate_eight<ACT>(v[i], w[i]);
            *unit_at<ROWS>(to, row, unit) = y;
            if (column < r.k && row % part.tiles == part.tile)
                *(uint4 *)(r.y + row * r.ld_y + column) = y;
        }
    }
}

template <int ROWS>
BT_DEVICE void gate_any(const bt_gemm_rows &r, uint8_t *to, int unit,
                        const row_part_of &part)
{
    switch (r.act) {
    case BT_ACT_RELU:
        gate_unit<ROWS, BT_ACT_RELU>(r, to, unit, part);
        break;
    case BT_ACT_GELU_ERF:
        gate_unit<ROWS, BT_ACT_GELU_ERF>(r, to, unit, part);
        break;
    case BT_ACT_GELU_TANH:
        gate_unit<ROWS, BT_ACT_GELU_TANH>(r, to, unit, part);
        break;
    default:
        gate_unit<ROWS, BT_ACT_SILU>(r, to, unit, part);
        break;
    }
}

/* ---- norms --------------------------------------------------------------- */

/* A thread has the eight columns of a row that it has in ops_norm.cu, and where
 * HELD is 2 those that the thread 128 further on has there, so that sums over a
 * row are the same. */
BT_DEVICE int norm_column(int held)
{
    return (held * ROW_THREADS + threadIdx.x) * 8;
}

/* Whether it is in the block's part of the rows. */
BT_DEVICE bool in_part(const row_part_of &part, int column)
{
    return column >= part.k && column < part.k + part.panels * PANEL_UNITS * 8;
}

/* What a thread has of gain and bias, in the block's part of the rows. */
template <int HELD> struct norm_weights {
    uint4 gain[HELD], bias[HELD];
};

template <int HELD>
BT_DEVICE void norm_weights_load(norm_weights<HELD> *w, const bt_gemm_rows &r,
                                 const row_part_of &part)
{
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        int column = norm_column(h);
        w->gain[h] = w->bias[h] = make_uint4(0, 0, 0, 0);
        if (column < r.k && in_part(part, column)) {
            w->gain[h] = *(const uint4 *)(r.gain + column);
            if (r.bias)
                w->bias[h] = *(const uint4 *)(r.bias + column);
        }
    }
}

/* Some rows at a time: x, with the residual added as it is stored. */
template <int HELD> struct norm_batch {
    uint4 x[NORM_ROWS][HELD];
    float mean[NORM_ROWS], scale[NORM_ROWS];
    int first;
};

/* Sums of warps: of two kinds, and of two batches in turn. */
typedef float norm_sums[2][2][NORM_ROWS][NORM_WARPS];

template <int HELD>
BT_DEVICE void norm_load(norm_batch<HELD> *n, const bt_gemm_rows &r)
{
    uint4 add[NORM_ROWS][HELD];
#pragma unroll
    for (int i = 0; i < NORM_ROWS; i++)
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            int row = n->first + i, column = norm_column(h);
            n->x[i][h] = add[i][h] = make_uint4(0, 0, 0, 0);
            if (row < r.m && column < r.k) {
                n->x[i][h] = *(const uint4 *)(r.x + row * r.ldx + column);
                if (r.with)
                    add[i][h] =
                        *(const uint4 *)(r.with + row * r.ld_with + column);
            }
        }
    if (!r.with)
        return;
#pragma unroll
    for (int i = 0; i < NORM_ROWS; i++)
        if (n->first + i < r.m)
#pragma unroll
            for (int h = 0; h < HELD; h++) {
                float v[8], w[8];
                unpack_eight(v, n->x[i][h]);
                unpack_eight(w, add[i][h]);
#pragma unroll
                for (int x = 0; x < 8; x++)
                    v[x] = __fadd_rn(v[x], w[x]);
                n->x[i][h] = pack_eight(v);
            }
}

/* Lanes of a warp in a tree: rows of up to 256 columns have 8, 16 or 32. */
template <int HELD>
BT_DEVICE void norm_lanes_sum(float *x, int width, float *to)
{
    int lanes = width <= 64 ? 8 : width <= 128 ? 16 : 32;
#pragma unroll
    for (int i = 16; i; i /= 2)
        if (i < lanes)
#pragma unroll
            for (int h = 0; h < HELD; h++)
                x[h] = __fadd_rn(x[h], __shfl_xor_sync(0xffffffffu, x[h], i));
    if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int h = 0; h < HELD; h++)
            to[h * (ROW_THREADS / 32) + threadIdx.x / 32] = x[h];
}

/* Warps in a tree of eight; a row of up to 256 columns has one. */
template <int HELD> BT_DEVICE float norm_warps_sum(const float *sums, int width)
{
    float x[NORM_WARPS];
    if (width <= 256)
        return sums[0];
#pragma unroll
    for (int i = 0; i < NORM_WARPS; i++)
        x[i] =
            i < HELD * (ROW_THREADS / 32) && i * 256 < width ? sums[i] : 0.0f;
#pragma unroll
    for (int i = NORM_WARPS / 2; i; i /= 2)
#pragma unroll
        for (int j = 0; j < i; j++)
            x[j] = __fadd_rn(x[j], x[j + i]);
    return x[0];
}

template <int HELD>
BT_DEVICE void norm_stats(norm_batch<HELD> *n, const bt_gemm_rows &r,
                          float (*sums)[NORM_ROWS][NORM_WARPS])
{
    float part[HELD], v[8];
    if (!r.rms) {
#pragma unroll
        for (int i = 0; i < NORM_ROWS; i++)
            if (n->first + i < r.m) {
#pragma unroll
                for (int h = 0; h < HELD; h++) {
                    unpack_eight(v, n->x[i][h]);
                    part[h] = norm_add8(0.0f, v);
                }
                norm_lanes_sum<HELD>(part, r.k, sums[0][i]);
            }
        named_sync(1, ROW_THREADS);
    }
#pragma unroll
    for (int i = 0; i < NORM_ROWS; i++)
        if (n->first + i < r.m) {
            float sum = r.rms ? 0.0f : norm_warps_sum<HELD>(sums[0][i], r.k);
            n->mean[i] = __fmul_rn(sum, r.inverse);
#pragma unroll
            for (int h = 0; h < HELD; h++) {
                unpack_eight(v, n->x[i][h]);
                part[h] =
                    norm_center8(0.0f, v, n->mean[i], r.k - norm_column(h));
            }
            norm_lanes_sum<HELD>(part, r.k, sums[1][i]);
        }
    named_sync(1, ROW_THREADS);
#pragma unroll
    for (int i = 0; i < NORM_ROWS; i++)
        if (n->first + i < r.m)
            n->scale[i] = norm_scale(norm_warps_sum<HELD>(sums[1][i], r.k),
                                     r.inverse, r.epsilon);
}

/* The block's part of the rows, and what else the norm writes. */
template <int ROWS, int HELD>
BT_DEVICE void norm_end(const norm_batch<HELD> &n, const norm_weights<HELD> &w,
                        const bt_gemm_rows &r, uint8_t *to,
                        const row_part_of &part)
{
#pragma unroll
    for (int i = 0; i < NORM_ROWS; i++) {
        int row = n.first + i;
        if (row >= r.m)
            break;
        bool writes = row % part.tiles == part.tile;
        if (writes && part.k == 0 && threadIdx.x == 0) {
            r.mean[row] = n.mean[i];
            r.scale[row] = n.scale[i];
        }
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            int column = norm_column(h);
            uint4 y = make_uint4(0, 0, 0, 0);
            if (!in_part(part, column))
                continue;
            if (column < r.k) {
                float v[8], gain[8], bias[8];
                unpack_eight(v, n.x[i][h]);
                unpack_eight(gain, w.gain[h]);
                unpack_eight(bias, w.bias[h]);
                norm_center8(0.0f, v, n.mean[i], r.k - column);
                norm_apply8(v, n.scale[i], gain, r.bias != NULL, bias);
                y = pack_eight(v);
                if (writes) {
                    *(uint4 *)(r.y + row * r.ld_y + column) = y;
                    if (r.with)
                        *(uint4 *)(r.sum + row * r.ld_sum + column) = n.x[i][h];
                }
            }
            *unit_at<ROWS>(to, row, (column - part.k) / 8) = y;
        }
    }
}

/* ---- all rows ------------------------------------------------------------ */

/* Put the block's part of the rows into shared memory, by ROW_THREADS threads
 * and named barrier 1. HELD of a norm: 1 up to 1,024 columns, else 2; its
 * weights have been loaded. The tensor cores may read the rows once the threads
 * have met. */
template <int ROWS, bt_gemm_source SOURCE, int HELD>
BT_DEVICE void make_rows(const bt_gemm_rows &r, const norm_weights<HELD> &w,
                         uint8_t *to, const row_part_of &part)
{
    if constexpr (SOURCE == BT_ROWS_NORM) {
        __shared__ norm_sums sums;
        norm_batch<HELD> n;
        int turn = 0;
        for (n.first = 0; n.first < r.m; n.first += NORM_ROWS, turn ^= 1) {
            norm_load(&n, r);
            norm_stats(&n, r, sums[turn]);
            norm_end<ROWS>(n, w, r, to, part);
        }
    } else {
        for (int unit = threadIdx.x; unit < part.panels * PANEL_UNITS;
             unit += ROW_THREADS)
            gate_any<ROWS>(r, to, unit, part);
    }
    fence_proxy_async();
}

#endif
