/* SPDX-License-Identifier: Apache-2.0 */
/* backward_fused.h - all gradients in one pass over the pairs, in five
 * products.
 *
 * A block keeps a tile of 128 keys and values, 64 for each of two groups, and
 * streams the queries that see them, in steps of 64 rows from the last one to
 * the first:
 *
 *     x = K Q^T            scores, then weights P
 *     y = V dO^T           dP, then dS
 *     dV += P dO           in registers, like
 *     dK += dS Q
 *     dQ of the step = dS^T K, over the keys of both groups
 *
 * dS crosses from one group to the other through shared memory; each group
 * makes one half of the columns of dQ, a step late, so that neither waits for
 * the other. The dQ of a step goes to shared memory, from where the copy engine
 * adds it to a float32 sum in the GPU's memory. The tiles of a step add in the
 * order of their keys: the first one stores, and every other one waits until
 * the counter of (head, step) says that it is its turn. Tiles are begun in an
 * order in which each comes behind those it waits for, and all stream the steps
 * downwards; so the tile before is at least as far, and there is rarely
 * anything to wait for. A last kernel rounds the sums to bfloat16.
 *
 * EXACT: what is not finite in K, Q and dO is replaced by 0, and the weights of
 * that row or key become NaN for those who see it. Where a result is not
 * finite, all tiles of that key head are done again so. */
#ifndef BT_CUDA_BACKWARD_FUSED_H
#define BT_CUDA_BACKWARD_FUSED_H

#include "kernels/cuda/backward_desk.h"

enum { FUSED_GROUPS = 2, FUSED_WARPS = 4 * FUSED_GROUPS };
enum { BARRIER_ALL = 8 }; /* both groups */

/* Beside the flags of a step: which of two buffers its dS goes to. */
enum { DS = 1 << 17 };

template <int D, int STAGES> struct fused_shared {
    uint16_t keys[FUSED_GROUPS][GROUP_ROWS * D];
    uint16_t values[FUSED_GROUPS][GROUP_ROWS * D];
    uint16_t swept[STAGES][2][STEP * D]; /* Q, dO */
    uint16_t ds[2][FUSED_GROUPS][GROUP_ROWS * STEP];
    float dq[FUSED_GROUPS][STEP * D / FUSED_GROUPS]; /* as threads hold it */
    step_rows rows[STAGES];
    int flags[STAGES], bits[STAGES];
    work item[2];
    uint64_t item_full[2], item_empty[2];
    uint64_t keys_full, keys_empty;
    uint64_t values_full, values_empty;
    uint64_t swept_full[STAGES], swept_empty[STAGES];
    uint64_t ds_full[2], ds_empty[2];
    uint64_t dq_full[FUSED_GROUPS], dq_empty[FUSED_GROUPS];
};

/* ---- loading ----------------------------------------------------------- */

/* A loader's place in the steps of an item, which run downwards. */
typedef struct walk_down {
    bt_sweep sweep; /* row, place and bits are those of the step */
    int head, inner;
    int at, left; /* the sweep; steps left with this head */
} walk_down;

BT_DEVICE void down_enter(walk_down *k, const backward_params *p, int sweep)
{
    k->at = sweep;
    k->sweep = p->sweeps[sweep];
    k->sweep.row += (k->sweep.count - 1) * STEP;
    k->sweep.place += (k->sweep.count - 1) * STEP;
    if (k->sweep.bits >= 0)
        k->sweep.bits += k->sweep.count - 1;
}

BT_DEVICE walk_down down_begin(const backward_params *p, const work *w)
{
    walk_down k;
    k.head = w->head * p->inner;
    k.inner = p->inner;
    k.left = w->steps;
    down_enter(&k, p, w->sweep + w->sweeps - 1);
    return k;
}

BT_DEVICE bool down_last(const walk_down *k)
{
    return k->left == 1 && k->inner == 1;
}

