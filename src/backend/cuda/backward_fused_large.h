/* SPDX-License-Identifier: Apache-2.0 */
/* backward_fused_large.h - all gradients in one pass over the pairs, in five
 * products, with heads of 192 and 256.
 *
 * The method is that of backward_fused.h, but a group has registers for one sum
 * of such a head. So a block holds 64 keys, and its groups divide the work and
 * not the rows:
 *
 *     group 0   x = K Q^T, weights P                       dV += P dO
 *     group 1   y = V dO^T, dS                             dK += dS Q
 *     group 2   dQ of the step = dS^T K, panel by panel
 *
 * P goes from group 0 to group 1 through shared memory, packed, as threads hold
 * it: each thread reads what the same thread of the other group has written,
 * and writes dS in its place. Group 2 transposes that in registers. So while
 * one group exponentiates, the others multiply.
 *
 * Two blocks, a cluster, have the two halves of a tile of 128 keys and go
 * through its steps together. Each loads half of Q and dO for both. Each makes
 * half of the panels of dQ, but over the keys of both: it has these columns of
 * the other's keys, too, and gets the other's dS. So what is read and added in
 * the GPU's memory is what one block with 128 keys would read and add; with 64
 * keys the L2 would be the limit.
 *
 * Group 2 adds from its registers when it is the tile's turn. The order is that
 * of backward_fused.h; each half of the panels has a counter of its own. With
 * heads of 192 the blocks make the middle panel in turns. */
#ifndef BT_CUDA_BACKWARD_FUSED_LARGE_H
#define BT_CUDA_BACKWARD_FUSED_LARGE_H

#include "backend/cuda/backward_fused.h"

enum { LARGE_GROUPS = 3, LARGE_BLOCKS = 2 };
enum { BARRIER_ONE = 9 }; /* and up: a group alone */

/* 64 keys and 64 queries, packed, as the threads of a group hold them. */
typedef uint4 exchange[STEP / 16][GROUP];

template <int D> struct fused_large_shared {
    static constexpr int stages = D == 192 ? 3 : 2;
    uint16_t keys[GROUP_ROWS * D];
    uint16_t values[GROUP_ROWS * D];
    uint16_t others[2][GROUP_ROWS * PANEL]; /* panels of the other's keys */
    uint16_t streamed[stages][2][STEP * D]; /* Q, dO */
    exchange ds;                            /* P, then dS */
    exchange others_ds;                     /* the other block's */
    step_stats rows[stages];
    int flags[stages][2], bits[stages][2]; /* with Q and with dO */
    int dq_step, dq_first;                 /* of the step whose turn it is */
    fused_work item[2];
    uint64_t item_full[2], item_empty[2]; /* item_empty: of block 0 */
    uint64_t keys_full, keys_empty;
    uint64_t values_full, values_empty;
    uint64_t streamed_full[stages][2], streamed_empty[stages][2];
    uint64_t weights_full, ds_full, ds_empty;
    uint64_t others_full;  /* others_ds */
    uint64_t others_empty; /* that of the other block */
    uint64_t turn, added;  /* of a step's dQ */
};

/* ---- the two blocks ---------------------------------------------------- */

BT_DEVICE uint32_t other_rank(void)
{
    return cluster_rank() ^ 1;
}

/* consumer_release for both blocks. */
BT_DEVICE void release_both(uint64_t *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 < WARP_ARRIVALS) {
        barrier_arrive(empty);
        cluster_barrier_arrive(cluster_address(empty, other_rank()));
    }
}

/* Or for block `rank` alone. */
BT_DEVICE void release_at(uint64_t *empty, uint32_t rank)
{
    __syncwarp();
    if (threadIdx.x % 32 < WARP_ARRIVALS)
        cluster_barrier_arrive(cluster_address(empty, rank));
}

/* An item is left to block 0, which hands it out: by a warp with release_at,
 * and by a thread. */
