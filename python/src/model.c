/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - models: load, run, differentiate, inspect. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

/* ---- Batches ------------------------------------------------------------- */

static int batch_masks_get(bauta_batch *batch, PyObject *mask, PyObject *cross)
{
    mask_box *own = mask == Py_None ? NULL : mask_of(mask);
    mask_box *other = cross == Py_None ? NULL : mask_of(cross);
    if ((!own && mask != Py_None) || (!other && cross != Py_None))
        return -1;
    batch->mask = own ? own->mask : NULL;
    batch->cross_mask = other ? other->mask : NULL;
    return 0;
}

/* Lists must have a number for each sequence. */
static int batch_lists_get(batch_args *args, PyObject *lengths,
                           PyObject *prefixes)
{
    size_t length_count, prefix_count;
    if (sizes_get(lengths, &args->lengths, &length_count) ||
        sizes_get(prefixes, &args->prefixes, &prefix_count))
        return -1;
    if ((args->lengths && length_count != args->batch.count) ||
        (args->prefixes && prefix_count != args->batch.count)) {
        raise_argument("a batch of %zu sequences has %zu lengths and %zu "
                       "prefix lengths",
                       args->batch.count, length_count, prefix_count);
        return -1;
    }
    args->batch.lengths = args->lengths;
    args->batch.prefix_lengths = args->prefixes;
    return 0;
}

int batch_get(batch_args *args, PyObject *tuple)
{
    PyObject *ids, *lengths, *types, *mask, *cross, *prefixes;
    memset(args, 0, sizeof(*args));
    args->batch = (bauta_batch)BAUTA_BATCH_INIT;
    if (tuple == Py_None)
        return 0;
    if (!PyArg_ParseTuple(tuple, "OOO&O&OOOO", &ids, &lengths, size_convert,
                          &args->batch.stride, size_convert, &args->batch.count,
                          &types, &mask, &cross, &prefixes) ||
        batch_lists_get(args, lengths, prefixes) ||
        batch_masks_get(&args->batch, mask, cross))
        return -1;
    args->rows = bauta_batch_rows(&args->batch);
    if (buffer_get_count(&args->ids, ids, 4, args->rows, false))
        return -1;
    if (types != Py_None &&
        buffer_get_count(&args->types, types, 4, args->rows, false))
        return -1;
    args->batch.ids = args->ids.buf;
    args->batch.token_types = args->types.buf;
    args->given = &args->batch;
    return 0;
}

void batch_release(batch_args *args)
{
    buffer_release(&args->ids);
    buffer_release(&args->types);
    free(args->lengths);
    free(args->prefixes);
}

/* ---- Load and save ------------------------------------------------------- */

static void model_release(void *model)
{
    bauta_model_free(model);
}

/* A new model, and the context of its device; NULL on the CPU. */
typedef struct new_model {
    bauta_model *model;
    bauta_context *device;
} new_model;

static PyObject *model_wrap(new_model *made, bauta_status status,
                            const bauta_error *err)
{
    PyObject *capsule = NULL;
    if (status) {
        bauta_model_free(made->model);
        raise_error(status, err);
    } else {
        capsule = box_new(MODEL_BOX, made->model, model_release,
                          (context_lease){ 0 }, NULL);
    }
    if (capsule)
        box_of(capsule, MODEL_BOX)->device = made->device;
    else
        bauta_context_free(made->device);
    return capsule;
}

/* Runs without the GIL. `dtype` is negative to keep the weights as they are. */
static bauta_status load_on_cpu(new_model *made, const char *folder,
                                bool trainable, int dtype, bauta_error *err)
{
    bauta_status status =
        bauta_model_load(&made->model, folder, trainable, err);
    if (!status && dtype >= 0)
        status = bauta_model_pack(made->model, (bauta_dtype)dtype, err);
    return status;
}