/* On to the next step; false: there is none. */
BT_DEVICE bool down_on(walk_down *k, const backward_params *p, const work *w)
{
    if (--k->left == 0) {
        if (--k->inner == 0)
            return false;
        k->head++;
        k->left = w->steps;
        down_enter(k, p, w->sweep + w->sweeps - 1);
    } else if (--k->sweep.count == 0) {
        down_enter(k, p, k->at - 1);
    } else {
        k->sweep.row -= STEP;
        k->sweep.place -= STEP;
        k->sweep.bits -= k->sweep.bits >= 0;
    }
    return true;
}

/* Announce an item and load Q of its steps. Draws the next item from the
 * ticket shortly before the end. */
template <int D, int STAGES>
BT_DEVICE uint32_t fused_load_item(const backward_params *p,
                                   fused_shared<D, STAGES> *s, ring *items,
                                   ring *swept, int *ds, const job *j,
                                   uint32_t *ticket)
{
    uint32_t drawn = 0;
    work w = { j->item,       j->tile.row,   j->tile.rows,   j->head,
               j->tile.sweep, j->tile.steps, j->tile.sweeps, j->tile.visit };
    barrier_wait(&s->item_empty[items->at], items->parity ^ 1);
    s->item[items->at] = w;
    barrier_arrive(&s->item_full[items->at]);
    ring_next(items, 2);

    walk_down k = down_begin(p, &w);
    do {
        int at = swept->at;
        bool last = down_last(&k);
        if (ticket && last)
            drawn = atomicAdd(ticket, 1);
        barrier_wait(&s->swept_empty[at], swept->parity ^ 1);
        s->flags[at] =
            k.sweep.flags | (last ? LAST : 0) | (*ds ? DS : 0) | at * STAGE;
        *ds ^= 1;
        s->bits[at] = k.sweep.bits;
        barrier_arrive_expect(&s->swept_full[at], sizeof(s->swept[0][0]));
        load_tile<D, STEP>(s->swept[at][0], &p->swept[0], k.head, k.sweep.row,
                           &s->swept_full[at]);
        ring_next(swept, STAGES);
    } while (down_on(&k, p, &w));
    return drawn;
}

template <int D, int STAGES, int EXACT>
BT_DEVICE void fused_load_items(const backward_params *p,
                                fused_shared<D, STAGES> *s)
{
    ring items = {}, swept = {};
    int grid = gridDim.x, ds = 0;
    bool any = !EXACT;
    for (int i = 0; EXACT && i < p->heads; i++)
        any |= p->bad[i];
    // The first item is the block's own; each next one is drawn as late as its
    // arrival can still be hidden, for the sake of the balance.
    for (int item = any ? blockIdx.x : p->items; item < p->items;) {
        job j = job_of(p, item);
        if (!EXACT || p->bad[j.head])
            item = grid + (int)fused_load_item<D, STAGES>(p, s, &items, &swept,
                                                          &ds, &j, p->ticket);
        else
            item = grid + (int)atomicAdd(p->ticket, 1);
    }
    barrier_wait(&s->item_empty[items.at], items.parity ^ 1);
    s->item[items.at].item = -1;
    barrier_arrive(&s->item_full[items.at]);
}

template <int ROWS_D>
BT_DEVICE void load_kept(const backward_params *p, uint16_t (*to)[ROWS_D],
                         int which, const work *w, uint64_t *full,
                         uint64_t *empty, uint32_t parity)
{
    barrier_wait(empty, parity ^ 1);
    barrier_arrive_expect(full, FUSED_GROUPS * sizeof(*to));
    for (int g = 0; g < FUSED_GROUPS; g++)
        load_tile<ROWS_D / GROUP_ROWS, GROUP_ROWS>(
            to[g], &p->kept[which], w->head, w->row + g * GROUP_ROWS, full);
}

/* One thread runs this: keys and values, dO of the steps, and what is known of
 * their rows. */