BT_DEVICE void leave_item(uint64_t *empty)
{
    cluster_barrier_arrive(cluster_address(empty, 0));
}

/* The panels of dQ that a block makes: its first one, and the second one, which
 * with heads of 192 is the same for both. */
template <int D> BT_DEVICE int panel_of_block(int i, int rank)
{
    return i == 0 ? rank * 2 : D == 192 ? 1 : rank * 2 + 1;
}

/* Whether it makes the second one in a step. */
template <int D> BT_DEVICE bool makes_second(int step, int rank)
{
    return D != 192 || (step & 1) == rank;
}

/* ---- loading ----------------------------------------------------------- */

/* The block's share of a tile of Q or dO, for both blocks; a barrier counts all
 * of it in each. */
template <int D>
BT_DEVICE void load_share(uint16_t *to, const CUtensorMap *map, int head,
                          int token, uint64_t *full, int which)
{
    const int panels = D / PANEL, middle = (panels + !which) / 2;
    int rank = (int)cluster_rank();
    for (int i = rank ? middle : 0; i < (rank ? panels : middle); i++)
        tma_load_box_to_all(to + i * (STEP * PANEL), map, i * PANEL, head,
                            token, full, 3);
}

/* Q (0) of a step, or dO (1) and the statistics of its rows. */
template <int D>
BT_DEVICE void
large_load_step(const backward_params *p, fused_large_shared<D> *s,
                pipeline_state *streamed, const reverse_cursor *k, int which)
{
    int at = streamed->index;
    uint64_t *full = &s->streamed_full[at][which];
    barrier_wait(&s->streamed_empty[at][which], streamed->phase ^ 1);
    s->flags[at][which] =
        k->run.flags | (reverse_is_last(k) ? LAST : 0) | at * STAGE;
    s->bits[at][which] = k->run.bits;
    barrier_arrive_expect(full, sizeof(s->streamed[0][0]) +
                                    (which ? sizeof(s->rows[0]) : 0));
    if (which)
        bulk_load(&s->rows[at],
                  p->row_stats + k->head * p->steps + k->run.padded_row / STEP,
                  sizeof(s->rows[0]), full);
    load_share<D>(s->streamed[at][which], &p->streamed[which], k->head,
                  k->run.row, full, which);
    pipeline_advance(streamed, s->stages);
}

/* Q of an item's steps. Claims the next item shortly before the end, in block
 * 0. */
template <int D>
BT_DEVICE int large_load_queries(const backward_params *p,
                                 fused_large_shared<D> *s,
                                 pipeline_state *streamed, const fused_work *w)
{
    int claimed = 0;
    reverse_cursor k = reverse_begin(p, w);
    do {
        if (reverse_is_last(&k) && cluster_rank() == 0)
            claimed = (int)atomicAdd(p->tile_counter, 1);
        large_load_step(p, s, streamed, &k, 0);
    } while (reverse_advance(&k, p, w));
    return claimed;
}

/* Block 0: an item for both blocks. */
template <int D>
BT_DEVICE void hand_out(fused_large_shared<D> *s, pipeline_state *items,
                        const fused_work *w)
{
    int at = items->index;
    const int *words = (const int *)w;
    uint32_t to = cluster_address(&s->item[at], 1);
    barrier_wait(&s->item_empty[at], items->phase ^ 1);
    s->item[at] = *w;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(*w) / sizeof(int)); i++)
        cluster_store_word(to + i * 4, words[i]);
    barrier_arrive(&s->item_full[at]);
    cluster_barrier_release(cluster_address(&s->item_full[at], 1));
    pipeline_advance(items, 2);
}

/* One thread of block 0 runs this. Even the first item is claimed: which
 * clusters run at once is not known, and an item waits for those before it. */
