/* SPDX-License-Identifier: Apache-2.0 */
/* forward_step.h - what attention_forward.cu does with one tile of keys: its
 * products, what is hidden of it, and the cleaning of its values. */
#ifndef BT_CUDA_FORWARD_STEP_H
#define BT_CUDA_FORWARD_STEP_H

#include "kernels/cuda/forward.h"
#include "kernels/cuda/softmax.h"

/* x (64 rows, keys) = q k^T, issued. */
template <int D>
BT_DEVICE void issue_scores(float *x, const uint16_t *q, const uint16_t *k)
{
    uint64_t a = tile_descriptor(q, 16), b = tile_descriptor(k, 16);
    product_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        // 16 columns are 32 bytes; four such steps are a panel.
        uint64_t q_step = i / 4 * (kind<D>::rows * PANEL * 2 >> 4) + i % 4 * 2;
        uint64_t k_step = i / 4 * (kind<D>::keys * PANEL * 2 >> 4) + i % 4 * 2;
        if (kind<D>::keys == 128)
            product_qk(x, a + q_step, b + k_step, i > 0);
        else
            product_ss_64(x, a + q_step, b + k_step, i > 0);
    }
    product_commit();
}

/* o (64 rows, D) += w v over 16-key steps FROM to TO of a tile, issued. */
template <int D, int FROM, int TO>
BT_DEVICE void issue_value_steps(float *o, const uint32_t *w, uint64_t v)
{
    const uint64_t panel = kind<D>::keys * PANEL * 2 >> 4;
    product_fence();
#pragma unroll
    for (int i = FROM; i < TO; i++) {
        uint64_t step = i * (16 * PANEL * 2 >> 4);
        if (D == 64)
            product_pv_64(o, w + i * 4, v + step);
        else
            product_pv_128(o, w + i * 4, v + step);
        if (D == 192)
            product_pv_64(o + 64, w + i * 4, v + 2 * panel + step);
        if (D == 256)
            product_pv_128(o + 64, w + i * 4, v + 2 * panel + step);
    }
    product_commit();
}

/* `halves`: what the group sees of a pair. The weights of the other half are 0,
 * and it is not multiplied. (The compiler lets products run on beside branches
 * only if each branch has its own fence, some product and its own commit; and
 * with the scores, of which a half would also do, it runs out of registers.
 * With heads of 64 the saving is less than the branch.) */
template <int D>
BT_DEVICE void issue_values(float *o, const uint32_t *w, const uint16_t *tile,
                            int halves)
{
    const int steps = kind<D>::keys / 16;
    uint64_t v = tile_descriptor(tile, kind<D>::keys * PANEL * 2);
    if (D == 128 && (halves & BOTH) == FIRST)
        issue_value_steps<D, 0, steps / 2>(o, w, v);
    else if (D == 128 && (halves & BOTH) == SECOND)
        issue_value_steps<D, steps / 2, steps>(o, w, v);
    else
        issue_value_steps<D, 0, steps>(o, w, v);
}

/* Hide what a tile's bits hide. `half`: which one of the pair, for wide heads.
 */
template <int D>
BT_DEVICE void hide(float *x, const uint4 *bits, int half, int row, int t)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (kind<D>::wide) {
            uint2 two = ((const uint2 *)bits)[(row + r * 8) * 2 + half];
            uint32_t word[2] = { two.x, two.y };
            hide_row<64>(x, word, r, t);
        } else {
            uint4 four = bits[row + r * 8];
            uint32_t word[4] = { four.x, four.y, four.z, four.w };
            hide_row<PAIR>(x, word, r, t);
        }
    }
}

/* EXACT: what the passes make of two bf16 values. */
BT_DEVICE uint32_t clean_two(uint32_t two, int pass)
{
    uint32_t clean = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t value = two >> (16 * i) & 0xffff;
        bool finite = (value & 0x7f80) != 0x7f80;
        bool nan = !finite && (value & 0x7f) != 0;
        bool hit = nan || value == (pass == 1 ? 0x7f80 : 0xff80);
        uint32_t one = pass == 0 ? (finite ? value : 0) : (hit ? 0x3f80 : 0);
        clean |= one << (16 * i);
    }
    return clean;
}

/* EXACT: all computing groups together clean a tile of values in place. */
template <int D> BT_DEVICE void clean_values(uint16_t *v, int pass)
{
    const int threads = kind<D>::groups * GROUP;
    uint32_t *words = (uint32_t *)v;
    for (int i = threadIdx.x - GROUP; i < kind<D>::keys * D / 2; i += threads)
        words[i] = clean_two(words[i], pass);
    fence_async();
    named_sync(BARRIER_CLEAN, threads);
}

/* Wait for the item at q: how many tiles of keys it has, or 0: there is none.
 */
template <int D> BT_DEVICE int next_item(forward_shared<D> *s, ring q)
{
    barrier_wait(&s->q_full[q.at], q.parity);
    return s->item[q.at].item < 0 ? 0 : s->item[q.at].tiles;
}

/* Hide what is hidden of a tile's scores, and give its buffer back. Returns
 * which halves the group sees, and BEGINS. */
template <int D, int EXACT>
BT_DEVICE int look(forward_shared<D> *s, int stage, int group, int row,
                   int pass, float *x)
{
    int halves = s->note[stage].halves;
    int begins = s->note[stage].begins && !(EXACT && pass) ? BEGINS : 0;
    if (EXACT && pass)
#pragma unroll
        for (int i = 0; i < kind<D>::keys / 2; i++)
            x[i] = 0.0f;
    // The buffer is given back in each branch, not behind them: the compiler
    // would move that down, past the exponentials.
    if (halves >= 0) {
        hide<D>(x, s->bits[stage], halves, row, threadIdx.x % 4);
        done_with(&s->k_empty[stage]);
    } else {
        done_with(&s->k_empty[stage]);
    }
    if (EXACT && pass)
        count_visible<kind<D>::keys>(x);
    if (D == 128)
        begins |= halves >> 2 * group & BOTH;
    else
        begins |= BOTH;
    // A reduction, not a vote or a shuffle: its answer is in a uniform
    // register, so the branches on it are uniform.
    return (int)__reduce_or_sync(~0u, begins);
}

#endif
