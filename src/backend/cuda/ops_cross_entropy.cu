/* SPDX-License-Identifier: Apache-2.0 */
/* ops_cross_entropy.cu - from rows of logits to losses and their gradients.
 *
 * A block has a row. Its warps take one slice after another (ops_stats.h) and
 * one of them merges the slices; then the block goes over the row a second time
 * and writes the gradient. Where two rows fit (bfloat16, up to 53,248 logits),
 * the block has kept the row in shared memory; else it is in the L2. */
#include "backend/cuda/ops_stats.h"

enum {
    LOSS_THREADS = 640, /* 20 warps: five slices of GPT-2's 99 each */
    LOSS_WARPS = LOSS_THREADS / 32,
    UNROLL = 5,
    KEPT_MOST = 104 << 10 /* bytes: two blocks, and their other memory */
};

template <class T, class D> struct loss_params {
    matrix<const T> logits;
    matrix<D> dlogits;
    const uint32_t *labels;
    const float *weights;
    double smoothing, share;
    double *losses;
    float *lse, *logprobs;
    uint32_t vocab;
    bool wide;
    bool overlaid; /* dlogits are smaller and lie over the logits */
    bool kept;     /* in shared memory */
};

extern __shared__ uint4 kept_row[];

/* log(l); NaN if a logit was NaN or the largest one infinite. */
BT_DEVICE double logarithm(float l)
{
    return isfinite(l) ? bt_log2((double)l) * BT_LN2 : (double)l;
}

template <class T, class D>
BT_DEVICE void ignore_row(const loss_params<T, D> &p, size_t row)
{
    const float zero[8] = {};
    if (threadIdx.x == 0) {
        if (p.losses)
            p.losses[row] = 0.0;
        if (p.lse)
            p.lse[row] = 0.0f;
        if (p.logprobs)
            p.logprobs[row] = 0.0f;
    }
    if (!p.dlogits.data)
        return;
    D *to = p.dlogits.data + row * p.dlogits.stride;
    for (uint32_t c = threadIdx.x * 8; c < p.vocab; c += LOSS_THREADS * 8)
        store8(to + c, zero, (int)(p.vocab - c), p.wide);
}

/* The sum of a slice's logits, for smoothing. */
BT_DEVICE double slice_sum(float (*v)[8], uint32_t count, uint32_t slice)
{
    double sum = 0.0;
#pragma unroll
    for (int k = 0; k < SLICE_GROUPS; k++) {
        uint32_t column = slice * SLICE + (k * 32 + threadIdx.x % 32) * 8;
        float part[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            part[i] = column + i < count ? v[k][i] : 0.0f;
        sum += (double)sum8(part);
    }
    return lanes_sum<32>(sum);
}

/* As run_row() of autograd/cross_entropy.c. */
template <class T, class D>
BT_DEVICE void store_loss(const loss_params<T, D> &p, size_t row,
                          slice_stats all, float picked, double mean)
{
    double s = p.smoothing, weight = p.weights ? (double)p.weights[row] : 1.0;
    double lse = (double)all.max + logarithm(all.sum);
    double value = lse - (double)picked;
    if (p.losses)
        p.losses[row] =
            weight * (s > 0.0 ? (1.0 - s) * value + s * (lse - mean) : value);
    float rounded = lse_of(all);
    if (p.lse)
        p.lse[row] = rounded;
    if (p.logprobs)
        p.logprobs[row] = picked - rounded;
}

template <class T, class D>
BT_DEVICE void store_gradient(const loss_params<T, D> &p, size_t row,
                              slice_stats all)
{
    double weight = p.weights ? (double)p.weights[row] : 1.0;
    double share = p.share * weight, s = p.smoothing;
    float scale = (float)(share / (double)all.sum);
    float shift = (float)(-share * s / (double)p.vocab);
    float less = (float)(share * (1.0 - s)), base = exp_base<T>(all.max);
    uint32_t label = p.labels[row];
    const T *x = p.logits.data + row * p.logits.stride;
    D *to = p.dlogits.data + row * p.dlogits.stride;
    const uint32_t step = LOSS_THREADS * 8;
    for (uint32_t first = 0; first < p.vocab; first += step * UNROLL) {
        octet<T> held[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            uint32_t c = first + u * step + threadIdx.x * 8;
            if (!p.kept)
                held[u] = read8(x + c, (int)(p.vocab - c), p.wide);
            else if (c < p.vocab)
                held[u] = ((const octet<T> *)kept_row)[c / 8];
        }
        // What is written now lies over logits that have been read.
        if (p.overlaid)
            __syncthreads();
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            uint32_t c = first + u * step + threadIdx.x * 8;
            float v[8];
            unpack8(v, held[u]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = fmaf(exp_from<T>(v[i], base), scale, shift);
            if (label - c < 8)
#pragma unroll
                for (int i = 0; i < 8; i++)
                    v[i] -= c + i == label ? less : 0.0f;
            store8(to + c, v, (int)(p.vocab - c), p.wide);
        }
    }
}

template <class T, class D>
static __global__ void __launch_bounds__(LOSS_THREADS, sizeof(T) == 2 ? 2 : 1)
    cross_entropy(const loss_params<T, D> p)
{
    __shared__ slice_stats slices[SLICES_MOST];
    __shared__ double sums[LOSS_WARPS];
    __shared__ slice_stats whole;
    size_t row = blockIdx.x;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t label = p.labels[row], count = (p.vocab + SLICE - 1) / SLICE;
    if (label == UINT32_MAX) {
        ignore_row(p, row);
        return;
    }
    const T *x = p.logits.data + row * p.logits.stride;
    double sum = 0.0;
    float picked[8] = {};
    if (threadIdx.x == 0)
        load8(picked, x + label, 1, false);
    slice_part<T> next = slice_read(x, p.vocab, warp, p.wide);
    for (uint32_t i = warp; i < count; i += LOSS_WARPS) {
        float v[SLICE_GROUPS][8];
        slice_unpack(v, next, p.vocab, i);
        if (p.kept)
#pragma unroll
            for (int k = 0; k < SLICE_GROUPS; k++)
                if (i * SLICE + (k * 32 + lane) * 8 < p.vocab)
                    ((octet<T> *)kept_row)[i * (SLICE / 8) + k * 32 + lane] =
                        next.o[k];
        if (i + LOSS_WARPS < count)
            next = slice_read(x, p.vocab, i + LOSS_WARPS, p.wide);
        if (p.smoothing > 0.0)
            sum += slice_sum(v, p.vocab, i);
        slice_stats one = slice_reduce<T>(v);
        if (lane == 0)
            slices[i] = one;
    }
    if (lane == 0)
        sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        slice_stats all = slices_merge(slices, count);
        if (all.max == -INFINITY)
            all.sum = NAN;
        sum = lanes_sum<32>(lane < LOSS_WARPS ? sums[lane] : 0.0);
        if (lane == 0) {
            whole = all;
            store_loss(p, row, all, picked[0], sum / (double)p.vocab);
        }
    }
    __syncthreads();
    if (p.dlogits.data)
        store_gradient(p, row, whole);
}

