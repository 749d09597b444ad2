/* SPDX-License-Identifier: Apache-2.0 */
/* backward_thread_state.h - the registers of a thread that computes in
 * attention_backward.cu, and how its group advances from step to step and from
 * item to item. */
#ifndef BT_CUDA_BACKWARD_THREAD_STATE_H
#define BT_CUDA_BACKWARD_THREAD_STATE_H

#include "backend/cuda/backward_delta.h"
#include "backend/cuda/backward_step.h"

/* A group's position in the steps of an item. */
typedef struct step_pipeline {
    pipeline_state streamed, second; /* split: of the second halves */
    pipeline_state half;             /* split: the one of the step */
    int flags;                       /* of the step before; 0: there was none */
    int ahead; /* of a step that was looked at and is not for the group */
} step_pipeline;

/* The registers of a thread that computes. */
template <int D, int KEYS, int MODE> struct thread_state {
    // What there are registers for. in_registers: the stationary tiles, which
    // are then read from shared memory once. defers_y: not for both weights and
    // dS while their products run; so y is issued when the sum of dS is done.
    // reuses_packed: nor for weights in float32 beside those in bf16, from
    // which dS is then computed.
    static const bool in_registers = stationary_layout<D, KEYS>::in_registers;
    static const bool both = KEYS == MAKES_BOTH, defers_y = both;
    static const bool reuses_packed = both && D == 64;
    static const bool ordered = /* see order_wait */
        (both || in_registers) && !(MODE & FIXUP);
    static const bool overlaps_items =
        !KEYS && !(MODE & FIXUP) && D == 64; /* see loop_steps */
    static const bool prefetches_item =
        !(MODE & FIXUP) && D <= 128;              /* see prefetch_item */
    static const bool weights = KEYS == MAKES_DV; /* see loop_weights */
    static const bool biased = MODE & BIASED;
    static const int second = stationary_layout<D, KEYS>::tensors - 1;

    int group, row, t; /* row: the first of the thread's two in the tile */
    float scale;
    pipeline_state items,
        stationary;       /* the item, and the buffer of its stationary tiles */
    bool item_prefetched; /* the sums are still those of the item before */
    bool release_pending; /* held: the tiles' memory is not given back yet */
    int storing;          /* buffer through which gradients leave; -1: none */
    step_pipeline steps;
    uint32_t f[2][in_registers ? D / 4 : 4];
    float lse[2], delta[2], lse_next[2], delta_next[2];
    uint64_t word[2];
    bool partial;
    float x[STEP / 2], y[STEP / 2];
    uint32_t w_p[both ? STEP / 4 : 1], w_ds[STEP / 4];
    float sum[D / 2], sum_p[both ? D / 2 : 1];
    // BIASED: the item's head, and the thread's rows: their anchors, or (KEYS)
    // their keys, or (TENSOR) the rows themselves.
    int head, place[2], head_next, place_next[2];
    uint32_t w_q[biased && reuses_packed ? STEP / 4 : 1]; /* see weigh_step */
};

/* Groups issue a step's products in order (ping-pong), so that one of them
 * exponentiates while another one multiplies. Those that make dQ of heads of 64
 * are faster without an order. */
template <int GROUPS, bool ORDERED> BT_DEVICE void order_wait(int group)
{
    if (ORDERED)
        named_sync(BARRIER_ORDER + group, 2 * GROUP);
}

template <int GROUPS, bool ORDERED> BT_DEVICE void order_arrive(int group)
{
    if (ORDERED)
        named_arrive(BARRIER_ORDER + (group + 1) % GROUPS, 2 * GROUP);
}

template <int D, int GROUPS, int STAGES, int KEYS>
BT_DEVICE void filter_next(backward_shared<D, GROUPS, STAGES, KEYS> *s,
                           step_pipeline *at)
{
    if (stationary_layout<D, KEYS>::split)
        barrier_wait(&s->second_full[at->second.index], at->second.phase);
    filter_step<D, GROUPS, STAGES, KEYS>(s, at->streamed.index,
                                         at->second.index);
}