/* Runs without the GIL. */
static bauta_status load_on_device(new_model *made, const char *folder,
                                   bool trainable, const bauta_options *options,
                                   bauta_error *err)
{
    bauta_status status = bauta_context_create(&made->device, options, err);
    if (status)
        return status;
    if (!trainable)
        return bauta_model_load_to(&made->model, folder, made->device, err);
    status = bauta_model_load(&made->model, folder, true, err);
    return status ? status : bauta_model_to(made->model, made->device, err);
}

/* A negative dtype is the default of the device. */
static bauta_dtype device_dtype(int dtype)
{
    return dtype < 0 ? BAUTA_FLOAT32 : (bauta_dtype)dtype;
}

/* (folder, trainable, dtype or -1, device or None) */
static PyObject *model_load(PyObject *self, PyObject *args)
{
    const char *folder, *device;
    int trainable, dtype;
    new_model made = { 0 };
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "spiz", &folder, &trainable, &dtype, &device))
        return NULL;
    bauta_options options = context_options(device, device_dtype(dtype));
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status =
        device ? load_on_device(&made, folder, trainable, &options, &err)
               : load_on_cpu(&made, folder, trainable, dtype, &err);
    PyEval_RestoreThread(thread);
    return model_wrap(&made, status, &err);
}

/* (config, seed, dtype or -1, device or None) */
static PyObject *model_create(PyObject *self, PyObject *args)
{
    const char *config, *device;
    unsigned long long seed;
    int dtype;
    new_model made = { 0 };
    bauta_status status = BAUTA_OK;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "sKiz", &config, &seed, &dtype, &device))
        return NULL;
    bauta_options options = context_options(device, device_dtype(dtype));
    PyThreadState *thread = PyEval_SaveThread();
    if (device)
        status = bauta_context_create(&made.device, &options, &err);
    if (!status)
        status = bauta_model_create(&made.model, config, seed, &err);
    if (!status && device)
        status = bauta_model_to(made.model, made.device, &err);
    PyEval_RestoreThread(thread);
    return model_wrap(&made, status, &err);
}

static PyObject *model_save(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    const char *folder;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os", &capsule, &folder))
        return NULL;
    bauta_model *model = object_of(capsule, MODEL_BOX);
    if (!model)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_model_save(model, folder, &err);
    PyEval_RestoreThread(thread);
    return none_or_error(status, &err);
}

/* ---- Properties ---------------------------------------------------------- */

static PyObject *model_describe(PyObject *self, PyObject *capsule)
{
    bauta_model *model = object_of(capsule, MODEL_BOX);
    (void)self;
    if (!model)
        return NULL;
    size_t length = bauta_model_describe(model, NULL, 0);
    char *text = malloc(length + 1);
    if (!text)
        return PyErr_NoMemory();
    bauta_model_describe(model, text, length + 1);
    PyObject *result = text_new(text, length);
    free(text);
    return result;
}

static PyObject *model_properties(PyObject *self, PyObject *capsule)
{
    object_box *box = box_of(capsule, MODEL_BOX);
    (void)self;
    if (!box)
        return NULL;
    bauta_model *m = box->object;
    return Py_BuildValue(
        "{s:s,s:s,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:K,s:i,s:s,s:(nnn)}", "device",
        box->device ? bauta_context_device(box->device) : "cpu", "kind",
        bauta_model_kind_text(bauta_model_kind_of(m)), "trainable",
        PyBool_FromLong(bauta_model_trainable(m)), "rotary",
        PyBool_FromLong(bauta_model_rotary(m)), "vocab_size",
        PyLong_FromSize_t(bauta_model_vocab_size(m)), "hidden_size",
        PyLong_FromSize_t(bauta_model_hidden_size(m)), "encoder_layers",
        PyLong_FromSize_t(bauta_model_encoder_layers(m)), "decoder_layers",
        PyLong_FromSize_t(bauta_model_decoder_layers(m)), "max_positions",
        PyLong_FromSize_t(bauta_model_max_positions(m)), "parameters",
        (unsigned long long)bauta_model_parameter_count(m), "dtype",
        (int)bauta_model_dtype(m), "warnings", bauta_model_warnings(m), "heads",
        (Py_ssize_t)bauta_model_heads(m, BAUTA_ATTENTION_ENCODER),
        (Py_ssize_t)bauta_model_heads(m, BAUTA_ATTENTION_DECODER),
        (Py_ssize_t)bauta_model_heads(m, BAUTA_ATTENTION_CROSS));
}

