/* SPDX-License-Identifier: Apache-2.0 */
/* backward_fused.h - all gradients in one pass over the pairs, in five
 * products.
 *
 * A block holds a tile of keys and values, 64 for each of its groups, and
 * streams the queries that see them, in steps of 64 rows from the last one to
 * the first:
 *
 *     x = K Q^T            scores, then weights P
 *     y = V dO^T           dP, then dS
 *     dV += P dO           in registers, like
 *     dK += dS Q
 *     dQ of the step = dS^T K, over the keys of all groups
 *
 * dS crosses from one group to the others through shared memory. A group makes
 * a panel of dQ, 64 columns, a step late, so that none waits for another. With
 * heads of 128 there are two groups, and each makes one of the two panels of
 * every step. With heads of 64 there are three, which take turns. The dQ of a
 * step goes to shared memory, from where the copy engine adds it to a float32
 * sum in the GPU's memory. The tiles of a step add in the order of their ranks
 * (loop_list.h): the first one stores, and every other one waits until the
 * counter of (head, step, panel) says that it is its turn. Tiles are begun in
 * an order in which each follows those it waits for, and all stream the steps
 * downwards; so the previous tile is at least as far, and there is rarely
 * anything to wait for. Other kernels round the sums to bfloat16
 * (backward_finish_dq.h).
 *
 * The fences after storing dS and dQ come after the next products are issued: a
 * fence takes about as long as a product.
 *
 * Query heads that share a key head follow each other in an item of work. Where
 * a document is long and its tiles have unequally many steps, they are split:
 * each query head has an item of its own, so that no item takes much of the
 * kernel's time, and its sums of dK and dV are added to those of the others
 * pairwise, by whichever of two comes last. Heads of 64 would not gain by it.
 *
 * FIXUP: what is not finite in K, Q and dO is replaced by 0, and the weights of
 * that row or key become NaN for those who see it. Where a result is not
 * finite, all tiles of that key head are recomputed this way. */
#ifndef BT_CUDA_BACKWARD_FUSED_H
#define BT_CUDA_BACKWARD_FUSED_H

#include "backend/cuda/backward_fused_load.h"

/* ---- computing --------------------------------------------------------- */

/* The registers of a thread that computes. */
template <int D> struct fused_state {
    static constexpr int merged_warps = fused_layout<D>::warps;
    static constexpr int merged_sums = D; /* of a thread */
    int group, row, t;
    float scale;
    pipeline_state items, streamed;
    uint32_t stationary_phase, dq_parity;
    uint32_t ds_parity; /* of the round of the step's dS */
    int flags;          /* of the step */
    bool partial;
    bool taint[2]; /* FIXUP: the thread's keys are not finite */
    uint64_t word[2];
    float x[STEP / 2], y[STEP / 2];
    float2 lse[8]; /* reads_ahead */
    uint32_t w_p[STEP / 4], w_ds[STEP / 4];
    float dk[D / 2], dv[D / 2];
};

/* d (64 x 64) = or += a (64 x 16) b (16 x 64), both shared, row by row. */
BT_DEVICE void wgmma_nt_64(float *d, uint64_t a, uint64_t b, int accumulate)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        " %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        " %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 1;\n"
        "}\n"
        : BT_ACC_32(d, 0)
        : "l"(a), "l"(b), "r"(accumulate));
}

/* The buffer of a step's dS. */
template <int D> BT_DEVICE int ds_of(const fused_state<D> *b)
{
    return b->flags / DS & 3;
}

/* That of the step before. */
template <int D> BT_DEVICE int ds_before(int ds)
{
    return ds ? ds - 1 : fused_layout<D>::groups - 1;
}

/* A round of the buffers ends with the last one. */
template <int D> BT_DEVICE void leave_ds(fused_state<D> *b, int ds)
{
    b->ds_parity ^= (uint32_t)(ds == fused_layout<D>::groups - 1);
}