/* The next step, if the group sees something of it: its stage. -1: it does
 * not, or there is none. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE int next_step(backward_shared<D, GROUPS, STAGES, KEYS> *s,
                        step_pipeline *at, int group)
{
    int stage = at->streamed.index;
    if (at->flags & LAST)
        return -1;
    barrier_wait(&s->streamed_full[stage], at->streamed.phase);
    // A reduction: its answer is in a uniform register. So the branches on it
    // are uniform, and so are the descriptors that follow from the stage.
    int flags = (int)__reduce_or_sync(~0u, s->flags[stage]);
    at->ahead = flags;
    if (!(flags >> group & 1))
        return -1;
    if (MODE & FIXUP)
        filter_next<D, GROUPS, STAGES, KEYS>(s, at);
    at->flags = flags;
    pipeline_advance(&at->streamed, STAGES);
    if (stationary_layout<D, KEYS>::split) {
        at->half = at->second;
        pipeline_advance(&at->second, STAGES - 1);
    }
    return flags / STAGE;
}

/* Pass over steps of which the group sees nothing. It must not hold a step
 * meanwhile: there may be more of them than the ring has stages. `passed`: the
 * first one is one of them, and the group has issued in its order. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE int skip_steps(backward_shared<D, GROUPS, STAGES, KEYS> *s,
                         step_pipeline *at, int group, bool passed)
{
    typedef thread_state<D, KEYS, MODE> kernel_traits;
    while (!(at->flags & LAST)) {
        int stage = next_step<D, GROUPS, STAGES, KEYS, MODE>(s, at, group);
        if (stage >= 0)
            return stage;
        stage = at->streamed.index;
        at->flags = at->ahead;
        if (MODE & FIXUP)
            filter_next<D, GROUPS, STAGES, KEYS>(s, at);
        if (!passed) {
            order_wait<GROUPS, kernel_traits::ordered>(group);
            order_arrive<GROUPS, kernel_traits::ordered>(group);
        }
        passed = false;
        consumer_release(&s->streamed_empty[stage]);
        pipeline_advance(&at->streamed, STAGES);
        if (stationary_layout<D, KEYS>::split) {
            // Not before it is there: an arrival must not run ahead.
            barrier_wait(&s->second_full[at->second.index], at->second.phase);
            consumer_release(&s->second_empty[at->second.index]);
            pipeline_advance(&at->second, STAGES - 1);
        }
    }
    return -1;
}

/* dQ: load the statistics of the thread's rows of the item; */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void prefetch_row_stats(thread_state<D, KEYS, MODE> *b,
                                  const backward_params *p,
                                  backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if (KEYS)
        return;
    const backward_work *w = &s->item[b->items.index];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int mine = w->row + min(b->row + r * 8, w->rows - 1);
        size_t at = (size_t)mine * p->heads + w->head;
        b->lse_next[r] = __ldcg(p->lse + at);
        if (!makes_delta<D, KEYS, MODE>)
            b->delta_next[r] = __ldcg(p->delta + at);
    }
}

/* makes_delta: or make them, when the item's tiles are there. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void make_delta(thread_state<D, KEYS, MODE> *b,
                          const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if constexpr (makes_delta<D, KEYS, MODE>) {
        const backward_work *w = &s->item[b->items.index];
        barrier_wait(&s->out_full[b->group], (uint32_t)b->items.index);
        sum_rows<D>(b->delta_next, s->more[b->group],
                    s->stationary[b->stationary.index][1][b->group]);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = b->row + r * 8;
            if (b->t == 0 && row < w->rows)
                p->delta[(size_t)(w->row + row) * p->heads + w->head] =
                    b->delta_next[r];
        }
        consumer_release(&s->delta_made[b->items.index]);
        if (b->in_registers)
            b->storing = 0; // the gradients before it leave through it first
        else
            consumer_release(&s->out_empty[b->group]);
    }
}

/* BIASED: and what the scores of the item need; */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void prefetch_item_bias(thread_state<D, KEYS, MODE> *b,
                                  const backward_params *p,
                                  backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if (!b->biased)
        return;
    const backward_work *w = &s->item[b->items.index];
    b->head_next = w->head;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = b->row + r * 8;
        if (MODE & TENSOR)
            b->place_next[r] = w->row + min(row, w->rows - 1);
        else
            b->place_next[r] =
                KEYS ? w->row + row
                     : anchor_of(&p->bias, w->row + min(row, w->rows - 1));
    }
}