template <int D, int FIXUP>
BT_DEVICE void large_load_items(const backward_params *p,
                                fused_large_shared<D> *s)
{
    pipeline_state items = {}, streamed = {};
    bool any = !FIXUP;
    for (int i = 0; FIXUP && i < p->heads; i++)
        any |= p->bad[i];
    int item = any ? (int)atomicAdd(p->tile_counter, 1) : p->items;
    while (item < p->items) {
        fused_work w = work_of(p, item);
        if (!FIXUP || p->bad[w.head]) {
            hand_out(s, &items, &w);
            item = large_load_queries(p, s, &streamed, &w);
        } else {
            item = (int)atomicAdd(p->tile_counter, 1);
        }
    }
    fused_work none = {};
    none.item = -1;
    hand_out(s, &items, &none);
}

/* And one of block 1 this. */
template <int D>
BT_DEVICE void large_follow_items(const backward_params *p,
                                  fused_large_shared<D> *s)
{
    pipeline_state items = {}, streamed = {};
    for (;; pipeline_advance(&items, 2)) {
        cluster_barrier_wait(&s->item_full[items.index], items.phase);
        fused_work w = s->item[items.index];
        if (w.item < 0)
            return;
        large_load_queries(p, s, &streamed, &w);
        leave_item(&s->item_empty[items.index]);
    }
}

/* The block's keys and values, and its panels of the other block's keys. */
template <int D>
BT_DEVICE void large_load_stationary(const backward_params *p,
                                     fused_large_shared<D> *s,
                                     const fused_work *w, uint32_t phase)
{
    int rank = (int)cluster_rank();
    int row = w->row + rank * GROUP_ROWS,
        other = w->row + (rank ^ 1) * GROUP_ROWS;
    // Values are free first: the last step of the item before needs them no
    // more once it has dP.
    barrier_wait(&s->values_empty, phase ^ 1);
    barrier_arrive_expect(&s->values_full, sizeof(s->values));
    load_tile<D, GROUP_ROWS>(s->values, &p->stationary[1], w->head, row,
                             &s->values_full);
    barrier_wait(&s->keys_empty, phase ^ 1);
    barrier_arrive_expect(&s->keys_full, sizeof(s->keys) + sizeof(s->others));
    load_tile<D, GROUP_ROWS>(s->keys, &p->stationary[0], w->head, row,
                             &s->keys_full);
    for (int i = 0; i < 2; i++)
        tma_load_box(s->others[i], &p->stationary[0],
                     panel_of_block<D>(i, rank) * PANEL, w->head, other,
                     &s->keys_full);
}

/* One thread runs this: keys, values, and dO of the steps. */
template <int D>
BT_DEVICE void large_load_second(const backward_params *p,
                                 fused_large_shared<D> *s)
{
    pipeline_state items = {}, streamed = {};
    uint32_t phase = 0;
    for (;; pipeline_advance(&items, 2), phase ^= 1) {
        cluster_barrier_wait(&s->item_full[items.index], items.phase);
        fused_work w = s->item[items.index];
        if (w.item < 0)
            return;
        large_load_stationary(p, s, &w, phase);
        reverse_cursor k = reverse_begin(p, &w);
        do {
            large_load_step(p, s, &streamed, &k, 1);
        } while (reverse_advance(&k, p, &w));
        leave_item(&s->item_empty[items.index]);
    }
}

/* ---- groups 0 and 1 ---------------------------------------------------- */

/* The registers of a thread: x and weights and dV, or y and dS and dK. */
template <int D> struct large_state {
    static constexpr int merged_warps = LARGE_BLOCKS * 8;
    static constexpr int merged_sums = D / 2; /* of a thread */
    int row, t; /* row: the first of the thread's two */
    pipeline_state items, streamed;
    uint32_t stationary_phase, phase; /* phase: of the step's exchange */
    int flags;                        /* of the step */
    bool partial;
    uint64_t word[2];
    float x[STEP / 2];
    uint32_t w[STEP / 4];
    float sum[D / 2];
};