template <int D> BT_DEVICE bool makes_dq(const fused_state<D> *b, int ds)
{
    return !fused_layout<D>::takes_turns || ds == b->group;
}

/* The group's panel of the dQ of a step, issued: into y, whose step is done.
 * `round`: parity of the round of its dS. */
template <int D, int STAGES>
BT_DEVICE void issue_dq(fused_state<D> *b, fused_shared<D, STAGES> *s, int ds,
                        uint32_t round)
{
    int panel = fused_layout<D>::takes_turns ? 0 : b->group;
    barrier_wait(&s->ds_full[ds], round);
    wgmma_fence();
#pragma unroll
    for (int g = 0; g < fused_layout<D>::groups; g++) {
        uint64_t a = tile_descriptor(s->ds[ds][g], GROUP_ROWS * PANEL * 2);
        uint64_t k = tile_descriptor(s->keys[g] + panel * (GROUP_ROWS * PANEL),
                                     GROUP_ROWS * PANEL * 2);
#pragma unroll
        for (int i = 0; i < GROUP_ROWS / 16; i++)
            wgmma_nt_64(b->y, a + i * (16 * 2 >> 4),
                        k + i * (16 * PANEL * 2 >> 4), g + i > 0);
    }
    wgmma_commit();
}

/* The same for the step before that whose dS is in buffer `ds`. */
template <int D, int STAGES>
BT_DEVICE void issue_dq_before(fused_state<D> *b, fused_shared<D, STAGES> *s,
                               int ds)
{
    issue_dq(b, s, ds_before<D>(ds), b->ds_parity ^ (uint32_t)(ds == 0));
}

/* It is there, and goes to shared memory, */
template <int D, int STAGES>
BT_DEVICE void take_dq(fused_state<D> *b, fused_shared<D, STAGES> *s, int ds)
{
    float4 *to = (float4 *)s->dq[b->group] + threadIdx.x % GROUP;
    wgmma_fence_operand<STEP / 2>(b->y);
    consumer_release(&s->ds_empty[ds]);
    barrier_wait(&s->dq_empty[b->group], b->dq_parity ^ 1);
    b->dq_parity ^= 1;
#pragma unroll
    for (int i = 0; i < DQ_PANEL / GROUP / 4; i++)
        to[i * GROUP] = make_float4(b->y[i * 4], b->y[i * 4 + 1],
                                    b->y[i * 4 + 2], b->y[i * 4 + 3]);
}

/* and to the copy engine. */
template <int D, int STAGES>
BT_DEVICE void send_dq(fused_state<D> *b, fused_shared<D, STAGES> *s)
{
    fence_proxy_async();
    consumer_release(&s->dq_full[b->group]);
}

/* dS of the step, for all groups: query by query, as dQ reads it. */
template <int D, int STAGES>
BT_DEVICE void store_ds(fused_state<D> *b, fused_shared<D, STAGES> *s)
{
    int lane = threadIdx.x % 32;
    int query = lane / 16 * 8 + lane % 8;
    int chunk = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2; // eight keys
    int ds = ds_of(b);
    uint16_t *to =
        s->ds[ds][b->group] + query * PANEL + (chunk ^ query % 8) * 8;
    barrier_wait(&s->ds_empty[ds], b->ds_parity ^ 1);
#pragma unroll
    for (int i = 0; i < STEP / 16; i++)
        store_fragment_transposed(to + i * 16 * PANEL, b->w_ds + i * 4);
}

template <int D, int STAGES>
BT_DEVICE void send_ds(fused_shared<D, STAGES> *s, int ds)
{
    fence_proxy_async();
    consumer_release(&s->ds_full[ds]);
}

/* FIXUP: `WARPS` warps clean the rows of a step, Q and dO, and taint those that
 * were not finite. */
