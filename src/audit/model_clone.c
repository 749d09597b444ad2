/* SPDX-License-Identifier: Apache-2.0 */
/* model_clone.c - a shallow copy of a model with replaceable parts. */
#include "audit/model_clone.h"

#include "backend/cpu/kernels/packed_weight.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- create and release ------------------------------------------------ */

/* A clone has no gradients until they are asked for. */
static void clear_gradient(void *user, const char *name, bt_tensor *tensor,
                           int rank)
{
    (void)user;
    (void)name;
    (void)rank;
    tensor->grad = NULL;
    tensor->requires_grad = false;
}

/* The slices of a fused projection are not in the list of names. */
static void clear_projection_gradients(bt_attention_params *heads)
{
    bt_linear_params *parts[] = { &heads->q, &heads->k, &heads->v };
    for (size_t i = 0; i < BT_LEN(parts); i++) {
        clear_gradient(NULL, NULL, &parts[i]->w, 0);
        clear_gradient(NULL, NULL, &parts[i]->bias, 0);
    }
}

static bool stack_copy(bt_layer **out, bt_stack *stack,
                       const bt_stack_config *print)
{
    if (!stack->config)
        return true;
    size_t bytes = bt_size_mul(print->layers, sizeof(**out));
    *out = bt_alloc(bytes);
    if (!*out)
        return false;
    if (bytes)
        memcpy(*out, stack->layers, bytes);
    stack->layers = *out;
    stack->config = print;
    return true;
}

bauta_status bt_model_clone_init(bt_model_clone *clone,
                                 const bauta_model *model, bauta_error *err)
{
    *clone = (bt_model_clone){ .handle = *model,
                               .folder = *model->store,
                               .model = *model->store->model,
                               .original = model->store };
    clone->handle.store = &clone->folder;
    clone->handle.trainable = false;
    clone->folder.model = &clone->model;
    if (!stack_copy(&clone->layers[0], &clone->model.encoder,
                    &clone->model.config.encoder) ||
        !stack_copy(&clone->layers[1], &clone->model.decoder,
                    &clone->model.config.decoder)) {
        bt_model_clone_release(clone);
        return bt_fail_memory(err, "a clone of the model", sizeof(bt_layer));
    }
    bt_model_store_visit(&clone->folder,
                         &(bt_tensor_visitor){ clear_gradient, NULL });
    for (size_t s = 0; s < 2; s++) {
        const bt_stack_config *print =
            s ? &clone->model.config.decoder : &clone->model.config.encoder;
        for (size_t l = 0; clone->layers[s] && l < print->layers; l++)
            clear_projection_gradients(&clone->layers[s][l].self);
    }
    return BAUTA_OK;
}

void bt_model_clone_release(bt_model_clone *clone)
{
    for (size_t i = 0; i < clone->owned_count; i++) {
        bt_owned_floats *o = &clone->owned[i];
        if (o->buffer.memory != o->host)
            o->buffer.backend->free(&o->buffer);
        bt_free(o->host);
    }
    bt_free(clone->layers[0]);
    bt_free(clone->layers[1]);
    *clone = (bt_model_clone){ .owned_count = 0 };
}

void bt_model_clone_set_depth(bt_model_clone *clone, size_t encoder,
                              size_t decoder)
{
    clone->model.config.encoder.layers = encoder;
    clone->model.config.decoder.layers = decoder;
}

static const bt_backend *backend_of(const bt_model_clone *clone)
{
    const bt_stream *stream = clone->folder.stream;
    return stream ? stream->backend : &bt_cpu_backend;
}

static bauta_status owned_alloc(bt_owned_floats *o, const bt_model_clone *clone,
                                size_t count, bauta_error *err)
{
    size_t bytes = count * bt_dtype_size(o->dtype);
    const bt_backend *backend = backend_of(clone);
    o->buffer = bt_buffer_of_host(o->host, bytes);
    if (backend->host_visible)
        return BAUTA_OK;
    bt_stream *stream = clone->folder.stream;
    bauta_status status = backend->alloc(stream, &o->buffer, bytes, err);
    if (!status)
        status = backend->fill(stream, &o->buffer, 0, 0, bytes, err);
    // Other contexts use the clone, too.
    return status ? status : backend->sync(stream, err);
}