/* FIXUP: group 2 cleans what it has of the other block's keys. */
template <int D> BT_DEVICE void clean_others(fused_large_shared<D> *s)
{
    uint32_t *word = (uint32_t *)s->others + threadIdx.x % GROUP;
    for (int i = 0; i < (int)(sizeof(s->others) / 4 / GROUP); i++)
        word[i * GROUP] = filter_pair(word[i * GROUP]);
    fence_proxy_async();
    named_sync(BARRIER_ONE + 2, GROUP);
}

/* Wait for Q (0) or dO (1) of the next step: its stage, and what the block's
 * keys see of it. */
template <int D, int FIXUP>
BT_DEVICE int large_enter(large_state<D> *b, const backward_params *p,
                          fused_large_shared<D> *s, int which, int part)
{
    int stage = b->streamed.index;
    barrier_wait(&s->streamed_full[stage][which], b->streamed.phase);
    // A reduction: its answer is in a uniform register, and so are the
    // descriptors that follow from the stage.
    b->flags = (int)__reduce_or_sync(~0u, s->flags[stage][which]);
    int at = b->flags / STAGE;
    if (FIXUP) {
        barrier_wait(&s->streamed_full[stage][!which], b->streamed.phase);
        clean_rows<D, 8>(s->streamed[at], s->rows[at].lse);
    }
    bool sees = b->flags >> part & 1;
    b->partial = !sees || b->flags >> (BT_STEP_PARTIAL + part) & 1;
    b->word[0] = b->word[1] = 0;
    if (sees && b->partial) {
        const uint64_t *words =
            p->bits + (size_t)s->bits[at][which] * (LARGE_BLOCKS * GROUP_ROWS) +
            part * GROUP_ROWS + b->row;
        b->word[0] = __ldg(words);
        b->word[1] = __ldg(words + 8);
    }
    return at;
}

BT_DEVICE uint4 words_of(const uint32_t *w, int i)
{
    return make_uint4(w[i * 4], w[i * 4 + 1], w[i * 4 + 2], w[i * 4 + 3]);
}

/* Group 0: the packed weights, for group 1. */
template <int D>
BT_DEVICE void send_weights(large_state<D> *b, fused_large_shared<D> *s)
{
    int thread = threadIdx.x % GROUP;
    barrier_wait(&s->ds_empty, b->phase ^ 1);
#pragma unroll
    for (int i = 0; i < STEP / 16; i++)
        s->ds[i][thread] = words_of(b->w, i);
    consumer_release(&s->weights_full);
}

/* Group 1: here they are. */
template <int D>
BT_DEVICE void take_weights(large_state<D> *b, fused_large_shared<D> *s)
{
    int thread = threadIdx.x % GROUP;
    barrier_wait(&s->weights_full, b->phase);
#pragma unroll
    for (int i = 0; i < STEP / 16; i++)
        *(uint4 *)(b->w + i * 4) = s->ds[i][thread];
}

/* Group 1: dS, for group 2 of both blocks. */
template <int D>
BT_DEVICE void send_ds(large_state<D> *b, fused_large_shared<D> *s)
{
    int thread = threadIdx.x % GROUP;
    uint32_t to = cluster_address(&s->others_ds[0][thread], other_rank());
    uint32_t full = cluster_address(&s->others_full, other_rank());
#pragma unroll
    for (int i = 0; i < STEP / 16; i++)
        s->ds[i][thread] = words_of(b->w, i);
    consumer_release(&s->ds_full);
    barrier_wait(&s->others_empty, b->phase ^ 1);
#pragma unroll
    for (int i = 0; i < STEP / 16; i++)
        cluster_store_words(to + i * sizeof(s->ds[0]), words_of(b->w, i), full);
}

