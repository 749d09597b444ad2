/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.h - moving tiles: what the kernels build of hopper.h's instructions. */
#ifndef BT_CUDA_TILES_H
#define BT_CUDA_TILES_H

extern "C" {
#include "base/error.h"
}
#include "backend/cuda/hopper.h"
#include "backend/cuda/plan.h"

enum {
    GROUP = 128,     /* threads in a warpgroup */
    GROUP_ROWS = 64, /* rows of a warpgroup's product */
    PANEL = 64       /* columns of a swizzled panel */
};

/* A stage of a ring of `count` buffers, and the phase of its barriers. */
typedef struct pipeline_state {
    int index;
    uint32_t phase;
} pipeline_state;

BT_DEVICE void pipeline_advance(pipeline_state *r, int count)
{
    if (++r->index == count) {
        r->index = 0;
        r->phase ^= 1;
    }
}

template <int D, int ROWS>
BT_DEVICE void load_tile(uint16_t *to, const CUtensorMap *map, int head,
                         int token, uint64_t *full)
{
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
        tma_load_box(to + panel * ROWS * PANEL, map, panel * PANEL, head, token,
                     full);
}

/* Whether results of an item were not finite. */
BT_DEVICE bool item_is_bad(const unsigned char *nonfinite_fixup, int item)
{
    uint4 tile_info = ((const uint4 *)nonfinite_fixup)[item];
    return (tile_info.x | tile_info.y | tile_info.z | tile_info.w) != 0;
}

/* Which of the blocks that share the items a block is: it has every count-th
 * one. */
typedef struct block_share {
    int index, count;
} block_share;

BT_DEVICE block_share share_of_grid(void)
{
    return block_share{ (int)blockIdx.x, (int)gridDim.x };
}

/* The first call of a second kernel, when the first one is done: whether the
 * block has something to do, which is rare. The tile counter is ready for the
 * next launch. */
BT_DEVICE bool begin_fixup(const unsigned char *nonfinite_fixup, int items,
                           uint32_t *tile_counter, block_share share)
{
    bool bad = false;
    for (int i = share.index + threadIdx.x * share.count; i < items;
         i += blockDim.x * share.count)
        bad |= item_is_bad(nonfinite_fixup, i);
    if (share.index == 0 && threadIdx.x == 0)
        *tile_counter = 0;
    return __syncthreads_or(bad);
}

/* The tensor map of a (tokens, heads, head_dim) tensor: boxes of `rows` tokens,
 * one head and one panel of columns. Tokens after the last and columns from
 * head_dim on read as zero and are not written. */
static bauta_status encode(CUtensorMap *map, const bt_cuda_plan *plan,
                           const char *name, const uint16_t *tensor,
                           size_t tokens, size_t heads, size_t token,
                           size_t head, size_t rows, bauta_error *err)
{
    cuuint64_t sizes[3] = { plan->head_dim, heads, tokens };
    cuuint64_t strides[2] = { head * 2, token * 2 };
    cuuint32_t box[3] = { PANEL, 1, (cuuint32_t)rows };
    cuuint32_t steps[3] = { 1, 1, 1 };

    if ((uintptr_t)tensor % 16 || token % 8 || head % 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s must be aligned to 16 bytes and its strides, %zu "
                       "and %zu, be multiples of 8",
                       name, token, head);
    CUresult result = plan->tensor_map_encode(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)tensor, sizes,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s of %zu tokens with strides %zu and %zu is nothing "
                       "for the GPU's copy engine (%d)",
                       name, tokens, token, head, (int)result);
    return BAUTA_OK;
}

static size_t or_dense(size_t stride, size_t dense)
{
    return stride ? stride : dense;
}

#endif
