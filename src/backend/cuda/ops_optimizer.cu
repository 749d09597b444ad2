/* SPDX-License-Identifier: Apache-2.0 */
/* ops_optimizer.cu - a step of AdamW without the host: the norm of the
 * gradients, the constants that follow from it, and the update. Then the moving
 * average of the weights.
 *
 * Everything has the CPU's order of arithmetic (kernels/adamw.c,
 * train/optimizer.c) and its bits. */
#include "backend/cuda/ops_device.h"

#include "backend/cpu/kernels/lanes.h"

/* ---- the norm ------------------------------------------------------------ */

enum {
    SQUARES_THREADS = 64,
    PIECES_PER_BLOCK = SQUARES_THREADS / BT_LANES,
    AHEAD = 32 /* elements of a lane */
};

BT_DEVICE void read_ahead(float *to, const float *from)
{
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        to[i] = from[i * BT_LANES];
}

/* Sixteen threads to a piece, one to each of the CPU's lanes. A square is exact
 * in double, so the fused step rounds as a product and a sum do. */
static __global__ void __launch_bounds__(SQUARES_THREADS)
    squares(const bt_cuda_slot *slots, const bt_cuda_piece *pieces,
            uint32_t count, double *to)
{
    uint32_t at = blockIdx.x * PIECES_PER_BLOCK + threadIdx.x / BT_LANES;
    uint32_t lane = threadIdx.x % BT_LANES;
    bool in = at < count;
    bt_cuda_piece piece = pieces[in ? at : count - 1];
    const float *x = slots[piece.slot].grad + piece.from;
    double sum = 0.0;
    uint32_t end = in ? piece.count : 0;
    uint32_t whole = end / (AHEAD * BT_LANES) * (AHEAD * BT_LANES);
    float next[AHEAD]; // on their way while the ones before are added
    if (whole)
        read_ahead(next, x + lane);
    uint32_t j = lane;
    while (j < whole) {
        float v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            v[i] = next[i];
        j += AHEAD * BT_LANES;
        if (j < whole)
            read_ahead(next, x + j);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            sum = fma((double)v[i], (double)v[i], sum);
    }
    for (; j < end; j += BT_LANES)
        sum = fma((double)x[j], (double)x[j], sum);
    sum = lanes_sum<BT_LANES>(sum); // bt_lanes_sum_double()
    if (in && lane == 0)
        to[at] = sum;
}

/* base^exponent by squaring, as on the CPU. */
BT_DEVICE double power(double base, uint64_t exponent)
{
    double result = 1.0;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

BT_DEVICE bt_adamw constants(const bt_cuda_adamw_options &o, uint64_t steps,
                             double norm, double decay)
{
    double scale = o.max_grad_norm / (norm + 1e-6);
    bt_adamw c;
    c.scale = (float)(o.max_grad_norm > 0.0 && scale < 1.0 ? scale : 1.0);
    c.keep = (float)(1.0 - o.rate * decay);
    c.beta1 = (float)o.beta1;
    c.weight1 = (float)(1.0 - o.beta1);
    c.beta2 = (float)o.beta2;
    c.weight2 = (float)(1.0 - o.beta2);
    c.root = (float)sqrt(1.0 - power(o.beta2, steps));
    c.epsilon = (float)o.epsilon;
    c.step = (float)(o.rate / (1.0 - power(o.beta1, steps)));
    return c;
}

/* One block. The pieces' sums are one chain, which one thread adds up. */
static __global__ void __launch_bounds__(1024)
    step_begin(const double *squares, uint32_t count, bt_cuda_adamw_options o,
               bt_cuda_adamw_state *state)
{
    __shared__ double some[1024];
    double sum = 0.0;
    for (uint32_t first = 0; first < count; first += 1024) {
        __syncthreads();
        if (first + threadIdx.x < count)
            some[threadIdx.x] = squares[first + threadIdx.x];
        __syncthreads();
        uint32_t end = min(1024u, count - first);
        if (threadIdx.x == 0)
#pragma unroll 16
            for (uint32_t i = 0; i < end; i++)
                sum += some[i];
    }
    if (threadIdx.x)
        return;
    state->norm = sqrt(sum);
    state->taken = isfinite(state->norm);
    if (!state->taken)
        return;
    state->steps++;
    state->decayed = constants(o, state->steps, state->norm, o.weight_decay);
    state->undecayed = constants(o, state->steps, state->norm, 0.0);
}

/* ---- the update ---------------------------------------------------------- */

enum { UPDATE_THREADS = 256, UPDATE_PARTS = 8 };

BT_DEVICE void update(const bt_adamw &c, float &p, float &m, float &v,
                      float gradient)
{
    float g = gradient * c.scale;
    m = c.weight1 < 0.5f ? fmaf(c.weight1, g - m, m) : fmaf(-c.beta1, g - m, g);
    v = fmaf(c.weight2 * g, g, v * c.beta2);
    float size = sqrtf(v) / c.root + c.epsilon;
    p = p * c.keep - c.step * m / size;
}

BT_DEVICE void update4(const bt_adamw &c, const bt_cuda_slot &s, size_t at)
{
    float4 p = *(float4 *)(s.p + at), m = *(float4 *)(s.m + at);
    float4 v = *(float4 *)(s.v + at), g = *(const float4 *)(s.grad + at);
    update(c, p.x, m.x, v.x, g.x);
    update(c, p.y, m.y, v.y, g.y);
    update(c, p.z, m.z, v.z, g.z);
    update(c, p.w, m.w, v.w, g.w);
    *(float4 *)(s.p + at) = p;
    *(float4 *)(s.m + at) = m;
    *(float4 *)(s.v + at) = v;
    if (s.copy)
        *(uint2 *)(s.copy + at) =
            make_uint2(pack_bf16(p.x, p.y), pack_bf16(p.z, p.w));
}

BT_DEVICE void update1(const bt_adamw &c, const bt_cuda_slot &s, size_t at)
{
    float p = s.p[at], m = s.m[at], v = s.v[at];
    update(c, p, m, v, s.grad[at]);
    s.p[at] = p;
    s.m[at] = m;
    s.v[at] = v;
    if (s.copy)
        s.copy[at] = (uint16_t)pack_bf16(p, 0.0f);
}

/* Eight blocks to a piece. */
static __global__ void __launch_bounds__(UPDATE_THREADS)
    step_update(const bt_cuda_slot *slots, const bt_cuda_piece *pieces,
                const bt_cuda_adamw_state *state)
{
    const uint32_t part = BT_CUDA_PIECE / UPDATE_PARTS;
    if (!state->taken)
        return;
    bt_cuda_piece piece = pieces[blockIdx.x / UPDATE_PARTS];
    uint32_t first = blockIdx.x % UPDATE_PARTS * part;
    if (first >= piece.count)
        return;
    uint32_t end = min(first + part, piece.count);
    bt_cuda_slot s = slots[piece.slot];
    bt_adamw c = s.decay ? state->decayed : state->undecayed;
    uintptr_t ends = (uintptr_t)s.p | (uintptr_t)s.m | (uintptr_t)s.v |
                     (uintptr_t)s.grad | (uintptr_t)s.copy * 2;
    uint32_t whole = ends % 16 ? first : end / 4 * 4;
#pragma unroll 2
    for (uint32_t j = first + threadIdx.x * 4; j < whole;
         j += UPDATE_THREADS * 4)
        update4(c, s, piece.from + j);
    for (uint32_t j = whole + threadIdx.x; j < end; j += UPDATE_THREADS)
        update1(c, s, piece.from + j);
}

static bauta_status pieces_check(size_t count, bauta_error *err)
{
    if (count < ((size_t)1 << 31) / UPDATE_PARTS)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "AdamW: %zu pieces are too many for one call", count);
}

