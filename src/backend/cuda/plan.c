/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - making work lists, and bringing them to the GPU.
 *
 * The device's memory is a block for each pass: first what must be zero, then
 * the lists, both of which are put together in pinned memory and copied by one
 * call (between two, the GPU would wait for the copy engine once more), then
 * what only the kernels write. Lists, pinned memory and the blocks grow to
 * what they needed most and are used again. */
#include "backend/cuda/plan.h"

#include "backend/cuda/bias.h"
#include "backend/cuda/chunk.h"
#include "backend/cuda/step_graph.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

enum {
    L2_BYTES = 16 << 20, /* of keys and values: a third of Hopper's L2 */
    PIECE = 256          /* alignment of the pieces of device memory */
};

/* Memory of a pass on the device, and where it is put together. */
typedef struct plan_block {
    void *memory;
    size_t capacity;
    unsigned char *pinned;
    size_t pinned_capacity;
    cudaEvent_t copied; /* the pinned memory was read */
} plan_block;

/* What of a plan is on the host. */
typedef struct plan_host {
    bool backward;
    bool biased;
    bool incomplete; /* the lists of the backward pass are not made yet */
    size_t most;     /* rows of a tile */
    size_t dense_queries;
    bt_bands bands;
    bt_bands whole; /* all rows of the mask, if the plan has some */
    bt_worklist work;
    bt_loop_list keys, queries;
    bt_loop_list dense; /* over queries, see has_dense_list() */
    plan_block forward_block, backward_block;
    bt_cuda_pair pair; /* of the forward pass */
} plan_host;

size_t bt_cuda_tile_rows(size_t head_dim)
{
    size_t width = bt_cuda_width(head_dim);
    return width == 64 ? 192 : width ? 128 : 0;
}

/* Items are ordered by group of heads, then tile, then head of the group. Where
 * all tiles are short they stand by row, and a group is all heads. Otherwise
 * they stand longest first, and a group is as many heads as have keys and
 * values that stay in the L2 while its tiles read them repeatedly. */
int bt_cuda_l2_heads(size_t tokens, size_t head_dim, size_t group, size_t heads)
{
    size_t bytes = bt_size_mul(tokens, head_dim * 2 * 2);
    size_t l2_heads = bt_size_max(L2_BYTES / bt_size_max(bytes, 1), 1) * group;
    return (int)bt_size_min(l2_heads, heads);
}

/* ---- creating ---------------------------------------------------------- */

bauta_status bt_cuda_plan_create(bt_cuda_plan **out,
                                 const bauta_attention_shape *shape,
                                 bool backward, bauta_error *err)
{
    bt_cuda_device device;
    size_t kv_heads = shape->kv_heads ? shape->kv_heads : shape->heads;

    *out = NULL;
    bauta_status status = bt_cuda_check_shape(shape, kv_heads, err);
    if (!status)
        status = bt_cuda_device_init(&device, err);
    if (status)
        return status;
    bt_cuda_plan *plan = bt_alloc_zero(1, sizeof(*plan));
    plan_host *host = bt_alloc_zero(1, sizeof(*host));
    if (!plan || !host) {
        bt_free(plan);
        bt_free(host);
        return bt_fail_memory(err, "a plan for the GPU", sizeof(*host));
    }
    plan->heads = shape->heads;
    plan->kv_heads = kv_heads;
    plan->head_dim = shape->head_dim;
    plan->multiprocessors = device.multiprocessors;
    plan->tensor_map_encode = device.tensor_map_encode;
    plan->host = host;
    plan->pair = &host->pair;
    host->backward = backward;
    host->biased = bt_cuda_biased(shape);
    // The kernel for dense documents knows no bias.
    bt_cuda_plan_set_dense(
        plan, host->biased ? SIZE_MAX : bt_cuda_dense_queries(plan->head_dim));
    *out = plan;
    return BAUTA_OK;
}

static void block_release(plan_block *block)
{
    cudaFree(block->memory);
    if (block->copied) {
        cudaEventSynchronize(block->copied);
        cudaEventDestroy(block->copied);
    }
    cudaFreeHost(block->pinned);
}