template <class T, class D>
static bauta_status cross_entropy_as(const bt_cuda_cross_entropy_args *a,
                                     bool wide, void *stream, bauta_error *err)
{
    loss_params<T, D> p = { matrix_of<T>(a->logits, a->vocab),
                            matrix_of<D>(a->dlogits, a->vocab),
                            a->labels,
                            a->weights,
                            a->smoothing,
                            a->share,
                            a->losses,
                            a->lse,
                            a->logprobs,
                            (uint32_t)a->vocab,
                            wide,
                            sizeof(T) != sizeof(D) &&
                                a->dlogits.data == a->logits.data,
                            false };
    size_t bytes = ceil_div(a->vocab, 8) * sizeof(octet<T>);
    p.kept = a->dlogits.data && bytes <= KEPT_MOST;
    cudaError_t status = cudaFuncSetAttribute(
        cross_entropy<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
        KEPT_MOST);
    if (status)
        return bt_fail(err, bt_cuda_status(status), "cross-entropy: %s",
                       cudaGetErrorString(status));
    cross_entropy<T, D><<<(unsigned)a->rows, LOSS_THREADS, p.kept ? bytes : 0,
                          (cudaStream_t)stream>>>(p);
    return launched("cross-entropy", err);
}

/* Whether dlogits may lie where they lie. */
static bauta_status check_overlay(const bt_cuda_cross_entropy_args *a,
                                  bauta_error *err)
{
    size_t from = a->logits.stride ? a->logits.stride : a->vocab;
    size_t to = a->dlogits.stride ? a->dlogits.stride : a->vocab;
    if (a->dlogits.data != a->logits.data ||
        (size_of(a->dlogits_dtype) <= size_of(a->dtype) &&
         to * size_of(a->dlogits_dtype) == from * size_of(a->dtype)))
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "cross-entropy: gradients with a stride of %zu cannot lie "
                   "over logits with a stride of %zu",
                   to, from);
}

bauta_status bt_cuda_cross_entropy(const bt_cuda_cross_entropy_args *a,
                                   void *stream, bauta_error *err)
{
    bauta_status status = check_dtype("cross-entropy", a->dtype, err);
    if (!status && a->dlogits.data)
        status = check_dtype("cross-entropy", a->dlogits_dtype, err);
    if (!status && a->dlogits.data)
        status = check_overlay(a, err);
    if (status || a->rows == 0)
        return status;
    if (a->vocab == 0 || a->vocab > (size_t)SLICE * SLICES_MOST ||
        a->rows >= (size_t)1 << 31)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "cross-entropy: no GPU kernel for %zu rows of %zu "
                       "logits; there are 1 to %d logits",
                       a->rows, a->vocab, SLICE * SLICES_MOST);
    layout8 l = layout_of(a->rows, a->vocab);
    layout_add(&l, a->logits.data, a->logits.stride, a->dtype);
    layout_add(&l, a->dlogits.data, a->dlogits.stride, a->dlogits_dtype);
    bool wide = l.starts && l.lines;
    bool narrow = a->dlogits.data && a->dlogits_dtype == BAUTA_BFLOAT16;
    if (a->dtype == BAUTA_BFLOAT16 && a->dlogits.data && !narrow)
        return cross_entropy_as<bf16, float>(a, wide, stream, err);
    if (a->dtype == BAUTA_BFLOAT16)
        return cross_entropy_as<bf16, bf16>(a, wide, stream, err);
    return narrow ? cross_entropy_as<float, bf16>(a, wide, stream, err)
                  : cross_entropy_as<float, float>(a, wide, stream, err);
}