/* x is there: it becomes what the sum takes, and goes to the next group. */
template <int D, int KIND, int FIXUP>
BT_DEVICE void large_step(large_state<D> *b, const backward_params *p,
                          fused_large_shared<D> *s, const bool *taint, int at)
{
    if (KIND == MAKES_DV) {
        release_both(&s->streamed_empty[at][0]);
        barrier_wait(&s->streamed_full[at][1], b->streamed.phase); // its lse
        compute_weights<1, FIXUP>(b->x, NULL, columns_of(s->rows[at].lse, b->t),
                                  p->scale * LOG2_E);
        if (FIXUP) {
#pragma unroll
            for (int i = 0; i < STEP / 2; i++)
                b->x[i] = taint[i / 2 % 2] ? NAN : b->x[i];
        }
    } else {
        take_weights(b, s);
        compute_ds_packed(b->x, b->w, columns_of(s->rows[at].delta, b->t));
    }
    if (b->partial)
        apply_mask(b->x, b->word, b->t);
    pack_pairs(b->w, b->x);
    if (KIND == MAKES_DV) {
        send_weights(b, s);
    } else {
        send_ds(b, s);
        release_both(&s->streamed_empty[at][1]);
        barrier_wait(&s->streamed_full[at][0], b->streamed.phase); // for dK
    }
    b->phase ^= 1;
    pipeline_advance(&b->streamed, s->stages);
}

/* A group's steps of an item. There are no registers for x beside the weights
 * of the step before, so their sum is awaited: the other groups multiply
 * meanwhile. */
template <int D, int KIND, int FIXUP>
BT_DEVICE void large_item(large_state<D> *b, const backward_params *p,
                          fused_large_shared<D> *s, int part)
{
    const bool makes_dv = KIND == MAKES_DV;
    const int first = !makes_dv, second = makes_dv; // Q or dO: of x, of the sum
    uint64_t *full = makes_dv ? &s->keys_full : &s->values_full;
    const uint16_t *stationary = makes_dv ? s->keys : s->values;
    bool taint[2] = { false, false };
    int at = large_enter<D, FIXUP>(b, p, s, first, part);
    barrier_wait(full, b->stationary_phase);
    b->stationary_phase ^= 1;
    if (FIXUP && makes_dv) {
        clean_keys<D>(taint, s->keys);
        named_sync(BARRIER_ONE, GROUP);
    }
    issue_pairs<D, false>(b->x, NULL, stationary, s->streamed[at][first]);
    wgmma_wait<0>();
    wgmma_fence_operand<STEP / 2>(b->x);
    large_step<D, KIND, FIXUP>(b, p, s, taint, at);
    while (!(b->flags & LAST)) {
        int before = at;
        issue_sum<D>(b->sum, b->w, s->streamed[before][second]);
        at = large_enter<D, FIXUP>(b, p, s, first, part);
        wgmma_wait<0>();
        wgmma_fence_operand<D / 2>(b->sum);
        issue_pairs<D, false>(b->x, NULL, stationary, s->streamed[at][first]);
        release_both(&s->streamed_empty[before][second]);
        wgmma_wait<0>();
        wgmma_fence_operand<STEP / 2>(b->x);
        large_step<D, KIND, FIXUP>(b, p, s, taint, at);
    }
    consumer_release(makes_dv ? &s->keys_empty : &s->values_empty);
    issue_sum<D>(b->sum, b->w, s->streamed[at][second]);
    wgmma_wait<0>();
    wgmma_fence_operand<D / 2>(b->sum);
    release_both(&s->streamed_empty[at][second]);
}

/* As of fused_state: see merge_heads. */
template <int D>
BT_DEVICE void store_head_sums(const large_state<D> *b, float4 *to)
{
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        const float *sum = b->sum + i * 4;
        __stcg(to + i * 32, make_float4(sum[0], sum[1], sum[2], sum[3]));
    }
}

template <int D>
BT_DEVICE void add_head_sums(large_state<D> *b, const float4 *from)
{
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        add_four(b->sum + i * 4, __ldcg(from + i * 32));
}

