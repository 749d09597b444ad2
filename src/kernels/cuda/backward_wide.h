/* SPDX-License-Identifier: Apache-2.0 */
/* backward_wide.h - how attention_backward_wide.cu goes over the steps of an
 * item. */
#ifndef BT_CUDA_BACKWARD_WIDE_H
#define BT_CUDA_BACKWARD_WIDE_H

#include "kernels/cuda/backward_desk.h"

/* The weights of a step, whose scores are there. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void make_weights(desk<D, KEYS, EXACT> *b,
                            backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    product_hold<STEP / 2>(b->x);
    weigh<KEYS, EXACT>(b->x, b->lse, s->rows[at].lse, b->t, b->scale);
    if (b->partial)
        hide(b->x, b->word, b->t);
}

/* dV alone: a step has its weights and no more, and their sum runs while those
 * of the next step are made. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void sweep_weights(desk<D, KEYS, EXACT> *b, const backward_params *p,
                             backward_shared<D, GROUPS, STAGES, KEYS> *s,
                             int at)
{
    while (at >= 0) {
        const uint16_t *kept = s->kept[b->kept.at][0][b->group];
        load_words(b, p, s, at);
        issue_pairs<D, false>(b->x, b->f[0], kept, s->swept[at][0]);
        product_wait<0>();
        make_weights(b, s, at);
        pack_pairs(b->w_ds, b->x);
        int before = at;
        at = next_step<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps, b->group);
        while (at >= 0) {
            load_words(b, p, s, at);
            issue_pairs<D, false>(b->x, b->f[0], kept, s->swept[at][0]);
            issue_sum<D>(b->sum, b->w_ds, s->swept[before][1]);
            product_wait<1>(); // all but the sum
            make_weights(b, s, at);
            product_wait<0>();
            product_hold<D / 2>(b->sum);
            done_with(&s->swept_empty[before]);
            pack_pairs(b->w_ds, b->x);
            before = at;
            at = next_step<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps,
                                                           b->group);
        }
        issue_sum<D>(b->sum, b->w_ds, s->swept[before][1]);
        product_wait<0>();
        product_hold<D / 2>(b->sum);
        done_with(&s->swept_empty[before]);
        if (!(b->steps.flags & LAST))
            at = skip_steps<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps,
                                                            b->group, true);
    }
}

/* split: the second half of the step is there, and its products are issued. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void issue_second(desk<D, KEYS, EXACT> *b,
                            backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    ring half = b->steps.half;
    barrier_wait(&s->second_full[half.at], half.parity);
    issue_pairs<D, false>(b->y, b->f[1],
                          s->kept[b->kept.at][b->second][b->group],
                          second_half(s, at, half.at));
}

/* split: y is there and becomes dS; its half of the step is given back. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void make_second(desk<D, KEYS, EXACT> *b,
                           backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    product_hold<STEP / 2>(b->y);
    done_with(&s->second_empty[b->steps.half.at]);
    differ<KEYS>(b->y, b->x, b->delta, s->rows[at].delta, b->t);
    if (b->partial)
        hide(b->y, b->word, b->t);
}

/* Wide heads: there may be one group alone, which fills the tensor cores by
 * itself. The sum of a step is issued behind the products of the next one and
 * runs while those become dS. */
template <int D, int GROUPS, int STAGES, int KEYS, int EXACT>
BT_DEVICE void sweep_wide(desk<D, KEYS, EXACT> *b, const backward_params *p,
                          backward_shared<D, GROUPS, STAGES, KEYS> *s, int at)
{
    while (at >= 0) {
        const uint16_t *kept = s->kept[b->kept.at][0][b->group];
        load_words(b, p, s, at);
        issue_pairs<D, false>(b->x, b->f[0], kept, s->swept[at][0]);
        issue_second(b, s, at);
        product_wait<1>(); // all but y
        make_weights(b, s, at);
        product_wait<0>();
        make_second(b, s, at);
        pack_pairs(b->w_ds, b->y);
        int before = at;
        at = next_step<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps, b->group);
        while (at >= 0) {
            load_words(b, p, s, at);
            issue_pairs<D, false>(b->x, b->f[0], kept, s->swept[at][0]);
            issue_second(b, s, at);
            issue_sum<D>(b->sum, b->w_ds, s->swept[before][0]);
            product_wait<2>(); // x
            make_weights(b, s, at);
            product_wait<1>(); // y
            make_second(b, s, at);
            product_wait<0>();
            product_hold<D / 2>(b->sum);
            done_with(&s->swept_empty[before]);
            pack_pairs(b->w_ds, b->y);
            before = at;
            at = next_step<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps,
                                                           b->group);
        }
        issue_sum<D>(b->sum, b->w_ds, s->swept[before][0]);
        product_wait<0>();
        product_hold<D / 2>(b->sum);
        done_with(&s->swept_empty[before]);
        if (!(b->steps.flags & LAST))
            at = skip_steps<D, GROUPS, STAGES, KEYS, EXACT>(s, &b->steps,
                                                            b->group, true);
    }
}

#endif