void bt_cuda_plan_free(bt_cuda_plan *plan)
{
    if (!plan)
        return;
    plan_host *host = plan->host;
    bt_cuda_step_leave();
    bt_cuda_pair_release(&host->pair);
    block_release(&host->forward_block);
    block_release(&host->backward_block);
    cudaFree(plan->table_sums);
    cudaFree(plan->table_copy);
    bt_bands_release(&host->bands);
    bt_bands_release(&host->whole);
    bt_worklist_release(&host->work);
    bt_loop_list_release(&host->keys);
    bt_loop_list_release(&host->queries);
    bt_loop_list_release(&host->dense);
    bt_free(host);
    bt_free(plan);
}

size_t bt_cuda_plan_extent(const bt_cuda_plan *plan)
{
    const bt_bands *bands = &plan->host->bands;
    size_t most = 0;
    for (size_t i = 0; i < bands->origin_count; i++)
        most = bt_size_max(most,
                           bands->origins[i].key_end - bands->origins[i].key);
    return most;
}

size_t bt_cuda_dense_queries(size_t head_dim)
{
    static const size_t queries[] = { 1024, 3072, 2048, 512 };
    return queries[bt_cuda_width(head_dim) / 64 - 1];
}

size_t bt_cuda_split_rows(size_t head_dim, size_t dense_queries)
{
    return bt_size_mul(dense_queries, bt_cuda_width(head_dim) == 256 ? 8 : 2);
}

void bt_cuda_plan_set_dense(bt_cuda_plan *plan, size_t queries)
{
    plan->host->dense_queries = queries;
}

/* ---- the lists --------------------------------------------------------- */

size_t bt_cuda_backward_rows(size_t head_dim)
{
    size_t width = bt_cuda_width(head_dim);
    return width == 64 ? 192 : width == 256 ? 64 : 128;
}

/* Find out which documents are dense, and which of these are split. */
static bauta_status mark_dense(const bt_cuda_plan *plan, const bauta_mask *mask,
                               bauta_error *err)
{
    plan_host *host = plan->host;
    size_t queries = bauta_mask_queries(mask);
    bool all = host->bands.rows == queries;
    bool split =
        plan->heads > plan->kv_heads && bt_cuda_width(plan->head_dim) > 64;
    size_t split_rows =
        split ? bt_cuda_split_rows(plan->head_dim, host->dense_queries)
              : SIZE_MAX;
    bauta_status status = BAUTA_OK;
    if (host->dense_queries == SIZE_MAX)
        return BAUTA_OK;
    if (!all)
        status = bt_bands_read(&host->whole, mask, 0, queries, err);
    if (!status)
        bt_bands_mark_dense(&host->bands, all ? &host->bands : &host->whole,
                            host->dense_queries, split_rows);
    return status;
}

/* The order of tiles whose length is counted in units of `rows` rows of the
 * other side and that read two tensors of `heads` heads there: by row if all
 * that a tile reads stays in the L2. As much work as one of the longest items
 * for each multiprocessor, if an item is a key head, lets all end together. dK
 * and dV begin with the rows that dQ read last. */
static bt_tile_order order_of(const bt_cuda_plan *plan, size_t rows,
                              size_t heads, bool descending)
{
    size_t bytes = bt_size_mul(rows * heads, plan->head_dim * 2 * 2);
    size_t items = (size_t)plan->multiprocessors;
    return (bt_tile_order){ .short_length = L2_BYTES / bytes,
                            .tail = (items - 1) / plan->kv_heads + 1,
                            .descending = descending };
}

/* The tiles of dense documents are in the list over queries, but with heads of
 * 256 in one of their own, for these have 128 rows and others 64. */
static bool has_dense_list(const bt_cuda_plan *plan)
{
    return bt_cuda_width(plan->head_dim) == 256;
}

static const bt_loop_list *dense_list(const bt_cuda_plan *plan)
{
    return has_dense_list(plan) ? &plan->host->dense : &plan->host->queries;
}

static size_t dense_rows(const bt_cuda_plan *plan)
{
    size_t rows = bt_cuda_backward_rows(plan->head_dim);
    return has_dense_list(plan) ? 2 * rows : rows;
}

/* Split tiles, if there are dense ones. */
static size_t split_count(const bt_cuda_plan *plan)
{
    return plan->dense_step_count ? dense_list(plan)->split_count : 0;
}

static bauta_status make_forward_lists(const bt_cuda_plan *plan,
                                       bauta_error *err)
{
    plan_host *host = plan->host;
    bauta_status status = bt_worklist_begin(
        &host->work, bt_cuda_tile_rows(plan->head_dim), BT_FORWARD_CHUNK, err);
    if (!status)
        status =
            bt_worklist_add(&host->work, &host->bands, host->most, 0, 0, err);
    return status
               ? status
               : bt_worklist_end(&host->work,
                                 order_of(plan, BT_PAIR, plan->kv_heads, false),
                                 err);
}

