/* SPDX-License-Identifier: Apache-2.0 */
/* forward_step.h - what attention_forward.cu does with one tile of keys: its
 * products, what is hidden of it, and the cleaning of its values. */
#ifndef BT_CUDA_FORWARD_STEP_H
#define BT_CUDA_FORWARD_STEP_H

#include "backend/cuda/forward.h"
#include "backend/cuda/softmax.h"

/* x (64 rows, keys) = q k^T, issued. */
template <int D>
BT_DEVICE void issue_scores(float *x, const uint16_t *q, const uint16_t *k)
{
    uint64_t a = tile_descriptor(q, 16), b = tile_descriptor(k, 16);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        // 16 columns are 32 bytes; four such steps are a panel.
        uint64_t q_step =
            i / 4 * (kernel_traits<D>::rows * PANEL * 2 >> 4) + i % 4 * 2;
        uint64_t k_step =
            i / 4 * (kernel_traits<D>::keys * PANEL * 2 >> 4) + i % 4 * 2;
        if (kernel_traits<D>::keys == 128)
            wgmma_ss_128(x, a + q_step, b + k_step, i > 0);
        else
            wgmma_ss_64(x, a + q_step, b + k_step, i > 0);
    }
    wgmma_commit();
}

/* o (64 rows, D) += w v over 16-key steps FROM to TO of a tile, issued. */
template <int D, int FROM, int TO>
BT_DEVICE void issue_value_steps(float *o, const uint32_t *w, uint64_t v)
{
    const uint64_t panel = kernel_traits<D>::keys * PANEL * 2 >> 4;
    wgmma_fence();
#pragma unroll
    for (int i = FROM; i < TO; i++) {
        uint64_t step = i * (16 * PANEL * 2 >> 4);
        if (D == 64)
            wgmma_pv_64(o, w + i * 4, v + step);
        else
            wgmma_pv_128(o, w + i * 4, v + step);
        if (D == 192)
            wgmma_pv_64(o + 64, w + i * 4, v + 2 * panel + step);
        if (D == 256)
            wgmma_pv_128(o + 64, w + i * 4, v + 2 * panel + step);
    }
    wgmma_commit();
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
    const int steps = kernel_traits<D>::keys / 16;
    uint64_t v = tile_descriptor(tile, kernel_traits<D>::keys * PANEL * 2);
    if (D == 128 && (halves & BOTH) == FIRST)
        issue_value_steps<D, 0, steps / 2>(o, w, v);
    else if (D == 128 && (halves & BOTH) == SECOND)
        issue_value_steps<D, steps / 2, steps>(o, w, v);
    else
        issue_value_steps<D, 0, steps>(o, w, v);
}

/* Apply a tile's mask. `half`: which one of the pair, for large heads. */
template <int D>
BT_DEVICE void apply_mask(float *x, const uint4 *bits, int half, int row, int t)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (kernel_traits<D>::large_head) {
            uint2 two = ((const uint2 *)bits)[(row + r * 8) * 2 + half];
            uint32_t word[2] = { two.x, two.y };
            mask_row<64>(x, word, r, t);
        } else {
            uint4 four = bits[row + r * 8];
            uint32_t word[4] = { four.x, four.y, four.z, four.w };
            mask_row<PAIR>(x, word, r, t);
        }
    }
}

/* FIXUP: what the passes make of two bf16 values. */
BT_DEVICE uint32_t filter_pair(uint32_t two, int pass)
{
    uint32_t filtered = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t value = two >> (16 * i) & 0xffff;
        bool finite = (value & 0x7f80) != 0x7f80;
        bool nan = !finite && (value & 0x7f) != 0;
        bool hit = nan || value == (pass == 1 ? 0x7f80 : 0xff80);
        uint32_t one = pass == 0 ? (finite ? value : 0) : (hit ? 0x3f80 : 0);
        filtered |= one << (16 * i);
    }
    return filtered;
}

/* FIXUP: all computing groups together clean a tile of values in place. */
template <int D> BT_DEVICE void filter_values(uint16_t *v, int pass)
{
    const int threads = kernel_traits<D>::groups * GROUP;
    uint32_t *words = (uint32_t *)v;
    for (int i = threadIdx.x - GROUP; i < kernel_traits<D>::keys * D / 2;
         i += threads)
        words[i] = filter_pair(words[i], pass);
    fence_proxy_async();
    named_sync(BARRIER_FILTER, threads);
}

/* Wait for the item at q: how many tiles of keys it has, or 0: there is none.
 */
template <int D> BT_DEVICE int next_item(forward_shared<D> *s, pipeline_state q)
{
    barrier_wait(&s->q_full[q.index], q.phase);
    return s->item[q.index].item < 0 ? 0 : s->item[q.index].tiles;
}

