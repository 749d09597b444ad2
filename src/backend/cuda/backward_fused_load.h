/* SPDX-License-Identifier: Apache-2.0 */
/* backward_fused_load.h - the half of backward_fused.h that moves data: what
 * the threads of a block share, those of them that fill it, and those that add
 * dQ to its sums in memory. */
#ifndef BT_CUDA_BACKWARD_FUSED_LOAD_H
#define BT_CUDA_BACKWARD_FUSED_LOAD_H

#include "backend/cuda/backward_thread_state.h"

enum { BARRIER_ALL = 8 }; /* all groups */

/* Beside the flags of a step: which of the buffers its dS goes to, in two
 * bits. */
enum { DS = 1 << 17 };

enum { DQ_PANEL = STEP * PANEL }; /* elements of a panel of dQ */

/* Counters of the tiles that have added to a step's dQ: each counts for half of
 * it, or for all of a head of 64. */
template <int D> constexpr int dq_counters = D == 64 ? 1 : 2;

/* takes_turns: dQ is one panel, and the group whose turn it is makes it; there
 * is a buffer of dS for each of them. reuses_packed: three groups have no
 * registers for weights in float32 beside those in bf16, from which dS is then
 * computed. reads_ahead: two groups have registers for lse and delta of a step,
 * which are read while products run. may_split: there are tiles that are split.
 */
template <int D> struct fused_layout {
    static constexpr int groups = D == 64 ? 3 : 2;
    static constexpr int warps = 4 * groups; /* that compute */
    static constexpr int panels = D / PANEL;
    static constexpr bool takes_turns = panels == 1;
    static constexpr bool reuses_packed = groups == 3;
    static constexpr bool reads_ahead = !reuses_packed;
    static constexpr bool may_split = D == 128;
    static_assert(takes_turns || panels == groups, "a group makes one panel");
};

/* An item as the loader hands it to the other warps: a tile of keys, and query
 * heads that share its head. */
typedef struct fused_work {
    int item; /* -1: no more */
    int row, rows, head;
    int run, steps;
    int runs, visit;
    int query_head, inner; /* the first one; how many */
    int tile;
} fused_work;

template <int D, int STAGES> struct fused_shared {
    typedef fused_layout<D> of;
    uint16_t keys[of::groups][GROUP_ROWS * D];
    uint16_t values[of::groups][GROUP_ROWS * D];
    uint16_t streamed[STAGES][2][STEP * D];                 /* Q, dO */
    uint16_t ds[of::groups][of::groups][STEP * GROUP_ROWS]; /* dS^T */
    float dq[of::groups][DQ_PANEL]; /* as threads hold it */
    step_stats rows[STAGES];
    int flags[STAGES], bits[STAGES];
    fused_work item[2];
    uint64_t item_full[2], item_empty[2];
    uint64_t keys_full, keys_empty;
    uint64_t values_full, values_empty;
    uint64_t streamed_full[STAGES], streamed_empty[STAGES];
    uint64_t ds_full[of::groups], ds_empty[of::groups];
    uint64_t dq_full[of::groups], dq_empty[of::groups];
};

/* ---- loading ----------------------------------------------------------- */

/* A loader's place in the steps of an item, which run downwards. */
typedef struct reverse_cursor {
    bt_loop_run run; /* row, place and bits are those of the step */
    int head, inner;
    int run_index, left; /* the run; steps left with this head */
} reverse_cursor;

BT_DEVICE void reverse_enter_run(reverse_cursor *k, const backward_params *p,
                                 int run)
{
    k->run_index = run;
    k->run = p->runs[run];
    k->run.row += (k->run.count - 1) * STEP;
    k->run.padded_row += (k->run.count - 1) * STEP;
    if (k->run.bits >= 0)
        k->run.bits += k->run.count - 1;
}

BT_DEVICE reverse_cursor reverse_begin(const backward_params *p,
                                       const fused_work *w)
{
    reverse_cursor k;
    k.head = w->query_head;
    k.inner = w->inner;
    k.left = w->steps;
    reverse_enter_run(&k, p, w->run + w->runs - 1);
    return k;
}

BT_DEVICE bool reverse_is_last(const reverse_cursor *k)
{
    return k->left == 1 && k->inner == 1;
}

/* On to the next step; false: there is none. */
BT_DEVICE bool reverse_advance(reverse_cursor *k, const backward_params *p,
                               const fused_work *w)
{
    if (--k->left == 0) {
        if (--k->inner == 0)
            return false;
        k->head++;
        k->left = w->steps;
        reverse_enter_run(k, p, w->run + w->runs - 1);
    } else if (--k->run.count == 0) {
        reverse_enter_run(k, p, k->run_index - 1);
    } else {
        k->run.row -= STEP;
        k->run.padded_row -= STEP;
        k->run.bits -= k->run.bits >= 0;
    }
    return true;
}

/* Announce an item and load Q of its steps. Claims the next item shortly before
 * the end. */
