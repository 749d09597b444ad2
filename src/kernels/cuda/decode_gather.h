/* SPDX-License-Identifier: Apache-2.0 */
/* decode_gather.h - from tiles to outputs: how the four warps of
 * attention_decode.cu that compute sum a quad and climb the tree, and how those
 * that gather add up the items of a unit. */
#ifndef BT_CUDA_DECODE_GATHER_H
#define BT_CUDA_DECODE_GATHER_H

#include "kernels/cuda/decode_loading.h"

#include <math.h>

/* ---- the tree ---------------------------------------------------------- */

/* A thread's four columns of a row, as far as it is summed. */
typedef struct part {
    float base, sum;
    float4 o;
} part;

BT_DEVICE part nothing(void)
{
    return part{ -INFINITY, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f) };
}

/* a + b * scale, rounded once. */
BT_DEVICE float4 add_scaled(float4 a, float4 b, float scale)
{
    return make_float4(__fmaf_rn(b.x, scale, a.x), __fmaf_rn(b.y, scale, a.y),
                       __fmaf_rn(b.z, scale, a.z), __fmaf_rn(b.w, scale, a.w));
}

/* Where nothing is seen any finite base will do. */
BT_DEVICE float finite_base(float base)
{
    return base == -INFINITY ? 0.0f : base;
}

/* a, and b behind it. */
BT_DEVICE part plus(part a, part b)
{
    part both = nothing();
    both.base = fmaxf(a.base, b.base);
    float from = finite_base(both.base);
    float keep = exp2_fast(a.base - from), take = exp2_fast(b.base - from);
    both.sum = __fmaf_rn(b.sum, take, __fmul_rn(a.sum, keep));
    both.o = add_scaled(add_scaled(both.o, a.o, keep), b.o, take);
    return both;
}

/* x is a node of a stretch's tree: quads [first, first + 2^level). Right
 * children are added to their left siblings, up to the level `top`; a left one
 * waits in `left`. */
template <int ITERS>
BT_DEVICE void climb(part *x, part (*left)[ITERS], int first, int level,
                     int top)
{
    bool on = true;
#pragma unroll
    for (int l = 0; l < BT_LEVELS; l++)
        if (on && l >= level && l < top) {
            on = first >> l & 1;
#pragma unroll
            for (int i = 0; i < ITERS; i++)
                if (on)
                    x[i] = plus(left[l][i], x[i]);
                else
                    left[l][i] = x[i];
        }
}

/* Which row of the unit, and which four columns, a thread sums: of those that
 * compute as of those that gather. */
template <int D> BT_DEVICE int row_of(int iteration)
{
    return iteration * (READERS / (D / 4)) + threadIdx.x % READERS / (D / 4);
}

template <int D> BT_DEVICE int column_of(void)
{
    return threadIdx.x % (D / 4) * 4;
}

/* The tiles of a quad that are `seen`. */
template <int D, int ROWS, int STAGES>
BT_DEVICE part sum_quad(const decode_shared<D, ROWS, STAGES> *s, uint32_t seen,
                        int row)
{
    const tile_result<D, ROWS> *tile = s->result;
    int column = column_of<D>() ^ bank_shift(row);
    part quad = nothing();
#pragma unroll
    for (int j = 0; j < BT_QUAD; j++)
        if (seen >> j & 1)
            quad.base = fmaxf(quad.base, tile[j].base[row]);
    float from = finite_base(quad.base);
#pragma unroll
    for (int j = 0; j < BT_QUAD; j++)
        if (seen >> j & 1) {
            float scale = exp2_fast(tile[j].base[row] - from);
            float4 o = *(const float4 *)&tile[j].o[row][column];
            quad.sum = __fmaf_rn(tile[j].sum[row], scale, quad.sum);
            quad.o = add_scaled(quad.o, o, scale);
        }
    return quad;
}

/* ---- results ----------------------------------------------------------- */

BT_DEVICE void store_output(const decode_params *p, const decode_work *work,
                            int row, int column, part x)
{
    int query = row / p->group;
    size_t token = work->item.row + query;
    size_t head = work->head * p->group + row - query * p->group;
    // A sum that is NaN is one of something.
    bool empty = x.base == -INFINITY && x.sum == 0.0f;
    float share = empty ? 0.0f : __frcp_rn(x.sum);
    uint2 four;
    // The fma turns -0 into 0, so that no sign tells what a hidden value's was.
    four.x = pack_bf16(fmaf(x.o.x, share, 0.0f), fmaf(x.o.y, share, 0.0f));
    four.y = pack_bf16(fmaf(x.o.z, share, 0.0f), fmaf(x.o.w, share, 0.0f));
    *(uint2 *)(p->out + token * p->out_token + head * p->out_head + column) =
        four;
    if (p->lse && column == 0)
        p->lse[token * p->heads + head] =
            empty ? -INFINITY
                  : (x.base + __log2f(x.sum)) * 0.693147180559945309f;
}

/* The row of a slot in `partial`. */
BT_DEVICE size_t partial_row(const decode_params *p, int slot, int head,
                             int row)
{
    return ((size_t)slot * p->kv_heads + head) * (p->unit_rows * p->group) +
           row;
}

