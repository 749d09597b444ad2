/* SPDX-License-Identifier: Apache-2.0 */
/* attention_f32.cu - masked attention in float32 on a GPU, plain.
 *
 * For tests and small models: any mask, any head size up to 256, forward and
 * backward, and nothing that would make it fast. A warp does one row:
 *
 *   forward, dq   one query of one head. Its keys come in blocks of 32, counted
 *                 from the row's origin; a lane has the score of one key, then
 *                 every 32nd column of the sums.
 *   dk, dv        one key of one key head, over the queries that see it, in
 *                 order, and their heads. A lane has every 32nd column.
 *   dtable        one distance of one head, by a block: a thread takes every
 *                 256th row, and its sum is that of the row's keys in order.
 *   dtensor       one column, counted from the origin, of one head or of all,
 *                 if they share it: heads and their rows in order.
 *
 * A row's bits depend on the row alone. What is hidden is not read: a lane
 * whose key is hidden has the score -infinity, and sums are over the lanes that
 * have something. */
#include "backend/cuda/f32.h"
#include "backend/cuda/launch.h"

template <int BIAS>
static __global__ void __launch_bounds__(WARPS * 32) forward_f32(f32_params p)
{
    __shared__ float memory[WARPS][2][DIM];
    place at;
    if (!place_of(&at, memory, p.rows.count, p.heads))
        return; // a whole warp, and warps do not wait for each other
    const float *q = p.q + at.row * p.q_token + at.head * p.q_head;
    float base = -INFINITY, sum = 0.0f, o[COLUMNS] = {}, slope;
    int span = p.rows.start[at.row], origin = p.rows.origin[at.row];
    int anchor = BIAS ? anchor_of(&p, at.row) : 0;
    for (int i = at.lane; i < p.d; i += 32)
        at.q[i] = q[i];
    __syncwarp();

    for (int b = 0; (b = next_block(&p.rows, at.row, b, &span)) >= 0; b++) {
        int first = origin + b * 32, key = first + at.lane;
        bool visible = sees(&p.rows, at.row, key);
        float x = visible ? dot(at.q, key_row(&p, at.row, key, at.head), p.d) *
                                p.scale
                          : -INFINITY;
        if (BIAS && visible)
            x = biased_score(&p, x, at.row, at.head, key - anchor, &slope);
        float top = fmaxf(base, warp_max(x));
        float from = top == -INFINITY ? 0.0f : top; // all scores are NaN
        float keep = expf(base - from), w = visible ? expf(x - from) : 0.0f;
        base = top;
        sum = fmaf(sum, keep, warp_sum(w));
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            o[i] *= keep;
        for (uint32_t left = __ballot_sync(~0u, visible); left;
             left &= left - 1) {
            int t = __ffs((int)left) - 1;
            add_row(o, __shfl_sync(~0u, w, t),
                    value_row(&p, at.row, first + t, at.head), p.e, at.lane);
        }
    }
    bool empty = p.rows.start[at.row] == p.rows.start[at.row + 1] ||
                 (BIAS && sum == 0.0f);
    store_row(p.out_to + at.row * p.o_token + at.head * p.o_head, o,
              empty ? 0.0f : 1.0f / sum, p.e, at.lane);
    if (p.lse_to && at.lane == 0)
        p.lse_to[(size_t)at.row * p.heads + at.head] =
            empty ? -INFINITY : base + logf(sum);
}

/* The sum of dout * out over a row's columns. */
static __device__ float row_delta(const f32_params *p, int row, int head,
                                  int lane)
{
    size_t at = row * p->o_token + head * p->o_head;
    float sum = 0.0f;
    for (int i = lane; i < p->e; i += 32)
        sum = fmaf(p->dout[at + i], p->out[at + i], sum);
    return warp_sum(sum);
}

