/* SPDX-License-Identifier: Apache-2.0 */
/* ops_device.h - what the kernels of ops.h are put together from: matrices in
 * groups of eight elements, sums in fixed trees, launches.
 *
 * ops_*.cu are compiled with -fmad=false: as on the CPU, a product and a sum
 * are one fused step only where the source says fmaf. Without that flag the
 * float32 results would not have the CPU's bits.
 *
 * Eight elements are 16 bytes of bfloat16 or 32 of float32. Which thread has
 * which eight follows from their place in the row and not from their alignment,
 * so that alignment changes the speed and no bit. */
#ifndef BT_CUDA_OPS_DEVICE_H
#define BT_CUDA_OPS_DEVICE_H

extern "C" {
#include "backend/cuda/device.h"
#include "base/error.h"
#include "tensor/tensor.h"
}

#include "backend/cuda/ops.h"

#include "backend/cuda/hopper.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/step_graph.h"

#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The CPU's functions of one element, for the device. What they include is
 * included above, so the keyword stays what it is there. */
#define inline inline __host__ __device__
#include "backend/cpu/kernels/activations.h"
#include "backend/cpu/kernels/cos_sin.h"
#include "backend/cpu/kernels/tanh.h"
#undef inline

typedef uint16_t bf16;

#define ALL_LANES 0xffffffffu

/* ---- eight elements ------------------------------------------------------ */

/* Eight elements as they lie in memory. */
template <class T> struct octet;
template <> struct octet<bf16> {
    uint4 bits;
};
template <> struct octet<float> {
    float4 low, high;
};

/* The first `left` of eight elements; the others are 0. With `wide` the address
 * is aligned to 16 bytes. */
BT_DEVICE octet<bf16> read8(const bf16 *from, int left, bool wide)
{
    octet<bf16> o = { make_uint4(0, 0, 0, 0) };
    if (wide && left >= 8) {
        o.bits = *(const uint4 *)from;
    } else {
        uint32_t word[4] = { 0, 0, 0, 0 };
#pragma unroll
        for (int x = 0; x < 8; x++)
            if (x < left)
                word[x / 2] |= (uint32_t)from[x] << x % 2 * 16;
        o.bits = make_uint4(word[0], word[1], word[2], word[3]);
    }
    return o;
}

BT_DEVICE octet<float> read8(const float *from, int left, bool wide)
{
    octet<float> o;
    if (wide && left >= 8) {
        o.low = *(const float4 *)from;
        o.high = *(const float4 *)(from + 4);
    } else {
        float v[8];
#pragma unroll
        for (int x = 0; x < 8; x++)
            v[x] = x < left ? from[x] : 0.0f;
        o.low = make_float4(v[0], v[1], v[2], v[3]);
        o.high = make_float4(v[4], v[5], v[6], v[7]);
    }
    return o;
}

BT_DEVICE void unpack8(float *v, octet<bf16> o)
{
    uint32_t word[4] = { o.bits.x, o.bits.y, o.bits.z, o.bits.w };
#pragma unroll
    for (int x = 0; x < 4; x++) {
        v[2 * x] = __uint_as_float(word[x] << 16);
        v[2 * x + 1] = __uint_as_float(word[x] & 0xffff0000u);
    }
}

BT_DEVICE void unpack8(float *v, octet<float> o)
{
    v[0] = o.low.x, v[1] = o.low.y, v[2] = o.low.z, v[3] = o.low.w;
    v[4] = o.high.x, v[5] = o.high.y, v[6] = o.high.z, v[7] = o.high.w;
}