/* Group 0 makes dV and group 1 dK: KIND. */
template <int D, int KIND, int FIXUP>
BT_DEVICE void large_compute(const backward_params *p, fused_large_shared<D> *s)
{
    const bool makes_dv = KIND == MAKES_DV;
    large_state<D> state = {}, *b = &state;
    int part = (int)cluster_rank();
    b->t = threadIdx.x % 4;
    b->row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    for (;; pipeline_advance(&b->items, 2)) {
        cluster_barrier_wait(&s->item_full[b->items.index], b->items.phase);
        const fused_work *w = &s->item[b->items.index];
        // Reductions: all that follows would count as divergent.
        if (__reduce_min_sync(~0u, w->item) < 0)
            return;
        large_item<D, KIND, FIXUP>(b, p, s, part);
        int warp = part * 8 + threadIdx.x / 32 - 4; // that adds to the tile
        if (__reduce_max_sync(~0u, w->inner) == p->inner ||
            merge_heads(b, p, w, warp)) {
            bool good =
                store_direct<D>(p, makes_dv, w, part * GROUP_ROWS + b->row,
                                b->sum, makes_dv ? 1.0f : p->scale);
            if (!FIXUP && !good)
                p->bad[w->head] = 1;
        }
        release_at(&s->item_empty[b->items.index], 0);
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            b->sum[i] = 0.0f;
    }
}

/* ---- group 2 ----------------------------------------------------------- */

/* A panel of dQ is added to its sum, or stored. */
BT_DEVICE void add_panel(float *to, const float *y, bool first)
{
#pragma unroll
    for (int i = 0; i < STEP / 8; i++) {
        const float *four = y + i * 4;
        if (first)
            asm volatile(
                "st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                    to + i * (GROUP * 4)),
                "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
                : "memory");
        else
            asm volatile(
                "red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::
                    "l"(to + i * (GROUP * 4)),
                "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
                : "memory");
    }
}

/* A panel of dQ, issued: over the block's keys, or over the other's. */
BT_DEVICE void issue_panel(float *y, const uint32_t *f, const uint16_t *keys,
                           bool first)
{
    uint64_t b = tile_descriptor(keys, GROUP_ROWS * PANEL * 2);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < GROUP_ROWS / 16; i++)
        wgmma_pv_64(y, f + i * 4, b + i * (16 * PANEL * 2 >> 4), !first || i);
    wgmma_commit();
}

/* Over both. A panel that the blocks make in turns begins with the keys of
 * block 0 in both, or its bits would depend on the step's number: `swapped`. */
BT_DEVICE void issue_second(float *y, const uint32_t (*f)[STEP / 4],
                            const uint16_t *keys, const uint16_t *others,
                            bool swapped)
{
    if (swapped) {
        issue_panel(y, f[1], others, true);
        issue_panel(y, f[0], keys, false);
    } else {
        issue_panel(y, f[0], keys, true);
        issue_panel(y, f[1], others, false);
    }
}

/* Eight rows and eight columns of a warp, transposed. */
BT_DEVICE uint32_t transpose_block(uint32_t word)
{
    uint32_t transposed;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
                 : "=r"(transposed)
                 : "r"(word));
    return transposed;
}

/* dS^T, as a product takes it from registers. */
BT_DEVICE void take_ds(uint32_t *f, const exchange &ds)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int i = 0; i < GROUP_ROWS / 16; i++) {
        uint4 w = ds[warp][i * 32 + lane];
        f[i * 4] = transpose_block(w.x);
        f[i * 4 + 1] = transpose_block(w.z);
        f[i * 4 + 2] = transpose_block(w.y);
        f[i * 4 + 3] = transpose_block(w.w);
    }
}

/* The next dS of the other block. */
template <int D> BT_DEVICE void expect_others(fused_large_shared<D> *s)
{
    if (threadIdx.x % GROUP == 0)
        barrier_arrive_expect(&s->others_full, sizeof(s->others_ds));
}

