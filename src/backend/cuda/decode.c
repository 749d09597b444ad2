/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c - bringing a step of decoding to the GPU. */
#include "backend/cuda/decode.h"

#include "backend/cuda/chunk.h"
#include "backend/cuda/step_graph.h"
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/prefill_list.h"

#include <cuda_runtime_api.h>
#include <string.h>

enum { PIECE = 256 }; /* alignment of the pieces of device memory */

bauta_status bt_cuda_decode_create(bt_cuda_decode **out,
                                   const bauta_attention_shape *shape,
                                   size_t page_keys, bauta_error *err)
{
    size_t kv_heads = shape->kv_heads ? shape->kv_heads : shape->heads;
    bt_decode_list list;
    bt_cuda_device device;

    *out = NULL;
    bauta_status status = bt_cuda_check_shape(shape, kv_heads, err);
    if (!status) // it knows what pages there are
        status = bt_decode_list_init(&list, NULL, 0, 0, shape->heads / kv_heads,
                                     page_keys, BT_CHUNK, err);
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
    bt_cuda_step_leave();
    cudaFree(decode->memory);
    bt_free(decode->host);
    bt_free(decode);
}

/* A piece of a step: what it holds at first (NULL: zeros), and where to write
 * its address. */
typedef struct decode_upload {
    void *to;
    const void *from;
    size_t bytes;
} decode_upload;

static decode_upload piece_of(void *to, const void *from, size_t count,
                              size_t each)
{
    return (decode_upload){ to, from, bt_size_mul(count, each) };
}

/* What a piece takes. A step of decoding is followed by one that is as long or
 * a little longer, so its pieces have room to grow: where they are stays the
 * same for many steps, as replaying them needs (step_graph.h). */
static size_t piece_size(const decode_upload *piece, bool grows)
{
    size_t size = PIECE;
    if (!grows || !piece->bytes || piece->bytes > (size_t)1 << 24)
        return bt_size_round(piece->bytes, PIECE);
    while (size < piece->bytes)
        size *= 2;
    return size;
}

static size_t pieces_size(const decode_upload *pieces, size_t count, bool grows)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size = bt_size_add(size, piece_size(&pieces[i], grows));
    return size;
}

/* When SMs would be idle otherwise, several of them work on one chunk, for 64
 * columns of the output each: see decode_job. */
static int parts_of(const bt_cuda_decode *d, size_t items)
{
    size_t head_splits = bt_decode_head_splits(d->heads / d->kv_heads);
    size_t units = items * d->kv_heads * head_splits;
    size_t panels = bt_cuda_width(d->head_dim) / 64;
    return units * panels <= (size_t)d->device.multiprocessors ? (int)panels
                                                               : 1;
}

/* Pieces that are copied: zeros and the lists, those of the decoding kernel
 * last. */
enum { COPIED = 12, LISTS = 9, ROOM = 4 };

static void copied_pieces(decode_upload *pieces, bt_cuda_decode *d,
                          const bt_decode_list *list, const bt_prefill *prefill,
                          const uint32_t *positions)
{
    bt_cuda_plan *plan = &d->prefill;
    const bt_worklist *work = &prefill->list;
    size_t columns = d->kv_heads *
                     bt_decode_head_splits(d->heads / d->kv_heads) *
                     (size_t)d->parts;
    size_t nonfinite_fixup = bt_size_mul(work->tile_count, plan->heads);
    size_t bits = bt_size_mul(work->bits_count, work->tile_rows * 2);
    const decode_upload all[COPIED] = {
        piece_of(&d->tile_counter, NULL, 2, sizeof(uint32_t)),
        piece_of(&plan->tile_counter, NULL, 1, sizeof(uint32_t)),
        piece_of(&d->arrivals, NULL, list->unit_count,
                 columns * sizeof(uint32_t)),
        piece_of(&plan->nonfinite_fixup, NULL, nonfinite_fixup, BT_FIXUP_BYTES),
        piece_of(&plan->tiles, work->tiles, work->tile_count,
                 sizeof(bt_work_tile)),
        piece_of(&plan->runs, work->runs, work->run_count, sizeof(bt_work_run)),
        piece_of(&plan->bits, work->bits, bits, sizeof(uint64_t)),
        piece_of(&d->table, prefill->table,
                 prefill->table_count + prefill->count, sizeof(int32_t)),
        piece_of(&d->positions, positions, list->rows, sizeof(uint32_t)),
        piece_of(&d->items, list->items, list->item_count,
                 sizeof(bt_decode_item)),
        piece_of(&d->tiles, list->tiles, list->item_count,
                 list->chunk_tiles * sizeof(bt_decode_tile)),
        piece_of(&d->bits, list->bits, list->bits_count,
                 list->unit_rows * sizeof(uint64_t)),
    };
    memcpy(pieces, all, sizeof(all));
}