static bauta_status make_backward_lists(const bt_cuda_plan *plan,
                                        bauta_error *err)
{
    plan_host *host = plan->host;
    size_t tile = bt_cuda_backward_rows(plan->head_dim);
    bt_tile_order order = order_of(plan, BT_STEP, plan->kv_heads, false);
    // A bias has a gradient that is summed in the order of this list, and the
    // shares of its blocks are even only if lengths are sorted.
    if (host->biased)
        order = (bt_tile_order){ 0 };
    bauta_status status = bt_loop_list_over_keys(&host->keys, &host->bands,
                                                 host->most, tile, order, err);
    order = order_of(plan, BT_STEP, plan->heads, true);
    if (!status)
        status = bt_loop_list_over_queries(&host->queries, &host->bands, tile,
                                           order, err);
    if (!status && host->queries.dense_count && has_dense_list(plan))
        status = bt_loop_list_over_queries(&host->dense, &host->bands,
                                           dense_rows(plan), order, err);
    return status;
}

/* In five products a step's dQ is added up in memory, too: with Q and dO twice
 * the bytes. But the tiles of a document that run at once follow each other at
 * a distance of about 1.5 steps, and of 2 with heads of 64, whose steps are
 * shorter; and fewer heads at once mean more of its tiles: the last one should
 * not wait for more than 1.25 % of its steps. Heads are divided evenly, for a
 * few that are left alone at the end would keep few multiprocessors busy.
 * `heads`: of the items, each with `group` query heads. */
static int dense_l2_heads(const bt_cuda_plan *plan, size_t group, size_t heads)
{
    const bt_loop_list *list = dense_list(plan);
    size_t blocks = (size_t)plan->multiprocessors;
    if (bt_cuda_width(plan->head_dim) > 128)
        blocks /= 2; // a tile takes two
    size_t rows = bt_size_mul(plan->dense_step_count, BT_STEP);
    size_t fits = (size_t)bt_cuda_l2_heads(bt_size_mul(rows, 2 * group),
                                           plan->head_dim, 1, heads);
    double steps = (double)list->dense_visits * (double)plan->heads *
                   (double)list->chain_count;
    double distance = bt_cuda_width(plan->head_dim) == 64 ? 2.0 : 1.5;
    double near = distance * 80.0 * (double)(blocks * blocks) / (steps + 1.0);
    size_t need = near < (double)heads ? (size_t)ceil(near) : heads;
    size_t rounds = heads / bt_size_min(bt_size_max(fits, need), heads);
    return (int)((heads + rounds - 1) / rounds);
}

/* Items of dense tiles [tile, end) from `item` on. */
static bt_cuda_item_range items_of(const bt_cuda_plan *plan, int item, int tile,
                                   int end, size_t inner)
{
    size_t heads = plan->heads / inner;
    return (bt_cuda_item_range){ .item = item,
                                 .tile = tile,
                                 .tile_count = end - tile,
                                 .heads = (int)heads,
                                 .l2_heads = dense_l2_heads(plan, inner, heads),
                                 .inner = (int)inner };
}

static void describe_dense(bt_cuda_plan *plan)
{
    const bt_loop_list *list = dense_list(plan);
    int end = (int)(plan->dense_step_count ? list->dense_count : 0);
    int split = end - (int)split_count(plan);
    plan->dense.tile_count = end;
    plan->ranges[0] = items_of(plan, 0, 0, split, plan->heads / plan->kv_heads);
    plan->ranges[1] =
        items_of(plan, split * (int)plan->kv_heads, split, end, 1);
}

static void describe_side(bt_cuda_loop_list *side, const bt_loop_list *list)
{
    side->empty_count = (int)list->empty_count;
    side->tile_count =
        (int)(list->tile_count - list->empty_count - list->dense_count);
}

/* The heads of a group, for tiles in this order. */
static int heads_at_once(const bt_cuda_plan *plan, const bt_tile_sort *sort,
                         size_t tokens, size_t group, size_t heads)
{
    return sort->by_row
               ? (int)heads
               : bt_cuda_l2_heads(tokens, plan->head_dim, group, heads);
}