/* The block's panels of dQ, step by step. */
template <int D, int FIXUP>
BT_DEVICE void large_make_dq(const backward_params *p, fused_large_shared<D> *s)
{
    int rank = (int)cluster_rank();
    pipeline_state items = {};
    uint32_t stationary_phase = 0, phase = 0;
    uint32_t f[2][STEP / 4];
    float y[STEP / 2];
    expect_others(s);
    for (;; pipeline_advance(&items, 2)) {
        cluster_barrier_wait(&s->item_full[items.index], items.phase);
        const fused_work *w = &s->item[items.index];
        if (__reduce_min_sync(~0u, w->item) < 0)
            return;
        int steps = __reduce_max_sync(~0u, w->steps * w->inner);
        release_at(&s->item_empty[items.index], 0);
        barrier_wait(&s->keys_full, stationary_phase);
        stationary_phase ^= 1;
        if (FIXUP)
            clean_others(s);
        for (; steps > 0; steps--) {
            int panel = panel_of_block<D>(0, rank);
            barrier_wait(&s->ds_full, phase);
            take_ds(f[0], s->ds);
            issue_panel(y, f[0], s->keys + panel * (GROUP_ROWS * PANEL), true);
            consumer_release(&s->ds_empty);
            barrier_wait(&s->others_full, phase);
            expect_others(s);
            take_ds(f[1], s->others_ds);
            issue_panel(y, f[1], s->others[0], false);
            release_at(&s->others_empty, other_rank());
            barrier_wait(&s->turn, phase);
            phase ^= 1;
            bool first = s->dq_first;
            int step = __reduce_max_sync(~0u, s->dq_step);
            float *to =
                p->dq_sum + (size_t)step * (STEP * D) + threadIdx.x % GROUP * 4;
            wgmma_wait<0>();
            wgmma_fence_operand<STEP / 2>(y);
            add_panel(to + panel * DQ_PANEL, y, first);
            if (makes_second<D>(step, rank)) {
                panel = panel_of_block<D>(1, rank);
                issue_second(y, f, s->keys + panel * (GROUP_ROWS * PANEL),
                             s->others[1], D == 192 && rank);
                wgmma_wait<0>();
                wgmma_fence_operand<STEP / 2>(y);
                add_panel(to + panel * DQ_PANEL, y, first);
            }
            consumer_release(&s->added);
        }
        consumer_release(&s->keys_empty);
    }
}

/* ---- the turns of dQ --------------------------------------------------- */

/* Where a step's dQ is added, and how many tiles do so before. */
typedef struct large_addition {
    int step, rank;
} large_addition;

BT_DEVICE large_addition large_addition_at(const backward_params *p,
                                           const fused_work *w,
                                           const reverse_cursor *k)
{
    large_addition a;
    a.step = k->head * p->steps + k->run.padded_row / STEP;
    a.rank = p->ranks[w->visit + k->left - 1];
    return a;
}

template <int D>
BT_DEVICE void begin_turn(fused_large_shared<D> *s, const large_addition *a)
{
    s->dq_step = a->step;
    s->dq_first = a->rank == 0;
    barrier_arrive(&s->turn);
}

/* One thread runs this: group 2 adds a step's dQ when the tiles before have
 * done so. */
template <int D>
BT_DEVICE void large_take_turns(const backward_params *p,
                                fused_large_shared<D> *s)
{
    pipeline_state items = {};
    uint32_t phase = 0;
    int *counters = p->added + cluster_rank();
    for (;; pipeline_advance(&items, 2)) {
        cluster_barrier_wait(&s->item_full[items.index], items.phase);
        fused_work w = s->item[items.index];
        if (w.item < 0)
            return;
        reverse_cursor k = reverse_begin(p, &w);
        large_addition now = large_addition_at(p, &w, &k), next = now;
        bool ready = false, more = true;
        while (more) {
            if (!ready) {
                while (counter_read(counters + (size_t)now.step * 2) !=
                       now.rank)
                    ;
                begin_turn(s, &now);
            }
            more = reverse_advance(&k, p, &w);
            if (more)
                next = large_addition_at(p, &w, &k);
            ready = more &&
                    counter_read(counters + (size_t)next.step * 2) == next.rank;
            barrier_wait(&s->added, phase);
            phase ^= 1;
            if (ready)
                begin_turn(s, &next);
            counter_fence();
            counter_set(counters + (size_t)now.step * 2, now.rank + 1);
            now = next;
        }
        leave_item(&s->item_empty[items.index]);
    }
}

