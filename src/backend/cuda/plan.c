/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - bringing a work list to the GPU. */
#include "backend/cuda/plan.h"

#include "backend/cuda/chunk.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/plan.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

enum {
    L2_BYTES = 32 << 20, /* of keys and values: well inside Hopper's L2 */
    PIECE = 256          /* alignment of the pieces of device memory */
};

size_t bt_cuda_tile_rows(size_t head_dim)
{
    size_t width = bt_cuda_width(head_dim);
    return width == 64 ? 192 : width ? 128 : 0;
}

/* Items are ordered by group of heads, then tile (longest first), then head of
 * the group. A group is as many heads as have keys and values that stay in the
 * L2 while its tiles read them repeatedly. */
int bt_cuda_l2_heads(size_t tokens, size_t head_dim, size_t group, size_t heads)
{
    size_t bytes = bt_size_mul(tokens, head_dim * 2 * 2);
    size_t l2_heads = bt_size_max(L2_BYTES / bt_size_max(bytes, 1), 1) * group;
    return (int)bt_size_min(l2_heads, heads);
}

static bauta_status check_shape(const bauta_plan *plan,
                                const bauta_attention_shape *shape,
                                size_t kv_heads, bauta_error *err)
{
    bauta_status status = bt_cuda_check_shape(shape, kv_heads, err);
    if (status)
        return status;
    if (bt_size_mul(plan->rows, shape->heads) > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu queries of %zu heads: the GPU kernels count in 32 "
                       "bits",
                       plan->rows, shape->heads);
    return BAUTA_OK;
}

/* A piece of device memory: what it holds at first (NULL: zeros), and where to
 * write its address. */
typedef struct piece {
    void *to;
    const void *from;
    size_t bytes;
} piece;

static piece piece_of(void *to, const void *from, size_t count, size_t each)
{
    return (piece){ to, from, bt_size_mul(count, each) };
}

/* Allocate one block for all pieces and fill them. */
static bauta_status upload(void **block, const piece *pieces, size_t count,
                           bauta_error *err)
{
    size_t size = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        size = bt_size_add(size, bt_size_round(pieces[i].bytes, PIECE));
    cudaError_t status = cudaMalloc(block, bt_size_max(size, PIECE));
    if (status) {
        *block = NULL;
        cudaGetLastError(); // reported; the next call starts without an error
        return bt_fail(err, bt_cuda_status(status), "%zu bytes on the GPU: %s",
                       size, cudaGetErrorString(status));
    }
    for (size_t i = 0; i < count && !status; i++) {
        void *to = (unsigned char *)*block + at;
        memcpy(pieces[i].to, &to, sizeof(to));
        if (pieces[i].from)
            status = cudaMemcpy(to, pieces[i].from, pieces[i].bytes,
                                cudaMemcpyHostToDevice);
        else
            status = cudaMemset(to, 0, pieces[i].bytes);
        at += bt_size_round(pieces[i].bytes, PIECE);
    }
    // Those who use it may have a stream that does not wait for this one.
    if (!status)
        status = cudaStreamSynchronize(NULL);
    if (status)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot copy a plan to the GPU: %s",
                       cudaGetErrorString(status));
    return BAUTA_OK;
}

size_t bt_cuda_chunk_acc_bytes(size_t head_dim)
{
    return bt_cuda_tile_rows(head_dim) * bt_cuda_width(head_dim) *
           sizeof(float);
}

static bauta_status upload_list(bt_cuda_plan *plan, const bt_worklist *list,
                                bauta_error *err)
{
    size_t bits = bt_size_mul(list->bits_count, list->tile_rows * 2);
    size_t items = bt_size_mul((size_t)plan->tile_count, plan->heads);
    size_t acc_blocks = list->chunked ? (size_t)plan->multiprocessors : 0;
    const piece pieces[] = {
        piece_of(&plan->chunk_acc, NULL, acc_blocks,
                 bt_cuda_chunk_acc_bytes(plan->head_dim)),
        piece_of(&plan->tile_counter, NULL, 1, sizeof(uint32_t)),
        piece_of(&plan->nonfinite_fixup, NULL, items, BT_FIXUP_BYTES),
        piece_of(&plan->tiles, list->tiles, list->tile_count,
                 sizeof(bt_work_tile)),
        piece_of(&plan->runs, list->runs, list->run_count, sizeof(bt_work_run)),
        piece_of(&plan->bits, list->bits, bits, sizeof(uint64_t)),
    };
    return upload(&plan->memory, pieces, BT_LEN(pieces), err);
}