/* The end of an item: its result is stored. */
template <int D, int ITERS>
BT_DEVICE void finish(const decode_params *p, const decode_work *work,
                      const part *x)
{
    int slot = work->item.slot, column = column_of<D>();
#pragma unroll
    for (int i = 0; i < ITERS; i++) {
        int row = row_of<D>(i);
        if (row >= work->item.rows * p->group)
            continue;
        if (slot < 0) {
            store_output(p, work, row, column, x[i]);
        } else {
            size_t at = partial_row(p, slot, work->head, row);
            *(float4 *)(p->partial + at * D + column) = x[i].o;
            if (column == 0)
                p->partial_base[at] = make_float2(x[i].base, x[i].sum);
        }
    }
}

/* ---- gathering --------------------------------------------------------- */

/* The unit's entries from `first` on, as many as are looked at together. */
template <int D, int ROWS, int STAGES>
BT_DEVICE void load_entries(const decode_params *p,
                            decode_shared<D, ROWS, STAGES> *s,
                            const bt_decode_item *item, int first)
{
    int thread = threadIdx.x % READERS;
    if (thread < ENTRIES && first + thread < item->entries)
        s->entries[thread] = p->entries[item->entry + first + thread];
}

/* climb() to the top of a stretch for one part, in a loop: this code runs
 * seldom, and long code is long in coming. Returns whether x is a stretch. */
BT_DEVICE bool climb_stretch(part *x, part *left, bt_decode_entry entry)
{
    int level = entry.level;
#pragma unroll 1
    for (; level < BT_LEVELS && entry.first >> level & 1; level++)
        *x = plus(level == 0 ? left[0] : level == 1 ? left[1] : left[2], *x);
#pragma unroll
    for (int l = 0; l < BT_LEVELS; l++)
        if (l == level)
            left[l] = *x;
    return level == BT_LEVELS;
}

/* All of a unit's tree above its items, for one row and four columns. The loads
 * ask for no condition, which would have each one wait for the one before: for
 * what is not wanted they read what is there. */
template <int D, int ROWS, int STAGES>
BT_DEVICE part sum_unit(const decode_params *p,
                        decode_shared<D, ROWS, STAGES> *s,
                        const decode_work *work, int row)
{
    const int ahead = 8; // entries that are under way together
    part total = nothing(), left[BT_LEVELS];
    int entries = work->item.entries;
#pragma unroll 1
    for (int e = 0; e < entries; e += ahead) {
        part x[ahead];
        if (e % ENTRIES == 0 && entries > ENTRIES) {
            named_sync(BARRIER_GATHER, READERS);
            load_entries(p, s, &work->item, e);
            named_sync(BARRIER_GATHER, READERS);
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            int at = min(e + i, entries - 1) % ENTRIES;
            size_t from =
                partial_row(p, max(s->entries[at].slot, 0), work->head, row);
            float2 base = __ldcg(&p->partial_base[from]);
            x[i].o = __ldcg(
                (const float4 *)(p->partial + from * D + column_of<D>()));
            x[i].base = base.x;
            x[i].sum = base.y;
        }
#pragma unroll
        for (int i = 0; i < ahead; i++)
            if (e + i < entries) {
                bt_decode_entry entry = s->entries[(e + i) % ENTRIES];
                if (entry.slot < 0)
                    x[i] = nothing();
                if (climb_stretch(&x[i], left, entry))
                    total = plus(total, x[i]);
            }
    }
    return total;
}

/* Whether it was the last item of its unit. Also brings its entries. */
template <int D, int ROWS, int STAGES>
BT_DEVICE bool was_last(const decode_params *p,
                        decode_shared<D, ROWS, STAGES> *s,
                        const decode_work *work)
{
    const bt_decode_item *item = &work->item;
    named_sync(BARRIER_GATHER, READERS); // all have seen the entries before
    load_entries(p, s, item, 0);
    if (threadIdx.x % READERS == 0) {
        // Counts round and round, and so is ready for the next launch.
        uint32_t last = item->parts - 1;
        s->last =
            count_round(p->arrivals + item->unit * p->kv_heads + work->head,
                        last) == last;
    }
    named_sync(BARRIER_GATHER, READERS);
    return s->last;
}

template <int D, int ROWS, int STAGES>
BT_DEVICE void gather_items(const decode_params *p,
                            decode_shared<D, ROWS, STAGES> *s)
{
    ring at = {};
    grid_wait();
    for (;; at = ring_ahead(at, 1, ITEMS)) {
        const decode_work *work = &s->work[at.at];
        barrier_wait(&s->work_done[at.at], at.parity);
        int rows = work->item.rows * p->group;
        if (rows < 0)
            return;
        if (work->item.slot >= 0 && was_last(p, s, work))
#pragma unroll 1
            for (int i = 0; row_of<D>(i) - row_of<D>(0) < rows; i++) {
                int row = row_of<D>(i);
                part all = sum_unit(p, s, work, min(row, rows - 1));
                if (row < rows)
                    store_output(p, work, row, column_of<D>(), all);
            }
        done_with(&s->work_empty[at.at]);
    }
}

#endif