/* ---- the kernel -------------------------------------------------------- */

template <int D>
BT_DEVICE void large_init_barriers(const backward_params *p,
                                   fused_large_shared<D> *s)
{
    const int group = 4 * WARP_ARRIVALS;
    for (int i = 0; i < 2; i++) {
        barrier_init(&s->item_full[i], 1);
        // The threads that load and take turns, and the groups, but the thread
        // that hands out.
        barrier_init(&s->item_empty[i],
                     LARGE_BLOCKS * (LARGE_GROUPS * group + 3) - 1);
        tensor_map_prefetch(&p->stationary[i]);
        tensor_map_prefetch(&p->streamed[i]);
        for (int k = 0; k < s->stages; k++) {
            barrier_init(&s->streamed_full[k][i], 1);
            barrier_init(&s->streamed_empty[k][i], LARGE_BLOCKS * 2 * group);
        }
    }
    barrier_init(&s->keys_full, 1);
    barrier_init(&s->keys_empty, 2 * group);
    barrier_init(&s->values_full, 1);
    barrier_init(&s->values_empty, group);
    barrier_init(&s->weights_full, group);
    barrier_init(&s->ds_full, group);
    barrier_init(&s->ds_empty, group);
    barrier_init(&s->others_full, 1);
    barrier_init(&s->others_empty, group);
    barrier_init(&s->turn, 1);
    barrier_init(&s->added, group);
    barrier_init_done();
}

/* What the threads of the first warpgroup do. */
template <int D, int FIXUP>
BT_DEVICE void large_load(const backward_params *p, fused_large_shared<D> *s)
{
    if (threadIdx.x == 0 && cluster_rank() == 0)
        large_load_items<D, FIXUP>(p, s);
    else if (threadIdx.x == 0)
        large_follow_items(p, s);
    else if (threadIdx.x == 32)
        large_take_turns(p, s);
    else if (threadIdx.x == 64)
        large_load_second(p, s);
    else if (threadIdx.x >= 96 && !FIXUP)
        store_empty<D, 1>(p);
    __syncwarp();
}

template <int D, int FIXUP>
__global__ void __cluster_dims__(LARGE_BLOCKS, 1,
                                 1) __launch_bounds__(GROUP *(LARGE_GROUPS + 1),
                                                      1)
    attention_backward_fused_large(const __grid_constant__ backward_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    fused_large_shared<D> *s = (fused_large_shared<D> *)memory;
    if (threadIdx.x == 0)
        large_init_barriers(&p, s);
    cluster_sync();
    grid_dependency_wait();
    launch_dependents();

    int group = __shfl_sync(~0u, (int)threadIdx.x / GROUP, 0);
    if (group == 0) {
        setmaxnreg_dec<32>();
        large_load<D, FIXUP>(&p, s);
    } else if (group == 1) {
        setmaxnreg_inc<192>();
        large_compute<D, MAKES_DV, FIXUP>(&p, s);
    } else if (group == 2) {
        setmaxnreg_inc<192>();
        large_compute<D, MAKES_DK, FIXUP>(&p, s);
    } else {
        setmaxnreg_dec<96>();
        large_make_dq<D, FIXUP>(&p, s);
    }
    cluster_sync(); // the other block may still arrive at barriers of this one
}

#endif
