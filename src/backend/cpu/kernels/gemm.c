/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - the reference of the matrix product: one chain per element. */
#include "backend/cpu/kernels/gemm.h"

#include <math.h>

static float weight(const bt_gemm *g, size_t p, size_t j)
{
    if (g->packed)
        return bt_packed_weight_at(g->packed, j, p);
    return g->trans_b ? g->b[j * g->ldb + p] : g->b[p * g->ldb + j];
}

static float chain(const bt_gemm *g, size_t i, size_t j)
{
    float s = g->add ? g->c[i * g->ldc + j] : 0.0f;
    for (size_t p = 0; p < g->k; p++) {
        float a = g->trans_a ? g->a[p * g->lda + i] : g->a[i * g->lda + p];
        s = fmaf(a, weight(g, p, j), s);
    }
    return s;
}

static float epilogue(const bt_gemm *g, size_t j, float s)
{
    if (g->packed && g->packed->scales)
        s *= g->packed->scales[j];
    if (g->bias)
        s += g->bias[j];
    return s;
}

void bt_gemm_columns_f32_c(const bt_gemm *g, size_t first, size_t count)
{
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = first; j < first + count; j++)
            g->c[i * g->ldc + j] = epilogue(g, j, chain(g, i, j));
}
