/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - attention on GPUs, over addresses in GPU memory.
 *
 * The package keeps one context for each stream. A context serves one call at a
 * time, so it has a lock, which is only held without the GIL. */
#include "module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const char context_name[] = "bauta.gpu_context";
static const char plan_name[] = "bauta.gpu_plan";

static PyObject *gpu_count(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyLong_FromSize_t(bauta_gpu_count());
}

/* What a context's capsule points to. */
typedef struct gpu_box {
    bauta_context *context;
    pthread_mutex_t lock;
} gpu_box;

static gpu_box *gpu_box_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, context_name);
}

static void gpu_box_free(gpu_box *box)
{
    bauta_context_free(box->context);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

static void context_capsule_free(PyObject *capsule)
{
    gpu_box_free(gpu_box_of(capsule));
}

/* Let other threads run Python, and no other call use the context. */
static PyThreadState *gpu_box_enter(gpu_box *box)
{
    PyThreadState *thread = PyEval_SaveThread();
    pthread_mutex_lock(&box->lock);
    return thread;
}

static void gpu_box_leave(gpu_box *box, PyThreadState *thread)
{
    pthread_mutex_unlock(&box->lock);
    PyEval_RestoreThread(thread);
}

/* gpu_context(device, stream): a context that queues on a cudaStream_t. */
static PyObject *gpu_context(PyObject *self, PyObject *args)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err;
    unsigned long long stream;
    int device;
    char name[32];
    (void)self;
    if (!PyArg_ParseTuple(args, "iK", &device, &stream))
        return NULL;
    snprintf(name, sizeof(name), "cuda:%d", device);
    options.device = name;
    gpu_box *box = calloc(1, sizeof(*box));
    if (!box)
        return PyErr_NoMemory();
    pthread_mutex_init(&box->lock, NULL);
    bauta_status status = bauta_context_create(&box->context, &options, &err);
    if (!status)
        status =
            bauta_gpu_stream_set(box->context, (void *)(uintptr_t)stream, &err);
    PyObject *capsule = NULL;
    if (status)
        raise_error(status, &err);
    else
        capsule = PyCapsule_New(box, context_name, context_capsule_free);
    if (!capsule)
        gpu_box_free(box);
    return capsule;
}

/* A plan keeps its context alive, which is the context of the capsule. */
static void plan_capsule_free(PyObject *capsule)
{
    PyObject *context = PyCapsule_GetContext(capsule);
    bauta_gpu_plan_free(PyCapsule_GetPointer(capsule, plan_name));
    Py_XDECREF(context);
}

/* gpu_plan(context, mask, heads, kv_heads, head_dim, value_dim, bfloat16,
 * backward): a plan for all rows of a mask. */
static PyObject *gpu_plan(PyObject *self, PyObject *args)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    PyObject *context_capsule, *mask_capsule;
    Py_ssize_t heads, kv_heads, head_dim, value_dim;
    int bfloat16, backward;
    bauta_gpu_plan *plan = NULL;
    bauta_status status;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOnnnnpp", &context_capsule, &mask_capsule,
                          &heads, &kv_heads, &head_dim, &value_dim, &bfloat16,
                          &backward))
        return NULL;
    gpu_box *gpu = gpu_box_of(context_capsule);
    mask_box *box = gpu ? mask_of(mask_capsule) : NULL;
    if (!box)
        return NULL;
    shape.heads = (size_t)heads;
    shape.kv_heads = (size_t)kv_heads;
    shape.head_dim = (size_t)head_dim;
    shape.value_dim = (size_t)value_dim;
    PyThreadState *thread = gpu_box_enter(gpu);
    status = bauta_gpu_plan_create(
        &plan, gpu->context, box->mask, 0, bauta_mask_queries(box->mask),
        &shape, bfloat16 ? BAUTA_BFLOAT16 : BAUTA_FLOAT32, backward, &err);
    gpu_box_leave(gpu, thread);
    if (status)
        return raise_error(status, &err);
    PyObject *capsule = PyCapsule_New(plan, plan_name, plan_capsule_free);
    if (!capsule) {
        bauta_gpu_plan_free(plan);
        return NULL;
    }
    Py_INCREF(context_capsule);
    if (PyCapsule_SetContext(capsule, context_capsule)) {
        Py_DECREF(context_capsule);
        Py_DECREF(capsule);
        return NULL;
    }
    return capsule;
}