/* Pieces that only the kernels write. */
static void room_pieces(decode_upload *pieces, bt_cuda_decode *d,
                        const bt_decode_list *list, const bt_prefill *prefill)
{
    size_t group = d->heads / d->kv_heads,
           head_splits = bt_decode_head_splits(group);
    size_t heads_per_split = (group + head_splits - 1) / head_splits;
    // A step in which every unit is one chunk needs no room for partial sums.
    size_t slots = list->item_count > list->unit_count ? list->item_count : 0;
    size_t columns = d->kv_heads * head_splits * (size_t)d->parts;
    size_t rows =
        bt_size_mul(slots, columns * list->unit_rows * heads_per_split);
    size_t acc_blocks =
        prefill->list.chunked ? (size_t)d->device.multiprocessors : 0;
    pieces[0] = piece_of(&d->partial, NULL, rows,
                         bt_cuda_width(d->head_dim) * sizeof(float));
    pieces[1] = piece_of(&d->partial_base, NULL, rows, 2 * sizeof(float));
    pieces[2] = piece_of(&d->prefill.chunk_acc, NULL, acc_blocks,
                         bt_cuda_chunk_acc_bytes(d->head_dim));
    pieces[3] =
        piece_of(&d->prefill.anchors, NULL,
                 prefill->count ? prefill->list.rows : 0, sizeof(int32_t));
}

/* Room for a step and, so that a sequence may grow for a while, half as much
 * again. What was there is lost. */
static bauta_status reserve(bt_cuda_decode *decode, size_t size,
                            bauta_error *err)
{
    if (size <= decode->capacity)
        return BAUTA_OK;
    size = bt_size_add(size, size / 2);
    bt_cuda_step_leave();
    cudaFree(decode->memory);
    decode->memory = NULL;
    decode->capacity = 0;
    cudaError_t status = cudaMalloc(&decode->memory, size);
    if (status) {
        decode->memory = NULL;
        cudaGetLastError(); // reported; the next call starts without an error
        return bt_fail(err, bt_cuda_status(status), "%zu bytes on the GPU: %s",
                       size, cudaGetErrorString(status));
    }
    decode->capacity = size;
    return BAUTA_OK;
}

/* From memory that is not pinned, so it was read when the call returns. */
static bauta_status copy(const bt_cuda_decode *decode, size_t bytes,
                         void *stream, bauta_error *err)
{
    int error = cudaSuccess;
    bool done = false;
    if (bt_cuda_stepping(stream))
        error = bt_cuda_step_upload(decode->memory, decode->host, bytes, &done);
    if (!error && !done)
        error = cudaMemcpyAsync(decode->memory, decode->host, bytes,
                                cudaMemcpyHostToDevice, (cudaStream_t)stream);
    if (error)
        return bt_fail(err, BAUTA_ERR_DEVICE,
                       "cannot copy a step to the GPU: %s",
                       cudaGetErrorString((cudaError_t)error));
    return BAUTA_OK;
}

static bauta_status upload(bt_cuda_decode *decode, const bt_decode_list *list,
                           const bt_prefill *prefill, const uint32_t *positions,
                           void *stream, bauta_error *err)
{
    decode_upload pieces[COPIED + ROOM];
    copied_pieces(pieces, decode, list, prefill, positions);
    room_pieces(pieces + COPIED, decode, list, prefill);
    bool grows = prefill->count == 0;
    size_t copied = pieces_size(pieces, COPIED, grows), at = 0;
    size_t lists = pieces_size(pieces, LISTS, grows);
    bauta_status status =
        reserve(decode, pieces_size(pieces, BT_LEN(pieces), grows), err);
    if (status)
        return status;
    if (BT_ARRAY_RESERVE(decode->host, decode->host_capacity, 0, copied))
        return bt_fail_memory(err, "a step of decoding", copied);
    unsigned char *host = decode->host;
    memset(host, 0, copied);
    for (size_t i = 0; i < BT_LEN(pieces); i++) {
        void *to = (unsigned char *)decode->memory + at;
        memcpy(pieces[i].to, &to, sizeof(to));
        if (pieces[i].from && pieces[i].bytes)
            memcpy(host + at, pieces[i].from, pieces[i].bytes);
        at += piece_size(&pieces[i], grows);
    }
    status = copy(decode, copied, stream, err);
    if (status)
        return status;
    decode->start = decode->table + prefill->table_count;
    decode->list_lines = (int)((copied - lists) / 128);
    return BAUTA_OK;
}