template <int D, int STAGES>
BT_DEVICE void fused_load_second(const backward_params *p,
                                 fused_shared<D, STAGES> *s)
{
    ring items = {}, swept = {};
    uint32_t parity = 0;
    for (;; ring_next(&items, 2), parity ^= 1) {
        barrier_wait(&s->item_full[items.at], items.parity);
        work w = s->item[items.at];
        if (w.item < 0)
            return;
        // Values are free first: the last step of the item before needs them
        // no more once it has dP.
        load_kept(p, s->values, 1, &w, &s->values_full, &s->values_empty,
                  parity);
        load_kept(p, s->keys, 0, &w, &s->keys_full, &s->keys_empty, parity);
        walk_down k = down_begin(p, &w);
        do {
            int at = swept.at;
            uint64_t *full = &s->swept_full[at];
            barrier_wait(&s->swept_empty[at], swept.parity ^ 1);
            barrier_arrive_expect(full,
                                  sizeof(s->swept[0][0]) + sizeof(s->rows[0]));
            copy_bytes(&s->rows[at],
                       p->known + k.head * p->steps + k.sweep.place / STEP,
                       sizeof(s->rows[0]), full);
            load_tile<D, STEP>(s->swept[at][1], &p->swept[1], k.head,
                               k.sweep.row, full);
            ring_next(&swept, STAGES);
        } while (down_on(&k, p, &w));
        barrier_arrive(&s->item_empty[items.at]);
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

BT_DEVICE void counter_set(int *counter, int value)
{
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(counter),
                 "r"(value)
                 : "memory");
}

/* Which half of which step's dQ, and how many tiles add to it before. */
typedef struct addition {
    size_t at;
    int rank;
} addition;

BT_DEVICE addition addition_at(const backward_params *p, const work *w,
                               const walk_down *k, int group)
{
    size_t step = (size_t)k->head * p->steps + k->sweep.place / STEP;
    addition a = { step * FUSED_GROUPS + group,
                   p->ranks[w->visit + k->left - 1] };
    return a;
}

/* One thread for each group runs this: it adds the group's half of the dQ of
 * each step to its sum when the tiles before have done so. */
template <int D, int STAGES>
BT_DEVICE void fused_add_dq(const backward_params *p,
                            fused_shared<D, STAGES> *s, int group)
{
    const int half = STEP * D / FUSED_GROUPS;
    ring items = {};
    uint32_t parity = 0;
    for (;; ring_next(&items, 2)) {
        barrier_wait(&s->item_full[items.at], items.parity);
        work w = s->item[items.at];
        if (w.item < 0)
            return;
        walk_down k = down_begin(p, &w);
        addition now = addition_at(p, &w, &k, group), next = now;
        bool more, ready = false;
        do {
            while (!ready)
                ready = counter_read(p->added + now.at) == now.rank;
            barrier_wait(&s->dq_full[group], parity);
            asm volatile("fence.proxy.async.global;" ::: "memory");
            if (now.rank == 0)
                bulk_store(p->dq_sum + now.at * half, s->dq[group], half * 4);
            else
                bulk_add(p->dq_sum + now.at * half, s->dq[group], half * 4);
            store_commit();
            more = down_on(&k, p, &w);
            if (more)
                next = addition_at(p, &w, &k, group);
            store_read();
            barrier_arrive(&s->dq_empty[group]);
            parity ^= 1;
            // Look ahead while this one is under way.
            ready = more && counter_read(p->added + next.at) == next.rank;
            store_done();
            counter_set(p->added + now.at, now.rank + 1);
            now = next;
        } while (more);
        barrier_arrive(&s->item_empty[items.at]);
    }
}

/* ---- computing --------------------------------------------------------- */

/* What a thread of a group has in registers. */
template <int D> struct fused_state {
    int group, row, t;
    float scale;
    ring items, swept;
    uint32_t kept_parity, dq_parity;
    uint32_t ds_parity; /* of the round of the step's dS */
    int flags;          /* of the step */
    bool partial;
    bool taint[2]; /* EXACT: the thread's keys are not finite */
    uint64_t word[2];
    float x[STEP / 2], y[STEP / 2];
    uint32_t w_p[STEP / 4], w_ds[STEP / 4];
    float dk[D / 2], dv[D / 2];
};

/* d (64 x 64) = or += a^T (a 16 x 64) b (16 x 64), both shared, row by row. */
BT_DEVICE void product_tt_64(float *d, uint64_t a, uint64_t b, int accumulate)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        " %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
        " %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 1, 1;\n"
        "}\n"
        : BT_ACC_32(d, 0)
        : "l"(a), "l"(b), "r"(accumulate));
}