template <int BIAS>
static __global__ void __launch_bounds__(WARPS * 32)
    backward_q_f32(f32_params p)
{
    __shared__ float memory[WARPS][2][DIM];
    place at;
    if (!place_of(&at, memory, p.rows.count, p.heads))
        return;
    const float *q = p.q + at.row * p.q_token + at.head * p.q_head;
    const float *dout = p.dout + at.row * p.o_token + at.head * p.o_head;
    float lse = p.lse[(size_t)at.row * p.heads + at.head], dq[COLUMNS] = {};
    float delta = row_delta(&p, at.row, at.head, at.lane);
    int span = p.rows.start[at.row], origin = p.rows.origin[at.row];
    int anchor = BIAS ? anchor_of(&p, at.row) : 0;
    for (int i = at.lane; i < p.d; i += 32)
        at.q[i] = q[i];
    for (int i = at.lane; i < p.e; i += 32)
        at.dout[i] = dout[i];
    __syncwarp();

    for (int b = 0; (b = next_block(&p.rows, at.row, b, &span)) >= 0; b++) {
        int first = origin + b * 32, key = first + at.lane;
        bool visible = sees(&p.rows, at.row, key);
        float ds = 0.0f;
        if (visible) {
            float x =
                dot(at.q, key_row(&p, at.row, key, at.head), p.d) * p.scale;
            float dw = dot(at.dout, value_row(&p, at.row, key, at.head), p.e);
            float slope = 1.0f;
            if (BIAS)
                x = biased_score(&p, x, at.row, at.head, key - anchor, &slope);
            ds = weight_of<BIAS>(x, lse) * (dw - delta) * slope;
        }
        for (uint32_t left = __ballot_sync(~0u, visible); left;
             left &= left - 1) {
            int t = __ffs((int)left) - 1;
            add_row(dq, __shfl_sync(~0u, ds, t),
                    key_row(&p, at.row, first + t, at.head), p.d, at.lane);
        }
    }
    store_row(p.dq + at.row * p.q_token + at.head * p.q_head, dq, p.scale, p.d,
              at.lane);
}

/* One query head of one query, for a key whose row and value the warp holds. */
template <int BIAS>
static __device__ void add_query(const f32_params *p, const place *key, int row,
                                 int head, float *dk, float *dv)
{
    const float *q = p->q + row * p->q_token + head * p->q_head;
    const float *dout = p->dout + row * p->o_token + head * p->o_head;
    float x = 0.0f, dw = 0.0f;
    for (int i = key->lane; i < p->d; i += 32)
        x = fmaf(q[i], key->q[i], x);
    for (int i = key->lane; i < p->e; i += 32)
        dw = fmaf(dout[i], key->dout[i], dw);
    float slope = 1.0f, score = warp_sum(x) * p->scale;
    if (BIAS)
        score = biased_score(p, score, row, head, key->row - anchor_of(p, row),
                             &slope);
    float w = weight_of<BIAS>(score, p->lse[row * p->heads + head]);
    float ds = w * (warp_sum(dw) - row_delta(p, row, head, key->lane)) * slope;
    add_row(dv, w, dout, p->e, key->lane);
    add_row(dk, ds, q, p->d, key->lane);
}

template <int BIAS>
static __global__ void __launch_bounds__(WARPS * 32)
    backward_kv_f32(f32_params p)
{
    __shared__ float memory[WARPS][2][DIM];
    place at; // row is the key, head the key head, q and dout its k and v
    if (!place_of(&at, memory, p.rows.keys, p.kv_heads))
        return;
    size_t k_at = at.row * p.k_token + at.head * p.k_head;
    size_t v_at = at.row * p.v_token + at.head * p.v_head;
    float dk[COLUMNS] = {}, dv[COLUMNS] = {};
    bool loaded = false;
    for (int first = 0; first < p.rows.count; first += 32) {
        int row = first + at.lane;
        bool visible = row < p.rows.count && sees(&p.rows, row, at.row);
        uint32_t left = __ballot_sync(~0u, visible);
        if (left && !loaded) { // a key that nobody sees is not read
            for (int i = at.lane; i < p.d; i += 32)
                at.q[i] = p.k[k_at + i];
            for (int i = at.lane; i < p.e; i += 32)
                at.dout[i] = p.v[v_at + i];
            __syncwarp();
            loaded = true;
        }
        for (; left; left &= left - 1)
            for (int h = 0; h < p.group; h++)
                add_query<BIAS>(&p, &at, first + __ffs((int)left) - 1,
                                at.head * p.group + h, dk, dv);
    }
    store_row(p.dk + k_at, dk, p.scale, p.d, at.lane);
    store_row(p.dv + v_at, dv, 1.0f, p.e, at.lane);
}

/* ---- the gradient of a table -------------------------------------------- */

enum { TABLE_THREADS = 256 };

/* The sum of the gradients of a row's scores, over its keys in [lo, hi). */
static __device__ double row_dtable(const f32_params *p, int row, int head,
                                    int lo, int hi)
{
    size_t at = row * p->o_token + head * p->o_head;
    const float *q = p->q + row * p->q_token + head * p->q_head;
    const float *dout = p->dout + at;
    float lse = p->lse[(size_t)row * p->heads + head], delta = 0.0f, slope;
    int anchor = anchor_of(p, row);
    bool seen = false;
    double sum = 0.0;
    for (int s = p->rows.start[row]; s < p->rows.start[row + 1]; s++)
        for (int key = max(lo, p->rows.spans[s].lo);
             key < min(hi, p->rows.spans[s].hi); key++) {
            if (!seen)
                delta = dot(dout, p->out + at, p->e);
            seen = true;
            float x = dot(q, key_row(p, row, key, head), p->d) * p->scale;
            float dw = dot(dout, value_row(p, row, key, head), p->e);
            x = biased_score(p, x, row, head, key - anchor, &slope);
            sum += (double)(weight_of<1>(x, lse) * (dw - delta));
        }
    return sum;
}