/* Rounded to the type. */
BT_DEVICE void pack8(octet<bf16> *o, const float *v)
{
    o->bits = make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                         pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

BT_DEVICE void pack8(octet<float> *o, const float *v)
{
    o->low = make_float4(v[0], v[1], v[2], v[3]);
    o->high = make_float4(v[4], v[5], v[6], v[7]);
}

BT_DEVICE void write8(bf16 *to, octet<bf16> o, int left, bool wide)
{
    if (wide && left >= 8) {
        *(uint4 *)to = o.bits;
    } else {
        uint32_t word[4] = { o.bits.x, o.bits.y, o.bits.z, o.bits.w };
#pragma unroll
        for (int x = 0; x < 8; x++)
            if (x < left)
                to[x] = (bf16)(word[x / 2] >> x % 2 * 16);
    }
}

BT_DEVICE void write8(float *to, octet<float> o, int left, bool wide)
{
    if (wide && left >= 8) {
        *(float4 *)to = o.low;
        *(float4 *)(to + 4) = o.high;
    } else {
        float v[8];
        unpack8(v, o);
#pragma unroll
        for (int x = 0; x < 8; x++)
            if (x < left)
                to[x] = v[x];
    }
}

template <class T>
BT_DEVICE void load8(float *v, const T *from, int left, bool wide)
{
    unpack8(v, read8(from, left, wide));
}

template <class T>
BT_DEVICE void store8(T *to, const float *v, int left, bool wide)
{
    octet<T> o;
    pack8(&o, v);
    write8(to, o, left, wide);
}

/* Four elements, for matrices of float32: neighbouring threads then write
 * neighbouring 16 bytes. */
template <class T> struct quad;
template <> struct quad<bf16> {
    uint2 bits;
};
template <> struct quad<float> {
    float4 all;
};

BT_DEVICE quad<bf16> read4(const bf16 *from, int left, bool wide)
{
    quad<bf16> q = { make_uint2(0, 0) };
    if (wide && left >= 4) {
        q.bits = *(const uint2 *)from;
    } else {
        uint32_t word[2] = { 0, 0 };
#pragma unroll
        for (int x = 0; x < 4; x++)
            if (x < left)
                word[x / 2] |= (uint32_t)from[x] << x % 2 * 16;
        q.bits = make_uint2(word[0], word[1]);
    }
    return q;
}

BT_DEVICE quad<float> read4(const float *from, int left, bool wide)
{
    quad<float> q;
    if (wide && left >= 4) {
        q.all = *(const float4 *)from;
    } else {
        float v[4];
#pragma unroll
        for (int x = 0; x < 4; x++)
            v[x] = x < left ? from[x] : 0.0f;
        q.all = make_float4(v[0], v[1], v[2], v[3]);
    }
    return q;
}

BT_DEVICE void unpack4(float *v, quad<bf16> q)
{
    v[0] = __uint_as_float(q.bits.x << 16);
    v[1] = __uint_as_float(q.bits.x & 0xffff0000u);
    v[2] = __uint_as_float(q.bits.y << 16);
    v[3] = __uint_as_float(q.bits.y & 0xffff0000u);
}

BT_DEVICE void unpack4(float *v, quad<float> q)
{
    v[0] = q.all.x, v[1] = q.all.y, v[2] = q.all.z, v[3] = q.all.w;
}

BT_DEVICE void store4(float *to, const float *v, int left, bool wide)
{
    if (wide && left >= 4) {
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
    } else {
#pragma unroll
        for (int x = 0; x < 4; x++)
            if (x < left)
                to[x] = v[x];
    }
}

/* ---- sums ---------------------------------------------------------------- */

BT_DEVICE float sum8(const float *v)
{
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

/* Over LANES neighbouring lanes, a power of two; the same in each of them, for
 * a sum does not depend on the order of two operands. */
template <int LANES, class T> BT_DEVICE T lanes_sum(T x)
{
#pragma unroll
    for (int i = LANES / 2; i; i /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, i);
    return x;
}

template <int LANES> BT_DEVICE float lanes_max(float x)
{
#pragma unroll
    for (int i = LANES / 2; i; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, i));
    return x;
}

/* ---- launches ------------------------------------------------------------ */

static inline size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

static inline bauta_status launched(const char *what, bauta_error *err)
{
    cudaError_t status = cudaGetLastError();
    if (!status)
        return BAUTA_OK;
    return bt_fail(err, bt_cuda_status(status), "%s on the GPU: %s", what,
                   cudaGetErrorString(status));
}

static inline bauta_status check_dtype(const char *what, bauta_dtype dtype,
                                       bauta_error *err)
{
    if (dtype == BAUTA_FLOAT32 || dtype == BAUTA_BFLOAT16)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "%s: no GPU kernel for %s; there are F32 and BF16", what,
                   (int)dtype < (int)BT_DTYPE_COUNT ? bt_dtype_name(dtype)
                                                    : "this type");
}

static inline size_t size_of(bauta_dtype dtype)
{
    return dtype == BAUTA_FLOAT32 ? sizeof(float) : sizeof(bf16);
}

/* A matrix as the kernels take it. */
template <class T> struct matrix {
    T *data; /* NULL: there is none */
    size_t stride;
};

template <class T>
static matrix<const T> matrix_of(bt_cuda_in x, size_t columns)
{
    return { (const T *)x.data, x.stride ? x.stride : columns };
}

template <class T> static matrix<T> matrix_of(bt_cuda_out x, size_t columns)
{
    return { (T *)x.data, x.stride ? x.stride : columns };
}