/* dQ of a step, the group's half of the columns, issued: into y, whose step is
 * done. */
template <int D, int STAGES>
BT_DEVICE void issue_dq(fused_state<D> *b, fused_shared<D, STAGES> *s, int ds)
{
    static_assert(D == FUSED_GROUPS * PANEL, "a group makes one panel of dQ");
    product_fence();
#pragma unroll
    for (int g = 0; g < FUSED_GROUPS; g++) {
        uint64_t a = tile_descriptor(s->ds[ds][g], GROUP_ROWS * PANEL * 2);
        uint64_t k =
            tile_descriptor(s->keys[g] + b->group * (GROUP_ROWS * PANEL),
                            GROUP_ROWS * PANEL * 2);
#pragma unroll
        for (int i = 0; i < GROUP_ROWS / 16; i++) {
            uint64_t step = i * (16 * PANEL * 2 >> 4);
            product_tt_64(b->y, a + step, k + step, g + i > 0);
        }
    }
    product_commit();
}

/* The group's half of a step's dQ, for the copy engine. */
template <int D, int STAGES>
BT_DEVICE void stage_dq(fused_state<D> *b, fused_shared<D, STAGES> *s)
{
    const int fours = D / FUSED_GROUPS / 8;
    float4 *to = (float4 *)s->dq[b->group] + threadIdx.x % GROUP;
    barrier_wait(&s->dq_empty[b->group], b->dq_parity ^ 1);
    b->dq_parity ^= 1;
#pragma unroll
    for (int i = 0; i < fours; i++)
        to[i * GROUP] = make_float4(b->y[i * 4], b->y[i * 4 + 1],
                                    b->y[i * 4 + 2], b->y[i * 4 + 3]);
    fence_async();
    done_with(&s->dq_full[b->group]);
}

/* dS of the step, for both groups. */
template <int D, int STAGES>
BT_DEVICE void store_ds(fused_state<D> *b, fused_shared<D, STAGES> *s)
{
    int lane = threadIdx.x % 32;
    int row = threadIdx.x / 32 % 4 * 16 + lane % 16;
    int ds = b->flags / DS & 1;
    uint16_t *to = s->ds[ds][b->group] + row * PANEL;
    barrier_wait(&s->ds_empty[ds], b->ds_parity ^ 1);
#pragma unroll
    for (int i = 0; i < STEP / 16; i++) {
        int chunk = i * 2 + lane / 16;
        store_fragment(to + (chunk ^ row % 8) * 8, b->w_ds + i * 4);
    }
    fence_async();
    done_with(&s->ds_full[ds]);
}

/* EXACT: both groups clean the rows of a step and taint those that were not
 * finite. */
template <int D, int STAGES>
BT_DEVICE void fused_clean(fused_shared<D, STAGES> *s, int at)
{
    int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32 - 4; row < STEP; row += FUSED_WARPS) {
        bool dirty = false;
        for (int i = 0; i < 2 * (D / PANEL); i++) {
            uint16_t *tile = s->swept[at][i / (D / PANEL)];
            uint32_t *word =
                (uint32_t *)(tile + (i % (D / PANEL) * STEP + row) * PANEL) +
                lane;
            uint32_t two = *word, clean = clean_two(two);
            dirty |= clean != two;
            *word = clean;
        }
        if (__any_sync(~0u, dirty) && lane == 0)
            s->rows[at].lse[row] = NAN;
    }
    fence_async();
    named_sync(BARRIER_ALL, FUSED_GROUPS * GROUP);
}