template <int D, int WARPS>
BT_DEVICE void clean_rows(uint16_t (*tiles)[STEP * D], float *lse)
{
    int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32 - 4; row < STEP; row += WARPS) {
        bool nonfinite = false;
        for (int i = 0; i < 2 * (D / PANEL); i++) {
            uint16_t *tile = tiles[i / (D / PANEL)];
            uint32_t *word =
                (uint32_t *)(tile + (i % (D / PANEL) * STEP + row) * PANEL) +
                lane;
            uint32_t two = *word, filtered = filter_pair(two);
            nonfinite |= filtered != two;
            *word = filtered;
        }
        if (__any_sync(~0u, nonfinite) && lane == 0)
            lse[row] = NAN;
    }
    fence_proxy_async();
    named_sync(BARRIER_ALL, WARPS * 32);
}

/* FIXUP: a warp the same for its 16 keys, of which the thread has two. */
template <int D> BT_DEVICE void clean_keys(bool *taint, uint16_t *keys)
{
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 % 4 * 16;
    uint32_t nonfinite_rows = 0;
    for (int row = 0; row < 16; row++) {
        bool nonfinite = false;
        for (int i = 0; i < D / PANEL; i++) {
            uint32_t *word =
                (uint32_t *)(keys + (i * GROUP_ROWS + first + row) * PANEL) +
                lane;
            uint32_t two = *word, filtered = filter_pair(two);
            nonfinite |= filtered != two;
            *word = filtered;
        }
        nonfinite_rows |= (uint32_t)__any_sync(~0u, nonfinite) << row;
    }
    taint[0] = nonfinite_rows >> (lane / 4) & 1;
    taint[1] = nonfinite_rows >> (lane / 4 + 8) & 1;
    fence_proxy_async();
}

/* Wait for the next step: its stage, and what the group sees of it. */
template <int D, int STAGES, int FIXUP>
BT_DEVICE int enter_step(fused_state<D> *b, const backward_params *p,
                         fused_shared<D, STAGES> *s)
{
    barrier_wait(&s->streamed_full[b->streamed.index], b->streamed.phase);
    // A reduction: its answer is in a uniform register, and so are the
    // descriptors that follow from the stage.
    b->flags = (int)__reduce_or_sync(~0u, s->flags[b->streamed.index]);
    int at = b->flags / STAGE;
    if (FIXUP)
        clean_rows<D, fused_layout<D>::warps>(s->streamed[at], s->rows[at].lse);
    bool sees = b->flags >> b->group & 1;
    b->partial = !sees || b->flags >> (BT_STEP_PARTIAL + b->group) & 1;
    b->word[0] = b->word[1] = 0;
    if (sees && b->partial) {
        const uint64_t *words =
            p->bits +
            (size_t)s->bits[at] * (fused_layout<D>::groups * GROUP_ROWS) +
            b->row;
        b->word[0] = __ldg(words);
        b->word[1] = __ldg(words + 8);
    }
    return at;
}

/* x is there, y under way: from scores to dS. */
template <int D, int STAGES, int FIXUP>
BT_DEVICE void make_step(fused_state<D> *b, fused_shared<D, STAGES> *s, int at)
{
    const bool reuses_packed = fused_layout<D>::reuses_packed;
    const bool reads_ahead = fused_layout<D>::reads_ahead;
    float2 delta[8];
    if (reads_ahead)
        compute_weights<1, FIXUP>(b->x, NULL, b->lse, b->scale);
    else
        compute_weights<1, FIXUP>(b->x, NULL, columns_of(s->rows[at].lse, b->t),
                                  b->scale);
    if (FIXUP) {
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            b->x[i] = b->taint[i / 2 % 2] ? NAN : b->x[i];
    }
    if (b->partial)
        apply_mask(b->x, b->word, b->t);
    if (reuses_packed)
        pack_pairs(b->w_p, b->x);
    if (reads_ahead)
        read_columns(delta, s->rows[at].delta, b->t);
    wgmma_wait<0>(); // y
    wgmma_fence_operand<STEP / 2>(b->y);
    if (b->flags & LAST)
        consumer_release(&s->values_empty);
    if (reuses_packed)
        compute_ds_packed(b->y, b->w_p, columns_of(s->rows[at].delta, b->t));
    else
        compute_ds<1>(b->y, b->x, NULL, delta);
    if (b->partial)
        apply_mask(b->y, b->word, b->t);
    pack_pairs(b->w_ds, b->y);
    if (!reuses_packed)
        pack_pairs(b->w_p, b->x);
    store_ds(b, s);
}