/* All numbers of the plan that follow from its lists. */
static void describe_forward(bt_cuda_plan *plan)
{
    const bt_worklist *work = &plan->host->work;
    size_t group = plan->heads / plan->kv_heads;
    plan->rows = work->rows;
    plan->keys = work->keys;
    plan->tile_count = (int)(work->tile_count - work->empty_count);
    plan->empty_count = (int)work->empty_count;
    plan->l2_heads =
        heads_at_once(plan, &work->sort, plan->keys, group, plan->heads);
}

static void describe_backward(bt_cuda_plan *plan)
{
    const plan_host *host = plan->host;
    size_t group = plan->heads / plan->kv_heads;
    describe_side(&plan->over_keys, &host->keys);
    describe_side(&plan->over_queries, &host->queries);
    plan->step_count = host->queries.step_count;
    plan->dense_step_count = host->queries.dense_step_count;
    plan->gap_count = host->queries.gap_count;
    plan->over_keys.l2_heads =
        heads_at_once(plan, &host->keys.sort, plan->keys, group, plan->heads);
    plan->over_queries.l2_heads =
        heads_at_once(plan, &host->queries.sort, bt_size_mul(plan->rows, group),
                      1, plan->kv_heads);
    describe_dense(plan);
}

/* ---- the device's memory ----------------------------------------------- */

/* A piece of device memory: what is copied to it, if anything, and where to
 * write its address. */
typedef struct piece {
    void *to;
    const void *from;
    size_t bytes;
} piece;

enum { PIECES_MOST = 32 };

/* Pieces in their order, and where those that are zero and those that are
 * copied end. */
typedef struct layout {
    piece pieces[PIECES_MOST];
    size_t count;
    size_t size, zeros, copied; /* bytes */
} layout;

static void add(layout *l, void *to, const void *from, size_t count,
                size_t each)
{
    size_t bytes = bt_size_mul(count, each);
    assert(l->count < PIECES_MOST);
    l->pieces[l->count++] = (piece){ to, from, bytes };
    l->size = bt_size_add(l->size, bt_size_round(bytes, PIECE));
}

size_t bt_cuda_chunk_acc_bytes(size_t head_dim)
{
    return bt_cuda_tile_rows(head_dim) * bt_cuda_width(head_dim) *
           sizeof(float);
}

static void lay_forward(layout *l, bt_cuda_plan *plan)
{
    const bt_worklist *work = &plan->host->work;
    size_t blocks = work->chunked ? (size_t)plan->multiprocessors : 0;
    add(l, &plan->tile_counter, NULL, 1, sizeof(uint32_t));
    add(l, &plan->nonfinite_fixup, NULL,
        bt_size_mul((size_t)plan->tile_count, plan->heads), BT_FIXUP_BYTES);
    l->zeros = l->size;
    add(l, &plan->tiles, work->tiles, work->tile_count, sizeof(bt_work_tile));
    add(l, &plan->runs, work->runs, work->run_count, sizeof(bt_work_run));
    add(l, &plan->bits, work->bits,
        bt_size_mul(work->bits_count, work->tile_rows * 2), sizeof(uint64_t));
    l->copied = l->size;
    add(l, &plan->chunk_acc, NULL, blocks,
        bt_cuda_chunk_acc_bytes(plan->head_dim));
    add(l, &plan->anchors, NULL, plan->rows, sizeof(int32_t));
    add(l, &plan->offsets, NULL, plan->rows, sizeof(long long));
}

static void add_backward_zeros(layout *l, bt_cuda_plan *plan)
{
    bt_cuda_loop_list *side[] = { &plan->over_keys, &plan->over_queries };
    const size_t heads[] = { plan->heads, plan->kv_heads };
    size_t steps = bt_size_mul(plan->step_count, plan->heads);
    size_t width = bt_cuda_width(plan->head_dim);
    for (size_t i = 0; i < 2; i++) {
        add(l, &side[i]->tile_counter, NULL, 1, sizeof(uint32_t));
        add(l, &side[i]->nonfinite_fixup, NULL,
            bt_size_mul((size_t)side[i]->tile_count, heads[i]), BT_FIXUP_BYTES);
    }
    add(l, &plan->dense.tile_counter, NULL, 1, sizeof(uint32_t));
    add(l, &plan->added, NULL, plan->dense_step_count ? steps : 0,
        (width > 64 ? 2 : 1) * sizeof(int));
    // Of a warp's 16 rows; with large heads, other warps have those of dV.
    add(l, &plan->met, NULL, bt_size_mul(split_count(plan), plan->heads),
        dense_rows(plan) / (width > 128 ? 8 : 16) * sizeof(int));
    l->zeros = l->size;
}

