/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - the contexts that compute, shared by all calls. */
#include "module.h"

/* A context serves one call at a time. Each call takes an idle one, or creates
 * one if other Python threads use all of them. The GIL protects the list. */
enum { IDLE_MAX = 4 };
static struct {
    bauta_context *idle[IDLE_MAX];
    int count;
    int threads;         /* 0: one per core */
    unsigned generation; /* of the number of threads */
} pool;

int context_take(context_lease *lease)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err;
    lease->generation = pool.generation;
    lease->of_model = false;
    if (pool.count) {
        lease->context = pool.idle[--pool.count];
        return 0;
    }
    options.threads = pool.threads;
    bauta_status status = bauta_context_create(&lease->context, &options, &err);
    if (status)
        raise_error(status, &err);
    return status ? -1 : 0;
}

int context_take_for(context_lease *lease, PyObject *model)
{
    object_box *box = box_of(model, MODEL_BOX);
    if (!box)
        return -1;
    if (!box->device)
        return context_take(lease);
    *lease = (context_lease){ .context = box->device, .of_model = true };
    return 0;
}

bauta_options context_options(const char *device, bauta_dtype dtype)
{
    bauta_options options = BAUTA_OPTIONS_INIT;
    options.threads = pool.threads;
    options.device = device;
    options.dtype = dtype;
    return options;
}

void context_give(context_lease *lease)
{
    if (!lease->context)
        return;
    if (lease->of_model) {
        lease->context = NULL;
        return;
    }
    if (lease->generation == pool.generation && pool.count < IDLE_MAX)
        pool.idle[pool.count++] = lease->context;
    else
        bauta_context_free(lease->context);
    lease->context = NULL;
}

static PyObject *set_num_threads(PyObject *self, PyObject *number)
{
    long threads = PyLong_AsLong(number);
    (void)self;
    if (threads == -1 && PyErr_Occurred())
        return NULL;
    if (threads < 0 || threads > INT16_MAX)
        return raise_argument("the number of threads is %ld, not from 0 to %d",
                              threads, INT16_MAX);
    pool.threads = (int)threads;
    pool.generation++;
    while (pool.count)
        bauta_context_free(pool.idle[--pool.count]);
    return none_new();
}

static PyObject *get_num_threads(PyObject *self, PyObject *none)
{
    context_lease lease = { 0 };
    (void)self;
    (void)none;
    if (context_take(&lease))
        return NULL;
    PyObject *result = PyLong_FromLong(bauta_context_threads(lease.context));
    context_give(&lease);
    return result;
}

static PyObject *get_isa(PyObject *self, PyObject *none)
{
    context_lease lease = { 0 };
    (void)self;
    (void)none;
    if (context_take(&lease))
        return NULL;
    PyObject *result = PyUnicode_FromString(bauta_context_isa(lease.context));
    context_give(&lease);
    return result;
}

PyMethodDef context_methods[] = {
    { "set_num_threads", set_num_threads, METH_O, NULL },
    { "get_num_threads", get_num_threads, METH_NOARGS, NULL },
    { "get_isa", get_isa, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
