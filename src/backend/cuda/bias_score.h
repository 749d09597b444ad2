/* SPDX-License-Identifier: Apache-2.0 */
/* bias_score.h - softcap and bias of scores in the bfloat16 kernels.
 *
 * A product x of a query and a key becomes a score in base-2 logarithms:
 *
 *     z = x * scale                          without a softcap, or
 *     z = cap * tanh(x * tanh_scale / 2)     in base 2, too
 *     z = z + slope * distance  or  z = z + log2(e) * table[distance]
 *                               or  z = z + log2(e) * tensor[row][key]
 *
 * All kernels compute it by these functions, whose operations are explicit, so
 * it has the same bits in the forward pass, in decoding and in the backward
 * pass. */
#ifndef BT_CUDA_BIAS_SCORE_H
#define BT_CUDA_BIAS_SCORE_H

extern "C" {
#include "backend/cuda/bias.h"
}
#include "backend/cuda/hopper.h"

#include <math.h>

/* A head's bias. */
typedef struct head_bias {
    float slope;        /* in base 2; 0: none */
    const float *table; /* NULL: none */
} head_bias;

BT_DEVICE bool is_tensor(const bt_cuda_bias *b)
{
    return b->last < 0;
}

BT_DEVICE head_bias head_bias_of(const bt_cuda_bias *b, int head)
{
    head_bias h = { 0.0f, NULL };
    if (b->slopes)
        h.slope = __fmul_rn(__ldg(b->slopes + head), 1.44269504088896341f);
    if (b->table)
        h.table = b->table + (size_t)head * (int)b->head_stride;
    return h;
}

/* The part of a tensor that has the scores of a row: element j is of key j. */
BT_DEVICE const float *tensor_row_of(const bt_cuda_bias *b, int row, int head)
{
    long long at =
        b->offsets ? __ldg(b->offsets + row)
                   : (long long)(b->tensor_rows ? __ldg(b->tensor_rows + row)
                                                : (uint32_t)row) *
                         b->row_stride;
    return b->table + at + (size_t)head * b->head_stride;
}

/* The key at distance 0 of a row, where distances matter. */
BT_DEVICE int anchor_of(const bt_cuda_bias *b, int row)
{
    return b->anchors ? __ldg(b->anchors + row) : 0;
}

/* An element that is read only if it is visible. Not by an if, of which the
 * compiler may make a load and a choice. */
BT_DEVICE float load_visible(const float *at, uint32_t visible)
{
    float x = 0.0f;
    asm("{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %2, 0;\n"
        "@p ld.global.nc.f32 %0, [%1];\n"
        "}"
        : "+f"(x)
        : "l"(at), "r"(visible));
    return x;
}

/* tanh(y / (2 log2(e))): within 2^-21 of it, and exact for infinities. */
BT_DEVICE float tanh_fast(float y)
{
    float e = exp2_fast(y), inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(__fadd_rn(e, 1.0f)));
    return __fmaf_rn(-2.0f, inverse, 1.0f);
}

/* The bias of a table for a distance. */
BT_DEVICE float table_bias(const bt_cuda_bias *b, head_bias h, int distance)
{
    int row = min(max(distance - b->first, 0), b->last);
    return __ldg(h.table + (size_t)row * (int)b->row_stride);
}

/* COUNT products of a thread's rows become scores without a bias: number i is
 * of row i / 2 % 2, of which the first ROWS are there. */
template <int COUNT, int ROWS>
BT_DEVICE void cap_scores(const bt_cuda_bias *b, float *x)
{
    if (b->cap == 0.0f) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i / 2 % 2 < ROWS)
                x[i] = __fmul_rn(x[i], b->scale);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i / 2 % 2 < ROWS)
                x[i] = __fmul_rn(b->cap,
                                 tanh_fast(__fmul_rn(x[i], b->tanh_scale)));
    }
}

/* With a bias by distance: `distance`(i) is that of a product's key. Which
 * terms there are is decided once for all of them. */
template <int COUNT, int ROWS, class DISTANCE>
BT_DEVICE void bias_scores(const bt_cuda_bias *b, const head_bias *h, float *x,
                           DISTANCE distance)
{
    const float log2_e = 1.44269504088896341f;
    cap_scores<COUNT, ROWS>(b, x);
    if (b->slopes) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i / 2 % 2 < ROWS)
                x[i] = __fmaf_rn(h[i / 2 % 2].slope, (float)distance(i), x[i]);
    } else if (b->table) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i / 2 % 2 < ROWS)
                x[i] = __fmaf_rn(table_bias(b, h[i / 2 % 2], distance(i)),
                                 log2_e, x[i]);
    }
}

/* With a tensor: `key`(i) is a product's key, counted from where `at` points to
 * in the part of the tensor that is the row's, and bit 0 of `visible`(i) says
 * whether the row sees it. The scores of others are of no meaning. */
template <int COUNT, int ROWS, class KEY, class VISIBLE>
BT_DEVICE void tensor_scores(const bt_cuda_bias *b, const float *const *at,
                             float *x, KEY key, VISIBLE visible)
{
    const float log2_e = 1.44269504088896341f;
    cap_scores<COUNT, ROWS>(b, x);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (i / 2 % 2 < ROWS)
            x[i] =
                __fmaf_rn(load_visible(at[i / 2 % 2] + key(i), visible(i) & 1),
                          log2_e, x[i]);
}

#endif