/* EXACT: the same for the keys of the tile. */
template <int D, int STAGES>
BT_DEVICE void fused_clean_keys(fused_state<D> *b, fused_shared<D, STAGES> *s)
{
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 % 4 * 16;
    uint32_t dirty_rows = 0;
    for (int row = 0; row < 16; row++) {
        bool dirty = false;
        for (int i = 0; i < D / PANEL; i++) {
            uint32_t *word =
                (uint32_t *)(s->keys[b->group] +
                             (i * GROUP_ROWS + first + row) * PANEL) +
                lane;
            uint32_t two = *word, clean = clean_two(two);
            dirty |= clean != two;
            *word = clean;
        }
        dirty_rows |= (uint32_t)__any_sync(~0u, dirty) << row;
    }
    b->taint[0] = dirty_rows >> (lane / 4) & 1;
    b->taint[1] = dirty_rows >> (lane / 4 + 8) & 1;
    fence_async();
    named_sync(BARRIER_ALL, FUSED_GROUPS * GROUP);
}

/* The step that comes next in the ring is there: its stage, and what the group
 * sees of it. */
template <int D, int STAGES, int EXACT>
BT_DEVICE int enter_step(fused_state<D> *b, const backward_params *p,
                         fused_shared<D, STAGES> *s)
{
    barrier_wait(&s->swept_full[b->swept.at], b->swept.parity);
    // A reduction: its answer is in a uniform register, and so are the
    // descriptors that follow from the stage.
    b->flags = (int)__reduce_or_sync(~0u, s->flags[b->swept.at]);
    int at = b->flags / STAGE;
    if (EXACT)
        fused_clean(s, at);
    bool sees = b->flags >> b->group & 1;
    b->partial = !sees || b->flags >> (BT_STEP_PARTIAL + b->group) & 1;
    b->word[0] = b->word[1] = 0;
    if (sees && b->partial) {
        const uint64_t *words =
            p->bits + (size_t)s->bits[at] * (FUSED_GROUPS * GROUP_ROWS) +
            b->row;
        b->word[0] = __ldg(words);
        b->word[1] = __ldg(words + 8);
    }
    return at;
}

/* x is there, y under way: from scores to dS. */
template <int D, int STAGES, int EXACT>
BT_DEVICE void make_step(fused_state<D> *b, fused_shared<D, STAGES> *s, int at)
{
    weigh<1, EXACT>(b->x, NULL, s->rows[at].lse, b->t, b->scale);
    if (EXACT) {
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            b->x[i] = b->taint[i / 2 % 2] ? NAN : b->x[i];
    }
    if (b->partial)
        hide(b->x, b->word, b->t);
    product_wait<0>(); // y
    product_hold<STEP / 2>(b->y);
    if (b->flags & LAST)
        done_with(&s->values_empty);
    differ<1>(b->y, b->x, NULL, s->rows[at].delta, b->t);
    if (b->partial)
        hide(b->y, b->word, b->t);
    pack_pairs(b->w_ds, b->y);
    pack_pairs(b->w_p, b->x);
    store_ds(b, s);
}

/* dQ of the step with this dS is there. */
template <int D, int STAGES>
BT_DEVICE void take_dq(fused_state<D> *b, fused_shared<D, STAGES> *s, int ds)
{
    product_hold<D / 4>(b->y);
    done_with(&s->ds_empty[ds]);
    stage_dq(b, s);
}

/* From one step to the next: its sums, dQ of the step before (LATE), and the
 * next step's products. There are registers for the weights or for x, so x is
 * issued when the sums are done. */
