/* SPDX-License-Identifier: Apache-2.0 */
/* model_device.c - moving a model's parameters from one device to another. */
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/size.h"
#include "formats/weight_files.h"
#include "model/api.h"
#include "runtime/context.h"

static const char *device_of(const bauta_model *model)
{
    return model->store->stream ? model->store->stream->device : "cpu";
}

bauta_status bt_model_check_device(const bauta_model *model,
                                   const bauta_context *context,
                                   bauta_error *err)
{
    if (strcmp(device_of(model), context->device_name) != 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model is on the device \"%s\" and the context on "
                       "\"%s\": bauta_model_to() moves a model",
                       device_of(model), context->device_name);
    if (model->store->dtype != context->stream->dtype)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model computes in %s and the context in %s",
                       bt_dtype_name(model->store->dtype),
                       bt_dtype_name(context->stream->dtype));
    return BAUTA_OK;
}

bauta_status bt_model_check_owner(const bauta_model *model,
                                  const bauta_context *context,
                                  bauta_error *err)
{
    const bt_stream *stream = model->store->stream;
    bauta_status status = bt_model_check_device(model, context, err);
    if (status || !stream || stream == context->stream)
        return status;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the model was moved to the device \"%s\" with another "
                   "context, which alone can train it",
                   stream->device);
}

bauta_status bt_model_finish_write(const bauta_model *model,
                                   const bauta_context *context,
                                   bauta_error *err)
{
    bt_stream *stream = context->stream;
    if (!model->store->stream || model->store->stream == stream)
        return BAUTA_OK;
    return stream->backend->sync(stream, err);
}

bauta_status bt_model_store_round(bt_model_store *store, bauta_error *err)
{
    if (!store->copies.memory)
        return BAUTA_OK;
    bt_tensor from =
        bt_tensor_of(&store->weights, BAUTA_FLOAT32, 1, store->floats);
    bt_tensor to = bt_tensor_of(&store->copies, store->dtype, 1, store->floats);
    bt_accumulate_args args = { &from, &to, false };
    return store->stream->backend->accumulate(store->stream, &args, err);
}

/* ---- reading and writing ------------------------------------------------- */

/* The float32 original of a parameter, which may be the parameter itself. */
static bt_tensor master_of(const bauta_model *model, const bt_tensor *tensor)
{
    bt_tensor master = *tensor;
    const bt_model_store *store = model->store;
    if (tensor->buffer == &store->copies && store->weights.memory) {
        master.buffer = &store->weights;
        master.dtype = BAUTA_FLOAT32;
    }
    return master;
}

bauta_status bt_model_download(const bauta_model *model, const bt_tensor *from,
                               float *to, bauta_error *err)
{
    bt_tensor master = master_of(model, from);
    size_t count = from->rows * from->columns;
    if (master.dtype == BAUTA_FLOAT32)
        return bt_tensor_download(model->store->stream, to, &master, err);
    void *raw = bt_alloc(count * bt_dtype_size(master.dtype));
    if (!raw)
        return bt_fail_memory(err, "a tensor", count);
    bauta_status status =
        bt_tensor_download(model->store->stream, raw, &master, err);
    if (!status)
        bt_convert_f32(to, raw, master.dtype, count);
    bt_free(raw);
    return status;
}

bauta_status bt_model_check_masters(const bauta_model *model, bauta_error *err)
{
    const bt_model_store *store = model->store;
    if (!model->trainable || !store->copies.memory || store->weights.memory)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "the float32 weights of the model are shared out over ranks "
                   "by its trainer");
}

bauta_status bt_model_upload(const bauta_model *model, const bt_tensor *to,
                             const float *from, bauta_error *err)
{
    bt_tensor master = master_of(model, to), copy = *to;
    bt_stream *stream = model->store->stream;
    bt_accumulate_args round = { &master, &copy, false };
    bauta_status status = bt_model_check_masters(model, err);
    if (!status)
        status = bt_tensor_upload(stream, &master, from, err);
    if (!status && copy.buffer != master.buffer)
        status = stream->backend->accumulate(stream, &round, err);
    // The next call may be one of another context.
    return status || !stream ? status : stream->backend->sync(stream, err);
}

/* ---- moving -------------------------------------------------------------- */

