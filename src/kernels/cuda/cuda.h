/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - masked attention on an NVIDIA GPU, seen from C.
 *
 * One kind of GPU so far: Hopper (sm_90a). Tensors are bfloat16 in the GPU's
 * memory, laid out as bauta_attention says; sums are float32. What the CPU
 * kernels promise of masks holds here too: a hidden key or value changes no
 * bit, an empty row gives 0 and -infinity, and a row's bits depend neither on
 * the tile it falls into nor on what lies beside its document. They are not
 * the CPU's bits: the tensor cores sum in an order of their own. Weights are
 * not normalised before they are summed, so values must stay below 2^90 in
 * magnitude, or an output may overflow. */
#ifndef BT_CUDA_H
#define BT_CUDA_H

#include "bauta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A plan in the GPU's memory, for one shape. It also holds what a launch
 * writes on the side, so it serves one launch at a time: launches that share
 * it must follow each other on one stream. */
typedef struct bt_cuda_plan bt_cuda_plan;

/* How many rows the tiles of a plan should have for this head size, to be
 * given to bt_plan_create; 0 when there is no kernel for it. Smaller tiles
 * give the same bits and are slower. */
size_t bt_cuda_tile_rows(size_t head_dim);

/* Compile a plan for the current device and the heads of `shape`. Neither is
 * referred to afterwards. */
bauta_status bt_cuda_plan_create(bt_cuda_plan **out, const bauta_plan *plan,
                                 const bauta_attention *shape,
                                 bauta_error *err);
void bt_cuda_plan_free(bt_cuda_plan *plan);

/* Make a plan fit for the backward pass, too; `source` is what it was compiled
 * from. */
bauta_status bt_cuda_plan_add_backward(bt_cuda_plan *plan,
                                       const bauta_plan *source,
                                       bauta_error *err);

/* bauta_attention_forward in bfloat16, on `stream` (a cudaStream_t; NULL is
 * the default one). All pointers are the device's; q, k, v and out must be
 * aligned to 16 bytes and their strides multiples of 8 elements. lse may be
 * NULL. Returns when the work is queued. */
bauta_status
bt_attention_forward_bf16_cuda(bt_cuda_plan *plan, const bauta_attention *shape,
                               const uint16_t *q, const uint16_t *k,
                               const uint16_t *v, uint16_t *out, float *lse,
                               void *stream, bauta_error *err);

/* bauta_attention_backward in bfloat16, on `stream`. out and lse are those of
 * the forward pass; dout lies like out, and dq, dk and dv like q, k and v. All
 * of them must be aligned to 16 bytes, but for lse. The plan needs
 * bt_cuda_plan_add_backward.
 *
 * Every sum has one fixed order: the same inputs give the same bits from run to
 * run. Those of a row or a key depend neither on how the plan is cut into tiles
 * nor on what lies beside its document. (Where a plan has only some of a mask's
 * rows, so have the sums over rows.) Weights and their gradients are rounded to
 * bfloat16 for the products with them; all sums are float32.
 *
 * A row that sees nothing gets dq 0, a key that nobody sees dk and dv 0. NaN or
 * infinity in a position that is hidden from a row or key changes no bit of its
 * gradients; where it is seen, they become NaN: a q, dout or k that is not
 * finite makes all gradients of those NaN who see it. Returns when the work is
 * queued. */
bauta_status bt_attention_backward_bf16_cuda(
    bt_cuda_plan *plan, const bauta_attention *shape, const uint16_t *q,
    const uint16_t *k, const uint16_t *v, const uint16_t *out, const float *lse,
    const uint16_t *dout, uint16_t *dq, uint16_t *dk, uint16_t *dv,
    void *stream, bauta_error *err);

#ifdef __cplusplus
}
#endif
#endif
