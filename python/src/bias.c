/* SPDX-License-Identifier: Apache-2.0 */
/* bias.c - the softcap and the bias of an attention's scores. */
#include "module.h"

/* The keys, counted from the origins of their rows, up to the last one that a
 * row of a mask sees: that many elements of a row of a bias are read. */
static size_t mask_bias_keys(const bauta_mask *mask)
{
    size_t most = 0;
    for (size_t i = 0; i < bauta_mask_queries(mask); i++) {
        size_t count;
        const bauta_span *spans = bauta_mask_row(mask, i, &count);
        size_t origin = bauta_mask_origin(mask, i);
        if (count && spans[count - 1].hi - origin > most)
            most = spans[count - 1].hi - origin;
    }
    return most;
}

static bool broadcasts(size_t size, size_t to)
{
    return size == 1 || size == to;
}

static int tensor_check(const array *tensor, const array *q, PyObject *masks)
{
    if (!broadcasts(tensor->batch, q->batch) ||
        !broadcasts(tensor->heads, q->heads) ||
        !broadcasts(tensor->tokens, q->tokens)) {
        raise_argument("bias is (%zu, %zu, %zu, %zu), which is not broadcast "
                       "to (%zu, %zu, %zu, keys)",
                       tensor->batch, tensor->heads, tensor->tokens,
                       tensor->dim, q->batch, q->heads, q->tokens);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(masks); i++) {
        mask_box *box = mask_of(PyTuple_GetItem(masks, i));
        if (!box)
            return -1;
        size_t keys = mask_bias_keys(box->mask);
        if (tensor->dim < keys) {
            raise_argument("bias has %zu keys, and a query sees key %zu of its "
                           "sequence",
                           tensor->dim, keys - 1);
            return -1;
        }
    }
    return 0;
}

static int tensor_get(bias_args *args, PyObject *tensor, PyObject *dtensor,
                      const array *q, PyObject *masks)
{
    if (array_get(&args->tensor, tensor, "bias", 4, false) ||
        tensor_check(&args->tensor, q, masks))
        return -1;
    args->bias.tensor_row =
        args->tensor.tokens > 1 ? args->tensor.token_stride : 0;
    args->bias.tensor_head =
        args->tensor.heads > 1 ? args->tensor.head_stride : 0;
    if (dtensor == Py_None)
        return 0;
    if (array_get(&args->dtensor, dtensor, "dbias", 4, true))
        return -1;
    return array_same_layout(&args->dtensor, &args->tensor, "dbias", "bias");
}

static int slopes_get(bias_args *args, PyObject *slopes, PyObject *positions,
                      const array *q)
{
    if (array_get(&args->slopes, slopes, "alibi_slopes", 4, false) ||
        array_check(&args->slopes, "alibi_slopes", 1, 1, 1, q->heads))
        return -1;
    args->bias.slopes = args->slopes.data;
    if (positions == Py_None)
        return 0;
    if (buffer_get_count(&args->positions, positions, sizeof(uint32_t),
                         q->tokens, false))
        return -1;
    args->bias.positions = args->positions.buf;
    return 0;
}

int bias_get(bias_args *args, PyObject *tuple, const array *q, PyObject *masks)
{
    PyObject *tensor, *slopes, *positions, *dtensor;
    double softcap;
    args->bias = (bauta_attention_bias)BAUTA_ATTENTION_BIAS_INIT;
    if (!PyArg_ParseTuple(tuple, "dOOOO", &softcap, &tensor, &slopes,
                          &positions, &dtensor))
        return -1;
    args->bias.softcap = (float)softcap;
    if (tensor != Py_None && tensor_get(args, tensor, dtensor, q, masks))
        return -1;
    if (slopes != Py_None && slopes_get(args, slopes, positions, q))
        return -1;
    return 0;
}

void bias_release(bias_args *args)
{
    array_release(&args->tensor);
    array_release(&args->dtensor);
    array_release(&args->slopes);
    buffer_release(&args->positions);
}
