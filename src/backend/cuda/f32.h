/* SPDX-License-Identifier: Apache-2.0 */
/* f32.h - what the kernels of attention_f32.cu are put together from: a warp's
 * row, its sums, and the keys that it sees. */
#ifndef BT_CUDA_F32_H
#define BT_CUDA_F32_H

extern "C" {
#include "backend/cuda/bias.h"
#include "backend/cuda/rows.h"
#include "base/error.h"
}

#include <cuda_runtime.h>
#include <math.h>

enum {
    WARPS = 4,   /* in a block */
    COLUMNS = 8, /* of a lane: 256 / 32 */
    DIM = 32 * COLUMNS
};

typedef struct f32_params {
    bt_row_spans rows;
    const float *q, *k, *v, *out, *lse, *dout;
    float *out_to, *lse_to, *dq, *dk, *dv;
    size_t q_token, q_head, k_token, k_head, v_token, v_head, o_token, o_head;
    size_t page;                      /* decoding: from page to page */
    int page_shift;                   /* a page has 2^page_shift keys */
    int heads, kv_heads, group, d, e; /* e: value_dim */
    float scale;
    bt_cuda_bias bias;
    float *dtable, *dtensor;
} f32_params;

/* Where a warp's row stands. */
typedef struct place {
    int row, head, lane;
    float *q, *dout; /* the warp's, in shared memory */
} place;

static __device__ bool place_of(place *at, float (*memory)[2][DIM], int count,
                                int heads)
{
    int warp = threadIdx.x / 32, index = blockIdx.x * WARPS + warp;
    at->lane = threadIdx.x % 32;
    at->row = index / heads;
    at->head = index % heads;
    at->q = memory[warp][0];
    at->dout = memory[warp][1];
    return at->row < count;
}

static __device__ float warp_sum(float x)
{
    for (int i = 16; i; i /= 2)
        x += __shfl_xor_sync(~0u, x, i);
    return x;
}

static __device__ float warp_max(float x)
{
    for (int i = 16; i; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

static __device__ float dot(const float *a, const float *b, int d)
{
    float sum = 0.0f;
    for (int i = 0; i < d; i++)
        sum = fmaf(a[i], b[i], sum);
    return sum;
}

/* x += weight * row, in the lane's columns. */
static __device__ void add_row(float *x, float weight, const float *row, int d,
                               int lane)
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        if (lane + 32 * i < d)
            x[i] = fmaf(weight, row[lane + 32 * i], x[i]);
}

static __device__ void store_row(float *to, const float *x, float scale, int d,
                                 int lane)
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        if (lane + 32 * i < d)
            to[lane + 32 * i] = x[i] * scale;
}

/* Whether a row sees a key: the first span that ends after it contains it. */
static __device__ bool sees(const bt_row_spans *rows, int row, int key)
{
    int lo = rows->start[row], hi = rows->start[row + 1], end = hi;
    while (lo < hi) {
        int middle = (lo + hi) / 2;
        if (rows->spans[middle].hi > key)
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo < end && rows->spans[lo].lo <= key;
}

/* The next block of 32 keys, from `block` on, of which a row sees something;
 * -1: there is none. *at is the span that was looked at last. */
static __device__ int next_block(const bt_row_spans *rows, int row, int block,
                                 int *at)
{
    int origin = rows->origin[row];
    for (; *at < rows->start[row + 1]; ++*at) {
        bt_cuda_span span = rows->spans[*at];
        if (span.hi > origin + block * 32)
            return max(block, (span.lo - origin) / 32);
    }
    return -1;
}

/* Where a row's key and its value are, from k and v on. */
typedef struct key_place {
    size_t page, token;
} key_place;

static __device__ key_place key_place_of(const f32_params *p, int row, int key)
{
    if (!p->rows.table)
        return key_place{ 0, (size_t)key };
    int page = p->rows.pages[p->rows.table[row] + (key >> p->page_shift)];
    return key_place{ page * p->page,
                      (size_t)key & (((size_t)1 << p->page_shift) - 1) };
}

static __device__ const float *key_row(const f32_params *p, int row, int key,
                                       int head)
{
    key_place at = key_place_of(p, row, key);
    return p->k + at.page + at.token * p->k_token + head / p->group * p->k_head;
}

static __device__ const float *value_row(const f32_params *p, int row, int key,
                                         int head)
{
    key_place at = key_place_of(p, row, key);
    return p->v + at.page + at.token * p->v_token + head / p->group * p->v_head;
}

/* ---- softcap and bias --------------------------------------------------- */

/* The key at distance 0 of a row; of a tensor the key of its first element. */
static __device__ int anchor_of(const f32_params *p, int row)
{
    if (p->bias.last < 0)
        return p->rows.origin[row];
    return p->bias.positions ? p->rows.origin[row] + (int)p->bias.positions[row]
                             : p->rows.anchor[row];
}

/* Where a tensor, or its gradient, has the scores of a row. */
static __device__ size_t tensor_at(const bt_cuda_bias *b, int row, int head)
{
    size_t at = b->tensor_rows ? b->tensor_rows[row] : (uint32_t)row;
    return at * b->row_stride + (size_t)head * b->head_stride;
}

/* What is added to a score of a visible key. */
static __device__ float bias_of(const bt_cuda_bias *b, int row, int head,
                                int distance)
{
    if (b->slopes)
        return b->slopes[head] * (float)distance;
    if (!b->table)
        return 0.0f;
    if (b->last < 0)
        return b->table[tensor_at(b, row, head) + distance];
    int at = min(max(distance - b->first, 0), b->last);
    return b->table[(size_t)at * b->row_stride + head];
}

/* A scaled score with its softcap and bias. *slope: its derivative with respect
 * to what it was. */
static __device__ float biased_score(const f32_params *p, float x, int row,
                                     int head, int distance, float *slope)
{
    float cap = p->bias.softcap;
    *slope = 1.0f;
    if (cap != 0.0f) {
        float t = tanhf(x / cap);
        *slope = fmaf(-t, t, 1.0f);
        x = cap * t;
    }
    return x + bias_of(&p->bias, row, head, distance);
}

/* The weight of a score. All scores of a row may be -infinity, by its bias; its
 * weights are then 0. */
template <int BIAS> static __device__ float weight_of(float x, float lse)
{
    return BIAS && lse == -INFINITY ? 0.0f : expf(x - lse);
}

#endif
