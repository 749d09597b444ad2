/* SPDX-License-Identifier: Apache-2.0 */
/* decode_launch.h - what the launches of the decoding kernels have in common:
 * checks, and the arguments. */
#ifndef BT_CUDA_DECODE_LAUNCH_H
#define BT_CUDA_DECODE_LAUNCH_H

extern "C" {
#include "base/error.h"
}
#include "backend/cuda/decode_load.h"
#include "backend/cuda/launch.h"

#include <cuda_runtime.h>

static size_t or_dense(size_t stride, size_t dense)
{
    return stride ? stride : dense;
}

/* Pages as a tensor map describes them: boxes of 64 keys of one head and page
 * and one panel of columns. */
static bauta_status encode(CUtensorMap *map, const bt_cuda_decode *decode,
                           const bt_cuda_pages *pages, const char *name,
                           const void *tensor, bauta_error *err)
{
    size_t d = decode->head_dim, token = or_dense(pages->token, d);
    size_t head = or_dense(pages->head, pages->page_keys * d);
    size_t page =
        or_dense(pages->page, decode->kv_heads * pages->page_keys * d);
    cuuint64_t sizes[4] = { d, pages->page_keys, decode->kv_heads,
                            pages->pages };
    cuuint64_t strides[3] = { token * 2, head * 2, page * 2 };
    cuuint32_t box[4] = { PANEL, TILE, 1, 1 };
    cuuint32_t steps[4] = { 1, 1, 1, 1 };

    if ((uintptr_t)tensor % 16 || token % 8 || head % 8 || page % 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s must be aligned to 16 bytes and its strides, %zu, "
                       "%zu and %zu, be multiples of 8",
                       name, page, head, token);
    CUresult result = decode->device.tensor_map_encode(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)tensor, sizes,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s of %zu pages with strides %zu, %zu and %zu is "
                       "nothing for the GPU's copy engine (%d)",
                       name, pages->pages, page, head, token, (int)result);
    return BAUTA_OK;
}

static bauta_status check_call(const bt_cuda_decode *decode,
                               const bauta_attention_shape *shape,
                               const bt_cuda_pages *pages, size_t kv_heads,
                               float scale, bauta_error *err)
{
    if (shape->heads != decode->heads || kv_heads != decode->kv_heads ||
        shape->head_dim != decode->head_dim ||
        (shape->value_dim && shape->value_dim != decode->head_dim))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the step is for %zu heads, %zu kv_heads and head_dim "
                       "%zu; the shape has %zu, %zu and %zu",
                       decode->heads, decode->kv_heads, decode->head_dim,
                       shape->heads, kv_heads, shape->head_dim);
    if (pages->page_keys != decode->page_keys || pages->pages < decode->pages)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the step reads page %zu of pages of %zu keys; there "
                       "are %zu of %zu",
                       decode->pages, decode->page_keys, pages->pages,
                       pages->page_keys);
    if (!(scale > 0.0f) || isinf(scale))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a scale of %g: the GPU kernels need a positive one",
                       (double)scale);
    return BAUTA_OK;
}

static bauta_status check_strides(const char *name, const void *tensor,
                                  size_t token, size_t head, bauta_error *err)
{
    if ((uintptr_t)tensor % 16 || token % 8 || head % 8)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s must be aligned to 16 bytes and its strides, %zu "
                       "and %zu, be multiples of 8",
                       name, token, head);
    return BAUTA_OK;
}

/* The arguments of a launch, but for those of its jobs (job_params). The maps
 * of pages are left out where no row sees anything. */
static bauta_status call_params(decode_params *p, const bt_cuda_decode *decode,
                                const bauta_attention_shape *shape,
                                const uint16_t *q, const bt_cuda_pages *pages,
                                uint16_t *out, float *lse, bauta_error *err)
{
    size_t d = decode->head_dim;
    float scale = shape->scale != 0.0f ? shape->scale : 1.0f / sqrtf((float)d);
    bauta_status status = check_call(
        decode, shape, pages, shape->kv_heads ? shape->kv_heads : shape->heads,
        scale, err);

    *p = {};
    p->q = q;
    p->out = out;
    p->lse = lse;
    p->q_head = or_dense(shape->q_head, d);
    p->q_token = or_dense(shape->q_token, decode->heads * d);
    p->out_head = or_dense(shape->out_head, d);
    p->out_token = or_dense(shape->out_token, decode->heads * d);
    p->scale = scale * 1.44269504088896341f;
    for (size_t keys = TILE; keys < decode->page_keys; keys *= 2)
        p->page_shift++;
    p->early_reads = pages->early_reads;
    if (!status)
        status = check_strides("q", q, p->q_token, p->q_head, err);
    if (!status)
        status = check_strides("out", out, p->out_token, p->out_head, err);
    // Rows that see nothing need no page, and the engine no empty tensor.
    if (!status && decode->pages)
        status = encode(&p->k, decode, pages, "k", pages->k, err);
    if (!status && decode->pages)
        status = encode(&p->v, decode, pages, "v", pages->v, err);
    if (!status && bt_cuda_biased(shape)) {
        status = bt_cuda_bias_init(&p->bias, shape, scale, err);
        if (!p->bias.positions && p->bias.last >= 0)
            p->bias.positions = decode->positions;
        if (p->bias.slopes || (p->bias.table && p->bias.last >= 0))
            p->bias.anchors = (const int32_t *)p->bias.positions;
    }
    return status;
}

/* Jobs of `parts` parts of a unit's output columns each. */
static void job_params(decode_params *p, const bt_cuda_decode *decode,
                       int parts)
{
    p->items = decode->items;
    p->tiles = decode->tiles;
    p->bits = decode->bits;
    p->tile_counter = decode->tile_counter;
    p->arrivals = decode->arrivals;
    p->partial = decode->partial;
    p->partial_base = (float2 *)decode->partial_base;
    p->lines = decode->list_lines;
    p->heads = (int)decode->heads;
    p->kv_heads = (int)decode->kv_heads;
    p->group = p->heads / p->kv_heads;
    p->head_splits = (int)bt_decode_head_splits((size_t)p->group);
    p->heads_per_split = (p->group + p->head_splits - 1) / p->head_splits;
    p->parts = parts;
    p->columns = p->kv_heads * p->head_splits * parts;
    p->count = decode->item_count * p->columns;
    p->unit_rows = (int)decode->unit_rows;
    p->head_dim = (int)decode->head_dim;
}

#endif