static void add_side(layout *l, bt_cuda_loop_list *side,
                     const bt_loop_list *list)
{
    add(l, &side->tiles, list->tiles, list->tile_count, sizeof(bt_loop_tile));
    add(l, &side->runs, list->runs, list->run_count, sizeof(bt_loop_run));
    add(l, &side->bits, list->bits,
        bt_size_mul(list->bits_count, list->tile_rows), sizeof(uint64_t));
}

static void add_backward_lists(layout *l, bt_cuda_plan *plan)
{
    const bt_loop_list *queries = &plan->host->queries;
    const bt_loop_list *dense = dense_list(plan);
    add_side(l, &plan->over_keys, &plan->host->keys);
    add_side(l, &plan->over_queries, queries);
    add(l, &plan->steps, queries->step_list, queries->step_count,
        sizeof(bt_loop_step));
    add(l, &plan->gaps, queries->gaps, queries->gap_count,
        sizeof(bt_loop_step));
    if (queries->dense_count) {
        if (has_dense_list(plan))
            add_side(l, &plan->dense, dense);
        add(l, &plan->ranks, dense->ranks, dense->visit_count, sizeof(int32_t));
        add(l, &plan->step_visits, dense->step_visits, dense->step_count,
            sizeof(int32_t));
    }
    add(l, &plan->dense_steps, queries->dense_steps, queries->dense_step_count,
        sizeof(int32_t));
    l->copied = l->size;
}

static void lay_backward(layout *l, bt_cuda_plan *plan)
{
    size_t steps = bt_size_mul(plan->step_count, plan->heads);
    size_t sum =
        plan->dense_step_count ? bt_cuda_width(plan->head_dim) * BT_STEP : 0;
    size_t group = plan->heads / plan->kv_heads;
    add_backward_zeros(l, plan);
    add_backward_lists(l, plan);
    add(l, &plan->step_anchors, NULL, bt_size_mul(plan->step_count, BT_STEP),
        sizeof(int32_t));
    add(l, &plan->delta, NULL, bt_size_mul(plan->rows, plan->heads),
        sizeof(float));
    add(l, &plan->row_stats, NULL, bt_size_mul(steps, BT_STEP * 2),
        sizeof(float));
    add(l, &plan->bad, NULL, plan->kv_heads, sizeof(int));
    add(l, &plan->dq_sum, NULL, bt_size_mul(steps, sum), sizeof(float));
    add(l, &plan->head_sums, NULL,
        bt_size_mul(split_count(plan), plan->kv_heads * ((group + 1) / 2)),
        2 * dense_rows(plan) * bt_cuda_width(plan->head_dim) * sizeof(float));
}

static bauta_status device_error(cudaError_t status, size_t bytes,
                                 bauta_error *err)
{
    cudaGetLastError(); // reported; the next call starts without an error
    return bt_fail(err, bt_cuda_status(status), "%zu bytes on the GPU: %s",
                   bytes, cudaGetErrorString(status));
}

/* Room for `size` bytes on the device and `copied` bytes of pinned memory, and,
 * so that batches may differ, a quarter more. */
static bauta_status reserve(plan_block *block, size_t size, size_t copied,
                            bauta_error *err)
{
    cudaError_t status = cudaSuccess;
    if (!block->copied)
        status =
            cudaEventCreateWithFlags(&block->copied, cudaEventDisableTiming);
    if (status) {
        block->copied = NULL;
        return device_error(status, size, err);
    }
    if (!block->memory || size > block->capacity) {
        size = bt_size_add(size, size / 4 + PIECE);
        cudaFree(block->memory); // waits for those who use it
        block->memory = NULL;
        block->capacity = 0;
        status = cudaMalloc(&block->memory, size);
        if (status) {
            block->memory = NULL;
            return device_error(status, size, err);
        }
        block->capacity = size;
    }
    if (copied > block->pinned_capacity) {
        copied = bt_size_add(copied, copied / 4);
        cudaEventSynchronize(block->copied);
        cudaFreeHost(block->pinned);
        block->pinned = NULL;
        block->pinned_capacity = 0;
        status = cudaMallocHost((void **)&block->pinned, copied);
        if (status) {
            block->pinned = NULL;
            return device_error(status, copied, err);
        }
        block->pinned_capacity = copied;
    }
    return BAUTA_OK;
}