static PyObject *address_new(const void *memory)
{
    return PyLong_FromUnsignedLongLong((uintptr_t)memory);
}

/* (name, shape, address, writable, address of the gradient), where an address
 * of 0 is none. */
static PyObject *tensor_new(const bauta_tensor *t)
{
    PyObject *shape = t->rank == 1
                          ? Py_BuildValue("(n)", (Py_ssize_t)t->shape[0])
                          : Py_BuildValue("(nn)", (Py_ssize_t)t->shape[0],
                                          (Py_ssize_t)t->shape[1]);
    return Py_BuildValue("sNNNN", t->name, shape, address_new(t->data),
                         PyBool_FromLong(t->writable != NULL),
                         address_new(t->gradient));
}

static PyObject *model_tensors(PyObject *self, PyObject *capsule)
{
    bauta_model *model = object_of(capsule, MODEL_BOX);
    (void)self;
    if (!model)
        return NULL;
    size_t count = bauta_model_tensor_count(model);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        bauta_tensor tensor = BAUTA_TENSOR_INIT;
        bauta_error err;
        bauta_status status = bauta_model_tensor(model, i, &tensor, &err);
        PyObject *item =
            status ? raise_error(status, &err) : tensor_new(&tensor);
        list = list_steal(list, (Py_ssize_t)i, item);
    }
    return list;
}

/* (model, name, array, gradient): copy a tensor, or its gradient, to an array.
 */
static PyObject *model_read(PyObject *self, PyObject *args)
{
    PyObject *capsule, *to;
    const char *name;
    int gradient;
    Py_buffer view = { 0 };
    bauta_tensor tensor = BAUTA_TENSOR_INIT;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OsOp", &capsule, &name, &to, &gradient))
        return NULL;
    bauta_model *model = object_of(capsule, MODEL_BOX);
    if (!model)
        return NULL;
    bauta_status status = bauta_model_find_tensor(model, name, &tensor, &err);
    if (status)
        return raise_error(status, &err);
    if (buffer_get_count(&view, to, sizeof(float), tensor.count, true))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    status = gradient ? bauta_model_read_gradient(model, name, view.buf, &err)
                      : bauta_model_read_tensor(model, name, view.buf, &err);
    PyEval_RestoreThread(thread);
    buffer_release(&view);
    return none_or_error(status, &err);
}

/* (model, name, array) */
static PyObject *model_write(PyObject *self, PyObject *args)
{
    PyObject *capsule, *from;
    const char *name;
    Py_buffer view = { 0 };
    bauta_tensor tensor = BAUTA_TENSOR_INIT;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OsO", &capsule, &name, &from))
        return NULL;
    bauta_model *model = object_of(capsule, MODEL_BOX);
    if (!model)
        return NULL;
    bauta_status status = bauta_model_find_tensor(model, name, &tensor, &err);
    if (status)
        return raise_error(status, &err);
    if (buffer_get_count(&view, from, sizeof(float), tensor.count, false))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    status = bauta_model_write_tensor(model, name, view.buf, &err);
    PyEval_RestoreThread(thread);
    buffer_release(&view);
    return none_or_error(status, &err);
}

/* ---- Calls over a batch -------------------------------------------------- */

/* What every call over a batch begins with and ends with. */
typedef struct model_call {
    bauta_model *model;
    batch_args source, target;
    context_lease lease;
    size_t rows; /* of the logits */
} model_call;

