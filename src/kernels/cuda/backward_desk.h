/* SPDX-License-Identifier: Apache-2.0 */
/* backward_desk.h - what a thread that computes in attention_backward.cu has in
 * registers, and how its group goes from step to step and from item to item. */
#ifndef BT_CUDA_BACKWARD_DESK_H
#define BT_CUDA_BACKWARD_DESK_H

#include "kernels/cuda/backward_step.h"

/* A group's place in the steps of an item. */
typedef struct pace {
    ring swept, second; /* split: of the second halves */
    ring half;          /* split: the one of the step */
    int flags;          /* of the step before; 0: there was none */
    int ahead; /* of a step that was looked at and is not for the group */
} pace;

/* What a thread of a group has in registers. */
template <int D, int KEYS, int EXACT> struct desk {
    // What there are registers for. held: the kept tiles, which are then read
    // from memory once. late: not for both weights and dS while their products
    // run; so y is issued when the sum of dS is done. tight: nor for weights in
    // float32 beside those in bf16, of which dS is made then.
    static const bool held = keeping<D, KEYS>::held;
    static const bool both = KEYS == MAKES_BOTH, late = both;
    static const bool tight = both && D == 64;
    static const bool turns = both && !EXACT;             /* see turn_take */
    static const bool flows = !KEYS && !EXACT && D == 64; /* see sweep_steps */
    static const bool enters = !EXACT && D <= 128;        /* see enter_item */
    static const bool weights = KEYS == MAKES_DV; /* see sweep_weights */
    static const int second = keeping<D, KEYS>::tensors - 1;

    int group, row, t; /* row: the first of the thread's two in the tile */
    float scale;
    ring items, kept; /* the item, and the buffer of its kept tiles */
    bool entered;     /* the sums are still those of the item before */
    bool keeps;       /* held: the tiles' memory is not given back yet */
    int storing;      /* buffer through which gradients leave; -1: none */
    pace steps;
    uint32_t f[2][held ? D / 4 : 4];
    float lse[2], delta[2], lse_next[2], delta_next[2];
    uint64_t word[2];
    bool partial;
    float x[STEP / 2], y[STEP / 2];
    uint32_t w_p[both ? STEP / 4 : 1], w_ds[STEP / 4];
    float sum[D / 2], sum_p[both ? D / 2 : 1];
};

/* Groups that make two sums take turns at issuing a step's products, so that
 * one exponentiates while another one multiplies. Those of dQ fall into step by
 * themselves. */
template <int GROUPS, bool TURNS> BT_DEVICE void turn_take(int group)
{
    if (TURNS)
        named_sync(BARRIER_TURN + group, 2 * GROUP);
}

template <int GROUPS, bool TURNS> BT_DEVICE void turn_pass(int group)
{
    if (TURNS)
        named_arrive(BARRIER_TURN + (group + 1) % GROUPS, 2 * GROUP);
}

template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE void clean_next(backward_shared<D, GROUPS, STAGES, KEYS> *s, pace *at)
{
    if (keeping<D, KEYS>::split)
        barrier_wait(&s->second_full[at->second.at], at->second.parity);
    clean_step<D, GROUPS, STAGES, KEYS>(s, at->swept.at, at->second.at);
}