/* How many of an item's last pairs the group passes over. It holds the values
 * of the pair before them meanwhile: the others must not need that stage. */
template <int D, int FIXUP>
BT_DEVICE int hidden_of(const forward_shared<D> *s, int stage, int group)
{
    if (!kernel_traits<D>::passes || FIXUP)
        return 0;
    return min(s->item[stage].hidden >> 8 * group & 0xff,
               kernel_traits<D>::stages - 1);
}

/* BIAS: what the scores of the thread's rows of an item need. */
typedef struct item_bias {
    head_bias head[2];
    int anchor[2];
    const float *tensor[2]; /* the rows' part of it */
} item_bias;

template <int D, int BIAS>
BT_DEVICE void load_item_bias(item_bias *to, const forward_params *p,
                              const forward_shared<D> *s, int stage, int row)
{
    if (!BIAS)
        return;
    const work *item = &s->item[stage];
    if (BIAS == BT_BIAS_TENSOR) {
#pragma unroll
        for (int r = 0; r < 2; r++)
            to->tensor[r] = tensor_row_of(
                &p->bias, item->row + min(row + r * 8, item->rows - 1),
                item->head);
        return;
    }
    to->head[0] = to->head[1] = head_bias_of(&p->bias, item->head);
#pragma unroll
    for (int r = 0; r < 2; r++)
        to->anchor[r] =
            anchor_of(&p->bias, item->row + min(row + r * 8, item->rows - 1));
}

/* The keys 32 i to 32 i + 31 of a tile that a row sees, one bit each. */
template <int D>
BT_DEVICE uint32_t tile_word(const forward_shared<D> *s, int stage, int row,
                             int i)
{
    int half = s->tile_info[stage].halves; // or the tile is full
    const uint32_t *words = (const uint32_t *)(s->bits[stage] + row);
    if (kernel_traits<D>::large_head)
        words += half * 2;
    return half < 0 ? ~0u : words[i];
}

/* BIAS: products become scores in base-2 logarithms, whose scale is 1. */
template <int D, int BIAS>
BT_DEVICE void bias_tile(const item_bias *item, const forward_params *p,
                         const forward_shared<D> *s, int stage, int row,
                         float *x)
{
    if (!BIAS)
        return;
    int first = s->tile_key[stage] + threadIdx.x % 4 * 2;
    if (BIAS == BT_BIAS_TENSOR) {
        const float *at[2] = { item->tensor[0] + first,
                               item->tensor[1] + first };
        tensor_scores<kernel_traits<D>::keys / 2, 2>(
            &p->bias, at, x, [&](int i) { return i / 4 * 8 + i % 2; },
            [&](int i) {
                return tile_word<D>(s, stage, row + i / 2 % 2 * 8, i / 16) >>
                       (i / 4 % 4 * 8 + threadIdx.x % 4 * 2 + i % 2);
            });
        return;
    }
    int from[2] = { first - item->anchor[0], first - item->anchor[1] };
    bias_scores<kernel_traits<D>::keys / 2, 2>(
        &p->bias, item->head, x,
        [&](int i) { return from[i / 2 % 2] + i / 4 * 8 + i % 2; });
}

template <int BIAS> BT_DEVICE float scale_of(const forward_params *p)
{
    return BIAS ? 1.0f : p->scale;
}

/* Hide what is hidden of a tile's scores, and release its buffer. Returns
 * which halves the group sees, and CHUNK_START. */
template <int D, int FIXUP>
BT_DEVICE int mask_scores(forward_shared<D> *s, int stage, int group, int row,
                          int pass, float *x)
{
    int halves = s->tile_info[stage].halves;
    int chunk_start =
        s->tile_info[stage].chunk_start && !(FIXUP && pass) ? CHUNK_START : 0;
    if (FIXUP && pass)
#pragma unroll
        for (int i = 0; i < kernel_traits<D>::keys / 2; i++)
            x[i] = 0.0f;
    // The buffer is released in each branch, not after them: the compiler
    // would move that down, past the exponentials.
    if (halves >= 0) {
        apply_mask<D>(x, s->bits[stage], halves, row, threadIdx.x % 4);
        consumer_release(&s->k_empty[stage]);
    } else {
        consumer_release(&s->k_empty[stage]);
    }
    if (FIXUP && pass)
        count_visible<kernel_traits<D>::keys>(x);
    if (D == 128)
        chunk_start |= halves >> 2 * group & BOTH;
    else
        chunk_start |= BOTH;
    // A reduction, not a vote or a shuffle: its answer is in a uniform
    // register, so the branches on it are uniform.
    return (int)__reduce_or_sync(~0u, chunk_start);
}

#endif