/* Returns 0, or -1 and sets an exception; end it in both cases. */
static int call_begin(model_call *call, PyObject *capsule, PyObject *source,
                      PyObject *target)
{
    memset(call, 0, sizeof(*call));
    call->model = object_of(capsule, MODEL_BOX);
    if (!call->model || batch_get(&call->source, source) ||
        batch_get(&call->target, target))
        return -1;
    call->rows = call->target.given ? call->target.rows : call->source.rows;
    return context_take_for(&call->lease, capsule);
}

static void call_end(model_call *call)
{
    context_give(&call->lease);
    batch_release(&call->source);
    batch_release(&call->target);
}

/* Outputs may be None: logits, encoder states and decoder states. */
static PyObject *model_forward(PyObject *self, PyObject *args)
{
    PyObject *capsule, *source, *target, *to[3], *result = NULL;
    Py_buffer views[3];
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    model_call call;
    bauta_error err;
    (void)self;
    memset(views, 0, sizeof(views));
    if (!PyArg_ParseTuple(args, "OOOOOO", &capsule, &source, &target, &to[0],
                          &to[1], &to[2]))
        return NULL;
    bool ready = call_begin(&call, capsule, source, target) == 0;
    if (ready) {
        size_t hidden = bauta_model_hidden_size(call.model);
        size_t counts[3] = {
            call.rows * bauta_model_vocab_size(call.model),
            (bauta_model_encoder_layers(call.model) + 1) * call.source.rows *
                hidden,
            (bauta_model_decoder_layers(call.model) + 1) * call.target.rows *
                hidden,
        };
        for (int i = 0; i < 3 && ready; i++)
            ready = to[i] == Py_None ||
                    !buffer_get_count(&views[i], to[i], sizeof(float),
                                      counts[i], true);
    }
    if (ready) {
        outputs.logits = views[0].buf;
        outputs.encoder_states = views[1].buf;
        outputs.decoder_states = views[2].buf;
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_model_forward(
            call.lease.context, call.model, call.source.given,
            call.target.given, &outputs, &err);
        PyEval_RestoreThread(thread);
        result = none_or_error(status, &err);
    }
    for (int i = 0; i < 3; i++)
        buffer_release(&views[i]);
    call_end(&call);
    return result;
}

static const field loss_fields[] = {
    FIELD(bauta_loss_options, FLOAT, label_smoothing),
    FIELD(bauta_loss_options, DOUBLE, weight),
    FIELD(bauta_loss_options, FLOAT, dropout),
    FIELD(bauta_loss_options, UINT64, seed),
    { NULL, FIELD_SIZE, 0, NULL },
};

/* Labels, and weights or None; returns (loss, counted). */
static PyObject *model_loss(PyObject *self, PyObject *args)
{
    PyObject *capsule, *source, *target, *labels, *weights, *dict;
    PyObject *result = NULL;
    Py_buffer label_view = { 0 }, weight_view = { 0 };
    bauta_loss_options options = BAUTA_LOSS_OPTIONS_INIT;
    model_call call;
    bauta_error err;
    double loss = 0;
    size_t counted = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOO!", &capsule, &source, &target, &labels,
                          &weights, &PyDict_Type, &dict) ||
        fields_read(&options, loss_fields, dict))
        return NULL;
    if (!call_begin(&call, capsule, source, target) &&
        !buffer_get_count(&label_view, labels, 4, call.rows, false) &&
        (weights == Py_None ||
         !buffer_get_count(&weight_view, weights, 4, call.rows, false))) {
        options.label_weights = weight_view.buf;
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_model_loss(
            call.lease.context, call.model, call.source.given,
            call.target.given, label_view.buf, &options, &loss, &counted, &err);
        PyEval_RestoreThread(thread);
        result = status ? raise_error(status, &err)
                        : Py_BuildValue("dn", loss, (Py_ssize_t)counted);
    }
    buffer_release(&label_view);
    buffer_release(&weight_view);
    call_end(&call);
    return result;
}

