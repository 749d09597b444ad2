/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - bringing a work list to the GPU. */
#include "kernels/cuda/plan.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/plan.h"

#include <cuda_runtime_api.h>

enum {
    BAND_BYTES = 32 << 20, /* of keys and values: well inside Hopper's L2 */
    PIECE = 256            /* alignment of the pieces of device memory */
};

size_t bt_cuda_tile_rows(size_t head_dim)
{
    return head_dim == 128 ? 128 : head_dim == 64 ? 192 : 0;
}

/* Items are ordered by band, then tile (longest first), then head of the band.
 * A band is as many heads as have keys and values that stay in the L2 while
 * the tiles of the band read them again and again. */
static int band_of(size_t keys, const bauta_attention *shape, size_t kv_heads)
{
    size_t group = shape->heads / kv_heads;
    size_t bytes = bt_size_mul(keys, shape->head_dim * 2 * 2);
    size_t band = bt_size_max(BAND_BYTES / bt_size_max(bytes, 1), 1) * group;
    return (int)bt_size_min(band, shape->heads);
}

static bauta_status check_shape(const bauta_plan *plan,
                                const bauta_attention *shape, size_t kv_heads,
                                bauta_error *err)
{
    if (bt_cuda_tile_rows(shape->head_dim) == 0)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "no GPU kernel for a head_dim of %zu; there are 64 and "
                       "128",
                       shape->head_dim);
    if (shape->value_dim && shape->value_dim != shape->head_dim)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "no GPU kernel for a value_dim of %zu beside a head_dim "
                       "of %zu",
                       shape->value_dim, shape->head_dim);
    if (shape->heads == 0 || shape->heads % kv_heads)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu kv_heads do not divide %zu heads", kv_heads,
                       shape->heads);
    if (bt_size_mul(plan->rows, shape->heads) > INT32_MAX)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%zu queries of %zu heads: the GPU kernels count in 32 "
                       "bits",
                       plan->rows, shape->heads);
    return BAUTA_OK;
}

/* Where a piece begins; adds it to the size of the whole. */
static size_t piece(size_t *size, size_t count, size_t each)
{
    size_t at = *size;
    *size = bt_size_add(at, bt_size_round(bt_size_mul(count, each), PIECE));
    return at;
}

static bauta_status upload(bt_cuda_plan *plan, const bt_worklist *list,
                           bauta_error *err)
{
    size_t bits = list->bits_count * list->tile_rows * 2;
    size_t items = (size_t)plan->tile_count * plan->heads;
    size_t size = 0;
    size_t ticket_at = piece(&size, 1, sizeof(uint32_t));
    size_t redo_at = piece(&size, items, BT_REDO_BYTES);
    size_t zeros = size;
    size_t tiles_at = piece(&size, list->tile_count, sizeof(bt_work_tile));
    size_t runs_at = piece(&size, list->run_count, sizeof(bt_work_run));
    size_t bits_at = piece(&size, bits, sizeof(uint64_t));

    cudaError_t status = cudaMalloc(&plan->memory, size);
    if (status) {
        plan->memory = NULL;
        cudaGetLastError(); // it was told; the next call starts clean
        return bt_fail(err, BAUTA_ERR_NOMEM, "%zu bytes on the GPU: %s", size,
                       cudaGetErrorString(status));
    }
    unsigned char *memory = plan->memory;
    plan->ticket = (uint32_t *)(memory + ticket_at);
    plan->redo = memory + redo_at;
    plan->tiles = (bt_work_tile *)(memory + tiles_at);
    plan->runs = (bt_work_run *)(memory + runs_at);
    plan->bits = (uint64_t *)(memory + bits_at);

    status = cudaMemset(memory, 0, zeros);
    if (!status)
        status = cudaMemcpy(plan->tiles, list->tiles,
                            list->tile_count * sizeof(bt_work_tile),
                            cudaMemcpyHostToDevice);
    if (!status)
        status = cudaMemcpy(plan->runs, list->runs,
                            list->run_count * sizeof(bt_work_run),
                            cudaMemcpyHostToDevice);
    if (!status)
        status = cudaMemcpy(plan->bits, list->bits, bits * sizeof(uint64_t),
                            cudaMemcpyHostToDevice);
    if (status)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "cannot copy a plan to the GPU: %s",
                       cudaGetErrorString(status));
    return BAUTA_OK;
}

bauta_status bt_cuda_plan_create(bt_cuda_plan **out, const bauta_plan *source,
                                 const bauta_attention *shape, bauta_error *err)
{
    bt_worklist list = { 0 };
    bt_cuda_device device;
    bt_cuda_plan *plan = NULL;
    size_t kv_heads = shape->kv_heads ? shape->kv_heads : shape->heads;

    *out = NULL;
    bauta_status status = check_shape(source, shape, kv_heads, err);
    if (status)
        return status;
    status = bt_worklist_init(&list, source, bt_cuda_tile_rows(shape->head_dim),
                              err);
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
    plan->band = band_of(list.keys, shape, kv_heads);
    status = bt_cuda_device_init(&device, err);
    if (status)
        goto done;
    plan->multiprocessors = device.multiprocessors;
    plan->tensor_map_encode = device.tensor_map_encode;
    status = upload(plan, &list, err);
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
    bt_free(plan);
}
