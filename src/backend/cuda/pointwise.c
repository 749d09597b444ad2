/* SPDX-License-Identifier: Apache-2.0 */
/* pointwise.c - element-wise operations on a GPU: activations, rotary
 * embeddings, sums, copies, dropout. */
#include "backend/cuda/stream.h"

/* ---- Activations ------------------------------------------------------- */

bauta_status bt_cuda_op_act(bt_cuda_stream *stream, const bt_act_args *args,
                            bauta_error *err)
{
    BT_CUDA_NEED_SAME(stream, err, act, args->x, args->up, args->y);
    bt_cuda_act_args own = { .act = args->act,
                             .dtype = args->x->dtype,
                             .rows = args->x->rows,
                             .columns = args->x->columns,
                             .x = bt_cuda_read(args->x),
                             .by = bt_cuda_read(args->up),
                             .y = bt_cuda_write(args->y) };
    return bt_cuda_hold_gate(stream, &own, err);
}

bauta_status bt_cuda_op_act_grad(bt_cuda_stream *stream,
                                 const bt_act_grad_args *args, bauta_error *err)
{
    BT_CUDA_NEED_SAME(stream, err, act_grad, args->x, args->up, args->dy,
                      args->dx, args->dup);
    bt_cuda_act_backward_args own = { .act = args->act,
                                      .dtype = args->x->dtype,
                                      .rows = args->x->rows,
                                      .columns = args->x->columns,
                                      .x = bt_cuda_read(args->x),
                                      .by = bt_cuda_read(args->up),
                                      .dy = bt_cuda_read(args->dy),
                                      .dx = bt_cuda_write(args->dx),
                                      .dby = bt_cuda_write(args->dup),
                                      .add_dx = args->add_dx,
                                      .add_dby = args->add_dup };
    // A gate that multiplies itself has one gradient, to which both parts add;
    // the kernel reads both before it writes one.
    if (own.dx.data && own.dx.data == own.dby.data) {
        bt_cuda_act_backward_args first = own;
        first.dby = (bt_cuda_out){ NULL, 0 };
        own.dx = first.dby;
        bauta_status status = bt_cuda_act_backward(&first, stream->queue, err);
        if (status)
            return status;
    }
    return bt_cuda_act_backward(&own, stream->queue, err);
}

/* ---- Rotary embeddings ------------------------------------------------- */

bauta_status bt_cuda_op_rotary(bt_cuda_stream *stream,
                               const bt_rotary_args *args, bauta_error *err)
{
    BT_CUDA_NEED_SAME(stream, err, rotary, args->x, args->y);
    BT_CUDA_NEED_F32(stream, err, rotary, args->frequencies);
    BT_CUDA_NEED_HERE(stream, err, rotary, args->positions);
    bt_cuda_rotary_args own = { .dtype = args->x->dtype,
                                .rows = args->x->rows,
                                .heads = args->heads,
                                .dim = args->x->columns / args->heads,
                                .positions = bt_cuda_address(args->positions),
                                .frequencies =
                                    bt_cuda_address(args->frequencies),
                                .x = bt_cuda_read(args->x),
                                .y = bt_cuda_write(args->y),
                                .back = args->back,
                                .add = args->add };
    return bt_cuda_rotary(&own, stream->queue, err);
}

/* ---- Sums and dropout -------------------------------------------------- */

bauta_status bt_cuda_op_add(bt_cuda_stream *stream, const bt_add_args *args,
                            bauta_error *err)
{
    BT_CUDA_NEED_SAME(stream, err, add, args->y, args->a, args->b);
    return bt_cuda_add(args->y->rows, args->y->columns, args->y->dtype,
                       bt_cuda_write(args->y), bt_cuda_read(args->a),
                       bt_cuda_read(args->b), stream->queue, err);
}

bauta_status bt_cuda_op_scale(bt_cuda_stream *stream, const bt_scale_args *args,
                              bauta_error *err)
{
    const bt_tensor *x = args->x, *y = args->y;
    BT_CUDA_NEED_SAME(stream, err, scale, y, x);
    return bt_cuda_scale(x->rows, x->columns, bt_cuda_write(y), y->dtype,
                         bt_cuda_read(x), x->dtype, args->factor, args->add,
                         stream->queue, err);
}