static PyObject *model_logprobs(PyObject *self, PyObject *args)
{
    PyObject *capsule, *source, *target, *labels, *to, *result = NULL;
    Py_buffer label_view = { 0 }, view = { 0 };
    model_call call;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOO", &capsule, &source, &target, &labels,
                          &to))
        return NULL;
    if (!call_begin(&call, capsule, source, target) &&
        !buffer_get_count(&label_view, labels, 4, call.rows, false) &&
        !buffer_get_count(&view, to, sizeof(float), call.rows, true)) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_model_logprobs(
            call.lease.context, call.model, call.source.given,
            call.target.given, label_view.buf, view.buf, &err);
        PyEval_RestoreThread(thread);
        result = none_or_error(status, &err);
    }
    buffer_release(&label_view);
    buffer_release(&view);
    call_end(&call);
    return result;
}

static PyObject *model_zero_gradients(PyObject *self, PyObject *capsule)
{
    bauta_model *model = object_of(capsule, MODEL_BOX);
    bauta_error err;
    (void)self;
    if (!model)
        return NULL;
    return none_or_error(bauta_model_zero_gradients(model, &err), &err);
}

static PyObject *model_check_finite(PyObject *self, PyObject *args)
{
    PyObject *capsule, *source, *target, *result = NULL;
    model_call call;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &source, &target))
        return NULL;
    if (!call_begin(&call, capsule, source, target)) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_model_check_finite(
            call.lease.context, call.model, call.source.given,
            call.target.given, &err);
        PyEval_RestoreThread(thread);
        result = none_or_error(status, &err);
    }
    call_end(&call);
    return result;
}

static const char *const poolings[] = { "mean", "cls", "last", NULL };
static const field embed_fields[] = {
    FIELD_CHOICES(bauta_embed_options, pooling, poolings),
    FIELD(bauta_embed_options, BOOL, normalize),
    { NULL, FIELD_SIZE, 0, NULL },
};

static PyObject *model_embed(PyObject *self, PyObject *args)
{
    PyObject *capsule, *batch, *dict, *to, *result = NULL;
    Py_buffer view = { 0 };
    bauta_embed_options options = BAUTA_EMBED_OPTIONS_INIT;
    model_call call;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO!O", &capsule, &batch, &PyDict_Type, &dict,
                          &to) ||
        fields_read(&options, embed_fields, dict))
        return NULL;
    if (!call_begin(&call, capsule, batch, Py_None) &&
        !buffer_get_count(&view, to, sizeof(float),
                          call.source.batch.count *
                              bauta_model_hidden_size(call.model),
                          true)) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status =
            bauta_model_embed(call.lease.context, call.model, call.source.given,
                              &options, view.buf, &err);
        PyEval_RestoreThread(thread);
        result = none_or_error(status, &err);
    }
    buffer_release(&view);
    call_end(&call);
    return result;
}

static const field top_fields[] = {
    FIELD(bauta_top_tokens_options, SIZE, top_k),
    FIELD(bauta_top_tokens_options, SIZE, vocab_size),
    { NULL, FIELD_SIZE, 0, NULL },
};

/* (ids, probabilities) as bytes of uint32 and double, (rows, top_k). */
static PyObject *top_tokens(model_call *call, const size_t *rows, size_t count,
                            const bauta_top_tokens_options *options)
{
    bauta_error err;
    size_t all = count * options->top_k;
    uint32_t *ids = calloc(all + 1, sizeof(*ids));
    double *probabilities = calloc(all + 1, sizeof(*probabilities));
    PyObject *result = NULL;
    if (ids && probabilities) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_model_top_tokens(
            call->lease.context, call->model, call->source.given,
            call->target.given, rows, count, options, ids, probabilities, &err);
        PyEval_RestoreThread(thread);
        result = status ? raise_error(status, &err)
                        : Py_BuildValue("y#y#", (const char *)ids,
                                        (Py_ssize_t)(all * sizeof(*ids)),
                                        (const char *)probabilities,
                                        (Py_ssize_t)(all * sizeof(double)));
    } else {
        PyErr_NoMemory();
    }
    free(ids);
    free(probabilities);
    return result;
}

