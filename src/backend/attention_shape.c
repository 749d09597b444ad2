/* SPDX-License-Identifier: Apache-2.0 */
/* attention_shape.c - checks the shape of an attention; see attention_shape.h.
 */
#include "backend/attention_shape.h"

#include "backend/cpu/kernels/attention.h"
#include "base/size.h"
#include "base/sized.h"

#include <math.h>

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
static size_t extent(size_t count, size_t stride, size_t dim)
{
    return bt_size_add(bt_size_mul(count - 1, stride), dim);
}

bauta_status bt_attention_strides_disjoint(const bt_attention_strides *strides,
                                           const char *name, size_t tokens,
                                           size_t heads, size_t dim,
                                           bauta_error *err)
{
    if (tokens == 0 || extent(heads, strides->head, dim) <= strides->token ||
        extent(tokens, strides->token, dim) <= strides->head)
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