bauta_status bt_cuda_plan_create(bt_cuda_plan **out, const bauta_plan *source,
                                 const bauta_attention_shape *shape,
                                 bauta_error *err)
{
    bt_worklist list = { 0 };
    bt_cuda_device device;
    bt_cuda_plan *plan = NULL;
    size_t kv_heads = shape->kv_heads ? shape->kv_heads : shape->heads;

    *out = NULL;
    bauta_status status = check_shape(source, shape, kv_heads, err);
    if (status)
        return status;
    const size_t row = 0;
    status =
        bt_worklist_init(&list, &source, &row, 1,
                         bt_cuda_tile_rows(shape->head_dim), BT_CHUNK, err);
    if (status)
        return status;
    plan = bt_alloc_zero(1, sizeof(*plan));
    if (!plan) {
        status = bt_fail_memory(err, "a plan for the GPU", sizeof(*plan));
        goto done;
    }
    plan->rows = list.rows;
    plan->keys = list.keys;
    plan->heads = shape->heads;
    plan->kv_heads = kv_heads;
    plan->head_dim = shape->head_dim;
    plan->tile_count = (int)(list.tile_count - list.empty_count);
    plan->empty_count = (int)list.empty_count;
    plan->l2_heads = bt_cuda_l2_heads(list.keys, plan->head_dim,
                                      plan->heads / kv_heads, plan->heads);
    status = bt_cuda_device_init(&device, err);
    if (status)
        goto done;
    plan->multiprocessors = device.multiprocessors;
    plan->tensor_map_encode = device.tensor_map_encode;
    status = upload_list(plan, &list, err);
    if (status)
        goto done;

    *out = plan;
    plan = NULL;
done:
    bt_worklist_release(&list);
    bt_cuda_plan_free(plan);
    return status;
}

void bt_cuda_plan_free(bt_cuda_plan *plan)
{
    if (!plan)
        return;
    cudaFree(plan->memory);
    cudaFree(plan->backward_memory);
    bt_free(plan);
}

/* ---- the backward pass ------------------------------------------------- */

/* The pieces of one side's list, for `heads` heads. */
enum { SIDE_PIECES = 5 };

static void side_pieces(piece *pieces, bt_cuda_loop_list *side,
                        const bt_loop_list *list, size_t heads)
{
    size_t words = bt_size_mul(list->bits_count, list->tile_rows);
    side->empty_count = (int)list->empty_count;
    side->tile_count = (int)(list->tile_count - list->empty_count);
    size_t items = bt_size_mul((size_t)side->tile_count, heads);
    pieces[0] = piece_of(&side->tile_counter, NULL, 1, sizeof(uint32_t));
    pieces[1] = piece_of(&side->nonfinite_fixup, NULL, items, BT_FIXUP_BYTES);
    pieces[2] = piece_of(&side->tiles, list->tiles, list->tile_count,
                         sizeof(bt_loop_tile));
    pieces[3] =
        piece_of(&side->runs, list->runs, list->run_count, sizeof(bt_loop_run));
    pieces[4] = piece_of(&side->bits, list->bits, words, sizeof(uint64_t));
}

static bauta_status upload_loop_lists(bt_cuda_plan *plan,
                                      const bt_loop_list *keys,
                                      const bt_loop_list *queries,
                                      bauta_error *err)
{
    piece pieces[2 * SIDE_PIECES + 8], *more = pieces + 2 * SIDE_PIECES;
    size_t rows = bt_size_mul(plan->rows, plan->heads);
    size_t steps = bt_size_mul(queries->step_count, plan->heads);
    size_t row_stats = bt_size_mul(steps, BT_STEP * 2);
    size_t width = bt_cuda_width(plan->head_dim);
    size_t sum = plan->fused ? width * BT_STEP : 0;
    plan->step_count = queries->step_count;
    plan->gap_count = queries->gap_count;
    side_pieces(pieces, &plan->over_keys, keys, plan->heads);
    side_pieces(pieces + SIDE_PIECES, &plan->over_queries, queries,
                plan->kv_heads);
    more[0] = piece_of(&plan->steps, queries->step_list, queries->step_count,
                       sizeof(bt_loop_step));
    more[1] = piece_of(&plan->delta, NULL, rows, sizeof(float));
    more[2] = piece_of(&plan->row_stats, NULL, row_stats, sizeof(float));
    more[3] = piece_of(&plan->gaps, queries->gaps, queries->gap_count,
                       sizeof(bt_loop_step));
    more[4] = piece_of(&plan->ranks, queries->ranks, queries->visit_count,
                       sizeof(int32_t));
    more[5] = piece_of(&plan->added, NULL, steps, 2 * sizeof(int));
    more[6] = piece_of(&plan->bad, NULL, plan->kv_heads, sizeof(int));
    more[7] =
        piece_of(&plan->dq_sum, NULL, bt_size_mul(steps, sum), sizeof(float));
    return upload(&plan->backward_memory, pieces, BT_LEN(pieces), err);
}