static PyObject *model_top_tokens(PyObject *self, PyObject *args)
{
    PyObject *capsule, *source, *target, *list, *dict, *result = NULL;
    bauta_top_tokens_options options = BAUTA_TOP_TOKENS_OPTIONS_INIT;
    model_call call;
    size_t *rows = NULL, count = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO!O!", &capsule, &source, &target,
                          &PyList_Type, &list, &PyDict_Type, &dict) ||
        fields_read(&options, top_fields, dict))
        return NULL;
    if (!call_begin(&call, capsule, source, target) &&
        !sizes_get(list, &rows, &count)) {
        if (options.top_k > bauta_model_vocab_size(call.model))
            raise_argument("top_k is %zu, and the vocabulary has %zu tokens",
                           options.top_k, bauta_model_vocab_size(call.model));
        else
            result = top_tokens(&call, rows, count, &options);
    }
    free(rows);
    call_end(&call);
    return result;
}

/* ---- Attention weights --------------------------------------------------- */

/* `list` holds (layer, head); `to` is (count, rows, keys). */
static int requests_get(bauta_attention_weights *requests, PyObject *list,
                        int attention, size_t rows, size_t keys, float *to)
{
    Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t i = 0; i < count; i++) {
        bauta_attention_weights *r = &requests[i];
        *r = (bauta_attention_weights)BAUTA_ATTENTION_WEIGHTS_INIT;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "O&O&", size_convert,
                              &r->layer, size_convert, &r->head))
            return -1;
        r->attention = (bauta_attention_kind)attention;
        r->rows = rows;
        r->weights = to + (size_t)i * rows * keys;
    }
    return 0;
}

static PyObject *model_attention_weights(PyObject *self, PyObject *args)
{
    PyObject *capsule, *source, *target, *list, *to, *result = NULL;
    Py_buffer view = { 0 };
    int attention;
    model_call call;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOiO!O", &capsule, &source, &target,
                          &attention, &PyList_Type, &list, &to))
        return NULL;
    size_t count = (size_t)PyList_Size(list);
    bauta_attention_weights *requests = calloc(count + 1, sizeof(*requests));
    if (!requests)
        return PyErr_NoMemory();
    bool ready = call_begin(&call, capsule, source, target) == 0;
    size_t rows = attention == BAUTA_ATTENTION_ENCODER ? call.source.rows
                                                       : call.target.rows;
    size_t keys = attention == BAUTA_ATTENTION_DECODER ? call.target.rows
                                                       : call.source.rows;
    if (ready &&
        !buffer_get_count(&view, to, sizeof(float), count * rows * keys,
                          true) &&
        !requests_get(requests, list, attention, rows, keys, view.buf)) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_model_attention_weights(
            call.lease.context, call.model, call.source.given,
            call.target.given, NULL, requests, count, &err);
        PyEval_RestoreThread(thread);
        result = none_or_error(status, &err);
    }
    free(requests);
    buffer_release(&view);
    call_end(&call);
    return result;
}

PyMethodDef model_methods[] = {
    { "model_load", model_load, METH_VARARGS, NULL },
    { "model_create", model_create, METH_VARARGS, NULL },
    { "model_save", model_save, METH_VARARGS, NULL },
    { "model_describe", model_describe, METH_O, NULL },
    { "model_properties", model_properties, METH_O, NULL },
    { "model_tensors", model_tensors, METH_O, NULL },
    { "model_read", model_read, METH_VARARGS, NULL },
    { "model_write", model_write, METH_VARARGS, NULL },
    { "model_forward", model_forward, METH_VARARGS, NULL },
    { "model_loss", model_loss, METH_VARARGS, NULL },
    { "model_logprobs", model_logprobs, METH_VARARGS, NULL },
    { "model_zero_gradients", model_zero_gradients, METH_O, NULL },
    { "model_check_finite", model_check_finite, METH_VARARGS, NULL },
    { "model_embed", model_embed, METH_VARARGS, NULL },
    { "model_top_tokens", model_top_tokens, METH_VARARGS, NULL },
    { "model_attention_weights", model_attention_weights, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
