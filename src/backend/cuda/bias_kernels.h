/* SPDX-License-Identifier: Apache-2.0 */
/* bias_kernels.h - what kernels with a bias need beside themselves: where
 * rows stand, before them, and the gradient of a table or of a tensor, after
 * them. */
#ifndef BT_CUDA_BIAS_KERNELS_H
#define BT_CUDA_BIAS_KERNELS_H

extern "C" {
#include "backend/cuda/bias.h"
#include "backend/cuda/plan.h"
}

/* Write the anchors of the plan's rows, if there are distances, or their
 * offsets in a tensor, and let the bias have them; `steps`: also what the steps
 * over queries need, in their order. A table is copied as its kernels want it,
 * but not for pages. */
extern "C" cudaError_t bt_cuda_launch_anchors(bt_cuda_bias *bias,
                                              bt_cuda_plan *plan, bool steps,
                                              cudaStream_t stream);

/* The gradient of a table is summed in float32 by SLOTS blocks of each head,
 * each of them over its share of the tiles in order, and then in float64 over
 * blocks in order. The shares follow from the plan alone. */
typedef struct dtable_params {
    bt_cuda_bias bias;
    const bt_loop_tile *tiles; /* over keys */
    const bt_loop_run *runs;
    const uint64_t *bits;
    const float *lse, *delta; /* (rows, heads) */
    const uint16_t *q, *k, *v, *dout;
    size_t q_token, q_head, k_token, k_head, v_token, v_head, o_token, o_head;
    float *sums;            /* (heads, slots, distances) */
    float *dtable;          /* (distances, heads) is added to */
    const int32_t *origins; /* (rows) of a tensor */
    float *dtensor;         /* is added to */
    int tile_count, groups; /* of 64 rows in a tile */
    int keys, heads, share, head_dim, slots;
} dtable_params;

/* Slots of a head for a plan of these tiles. */
extern "C" int bt_cuda_dtable_slots(int tile_count, int groups, int heads);
extern "C" cudaError_t bt_cuda_launch_dtable(const dtable_params *params,
                                             cudaStream_t stream);

/* The gradient of a tensor whose rows see at most so many keys. A block has 64
 * keys, counted from the origin, of one head, or of all heads if they share the
 * tensor; it adds what their queries contribute, tile by tile of the plan, the
 * heads of a tile together. So an element is added to by one block, in one
 * order. */
extern "C" cudaError_t bt_cuda_launch_dtensor(const dtable_params *params,
                                              size_t extent,
                                              cudaStream_t stream);

#endif
