/* SPDX-License-Identifier: Apache-2.0 */
/* held.c - operations that wait for those that follow them. */
#include "backend/cuda/held.h"

#include "backend/cuda/stream.h"

/* The stream that holds one for this thread. A thread is in one step at most.
 */
static _Thread_local bt_cuda_stream *holder;

static void hold(bt_cuda_stream *stream, int kind)
{
    stream->held.kind = kind;
    holder = kind == BT_HELD_NONE ? NULL : stream;
}

static bauta_status queue_product(bt_cuda_stream *stream,
                                  const bt_cuda_gemm_args *product,
                                  bauta_error *err)
{
    return bt_cuda_gemm(product, stream->products.memory,
                        stream->products.bytes, stream->queue, err);
}

/* ---- Norms and gated activations ----------------------------------------- */

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
    stream->held.norm = *norm;
    hold(stream, BT_HELD_NORM);
    return BAUTA_OK;
}

bauta_status bt_cuda_hold_gate(bt_cuda_stream *stream,
                               const bt_cuda_act_args *gate, bauta_error *err)
{
    if (stream->held.kind == BT_HELD_PRODUCT) {
        bt_cuda_gemm_args product = stream->held.product;
        product.end_gate = gate;
        if (bt_cuda_gemm_ends(&product)) {
            hold(stream, BT_HELD_NONE);
            return queue_product(stream, &product, err);
        }
    }
    bauta_status status = bt_cuda_held_queue(stream, err);
    if (status)
        return status;
    if (!may_hold(stream, gate->rows, gate->dtype) || !gate->by.data)
        return bt_cuda_act(gate, stream->queue, err);
    stream->held.gate = *gate;
    hold(stream, BT_HELD_GATE);
    return BAUTA_OK;
}

/* ---- Products ------------------------------------------------------------ */

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

bauta_status bt_cuda_hold_product(bt_cuda_stream *stream,
                                  const bt_cuda_gemm_args *product,
                                  bauta_error *err)
{
    if (bt_cuda_stepping(stream->queue) && bt_cuda_gemm_may_end(product)) {
        stream->held.product = *product;
        hold(stream, BT_HELD_PRODUCT);
        return BAUTA_OK;
    }
    hold(stream, BT_HELD_NONE);
    return queue_product(stream, product, err);
}

/* ---- Queueing ------------------------------------------------------------ */

bauta_status bt_cuda_held_queue(bt_cuda_stream *stream, bauta_error *err)
{
    bt_cuda_held *held = &stream->held;
    int kind = held->kind;
    hold(stream, BT_HELD_NONE);
    switch (kind) {
    case BT_HELD_NORM:
        return bt_cuda_norm(&held->norm, stream->queue, err);
    case BT_HELD_GATE:
        return bt_cuda_act(&held->gate, stream->queue, err);
    case BT_HELD_PRODUCT:
        return queue_product(stream, &held->product, err);
    default:
        return BAUTA_OK;
    }
}

void bt_cuda_held_leave(void)
{
    if (holder)
        bt_cuda_held_queue(holder, NULL);
}
