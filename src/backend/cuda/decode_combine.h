/* SPDX-License-Identifier: Apache-2.0 */
/* decode_combine.h - the end of a job of attention_decode.cu, and the warps
 * that combine the chunks of a unit. */
#ifndef BT_CUDA_DECODE_COMBINE_H
#define BT_CUDA_DECODE_COMBINE_H

#include "backend/cuda/decode_tile.h"

/* The row of a slot in `partial`. */
BT_DEVICE size_t partial_row(const decode_params *p, int slot, int column,
                             int row)
{
    size_t at = (size_t)slot * p->columns + column;
    return at * (p->unit_rows * p->heads_per_split) + row;
}

/* The output's row of a row of the unit, and its place in lse. */
BT_DEVICE size_t output_row(const decode_params *p, const decode_work *work,
                            int row, size_t *lse)
{
    int query = query_of(work, row);
    size_t token = work->item.row + query;
    size_t head = work->head + row - query * work->heads;
    *lse = token * p->heads + head;
    return token * p->out_token + head * p->out_head;
}

/* A chunk's result is the output, or a partial one of its unit. */
template <int D, int HALVES, int COLUMNS, int BIAS>
BT_DEVICE void finish(const decode_params *p, const decode_work *work,
                      const thread_state *at, float (*o)[4], uint32_t taint,
                      const float *base, const float *sum)
{
    bool only = work->item.parts == 1;
    if (taint)
#pragma unroll
        for (int i = 0; i < 4 * COLUMNS; i++) {
            o[i / 4][i % 4] += taint >> i & 1 ? INFINITY : 0.0f;
            o[i / 4][i % 4] -= taint >> (i + 16) & 1 ? INFINITY : 0.0f;
        }
#pragma unroll
    for (int r = 0; r < HALVES; r++) {
        int row = at->g + r * 8, first = at->column * 8 + at->t * 2;
        float all = row_sum(sum[r]);
        float inverse = inverse_seen<BIAS>(base[r], all);
        if (row >= work->item.rows * work->heads)
            continue;
        size_t lse, to = output_row(p, work, row, &lse);
        size_t part = partial_row(p, work->item.slot, work->column, row);
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            float2 two = make_float2(o[n][2 * r], o[n][2 * r + 1]);
            if (!only)
                *(float2 *)(p->partial + part * D + first + n * 8) = two;
            else if (first + n * 8 < p->head_dim)
                *(uint32_t *)(p->out + to + first + n * 8) =
                    pack_output(two.x, two.y, inverse);
        }
        if (at->warp == 0 && at->t == 0) {
            if (!only)
                p->partial_base[part] = make_float2(base[r], all);
            else if (p->lse && work->job.part == 0)
                p->lse[lse] = lse_of(base[r], all);
        }
    }
}

/* ---- combining chunks -------------------------------------------------- */

/* Four columns of a row: what a chunk came to, and chunks merged in order. */
typedef struct chunk_piece {
    float2 stats; /* base and sum */
    float4 o;
} chunk_piece;

typedef struct merged_piece {
    float base, sum;
    float4 o;
} merged_piece;

template <int D>
BT_DEVICE chunk_piece load_piece(const decode_params *p,
                                 const decode_work *work, int chunk, int row,
                                 int column)
{
    size_t from = partial_row(p, work->item.first + chunk, work->column, row);
    return chunk_piece{ __ldcg(&p->partial_base[from]),
                        __ldcg(
                            (const float4 *)(p->partial + from * D + column)) };
}

BT_DEVICE void merge_piece(merged_piece *to, chunk_piece c)
{
    merge m = merge_of(&to->base, c.stats.x);
    to->sum = merge_add(to->sum, c.stats.y, m);
    to->o.x = merge_nonfinite(to->o.x, c.o.x, m);
    to->o.y = merge_nonfinite(to->o.y, c.o.y, m);
    to->o.z = merge_nonfinite(to->o.z, c.o.z, m);
    to->o.w = merge_nonfinite(to->o.w, c.o.w, m);
}

template <int BIAS>
BT_DEVICE void store_piece(const decode_params *p, const decode_work *work,
                           const merged_piece *m, int row, int column)
{
    float inverse = inverse_seen<BIAS>(m->base, m->sum);
    size_t lse, to = output_row(p, work, row, &lse) + column;
    if (column < p->head_dim)
        *(uint2 *)(p->out + to) =
            make_uint2(pack_output(m->o.x, m->o.y, inverse),
                       pack_output(m->o.z, m->o.w, inverse));
    if (p->lse && column == 0)
        p->lse[lse] = lse_of(m->base, m->sum);
}