template <int D, int STAGES>
BT_DEVICE uint32_t fused_load_item(const backward_params *p,
                                   fused_shared<D, STAGES> *s,
                                   pipeline_state *items,
                                   pipeline_state *streamed, int *ds,
                                   const fused_work *w)
{
    uint32_t claimed = 0;
    barrier_wait(&s->item_empty[items->index], items->phase ^ 1);
    s->item[items->index] = *w;
    barrier_arrive(&s->item_full[items->index]);
    pipeline_advance(items, 2);

    reverse_cursor k = reverse_begin(p, w);
    do {
        int at = streamed->index;
        bool last = reverse_is_last(&k);
        if (last)
            claimed = atomicAdd(p->tile_counter, 1);
        barrier_wait(&s->streamed_empty[at], streamed->phase ^ 1);
        s->flags[at] = k.run.flags | (last ? LAST : 0) | *ds * DS | at * STAGE;
        *ds = (*ds + 1) % fused_layout<D>::groups;
        s->bits[at] = k.run.bits;
        barrier_arrive_expect(&s->streamed_full[at], sizeof(s->streamed[0][0]));
        load_tile<D, STEP>(s->streamed[at][0], &p->streamed[0], k.head,
                           k.run.row, &s->streamed_full[at]);
        pipeline_advance(streamed, STAGES);
    } while (reverse_advance(&k, p, w));
    return claimed;
}

BT_DEVICE fused_work work_of(const backward_params *p, int item)
{
    const bt_cuda_item_range *range =
        &p->ranges[item >= p->ranges[1].item ? 1 : 0];
    int left = item - range->item;
    int block = left / (range->tile_count * range->l2_heads);
    left -= block * range->tile_count * range->l2_heads;
    int width = min(range->l2_heads, range->heads - block * range->l2_heads);
    int head = block * range->l2_heads + left % width;
    int index = range->tile + left / width;
    bt_loop_tile tile = p->tiles[index];
    int query_head = head * range->inner;
    fused_work w = { item,       tile.row,     tile.rows, query_head / p->inner,
                     tile.run,   tile.steps,   tile.runs, tile.visit,
                     query_head, range->inner, index };
    return w;
}

template <int D, int STAGES, int FIXUP>
BT_DEVICE void fused_load_items(const backward_params *p,
                                fused_shared<D, STAGES> *s)
{
    pipeline_state items = {}, streamed = {};
    int grid = gridDim.x, ds = 0;
    bool any = !FIXUP;
    for (int i = 0; FIXUP && i < p->heads; i++)
        any |= p->bad[i];
    // The first item follows from the block's index; the others are claimed as
    // late as the latency can still be hidden.
    for (int item = any ? blockIdx.x : p->items; item < p->items;) {
        fused_work w = work_of(p, item);
        if (!FIXUP || p->bad[w.head])
            item = grid + (int)fused_load_item<D, STAGES>(p, s, &items,
                                                          &streamed, &ds, &w);
        else
            item = grid + (int)atomicAdd(p->tile_counter, 1);
    }
    barrier_wait(&s->item_empty[items.index], items.phase ^ 1);
    s->item[items.index].item = -1;
    barrier_arrive(&s->item_full[items.index]);
}

template <int GROUPS, int ROWS_D>
BT_DEVICE void load_stationary(const backward_params *p,
                               uint16_t (&to)[GROUPS][ROWS_D], int which,
                               const fused_work *w, uint64_t *full,
                               uint64_t *empty, uint32_t phase)
{
    barrier_wait(empty, phase ^ 1);
    barrier_arrive_expect(full, sizeof(to));
    for (int g = 0; g < GROUPS; g++)
        load_tile<ROWS_D / GROUP_ROWS, GROUP_ROWS>(
            to[g], &p->stationary[which], w->head, w->row + g * GROUP_ROWS,
            full);
}

/* One thread runs this: keys and values, dO of the steps, and the statistics of
 * their rows. */
template <int D, int STAGES>
BT_DEVICE void fused_load_second(const backward_params *p,
                                 fused_shared<D, STAGES> *s)
{
    pipeline_state items = {}, streamed = {};
    uint32_t phase = 0;
    for (;; pipeline_advance(&items, 2), phase ^= 1) {
        barrier_wait(&s->item_full[items.index], items.phase);
        fused_work w = s->item[items.index];
        if (w.item < 0)
            return;
        // Values are free first: the last step of the item before needs them
        // no more once it has dP.
        load_stationary(p, s->values, 1, &w, &s->values_full, &s->values_empty,
                        phase);
        load_stationary(p, s->keys, 0, &w, &s->keys_full, &s->keys_empty,
                        phase);
        reverse_cursor k = reverse_begin(p, &w);
        do {
            int at = streamed.index;
            uint64_t *full = &s->streamed_full[at];
            barrier_wait(&s->streamed_empty[at], streamed.phase ^ 1);
            barrier_arrive_expect(full, sizeof(s->streamed[0][0]) +
                                            sizeof(s->rows[0]));
            bulk_load(&s->rows[at],
                      p->row_stats + k.head * p->steps +
                          k.run.padded_row / STEP,
                      sizeof(s->rows[0]), full);
            load_tile<D, STEP>(s->streamed[at][1], &p->streamed[1], k.head,
                               k.run.row, full);
            pipeline_advance(&streamed, STAGES);
        } while (reverse_advance(&k, p, &w));
        barrier_arrive(&s->item_empty[items.index]);
    }
}