/* New memory, and what the old memory holds. */
typedef struct move {
    bt_model_store *store;
    bt_stream *stream; /* of the new device */
    bt_host_copy weights, sinusoids[2];
    bt_buffer new_weights, new_copies, new_grads, new_sinusoids[2];
    bool rounds; /* the new device computes with rounded copies */
    size_t floats;
    bauta_status status;
    bauta_error *err;
} move;

static void count_floats(void *user, const char *name, bt_tensor *tensor,
                         int rank)
{
    move *m = user;
    (void)name;
    (void)rank;
    m->floats += bt_tensor_floats(tensor);
}

static bauta_status zeros_alloc(const move *m, bt_buffer *to, size_t bytes)
{
    const bt_backend *backend = m->stream->backend;
    bauta_status status = backend->alloc(m->stream, to, bytes, m->err);
    return status ? status : backend->fill(m->stream, to, 0, 0, bytes, m->err);
}

/* Write numbers of one type to a buffer of another, from element `offset` on,
 * some at a time. */
static bauta_status convert_upload(const move *m, const bt_buffer *to,
                                   size_t offset, bauta_dtype to_dtype,
                                   const void *from, bauta_dtype dtype,
                                   size_t count)
{
    enum { SOME = 1 << 20 };
    const bt_backend *backend = m->stream->backend;
    size_t size = bt_dtype_size(to_dtype), from_size = bt_dtype_size(dtype);
    bauta_status status = BAUTA_OK;
    if (dtype == to_dtype)
        return backend->upload(m->stream, to, offset * size, from, count * size,
                               m->err);
    size_t some = bt_size_min(count, SOME);
    float *floats = bt_alloc(some * sizeof(*floats));
    void *rounded = bt_alloc(some * size);
    if (!floats || !rounded)
        status = bt_fail_memory(m->err, "some weights", some * sizeof(*floats));
    for (size_t done = 0; done < count && !status; done += some) {
        size_t n = bt_size_min(some, count - done);
        bt_convert_f32(floats, (const char *)from + done * from_size, dtype, n);
        bt_convert_from_f32(rounded, to_dtype, floats, n);
        status = backend->upload(m->stream, to, (offset + done) * size, rounded,
                                 n * size, m->err);
    }
    bt_free(floats);
    bt_free(rounded);
    return status;
}

static bauta_status sinusoids_move(move *m, int i)
{
    const bt_host_copy *from = &m->sinusoids[i];
    if (!from->of->memory)
        return BAUTA_OK;
    size_t count = from->of->bytes / bt_dtype_size(m->store->dtype);
    bauta_status status = zeros_alloc(m, &m->new_sinusoids[i],
                                      count * bt_dtype_size(m->stream->dtype));
    return status ? status
                  : convert_upload(m, &m->new_sinusoids[i], 0, m->stream->dtype,
                                   from->data, BAUTA_FLOAT32, count);
}

static bauta_status memory_alloc(move *m)
{
    size_t bytes = m->floats * sizeof(float);
    bool trained = m->store->grads.memory;
    bauta_status status = BAUTA_OK;
    if (trained || !m->rounds)
        status = zeros_alloc(m, &m->new_weights, bytes);
    if (!status && m->rounds)
        status = zeros_alloc(m, &m->new_copies,
                             m->floats * bt_dtype_size(m->stream->dtype));
    if (!status && trained)
        status = zeros_alloc(m, &m->new_grads, bytes);
    for (int i = 0; i < 2 && !status; i++)
        status = sinusoids_move(m, i);
    return status;
}

/* Where a parameter is now, and in which type. */
static const void *data_of(const move *m, const char *name,
                           const bt_tensor *tensor, bauta_dtype *dtype)
{
    *dtype = BAUTA_FLOAT32;
    if (!tensor->buffer) {
        const bt_stored_tensor *stored = bt_model_store_find(m->store, name);
        *dtype = stored->dtype;
        return stored->data;
    }
    bool mapped = tensor->buffer != &m->store->weights &&
                  tensor->buffer != &m->store->copies;
    return mapped ? bt_tensor_host(tensor) : m->weights.data + tensor->offset;
}

