/* SPDX-License-Identifier: Apache-2.0 */
/* array.c - arrays of the caller, and the tensors of an attention. */
#include "module.h"

#include <math.h>
#include <string.h>

int array_set_axes(array *a, const char *name, int rank,
                   const Py_ssize_t *sizes, const Py_ssize_t *strides)
{
    for (int i = 0; i < rank; i++) {
        if (sizes[i] > 1 && strides[i] < 0) {
            raise_argument("%s has a negative stride on axis %d; pass a copy",
                           name, i);
            return -1;
        }
    }
    if (rank == 4 && sizes[3] > 1 && strides[3] != 1) {
        raise_argument("the last axis of %s has a stride of %zd elements, and "
                       "must be contiguous",
                       name, strides[3]);
        return -1;
    }
    a->batch = (size_t)sizes[0];
    a->heads = (size_t)sizes[1];
    a->tokens = (size_t)sizes[2];
    a->dim = rank == 4 ? (size_t)sizes[3] : 1;
    a->batch_stride = a->batch > 1 ? (size_t)strides[0] : 0;
    a->head_stride = a->heads > 1 ? (size_t)strides[1] : a->dim;
    a->token_stride =
        a->tokens > 1 ? (size_t)strides[2] : a->heads * a->head_stride;
    /* The library takes a stride of 0 for the dense layout. */
    if (a->heads && a->tokens && a->dim &&
        (a->head_stride == 0 || a->token_stride == 0)) {
        raise_argument("%s repeats its elements (a stride is 0); pass a copy",
                       name);
        return -1;
    }
    return 0;
}

static int tuple_get(array *a, PyObject *tuple, const char *name, int rank)
{
    unsigned long long address;
    Py_ssize_t sizes[4] = { 0 }, strides[4] = { 0 };
    const char *format = rank == 4 ? "K(nnnn)(nnnn)" : "K(nnn)(nnn)";
    int ok = rank == 4 ? PyArg_ParseTuple(tuple, format, &address, &sizes[0],
                                          &sizes[1], &sizes[2], &sizes[3],
                                          &strides[0], &strides[1], &strides[2],
                                          &strides[3])
                       : PyArg_ParseTuple(tuple, format, &address, &sizes[0],
                                          &sizes[1], &sizes[2], &strides[0],
                                          &strides[1], &strides[2]);
    if (!ok)
        return -1;
    a->data = (void *)(uintptr_t)address;
    return array_set_axes(a, name, rank, sizes, strides);
}

static bool is_float32(const Py_buffer *view)
{
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    return strcmp(format, "f") == 0 && view->itemsize == 4;
}

static int buffer_check(const Py_buffer *view, const char *name, int rank)
{
    if (!is_float32(view)) {
        PyErr_Format(PyExc_TypeError,
                     "%s has elements of the format '%s', not float32", name,
                     view->format ? view->format : "B");
        return -1;
    }
    if (view->ndim != rank) {
        raise_argument("%s has %d axes, not %d", name, view->ndim, rank);
        return -1;
    }
    if ((uintptr_t)view->buf % sizeof(float)) {
        raise_argument("%s is not aligned to 4 bytes", name);
        return -1;
    }
    return 0;
}

int array_get(array *a, PyObject *object, const char *name, int rank,
              bool writable)
{
    Py_ssize_t strides[4] = { 0 };
    if (PyTuple_Check(object))
        return tuple_get(a, object, name, rank);
    if (PyObject_GetBuffer(object, &a->buffer,
                           PyBUF_STRIDES | PyBUF_FORMAT |
                               (writable ? PyBUF_WRITABLE : 0)))
        return -1;
    if (buffer_check(&a->buffer, name, rank))
        return -1;
    for (int i = 0; i < rank; i++) {
        if (a->buffer.strides[i] % (Py_ssize_t)sizeof(float)) {
            raise_argument("%s has a stride of %zd bytes, not a multiple of 4",
                           name, a->buffer.strides[i]);
            return -1;
        }
        strides[i] = a->buffer.strides[i] / (Py_ssize_t)sizeof(float);
    }
    a->data = a->buffer.buf;
    return array_set_axes(a, name, rank, a->buffer.shape, strides);
}

void array_release(array *a)
{
    if (a->buffer.obj)
        PyBuffer_Release(&a->buffer);
}

int array_check(const array *a, const char *name, size_t batch, size_t heads,
                size_t tokens, size_t dim)
{
    if (a->batch == batch && a->heads == heads && a->tokens == tokens &&
        a->dim == dim)
        return 0;
    raise_argument("%s is (%zu, %zu, %zu, %zu), not (%zu, %zu, %zu, %zu)", name,
                   a->batch, a->heads, a->tokens, a->dim, batch, heads, tokens,
                   dim);
    return -1;
}

/* ---- The tensors of an attention ----------------------------------------- */

bool array_merges(const array *a)
{
    return a->batch <= 1 ||
           (a->heads == 1 ? a->batch_stride >= a->dim
                          : a->batch_stride == a->heads * a->head_stride);
}

static size_t merged_stride(const array *a)
{
    return a->heads == 1 && a->batch > 1 ? a->batch_stride : a->head_stride;
}

/* lse is (tokens, heads) for the library, with the sequences as heads or one
 * sequence after the other. */
static bool lse_is_dense(const array *lse, size_t heads)
{
    return (lse->heads <= 1 || lse->head_stride == 1) &&
           (lse->tokens <= 1 || lse->token_stride == heads);
}