/* The chunks of a unit, merged in order. Eight are under way together. */
template <int D, int BIAS>
BT_DEVICE void merge_chunks(const decode_params *p, const decode_work *work,
                            int row, int column)
{
    const int ahead = 8;
    int parts = work->item.parts;
    merged_piece m = { -INFINITY };
#pragma unroll 1
    for (int i = 0; i < parts; i += ahead) {
        chunk_piece c[ahead];
        // No condition: each load would wait for the one before.
#pragma unroll
        for (int j = 0; j < ahead; j++)
            c[j] = load_piece<D>(p, work, min(i + j, parts - 1), row, column);
#pragma unroll
        for (int j = 0; j < ahead; j++)
            if (i + j < parts)
                merge_piece(&m, c[j]);
    }
    store_piece<BIAS>(p, work, &m, row, column);
}

/* The same for two chunks and up to four pieces of a thread, from `first` on,
 * in one round trip to the L2. */
template <int D, int BIAS>
BT_DEVICE void merge_two_chunks(const decode_params *p, const decode_work *work,
                                int first, int pieces, int width)
{
    const int most = ROWS * D / 4 / COMBINE_THREADS;
    const int count = most < 4 ? most : 4;
    int left = work->job.part * width;
    chunk_piece c[count][2];
#pragma unroll
    for (int i = 0; i < 2 * count; i++) {
        int piece = min(first + i / 2 * COMBINE_THREADS, pieces - 1);
        c[i / 2][i % 2] = load_piece<D>(p, work, i % 2, piece / width,
                                        (left + piece % width) * 4);
    }
#pragma unroll
    for (int i = 0; i < count; i++) {
        int piece = first + i * COMBINE_THREADS;
        merged_piece m = { -INFINITY };
        merge_piece(&m, c[i][0]);
        merge_piece(&m, c[i][1]);
        if (piece < pieces)
            store_piece<BIAS>(p, work, &m, piece / width,
                              (left + piece % width) * 4);
    }
}

template <int D, int BIAS>
BT_DEVICE void merge_unit(const decode_params *p, const decode_work *work)
{
    int width = D / 4 / p->parts; // of a row, in pieces of four columns
    int pieces = work->item.rows * work->heads * width;
    int i = threadIdx.x % COMBINE_THREADS;
    if (work->item.parts == 2)
#pragma unroll 1
        for (; i < pieces; i += 4 * COMBINE_THREADS)
            merge_two_chunks<D, BIAS>(p, work, i, pieces, width);
#pragma unroll 1
    for (; i < pieces; i += COMBINE_THREADS)
        merge_chunks<D, BIAS>(p, work, i / width,
                              (work->job.part * width + i % width) * 4);
}

/* Whether it was the last item of its unit. */
template <int D>
BT_DEVICE bool finished_unit(const decode_params *p, decode_shared<D> *s,
                             const decode_work *work)
{
    if (threadIdx.x % COMBINE_THREADS == 0) {
        // Counts round and round, and so is ready for the next launch.
        uint32_t last = work->item.parts - 1;
        uint32_t *counter =
            p->arrivals + (size_t)work->item.unit * p->columns + work->column;
        s->last = atomic_inc_wrap(counter, last) == last;
    }
    named_sync(BARRIER_COMBINE, COMBINE_THREADS);
    bool last = s->last;
    named_sync(BARRIER_COMBINE, COMBINE_THREADS);
    return last;
}

template <int D, int BIAS>
BT_DEVICE void combine_jobs(const decode_params *p, decode_shared<D> *s)
{
    grid_dependency_wait();
    for (uint32_t number = 0;; number++) {
        decode_pipeline_state at =
            pipeline_state_at(number, kernel_traits<D>::items);
        const decode_work *work = &s->work[at.index];
        barrier_wait(&s->work_done[at.index], at.phase);
        if (work->item.rows < 0)
            return;
        if (work->item.parts > 1 && finished_unit(p, s, work))
            merge_unit<D, BIAS>(p, work);
        consumer_release(&s->work_empty[at.index]);
    }
}

#endif
