/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_reference.cu - the order of arithmetic of products, and no more: one
 * warp computes 16 x 8 elements with mma.sync, straight from memory. It defines
 * the bits that all other kernels give. */
#include "backend/cuda/gemm_end.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/warp.h"

#include <cuda_runtime_api.h>

typedef struct operand {
    const uint16_t *at;
    size_t row, k; /* strides */
    int rows;
} operand;

BT_DEVICE uint32_t element(const operand &o, int row, int k, int all)
{
    return row < o.rows && k < all ? o.at[row * o.row + k * o.k] : 0;
}

BT_DEVICE uint32_t two_of_k(const operand &o, int row, int k, int all)
{
    return element(o, row, k, all) | element(o, row, k + 1, all) << 16;
}

static __global__ void __launch_bounds__(32)
    gemm_reference(operand a, operand b, int k, int chunk, bool onto,
                   bt_gemm_end end)
{
    int lane = threadIdx.x, g = lane / 4, t = lane % 4 * 2;
    int row = blockIdx.y * 16 + g, column = blockIdx.x * 8;
    float total[4] = { 0, 0, 0, 0 };
    for (int j = 0; j < 4 && onto; j++)
        if (row + j / 2 * 8 < end.m && column + t + j % 2 < end.n)
            total[j] =
                ((const float *)
                     end.out)[(row + j / 2 * 8) * end.ldo + column + t + j % 2];
    for (int from = 0; from < k; from += chunk) {
        float sum[4] = { 0, 0, 0, 0 };
        for (int i = from; i < min(from + chunk, k); i += 16) {
            uint32_t x[4] = { two_of_k(a, row, i + t, k),
                              two_of_k(a, row + 8, i + t, k),
                              two_of_k(a, row, i + t + 8, k),
                              two_of_k(a, row + 8, i + t + 8, k) };
            uint32_t y[2] = { two_of_k(b, column + g, i + t, k),
                              two_of_k(b, column + g, i + t + 8, k) };
            mma_16816(sum, x, y);
        }
        for (int j = 0; j < 4; j++)
            total[j] = from || onto ? __fadd_rn(total[j], sum[j]) : sum[j];
    }
    end.accumulate = end.accumulate && !onto;
    for (int half = 0; half < 2; half++)
        if (row + half * 8 < end.m && column + t < end.n)
            end_two(end, &total[half * 2], row + half * 8, column + t);
}

extern "C" int bt_gemm_plain(const bt_cuda_gemm_args *p, const bt_gemm_end *end,
                             int chunk, bool onto, void *stream)
{
    operand a = { p->a, p->lda, 1, (int)p->m };
    operand b = { p->b, p->ldb, 1, (int)p->n };
    if (p->form == BT_GEMM_TN)
        a = { p->a, 1, p->lda, (int)p->m };
    if (p->form != BT_GEMM_NT)
        b = { p->b, 1, p->ldb, (int)p->n };
    dim3 grid((unsigned)((p->n + 7) / 8), (unsigned)((p->m + 15) / 16));
    return launch_kernel(gemm_reference, grid, 32, 0, BT_START_AFTER, stream, a,
                         b, (int)p->k, chunk, onto, *end);
}
