/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - layer norm and RMS norm on a GPU. */
#include "backend/cuda/stream.h"

bauta_status bt_cuda_op_norm(bt_cuda_stream *stream, const bt_norm_args *args,
                             bauta_error *err)
{
    BT_CUDA_NEED_SAME(stream, err, norm, args->x, args->y, args->residual,
                      args->sum);
    BT_CUDA_NEED_F32(stream, err, norm, args->mean);
    BT_CUDA_NEED_F32(stream, err, norm, args->scale);
    BT_CUDA_NEED_SAME(stream, err, norm, args->gain, args->bias);
    bt_cuda_norm_args own = { .kind = args->kind,
                              .dtype = args->x->dtype,
                              .gain_dtype = args->gain->dtype,
                              .rows = args->x->rows,
                              .heads = args->heads,
                              .width = args->x->columns / args->heads,
                              .epsilon = args->epsilon,
                              .x = bt_cuda_read(args->x),
                              .residual = bt_cuda_read(args->residual),
                              .sum = bt_cuda_write(args->sum),
                              .y = bt_cuda_write(args->y),
                              .gain = bt_cuda_address(args->gain),
                              .bias = bt_cuda_address(args->bias),
                              .mean = bt_cuda_address(args->mean),
                              .scale = bt_cuda_address(args->scale) };
    return bt_cuda_hold_norm(stream, &own, err);
}

bauta_status bt_cuda_op_norm_grad(bt_cuda_stream *stream,
                                  const bt_norm_grad_args *args,
                                  bauta_error *err)
{
    size_t width = args->x->columns / args->heads;
    void *memory = NULL;
    BT_CUDA_NEED_SAME(stream, err, norm_grad, args->x, args->dy, args->dx);
    BT_CUDA_NEED_F32(stream, err, norm_grad, args->dgain);
    BT_CUDA_NEED_HERE(stream, err, norm_grad, args->gain, args->mean,
                      args->scale);
    BT_CUDA_NEED_F32(stream, err, norm_grad, args->dbias);
    bauta_status status = bt_cuda_stream_scratch(
        stream, &memory,
        bt_cuda_norm_workspace(args->x->rows, args->heads, width), err);
    if (status)
        return status;
    bt_cuda_norm_backward_args own = {
        .kind = args->kind,
        .dtype = args->x->dtype,
        .gain_dtype = args->gain->dtype,
        .rows = args->x->rows,
        .heads = args->heads,
        .width = width,
        .x = bt_cuda_read(args->x),
        .dy = bt_cuda_read(args->dy),
        .dx = bt_cuda_write(args->dx),
        .gain = bt_cuda_address(args->gain),
        .mean = bt_cuda_address(args->mean),
        .scale = bt_cuda_address(args->scale),
        .dgain = bt_cuda_address(args->dgain),
        .dbias = bt_cuda_address(args->dbias),
        .add_dgain = args->add_dgain,
        .add_dbias = args->add_dbias,
    };
    if (args->dx && args->add_dx)
        own.residual = bt_cuda_read(args->dx);
    return bt_cuda_norm_backward(&own, memory, stream->queue, err);
}