/* and use them. */
template <int D, int KEYS, int MODE>
BT_DEVICE void use_row_stats(thread_state<D, KEYS, MODE> *b)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        b->lse[r] = b->lse_next[r] * LOG2_E;
        b->delta[r] = b->delta_next[r];
        if (b->biased)
            b->place[r] = b->place_next[r];
    }
    if (b->biased)
        b->head = b->head_next;
}

/* in_registers: load the stationary tiles. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void
load_stationary_fragments(thread_state<D, KEYS, MODE> *b,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if (b->in_registers) {
        load_tile_fragments<D>(b->f[0],
                               s->stationary[b->stationary.index][0][b->group]);
        load_tile_fragments<D>(
            b->f[1], s->stationary[b->stationary.index][b->second][b->group]);
        b->release_pending = true;
    }
}

/* in_registers: release their memory. Not before products that read the
 * fragments have begun: loads that were issued need not have completed. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void release_stationary(thread_state<D, KEYS, MODE> *b,
                                  backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if (b->in_registers && b->release_pending)
        consumer_release(&s->stationary_empty[b->stationary.index][b->group]);
    b->release_pending = false;
}

/* The same for the buffer through which gradients were stored: the stationary
 * tiles' or, in_registers, that of O. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void release_store_buffer(thread_state<D, KEYS, MODE> *b,
                                    backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    if ((b->in_registers && !makes_delta<D, KEYS, MODE>) || b->storing < 0)
        return;
    if (threadIdx.x % 32 == 0)
        tma_store_wait_read();
    consumer_release(b->in_registers
                         ? &s->out_empty[b->group]
                         : &s->stationary_empty[b->storing][b->group]);
    b->storing = -1;
}

/* Wait for the item and its stationary tiles; false: there is none. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE bool begin_item(thread_state<D, KEYS, MODE> *b,
                          const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    barrier_wait(&s->item_full[b->items.index], b->items.phase);
    // A reduction, again: else all that follows would count as divergent.
    if (__reduce_min_sync(~0u, s->item[b->items.index].item) < 0)
        return false;
    prefetch_row_stats(b, p, s);
    prefetch_item_bias(b, p, s);
    barrier_wait(&s->stationary_full[b->stationary.index][b->group],
                 b->stationary.phase);
    make_delta(b, p, s);
    b->steps.flags = 0;
    return true;
}

/* The same for the next item, while the sums of this one are not stored yet. If
 * there is none, this one stays current. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void prefetch_item(thread_state<D, KEYS, MODE> *b,
                             const backward_params *p,
                             backward_shared<D, GROUPS, STAGES, KEYS> *s)
{
    pipeline_state items = b->items, stationary = b->stationary;
    release_store_buffer(b, s); // the one that the item's tiles come to
    pipeline_advance(&b->items, 2);
    pipeline_advance(&b->stationary, stationary_layout<D, KEYS>::buffers);
    b->item_prefetched = begin_item(b, p, s);
    if (!b->item_prefetched) {
        b->items = items;
        b->stationary = stationary;
    }
}

/* The words of a thread's two rows for a step, if it is partial for them. They
 * come from the L2 while the products run. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void load_words(thread_state<D, KEYS, MODE> *b,
                          const backward_params *p,
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

/* ---- weights ------------------------------------------------------------ */

/* What is added to scores beside slopes, which may be 0. */
typedef enum score_term { NO_TERM, TABLE_TERM, TENSOR_TERM } score_term;

/* BIASED: the scores x of a step become weights P, as weigh_step wants them.
 * CAP: there is a softcap. (It and TERM are decided here, not for every score:
 * where registers are few, the compiler has loaded from a table that is not
 * there.) */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE, bool CAP,
          score_term TERM>