/* x of the step at `at`, issued, */
template <int D, int STAGES>
BT_DEVICE void issue_x(fused_state<D> *b, fused_shared<D, STAGES> *s, int at)
{
    issue_pairs<D, false>(b->x, NULL, s->keys[b->group], s->streamed[at][0]);
}

/* and y. */
template <int D, int STAGES>
BT_DEVICE void issue_y(fused_state<D> *b, fused_shared<D, STAGES> *s, int at)
{
    issue_pairs<D, false>(b->y, NULL, s->values[b->group], s->streamed[at][1]);
}

/* reads_ahead: lse, while x is being computed. */
template <int D, int STAGES>
BT_DEVICE void read_lse(fused_state<D> *b, fused_shared<D, STAGES> *s, int at)
{
    if (fused_layout<D>::reads_ahead)
        read_columns(b->lse, s->rows[at].lse, b->t);
}

/* The sums of a step. */
template <int D, int STAGES>
BT_DEVICE void issue_sums(fused_state<D> *b, fused_shared<D, STAGES> *s, int at)
{
    issue_sum<D>(b->dv, b->w_p, s->streamed[at][1]);
    issue_sum<D>(b->dk, b->w_ds, s->streamed[at][0]);
}

template <int D> BT_DEVICE void sums_are_there(fused_state<D> *b)
{
    wgmma_fence_operand<D / 2>(b->dk);
    wgmma_fence_operand<D / 2>(b->dv);
}

/* From one step to the next: its sums, dQ of the step before (DQ), and the
 * next step's products. There are registers for the weights or for x, so x is
 * issued when the sums are done. */
template <int D, int STAGES, bool DQ>
BT_DEVICE void issue_next(fused_state<D> *b, fused_shared<D, STAGES> *s, int at,
                          int next, int ds)
{
    issue_sums(b, s, at);
    send_ds(s, ds);
    if (DQ)
        issue_dq_before(b, s, ds);
    wgmma_wait<DQ>(); // the sums
    sums_are_there(b);
    issue_x(b, s, next);
    consumer_release(&s->streamed_empty[at]);
    if (DQ) {
        wgmma_wait<1>(); // dQ
        take_dq(b, s, ds_before<D>(ds));
    }
    issue_y(b, s, next);
    order_arrive<fused_layout<D>::groups, true>(b->group);
    if (DQ)
        send_dq(b, s);
    read_lse(b, s, next);
    wgmma_wait<1>(); // x
}

template <int D, int STAGES, int FIXUP, bool LATE>
BT_DEVICE int next_products(fused_state<D> *b, const backward_params *p,
                            fused_shared<D, STAGES> *s, int at)
{
    int ds = ds_of(b);
    pipeline_advance(&b->streamed, STAGES);
    int next = enter_step<D, STAGES, FIXUP>(b, p, s);
    order_wait<fused_layout<D>::groups, true>(b->group);
    if (LATE && makes_dq(b, ds_before<D>(ds)))
        issue_next<D, STAGES, true>(b, s, at, next, ds);
    else
        issue_next<D, STAGES, false>(b, s, at, next, ds);
    wgmma_fence_operand<STEP / 2>(b->x);
    leave_ds(b, ds);
    return next;
}

/* A sum leaves, 4 bytes a lane. Returns whether all that is stored is finite.
 */