/* Zeros that live as long as the clone; NULL without memory. */
static const bt_owned_floats *owned_zeros(bt_model_clone *clone,
                                          bauta_dtype dtype, size_t rows,
                                          size_t columns, bauta_error *err)
{
    assert(clone->owned_count < BT_MODEL_CLONE_OWNED);
    size_t count = bt_size_mul(rows, columns);
    bt_owned_floats *o = &clone->owned[clone->owned_count];
    o->host = bt_alloc_zero(count, sizeof(float));
    o->dtype = dtype;
    if (!o->host || owned_alloc(o, clone, count, NULL)) {
        bt_free(o->host);
        o->host = NULL;
        bt_fail_memory(err, "a clone of the model", count);
        return NULL;
    }
    clone->owned_count++;
    return o;
}

/* Bring what was written to host memory to the device. */
static bauta_status owned_upload(const bt_model_clone *clone,
                                 const bt_owned_floats *o, size_t first,
                                 size_t count, bauta_error *err)
{
    size_t size = bt_dtype_size(o->dtype);
    if (o->buffer.memory == o->host)
        return BAUTA_OK;
    void *rounded = bt_alloc(count * size);
    if (!rounded)
        return bt_fail_memory(err, "a clone of the model", count * size);
    bt_convert_from_f32(rounded, o->dtype, o->host + first, count);
    bt_stream *stream = clone->folder.stream;
    bauta_status status = stream->backend->upload(
        stream, &o->buffer, first * size, rounded, count * size, err);
    bt_free(rounded);
    return status ? status : stream->backend->sync(stream, err);
}

static void tensor_bind(bt_tensor *tensor, const bt_owned_floats *o)
{
    tensor->buffer = &o->buffer;
    tensor->dtype = o->dtype;
    tensor->offset = 0;
    tensor->packed = NULL;
    tensor->stride = tensor->columns;
}

/* Give a tensor data of its own, all 0; NULL without memory. */
static const bt_owned_floats *replace_data(bt_model_clone *clone,
                                           bt_tensor *tensor, bauta_error *err)
{
    const bt_owned_floats *o = owned_zeros(clone, clone->folder.dtype,
                                           tensor->rows, tensor->columns, err);
    if (o)
        tensor_bind(tensor, o);
    return o;
}

/* The numbers of a tensor that replace_data() has replaced. */
static const bt_owned_floats *owner_of(const bt_tensor *tensor)
{
    const char *buffer = (const char *)tensor->buffer;
    return (const void *)(buffer - offsetof(bt_owned_floats, buffer));
}

static bauta_status upload_all(const bt_model_clone *clone,
                               const bt_tensor *tensor, bauta_error *err)
{
    return owned_upload(clone, owner_of(tensor), 0,
                        tensor->rows * tensor->columns, err);
}

/* ---- embedding and output head ----------------------------------------- */

bauta_status bt_model_clone_replace_embedding(bt_model_clone *clone,
                                              size_t rows, bool trainable,
                                              bauta_error *err)
{
    bt_tensor *tokens = &clone->model.tokens;
    if (clone->model.config.tied)
        clone->model.head.w = *tokens;
    clone->model.config.tied = false;
    clone->model.config.vocab_size = rows;
    clone->model.config.padding_token = BT_IGNORE_INDEX;
    tokens->rows = rows;
    if (!replace_data(clone, tokens, err))
        return BAUTA_ERR_NOMEM;
    if (!trainable)
        return BAUTA_OK;
    clone->gradients =
        owned_zeros(clone, BAUTA_FLOAT32, rows, tokens->columns, err);
    if (!clone->gradients)
        return BAUTA_ERR_NOMEM;
    tokens->grad = &clone->gradients->buffer;
    tokens->grad_offset = 0;
    tokens->requires_grad = true;
    clone->handle.trainable = true;
    return BAUTA_OK;
}

