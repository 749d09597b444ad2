/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c - bringing a step of decoding to the GPU. */
#include "kernels/cuda/decode.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <cuda_runtime_api.h>
#include <string.h>

enum { PIECE = 256 }; /* alignment of the pieces of device memory */

static bauta_status check_shape(const bauta_attention *shape, size_t kv_heads,
                                bauta_error *err)
{
    if (shape->head_dim != 64 && shape->head_dim != 128)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "no GPU kernel decodes a head_dim of %zu; there are 64 "
                       "and 128",
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
    return BAUTA_OK;
}

bauta_status bt_cuda_decode_create(bt_cuda_decode **out,
                                   const bauta_attention *shape,
                                   size_t page_keys, bauta_error *err)
{
    size_t kv_heads = shape->kv_heads ? shape->kv_heads : shape->heads;
    bt_decode_list list;
    bt_cuda_device device;

    *out = NULL;
    bauta_status status = check_shape(shape, kv_heads, err);
    if (!status) // it knows what groups and pages there are
        status = bt_decode_list_init(&list, NULL, 0, shape->heads / kv_heads,
                                     kv_heads, page_keys, 1, err);
    if (status)
        return status;
    bt_decode_list_release(&list);
    status = bt_cuda_device_init(&device, err);
    if (status)
        return status;
    bt_cuda_decode *decode = bt_alloc_zero(1, sizeof(*decode));
    if (!decode)
        return bt_fail_memory(err, "decoding on the GPU", sizeof(*decode));
    decode->heads = shape->heads;
    decode->kv_heads = kv_heads;
    decode->head_dim = shape->head_dim;
    decode->page_keys = page_keys;
    decode->device = device;
    *out = decode;
    return BAUTA_OK;
}

void bt_cuda_decode_free(bt_cuda_decode *decode)
{
    if (!decode)
        return;
    cudaFree(decode->memory);
    bt_free(decode);
}

/* Where the pieces of a step begin. Zeros come first, then what is copied, then
 * what only the kernel writes. */
typedef struct layout {
    size_t ticket, arrivals, items, entries, bits, partial, partial_base;
    size_t zeros, copied, size;
} layout;

static size_t piece(size_t *size, size_t count, size_t each)
{
    size_t at = *size;
    *size = bt_size_add(at, bt_size_round(bt_size_mul(count, each), PIECE));
    return at;
}

static layout lay_out(const bt_cuda_decode *decode, const bt_decode_list *list)
{
    layout l = { 0 };
    size_t heads = decode->kv_heads, group = decode->heads / heads;
    size_t rows =
        bt_size_mul(list->slot_count, heads * list->unit_rows * group);
    l.ticket = piece(&l.size, 2, sizeof(uint32_t));
    l.arrivals = piece(&l.size, list->unit_count, heads * sizeof(uint32_t));
    l.zeros = l.size;
    l.items = piece(&l.size, list->item_count, sizeof(bt_decode_item));
    l.entries = piece(&l.size, list->entry_count, sizeof(bt_decode_entry));
    l.bits =
        piece(&l.size, list->bits_count, list->unit_rows * sizeof(uint64_t));
    l.copied = l.size;
    l.partial = piece(&l.size, rows, decode->head_dim * sizeof(float));
    l.partial_base = piece(&l.size, rows, 2 * sizeof(float));
    return l;
}

/* Room for a step and, so that a sequence may grow for a while, half as much
 * again. What was there is lost. */
static bauta_status reserve(bt_cuda_decode *decode, size_t size,
                            bauta_error *err)
{
    if (size <= decode->capacity)
        return BAUTA_OK;
    size = bt_size_add(size, size / 2);
    cudaFree(decode->memory);
    decode->memory = NULL;
    decode->capacity = 0;
    cudaError_t status = cudaMalloc(&decode->memory, size);
    if (status) {
        decode->memory = NULL;
        cudaGetLastError(); // it was told; the next call starts clean
        return bt_fail(err, BAUTA_ERR_NOMEM, "%zu bytes on the GPU: %s", size,
                       cudaGetErrorString(status));
    }
    decode->capacity = size;
    return BAUTA_OK;
}

static bauta_status upload(bt_cuda_decode *decode, const bt_decode_list *list,
                           void *stream, bauta_error *err)
{
    layout l = lay_out(decode, list);
    bauta_status status = reserve(decode, l.size, err);
    if (status)
        return status;
    unsigned char *host = bt_alloc_zero(l.copied, 1);
    if (!host)
        return bt_fail_memory(err, "a step of decoding", l.copied);
    memcpy(host + l.items, list->items,
           list->item_count * sizeof(bt_decode_item));
    memcpy(host + l.entries, list->entries,
           list->entry_count * sizeof(bt_decode_entry));
    memcpy(host + l.bits, list->bits,
           list->bits_count * list->unit_rows * sizeof(uint64_t));
    // From memory that is not pinned, so it was read when the call returns.
    cudaError_t copied =
        cudaMemcpyAsync(decode->memory, host, l.copied, cudaMemcpyHostToDevice,
                        (cudaStream_t)stream);
    bt_free(host);
    if (copied)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "cannot copy a step to the GPU: %s",
                       cudaGetErrorString(copied));
    unsigned char *memory = decode->memory;
    decode->ticket = (uint32_t *)(memory + l.ticket);
    decode->arrivals = (uint32_t *)(memory + l.arrivals);
    decode->items = (bt_decode_item *)(memory + l.items);
    decode->entries = (bt_decode_entry *)(memory + l.entries);
    decode->bits = (uint64_t *)(memory + l.bits);
    decode->list_lines = (int)((l.copied - l.items) / 128);
    decode->partial = (float *)(memory + l.partial);
    decode->partial_base = (float *)(memory + l.partial_base);
    return BAUTA_OK;
}

bauta_status bt_cuda_decode_step(bt_cuda_decode *decode,
                                 const bt_decode_sequence *sequences,
                                 size_t count, void *stream, bauta_error *err)
{
    bt_decode_list list;
    decode->item_count = 0; // a step that failed has nothing to do
    bauta_status status = bt_decode_list_init(
        &list, sequences, count, decode->heads / decode->kv_heads,
        decode->kv_heads, decode->page_keys,
        (size_t)decode->device.multiprocessors, err);
    if (status)
        return status;
    status = upload(decode, &list, stream, err);
    if (!status) {
        decode->rows = list.rows;
        decode->unit_rows = list.unit_rows;
        decode->pages = list.pages;
        decode->item_count = (int)(list.item_count * decode->kv_heads);
    }
    bt_decode_list_release(&list);
    return status;
}
