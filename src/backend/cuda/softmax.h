/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.h - the online softmax of the attention kernels: one order of
 * arithmetic for the forward pass and for decoding.
 *
 * Chunks. A row's keys, counted from its origin, are cut into chunks of
 * BT_CHUNK keys. Each chunk has its own base, sum of weights and output, which
 * start from nothing, and the chunks are merged in order. Inside a chunk keys
 * come in tiles (128, or 64 for heads over 128), also counted from the origin.
 *
 * Base. Weights are 2^(score - base) in base-2 logarithms, and any base will do
 * that is not far off: weights are float32 and bf16, whose precision is the
 * same from 2^-126 to 2^127. So the base of a chunk is a maximum over the head
 * of the first tile that the row sees something of: over its first PROBE_KEYS
 * keys, or over all of it if the row sees none of these. After that no maximum
 * is computed, which would take as long as half the exponentials. The sum of a
 * tile's weights tells when the base must grow: by its exponent, which is
 * exact, once it is over 4096. Only when a tile's maximum is beyond the base by
 * more than BASE_JUMP does the row continue from that maximum. A sum shows that
 * too late, so when a sum is suspicious the forward pass flags the tile, and
 * the FIXUP kernel, which computes all maxima, recomputes it; decoding always
 * computes them, and so do the kernels with a bias, whose scores may grow by
 * much from tile to tile (ALiBi). A row decides all this by its own scores.
 *
 * A thread has a share of two rows: of each 8 of KEYS keys, two. */
#ifndef BT_CUDA_SOFTMAX_H
#define BT_CUDA_SOFTMAX_H

#include "backend/cuda/hopper.h"

#include <math.h>

enum { PROBE_KEYS = 32 }; /* keys of a tile that give the first base */

#define BASE_JUMP 100.0f
#define MERGE_JUMP 16.0f

/* Flags of a warp's rows after a tile. */
enum {
    ROW_EMPTY = 1,    /* one has seen nothing yet */
    BASE_GREW = 2,    /* the base of one may have to grow */
    MAY_OVERFLOW = 4, /* a base may have had to jump */
    BASE_JUMPED = 8   /* with all maxima: one has jumped */
};

/* Scores of hidden keys become -infinity, whatever they were. `word`: bits of a
 * row's keys, the lowest of the first. */
template <int KEYS>
BT_DEVICE void mask_row(float *x, const uint32_t *word, int r, int t)
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

/* The maximum of a row's first KEYS scores, in base-2 logarithms. */
template <int KEYS> BT_DEVICE float row_max(const float *x, int r, float scale)
{
    float top[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        top[i] = fmaxf(x[i * 4 + r * 2], x[i * 4 + r * 2 + 1]);
#pragma unroll
    for (int i = 4; i < KEYS / 8; i++)
        top[i % 4] =
            fmaxf(top[i % 4], fmaxf(x[i * 4 + r * 2], x[i * 4 + r * 2 + 1]));
    float all = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
    all = fmaxf(all, __shfl_xor_sync(~0u, all, 1));
    all = fmaxf(all, __shfl_xor_sync(~0u, all, 2));
    return __fmul_rn(all, scale);
}

/* The first base of rows that have seen nothing in their chunk yet. */
template <int KEYS>
BT_DEVICE void find_base(const float *x, float *base, float scale)
{
    bool lost = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float head = row_max<PROBE_KEYS>(x, r, scale);
        base[r] = base[r] == -INFINITY ? head : base[r];
        lost |= base[r] == -INFINITY;
    }
    if (__reduce_or_sync(~0u, lost))
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = row_max<KEYS>(x, r, scale);
            base[r] = base[r] == -INFINITY ? top : base[r];
        }
}

/* Update a row's base for the maximum of its next tile (`head`: of the first
 * PROBE_KEYS keys): it gets its first base, or jumps. Previous sums are to be
 * multiplied by the result. */
BT_DEVICE float update_base(float *base, float head, float top)
{
    if (*base == -INFINITY)
        *base = head == -INFINITY ? top : head;
    if (!(top > *base + BASE_JUMP))
        return 1.0f;
    float correction = exp2_fast(*base - top);
    *base = top;
    return correction;
}

/* The same with all maxima; what was summed before is multiplied by
 * the corrections. */
template <int KEYS>
BT_DEVICE void find_base_exact(const float *x, float *base, float *correction,
                               float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
        correction[r] = update_base(&base[r], row_max<PROBE_KEYS>(x, r, scale),
                                    row_max<KEYS>(x, r, scale));
}

/* EXACT: with all maxima. */
template <int KEYS, int EXACT>
BT_DEVICE void update_bases(const float *x, float *base, float *correction,
                            float scale)
{
    if (EXACT)
        find_base_exact<KEYS>(x, base, correction, scale);
    else
        find_base<KEYS>(x, base, scale);
}

/* Scores x become weights, and sum, the thread's own share, grows by total,
 * its share of this tile. Returns a word whose sign bit is 0, as that of every
 * weight is. */
template <int KEYS>
BT_DEVICE uint32_t exponentiate(float *x, const float *base,
                                const float *correction, float *sum,
                                float *total, float scale)
{
    uint32_t dependency = 0;
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
        sum[r] = fmaf(sum[r], correction[r], total[r]);
        dependency |= __float_as_uint(part[0]) | __float_as_uint(part[1]) |
                      __float_as_uint(part[2]) | __float_as_uint(part[3]);
    }
    return dependency;
}

