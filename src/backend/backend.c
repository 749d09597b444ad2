/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - names of operations, and copies between tensors and the host. */
#include "backend/backend.h"

#include "base/error.h"
#include "base/memory.h"

static const char *const names[] = {
#define OP_NAME(name) [BT_OP_##name] = #name,
    BT_OP_MAP(OP_NAME)
};

const char *bt_op_name(bt_op op)
{
    return names[op];
}

bauta_status bt_unsupported(const bt_stream *stream, bt_op op,
                            bauta_dtype dtype, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "the device \"%s\" has no %s for %s", stream->device,
                   names[op], bt_dtype_name(dtype));
}

/* Bytes of a row, of the step from row to row, and where the first one is. */
typedef struct extent {
    size_t row, step, offset, rows;
} extent;

/* A dense tensor is a single row. */
static extent extent_of(const bt_tensor *t)
{
    size_t size = bt_dtype_size(t->dtype);
    extent e = { t->columns * size, t->stride * size, t->offset * size,
                 t->rows };
    if (bt_tensor_dense(t)) {
        e.row *= t->rows;
        e.rows = e.row > 0;
    }
    return e;
}

bauta_status bt_tensor_upload(bt_stream *stream, const bt_tensor *to,
                              const void *from, bauta_error *err)
{
    extent e = extent_of(to);
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < e.rows && !status; i++)
        status = to->buffer->backend->upload(
            stream, to->buffer, e.offset + i * e.step,
            (const char *)from + i * e.row, e.row, err);
    return status;
}

bauta_status bt_tensor_download(bt_stream *stream, void *to,
                                const bt_tensor *from, bauta_error *err)
{
    extent e = extent_of(from);
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < e.rows && !status; i++)
        status = from->buffer->backend->download(
            stream, (char *)to + i * e.row, from->buffer, e.offset + i * e.step,
            e.row, err);
    return status;
}

bauta_status bt_tensor_zero(bt_stream *stream, const bt_tensor *tensor,
                            bauta_error *err)
{
    extent e = extent_of(tensor);
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < e.rows && !status; i++)
        status = stream->backend->fill(stream, tensor->buffer,
                                       e.offset + i * e.step, 0, e.row, err);
    return status;
}

void *bt_tensor_host(const bt_tensor *tensor)
{
    if (!tensor->buffer || !tensor->buffer->backend->host_visible)
        return NULL;
    return (char *)tensor->buffer->memory +
           tensor->offset * bt_dtype_size(tensor->dtype);
}

bauta_status bt_host_copy_init(bt_host_copy *copy, bt_stream *stream,
                               const bt_buffer *of, bauta_error *err)
{
    *copy = (bt_host_copy){ .stream = stream, .of = of, .data = of->memory };
    if (!of->memory || of->backend->host_visible)
        return BAUTA_OK;
    copy->data = bt_alloc(of->bytes);
    if (!copy->data)
        return bt_fail_memory(err, "a copy of a buffer", of->bytes);
    copy->owned = true;
    bauta_status status =
        of->backend->download(stream, copy->data, of, 0, of->bytes, err);
    if (status)
        bt_host_copy_release(copy);
    return status;
}

bauta_status bt_host_copy_store(const bt_host_copy *copy, bauta_error *err)
{
    return copy->owned
               ? copy->of->backend->upload(copy->stream, copy->of, 0,
                                           copy->data, copy->of->bytes, err)
               : BAUTA_OK;
}

void bt_host_copy_release(bt_host_copy *copy)
{
    if (copy->owned)
        bt_free(copy->data);
    *copy = (bt_host_copy){ .data = NULL };
}