template <int D>
BT_DEVICE bool store_direct(const backward_params *p, int which,
                            const fused_work *w, int row, const float *sum,
                            float factor)
{
    int t = threadIdx.x % 4;
    uint16_t *to = p->to[which] + (size_t)(w->row + row) * p->to_token[which] +
                   (size_t)w->head * p->to_head[which] + t * 2;
    size_t lower = p->to_token[which] * 8;
    uint32_t check[2] = { 0, 0 };
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        uint32_t two[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            // The fma turns -0 into 0, so that no sign tells what a hidden
            // value's was.
            const float *at = sum + i * 4 + r * 2;
            two[r] =
                pack_bf16(fmaf(at[0], factor, 0.0f), fmaf(at[1], factor, 0.0f));
            check[r] = check_finite(check[r], two[r]);
        }
        bool real = i * 8 < p->head_dim;
        if (real && row < w->rows)
            *(uint32_t *)(to + i * 8) = two[0];
        if (real && row + 8 < w->rows)
            *(uint32_t *)(to + lower + i * 8) = two[1];
    }
    return (row >= w->rows || (check[0] & 0x7fff7fff) == 0) &&
           (row + 8 >= w->rows || (check[1] & 0x7fff7fff) == 0);
}

/* The thread's number, found out once more: what follows from it is not kept in
 * registers while the steps of an item need all of them. */
BT_DEVICE int thread_again(void)
{
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/* A thread's sums in memory: what the lanes of a warp have lies together. */
template <int D>
BT_DEVICE void store_head_sums(const fused_state<D> *b, float4 *to)
{
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        const float *dk = b->dk + i * 4, *dv = b->dv + i * 4;
        __stcg(to + i * 32, make_float4(dk[0], dk[1], dk[2], dk[3]));
        __stcg(to + (D / 8 + i) * 32, make_float4(dv[0], dv[1], dv[2], dv[3]));
    }
}

BT_DEVICE void add_four(float *sum, float4 more)
{
    sum[0] += more.x;
    sum[1] += more.y;
    sum[2] += more.z;
    sum[3] += more.w;
}

template <int D>
BT_DEVICE void add_head_sums(fused_state<D> *b, const float4 *from)
{
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        add_four(b->dk + i * 4, __ldcg(from + i * 32));
        add_four(b->dv + i * 4, __ldcg(from + (D / 8 + i) * 32));
    }
}

/* The counter of two neighbours: how many have come, and, from MET_STORED on,
 * the sums of the first one are in memory. */
enum { MET_STORED = 4 };

/* A tile that is split: the sums of its query heads become one by a binary
 * tree, at whose leaves they are in order. Of two neighbours the first one to
 * come leaves its sum in memory, and the second one adds it to its own; the two
 * operands of an addition may be swapped, so the bits do not depend on which is
 * first. A neighbour that is not there is passed over. The second one waits for
 * no more than the stores of the first one, and resets the counter for the next
 * launch. Every warp does that for its rows. Returns whether the warp has the
 * sums of all heads now.
 *
 * There is room for half of the heads: node i of a level has that of the first
 * pair of heads below it, which nobody else needs once one of the pair has gone
 * on. */
template <class STATE>
BT_DEVICE bool merge_heads(STATE *b, const backward_params *p,
                           const fused_work *w, int warp)
{
    const int warps = STATE::merged_warps;        // of a tile
    const int each = STATE::merged_sums / 4 * 32; // float4 of a warp's sums
    int lane = thread_again() % 32;
    // Reductions: what is uniform is known to be.
    int inner = p->inner, head = __reduce_max_sync(~0u, w->head);
    int i = __reduce_max_sync(~0u, w->query_head) - head * inner;
    size_t tile = (size_t)(w->tile - p->ranges[1].tile) * p->heads + head;
    int *met = p->met + tile * inner * warps + warp;
    float4 *sums = (float4 *)p->head_sums +
                   (tile * ((inner + 1) / 2) * warps + warp) * each + lane;
    for (int level = 0, count = inner; count > 1;
         level++, count = (count + 1) / 2, i /= 2) {
        int neighbour = i ^ 1, before = 0;
        // The number of the leaf in the middle.
        int *counter = met + ((i | 1) << level) * warps;
        if (neighbour >= count)
            continue;
        if (lane == 0)
            before = atomicAdd(counter, 1);
        if (__reduce_max_sync(~0u, before) == 0) {
            store_head_sums(b, sums + (i << level) / 2 * (warps * each));
            __syncwarp();
            if (lane == 0) {
                __threadfence(); // what the other lanes have stored, too
                atomicAdd(counter, MET_STORED);
            }
            return false;
        }
        if (lane == 0) {
            while (counter_read(counter) < MET_STORED)
                ;
            *counter = 0;
        }
        __syncwarp();
        add_head_sums(b, sums + (neighbour << level) / 2 * (warps * each));
    }
    return true;
}