/* The positions of a step's queries: the last query of a mask is aligned with
 * its last key. Freed with bt_free(). */
static uint32_t *positions_of(const bt_decode_sequence *sequences, size_t count,
                              size_t rows)
{
    uint32_t *positions = bt_alloc_zero(rows, sizeof(*positions));
    for (size_t s = 0, row = 0; s < count && positions; s++)
        for (size_t i = 0; i < sequences[s].rows; i++)
            positions[row++] =
                (uint32_t)(sequences[s].first + i +
                           bauta_mask_keys(sequences[s].mask) -
                           bauta_mask_queries(sequences[s].mask));
    return positions;
}

/* The plan of the sequences with many rows, but for what is on the GPU. */
static void describe(bt_cuda_decode *decode, const bt_prefill *prefill)
{
    const bt_worklist *list = &prefill->list;
    decode->prefill = (bt_cuda_plan){
        .rows = list->rows,
        .keys = list->keys,
        .heads = decode->heads,
        .kv_heads = decode->kv_heads,
        .head_dim = decode->head_dim,
        .tile_count = (int)(list->tile_count - list->empty_count),
        .empty_count = (int)list->empty_count,
        .l2_heads =
            bt_cuda_l2_heads(list->keys, decode->head_dim,
                             decode->heads / decode->kv_heads, decode->heads),
        .multiprocessors = decode->device.multiprocessors,
        .tensor_map_encode = decode->device.tensor_map_encode,
    };
}

bauta_status bt_cuda_decode_step(bt_cuda_decode *decode,
                                 const bt_decode_sequence *sequences,
                                 size_t count, void *stream, bauta_error *err)
{
    size_t d = decode->head_dim, group = decode->heads / decode->kv_heads;
    bt_decode_list list;
    bt_prefill prefill = { 0 };
    decode->item_count = 0; // a step that failed has nothing to do
    decode->prefill = (bt_cuda_plan){ 0 };
    bauta_status status =
        bt_decode_list_init(&list, sequences, count, BT_DECODE_MOST, group,
                            decode->page_keys, BT_CHUNK, err);
    if (status)
        return status;
    if (bt_size_mul(list.item_count, decode->heads * 4) > INT32_MAX ||
        bt_size_mul(list.rows, decode->heads) > INT32_MAX)
        status = bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                         "%zu items of work for %zu rows of %zu heads: the GPU "
                         "kernels count in 32 bits",
                         list.item_count, list.rows, decode->heads);
    if (!status)
        status = bt_prefill_init(&prefill, sequences, count, BT_DECODE_MOST,
                                 decode->page_keys, bt_cuda_tile_rows(d),
                                 BT_CHUNK, err);
    if (!status) {
        uint32_t *positions = positions_of(sequences, count, list.rows);
        decode->parts = parts_of(decode, list.item_count);
        describe(decode, &prefill);
        status = positions
                     ? upload(decode, &list, &prefill, positions, stream, err)
                     : bt_fail_memory(err, "a step of decoding",
                                      list.rows * sizeof(*positions));
        bt_free(positions);
    }
    if (status) {
        decode->prefill = (bt_cuda_plan){ 0 };
    } else {
        decode->rows = list.rows;
        decode->unit_rows = list.unit_rows;
        decode->pages = bt_size_max(list.pages, prefill.pages);
        decode->unit_count = list.unit_count;
        decode->item_count = (int)list.item_count;
        decode->most_tiles = list.item_count ? list.items[0].tiles : 0;
    }
    bt_decode_list_release(&list);
    bt_prefill_release(&prefill);
    return status;
}
