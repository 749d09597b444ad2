/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - a work list in the GPU's memory. */
#ifndef BT_CUDA_PLAN_H
#define BT_CUDA_PLAN_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/sweep.h"
#include "kernels/cuda/worklist.h"

/* The columns that the kernels compute for a head of this size: 64, 128, 192 or
 * 256; 0 when there is no kernel for it. */
static inline size_t bt_cuda_width(size_t head_dim)
{
    bool fits = head_dim > 0 && head_dim <= 256 && head_dim % 8 == 0;
    return fits ? (head_dim + 63) / 64 * 64 : 0;
}

/* Bytes of the redo notes of one item: one for each warp that computes. */
enum { BT_REDO_BYTES = 16 };

/* One side's list for the backward pass. */
typedef struct bt_cuda_sweeps {
    int tile_count, empty_count; /* tiles that see something, and nothing */
    int band;
    bt_sweep_tile *tiles;
    bt_sweep *sweeps;
    uint64_t *bits;
    uint32_t *ticket;
    unsigned char *redo; /* (tile_count * heads of the side, BT_REDO_BYTES) */
} bt_cuda_sweeps;

struct bt_cuda_plan {
    size_t rows, keys, heads, kv_heads, head_dim;
    int tile_count, empty_count; /* tiles that see something, and nothing */
    int band; /* heads that are worked on together, see plan.c */
    int multiprocessors;
    /* Device memory: one block, cut into these. */
    void *memory;
    bt_work_tile *tiles;
    bt_work_run *runs;
    uint64_t *bits;
    uint32_t *ticket;    /* items handed out so far */
    unsigned char *redo; /* (tile_count * heads, BT_REDO_BYTES) */
    bt_tensor_map_encode_fn *tensor_map_encode;
    /* For the backward pass, if it was asked for: a block of its own. */
    void *backward_memory;
    bt_cuda_sweeps over_keys, over_queries;
    size_t step_count;    /* over queries */
    bt_sweep_step *steps; /* (step_count) */
    float *delta;         /* (rows, heads) */
    float *known;         /* (heads, step_count, 2, BT_STEP) lse and delta */
    /* In five products: see backward_fused.h. */
    bool fused;
    size_t gap_count;
    bt_sweep_step *gaps; /* (gap_count) */
    int32_t *ranks;
    int *added;    /* (heads, step_count, 2) */
    int *bad;      /* (kv_heads) */
    float *dq_sum; /* (heads, step_count, BT_STEP * width) */
};

#ifdef __cplusplus
extern "C"
#endif
    /* Whether a shape is what the plan was made for, and its scale. */
    bauta_status
    bt_cuda_plan_fits(const bt_cuda_plan *plan, const bauta_attention *shape,
                      float *scale, bauta_error *err);

#endif
