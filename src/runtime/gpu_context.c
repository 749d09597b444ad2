/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_context.c - contexts with a GPU, and its memory. */
#include "runtime/gpu_context.h"

#include "base/sized.h"

size_t bauta_gpu_count(void)
{
    const bt_gpu *gpu = bt_gpu_table();
    return gpu ? gpu->count() : 0;
}

bauta_status bt_context_check_gpu(const bauta_context *context,
                                  bauta_error *err)
{
    BT_NEED(context, err);
    if (context->gpu)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "the context is for the CPU, and this call needs one for "
                   "the device \"cuda\"%s",
                   bt_gpu_table() ? ""
                                  : ", for which this library was built "
                                    "without CUDA");
}

bt_gpu_owner bt_gpu_owner_of(const bauta_context *context)
{
    return (bt_gpu_owner){ context->gpu, context->device };
}

bauta_status bt_gpu_owner_check(const bt_gpu_owner *owner,
                                const bauta_context *context, const char *what,
                                bauta_error *err)
{
    if (owner->device == context->device)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the %s was made for \"cuda:%d\", and the context has the "
                   "device \"%s\"",
                   what, owner->device, context->device_name);
}

bauta_status bt_gpu_type_check(bauta_dtype type, bauta_error *err)
{
    if (type == BAUTA_FLOAT32 || type == BAUTA_BFLOAT16)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT, "dtype is %d, not 0 or 1",
                   (int)type);
}

bauta_status bt_gpu_shape_read(bauta_attention_shape *own,
                               bt_attention_shape *resolved,
                               const bauta_attention_shape *shape,
                               bauta_error *err)
{
    BT_NEED(shape, err);
    bauta_status status =
        BT_SIZED_READ(own, BAUTA_ATTENTION_SHAPE_INIT, shape, "shape", err);
    if (!status)
        status = bt_attention_shape_resolve(resolved, own, err);
    // The kernels read the copy, which has the size that they know.
    if (!status && own->bias)
        own->bias = &resolved->bias;
    return status;
}

bauta_status bt_gpu_shape_match(const bt_attention_shape *of,
                                const bt_attention_shape *shape,
                                const char *what, bauta_error *err)
{
    if (of->heads == shape->heads && of->kv_heads == shape->kv_heads &&
        of->head_dim == shape->head_dim && of->value_dim == shape->value_dim)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the %s is for %zu heads over %zu, of %zu and %zu; the "
                   "shape has %zu over %zu, of %zu and %zu",
                   what, of->heads, of->kv_heads, of->head_dim, of->value_dim,
                   shape->heads, shape->kv_heads, shape->head_dim,
                   shape->value_dim);
}

/* ---- Memory ------------------------------------------------------------ */

bauta_status bauta_gpu_alloc(bauta_context *context, void **out, size_t bytes,
                             bauta_error *err)
{
    int before;
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED_GPU(context, err);
    bauta_status status = context->gpu->enter(context->device, &before, err);
    if (status)
        return status;
    status = context->gpu->alloc(out, bytes, err);
    context->gpu->leave(before);
    return status;
}

void bauta_gpu_free(bauta_context *context, void *memory)
{
    int before;
    if (!memory || !context || !context->gpu ||
        context->gpu->enter(context->device, &before, NULL))
        return;
    context->gpu->free(memory);
    context->gpu->leave(before);
}

static bauta_status copy(bauta_context *context, void *to, const void *from,
                         size_t bytes, bool to_gpu, bauta_error *err)
{
    int before;
    BT_NEED_GPU(context, err);
    if (!bytes)
        return BAUTA_OK;
    BT_NEED(to, err);
    BT_NEED(from, err);
    bauta_status status = context->gpu->enter(context->device, &before, err);
    if (status)
        return status;
    status =
        context->gpu->copy(to, from, bytes, to_gpu, context->gpu_stream, err);
    context->gpu->leave(before);
    return status;
}

bauta_status bauta_gpu_upload(bauta_context *context, void *to,
                              const void *from, size_t bytes, bauta_error *err)
{
    return copy(context, to, from, bytes, true, err);
}

bauta_status bauta_gpu_download(bauta_context *context, void *to,
                                const void *from, size_t bytes,
                                bauta_error *err)
{
    return copy(context, to, from, bytes, false, err);
}

bauta_status bauta_gpu_synchronize(bauta_context *context, bauta_error *err)
{
    int before;
    BT_NEED_GPU(context, err);
    bauta_status status = context->gpu->enter(context->device, &before, err);
    if (status)
        return status;
    status = context->gpu->wait(context->gpu_stream, err);
    context->gpu->leave(before);
    return status;
}

bauta_status bauta_gpu_stream_set(bauta_context *context, void *stream,
                                  bauta_error *err)
{
    BT_NEED_GPU(context, err);
    context->gpu_stream = stream;
    return BAUTA_OK;
}