/* The next step, if the group sees something of it: its stage. -1: it does
 * not, or there is none. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE int next_step(backward_shared<D, GROUPS, STAGES, KEYS> *s, pace *at,
                        int group)
{
    int stage = at->swept.at;
    if (at->flags & LAST)
        return -1;
    barrier_wait(&s->swept_full[stage], at->swept.parity);
    // A reduction: its answer is in a uniform register. So the branches on it
    // are uniform, and so are the descriptors that follow from the stage.
    int flags = (int)__reduce_or_sync(~0u, s->flags[stage]);
    at->ahead = flags;
    if (!(flags >> group & 1))
        return -1;
    if (EXACT)
        clean_next<D, GROUPS, STAGES, KEYS>(s, at);
    at->flags = flags;
    ring_next(&at->swept, STAGES);
    if (keeping<D, KEYS>::split) {
        at->half = at->second;
        ring_next(&at->second, STAGES - 1);
    }
    return flags / STAGE;
}

/* Pass over steps of which the group sees nothing. It must not hold a step
 * meanwhile: there may be more of them than the ring has stages. `passed`: the
 * first one is one of them, and the group has had its turn. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE int skip_steps(backward_shared<D, GROUPS, STAGES, KEYS> *s, pace *at,
                         int group, bool passed)
{
    typedef desk<D, KEYS, EXACT> kind;
    while (!(at->flags & LAST)) {
        int stage = next_step<D, GROUPS, STAGES, KEYS, EXACT>(s, at, group);
        if (stage >= 0)
            return stage;
        stage = at->swept.at;
        at->flags = at->ahead;
        if (EXACT)
            clean_next<D, GROUPS, STAGES, KEYS>(s, at);
        if (!passed) {
            turn_take<GROUPS, kind::turns>(group);
            turn_pass<GROUPS, kind::turns>(group);
        }
        passed = false;
        done_with(&s->swept_empty[stage]);
        ring_next(&at->swept, STAGES);
        if (keeping<D, KEYS>::split) {
            // Not before it is there: an arrival must not run ahead.
            barrier_wait(&s->second_full[at->second.at], at->second.parity);
            done_with(&s->second_empty[at->second.at]);
            ring_next(&at->second, STAGES - 1);
        }
    }
    return -1;
}

/* dQ: ask for what is known of the thread's rows of the item; */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void fetch_rows(desk<D, KEYS, EXACT> *b, const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if (KEYS)
        return;
    const work *w = &s->item[b->items.at];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int mine = w->row + min(b->row + r * 8, w->rows - 1);
        size_t at = (size_t)mine * p->heads + w->head;
        b->lse_next[r] = __ldcg(p->lse + at);
        b->delta_next[r] = __ldcg(p->delta + at);
    }
}

/* and take it. */
template <int D, int KEYS, int EXACT>
BT_DEVICE void take_rows(desk<D, KEYS, EXACT> *b)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        b->lse[r] = b->lse_next[r] * LOG2_E;
        b->delta[r] = b->delta_next[r];
    }
}

/* held: the kept tiles into registers. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void take_tiles(desk<D, KEYS, EXACT> *b,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if (b->held) {
        hold_tile<D>(b->f[0], s->kept[b->kept.at][0][b->group]);
        hold_tile<D>(b->f[1], s->kept[b->kept.at][b->second][b->group]);
        b->keeps = true;
    }
}

/* held: give their memory back. Not before products that read the fragments
 * have begun: that these were asked for does not mean that they are there. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void give_tiles(desk<D, KEYS, EXACT> *b,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if (b->held && b->keeps)
        done_with(&s->kept_empty[b->kept.at][b->group]);
    b->keeps = false;
}

/* Not held: the same for the buffer through which gradients left. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void give_buffer(desk<D, KEYS, EXACT> *b,
                           backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if (b->held || b->storing < 0)
        return;
    if (threadIdx.x % 32 == 0)
        store_read();
    done_with(&s->kept_empty[b->storing][b->group]);
    b->storing = -1;
}

/* Wait for the item and its kept tiles; false: there is none. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE bool begin_item(desk<D, KEYS, EXACT> *b, const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    barrier_wait(&s->item_full[b->items.at], b->items.parity);
    // A reduction, again: else all that follows would count as divergent.
    if (__reduce_min_sync(~0u, s->item[b->items.at].item) < 0)
        return false;
    fetch_rows(b, p, s);
    barrier_wait(&s->kept_full[b->kept.at][b->group], b->kept.parity);
    b->steps.flags = 0;
    return true;
}

/* The same for the item behind, while the sums of this one are not stored yet.
 * If there is none, this one stays. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void enter_item(desk<D, KEYS, EXACT> *b, const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    ring items = b->items, kept = b->kept;
    give_buffer(b, s); // the one that the item's tiles come to
    ring_next(&b->items, 2);
    ring_next(&b->kept, keeping<D, KEYS>::buffers);
    b->entered = begin_item(b, p, s);
    if (!b->entered) {
        b->items = items;
        b->kept = kept;
    }
}

/* The words of a thread's two rows for a step, if it is partial for them. They
 * come from the L2 while the products run. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void load_words(desk<D, KEYS, EXACT> *b, const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    b->partial = b->steps.flags >> (BT_STEP_PARTIAL + b->group) & 1;
    if (!b->partial)
        return;
    const uint64_t *words =
        p->bits + (size_t)s->bits[at] * (GROUPS * GROUP_ROWS) + b->row;
    b->word[0] = __ldg(words);
    b->word[1] = __ldg(words + 8);
}

#endif