/* Rows of a tile of the backward kernels, of either side. */
static size_t backward_tile(size_t head_dim)
{
    size_t width = bt_cuda_width(head_dim);
    return width == 64 ? 192 : width == 256 ? 64 : 128;
}

/* In five products a step's dQ is added up in memory, too: with Q and dO twice
 * the bytes. But the tiles of a document that run at once follow each other at
 * a distance of about 1.5 steps, and fewer heads at once mean more of its
 * tiles: the last one should not wait for more than 2 % of its steps. */
static int fused_l2_heads(const bt_cuda_plan *plan, const bt_loop_list *queries)
{
    size_t group = plan->heads / plan->kv_heads;
    size_t blocks = (size_t)plan->multiprocessors;
    size_t fits = (size_t)bt_cuda_l2_heads(bt_size_mul(plan->rows, 2 * group),
                                           plan->head_dim, 1, plan->kv_heads);
    double steps = (double)queries->visit_count * (double)plan->heads *
                   (double)queries->chain_count;
    double near = 75.0 * (double)(blocks * blocks) / (steps + 1.0);
    size_t need =
        near < (double)plan->kv_heads ? (size_t)ceil(near) : plan->kv_heads;
    return (int)bt_size_min(bt_size_max(fits, need), plan->kv_heads);
}

bool bt_cuda_plan_fuse(bt_cuda_plan *plan)
{
    plan->fused =
        !plan->backward_memory && bt_cuda_width(plan->head_dim) == 128;
    return plan->fused;
}

bauta_status bt_cuda_plan_add_backward(bt_cuda_plan *plan,
                                       const bauta_plan *source,
                                       bauta_error *err)
{
    bt_loop_list keys = { 0 }, queries = { 0 };
    size_t group = plan->heads / plan->kv_heads;
    if (plan->backward_memory)
        return BAUTA_OK;
    bauta_status status = BAUTA_OK;
    if (!plan->fused)
        status = bt_loop_list_over_keys(&keys, source,
                                        backward_tile(plan->head_dim), err);
    if (!status)
        status = bt_loop_list_over_queries(&queries, source,
                                           backward_tile(plan->head_dim), err);
    if (!status)
        status = upload_loop_lists(plan, &keys, &queries, err);
    plan->over_keys.l2_heads = plan->l2_heads;
    plan->over_queries.l2_heads = bt_cuda_l2_heads(
        bt_size_mul(plan->rows, group), plan->head_dim, 1, plan->kv_heads);
    if (plan->fused)
        plan->over_queries.l2_heads = fused_l2_heads(plan, &queries);
    bt_loop_list_release(&keys);
    bt_loop_list_release(&queries);
    if (status) {
        cudaFree(plan->backward_memory);
        plan->backward_memory = NULL;
    }
    return status;
}

bauta_status bt_cuda_plan_fits(const bt_cuda_plan *plan,
                               const bauta_attention_shape *shape, float *scale,
                               bauta_error *err)
{
    size_t kv_heads = shape->kv_heads ? shape->kv_heads : shape->heads;
    size_t d = plan->head_dim;
    *scale = shape->scale != 0.0f ? shape->scale : 1.0f / sqrtf((float)d);
    if (shape->heads != plan->heads || kv_heads != plan->kv_heads ||
        shape->head_dim != d || (shape->value_dim && shape->value_dim != d))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the plan is for %zu heads, %zu kv_heads and head_dim "
                       "%zu; the shape has %zu, %zu and %zu",
                       plan->heads, plan->kv_heads, d, shape->heads, kv_heads,
                       shape->head_dim);
    if (!(*scale > 0.0f) || isinf(*scale))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "a scale of %g: the GPU kernels need a positive one",
                       (double)*scale);
    return BAUTA_OK;
}