bauta_status bt_cuda_op_softcap(bt_cuda_stream *stream,
                                const bt_softcap_args *args, bauta_error *err)
{
    const bt_tensor *x = args->x, *y = args->y;
    BT_CUDA_NEED_SAME(stream, err, softcap, y, x);
    return bt_cuda_softcap(y->rows, y->columns, y->dtype, bt_cuda_write(y),
                           bt_cuda_read(x), args->cap, stream->queue, err);
}

bauta_status bt_cuda_op_softcap_grad(bt_cuda_stream *stream,
                                     const bt_softcap_grad_args *args,
                                     bauta_error *err)
{
    const bt_tensor *dx = args->dx;
    BT_CUDA_NEED_SAME(stream, err, softcap_grad, dx, args->y, args->dy);
    return bt_cuda_softcap_grad(dx->rows, dx->columns, dx->dtype,
                                bt_cuda_write(dx), bt_cuda_read(args->y),
                                bt_cuda_read(args->dy), args->cap, args->add,
                                stream->queue, err);
}

static bauta_status accumulate(bt_cuda_stream *stream, const bt_tensor *x,
                               const bt_tensor *to, bool add, bauta_error *err)
{
    if (add)
        return bt_cuda_scale(x->rows, x->columns, bt_cuda_write(to), to->dtype,
                             bt_cuda_read(x), x->dtype, 1.0f, true,
                             stream->queue, err);
    return bt_cuda_copy(x->rows, x->columns, bt_cuda_write(to), to->dtype,
                        bt_cuda_read(x), x->dtype, stream->queue, err);
}

/* All weights of a model are one row, of which a kernel takes a part. */
bauta_status bt_cuda_op_accumulate(bt_cuda_stream *stream,
                                   const bt_accumulate_args *args,
                                   bauta_error *err)
{
    const size_t most = (size_t)1 << 30;
    bt_tensor x = *args->x, to = *args->to;
    bauta_status status = BAUTA_OK;
    BT_CUDA_NEED_HERE(stream, err, accumulate, args->x, args->to);
    while (!status && x.rows == 1 && x.columns > most) {
        bt_tensor x_part = x, to_part = to;
        x_part.columns = to_part.columns = most;
        status = accumulate(stream, &x_part, &to_part, args->add, err);
        x.columns -= most;
        x.offset += most;
        to.offset += most;
    }
    return status ? status : accumulate(stream, &x, &to, args->add, err);
}

bauta_status bt_cuda_op_dropout(bt_cuda_stream *stream,
                                const bt_dropout_args *args, bauta_error *err)
{
    double rate = (double)args->rate;
    BT_CUDA_NEED_SAME(stream, err, dropout, args->x, args->y);
    BT_CUDA_NEED_HERE(stream, err, dropout, args->tokens);
    bt_cuda_dropout_args own = { .dtype = args->x->dtype,
                                 .rows = args->x->rows,
                                 .columns = args->x->columns,
                                 .seed = args->seed,
                                 .site = args->site,
                                 .below = (uint32_t)(rate * 0x1p32),
                                 .scale = (float)(1 / (1 - rate)),
                                 .tokens = bt_cuda_address(args->tokens),
                                 .x = bt_cuda_read(args->x),
                                 .y = bt_cuda_write(args->y) };
    if (args->add)
        own.residual = bt_cuda_read(args->y);
    return bt_cuda_dropout(&own, stream->queue, err);
}

bauta_status bt_cuda_op_scatter_add(bt_cuda_stream *stream,
                                    const bt_scatter_add_args *args,
                                    bauta_error *err)
{
    const bt_tensor *x = args->x;
    BT_CUDA_NEED_SAME(stream, err, scatter_add, x, args->to);
    BT_CUDA_NEED_HERE(stream, err, scatter_add, args->index);
    return bt_cuda_scatter_rows(
        x->rows, x->columns, x->dtype, bt_cuda_write(args->to), bt_cuda_read(x),
        bt_cuda_address(args->index), true, stream->queue, err);
}
