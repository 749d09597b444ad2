/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.h - the online softmax of attention_forward.cu, on a thread's share
 * of two rows: of each 8 of KEYS keys, two.
 *
 * Weights are 2^(score - base) in base-2 logarithms, and any base will do that
 * is not far off: weights are float32 and bf16, whose precision is the same
 * from 2^-126 to 2^127. So a row's base is the maximum of the first tile it
 * sees something of, and after that no maximum is sought, which would take as
 * long as half the exponentials. The sum of a tile's weights tells when the
 * base must grow: by its exponent, which is exact, once it is over 4096. Only
 * when a tile's maximum is beyond the base by more than LEAP does the row start
 * from that maximum; that is too late to be seen by a sum, so where a sum is
 * suspicious the tile is noted and the EXACT kernel, which seeks all maxima,
 * does it again. A row decides all this by its own scores. */
#ifndef BT_CUDA_SOFTMAX_H
#define BT_CUDA_SOFTMAX_H

#include "kernels/cuda/hopper.h"

#include <math.h>

#define LEAP 100.0f

/* What the rows of a warp have to say after a tile. */
enum {
    FRESH = 1, /* one has seen nothing yet */
    GROWN = 2, /* the base of one may have to grow */
    ROUGH = 4  /* one may have leapt */
};

/* Scores of hidden keys become -infinity, whatever they were. `word`: bits of a
 * row's keys, the lowest of the first. */
template <int KEYS>
BT_DEVICE void hide_row(float *x, const uint32_t *word, int r, int t)
{
#pragma unroll
    for (int i = 0; i < KEYS / 32; i++) {
        uint32_t mine = word[i] >> (2 * t);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float *at = x + i * 16 + j * 4 + r * 2;
            at[0] = mine & (1u << (8 * j)) ? at[0] : -INFINITY;
            at[1] = mine & (2u << (8 * j)) ? at[1] : -INFINITY;
        }
    }
}

/* Seek the maximum of a tile: what was summed before is multiplied by keep. */
template <int KEYS>
BT_DEVICE void seek_base(const float *x, float *base, float *keep, float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            top[i] = fmaxf(x[i * 4 + r * 2], x[i * 4 + r * 2 + 1]);
#pragma unroll
        for (int i = 4; i < KEYS / 8; i++)
            top[i % 4] = fmaxf(top[i % 4],
                               fmaxf(x[i * 4 + r * 2], x[i * 4 + r * 2 + 1]));
        float all = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
        all = fmaxf(all, __shfl_xor_sync(~0u, all, 1));
        all = fmaxf(all, __shfl_xor_sync(~0u, all, 2)) * scale;
        bool leap = all > base[r] + LEAP; // so it is from -infinity
        keep[r] = leap ? exp2_fast(base[r] - all) : 1.0f;
        base[r] = leap ? all : base[r];
    }
}

/* Scores x become weights, and sum, the thread's own share, grows by total,
 * its share of this tile. Returns a word whose sign bit is 0, as that of every
 * weight is. */
template <int KEYS>
BT_DEVICE uint32_t soften(float *x, const float *base, const float *keep,
                          float *sum, float *total, float scale)
{
    uint32_t done = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        // A row that has seen nothing yet: weights 2^(-inf - 0) = 0.
        float from = base[r] == -INFINITY ? 0.0f : base[r];
        float part[4];
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) {
            float *at = x + i * 4 + r * 2;
            at[0] = exp2_fast(fmaf(at[0], scale, -from));
            at[1] = exp2_fast(fmaf(at[1], scale, -from));
            float two = at[0] + at[1];
            part[i % 4] = i < 4 ? two : part[i % 4] + two;
        }
        total[r] = (part[0] + part[1]) + (part[2] + part[3]);
        sum[r] = fmaf(sum[r], keep[r], total[r]);
        done |= __float_as_uint(part[0]) | __float_as_uint(part[1]) |
                __float_as_uint(part[2]) | __float_as_uint(part[3]);
    }
    return done;
}

/* One of the four threads of a row has a quarter of a sum, or more. (A
 * reduction, not a vote: its answer is in a uniform register, so the branches
 * on it are uniform and the descriptors stay in such ones, too.) */
BT_DEVICE uint32_t survey(const float *base, const float *total)
{
    float more = fmaxf(total[0], total[1]);
    uint32_t note = base[0] == -INFINITY || base[1] == -INFINITY ? FRESH : 0;
    note |= more > 0x1p10f ? GROWN : 0;
    note |= more > 0x1p90f ? ROUGH : 0;
    return __reduce_or_sync(~0u, note);
}

/* The base of a row grows by the exponent of its weights' sum. */
template <int KEYS>
BT_DEVICE void grow_base(float *x, float *base, float *keep, float *sum,
                         const float *total)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float all = total[r];
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        int e = all > 0x1p12f ? (int)(__float_as_uint(all) >> 23) - 127 : 0;
        float down = __uint_as_float((uint32_t)(127 - e) << 23); // 2^-e
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) {
            x[i * 4 + r * 2] *= down;
            x[i * 4 + r * 2 + 1] *= down;
        }
        base[r] += (float)e;
        keep[r] *= down;
        sum[r] *= down;
    }
}

template <int D> BT_DEVICE void rescale(float *o, const float *keep)
{
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] *= keep[i / 2 % 2];
}

template <int KEYS> BT_DEVICE void pack_weights(uint32_t *w, const float *x)
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
}

/* EXACT, passes 1 and 2: weights are 1 where visible. */
template <int KEYS> BT_DEVICE void count_visible(float *x)
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
        x[i] = x[i] == -INFINITY ? 0.0f : 1.0f;
}

#endif