BT_DEVICE void weigh_biased(thread_state<D, KEYS, MODE> *b,
                            const backward_params *p,
                            backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    typedef thread_state<D, KEYS, MODE> kernel_traits;
    const bt_cuda_bias *bias = &p->bias;
    int from = s->step_from[at];
    head_bias h = head_bias_of(bias, KEYS ? from : b->head);
    const float *tensor[2] = { NULL, NULL };
    if (TERM == TENSOR_TERM && !KEYS)
#pragma unroll
        for (int r = 0; r < 2; r++)
            tensor[r] = tensor_row_of(bias, b->place[r], b->head) + from;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int column = i * 8 + b->t * 2;
        float2 lse = { 0.0f, 0.0f };
        int2 anchor = { 0, 0 };
        if (KEYS || MODE & FIXUP)
            lse = *(const float2 *)(s->rows[at].lse + column);
        if (KEYS)
            anchor = *(const int2 *)(s->anchors[KEYS ? at : 0] + column);
        if (TERM == TENSOR_TERM && KEYS) {
            tensor[0] = tensor_row_of(bias, anchor.x, from);
            tensor[1] = tensor_row_of(bias, anchor.y, from);
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float weight[2], rate[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float x = b->x[i * 4 + r * 2 + c], of = c ? lse.y : lse.x;
                int distance = KEYS ? b->place[r] - (c ? anchor.y : anchor.x)
                                    : from + column + c - b->place[r];
                if (MODE & FIXUP && !KEYS)
                    x += of;
                float t =
                    CAP ? tanh_fast(__fmul_rn(x, bias->tanh_scale)) : 0.0f;
                float z =
                    CAP ? __fmul_rn(bias->cap, t) : __fmul_rn(x, bias->scale);
                z = __fmaf_rn(h.slope, (float)distance, z);
                if (TERM == TABLE_TERM)
                    z = __fmaf_rn(table_bias(bias, h, distance), LOG2_E, z);
                if (TERM == TENSOR_TERM) {
                    const float *element =
                        KEYS ? tensor[c] + b->place[r] : tensor[r] + column + c;
                    uint32_t visible =
                        b->partial ? b->word[r] >> (column + c) & 1 : 1;
                    z = __fmaf_rn(load_visible(element, visible), LOG2_E, z);
                }
                of = KEYS ? of : b->lse[r];
                // All scores of a row may be -infinity: weights of 0.
                of = of == -INFINITY ? INFINITY : of;
                weight[c] = exp2_fast(z - of);
                rate[c] = CAP ? weight[c] * fmaf(-t, t, 1.0f) : weight[c];
            }
            float *to = b->x + i * 4 + r * 2;
            if (kernel_traits::both)
                b->w_p[kernel_traits::both ? i * 2 + r : 0] =
                    pack_bf16(weight[0], weight[1]);
            if (kernel_traits::reuses_packed) {
                b->w_q[kernel_traits::reuses_packed ? i * 2 + r : 0] =
                    pack_bf16(rate[0], rate[1]);
            } else {
                to[0] = kernel_traits::weights ? weight[0] : rate[0];
                to[1] = kernel_traits::weights ? weight[1] : rate[1];
            }
        }
    }
}

template <int D, int GROUPS, int STAGES, int KEYS, int MODE, score_term TERM>
BT_DEVICE void weigh_capped(thread_state<D, KEYS, MODE> *b,
                            const backward_params *p,
                            backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    if (p->bias.cap != 0.0f)
        weigh_biased<D, GROUPS, STAGES, KEYS, MODE, true, TERM>(b, p, s, at);
    else
        weigh_biased<D, GROUPS, STAGES, KEYS, MODE, false, TERM>(b, p, s, at);
}

/* The scores x of a step become its weights. BIASED: what dS is a multiple of,
 * the weights times the derivative of the softcap, is in x, or packed in w_q
 * where there are too few registers; the weights, if both are needed, are
 * packed in w_p. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void weigh_step(thread_state<D, KEYS, MODE> *b,
                          const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    typedef thread_state<D, KEYS, MODE> kernel_traits;
    if (!kernel_traits::biased)
        compute_weights<KEYS, MODE & FIXUP>(
            b->x, b->lse, columns_of(s->rows[at].lse, b->t), b->scale);
    else if (MODE & TENSOR)
        weigh_capped<D, GROUPS, STAGES, KEYS, MODE, TENSOR_TERM>(b, p, s, at);
    else if (p->bias.table)
        weigh_capped<D, GROUPS, STAGES, KEYS, MODE, TABLE_TERM>(b, p, s, at);
    else
        weigh_capped<D, GROUPS, STAGES, KEYS, MODE, NO_TERM>(b, p, s, at);
    if (!b->partial)
        return;
    if (!kernel_traits::biased || !kernel_traits::reuses_packed)
        apply_mask(b->x, b->word, b->t);
    if (kernel_traits::biased && kernel_traits::both)
        apply_mask_packed(b->w_p, b->word, b->t);
    if (kernel_traits::biased && kernel_traits::reuses_packed)
        apply_mask_packed(b->w_q, b->word, b->t);
}

#endif