static __global__ void __launch_bounds__(TABLE_THREADS)
    backward_table_f32(f32_params p)
{
    __shared__ double sums[TABLE_THREADS];
    int at = blockIdx.x / p.heads, head = blockIdx.x % p.heads;
    int thread = threadIdx.x;
    double sum = 0.0;
    for (int row = thread; row < p.rows.count; row += TABLE_THREADS) {
        int key = anchor_of(&p, row) + p.bias.first + at;
        // The first and the last row of the table also have what is beyond.
        sum += row_dtable(&p, row, head, at == 0 ? 0 : key,
                          at == p.bias.last ? INT32_MAX : key + 1);
    }
    sums[thread] = sum;
    for (int i = TABLE_THREADS / 2; i; i /= 2) {
        __syncthreads();
        if (thread < i)
            sums[thread] += sums[thread + i];
    }
    if (thread == 0)
        p.dtable[blockIdx.x] += (float)sums[0];
}

/* ---- the gradient of a tensor ------------------------------------------- */

/* The gradient of one score. */
static __device__ float score_grad(const f32_params *p, int row, int key,
                                   int head, int lane)
{
    const float *q = p->q + row * p->q_token + head * p->q_head;
    const float *dout = p->dout + row * p->o_token + head * p->o_head;
    const float *k = key_row(p, row, key, head);
    const float *v = value_row(p, row, key, head);
    float x = 0.0f, dw = 0.0f, slope;
    for (int i = lane; i < p->d; i += 32)
        x = fmaf(q[i], k[i], x);
    for (int i = lane; i < p->e; i += 32)
        dw = fmaf(dout[i], v[i], dw);
    x = biased_score(p, warp_sum(x) * p->scale, row, head,
                     key - anchor_of(p, row), &slope);
    return weight_of<1>(x, p->lse[(size_t)row * p->heads + head]) *
           (warp_sum(dw) - row_delta(p, row, head, lane));
}

static __global__ void __launch_bounds__(WARPS * 32)
    backward_tensor_f32(f32_params p)
{
    __shared__ float memory[WARPS][2][DIM];
    place at; // row is the column, head the head unless they share the tensor
    if (!place_of(&at, memory, p.rows.keys, p.bias.head_stride ? p.heads : 1))
        return;
    int last = p.bias.head_stride ? at.head : p.heads - 1;
    for (int head = at.head; head <= last; head++)
        for (int row = 0; row < p.rows.count; row++) {
            int key = p.rows.origin[row] + at.row;
            if (!sees(&p.rows, row, key))
                continue;
            float ds = score_grad(&p, row, key, head, at.lane);
            if (at.lane == 0)
                p.dtensor[tensor_at(&p.bias, row, head) + at.row] += ds;
        }
}

/* ---- launching --------------------------------------------------------- */

static size_t or_dense(size_t stride, size_t dense)
{
    return stride ? stride : dense;
}

static bauta_status prepare(f32_params *p, const bt_cuda_rows *rows,
                            const bauta_attention_shape *shape,
                            bauta_error *err)
{
    size_t kv_heads = shape->kv_heads ? shape->kv_heads : shape->heads;
    size_t d = shape->head_dim, e = shape->value_dim ? shape->value_dim : d;
    if (d < 1 || d > DIM || e < 1 || e > DIM)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "heads of %zu and %zu: 1 to %d are possible", d, e, DIM);
    if (kv_heads == 0 || shape->heads == 0 || shape->heads % kv_heads)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu kv_heads do not divide %zu heads", kv_heads,
                       shape->heads);
    *p = f32_params{};
    p->rows = rows->device;
    p->heads = (int)shape->heads;
    p->kv_heads = (int)kv_heads;
    p->group = (int)(shape->heads / kv_heads);
    p->d = (int)d;
    p->e = (int)e;
    p->scale = shape->scale != 0.0f ? shape->scale : 1.0f / sqrtf((float)d);
    p->q_head = or_dense(shape->q_head, d);
    p->q_token = or_dense(shape->q_token, shape->heads * d);
    p->k_head = or_dense(shape->k_head, d);
    p->k_token = or_dense(shape->k_token, kv_heads * d);
    p->v_head = or_dense(shape->v_head, e);
    p->v_token = or_dense(shape->v_token, kv_heads * e);
    p->o_head = or_dense(shape->out_head, e);
    p->o_token = or_dense(shape->out_token, shape->heads * e);
    return bt_cuda_biased(shape)
               ? bt_cuda_bias_init(&p->bias, shape, p->scale, err)
               : BAUTA_OK;
}