/* Store the sums of an item and reset them. */
template <int D, int STAGES, int FIXUP>
BT_DEVICE void store_item(fused_state<D> *b, const backward_params *p,
                          fused_shared<D, STAGES> *s)
{
    const fused_work *w = &s->item[b->items.index];
    bool all = !fused_layout<D>::may_split ||
               __reduce_max_sync(~0u, w->inner) == p->inner;
    if (all || merge_heads(b, p, w, thread_again() / 32 - 4)) {
        bool good = store_direct<D>(p, 1, w, b->row, b->dv, 1.0f);
        good &= store_direct<D>(p, 0, w, b->row, b->dk, p->scale);
        if (!FIXUP && !good)
            p->bad[w->head] = 1;
    }
    consumer_release(&s->item_empty[b->items.index]);
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        b->dk[i] = b->dv[i] = 0.0f;
}

/* The products of an item's first step, alone. */
template <int D, int STAGES, int FIXUP>
BT_DEVICE int first_products(fused_state<D> *b, const backward_params *p,
                             fused_shared<D, STAGES> *s)
{
    int at = enter_step<D, STAGES, FIXUP>(b, p, s);
    barrier_wait(&s->keys_full, b->stationary_phase);
    if (FIXUP) {
        clean_keys<D>(b->taint, s->keys[b->group]);
        named_sync(BARRIER_ALL, fused_layout<D>::warps * 32);
    }
    issue_x(b, s, at);
    barrier_wait(&s->values_full, b->stationary_phase);
    issue_y(b, s, at);
    read_lse(b, s, at);
    wgmma_wait<1>(); // x
    wgmma_fence_operand<STEP / 2>(b->x);
    b->stationary_phase ^= 1;
    return at;
}

/* The end of an item: the sums of its last step, what dQ there is still to be
 * made, and the sums leave. */
template <int D, int STAGES, int FIXUP, bool LATE>
BT_DEVICE void last_products(fused_state<D> *b, const backward_params *p,
                             fused_shared<D, STAGES> *s, int at)
{
    int ds = ds_of(b), before = ds_before<D>(ds);
    bool late = LATE && makes_dq(b, before);
    order_wait<fused_layout<D>::groups, true>(b->group);
    issue_sums(b, s, at);
    send_ds(s, ds);
    if (late)
        issue_dq_before(b, s, ds);
    wgmma_wait<0>();
    sums_are_there(b);
    consumer_release(&s->streamed_empty[at]);
    if (late) {
        take_dq(b, s, before);
        send_dq(b, s);
    }
    order_arrive<fused_layout<D>::groups, true>(b->group);
    if (makes_dq(b, ds)) {
        issue_dq(b, s, ds, b->ds_parity);
        wgmma_wait<0>();
    }
    consumer_release(&s->keys_empty);
    if (makes_dq(b, ds)) {
        take_dq(b, s, ds);
        send_dq(b, s);
    }
    store_item<D, STAGES, FIXUP>(b, p, s);
    leave_ds(b, ds);
    pipeline_advance(&b->streamed, STAGES);
    pipeline_advance(&b->items, 2);
}

