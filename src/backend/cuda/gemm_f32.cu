/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_f32.cu - products in float32 with fused multiply-adds, in the CPU's
 * order. For checks and for models that are not computed in bfloat16: tensor
 * cores have no float32.
 *
 * A block computes a tile of ROWS x COLUMNS elements, a thread TALL x WIDE of
 * them. Tiles of STEP of k go through two stages of shared memory: while one is
 * multiplied, the next one is on its way in registers. */
extern "C" {
#include "base/error.h"
}

#include "backend/cuda/gemm_f32.h"
#include "backend/cuda/hopper.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime.h>
#include <limits.h>

enum { STEP = 16, THREADS = 256 }; /* STEP: of k, in a stage */

/* Element (row, k) of an operand is at row * row_stride + k * k_stride; one of
 * the strides is 1. */
typedef struct f32_operand {
    const float *at;
    size_t row_stride, k_stride;
    int rows;
} f32_operand;

typedef struct f32_product {
    f32_operand a, b;
    float *out;
    size_t ldo;
    const float *bias;
    int m, n, k;
    bool add;
} f32_product;

/* A stage of one operand; the pad keeps 16 bytes aligned and spreads banks. */
template <int ROWS> struct stage {
    float at[STEP][ROWS + 4];
};

/* What a thread carries from memory to a stage: element i of it is at this row
 * and k. Neighbouring threads read neighbouring addresses. */
template <int ROWS>
static __device__ __forceinline__ void item_place(const f32_operand &o, int i,
                                                  int *row, int *k)
{
    int index = i * THREADS + threadIdx.x;
    if (o.k_stride == 1) {
        *k = index % STEP;
        *row = index / STEP;
    } else {
        *row = index % ROWS;
        *k = index / ROWS;
    }
}

template <int ROWS, int ITEMS>
static __device__ __forceinline__ void
fetch(float (&held)[ITEMS], const f32_operand &o, int first, int from, int end)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        int row, k;
        item_place<ROWS>(o, i, &row, &k);
        bool in = first + row < o.rows && from + k < end;
        held[i] = in ? o.at[(size_t)(first + row) * o.row_stride +
                            (size_t)(from + k) * o.k_stride]
                     : 0.0f;
    }
}

template <int ROWS, int ITEMS>
static __device__ __forceinline__ void
put(stage<ROWS> &s, const float (&held)[ITEMS], const f32_operand &o)
{
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        int row, k;
        item_place<ROWS>(o, i, &row, &k);
        s.at[k][row] = held[i];
    }
}

template <int ROWS, int COLUMNS, int TALL, int WIDE>
static __device__ __forceinline__ void
multiply(float (&sum)[TALL][WIDE], const stage<ROWS> &a,
         const stage<COLUMNS> &b, int k, int row, int column)
{
    float x[TALL], y[WIDE];
#pragma unroll
    for (int i = 0; i < TALL; i++)
        x[i] = a.at[k][row + i];
#pragma unroll
    for (int j = 0; j < WIDE; j++)
        y[j] = b.at[k][column + j];
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < WIDE; j++)
            sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
}

template <int ROWS, int COLUMNS, int TALL, int WIDE>
static __global__ void __launch_bounds__(THREADS) gemm_f32(const f32_product p)
{
    static_assert(ROWS / TALL * (COLUMNS / WIDE) == THREADS, "of a block");
    const int a_items = ROWS * STEP / THREADS;
    const int b_items = COLUMNS * STEP / THREADS;
    __shared__ __align__(16) stage<ROWS> a[2];
    __shared__ __align__(16) stage<COLUMNS> b[2];
    int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    int row = threadIdx.x / (COLUMNS / WIDE) * TALL;
    int column = threadIdx.x % (COLUMNS / WIDE) * WIDE;
    float x[a_items], y[b_items], sum[TALL][WIDE];

    grid_begin();
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            int r = first_row + row + i, c = first_column + column + j;
            bool in = p.add && r < p.m && c < p.n;
            sum[i][j] = in ? p.out[(size_t)r * p.ldo + c] : 0.0f;
        }
    fetch<ROWS>(x, p.a, first_row, 0, p.k);
    fetch<COLUMNS>(y, p.b, first_column, 0, p.k);
    for (int from = 0, turn = 0; from < p.k; from += STEP, turn ^= 1) {
        put<ROWS>(a[turn], x, p.a);
        put<COLUMNS>(b[turn], y, p.b);
        __syncthreads(); // and the other stage was read by all
        if (from + STEP < p.k) {
            fetch<ROWS>(x, p.a, first_row, from + STEP, p.k);
            fetch<COLUMNS>(y, p.b, first_column, from + STEP, p.k);
        }
        // Elements after the end are left out, for adding 0 changes -0.
        if (from + STEP <= p.k) {
#pragma unroll
            for (int k = 0; k < STEP; k++)
                multiply<ROWS, COLUMNS>(sum, a[turn], b[turn], k, row, column);
        } else {
            for (int k = 0; k < p.k - from; k++)
                multiply<ROWS, COLUMNS>(sum, a[turn], b[turn], k, row, column);
        }
    }
#pragma unroll
    for (int i = 0; i < TALL; i++)
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            int r = first_row + row + i, c = first_column + column + j;
            if (r >= p.m || c >= p.n)
                continue;
            float v = sum[i][j];
            p.out[(size_t)r * p.ldo + c] = p.bias ? __fadd_rn(v, p.bias[c]) : v;
        }
}

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

template <int ROWS, int COLUMNS, int TALL, int WIDE>
static void launch(const f32_product &p, void *stream)
{
    dim3 grid((unsigned)ceil_div(p.n, COLUMNS), (unsigned)ceil_div(p.m, ROWS));
    launch_kernel(gemm_f32<ROWS, COLUMNS, TALL, WIDE>, grid, THREADS, 0,
                  BT_START_EARLY_IN_STEP, stream, p);
}

extern "C" bauta_status bt_cuda_gemm_f32(const bt_cuda_gemm_f32_args *g,
                                         void *stream, bauta_error *err)
{
    if (!g->m || !g->n)
        return BAUTA_OK;
    if (g->m > (size_t)INT_MAX / 2 || g->n > (size_t)INT_MAX / 2 ||
        g->k > (size_t)INT_MAX / 2 || g->m > (size_t)65535 * 128)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a product of %zu x %zu x %zu is too large", g->m, g->n,
                       g->k);
    f32_product p = { { g->a, g->lda, 1, (int)g->m },
                      { g->b, g->ldb, 1, (int)g->n },
                      g->out,
                      g->ldo,
                      g->bias,
                      (int)g->m,
                      (int)g->n,
                      (int)g->k,
                      g->add };
    if (g->form == BT_GEMM_TN)
        p.a = { g->a, 1, g->lda, (int)g->m };
    if (g->form != BT_GEMM_NT)
        p.b = { g->b, 1, g->ldb, (int)g->n };
    // Smaller tiles where large ones would leave most of the GPU idle.
    if (ceil_div(g->m, 128) * ceil_div(g->n, 128) >= 96 ||
        g->m > (size_t)65535 * 16)
        launch<128, 128, 8, 8>(p, stream);
    else if (g->m > 16)
        launch<64, 64, 4, 4>(p, stream);
    else
        launch<16, 64, 2, 2>(p, stream);
    cudaError_t error = cudaGetLastError();
    if (error)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "a float32 product did not start: %s",
                       cudaGetErrorString(error));
    return BAUTA_OK;
}