template <int D, int STAGES, int EXACT, bool LATE>
BT_DEVICE int next_products(fused_state<D> *b, const backward_params *p,
                            fused_shared<D, STAGES> *s, int at)
{
    int ds = b->flags / DS & 1, before = ds ^ 1;
    ring_next(&b->swept, STAGES);
    int next = enter_step<D, STAGES, EXACT>(b, p, s);
    turn_take<FUSED_GROUPS, true>(b->group);
    issue_sum<D>(b->dv, b->w_p, s->swept[at][1]);
    issue_sum<D>(b->dk, b->w_ds, s->swept[at][0]);
    if (LATE) {
        barrier_wait(&s->ds_full[before], b->ds_parity ^ (uint32_t)before);
        issue_dq(b, s, before);
    }
    product_wait<LATE>(); // the sums
    product_hold<D / 2>(b->dk);
    product_hold<D / 2>(b->dv);
    issue_pairs<D, false>(b->x, NULL, s->keys[b->group], s->swept[next][0]);
    done_with(&s->swept_empty[at]);
    if (LATE) {
        product_wait<1>(); // dQ
        take_dq(b, s, before);
    }
    issue_pairs<D, false>(b->y, NULL, s->values[b->group], s->swept[next][1]);
    turn_pass<FUSED_GROUPS, true>(b->group);
    product_wait<1>(); // x
    product_hold<STEP / 2>(b->x);
    b->ds_parity ^= (uint32_t)ds;
    return next;
}

/* A sum leaves, 4 bytes a lane. Returns whether all that is stored is finite.
 */
template <int D>
BT_DEVICE bool store_direct(const backward_params *p, int which, const work *w,
                            int row, const float *sum, float factor)
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

/* The sums of an item leave, and start anew. */
template <int D, int STAGES, int EXACT>
BT_DEVICE void store_item(fused_state<D> *b, const backward_params *p,
                          fused_shared<D, STAGES> *s)
{
    const work *w = &s->item[b->items.at];
    bool good = store_direct<D>(p, 1, w, b->row, b->dv, 1.0f);
    good &= store_direct<D>(p, 0, w, b->row, b->dk, p->scale);
    if (!EXACT && !good)
        p->bad[w->head] = 1;
    done_with(&s->item_empty[b->items.at]);
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        b->dk[i] = b->dv[i] = 0.0f;
}

/* The products of an item's first step, alone. */
template <int D, int STAGES, int EXACT>
BT_DEVICE int first_products(fused_state<D> *b, const backward_params *p,
                             fused_shared<D, STAGES> *s)
{
    int at = enter_step<D, STAGES, EXACT>(b, p, s);
    barrier_wait(&s->keys_full, b->kept_parity);
    if (EXACT)
        fused_clean_keys(b, s);
    issue_pairs<D, false>(b->x, NULL, s->keys[b->group], s->swept[at][0]);
    barrier_wait(&s->values_full, b->kept_parity);
    issue_pairs<D, false>(b->y, NULL, s->values[b->group], s->swept[at][1]);
    product_wait<1>(); // x
    product_hold<STEP / 2>(b->x);
    b->kept_parity ^= 1;
    return at;
}

/* The end of an item: the sums of its last step, what dQ there is still to be
 * made, and the sums leave. */
template <int D, int STAGES, int EXACT, bool LATE>
BT_DEVICE void last_products(fused_state<D> *b, const backward_params *p,
                             fused_shared<D, STAGES> *s, int at)
{
    int ds = b->flags / DS & 1, before = ds ^ 1;
    turn_take<FUSED_GROUPS, true>(b->group);
    issue_sum<D>(b->dv, b->w_p, s->swept[at][1]);
    issue_sum<D>(b->dk, b->w_ds, s->swept[at][0]);
    if (LATE) {
        barrier_wait(&s->ds_full[before], b->ds_parity ^ (uint32_t)before);
        issue_dq(b, s, before);
    }
    product_wait<LATE>(); // the sums
    product_hold<D / 2>(b->dk);
    product_hold<D / 2>(b->dv);
    done_with(&s->swept_empty[at]);
    if (LATE) {
        product_wait<0>();
        take_dq(b, s, before);
    }
    turn_pass<FUSED_GROUPS, true>(b->group);
    barrier_wait(&s->ds_full[ds], b->ds_parity);
    issue_dq(b, s, ds);
    product_wait<0>();
    done_with(&s->keys_empty);
    take_dq(b, s, ds);
    store_item<D, STAGES, EXACT>(b, p, s);
    b->ds_parity ^= (uint32_t)ds;
    ring_next(&b->swept, STAGES);
    ring_next(&b->items, 2);
}