static unsigned blocks_for(int rows, int heads)
{
    return (unsigned)(((size_t)rows * heads + WARPS - 1) / WARPS);
}

static bauta_status launched(bauta_error *err)
{
    cudaError_t status = cudaGetLastError();
    if (status)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot launch attention in float32: %s",
                       cudaGetErrorString(status));
    return BAUTA_OK;
}

static void launch_forward(const f32_params *p, bool biased,
                           cudaStream_t stream)
{
    launch_kernel(biased ? forward_f32<1> : forward_f32<0>,
                  blocks_for(p->rows.count, p->heads), WARPS * 32, 0,
                  BT_START_AFTER, stream, *p);
}

template <int BIAS>
static void launch_backward(const f32_params *p, cudaStream_t stream)
{
    unsigned queries = blocks_for(p->rows.count, p->heads);
    unsigned keys = blocks_for(p->rows.keys, p->kv_heads);
    if (p->rows.count)
        backward_q_f32<BIAS><<<queries, WARPS * 32, 0, stream>>>(*p);
    if (p->rows.keys)
        backward_kv_f32<BIAS><<<keys, WARPS * 32, 0, stream>>>(*p);
    if (BIAS && p->dtable)
        backward_table_f32<<<(unsigned)(p->bias.last + 1) * p->heads,
                             TABLE_THREADS, 0, stream>>>(*p);
    if (BIAS && p->dtensor && p->rows.keys)
        backward_tensor_f32<<<blocks_for(p->rows.keys,
                                         p->bias.head_stride ? p->heads : 1),
                              WARPS * 32, 0, stream>>>(*p);
}

extern "C" bauta_status bt_attention_forward_f32_cuda(
    const bt_cuda_rows *rows, const bauta_attention_shape *shape,
    const float *q, const float *k, const float *v, float *out, float *lse,
    void *stream, bauta_error *err)
{
    f32_params p;
    bauta_status status = prepare(&p, rows, shape, err);
    if (status || rows->device.count == 0)
        return status;
    p.q = q;
    p.k = k;
    p.v = v;
    p.out_to = out;
    p.lse_to = lse;
    launch_forward(&p, bt_cuda_biased(shape), (cudaStream_t)stream);
    return launched(err);
}

extern "C" bauta_status bt_attention_backward_f32_cuda(
    const bt_cuda_rows *rows, const bauta_attention_shape *shape,
    const float *q, const float *k, const float *v, const float *out,
    const float *lse, const float *dout, float *dq, float *dk, float *dv,
    void *stream, bauta_error *err)
{
    f32_params p;
    bauta_status status = prepare(&p, rows, shape, err);
    if (status)
        return status;
    p.q = q;
    p.k = k;
    p.v = v;
    p.out = out;
    p.lse = lse;
    p.dout = dout;
    p.dq = dq;
    p.dk = dk;
    p.dv = dv;
    if (bt_cuda_biased(shape)) {
        p.dtable = shape->bias->dtable;
        p.dtensor = shape->bias->dtensor;
        launch_backward<1>(&p, (cudaStream_t)stream);
    } else {
        launch_backward<0>(&p, (cudaStream_t)stream);
    }
    return launched(err);
}

extern "C" bauta_status
bt_attention_decode_f32_cuda(const bt_cuda_rows *rows,
                             const bauta_attention_shape *shape, const float *q,
                             const bt_cuda_pages *pages, float *out, float *lse,
                             void *stream, bauta_error *err)
{
    f32_params p;
    bauta_status status = prepare(&p, rows, shape, err);
    if (status || rows->device.count == 0)
        return status;
    if (pages->page_keys != rows->page_keys || pages->pages < rows->page_count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the step reads page %zu of pages of %zu keys; there "
                       "are %zu of %zu",
                       rows->page_count, rows->page_keys, pages->pages,
                       pages->page_keys);
    size_t d = (size_t)p.d, keys = rows->page_keys;
    p.q = q;
    p.k = (const float *)pages->k;
    p.v = (const float *)pages->v;
    p.out_to = out;
    p.lse_to = lse;
    p.page = or_dense(pages->page, p.kv_heads * keys * d);
    p.k_head = p.v_head = or_dense(pages->head, keys * d);
    p.k_token = p.v_token = or_dense(pages->token, d);
    while ((size_t)1 << p.page_shift < keys)
        p.page_shift++;
    launch_forward(&p, bt_cuda_biased(shape), (cudaStream_t)stream);
    return launched(err);
}