/* Wait for the next item; false: there is none. */
template <int D, int STAGES>
BT_DEVICE bool item_there(fused_state<D> *b, fused_shared<D, STAGES> *s)
{
    barrier_wait(&s->item_full[b->items.index], b->items.phase);
    // A reduction, again: else all that follows would count as divergent.
    return __reduce_min_sync(~0u, s->item[b->items.index].item) >= 0;
}

template <int D, int STAGES, int FIXUP>
BT_DEVICE void fused_compute(const backward_params *p,
                             fused_shared<D, STAGES> *s)
{
    fused_state<D> state = {}, *b = &state;
    b->group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    b->t = threadIdx.x % 4;
    b->row = b->group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 +
             threadIdx.x % 32 / 4;
    b->scale = p->scale * LOG2_E;
    // Group 0 issues first.
    if (b->group == fused_layout<D>::groups - 1)
        order_arrive<fused_layout<D>::groups, true>(b->group);
    while (item_there(b, s)) {
        int at = first_products<D, STAGES, FIXUP>(b, p, s);
        make_step<D, STAGES, FIXUP>(b, s, at);
        if (b->flags & LAST) {
            last_products<D, STAGES, FIXUP, false>(b, p, s, at);
            continue;
        }
        at = next_products<D, STAGES, FIXUP, false>(b, p, s, at);
        make_step<D, STAGES, FIXUP>(b, s, at);
        while (!(b->flags & LAST)) {
            at = next_products<D, STAGES, FIXUP, true>(b, p, s, at);
            make_step<D, STAGES, FIXUP>(b, s, at);
        }
        last_products<D, STAGES, FIXUP, true>(b, p, s, at);
    }
}

template <int D, int STAGES, int FIXUP>
__global__ void __launch_bounds__(GROUP *(fused_layout<D>::groups + 1), 1)
    attention_backward_fused(const __grid_constant__ backward_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    fused_shared<D, STAGES> *s = (fused_shared<D, STAGES> *)memory;
    const int groups = fused_layout<D>::groups;
    const int group_arrivals = 4 * WARP_ARRIVALS;
    const int arrivals = groups * group_arrivals;

    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&s->item_full[i], 1);
            barrier_init(&s->item_empty[i], arrivals + 3);
            tensor_map_prefetch(&p.stationary[i]);
            tensor_map_prefetch(&p.streamed[i]);
        }
        barrier_init(&s->keys_full, 1);
        barrier_init(&s->keys_empty, arrivals);
        barrier_init(&s->values_full, 1);
        barrier_init(&s->values_empty, arrivals);
        for (int i = 0; i < groups; i++) {
            // A group whose turn it is reads dS alone.
            barrier_init(&s->ds_full[i], arrivals);
            barrier_init(&s->ds_empty[i], fused_layout<D>::takes_turns
                                              ? group_arrivals
                                              : arrivals);
            barrier_init(&s->dq_full[i], group_arrivals);
            barrier_init(&s->dq_empty[i], 1);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s->streamed_full[i], 2);
            barrier_init(&s->streamed_empty[i], arrivals);
        }
        barrier_init_done();
    }
    __syncthreads();
    grid_dependency_wait();
    launch_dependents();

    if (threadIdx.x < GROUP) {
        setmaxnreg_dec<groups == 3 ? 32 : 24>();
        if (threadIdx.x == 0)
            fused_load_items<D, STAGES, FIXUP>(&p, s);
        else if (threadIdx.x == 32)
            fused_add_dq<D, STAGES>(&p, s, 0);
        else if (threadIdx.x == 64)
            fused_load_second<D, STAGES>(&p, s);
        else if (threadIdx.x >= 96) {
            if (!FIXUP)
                store_empty<D, 1>(&p);
            if (threadIdx.x == 96)
                fused_add_dq<D, STAGES>(&p, s, 1);
        }
    } else {
        setmaxnreg_inc<groups == 3 ? 160 : 240>();
        fused_compute<D, STAGES, FIXUP>(&p, s);
    }
}

#endif