/* ---- the sums of dQ ---------------------------------------------------- */

/* Store to global memory, or add to what is there. */
BT_DEVICE void bulk_store(float *to, const float *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], "
                 "%2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

BT_DEVICE void bulk_add(float *to, const float *from, uint32_t bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 "
                 "[%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

BT_DEVICE int counter_read(const int *counter)
{
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                 : "=r"(value)
                 : "l"(counter)
                 : "memory");
    return value;
}

/* The same without waiting for the answer. Writes that precede the counter's
 * are visible after counter_fence. */
BT_DEVICE int counter_ask(const int *counter)
{
    int value;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];"
                 : "=r"(value)
                 : "l"(counter)
                 : "memory");
    return value;
}

BT_DEVICE void counter_fence(void)
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* After counter_fence, writes before it are visible to all who read the value.
 */
BT_DEVICE void counter_set(int *counter, int value)
{
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(counter),
                 "r"(value)
                 : "memory");
}

/* Which panel of which step's dQ, and how many tiles add to it before. */
typedef struct addition {
    size_t index;
    int rank;
} addition;

template <int D>
BT_DEVICE addition addition_at(const backward_params *p, const fused_work *w,
                               const reverse_cursor *k, int thread)
{
    const int count = dq_counters<D>;
    size_t step = (size_t)k->head * p->steps + k->run.padded_row / STEP;
    addition a = { step * count + thread % count,
                   p->ranks[w->visit + k->left - 1] };
    return a;
}

/* Two threads add. A thread adds its panel of every step, which is made by one
 * group; or every other step, and the groups take turns. Steps are counted
 * until all groups have had both phases of their barriers. */
template <int D> struct adder_turn {
    static constexpr int groups =
        fused_layout<D>::takes_turns ? fused_layout<D>::groups : 1;
    int thread, step;
};

template <int D> BT_DEVICE bool turn_is_mine(const adder_turn<D> *turn)
{
    return !fused_layout<D>::takes_turns || turn->step % 2 == turn->thread;
}

/* On to the next step that the thread adds; false: there is none. */
template <int D>
BT_DEVICE bool next_turn(adder_turn<D> *turn, reverse_cursor *k,
                         const backward_params *p, const fused_work *w)
{
    bool more;
    do {
        more = reverse_advance(k, p, w);
        if (++turn->step == 2 * turn->groups)
            turn->step = 0;
    } while (more && !turn_is_mine(turn));
    return more;
}

/* Add the panel of dQ that a group has made to its sum, or store it. */
template <int D, int STAGES>
BT_DEVICE void add_panel(const backward_params *p, fused_shared<D, STAGES> *s,
                         int group, const addition *a)
{
    float *to = p->dq_sum + a->index * DQ_PANEL;
    asm volatile("fence.proxy.async.global;" ::: "memory");
    if (a->rank == 0)
        bulk_store(to, s->dq[group], DQ_PANEL * 4);
    else
        bulk_add(to, s->dq[group], DQ_PANEL * 4);
    tma_store_commit();
}

/* Two threads run this: a panel is added when the tiles before have done so. */
template <int D, int STAGES>
BT_DEVICE void fused_add_dq(const backward_params *p,
                            fused_shared<D, STAGES> *s, int thread)
{
    pipeline_state items = {};
    adder_turn<D> turn = { thread, 0 };
    for (;; pipeline_advance(&items, 2)) {
        barrier_wait(&s->item_full[items.index], items.phase);
        fused_work w = s->item[items.index];
        if (w.item < 0)
            return;
        reverse_cursor k = reverse_begin(p, &w);
        bool more = turn_is_mine(&turn) || next_turn(&turn, &k, p, &w);
        bool ready = false;
        addition now = {}, next = {};
        if (more)
            now = addition_at<D>(p, &w, &k, thread);
        while (more) {
            int group =
                fused_layout<D>::takes_turns ? turn.step % turn.groups : thread;
            while (!ready)
                ready = counter_read(p->added + now.index) == now.rank;
            barrier_wait(&s->dq_full[group], turn.step >= turn.groups);
            add_panel(p, s, group, &now);
            more = next_turn(&turn, &k, p, &w);
            if (more)
                next = addition_at<D>(p, &w, &k, thread);
            tma_store_wait_read();
            barrier_arrive(&s->dq_empty[group]);
            // Look ahead while this one is under way.
            int seen = counter_ask(p->added + next.index);
            tma_store_wait();
            counter_fence();
            counter_set(p->added + now.index, now.rank + 1);
            ready = more && seen == next.rank;
            now = next;
        }
        barrier_arrive(&s->item_empty[items.index]);
    }
}

#endif
