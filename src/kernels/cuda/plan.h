/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - a work list in the GPU's memory. */
#ifndef BT_CUDA_PLAN_H
#define BT_CUDA_PLAN_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/worklist.h"

/* Bytes of the redo notes of one item: one for each warp that computes. */
enum { BT_REDO_BYTES = 16 };

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
};

#endif
