/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - work lists in the GPU's memory. */
#ifndef BT_CUDA_PLAN_H
#define BT_CUDA_PLAN_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/device.h"
#include "mask/loop_list.h"
#include "mask/work_list.h"

/* Bytes of the fix-up flags of one item: one for each warp that computes. */
enum { BT_FIXUP_BYTES = 16 };

/* One side's list for the backward pass. */
typedef struct bt_cuda_loop_list {
    int tile_count, empty_count; /* tiles that see something, and nothing */
    int l2_heads;
    bt_loop_tile *tiles;
    bt_loop_run *runs;
    uint64_t *bits;
    uint32_t *tile_counter;
    unsigned char
        *nonfinite_fixup; /* (tile_count * heads of the side, BT_FIXUP_BYTES) */
} bt_cuda_loop_list;

/* A range of the dense tiles and the order of its items: by group of heads,
 * then tile, then head of the group. A head is a key head with all the query
 * heads that share it, one after the other, or, of tiles that are split, a
 * query head. */
typedef struct bt_cuda_item_range {
    int item, tile, tile_count; /* the first item, the first tile */
    int heads, l2_heads;
    int inner; /* query heads of an item */
} bt_cuda_item_range;

struct bt_cuda_plan {
    size_t rows, keys, heads, kv_heads, head_dim;
    int first_key; /* that row 0 is aligned with, as in mask/plan.h */
    int tile_count, empty_count; /* tiles that see something, and nothing */
    int l2_heads; /* heads that are processed together, see plan.c */
    int multiprocessors;
    /* Device memory: a block that is cut into these, and one for the backward
     * pass. */
    bt_work_tile *tiles;
    bt_work_run *runs;
    uint64_t *bits;
    uint32_t *tile_counter;         /* items handed out so far */
    unsigned char *nonfinite_fixup; /* (tile_count * heads, BT_FIXUP_BYTES) */
    void *chunk_acc;  /* (multiprocessors) what the chunks of the tile that is
                    worked on came to so far, see forward_end.h */
    int32_t *anchors; /* (rows) of a bias, see bias.h; written by launches: of a
                         tensor the origins, */
    long long *offsets; /* (rows) and where they are in it */
    bt_tensor_map_encode_fn *tensor_map_encode;
    void *backward_memory; /* the latter; NULL: there is none */
    bt_cuda_loop_list over_keys, over_queries;
    size_t step_count;     /* over queries */
    bt_loop_step *steps;   /* (step_count) */
    int32_t *step_anchors; /* (step_count, BT_STEP); of a tensor the rows */
    float *delta;          /* (rows, heads) */
    float *row_stats;      /* (heads, step_count, 2, BT_STEP) lse and delta */
    /* Of dense documents, in five products: see backward_fused.h. */
    bt_cuda_loop_list dense; /* over queries, without tiles that see nothing */
    bt_cuda_item_range ranges[2]; /* of whole tiles, and of split ones */
    size_t dense_step_count, gap_count;
    int32_t *dense_steps; /* (dense_step_count) */
    bt_loop_step *gaps;   /* (gap_count) */
    int32_t *ranks;
    int32_t *step_visits; /* (step_count) */
    int *added;           /* (heads, step_count, 2), or 1 with heads of 64 */
    int *bad;             /* (kv_heads) */
    float *dq_sum;        /* (heads, step_count, BT_STEP * width) */
    int *met;             /* of split tiles, see backward_fused.h */
    float *head_sums;     /* likewise */
    void *table_sums;     /* of the gradient of a table, see bias_kernels.h */
    void *table_copy;     /* a table, likewise */
    size_t table_sums_size, table_copy_size;
    struct plan_host *host;    /* see plan.c */
    struct bt_cuda_pair *pair; /* of the forward pass; NULL: there is none */
};

/* Tensor maps of keys and values in pages: boxes of 64 keys of
 * one head and page and 64 columns. Block b of 64 keys of the plan's part i
 * (bt_work_tile.plan) is in page table[start[i] + (b >> page_shift)]. */
typedef struct bt_cuda_paged {
    CUtensorMap k, v;
    const int32_t *table, *start;
    const uint32_t *positions; /* (rows) of a bias */
    int page_shift;
} bt_cuda_paged;

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a shape is what the plan was made for, and its scale. */
bauta_status bt_cuda_plan_fits(const bt_cuda_plan *plan,
                               const bauta_attention_shape *shape, float *scale,
                               bauta_error *err);

/* Rows of a tile of the backward kernels, of either side. */
size_t bt_cuda_backward_rows(size_t head_dim);

/* The most keys from a row's origin to the last one that it sees. */
size_t bt_cuda_plan_extent(const bt_cuda_plan *plan);

/* How many heads are processed together, so that their keys and values stay in
 * the L2; and bytes of chunk_acc for each SM. */
int bt_cuda_l2_heads(size_t tokens, size_t head_dim, size_t group,
                     size_t heads);
size_t bt_cuda_chunk_acc_bytes(size_t head_dim);

/* bt_attention_forward_bf16_cuda over pages. */
bauta_status bt_attention_paged_bf16_cuda(bt_cuda_plan *plan,
                                          const bauta_attention_shape *shape,
                                          const uint16_t *q,
                                          const bt_cuda_paged *pages,
                                          uint16_t *out, float *lse,
                                          void *stream, bauta_error *err);

#ifdef __cplusplus
}
#endif

#endif