static bauta_status upload(plan_block *block, const layout *l,
                           cudaStream_t stream, bauta_error *err)
{
    size_t at = 0;
    bt_cuda_step_leave(); // copies of a plan are not recorded
    bauta_status status = reserve(block, l->size, l->copied, err);
    if (status)
        return status;
    unsigned char *to = block->memory;
    cudaError_t result = cudaEventSynchronize(block->copied);
    memset(block->pinned, 0, l->zeros);
    for (size_t i = 0; i < l->count; i++) {
        const piece *p = &l->pieces[i];
        void *address = to + at;
        memcpy(p->to, &address, sizeof(address));
        if (p->from && p->bytes)
            memcpy(block->pinned + at, p->from, p->bytes);
        at += bt_size_round(p->bytes, PIECE);
    }
    if (!result)
        result = cudaMemcpyAsync(to, block->pinned, l->copied,
                                 cudaMemcpyHostToDevice, stream);
    if (!result)
        result = cudaEventRecord(block->copied, stream);
    if (result)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot copy a plan to the GPU: %s",
                       cudaGetErrorString(result));
    return BAUTA_OK;
}

/* ---- updating ---------------------------------------------------------- */

/* A plan whose update failed has no rows. */
static void forget(bt_cuda_plan *plan)
{
    bt_cuda_plan none = { .heads = plan->heads,
                          .kv_heads = plan->kv_heads,
                          .head_dim = plan->head_dim,
                          .multiprocessors = plan->multiprocessors,
                          .tensor_map_encode = plan->tensor_map_encode,
                          .table_sums = plan->table_sums,
                          .table_sums_size = plan->table_sums_size,
                          .host = plan->host,
                          .pair = plan->pair };
    *plan = none;
}

/* The lists of the forward pass, and what those of the backward pass need of
 * the mask. */
static bauta_status update(bt_cuda_plan *plan, const bauta_mask *mask,
                           size_t first, size_t rows, cudaStream_t stream,
                           bauta_error *err)
{
    plan_host *host = plan->host;
    layout l = { .count = 0 };
    bauta_status status = bt_bands_read(&host->bands, mask, first, rows, err);
    if (!status)
        status = make_forward_lists(plan, err);
    if (!status && host->backward)
        status = mark_dense(plan, mask, err);
    if (status)
        return status;
    describe_forward(plan);
    plan->first_key = (int)((ptrdiff_t)(first + bauta_mask_keys(mask)) -
                            (ptrdiff_t)bauta_mask_queries(mask));
    lay_forward(&l, plan);
    host->incomplete = host->backward;
    return upload(&host->forward_block, &l, stream, err);
}

bauta_status bt_cuda_plan_update(bt_cuda_plan *plan, const bauta_mask *mask,
                                 size_t first, size_t rows, size_t tile_rows,
                                 void *stream, bauta_error *err)
{
    size_t most = bt_cuda_tile_rows(plan->head_dim);
    bauta_status status = BAUTA_OK;
    plan->host->most = tile_rows ? bt_size_min(most, tile_rows) : most;
    plan->host->incomplete = false;
    if (bt_size_mul(rows, plan->heads) > INT32_MAX)
        status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                         "%zu queries of %zu heads: the GPU kernels count in "
                         "32 bits",
                         rows, plan->heads);
    if (!status)
        status = update(plan, mask, first, rows, (cudaStream_t)stream, err);
    if (status)
        forget(plan);
    return status;
}

bauta_status bt_cuda_plan_complete(bt_cuda_plan *plan, void *stream,
                                   bauta_error *err)
{
    plan_host *host = plan->host;
    layout l = { .count = 0 };
    if (!host->incomplete)
        return BAUTA_OK;
    bauta_status status = make_backward_lists(plan, err);
    if (status)
        return status;
    describe_backward(plan);
    lay_backward(&l, plan);
    status = upload(&host->backward_block, &l, (cudaStream_t)stream, err);
    if (status)
        return status;
    // Dense tiles come first; those that see nothing follow the others.
    if (!has_dense_list(plan)) {
        plan->dense.tiles = plan->over_queries.tiles;
        plan->dense.runs = plan->over_queries.runs;
        plan->dense.bits = plan->over_queries.bits;
    }
    plan->over_queries.tiles += host->queries.dense_count;
    plan->backward_memory = host->backward_block.memory;
    host->incomplete = false;
    return BAUTA_OK;
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