/* Read `count` elements of a parameter from element `at` on. */
static bauta_status read_floats(const bt_model_store *store,
                                const bt_tensor *from, size_t at, size_t count,
                                float *to, bauta_error *err)
{
    size_t size = bt_dtype_size(from->dtype);
    if (from->dtype == BAUTA_FLOAT32)
        return from->buffer->backend->download(store->stream, to, from->buffer,
                                               (from->offset + at) * size,
                                               count * size, err);
    void *raw = bt_alloc(count * size);
    if (!raw)
        return bt_fail_memory(err, "a clone of the model", count * size);
    bauta_status status = from->buffer->backend->download(
        store->stream, raw, from->buffer, (from->offset + at) * size,
        count * size, err);
    if (!status)
        bt_convert_f32(to, raw, from->dtype, count);
    bt_free(raw);
    return status;
}

bauta_status bt_embedding_read(const bt_model_store *store, uint32_t id,
                               float *to, bauta_error *err)
{
    const bt_tensor *table = &store->model->tokens;
    if (table->packed) {
        bt_packed_weight_row(to, table->packed, id, 1.0f);
        return BAUTA_OK;
    }
    return read_floats(store, table, id * table->stride, table->columns, to,
                       err);
}

static float *embedding_row(const bt_model_clone *clone, size_t row)
{
    const bt_tensor *tokens = &clone->model.tokens;
    return owner_of(tokens)->host + row * tokens->columns;
}

static bauta_status embedding_upload(const bt_model_clone *clone, size_t row,
                                     bauta_error *err)
{
    const bt_tensor *tokens = &clone->model.tokens;
    return owned_upload(clone, owner_of(tokens), row * tokens->columns,
                        tokens->columns, err);
}

bauta_status bt_model_clone_copy_embedding(bt_model_clone *clone, size_t row,
                                           uint32_t id, bauta_error *err)
{
    bauta_status status =
        bt_embedding_read(clone->original, id, embedding_row(clone, row), err);
    return status ? status : embedding_upload(clone, row, err);
}

bauta_status bt_model_clone_poison_embedding(bt_model_clone *clone, size_t row,
                                             bauta_error *err)
{
    for (size_t c = 0; c < clone->model.tokens.columns; c++)
        embedding_row(clone, row)[c] = NAN;
    return embedding_upload(clone, row, err);
}

bauta_status bt_model_clone_poison_output_head(bt_model_clone *clone,
                                               bauta_error *err)
{
    bt_tensor *w = &clone->model.head.w;
    *w = (bt_tensor){ .rows = 2,
                      .columns = clone->model.config.width,
                      .grad_dtype = BAUTA_FLOAT32 };
    clone->model.head.bias = (bt_tensor){ .rows = 0 };
    const bt_owned_floats *o = replace_data(clone, w, err);
    if (!o)
        return BAUTA_ERR_NOMEM;
    for (size_t i = 0; i < w->rows * w->columns; i++)
        o->host[i] = NAN;
    return upload_all(clone, w, err);
}

/* ---- attention --------------------------------------------------------- */

static bt_attention_params *attention_of(const bt_model_clone *clone,
                                         bauta_attention_kind at, size_t layer)
{
    bt_layer *l = &clone->layers[at != BAUTA_ATTENTION_ENCODER][layer];
    return at == BAUTA_ATTENTION_CROSS ? &l->cross : &l->self;
}

static size_t heads_of(const bt_model_clone *clone, bauta_attention_kind at)
{
    return at == BAUTA_ATTENTION_ENCODER ? clone->model.config.encoder.heads
                                         : clone->model.config.decoder.heads;
}

/* Ablated layers share one array of zeros. */
static bauta_status zero_weights(bt_model_clone *clone, bt_tensor *w,
                                 bauta_error *err)
{
    size_t count = w->rows * w->columns;
    if (clone->zero_count < count) {
        clone->zeros = owned_zeros(clone, clone->folder.dtype, count, 1, err);
        clone->zero_count = clone->zeros ? count : 0;
    }
    if (!clone->zeros)
        return BAUTA_ERR_NOMEM;
    tensor_bind(w, clone->zeros);
    return BAUTA_OK;
}