/* One of the four threads of a row has a quarter of a sum, or more. (A
 * reduction, not a vote: its answer is in a uniform register, so the branches
 * on it are uniform and the descriptors stay in such ones, too.) */
BT_DEVICE uint32_t check_rows(const float *base, const float *total)
{
    float more = fmaxf(total[0], total[1]);
    uint32_t row_flags =
        base[0] == -INFINITY || base[1] == -INFINITY ? ROW_EMPTY : 0;
    row_flags |= more > 0x1p10f ? BASE_GREW : 0;
    row_flags |= more > 0x1p90f ? MAY_OVERFLOW : 0;
    return __reduce_or_sync(~0u, row_flags);
}

/* BASE_JUMPED, if a base of the warp's rows has. */
BT_DEVICE uint32_t check_jumps(const float *correction)
{
    bool jumped = correction[0] != 1.0f || correction[1] != 1.0f;
    return __reduce_or_sync(~0u, jumped ? BASE_JUMPED : 0u);
}

/* By how much the base of a row grows whose weights in a tile sum to `all`; and
 * 2^-e. */
BT_DEVICE int base_growth(float all)
{
    return all > 0x1p12f ? (int)(__float_as_uint(all) >> 23) - 127 : 0;
}

BT_DEVICE float exp2_neg(int e)
{
    return __uint_as_float((uint32_t)(127 - e) << 23);
}

/* The four threads of a row, each with its share of a sum. */
BT_DEVICE float row_sum(float share)
{
    share = __fadd_rn(share, __shfl_xor_sync(~0u, share, 1));
    return __fadd_rn(share, __shfl_xor_sync(~0u, share, 2));
}

/* The base of a row grows by the exponent of its weights' sum. */
template <int KEYS>
BT_DEVICE void grow_base(float *x, float *base, float *correction, float *sum,
                         const float *total)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int e = base_growth(row_sum(total[r]));
        float down = exp2_neg(e);
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) {
            x[i * 4 + r * 2] *= down;
            x[i * 4 + r * 2 + 1] *= down;
        }
        base[r] += (float)e;
        correction[r] *= down;
        sum[r] *= down;
    }
}

/* `again`: they start again from 0. */
template <int D>
BT_DEVICE void rescale(float *o, const float *correction, bool again)
{
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] = again ? 0.0f : o[i] * correction[i / 2 % 2];
}

template <int KEYS> BT_DEVICE void pack_weights(uint32_t *w, const float *x)
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
}

/* FIXUP, passes 1 and 2: weights are 1 where visible. */
template <int KEYS> BT_DEVICE void count_visible(float *x)
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
        x[i] = x[i] == -INFINITY ? 0.0f : 1.0f;
}

/* ---- chunks ------------------------------------------------------------- */

/* How a row's next chunk joins what the chunks before came to: as
 * total * correction + chunk * take. One of the two is always 1. */
typedef struct merge {
    float correction, take;
} merge;

/* The base stays, unless the chunk's is far beyond. A chunk of which the row
 * sees nothing has the base -infinity and is taken times 0. */
BT_DEVICE merge merge_of(float *base, float chunk)
{
    merge m = { 1.0f, 1.0f };
    if (*base == -INFINITY) {
        *base = chunk;
    } else if (chunk > *base + MERGE_JUMP) {
        m.correction = exp2_fast(*base - chunk);
        *base = chunk;
    } else {
        m.take = exp2_fast(chunk - *base);
    }
    return m;
}

BT_DEVICE float merge_add(float total, float chunk, merge m)
{
    return __fmaf_rn(chunk, m.take, __fmul_rn(total, m.correction));
}

/* The same where an operand may not be finite: a sum of the largest values, or
 * of values of which one is infinite. That stays what it is, for the factor may
 * be 0, and 0 times infinity is NaN. */
BT_DEVICE float merge_nonfinite(float total, float chunk, merge m)
{
    bool before = fabsf(total) < INFINITY, now = fabsf(chunk) < INFINITY;
    return before && now ? merge_add(total, chunk, m)
                         : __fadd_rn(before ? 0.0f : total, now ? 0.0f : chunk);
}

/* The factor of a row's output, and its log-sum-exp. A sum that is NaN is not
 * empty. */
BT_DEVICE float inverse_sum(float base, float sum)
{
    bool empty = base == -INFINITY && sum == 0.0f;
    return empty ? 0.0f : __fdividef(1.0f, sum);
}

/* The same for decoding. BIAS: all scores of a row may be -infinity; its output
 * is then 0 and what is not finite of the values that it sees. */
template <int BIAS> BT_DEVICE float inverse_seen(float base, float sum)
{
    bool empty = base == -INFINITY && sum == 0.0f;
    return BIAS && empty ? 1.0f : inverse_sum(base, sum);
}

BT_DEVICE float lse_of(float base, float sum)
{
    bool empty = base == -INFINITY && sum == 0.0f;
    return empty ? -INFINITY
                 : __fmul_rn(__fadd_rn(base, __log2f(sum)),
                             0.693147180559945309f);
}

/* Two columns of an output. The fma turns -0 into 0, so that no sign tells what
 * a hidden value's was. */
BT_DEVICE uint32_t pack_output(float a, float b, float inverse)
{
    return pack_bf16(__fmaf_rn(a, inverse, 0.0f), __fmaf_rn(b, inverse, 0.0f));
}

#endif