bauta_status bt_cuda_adamw_squares(const bt_cuda_slot *slots,
                                   const bt_cuda_piece *pieces, size_t count,
                                   double *to, void *stream, bauta_error *err)
{
    bauta_status status = pieces_check(count, err);
    if (status || !count)
        return status;
    squares<<<(unsigned)ceil_div(count, PIECES_PER_BLOCK), SQUARES_THREADS, 0,
              (cudaStream_t)stream>>>(slots, pieces, (uint32_t)count, to);
    return launched("the norm of the gradients", err);
}

bauta_status bt_cuda_adamw_update(const bt_cuda_slot *slots,
                                  const bt_cuda_piece *pieces, size_t count,
                                  const bt_cuda_adamw_options *options,
                                  bt_cuda_adamw_state *state, const double *of,
                                  size_t square_count, void *stream,
                                  bauta_error *err)
{
    cudaStream_t on = (cudaStream_t)stream;
    bauta_status status = pieces_check(count, err);
    if (!status)
        status = pieces_check(square_count, err);
    if (status)
        return status;
    step_begin<<<1, 1024, 0, on>>>(of, (uint32_t)square_count, *options, state);
    if (count)
        step_update<<<(unsigned)count * UPDATE_PARTS, UPDATE_THREADS, 0, on>>>(
            slots, pieces, state);
    return launched("AdamW", err);
}

bauta_status bt_cuda_adamw(const bt_cuda_slot *slots,
                           const bt_cuda_piece *pieces, size_t count,
                           const bt_cuda_adamw_options *options,
                           bt_cuda_adamw_state *state, double *to, void *stream,
                           bauta_error *err)
{
    bauta_status status =
        bt_cuda_adamw_squares(slots, pieces, count, to, stream, err);
    return status ? status
                  : bt_cuda_adamw_update(slots, pieces, count, options, state,
                                         to, count, stream, err);
}

/* ---- the moving average -------------------------------------------------- */

/* Floats `at` to `at + 3` of two arrays. */
template <bool SWAP>
static __global__ void __launch_bounds__(256)
    average(float *a, float *x, size_t count, float keep, float take)
{
    size_t at = ((size_t)blockIdx.x * 256 + threadIdx.x) * 4;
    bool wide = at + 4 <= count && ((uintptr_t)a | (uintptr_t)x) % 16 == 0;
    if (wide) {
        float4 v = *(float4 *)(a + at), w = *(float4 *)(x + at);
        if (SWAP) {
            *(float4 *)(a + at) = w;
            *(float4 *)(x + at) = v;
        } else {
            *(float4 *)(a + at) =
                make_float4(keep * v.x + take * w.x, keep * v.y + take * w.y,
                            keep * v.z + take * w.z, keep * v.w + take * w.w);
        }
        return;
    }
    for (size_t j = at; j < count && j < at + 4; j++) {
        float v = a[j], w = x[j];
        a[j] = SWAP ? w : keep * v + take * w;
        if (SWAP)
            x[j] = v;
    }
}

bauta_status bt_cuda_ema(float *to, const float *x, size_t count, float keep,
                         float take, void *stream, bauta_error *err)
{
    if (count)
        average<false>
            <<<(unsigned)ceil_div(count, 1024), 256, 0, (cudaStream_t)stream>>>(
                to, (float *)(uintptr_t)x, count, keep, take);
    return launched("moving average", err);
}

bauta_status bt_cuda_swap(float *a, float *b, size_t count, void *stream,
                          bauta_error *err)
{
    if (count)
        average<true>
            <<<(unsigned)ceil_div(count, 1024), 256, 0, (cudaStream_t)stream>>>(
                a, b, count, 0.0f, 0.0f);
    return launched("swap", err);
}