static int merged_choose(attention_call *call, bool one_mask)
{
    size_t all_heads = call->q.batch * call->q.heads;
    call->merged = one_mask && all_heads <= UINT16_MAX &&
                   array_merges(&call->q) && array_merges(&call->k) &&
                   array_merges(&call->v) && array_merges(&call->out);
    if (!call->has_lse || all_heads == 0 || call->q.tokens == 0)
        return 0;
    call->merged =
        call->merged && lse_is_dense(&call->lse, all_heads) &&
        (call->lse.batch <= 1 || call->lse.batch_stride == call->q.heads);
    if (call->merged || lse_is_dense(&call->lse, call->q.heads))
        return 0;
    raise_argument("lse is not laid out as the forward pass returns it");
    return -1;
}

static void shape_set(attention_call *call, double scale)
{
    bauta_attention_shape *s = &call->shape;
    size_t times = call->merged ? call->q.batch : 1;
    *s = (bauta_attention_shape)BAUTA_ATTENTION_SHAPE_INIT;
    s->heads = call->q.heads * times;
    s->kv_heads = call->k.heads * times;
    s->head_dim = call->q.dim;
    s->value_dim = call->v.dim;
    s->scale = (float)scale;
    s->q_token = call->q.token_stride;
    s->k_token = call->k.token_stride;
    s->v_token = call->v.token_stride;
    s->out_token = call->out.token_stride;
    if (call->merged) {
        s->q_head = merged_stride(&call->q);
        s->k_head = merged_stride(&call->k);
        s->v_head = merged_stride(&call->v);
        s->out_head = merged_stride(&call->out);
    } else {
        s->q_head = call->q.head_stride;
        s->k_head = call->k.head_stride;
        s->v_head = call->v.head_stride;
        s->out_head = call->out.head_stride;
    }
}

/* A token is the outer axis of an array with one token, whose stride has no
 * meaning and must step over all merged heads. */
static void single_token_widen(array *a, bool merged)
{
    if (merged && a->tokens <= 1)
        a->token_stride = a->batch * a->heads * merged_stride(a);
}

int array_same_layout(const array *a, const array *of, const char *name,
                      const char *of_name)
{
    if (array_check(a, name, of->batch, of->heads, of->tokens, of->dim))
        return -1;
    if (a->batch_stride == of->batch_stride &&
        a->head_stride == of->head_stride &&
        a->token_stride == of->token_stride)
        return 0;
    raise_argument("%s must have the strides of %s", name, of_name);
    return -1;
}

static int shapes_check(const attention_call *call)
{
    const array *q = &call->q, *k = &call->k, *v = &call->v;
    if (k->heads == 0 || q->heads % k->heads) {
        raise_argument("q has %zu heads, which the %zu heads of k do not "
                       "divide",
                       q->heads, k->heads);
        return -1;
    }
    if (array_check(k, "k", q->batch, k->heads, k->tokens, q->dim) ||
        array_check(v, "v", q->batch, k->heads, k->tokens, v->dim) ||
        array_check(&call->out, "out", q->batch, q->heads, q->tokens, v->dim))
        return -1;
    if (call->has_lse &&
        array_check(&call->lse, "lse", q->batch, q->heads, q->tokens, 1))
        return -1;
    return 0;
}

static int gradients_check(const attention_call *call)
{
    return array_same_layout(&call->dout, &call->out, "dout", "out") ||
                   array_same_layout(&call->dq, &call->q, "dq", "q") ||
                   array_same_layout(&call->dk, &call->k, "dk", "k") ||
                   array_same_layout(&call->dv, &call->v, "dv", "v")
               ? -1
               : 0;
}

int attention_call_finish(attention_call *call, double scale, bool one_mask)
{
    array *widened[] = { &call->q, &call->k, &call->v, &call->out };
    if (!isfinite(scale)) {
        raise_argument("scale is not a finite number");
        return -1;
    }
    if (shapes_check(call) || (call->backward && gradients_check(call)) ||
        merged_choose(call, one_mask))
        return -1;
    for (size_t i = 0; i < 4; i++)
        single_token_widen(widened[i], call->merged);
    shape_set(call, scale);
    return 0;
}

int attention_call_get(attention_call *call, PyObject *const *objects,
                       bool backward, double scale, bool one_mask)
{
    const struct {
        array *to;
        const char *name;
        int rank;
        bool writable;
    } all[] = {
        { &call->q, "q", 4, false },
        { &call->k, "k", 4, false },
        { &call->v, "v", 4, false },
        { &call->out, "out", 4, !backward },
        { &call->lse, "lse", 3, !backward },
        { &call->dout, "dout", 4, false },
        { &call->dq, "dq", 4, true },
        { &call->dk, "dk", 4, true },
        { &call->dv, "dv", 4, true },
    };
    size_t count = backward ? 9 : 5;
    memset(call, 0, sizeof(*call));
    call->backward = backward;
    call->has_lse = backward || objects[4] != Py_None;
    for (size_t i = 0; i < count; i++)
        if ((i != 4 || call->has_lse) &&
            array_get(all[i].to, objects[i], all[i].name, all[i].rank,
                      all[i].writable))
            return -1;
    return attention_call_finish(call, scale, one_mask);
}

void attention_call_release(attention_call *call)
{
    array *all[] = { &call->q,    &call->k,  &call->v,  &call->out, &call->lse,
                     &call->dout, &call->dq, &call->dk, &call->dv };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        array_release(all[i]);
}