/* gpu_plan_update(context, plan, mask): let a plan be for another mask. */
static PyObject *gpu_plan_update(PyObject *self, PyObject *args)
{
    PyObject *context_capsule, *plan_capsule, *mask_capsule;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &context_capsule, &plan_capsule,
                          &mask_capsule))
        return NULL;
    gpu_box *gpu = gpu_box_of(context_capsule);
    bauta_gpu_plan *plan =
        gpu ? PyCapsule_GetPointer(plan_capsule, plan_name) : NULL;
    mask_box *box = plan ? mask_of(mask_capsule) : NULL;
    if (!box)
        return NULL;
    PyThreadState *thread = gpu_box_enter(gpu);
    bauta_status status = bauta_gpu_plan_update(
        gpu->context, plan, box->mask, 0, bauta_mask_queries(box->mask), &err);
    gpu_box_leave(gpu, thread);
    return none_or_error(status, &err);
}

int gpu_run(PyObject *context, PyObject *plan_capsule,
            const attention_call *call)
{
    bauta_status status = BAUTA_OK;
    bauta_error err;
    gpu_box *gpu = gpu_box_of(context);
    bauta_gpu_plan *plan =
        gpu ? PyCapsule_GetPointer(plan_capsule, plan_name) : NULL;
    if (!plan)
        return -1;
    if (!call->merged) {
        raise_argument("the sequences of the batch are neither heads nor "
                       "tokens");
        return -1;
    }
    if (call->q.batch == 0)
        return 0;
    PyThreadState *thread = gpu_box_enter(gpu);
    if (call->backward)
        status = bauta_gpu_attention_backward(
            gpu->context, plan, &call->shape, call->q.data, call->k.data,
            call->v.data, call->out.data, call->lse.data, call->dout.data,
            call->dq.data, call->dk.data, call->dv.data, &err);
    else
        status = bauta_gpu_attention_forward(
            gpu->context, plan, &call->shape, call->q.data, call->k.data,
            call->v.data, call->out.data, call->lse.data, &err);
    gpu_box_leave(gpu, thread);
    if (status)
        raise_error(status, &err);
    return status ? -1 : 0;
}

/* Arguments: context, plan, scale and the arrays, as tuples. The sequences of
 * the batch must be further heads or further tokens. */
static PyObject *gpu_attention(PyObject *args, bool backward)
{
    PyObject *context, *plan, *objects[9] = { NULL };
    attention_call call;
    double scale;

    if (!PyArg_ParseTuple(args, backward ? "OOdOOOOOOOOO" : "OOdOOOOO",
                          &context, &plan, &scale, &objects[0], &objects[1],
                          &objects[2], &objects[3], &objects[4], &objects[5],
                          &objects[6], &objects[7], &objects[8]))
        return NULL;
    if (attention_call_get(&call, objects, backward, scale, true) ||
        gpu_run(context, plan, &call))
        return NULL;
    return none_new();
}

static PyObject *gpu_attention_forward(PyObject *self, PyObject *args)
{
    (void)self;
    return gpu_attention(args, false);
}

static PyObject *gpu_attention_backward(PyObject *self, PyObject *args)
{
    (void)self;
    return gpu_attention(args, true);
}

PyMethodDef gpu_methods[] = {
    { "gpu_count", gpu_count, METH_NOARGS, NULL },
    { "gpu_context", gpu_context, METH_VARARGS, NULL },
    { "gpu_plan", gpu_plan, METH_VARARGS, NULL },
    { "gpu_plan_update", gpu_plan_update, METH_VARARGS, NULL },
    { "gpu_attention_forward", gpu_attention_forward, METH_VARARGS, NULL },
    { "gpu_attention_backward", gpu_attention_backward, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
