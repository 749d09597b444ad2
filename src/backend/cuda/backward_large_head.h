/* SPDX-License-Identifier: Apache-2.0 */
/* backward_large_head.h - how attention_backward_large_head.cu goes over the
 * steps of an item. */
#ifndef BT_CUDA_BACKWARD_LARGE_HEAD_H
#define BT_CUDA_BACKWARD_LARGE_HEAD_H

#include "backend/cuda/backward_thread_state.h"

/* The weights of a step, whose scores are there. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void make_weights(thread_state<D, KEYS, MODE> *b,
                            const backward_params *p,
                            backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    wgmma_fence_operand<STEP / 2>(b->x);
    weigh_step(b, p, s, at);
}

/* dV alone: a step has its weights and no more, and their sum runs while those
 * of the next step are made. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void loop_weights(thread_state<D, KEYS, MODE> *b,
                            const backward_params *p,
                            backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    while (at >= 0) {
        const uint16_t *stationary =
            s->stationary[b->stationary.index][0][b->group];
        load_words(b, p, s, at);
        issue_pairs<D, false>(b->x, b->f[0], stationary, s->streamed[at][0]);
        wgmma_wait<0>();
        make_weights(b, p, s, at);
        pack_pairs(b->w_ds, b->x);
        int before = at;
        at = next_step<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps, b->group);
        while (at >= 0) {
            load_words(b, p, s, at);
            issue_pairs<D, false>(b->x, b->f[0], stationary,
                                  s->streamed[at][0]);
            issue_sum<D>(b->sum, b->w_ds, s->streamed[before][1]);
            wgmma_wait<1>(); // all but the sum
            make_weights(b, p, s, at);
            wgmma_wait<0>();
            wgmma_fence_operand<D / 2>(b->sum);
            consumer_release(&s->streamed_empty[before]);
            pack_pairs(b->w_ds, b->x);
            before = at;
            at = next_step<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps,
                                                          b->group);
        }
        issue_sum<D>(b->sum, b->w_ds, s->streamed[before][1]);
        wgmma_wait<0>();
        wgmma_fence_operand<D / 2>(b->sum);
        consumer_release(&s->streamed_empty[before]);
        if (!(b->steps.flags & LAST))
            at = skip_steps<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps,
                                                           b->group, true);
    }
}

/* split: the second half of the step is there, and its products are issued. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void issue_second(thread_state<D, KEYS, MODE> *b,
                            backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    pipeline_state half = b->steps.half;
    barrier_wait(&s->second_full[half.index], half.phase);
    issue_pairs<D, false>(
        b->y, b->f[1], s->stationary[b->stationary.index][b->second][b->group],
        second_half(s, at, half.index));
}

/* split: y is there and becomes dS; its half of the step is given back. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void make_second(thread_state<D, KEYS, MODE> *b,
                           backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    wgmma_fence_operand<STEP / 2>(b->y);
    consumer_release(&s->second_empty[b->steps.half.index]);
    compute_ds<KEYS>(b->y, b->x, b->delta, columns_of(s->rows[at].delta, b->t));
    if (b->partial)
        apply_mask(b->y, b->word, b->t);
}

/* Large heads: a single group may have to fill the tensor cores by itself. The
 * sum of a step is issued after the products of the next one and runs while
 * those become dS. */
template <int D, int GROUPS, int STAGES, int KEYS, int MODE>
BT_DEVICE void
loop_large_head(thread_state<D, KEYS, MODE> *b, const backward_params *p,
                backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    while (at >= 0) {
        const uint16_t *stationary =
            s->stationary[b->stationary.index][0][b->group];
        load_words(b, p, s, at);
        issue_pairs<D, false>(b->x, b->f[0], stationary, s->streamed[at][0]);
        issue_second(b, s, at);
        wgmma_wait<1>(); // all but y
        make_weights(b, p, s, at);
        wgmma_wait<0>();
        make_second(b, s, at);
        pack_pairs(b->w_ds, b->y);
        int before = at;
        at = next_step<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps, b->group);
        while (at >= 0) {
            load_words(b, p, s, at);
            issue_pairs<D, false>(b->x, b->f[0], stationary,
                                  s->streamed[at][0]);
            issue_second(b, s, at);
            issue_sum<D>(b->sum, b->w_ds, s->streamed[before][0]);
            wgmma_wait<2>(); // x
            make_weights(b, p, s, at);
            wgmma_wait<1>(); // y
            make_second(b, s, at);
            wgmma_wait<0>();
            wgmma_fence_operand<D / 2>(b->sum);
            consumer_release(&s->streamed_empty[before]);
            pack_pairs(b->w_ds, b->y);
            before = at;
            at = next_step<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps,
                                                          b->group);
        }
        issue_sum<D>(b->sum, b->w_ds, s->streamed[before][0]);
        wgmma_wait<0>();
        wgmma_fence_operand<D / 2>(b->sum);
        consumer_release(&s->streamed_empty[before]);
        if (!(b->steps.flags & LAST))
            at = skip_steps<D, GROUPS, STAGES, KEYS, MODE>(s, &b->steps,
                                                           b->group, true);
    }
}

#endif
