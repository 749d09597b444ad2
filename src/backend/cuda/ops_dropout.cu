/* SPDX-License-Identifier: Apache-2.0 */
/* ops_dropout.cu - dropout with the counters of kernels/dropout.h.
 *
 * A counter's four words serve columns that are 16 apart. So a thread has eight
 * counters: 32 columns, in four groups of eight that start 16 apart. Two
 * threads have the 64 columns of sixteen counters, and nothing that Philox
 * yields is thrown away. */
#include "backend/cuda/ops_device.h"

#include "backend/cuda/ops_philox.h"

enum { THREADS = 256 };

template <class T> struct dropout_params {
    matrix<const T> x, residual;
    matrix<T> y;
    const uint64_t *tokens;
    uint64_t seed;
    uint32_t site, below, columns, per_row, total;
    float scale;
    bool wide;
};

template <class T>
static __global__ void __launch_bounds__(THREADS, sizeof(T) == 2 ? 3 : 2)
    dropout(const dropout_params<T> p)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= p.total)
        return;
    uint32_t row = at / p.per_row, part = at - row * p.per_row;
    uint32_t first = part / 2 * 64 + part % 2 * 8;
    uint32_t counter = part / 2 * 16 + part % 2 * 8;
    uint64_t token = p.tokens[row];
    float v[4][8];
    octet<T> r[4];
#pragma unroll
    for (int w = 0; w < 4; w++) {
        place8 q = { row, first + w * 16, (int)(p.columns - first) - w * 16 };
        load8(v[w], at8(p.x, q), q.left, p.wide);
        if (p.residual.data)
            r[w] = read8(at8(p.residual, q), q.left, p.wide);
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        philox_words drawn = philox(
            { counter + i, p.site, (uint32_t)token, (uint32_t)(token >> 32) },
            (uint32_t)p.seed, (uint32_t)(p.seed >> 32));
#pragma unroll
        for (int w = 0; w < 4; w++)
            v[w][i] = drawn.word[w] >= p.below ? v[w][i] * p.scale : 0.0f;
    }
#pragma unroll
    for (int w = 0; w < 4; w++) {
        place8 q = { row, first + w * 16, (int)(p.columns - first) - w * 16 };
        if (p.residual.data) {
            float add[8];
            unpack8(add, r[w]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[w][i] = add[i] + v[w][i];
        }
        store8(at8(p.y, q), v[w], q.left, p.wide);
    }
}

template <class T>
static bauta_status dropout_as(const bt_cuda_dropout_args *a, bool wide,
                               void *stream, bauta_error *err)
{
    dropout_params<T> p = { matrix_of<T>(a->x, a->columns),
                            matrix_of<T>(a->residual, a->columns),
                            matrix_of<T>(a->y, a->columns),
                            a->tokens,
                            a->seed,
                            a->site,
                            a->below,
                            (uint32_t)a->columns,
                            (uint32_t)ceil_div(a->columns, 64) * 2,
                            0,
                            a->scale,
                            wide };
    p.total = (uint32_t)a->rows * p.per_row;
    dropout<T><<<(unsigned)ceil_div(p.total, THREADS), THREADS, 0,
                 (cudaStream_t)stream>>>(p);
    return launched("dropout", err);
}

bauta_status bt_cuda_dropout(const bt_cuda_dropout_args *a, void *stream,
                             bauta_error *err)
{
    bauta_status status = check_dtype("dropout", a->dtype, err);
    if (status || a->rows == 0 || a->columns == 0)
        return status;
    if (a->columns >= (size_t)1 << 31 ||
        a->rows >= ((size_t)1 << 31) / ceil_div(a->columns, 32))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "dropout: %zu x %zu elements are too many for one call",
                       a->rows, a->columns);
    layout8 l = layout_of(a->rows, a->columns);
    layout_add(&l, a->x.data, a->x.stride, a->dtype);
    layout_add(&l, a->residual.data, a->residual.stride, a->dtype);
    layout_add(&l, a->y.data, a->y.stride, a->dtype);
    bool wide = l.starts && l.lines;
    return a->dtype == BAUTA_FLOAT32 ? dropout_as<float>(a, wide, stream, err)
                                     : dropout_as<bf16>(a, wide, stream, err);
}