/* Whether the ring of items has one there. */
template <int D, int STAGES>
BT_DEVICE bool item_there(fused_state<D> *b, fused_shared<D, STAGES> *s)
{
    barrier_wait(&s->item_full[b->items.at], b->items.parity);
    // A reduction, again: else all that follows would count as divergent.
    return __reduce_min_sync(~0u, s->item[b->items.at].item) >= 0;
}

template <int D, int STAGES, int EXACT>
BT_DEVICE void fused_compute(const backward_params *p,
                             fused_shared<D, STAGES> *s)
{
    fused_state<D> state = {}, *b = &state;
    b->group = __shfl_sync(~0u, (int)threadIdx.x / GROUP - 1, 0);
    b->t = threadIdx.x % 4;
    b->row = b->group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 +
             threadIdx.x % 32 / 4;
    b->scale = p->scale * LOG2_E;
    // Group 0 has the first turn.
    if (b->group == FUSED_GROUPS - 1)
        turn_pass<FUSED_GROUPS, true>(b->group);
    while (item_there(b, s)) {
        int at = first_products<D, STAGES, EXACT>(b, p, s);
        make_step<D, STAGES, EXACT>(b, s, at);
        if (b->flags & LAST) {
            last_products<D, STAGES, EXACT, false>(b, p, s, at);
            continue;
        }
        at = next_products<D, STAGES, EXACT, false>(b, p, s, at);
        make_step<D, STAGES, EXACT>(b, s, at);
        while (!(b->flags & LAST)) {
            at = next_products<D, STAGES, EXACT, true>(b, p, s, at);
            make_step<D, STAGES, EXACT>(b, s, at);
        }
        last_products<D, STAGES, EXACT, true>(b, p, s, at);
    }
}

template <int D, int STAGES, int EXACT>
__global__ void __launch_bounds__(GROUP *(FUSED_GROUPS + 1), 1)
    attention_backward_fused(const __grid_constant__ backward_params p)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    fused_shared<D, STAGES> *s = (fused_shared<D, STAGES> *)memory;

    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&s->item_full[i], 1);
            barrier_init(&s->item_empty[i], FUSED_WARPS * WARP_ARRIVALS + 3);
            barrier_init(&s->ds_full[i], FUSED_WARPS * WARP_ARRIVALS);
            barrier_init(&s->ds_empty[i], FUSED_WARPS * WARP_ARRIVALS);
            tensor_map_prefetch(&p.kept[i]);
            tensor_map_prefetch(&p.swept[i]);
        }
        barrier_init(&s->keys_full, 1);
        barrier_init(&s->keys_empty, FUSED_WARPS * WARP_ARRIVALS);
        barrier_init(&s->values_full, 1);
        barrier_init(&s->values_empty, FUSED_WARPS * WARP_ARRIVALS);
        for (int i = 0; i < FUSED_GROUPS; i++) {
            barrier_init(&s->dq_full[i], 4 * WARP_ARRIVALS);
            barrier_init(&s->dq_empty[i], 1);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s->swept_full[i], 2);
            barrier_init(&s->swept_empty[i], FUSED_WARPS * WARP_ARRIVALS);
        }
        barrier_init_done();
    }
    __syncthreads();
    grid_wait();
    grid_release();

    if (threadIdx.x < GROUP) {
        registers_lower<24>();
        if (threadIdx.x == 0)
            fused_load_items<D, STAGES, EXACT>(&p, s);
        else if (threadIdx.x == 32)
            fused_add_dq<D, STAGES>(&p, s, 0);
        else if (threadIdx.x == 64)
            fused_load_second<D, STAGES>(&p, s);
        else if (threadIdx.x >= 96) {
            if (!EXACT)
                store_empty<D, 1>(&p);
            if (threadIdx.x == 96)
                fused_add_dq<D, STAGES>(&p, s, 1);
        }
    } else {
        registers_raise<240>();
        fused_compute<D, STAGES, EXACT>(&p, s);
    }
}

