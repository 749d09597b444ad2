/* SPDX-License-Identifier: Apache-2.0 */
/* ops_sum.cu - sums over rows, and of doubles, in orders that depend on the
 * sizes alone; ops.h says which. */
#include "backend/cuda/ops_device.h"

/* ---- partial sums of chunks of rows -------------------------------------- */

enum { CHUNK_ROWS = 128, ROW_LANES = 8, STRIPE = 256, CHUNK_LANES = 128 };

/* A block has 256 columns of a chunk: a warp has every eighth row, a lane eight
 * columns. */
template <class T>
static __global__ void __launch_bounds__(32 * ROW_LANES)
    sum_chunk(float *partial, matrix<const T> x, uint32_t rows,
              uint32_t columns, bool wide)
{
    __shared__ float lanes[ROW_LANES][STRIPE];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t column = blockIdx.x * STRIPE + lane * 8;
    int left = (int)columns - (int)column;
    uint32_t first = blockIdx.y * CHUNK_ROWS + warp;
    uint32_t end = min(blockIdx.y * CHUNK_ROWS + CHUNK_ROWS, rows);
    float sum[8] = {}, v[8];
    launch_dependents();
    if (left > 0) {
#pragma unroll 8
        for (uint32_t i = first; i < end; i += ROW_LANES) {
            load8(v, x.data + i * x.stride + column, left, wide);
#pragma unroll
            for (int c = 0; c < 8; c++)
                sum[c] += v[c];
        }
    }
#pragma unroll
    for (int c = 0; c < 8; c++)
        lanes[warp][c * 32 + lane] = sum[c];
    __syncthreads();
    uint32_t at = threadIdx.x % 8 * 32 + threadIdx.x / 8; // of column x
    column = blockIdx.x * STRIPE + threadIdx.x;
    if (column >= columns)
        return;
    float total = lanes[0][at];
#pragma unroll
    for (int i = 1; i < ROW_LANES; i++)
        total += lanes[i][at];
    partial[(size_t)blockIdx.y * columns + column] = total;
}

/* The sums of one or two calls. */
typedef struct sum_pair {
    bt_cuda_partials of[2];
} sum_pair;

/* A block has eight columns; thread 8 i + c has chunks i, i + 128, ... of
 * column c. */
static __global__ void __launch_bounds__(1024)
    sum_chunks(const sum_pair pair, uint32_t chunks, uint32_t columns)
{
    __shared__ float lanes[8][CHUNK_LANES];
    const bt_cuda_partials &s = pair.of[blockIdx.y];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t column = blockIdx.x * 8 + threadIdx.x % 8;
    float sum = 0.0f;
    grid_dependency_wait();
    if (!s.to)
        return;
    if (column < columns)
#pragma unroll 8
        for (uint32_t i = threadIdx.x / 8; i < chunks; i += CHUNK_LANES)
            sum += s.partial[(size_t)i * columns + column];
    lanes[threadIdx.x % 8][threadIdx.x / 8] = sum;
    __syncthreads();
    column = blockIdx.x * 8 + warp;
    if (warp >= 8 || column >= columns)
        return;
    sum = (lanes[warp][lane] + lanes[warp][lane + 32]) +
          (lanes[warp][lane + 64] + lanes[warp][lane + 96]);
    sum = lanes_sum<32>(sum);
    if (lane == 0)
        s.to[column] = s.add ? s.to[column] + sum : sum;
}

bauta_status bt_cuda_sum_partials(const bt_cuda_partials sums[2], size_t chunks,
                                  size_t columns, void *stream,
                                  bauta_error *err)
{
    if (columns == 0)
        return BAUTA_OK;
    sum_pair pair = { { sums[0], sums[1] } };
    dim3 grid((unsigned)ceil_div(columns, 8), sums[1].to ? 2 : 1);
    launch_kernel(sum_chunks, grid, 1024, 0, BT_START_EARLY, stream, pair,
                  (uint32_t)chunks, (uint32_t)columns);
    return launched("sum over rows", err);
}

size_t bt_cuda_sum_rows_workspace(size_t rows, size_t columns)
{
    return ceil_div(rows, CHUNK_ROWS) * columns * sizeof(float);
}

template <class T>
static void sum_rows_as(size_t rows, size_t columns, bt_cuda_in x, bool wide,
                        float *partial, void *stream)
{
    dim3 grid((unsigned)ceil_div(columns, STRIPE),
              (unsigned)ceil_div(rows, CHUNK_ROWS));
    sum_chunk<T><<<grid, 32 * ROW_LANES, 0, (cudaStream_t)stream>>>(
        partial, matrix_of<T>(x, columns), (uint32_t)rows, (uint32_t)columns,
        wide);
}

bauta_status bt_cuda_sum_rows(size_t rows, size_t columns, bauta_dtype dtype,
                              float *to, bt_cuda_in x, bool add,
                              void *workspace, void *stream, bauta_error *err)
{
    bauta_status status = check_dtype("sum over rows", dtype, err);
    if (status)
        return status;
    if (ceil_div(rows, CHUNK_ROWS) > 65535)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "sum over rows: %zu rows are too many for one call",
                       rows);
    layout8 l = layout_of(rows, columns);
    layout_add(&l, x.data, x.stride, dtype);
    bool wide = l.starts && l.lines;
    if (rows && columns && dtype == BAUTA_FLOAT32)
        sum_rows_as<float>(rows, columns, x, wide, (float *)workspace, stream);
    else if (rows && columns)
        sum_rows_as<bf16>(rows, columns, x, wide, (float *)workspace, stream);
    status = launched("sum over rows", err);
    if (status)
        return status;
    bt_cuda_partials sums[2] = { { to, (const float *)workspace, add } };
    return bt_cuda_sum_partials(sums, ceil_div(rows, CHUNK_ROWS), columns,
                                stream, err);
}

/* ---- doubles ------------------------------------------------------------- */

static __global__ void __launch_bounds__(1024)
    sum_f64(double *to, const double *x, size_t count)
{
    __shared__ double warps[32];
    double sum = 0.0;
#pragma unroll 8
    for (size_t i = threadIdx.x; i < count; i += 1024)
        sum += x[i];
    sum = lanes_sum<32>(sum);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = lanes_sum<32>(warps[threadIdx.x]);
        if (threadIdx.x == 0)
            *to = sum;
    }
}

bauta_status bt_cuda_sum_f64(double *to, const double *x, size_t count,
                             void *stream, bauta_error *err)
{
    sum_f64<<<1, 1024, 0, (cudaStream_t)stream>>>(to, x, count);
    return launched("sum", err);
}
