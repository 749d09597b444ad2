/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - AdamW on a GPU, and moving averages.
 *
 * The kernels read the list of parameters from the GPU's memory. It is made
 * again in host memory for every step and uploaded only if it differs from the
 * last one: parameters and moments rarely move. */
#include "backend/cuda/stream.h"
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <string.h>

/* ---- The list of parameters -------------------------------------------- */

static bauta_status slot_check(const bt_cuda_stream *stream,
                               const bt_adamw_slot *slot, bauta_error *err)
{
    const bt_tensor *p = slot->parameter;
    const bt_tensor *f32[] = { slot->master.buffer ? &slot->master : p,
                               &slot->first, &slot->second };
    for (size_t i = 0; i < BT_LEN(f32); i++)
        BT_CUDA_NEED_F32(stream, err, adamw, f32[i]);
    if (p->grad_dtype != BAUTA_FLOAT32 ||
        (slot->master.buffer && p->dtype != BAUTA_BFLOAT16))
        return bt_unsupported(&stream->base, BT_OP_adamw, p->dtype, err);
    if (!bt_tensor_dense(p) || !p->grad)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "adamw: a parameter is not dense or has no gradient");
    return BAUTA_OK;
}

static bt_cuda_slot slot_of(const bt_adamw_slot *slot)
{
    const bt_tensor *p = slot->parameter;
    bt_tensor grad = bt_tensor_grad(p);
    bool has_master = slot->master.buffer != NULL;
    bt_cuda_slot own;
    memset(&own, 0, sizeof(own)); // lists are compared byte by byte
    own.p = bt_cuda_address(has_master ? &slot->master : p);
    own.m = bt_cuda_address(&slot->first);
    own.v = bt_cuda_address(&slot->second);
    own.grad = bt_cuda_address(&grad);
    own.copy = has_master ? bt_cuda_address(p) : NULL;
    own.count = p->rows * p->columns;
    own.decay = slot->decay;
    return own;
}

/* Where everything is in the block of memory. */
typedef struct adamw_layout {
    size_t slots, pieces, squares, bytes;
} adamw_layout;

static adamw_layout layout_of(size_t slots, size_t pieces)
{
    adamw_layout l = { .slots =
                           bt_size_round(sizeof(bt_cuda_adamw_state), 256) };
    l.pieces = l.slots + bt_size_round(slots * sizeof(bt_cuda_slot), 256);
    l.squares = l.pieces + bt_size_round(pieces * sizeof(bt_cuda_piece), 256);
    l.bytes = l.squares + bt_size_max(pieces, 1) * sizeof(double);
    return l;
}

/* Slots and pieces go to the GPU. */
static bauta_status lists_upload(bt_cuda_stream *stream,
                                 const bt_cuda_slot *slots, size_t count,
                                 bauta_error *err)
{
    bt_cuda_adamw_lists *lists = &stream->adamw;
    bt_cuda_piece *pieces = NULL;
    size_t *counts = bt_alloc_zero(count, sizeof(*counts));
    bauta_status status = BAUTA_OK;
    lists->count = 0;
    if (!counts)
        return bt_fail_memory(err, "the optimizer", count * sizeof(*counts));
    for (size_t i = 0; i < count; i++)
        counts[i] = slots[i].count;
    size_t piece_count = bt_cuda_pieces(NULL, counts, count);
    adamw_layout l = layout_of(count, piece_count);
    pieces = bt_alloc_zero(piece_count, sizeof(*pieces));
    if (!pieces || BT_ARRAY_RESERVE(lists->slots, lists->capacity, 0, count)) {
        status = bt_fail_memory(err, "the optimizer", l.bytes);
        goto done;
    }
    bt_cuda_pieces(pieces, counts, count);
    status = bt_cuda_block_reserve(&lists->memory, l.bytes, NULL, err);
    char *memory = lists->memory.memory;
    if (!status)
        status = bt_cuda_stream_upload(stream, memory + l.slots, slots,
                                       count * sizeof(*slots), err);
    if (!status)
        status = bt_cuda_stream_upload(stream, memory + l.pieces, pieces,
                                       piece_count * sizeof(*pieces), err);
    if (status)
        goto done;
    if (count)
        memcpy(lists->slots, slots, count * sizeof(*slots));
    lists->count = count;
    lists->pieces = piece_count;
done:
    bt_free(counts);
    bt_free(pieces);
    return status;
}

static bauta_status lists_update(bt_cuda_stream *stream,
                                 const bt_adamw_args *args, bauta_error *err)
{
    bt_cuda_adamw_lists *lists = &stream->adamw;
    bt_cuda_slot *slots = bt_alloc_zero(args->count, sizeof(*slots));
    bauta_status status = BAUTA_OK;
    if (!slots)
        return bt_fail_memory(err, "the optimizer",
                              args->count * sizeof(*slots));
    for (size_t i = 0; i < args->count && !status; i++) {
        status = slot_check(stream, &args->slots[i], err);
        if (!status)
            slots[i] = slot_of(&args->slots[i]);
    }
    bool same = lists->memory.memory && lists->count == args->count &&
                (!args->count || memcmp(lists->slots, slots,
                                        args->count * sizeof(*slots)) == 0);
    if (!status && !same)
        status = lists_upload(stream, slots, args->count, err);
    bt_free(slots);
    return status;
}

/* ---- Steps ------------------------------------------------------------- */

