/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - attention on the CPU. */
#include "module.h"

#include <stdlib.h>

/* ---- Attention ----------------------------------------------------------- */

/* The plans of a tuple of masks, one for all sequences or one for each. The
 * result is for free(). */
static const bauta_plan **plans_get(PyObject *masks, const attention_call *call)
{
    Py_ssize_t count = PyTuple_Size(masks);
    if (count != 1 && (size_t)count != call->q.batch) {
        raise_argument("there are %zd masks for a batch of %zu", count,
                       call->q.batch);
        return NULL;
    }
    const bauta_plan **plans = calloc((size_t)count + 1, sizeof(*plans));
    if (!plans) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        mask_box *box = mask_of(PyTuple_GetItem(masks, i));
        if (box && (bauta_mask_queries(box->mask) != call->q.tokens ||
                    bauta_mask_keys(box->mask) != call->k.tokens))
            raise_argument("the mask is %zu x %zu, and there are %zu queries "
                           "and %zu keys",
                           bauta_mask_queries(box->mask),
                           bauta_mask_keys(box->mask), call->q.tokens,
                           call->k.tokens);
        else if (box)
            plans[i] = mask_plan(box);
        if (!plans[i]) {
            free(plans);
            return NULL;
        }
    }
    return plans;
}

static float *sequence_of(const array *a, size_t sequence)
{
    return a->data ? (float *)a->data + sequence * a->batch_stride : NULL;
}

bauta_status attention_run(bauta_context *context, attention_call *call,
                           bias_args *bias, const bauta_plan **plans,
                           bool one_plan, bauta_error *err)
{
    size_t sequences = call->merged ? 1 : call->q.batch;
    bauta_status status = BAUTA_OK;
    for (size_t b = 0; b < sequences && !status; b++) {
        const bauta_plan *plan = plans[one_plan ? 0 : b];
        const float *q = sequence_of(&call->q, b);
        const float *k = sequence_of(&call->k, b);
        const float *v = sequence_of(&call->v, b);
        float *out = sequence_of(&call->out, b);
        float *lse = sequence_of(&call->lse, b);
        bias->bias.tensor = sequence_of(&bias->tensor, b);
        bias->bias.dtensor = sequence_of(&bias->dtensor, b);
        if (call->backward)
            status = bauta_attention_backward(
                context, plan, &call->shape, q, k, v, out, lse,
                sequence_of(&call->dout, b), sequence_of(&call->dq, b),
                sequence_of(&call->dk, b), sequence_of(&call->dv, b), err);
        else
            status = bauta_attention_forward(context, plan, &call->shape, q, k,
                                             v, out, lse, err);
    }
    return status;
}

/* Arguments: a tuple of masks, the scale (0: the default), the arrays, and the
 * tuple of bias_get() or None. With one, each sequence is a call of its own, so
 * that sequences and heads may share the bias. */
static PyObject *attention(PyObject *args, bool backward)
{
    PyObject *masks, *objects[9] = { NULL }, *terms = Py_None;
    attention_call call;
    bias_args bias = { 0 };
    const bauta_plan **plans = NULL;
    context_lease lease = { 0 };
    bauta_status status = BAUTA_OK;
    bauta_error err;
    double scale;

    if (backward
            ? !PyArg_ParseTuple(args, "O!dOOOOOOOOO|O", &PyTuple_Type, &masks,
                                &scale, &objects[0], &objects[1], &objects[2],
                                &objects[3], &objects[4], &objects[5],
                                &objects[6], &objects[7], &objects[8], &terms)
            : !PyArg_ParseTuple(args, "O!dOOOOO|O", &PyTuple_Type, &masks,
                                &scale, &objects[0], &objects[1], &objects[2],
                                &objects[3], &objects[4], &terms))
        return NULL;
    bool biased = terms != Py_None, one_mask = PyTuple_Size(masks) == 1;
    bool failed = attention_call_get(&call, objects, backward, scale,
                                     one_mask && !biased) != 0;
    if (!failed && biased) {
        failed = bias_get(&bias, terms, &call.q, masks) != 0;
        call.shape.bias = &bias.bias;
    }
    if (!failed && call.q.batch) {
        plans = plans_get(masks, &call);
        failed = !plans || context_take(&lease);
        if (!failed) {
            PyThreadState *thread = PyEval_SaveThread();
            status = attention_run(lease.context, &call, &bias, plans, one_mask,
                                   &err);
            PyEval_RestoreThread(thread);
            context_give(&lease);
        }
    }
    free(plans);
    bias_release(&bias);
    attention_call_release(&call);
    if (failed)
        return NULL;
    if (status)
        return raise_error(status, &err);
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *attention_forward(PyObject *self, PyObject *args)
{
    (void)self;
    return attention(args, false);
}

static PyObject *attention_backward(PyObject *self, PyObject *args)
{
    (void)self;
    return attention(args, true);
}

PyMethodDef attention_methods[] = {
    { "attention_forward", attention_forward, METH_VARARGS, NULL },
    { "attention_backward", attention_backward, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