/* ---- the end of dQ ----------------------------------------------------- */

/* A step's sum of one head, as the threads of attention_backward_fused held it,
 * becomes rows of dQ. Also sets the counters back, for the next launch. Places
 * behind the last step are rows that are in none, and get zeros. */
template <int D, int EXACT>
BT_DEVICE void finish_place(const finish_params *p, int head, int at,
                            uint32_t (*words)[D / 2 + 4])
{
    const int fours = D / FUSED_GROUPS / 8, chunks = D / 8;
    bt_sweep_step step = at < p->steps ? p->places[at] : p->gaps[at - p->steps];
    int thread = threadIdx.x % GROUP, group = threadIdx.x / GROUP;
    int row = thread / 32 * 16 + thread % 32 / 4, added = 0;
    size_t index = ((size_t)head * p->steps + at) * FUSED_GROUPS + group;
    bool good = true;
    if (at < p->steps)
        added = p->added[index];
    const float4 *from =
        (const float4 *)(p->dq_sum + index * (STEP * D / FUSED_GROUPS));
    float4 four[fours];
#pragma unroll
    for (int i = 0; i < fours; i++) {
        four[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (added)
            four[i] = __ldcg(from + i * GROUP + thread);
    }
#pragma unroll
    for (int i = 0; i < fours; i++) {
        // The fma turns -0 into 0.
        uint32_t upper = pack_bf16(fmaf(four[i].x, p->scale, 0.0f),
                                   fmaf(four[i].y, p->scale, 0.0f));
        uint32_t lower = pack_bf16(fmaf(four[i].z, p->scale, 0.0f),
                                   fmaf(four[i].w, p->scale, 0.0f));
        int column = group * fours * 4 + i * 4 + thread % 4; // of two
        words[row][column] = upper;
        words[row + 8][column] = lower;
        uint32_t check[2] = { check_finite(0, upper), check_finite(0, lower) };
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (row + r * 8 < step.rows)
                good &= (check[r] & 0x7fff7fff) == 0;
    }
    if (!EXACT && !good)
        p->bad[head / p->group] = 1;
    __syncthreads();
    if (at < p->steps && thread == 0)
        p->added[index] = 0;
    for (int i = threadIdx.x; i < step.rows * chunks; i += 256) {
        int r = i / chunks, chunk = i % chunks;
        if (chunk * 8 < p->head_dim)
            *(uint4 *)(p->dq + (size_t)(step.row + r) * p->token +
                       (size_t)head * p->head + chunk * 8) =
                *(const uint4 *)&words[r][chunk * 4];
    }
    __syncthreads();
}

template <int D, int EXACT>
__global__ void __launch_bounds__(256) attention_finish_dq(finish_params p)
{
    __shared__ __align__(16) uint32_t words[STEP][D / 2 + 4];
    grid_wait();
    grid_release();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *p.ticket = 0;
    // Heads lie beside each other, so rows are written whole.
    for (int i = blockIdx.x; i < p.places_count * p.heads; i += gridDim.x) {
        int head = i % p.heads;
        if (!EXACT || p.bad[head / p.group])
            finish_place<D, EXACT>(&p, head, i / p.heads, words);
    }
}

#endif