/* Copy the weights of one head of an output projection to one of zeros. */
static bauta_status head_copy(const bt_model_clone *clone, const bt_tensor *to,
                              const bt_tensor *from, size_t head,
                              bauta_error *err)
{
    size_t dim = clone->model.config.head_dim, first = head * dim;
    bool transposed = clone->model.config.transposed;
    size_t rows = transposed ? dim : to->rows;
    size_t columns = transposed ? to->columns : dim;
    const bt_owned_floats *o = owner_of(to);
    for (size_t i = 0; i < rows; i++) {
        size_t row = transposed ? first + i : i,
               column = transposed ? 0 : first;
        bauta_status status =
            read_floats(&clone->folder, from, row * from->stride + column,
                        columns, o->host + row * to->columns + column, err);
        if (status)
            return status;
    }
    return upload_all(clone, to, err);
}

bauta_status bt_model_clone_ablate_heads(bt_model_clone *clone,
                                         bauta_attention_kind at, size_t layer,
                                         size_t keep, bauta_error *err)
{
    bt_tensor *out = &attention_of(clone, at, layer)->out.w;
    const bt_tensor from = *out;
    if (keep >= heads_of(clone, at))
        return zero_weights(clone, out, err);
    if (!from.buffer)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "the heads of a packed model cannot be separated");
    if (!replace_data(clone, out, err))
        return BAUTA_ERR_NOMEM;
    return head_copy(clone, out, &from, keep, err);
}

/* Pseudo-random numbers of magnitude 0.1 to 1.1. */
static void randomize(const bt_tensor *w)
{
    float *to = owner_of(w)->host;
    uint32_t state = 12345;
    for (size_t i = 0; i < w->rows * w->columns; i++) {
        state = state * 1664525 + 1013904223;
        float part = (float)(state >> 8) * 0x1p-24f;
        to[i] = state & 128 ? 0.1f + part : -0.1f - part;
    }
}

/* With queries of 0 all scores are equal. */
bauta_status bt_model_clone_uniform_attention(bt_model_clone *clone,
                                              bauta_attention_kind at,
                                              size_t layer, bauta_error *err)
{
    bt_attention_params *heads = attention_of(clone, at, layer);
    if (!replace_data(clone, &heads->q.w, err) ||
        !replace_data(clone, &heads->v.w, err) ||
        !replace_data(clone, &heads->out.w, err) ||
        (heads->q.bias.rows && !replace_data(clone, &heads->q.bias, err)))
        return BAUTA_ERR_NOMEM;
    randomize(&heads->v.w);
    randomize(&heads->out.w);
    bauta_status status = upload_all(clone, &heads->v.w, err);
    return status ? status : upload_all(clone, &heads->out.w, err);
}

/* ---- gradients --------------------------------------------------------- */

/* The elements of all parameters so far, and where their gradients go. */
typedef struct gradient_layout {
    const bt_buffer *gradients; /* NULL: only count */
    size_t count;
} gradient_layout;

static void assign_gradient(void *user, const char *name, bt_tensor *tensor,
                            int rank)
{
    gradient_layout *l = user;
    (void)name;
    (void)rank;
    if (l->gradients) {
        tensor->grad = l->gradients;
        tensor->grad_offset = l->count;
        tensor->requires_grad = true;
    }
    l->count += bt_tensor_floats(tensor);
}

bauta_status bt_model_clone_enable_gradients(bt_model_clone *clone,
                                             size_t *count, bauta_error *err)
{
    gradient_layout l = { NULL, 0 };
    bt_model_store_visit(&clone->folder,
                         &(bt_tensor_visitor){ assign_gradient, &l });
    *count = l.count;
    clone->gradients = owned_zeros(clone, BAUTA_FLOAT32, l.count, 1, err);
    if (!clone->gradients)
        return BAUTA_ERR_NOMEM;
    l = (gradient_layout){ &clone->gradients->buffer, 0 };
    bt_model_store_visit(&clone->folder,
                         &(bt_tensor_visitor){ assign_gradient, &l });
    bt_model_split_qkv(&clone->model);
    clone->handle.trainable = true;
    return BAUTA_OK;
}

const float *bt_model_clone_gradients(const bt_model_clone *clone,
                                      bauta_error *err)
{
    const bt_owned_floats *o = clone->gradients;
    if (o->buffer.memory != o->host &&
        o->buffer.backend->download(clone->folder.stream, o->host, &o->buffer,
                                    0, o->buffer.bytes, err))
        return NULL;
    return o->host;
}