/* to[c] = the sum over chunks of partial[chunk][c], added to what is there with
 * `add`; see bt_cuda_sum_rows(). to NULL: there is none. */
typedef struct bt_cuda_partials {
    float *to;
    const float *partial;
    bool add;
} bt_cuda_partials;

/* Two of them at once. In ops_sum.cu. */
extern "C" bauta_status bt_cuda_sum_partials(const bt_cuda_partials sums[2],
                                             size_t chunks, size_t columns,
                                             void *stream, bauta_error *err);

/* ---- element-wise kernels ------------------------------------------------ */

/* Eight elements of a row. */
struct place8 {
    size_t row;
    uint32_t column;
    int left; /* elements of the row from here on, at least 1 */
};

template <class T> BT_DEVICE T *at8(matrix<T> m, place8 p)
{
    return m.data + p.row * m.stride + p.column;
}

/* How a kernel's threads share a matrix: one thread to F::unit elements, four
 * or eight. */
struct share8 {
    uint32_t rows, columns, per_row, total;
    bool wide;
    bool early; /* the next grid may start: it is in a step, where no kernel
                   writes weights, which products read ahead */
};

enum { EACH_THREADS = 256, EACH_UNROLL = 2 * 8 }; /* elements of a thread */

BT_DEVICE bool share_place(place8 *p, const share8 &s, uint32_t unit, int u,
                           int unroll)
{
    uint32_t i = (blockIdx.x * unroll + u) * EACH_THREADS + threadIdx.x;
    uint32_t row = s.rows == 1 ? 0 : i / s.per_row;
    p->row = row;
    p->column = (i - row * s.per_row) * unit;
    p->left = (int)(s.columns - p->column);
    return i < s.total;
}

/* F has registers `held`, fills them by load() and ends in store(): so all
 * loads of a thread are in flight before the first store. */
template <class F>
static __global__ void __launch_bounds__(EACH_THREADS)
    each8(const F f, const share8 s)
{
    const int unroll = EACH_UNROLL / F::unit;
    typename F::held h[unroll];
    place8 p[unroll];
    bool in[unroll];
    if (s.early)
        launch_dependents();
    grid_dependency_wait();
#pragma unroll
    for (int u = 0; u < unroll; u++) {
        in[u] = share_place(&p[u], s, F::unit, u, unroll);
        if (in[u])
            f.load(h[u], p[u], s.wide);
    }
#pragma unroll
    for (int u = 0; u < unroll; u++)
        if (in[u])
            f.store(h[u], p[u], s.wide);
}

/* What all matrices of a call have in common. */
struct layout8 {
    size_t rows, columns;
    bool joins;  /* rows may be taken for one long row */
    bool starts; /* all start at a multiple of 16 bytes, */
    bool lines;  /* and so do all their rows */
};

static inline layout8 layout_of(size_t rows, size_t columns)
{
    return { rows, columns, rows * columns < (size_t)1 << 31, true, true };
}

static inline void layout_add(layout8 *l, const void *data, size_t stride,
                              bauta_dtype dtype)
{
    if (!data)
        return;
    if (stride == 0)
        stride = l->columns;
    l->joins &= stride == l->columns;
    l->starts &= (uintptr_t)data % 16 == 0;
    l->lines &= stride * size_of(dtype) % 16 == 0;
}

template <class F>
static bauta_status run_each8(const char *what, const F &f, layout8 l,
                              void *stream, bauta_error *err)
{
    if (l.rows == 0 || l.columns == 0)
        return BAUTA_OK;
    if (l.rows >= (size_t)1 << 31 || l.columns >= (size_t)1 << 31 ||
        l.rows * ceil_div(l.columns, F::unit) >= (size_t)1 << 31)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: %zu x %zu elements are too many for one call", what,
                       l.rows, l.columns);
    share8 s = { (uint32_t)l.rows,
                 (uint32_t)l.columns,
                 0,
                 0,
                 l.starts && (l.joins || l.lines),
                 bt_cuda_stepping(stream) };
    if (l.joins) {
        s.columns *= s.rows;
        s.rows = 1;
    }
    s.per_row = (uint32_t)ceil_div(s.columns, F::unit);
    s.total = s.rows * s.per_row;
    unsigned grid =
        (unsigned)ceil_div(s.total, EACH_THREADS * EACH_UNROLL / F::unit);
    launch_kernel(each8<F>, grid, EACH_THREADS, 0, BT_START_EARLY_IN_STEP,
                  stream, f, s);
    return launched(what, err);
}

#endif
