/* SPDX-License-Identifier: Apache-2.0 */
/* decode_compute.h - a job of the decoding kernels, from its queries in shared
 * memory to its output, as the eight compute warps run it. */
#ifndef BT_CUDA_DECODE_COMPUTE_H
#define BT_CUDA_DECODE_COMPUTE_H

#include "backend/cuda/decode_combine.h"

/* A block of keys of which the loader's next tile is the first. `words`: see
 * compute_job. */
BT_DEVICE key_block block_at(const decode_work *work, const uint64_t *words,
                             int lane, int block, uint32_t number)
{
    key_block b = { work->tiles + block * WARPS,
                    words ? words + block * WARPS : NULL, 0, number, number };
    // A reduction, not a vote: its result is in a uniform register, so the
    // branches on it are known to be uniform.
    bool seen = lane < WARPS && b.tiles[lane % WARPS].block >= 0;
    b.seen = __reduce_or_sync(~0u, (uint32_t)seen << lane % WARPS);
    b.values += __popc(b.seen); // K precedes V
    return b;
}

/* Weights from the scores of a block, and their sums. Returns whether a base
 * moved. */
template <int D, int HALVES, int BIAS>
BT_DEVICE bool weigh_block(const decode_params *p, decode_shared<D> *s,
                           const thread_state *at, const float (*x)[4],
                           float *base, float *sum)
{
    const int softmax_tiles = WARPS / kernel_traits<D>::warps_per_tile;
    publish_maxima<D, HALVES, BIAS>(p, s, at, x);
    named_sync(BARRIER_COMPUTE, COMPUTE_THREADS);
    bool moves = exponentiate_block<D, HALVES, BIAS>(p, s, at, x, base);
    moves = named_any(BARRIER_COMPUTE, COMPUTE_THREADS, moves);
    if (moves)
        rebase_block<D, HALVES, BIAS>(p, s, at, x, base, sum);
    else
#pragma unroll
        for (int r = 0; r < HALVES; r++)
#pragma unroll
            for (int u = 0; u < softmax_tiles; u++)
                sum[r] =
                    __fadd_rn(sum[r], total_of(s, u, at->g + r * 8, at->t));
    return moves;
}

/* A job, block by block of keys. Returns how many tiles it took. `words`: the
 * bits of the only query, by tile of the chunk, in shared memory; or NULL.
 * RESIDENT: all tiles are there, and stay. */
template <int D, int HALVES, int COLUMNS, int BIAS, int RESIDENT>
BT_DEVICE uint32_t compute_job(const decode_params *p, decode_shared<D> *s,
                               const decode_work *work, const uint64_t *words,
                               const uint16_t *q, thread_state *at,
                               uint32_t number)
{
    uint32_t begin = number, taint = 0;
    uint32_t todo = visible_blocks(work, at->lane);
    query_fragments<D> queries;
    float x[TILE / 8][4], o[COLUMNS][4];
    float base[2] = { -INFINITY, -INFINITY }, sum[2] = { 0.0f, 0.0f };
    job_bias bias;

    load_queries(&queries, q, work->item.rows * work->heads);
    at->column = (work->job.part * WARPS + at->warp) * COLUMNS;
#pragma unroll
    for (int r = 0; r < HALVES; r++)
        at->query[r] = min(query_of(work, at->g + r * 8), work->item.rows - 1);
    load_job_bias<HALVES, BIAS>(&bias, at, p, work);
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
        o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
#pragma unroll 1
    for (; todo; todo &= todo - 1) {
        key_block b =
            block_at(work, words, at->lane, __ffs((int)todo) - 1, number);
        early_values<COLUMNS> early;
        if constexpr (RESIDENT)
            load_early_values<D>(&early, s, at, b);
        score_block<D, HALVES, BIAS, RESIDENT>(p, s, &queries, at, &bias, b, x);
        bool finite = RESIDENT && all_finite(early.f, early.tiles);
        bool moved = weigh_block<D, HALVES, BIAS>(p, s, at, x, base, sum);
        if constexpr (RESIDENT)
            value_resident<D, HALVES, COLUMNS>(p, s, work, at, b, &early,
                                               finite, moved, o, &taint);
        else
            value_block<D, HALVES, COLUMNS>(p, s, work, at, b, moved, o,
                                            &taint);
        number += 2 * __popc(b.seen);
    }
    finish<D, HALVES, COLUMNS, BIAS>(p, work, at, o, taint, base, sum);
    return number - begin;
}

#endif
