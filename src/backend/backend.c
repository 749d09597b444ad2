/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - what all backends share: names of operations, copies between
 * tensors and the host, and the shape of an attention. */
#include "backend/backend.h"

#include "backend/cpu/kernels/attention.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"

#include <math.h>

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

bt_buffer bt_buffer_of_host(void *memory, size_t bytes)
{
    return (bt_buffer){ &bt_cpu_backend, memory, bytes };
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

/* ---- The shape of an attention ------------------------------------------ */

static bauta_status dim_check(const char *name, size_t dim, bauta_error *err)
{
    if (dim >= 1 && dim <= BT_HEAD_DIM_MAX)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s is %zu, not from 1 to %d", name,
                   dim, BT_HEAD_DIM_MAX);
}

static bauta_status heads_check(const bt_attention_shape *s, bauta_error *err)
{
    if (s->heads == 0 || s->heads > UINT16_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "heads is %zu, not 1 to %d",
                       s->heads, UINT16_MAX);
    if (s->kv_heads > s->heads || s->heads % s->kv_heads)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "kv_heads is %zu, which does not divide %zu heads",
                       s->kv_heads, s->heads);
    return BAUTA_OK;
}

/* A stride steps over at least one head. One that exceeds memory is most likely
 * a negative number that was cast. */
static bauta_status stride_check(const char *name, const char *axis,
                                 size_t stride, size_t dim, bauta_error *err)
{
    if (stride < dim)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s_%s is %zu, less than the %zu of a head", name, axis,
                       stride, dim);
    if (stride > PTRDIFF_MAX / sizeof(float))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s_%s is %zu, more than memory can hold", name, axis,
                       stride);
    return BAUTA_OK;
}

/* 0 selects the dense layout (tokens, heads, dim). Inputs may overlap on
 * purpose; outputs are also checked by bt_attention_strides_disjoint(). */
static bauta_status strides_fill(bt_attention_strides *strides,
                                 const char *name, size_t token, size_t head,
                                 size_t heads, size_t dim, bauta_error *err)
{
    strides->head = head ? head : dim;
    strides->token = token ? token : heads * dim;
    bauta_status status = stride_check(name, "head", strides->head, dim, err);
    if (!status)
        status = stride_check(name, "token", strides->token, dim, err);
    return status;
}

/* Elements spanned by `count` heads or tokens. */
static size_t footprint(size_t count, size_t stride, size_t dim)
{
    return bt_size_add(bt_size_mul(count - 1, stride), dim);
}

bauta_status bt_attention_strides_disjoint(const bt_attention_strides *strides,
                                           const char *name, size_t tokens,
                                           size_t heads, size_t dim,
                                           bauta_error *err)
{
    if (tokens == 0 || footprint(heads, strides->head, dim) <= strides->token ||
        footprint(tokens, strides->token, dim) <= strides->head)
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s_token is %zu and %s_head is %zu: %zu tokens of %zu "
                   "heads of %zu would be written over each other",
                   name, strides->token, name, strides->head, tokens, heads,
                   dim);
}

bauta_status bt_attention_gradients_disjoint(const bt_attention_shape *s,
                                             size_t rows, size_t keys,
                                             bauta_error *err)
{
    bauta_status status = bt_attention_strides_disjoint(
        &s->q, "q", rows, s->heads, s->head_dim, err);
    if (!status)
        status = bt_attention_strides_disjoint(&s->k, "k", keys, s->kv_heads,
                                               s->head_dim, err);
    if (!status)
        status = bt_attention_strides_disjoint(&s->v, "v", keys, s->kv_heads,
                                               s->value_dim, err);
    return status;
}

/* The number of additive forms that are given. */
static size_t bias_forms(const bauta_attention_bias *b)
{
    return (size_t)(b->tensor != NULL) + (size_t)(b->slopes != NULL) +
           (size_t)(b->table != NULL);
}

static bauta_status bias_check(const bauta_attention_bias *b, bauta_error *err)
{
    if (!isfinite(b->softcap) || b->softcap < 0.0f)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "softcap is %g, not a positive number",
                       (double)b->softcap);
    if (bias_forms(b) > 1)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a bias has one of tensor, slopes and table, not "
                       "several");
    if (b->table && (b->distances < 1 || b->distances > UINT32_MAX))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the table has %zu distances, not from 1 to %u",
                       b->distances, UINT32_MAX);
    if (b->first_distance > INT32_MAX || b->first_distance < INT32_MIN)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "first_distance is %td, which no two tokens have",
                       b->first_distance);
    if (b->dtensor && !b->tensor)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "dtensor without a tensor");
    if (b->dtable && !b->table)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "dtable without a table");
    return BAUTA_OK;
}

bauta_status bt_attention_shape_resolve(bt_attention_shape *shape,
                                        const bauta_attention_shape *given,
                                        bauta_error *err)
{
    bauta_attention_shape from;
    if (!given)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "shape is NULL");
    bauta_status status =
        BT_SIZED_READ(&from, BAUTA_ATTENTION_SHAPE_INIT, given, "shape", err);
    if (status)
        return status;
    bt_attention_shape s = {
        .heads = from.heads,
        .kv_heads = from.kv_heads ? from.kv_heads : from.heads,
        .head_dim = from.head_dim,
        .value_dim = from.value_dim ? from.value_dim : from.head_dim
    };
    status = heads_check(&s, err);
    if (!status)
        status = dim_check("head_dim", s.head_dim, err);
    if (!status)
        status = dim_check("value_dim", s.value_dim, err);
    if (status)
        return status;
    if (from.bias) {
        status = BT_SIZED_READ(&s.bias, BAUTA_ATTENTION_BIAS_INIT, from.bias,
                               "bias", err);
        if (!status)
            status = bias_check(&s.bias, err);
        if (status)
            return status;
    }
    if (!isfinite(from.scale))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "scale is %g, not a finite number", (double)from.scale);
    s.scale = from.scale;
    if (s.scale == 0.0f)
        s.scale = (float)(1.0 / sqrt((double)s.head_dim));
    s.group = s.heads / s.kv_heads;
    s.head_pad = bt_size_round(s.head_dim, BT_LANES);
    s.value_pad = bt_size_round(s.value_dim, BT_LANES);
    const struct {
        bt_attention_strides *strides;
        const char *name;
        size_t token, head, heads, dim;
    } all[] = {
        { &s.q, "q", from.q_token, from.q_head, s.heads, s.head_dim },
        { &s.k, "k", from.k_token, from.k_head, s.kv_heads, s.head_dim },
        { &s.v, "v", from.v_token, from.v_head, s.kv_heads, s.value_dim },
        { &s.out, "out", from.out_token, from.out_head, s.heads, s.value_dim },
    };
    for (size_t i = 0; i < BT_LEN(all) && !status; i++)
        status = strides_fill(all[i].strides, all[i].name, all[i].token,
                              all[i].head, all[i].heads, all[i].dim, err);
    if (!status)
        *shape = s;
    return status;
}
