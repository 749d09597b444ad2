/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - matrix products in bfloat16 on an NVIDIA GPU (Hopper), seen from C.
 *
 * Order of arithmetic. k is cut into chunks of a fixed length: BT_GEMM_CHUNK
 * for sums over features (NT, NN), and for sums over rows (TN) what
 * bt_gemm_row_chunk() says of the size of the weights. Inside a chunk the
 * tensor cores accumulate in float32, in steps of 16 of k in ascending order,
 * starting from 0; the first chunk's result is the total, and the results of
 * the others are added to it one after another with float32 additions. Missing
 * elements of the last step are zeros. Then, in float32 and each step rounded
 * once,
 *
 *     v = total
 *     v = v + bias[j]                      (bias)
 *     v = v rounded to bfloat16            (act, slope)
 *     pre[i][j] = v                        (pre, rounded to bfloat16)
 *     v = act(v)                           (act)
 *     v = v * act'(slope[i][j])            (slope)
 *     v = v + residual[i][j]               (residual)
 *     v = out[i][j] + v                    (accumulate)
 *     out[i][j] = v
 *
 * In TN several chunks that are shorter than BT_GEMM_ROW_CHUNK are added to
 * out[i][j] one after another instead (accumulate), so that dW of a batch in
 * parts of that many rows is the dW of the whole batch.
 *
 * where act and act' are those of bt_cuda_act() and bt_cuda_act_backward(): a
 * product that ends with an activation has the bits of the two operations one
 * after the other.
 *
 * So an element of the result depends on a row of each operand and on nothing
 * else: not on m and n (but in TN, where these are the shape of the weights),
 * on the row's place, on tile shapes, on how many blocks share the work or on
 * the GPU's size. gemm_reference.cu is this order and no more; every kernel
 * gives its bits. */
#ifndef BT_CUDA_GEMM_H
#define BT_CUDA_GEMM_H

#include "backend/cuda/chunk.h"
#include "backend/cuda/ops.h"
#include "backend/op_types.h"
#include "bauta.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    BT_GEMM_SMALL_ROWS = 64, /* up to here m counts as small */
    BT_GEMM_TAKES_ROWS = 8,  /* up to here a norm or gate is taken along */
    BT_GEMM_ZEROS = 64 << 10 /* bytes: see bt_cuda_gemm_workspace */
};

/* out (m, n) of k terms, and how the operands lie in memory. For a layer with
 * weights (outputs, inputs): */
typedef enum bt_gemm_form {
    BT_GEMM_NT, /* a (m, k), b (n, k): y = x W^T */
    BT_GEMM_NN, /* a (m, k), b (k, n): dx = dy W */
    BT_GEMM_TN  /* a (k, m), b (k, n): dW = dy^T x */
} bt_gemm_form;

/* All pointers are the device's, aligned to 16 bytes. A leading stride is the
 * distance of two rows in elements, a multiple of 8, and at least the row's
 * length; 0 stands for the length itself. m, n and k are any numbers, also 0:
 * the total of nothing is 0. Tensors must not overlap, except that out may be
 * residual. */
typedef struct bt_cuda_gemm_args {
    bt_gemm_form form;
    size_t m, n, k;
    const uint16_t *a, *b; /* bfloat16 */
    size_t lda, ldb;
    void *out; /* bfloat16, or float32 with out_f32 */
    size_t ldo;
    bool out_f32;
    bool accumulate;      /* add to out; needs out_f32 */
    const uint16_t *bias; /* (n), or NULL */
    bool has_act;
    bt_act act; /* with has_act or slope */
    /* (m, n) each, or NULL; with leading stride ldo unless given. */
    uint16_t *pre;            /* written: what act was applied to */
    const uint16_t *slope;    /* read: where act's slope is taken */
    const uint16_t *residual; /* read */
    size_t ld_pre, ld_slope, ld_residual;
    /* b does not depend on the kernels queued before on this stream, so it may
     * be read before they end: weights while nothing trains them. */
    bool b_ready;
    /* a is the result of a norm or of a gated activation which the product
     * carries out first, with the bits of bt_cuda_norm() and bt_cuda_act() and
     * all that they write; at most one of them. See bt_cuda_gemm_takes(). */
    const bt_cuda_norm_args *norm;
    const bt_cuda_act_args *gate;
    /* A gated activation of the result, which the product carries out last,
     * with the bits of bt_cuda_act(): the first and the second half of the
     * columns are gate and factor, or the other way round. See
     * bt_cuda_gemm_ends(). */
    const bt_cuda_act_args *end_gate;
} bt_cuda_gemm_args;

/* Whether there is a kernel that carries out norm or gate, too: for few rows
 * that all blocks may compute, once more each, and weights that are ready. */
bool bt_cuda_gemm_takes(const bt_cuda_gemm_args *product);

/* Whether there is a kernel that carries out end_gate, too; and whether it is
 * worth while to wait for it, before it is known. */
bool bt_cuda_gemm_ends(const bt_cuda_gemm_args *product);
bool bt_cuda_gemm_may_end(const bt_cuda_gemm_args *product);

/* Whether the product takes its activation or slope along: few rows, or sums
 * of one chunk, whose ends other sums hide. Elsewhere two operations are faster
 * or it is not supported. */
bool bt_cuda_gemm_fuses(const bt_cuda_gemm_args *product);

/* Memory that lets products of few tiles use the whole GPU: chunks go to
 * different blocks, and totals rest here. Any size is right, also 0; less than
 * this is slower. One workspace serves the products of one stream. Its first
 * BT_GEMM_ZEROS bytes must be zero before its first use; every product leaves
 * them so. */
size_t bt_cuda_gemm_workspace(const bt_cuda_gemm_args *product);

/* Queue the product on `stream` (a cudaStream_t; NULL is the default one), for
 * the current device. workspace may be NULL; else it is aligned to 16 bytes. */
bauta_status bt_cuda_gemm(const bt_cuda_gemm_args *product, void *workspace,
                          size_t workspace_bytes, void *stream,
                          bauta_error *err);

/* The same by a plain kernel, one warp to 16 x 8 elements: slow, for checks. */
bauta_status bt_cuda_gemm_reference(const bt_cuda_gemm_args *product,
                                    void *stream, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