/* Where everything of a step is on the GPU. */
typedef struct adamw_memory {
    bt_cuda_adamw_state *state;
    bt_cuda_slot *slots;
    bt_cuda_piece *pieces;
    double *squares;
} adamw_memory;

static adamw_memory memory_of(const bt_cuda_stream *stream)
{
    const bt_cuda_adamw_lists *lists = &stream->adamw;
    adamw_layout l = layout_of(lists->count, lists->pieces);
    char *at = lists->memory.memory;
    return (adamw_memory){ (bt_cuda_adamw_state *)at,
                           (bt_cuda_slot *)(at + l.slots),
                           (bt_cuda_piece *)(at + l.pieces),
                           (double *)(at + l.squares) };
}

/* Other ranks have the other parameters: the squares visit the host, and their
 * sum comes back as the only one. Adding it to 0 changes no bit of it. */
static bauta_status squares_share(bt_cuda_stream *stream,
                                  const adamw_memory *memory,
                                  const bt_square_sum *with, bauta_error *err)
{
    size_t count = stream->adamw.pieces, bytes = count * sizeof(double);
    double sum = 0.0, *squares = bt_alloc(bytes);
    if (!squares)
        return bt_fail_memory(err, "the norm of gradients", bytes);
    bauta_status status =
        bt_cuda_stream_download(stream, squares, memory->squares, bytes, err);
    if (!status)
        status = with->add(with->user, squares, count, &sum, err);
    bt_free(squares);
    return status ? status
                  : bt_cuda_stream_upload(stream, memory->squares, &sum,
                                          sizeof(sum), err);
}

static bauta_status step_queue(bt_cuda_stream *stream,
                               const bt_adamw_args *args,
                               const adamw_memory *memory, bauta_error *err)
{
    const bt_optimizer_options *o = args->options;
    bt_cuda_adamw_options options = { .beta1 = o->beta1,
                                      .beta2 = o->beta2,
                                      .epsilon = o->epsilon,
                                      .weight_decay = o->weight_decay,
                                      .max_grad_norm = o->max_grad_norm,
                                      .rate = args->learning_rate };
    size_t count = stream->adamw.pieces;
    bauta_status status =
        bt_cuda_adamw_squares(memory->slots, memory->pieces, count,
                              memory->squares, stream->queue, err);
    if (!status && args->square_sum)
        status = squares_share(stream, memory, args->square_sum, err);
    if (!status)
        status = bt_cuda_adamw_update(
            memory->slots, memory->pieces, count, &options, memory->state,
            memory->squares, args->square_sum ? 1 : count, stream->queue, err);
    return status;
}

bauta_status bt_cuda_op_adamw(bt_cuda_stream *stream, const bt_adamw_args *args,
                              bauta_error *err)
{
    bt_cuda_adamw_state state = { .steps = args->step - 1 };
    bauta_status status = lists_update(stream, args, err);
    if (status)
        return status;
    adamw_memory memory = memory_of(stream);
    status =
        bt_cuda_stream_upload(stream, memory.state, &state, sizeof(state), err);
    if (!status)
        status = step_queue(stream, args, &memory, err);
    if (!status)
        status = bt_cuda_stream_download(stream, &state, memory.state,
                                         sizeof(state), err);
    if (!status && args->norm)
        *args->norm = state.norm;
    return status;
}

/* ---- Moving averages --------------------------------------------------- */

static bauta_status both_dense(bt_op op, const bt_tensor *a, const bt_tensor *b,
                               bauta_error *err)
{
    if (bt_tensor_dense(a) && bt_tensor_dense(b) && a->rows == b->rows &&
        a->columns == b->columns)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s: (%zu, %zu) and (%zu, %zu) are not the same, or not "
                   "dense",
                   bt_op_name(op), a->rows, a->columns, b->rows, b->columns);
}

bauta_status bt_cuda_op_ema(bt_cuda_stream *stream, const bt_ema_args *args,
                            bauta_error *err)
{
    const bt_tensor *a = args->average, *x = args->x;
    BT_CUDA_NEED_F32(stream, err, ema, a);
    BT_CUDA_NEED_F32(stream, err, ema, x);
    bauta_status status = both_dense(BT_OP_ema, a, x, err);
    if (status)
        return status;
    return bt_cuda_ema(bt_cuda_address(a), bt_cuda_address(x),
                       a->rows * a->columns, args->keep, args->take,
                       stream->queue, err);
}

/* The kernel moves words of 32 bits, whatever they are. */
bauta_status bt_cuda_op_swap(bt_cuda_stream *stream, const bt_swap_args *args,
                             bauta_error *err)
{
    const bt_tensor *a = args->a, *b = args->b;
    size_t bytes = a->rows * a->columns * bt_dtype_size(a->dtype);
    BT_CUDA_NEED_SAME(stream, err, swap, a, b);
    bauta_status status = both_dense(BT_OP_swap, a, b, err);
    if (status)
        return status;
    if (bytes % sizeof(float) ||
        ((uintptr_t)bt_cuda_address(a) | (uintptr_t)bt_cuda_address(b)) %
            sizeof(float))
        return bt_unsupported(&stream->base, BT_OP_swap, a->dtype, err);
    return bt_cuda_swap(bt_cuda_address(a), bt_cuda_address(b),
                        bytes / sizeof(float), stream->queue, err);
}