/* Copy a parameter to its new place. */
static void upload_one(void *user, const char *name, bt_tensor *tensor,
                       int rank)
{
    move *m = user;
    (void)rank;
    bauta_dtype dtype;
    const void *from = data_of(m, name, tensor, &dtype);
    size_t count = tensor->rows * tensor->columns;
    if (!m->status && m->new_weights.memory)
        m->status = convert_upload(m, &m->new_weights, m->floats, BAUTA_FLOAT32,
                                   from, dtype, count);
    if (!m->status && m->rounds)
        m->status = convert_upload(m, &m->new_copies, m->floats,
                                   m->stream->dtype, from, dtype, count);
    if (!tensor->buffer)
        bt_file_map_forget(from, count * bt_dtype_size(dtype));
    m->floats += bt_tensor_floats(tensor);
}

/* Cannot fail. */
static void bind_one(void *user, const char *name, bt_tensor *tensor, int rank)
{
    move *m = user;
    (void)name;
    (void)rank;
    tensor->buffer = m->rounds ? &m->store->copies : &m->store->weights;
    tensor->offset = m->floats;
    tensor->dtype = m->stream->dtype;
    tensor->grad_dtype = BAUTA_FLOAT32;
    if (tensor->grad)
        tensor->grad_offset = m->floats;
    m->floats += bt_tensor_floats(tensor);
}

static void buffer_replace(bt_buffer *old, bt_buffer *with)
{
    if (old->memory)
        old->backend->free(old);
    *old = *with;
    *with = (bt_buffer){ NULL, NULL, 0 };
}

static void take_over(move *m)
{
    bt_model_store *store = m->store;
    bt_stack *stacks[] = { &store->model->encoder, &store->model->decoder };
    store->floats = m->floats;
    store->dtype = m->stream->dtype;
    m->floats = 0;
    bt_model_store_visit(store, &(bt_tensor_visitor){ bind_one, m });
    buffer_replace(&store->weights, &m->new_weights);
    buffer_replace(&store->copies, &m->new_copies);
    buffer_replace(&store->grads, &m->new_grads);
    for (int i = 0; i < 2; i++) {
        buffer_replace(&stacks[i]->sinusoids, &m->new_sinusoids[i]);
        if (stacks[i]->sinusoids.memory)
            stacks[i]->positions.dtype = store->dtype;
    }
    bt_model_split_qkv(store->model);
    bt_weight_files_free(store->files); // everything was copied
    store->files = NULL;
    store->stream = m->stream->backend == &bt_cpu_backend ? NULL : m->stream;
}

static void move_release(move *m)
{
    bt_buffer *made[] = { &m->new_weights, &m->new_copies, &m->new_grads,
                          &m->new_sinusoids[0], &m->new_sinusoids[1] };
    for (size_t i = 0; i < BT_LEN(made); i++)
        if (made[i]->memory)
            made[i]->backend->free(made[i]);
    bt_host_copy_release(&m->weights);
    for (int i = 0; i < 2; i++)
        bt_host_copy_release(&m->sinusoids[i]);
}

static bauta_status move_prepare(move *m)
{
    bt_model_store *store = m->store;
    bt_stack *stacks[] = { &store->model->encoder, &store->model->decoder };
    bauta_status status =
        bt_host_copy_init(&m->weights, store->stream, &store->weights, m->err);
    for (int i = 0; i < 2 && !status; i++)
        status = bt_host_copy_init(&m->sinusoids[i], store->stream,
                                   &stacks[i]->sinusoids, m->err);
    if (status)
        return status;
    bt_model_store_visit(store, &(bt_tensor_visitor){ count_floats, m });
    m->status = memory_alloc(m);
    m->floats = 0;
    bt_model_store_visit(store, &(bt_tensor_visitor){ upload_one, m });
    return m->status ? m->status : m->stream->backend->sync(m->stream, m->err);
}

bauta_status bauta_model_to(bauta_model *model, bauta_context *context,
                            bauta_error *err)
{
    BT_NEED(model, err);
    BT_NEED(context, err);
    const bt_model_store *store = model->store;
    if (strcmp(device_of(model), context->device_name) == 0 &&
        store->dtype == context->stream->dtype)
        return BAUTA_OK;
    if (store->packed)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the weights are packed as %s for the CPU",
                       bt_model_dtype_name(model->dtype));
    if (store->dtype != BAUTA_FLOAT32)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the weights are rounded to %s: load the model again to "
                       "move it to another device",
                       bt_dtype_name(store->dtype));
    move m = { .store = model->store,
               .stream = context->stream,
               .rounds = context->stream->dtype != BAUTA_FLOAT32,
               .err = err };
    bauta_status status = move_prepare(&m);
    if (!status)
        take_over(&m);
    move_release(&m);
    return status;
}
