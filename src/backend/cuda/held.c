/* SPDX-License-Identifier: Apache-2.0 */
/* held.c - operations that wait for the product that follows them. */
#include "backend/cuda/held.h"

#include "backend/cuda/stream.h"

/* The stream that holds one for this thread. A thread is in one step at most.
 */
static _Thread_local bt_cuda_stream *holder;

static bool may_hold(const bt_cuda_stream *stream, size_t rows,
                     bauta_dtype dtype)
{
    return dtype == BAUTA_BFLOAT16 && rows && rows <= BT_GEMM_TAKES_ROWS &&
           bt_cuda_stepping(stream->queue);
}

bauta_status bt_cuda_hold_norm(bt_cuda_stream *stream,
                               const bt_cuda_norm_args *norm, bauta_error *err)
{
    bauta_status status = bt_cuda_held_queue(stream, err);
    if (status)
        return status;
    if (!may_hold(stream, norm->rows, norm->dtype) || norm->heads != 1)
        return bt_cuda_norm(norm, stream->queue, err);
    stream->held.kind = BT_HELD_NORM;
    stream->held.norm = *norm;
    holder = stream;
    return BAUTA_OK;
}

bauta_status bt_cuda_hold_gate(bt_cuda_stream *stream,
                               const bt_cuda_act_args *gate, bauta_error *err)
{
    bauta_status status = bt_cuda_held_queue(stream, err);
    if (status)
        return status;
    if (!may_hold(stream, gate->rows, gate->dtype) || !gate->by.data)
        return bt_cuda_act(gate, stream->queue, err);
    stream->held.kind = BT_HELD_GATE;
    stream->held.gate = *gate;
    holder = stream;
    return BAUTA_OK;
}

bool bt_cuda_held_take(bt_cuda_stream *stream, bt_cuda_gemm_args *product)
{
    bt_cuda_held *held = &stream->held;
    bt_cuda_gemm_args with = *product;
    if (held->kind == BT_HELD_NORM)
        with.norm = &held->norm;
    else if (held->kind == BT_HELD_GATE)
        with.gate = &held->gate;
    else
        return false;
    if (!bt_cuda_gemm_takes(&with))
        return false;
    *product = with;
    return true;
}

void bt_cuda_held_done(bt_cuda_stream *stream)
{
    stream->held.kind = BT_HELD_NONE;
    holder = NULL;
}

bauta_status bt_cuda_held_queue(bt_cuda_stream *stream, bauta_error *err)
{
    bt_cuda_held *held = &stream->held;
    if (held->kind == BT_HELD_NONE)
        return BAUTA_OK;
    bool norm = held->kind == BT_HELD_NORM;
    bt_cuda_held_done(stream);
    return norm ? bt_cuda_norm(&held->norm, stream->queue, err)
                : bt_cuda_act(&held->gate, stream->queue, err);
}

void bt_cuda_held_leave(void)
{
    if (holder)
        bt_cuda_held_queue(holder, NULL);
}
