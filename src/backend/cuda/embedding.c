/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c - embeddings on a GPU: rows of a table, and their gradient. */
#include "backend/cuda/stream.h"
#include "base/error.h"
#include "base/size.h"

/* A float32 table of a model in bfloat16, such as sinusoids: rows are rounded
 * once, after the scale. */
static bauta_status embedding_rounded(bt_cuda_stream *stream,
                                      bt_cuda_embedding_args *own,
                                      bauta_error *err)
{
    bt_cuda_out y = own->y;
    bauta_status status = bt_cuda_stream_scratch(
        stream, &own->y.data,
        bt_size_mul(own->rows, own->columns * sizeof(float)), err);
    own->dtype = BAUTA_FLOAT32;
    own->y.stride = own->columns;
    if (!status)
        status = bt_cuda_embedding(own, stream->queue, err);
    if (!status)
        status = bt_cuda_copy(own->rows, own->columns, y, BAUTA_BFLOAT16,
                              (bt_cuda_in){ own->y.data, own->columns },
                              BAUTA_FLOAT32, stream->queue, err);
    return status;
}

bauta_status bt_cuda_op_embedding(bt_cuda_stream *stream,
                                  const bt_embedding_args *args,
                                  bauta_error *err)
{
    const bt_tensor *table = args->table, *y = args->y;
    bool rounds = table->dtype == BAUTA_FLOAT32 && y->dtype == BAUTA_BFLOAT16;
    BT_CUDA_NEED_SAME(stream, err, embedding, y, rounds ? NULL : table);
    BT_CUDA_NEED_HERE(stream, err, embedding, table, args->ids);
    bt_cuda_embedding_args own = { .dtype = y->dtype,
                                   .rows = y->rows,
                                   .columns = y->columns,
                                   .table = bt_cuda_read(table),
                                   .ids = bt_cuda_read(args->ids),
                                   .scale = args->scale,
                                   .y = bt_cuda_write(y) };
    return rounds ? embedding_rounded(stream, &own, err)
                  : bt_cuda_embedding(&own, stream->queue, err);
}

bauta_status bt_cuda_op_embedding_grad(bt_cuda_stream *stream,
                                       const bt_embedding_grad_args *args,
                                       bauta_error *err)
{
    const bt_tensor *dy = args->dy, *table = args->dtable;
    void *memory = NULL;
    BT_CUDA_NEED_F32(stream, err, embedding_grad, table);
    BT_CUDA_NEED_HERE(stream, err, embedding_grad, dy, args->ids);
    if (!bt_tensor_dense(table))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "embedding_grad: the table is a part of a larger "
                       "matrix, with rows %zu apart",
                       table->stride);
    bauta_status status = BAUTA_OK;
    if (!args->add)
        status = bt_cuda_stream_fill(
            stream, bt_cuda_address(table), 0,
            table->rows * table->columns * sizeof(float), err);
    if (!status)
        status = bt_cuda_stream_scratch(
            stream, &memory, bt_cuda_embedding_workspace(dy->rows), err);
    if (status)
        return status;
    bt_cuda_embedding_backward_args own = { .dtype = dy->dtype,
                                            .rows = dy->rows,
                                            .columns = dy->columns,
                                            .table_rows = table->rows,
                                            .dy = bt_cuda_read(dy),
                                            .ids = bt_cuda_address(args->ids),
                                            .scale = args->scale,
                                            .padding_id = args->padding_id,
                                            .dtable = bt_cuda_address(table) };
    return bt_cuda_embedding_backward(&own, memory, stream->queue, err);
}
