/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c - attention over PyTorch's tensors, in one call from Python.
 *
 * Reading a tensor's address, sizes and strides through its Python attributes
 * takes longer than queueing a kernel. PyTorch 2.10 and later have a table of C
 * functions for it (DLPack's exchange interface); with an older one the
 * attributes are read here. What is asked of PyTorch in every call is given to
 * torch_setup() once.
 *
 * The functions below serve calls whose tensors can be read where they are, and
 * for which nothing but autograd has to see the call. They return None for all
 * others, among them wrong ones: bauta/torch.py then copies, calls the operator
 * or raises the exception. */
#include "module.h"

#include <math.h>
#include <string.h>

/* ---- PyTorch --------------------------------------------------------------
 */

/* What torch_setup() takes, in this order. */
typedef enum torch_object {
    TENSOR,         /* the types whose tensors are nothing but their memory */
    PARAMETER,      /* ... */
    MASK,           /* the type bauta.Mask */
    FLOAT32,        /* torch.float32 */
    BFLOAT16,       /* torch.bfloat16 */
    EXCHANGE,       /* the capsule of the exchange interface, or None */
    DISPATCH_MODES, /* () -> how many modes see operators */
    TRANSFORMS,     /* () -> whether functorch is active */
    AUTOCAST,       /* () -> whether autocast is enabled */
    GRAD_ENABLED,   /* () -> whether gradients are recorded */
    EMPTY_STRIDED,  /* torch.empty_strided */
    EMPTY_CPU,      /* (sizes, strides, dtype) -> an empty tensor, or None */
    EMPTY_CUDA,     /* the same on the current GPU, or None */
    STREAM,         /* (device) -> the current stream's address */
    PLAN,           /* bauta.torch._plan_of */
    APPLY,          /* (q, k, v, (mask, scale, return_lse)), with autograd */
    FORWARD,        /* (ctx, and the same), of all kinds */
    TORCH_OBJECTS
} torch_object;
static PyObject *torch[TORCH_OBJECTS];

/* Names of attributes. */
typedef enum torch_name {
    DATA_PTR,
    DEVICE,
    DTYPE,
    GET_DEVICE,
    IS_CPU,
    IS_CUDA,
    IS_NEG,
    MARK,
    MATERIALIZE,
    NBYTES,
    REQUIRES_GRAD,
    SAVE,
    SHAPE,
    STORAGE_OFFSET,
    STRIDE,
    UNTYPED_STORAGE,
    CALL,
    HANDLE,
    PLAN_CONTEXT,
    PLAN_HANDLE,
    TORCH_NAMES
} torch_name;
static PyObject *names[TORCH_NAMES];
static const char *const name_texts[TORCH_NAMES] = {
    "data_ptr",
    "device",
    "dtype",
    "get_device",
    "is_cpu",
    "is_cuda",
    "is_neg",
    "mark_non_differentiable",
    "set_materialize_grads",
    "nbytes",
    "requires_grad",
    "to_save",
    "shape",
    "storage_offset",
    "stride",
    "untyped_storage",
    "call",
    "_handle",
    "context",
    "handle",
};

/* The parts of DLPack 1.x that are used here. */
typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, number;
    } device;
    int32_t axes;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* elements */
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_exchange {
    struct {
        uint32_t major, minor;
    } version;
    void *before;
    void (*unused[3])(void);
    int (*read)(void *object, dl_tensor *to);
    int (*stream)(int32_t device_type, int32_t device, void **to);
} dl_exchange;
enum { DL_CPU = 1, DL_CUDA = 2, DL_FLOAT = 2, DL_BFLOAT = 4 };
static const dl_exchange *exchange; /* NULL: read attributes */

static PyObject *torch_setup(PyObject *self, PyObject *args)
{
    (void)self;
    if (PyTuple_Size(args) != TORCH_OBJECTS)
        return raise_argument("%zd arguments, not %d", PyTuple_Size(args),
                              (int)TORCH_OBJECTS);
    for (int i = 0; i < TORCH_NAMES; i++) {
        if (!names[i])
            names[i] = PyUnicode_InternFromString(name_texts[i]);
        if (!names[i])
            return NULL;
    }
    for (int i = 0; i < TORCH_OBJECTS; i++) {
        PyObject *before = torch[i];
        torch[i] = PyTuple_GetItem(args, i);
        Py_INCREF(torch[i]);
        Py_XDECREF(before);
    }
    exchange = NULL;
    if (torch[EXCHANGE] != Py_None) {
        const dl_exchange *table =
            PyCapsule_GetPointer(torch[EXCHANGE], "dlpack_exchange_api");
        if (!table)
            return NULL;
        if (table->version.major == 1 && table->read && table->stream)
            exchange = table;
    }
    return PyBool_FromLong(exchange != NULL);
}

static PyObject *call_method(PyObject *object, torch_name name)
{
    return PyObject_CallMethodObjArgs(object, names[name], NULL);
}

/* The truth of what a call or an attribute gives, whose reference is taken; -1
 * for an exception. */
static int truth_of(PyObject *value)
{
    int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

static int torch_is(torch_object function)
{
    return truth_of(PyObject_CallObject(torch[function], NULL));
}

/* The number that a call gives, whose reference is taken; -1 for an
 * exception. */
static Py_ssize_t number_of(PyObject *value)
{
    Py_ssize_t number = value ? PyLong_AsSsize_t(value) : -1;
    Py_XDECREF(value);
    return number;
}

/* ---- Tensors --------------------------------------------------------------
 */

/* A tensor (batch, heads, tokens, dim), (tokens, heads, dim), or without dim.
 * Sizes and strides are in the order of its own axes. */
typedef struct tensor {
    PyObject *object; /* borrowed */
    array array;
    int rank;
    Py_ssize_t sizes[4], strides[4];
    int device; /* of CUDA; -1: the CPU */
    bool bfloat16;
} tensor;

static bool plain_type(PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    return type == torch[TENSOR] || type == torch[PARAMETER];
}

static bool read_exchange(tensor *t)
{
    dl_tensor dl;
    if (exchange->read(t->object, &dl))
        return false;
    bool cpu = dl.device.type == DL_CPU;
    bool f32 = dl.dtype.code == DL_FLOAT && dl.dtype.bits == 32;
    t->bfloat16 = dl.dtype.code == DL_BFLOAT && dl.dtype.bits == 16;
    t->device = cpu ? -1 : dl.device.number;
    t->rank = dl.axes;
    if ((!cpu && dl.device.type != DL_CUDA) || (!f32 && !t->bfloat16) ||
        dl.dtype.lanes != 1 || dl.axes < 2 || dl.axes > 4 || !dl.strides ||
        !dl.data)
        return false;
    t->array.data = (char *)dl.data + dl.byte_offset;
    for (int i = 0; i < dl.axes; i++) {
        t->sizes[i] = (Py_ssize_t)dl.shape[i];
        t->strides[i] = (Py_ssize_t)dl.strides[i];
    }
    return true;
}

/* Sizes or strides, from a tuple whose reference is taken. */
static bool read_axes(Py_ssize_t *to, PyObject *tuple, Py_ssize_t rank)
{
    bool good = tuple && PyTuple_Check(tuple) && PyTuple_Size(tuple) == rank;
    for (Py_ssize_t i = 0; i < rank && good; i++) {
        to[i] = PyLong_AsSsize_t(PyTuple_GetItem(tuple, i));
        good = to[i] != -1 || !PyErr_Occurred();
    }
    Py_XDECREF(tuple);
    return good;
}

static bool read_attributes(tensor *t)
{
    PyObject *object = t->object;
    PyObject *dtype = PyObject_GetAttr(object, names[DTYPE]);
    bool f32 = dtype == torch[FLOAT32];
    t->bfloat16 = dtype == torch[BFLOAT16];
    Py_XDECREF(dtype);
    if (!f32 && !t->bfloat16)
        return false;
    int cpu = truth_of(PyObject_GetAttr(object, names[IS_CPU]));
    int cuda = cpu ? 0 : truth_of(PyObject_GetAttr(object, names[IS_CUDA]));
    if (cpu < 0 || cuda < 0 || !(cpu || cuda))
        return false;
    t->device = cpu ? -1 : (int)number_of(call_method(object, GET_DEVICE));
    PyObject *shape = PyObject_GetAttr(object, names[SHAPE]);
    Py_ssize_t rank = shape ? PyTuple_Size(shape) : 0;
    t->rank = (int)rank;
    if (rank < 2 || rank > 4) {
        Py_XDECREF(shape);
        return false;
    }
    if (!read_axes(t->sizes, shape, rank) ||
        !read_axes(t->strides, call_method(object, STRIDE), rank))
        return false;
    PyObject *address = call_method(object, DATA_PTR);
    t->array.data = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    return t->array.data != NULL;
}

/* Whether the memory of a tensor is still there: it may have been freed or cut
 * under it. */
static bool memory_is_whole(const tensor *t)
{
    Py_ssize_t item = t->bfloat16 ? 2 : 4, end = 1;
    for (int i = 0; i < t->rank; i++)
        end += (t->sizes[i] - 1) * t->strides[i];
    Py_ssize_t offset = number_of(call_method(t->object, STORAGE_OFFSET));
    PyObject *storage = call_method(t->object, UNTYPED_STORAGE);
    Py_ssize_t bytes = storage ? number_of(call_method(storage, NBYTES)) : -1;
    Py_XDECREF(storage);
    return offset >= 0 && bytes >= (offset + end) * item;
}

/* Whether a tensor is one that the library can read where it is. Exceptions are
 * for the caller to clear. */
static bool tensor_read(tensor *t, PyObject *object, int rank, bool has_dim)
{
    Py_ssize_t sizes[4] = { 1, 1, 1, 1 }, strides[4] = { 0, 0, 0, 1 };
    memset(t, 0, sizeof(*t));
    t->object = object;
    if (!plain_type(object) ||
        !(exchange ? read_exchange(t) : read_attributes(t)) ||
        (rank && t->rank != rank) || t->rank < (has_dim ? 3 : 2))
        return false;
    // (tokens, heads) with or without dim, or (batch, heads, tokens).
    bool packed = t->rank == (has_dim ? 3 : 2);
    for (int i = 0; i < t->rank; i++) {
        int axis = packed && i < 2 ? 2 - i : packed ? 3 : i;
        if (t->sizes[i] == 0)
            return false;
        sizes[axis] = t->sizes[i];
        strides[axis] = t->strides[i];
    }
    for (int i = 0; i < 4; i++)
        if (sizes[i] > 1 && strides[i] <= 0 && (i || strides[i] < 0))
            return false;
    if (has_dim && sizes[3] > 1 && strides[3] != 1)
        return false;
    // Negated by a flag: of a complex tensor's part.
    if (!t->bfloat16 && truth_of(call_method(object, IS_NEG)) != 0)
        return false;
    return memory_is_whole(t) &&
           array_set_axes(&t->array, "a tensor", has_dim ? 4 : 3, sizes,
                          strides) == 0;
}

/* ---- Layouts --------------------------------------------------------------
 *
 * The same rules as in bauta/torch.py. */

static bool in_place(const array *a)
{
    return (a->heads <= 1 || a->head_stride >= a->dim) &&
           (a->tokens <= 1 || a->token_stride >= a->dim);
}

/* Whether the sequences of a batch follow each other as tokens do. */
static bool follows(const array *a)
{
    return a->batch <= 1 ||
           (a->tokens <= 1 ? a->batch_stride >= a->heads * a->head_stride
                           : a->batch_stride == a->tokens * a->token_stride);
}

static void as_tokens(array *a)
{
    if (a->batch <= 1)
        return;
    if (a->tokens <= 1)
        a->token_stride = a->batch_stride;
    a->tokens *= a->batch;
    a->batch = 1;
    a->batch_stride = 0;
}

/* Whether a tensor's elements fill its memory, each once. */
static bool is_dense(const tensor *t)
{
    Py_ssize_t next = 1;
    bool used[4] = { false };
    for (int found = 0; found < t->rank; found++) {
        int at = -1;
        for (int i = 0; i < t->rank && at < 0; i++)
            if (!used[i] && (t->sizes[i] == 1 || t->strides[i] == next))
                at = i;
        if (at < 0)
            return false;
        used[at] = true;
        next *= t->sizes[at];
    }
    return true;
}

static bool same_layout(const array *a, const array *b)
{
    return a->batch == b->batch && a->heads == b->heads &&
           a->tokens == b->tokens && a->dim == b->dim &&
           a->batch_stride == b->batch_stride &&
           a->head_stride == b->head_stride &&
           a->token_stride == b->token_stride;
}

/* An attention over tensors. */
typedef struct tensor_call {
    attention_call call;
    tensor q, k, v, out, lse, dout;
    PyObject *mask, *capsule; /* borrowed */
    mask_box *box;
    double scale;
    bool packed;  /* the mask is for the tokens of all sequences */
    bool merged;  /* the sequences are further heads */
    size_t times; /* how often the mask is to be repeated; 0: it is not */
} tensor_call;

static bool scale_read(double *to, PyObject *scale)
{
    *to = 0.0;
    if (scale == Py_None)
        return true;
    if (!PyFloat_CheckExact(scale))
        return false;
    *to = PyFloat_AsDouble(scale);
    return *to != 0.0 && isfinite(*to);
}

static bool mask_read(tensor_call *c, PyObject *mask)
{
    if ((PyObject *)Py_TYPE(mask) != torch[MASK])
        return false;
    c->mask = mask;
    PyObject *capsule = PyObject_GetAttr(mask, names[HANDLE]);
    c->box = capsule ? mask_of(capsule) : NULL;
    c->capsule = capsule;
    Py_XDECREF(capsule); // the mask keeps it
    return c->box != NULL;
}

static bool shapes_agree(const tensor_call *c)
{
    const array *q = &c->q.array, *k = &c->k.array, *v = &c->v.array;
    size_t times = c->packed ? q->batch : 1;
    return c->q.device == c->k.device && c->q.device == c->v.device &&
           c->q.bfloat16 == c->k.bfloat16 && c->q.bfloat16 == c->v.bfloat16 &&
           !(c->q.bfloat16 && c->q.device < 0) && k->batch == q->batch &&
           v->batch == q->batch && v->heads == k->heads &&
           v->tokens == k->tokens && k->dim == q->dim &&
           q->heads % k->heads == 0 && in_place(q) && in_place(k) &&
           in_place(v) &&
           bauta_mask_queries(c->box->mask) == q->tokens * times &&
           bauta_mask_keys(c->box->mask) == k->tokens * times;
}

/* q, k, v, the mask and the scale. False: not for this file. */
static bool inputs_read(tensor_call *c, PyObject *const *qkv, PyObject *mask,
                        PyObject *scale, bool packed)
{
    memset(&c->call, 0, sizeof(c->call));
    c->packed = packed;
    return scale_read(&c->scale, scale) && mask_read(c, mask) &&
           tensor_read(&c->q, qkv[0], 0, true) &&
           tensor_read(&c->k, qkv[1], c->q.rank, true) &&
           tensor_read(&c->v, qkv[2], c->q.rank, true) && shapes_agree(c);
}

/* Whether one call serves the batch, and how. */
static bool layout_choose(tensor_call *c, const array *const *arrays,
                          size_t count)
{
    const array *q = arrays[0];
    bool follow = true;
    c->merged = !c->packed && q->batch * q->heads <= UINT16_MAX;
    for (size_t i = 0; i < count; i++) {
        c->merged = c->merged && array_merges(arrays[i]);
        follow = follow && follows(arrays[i]);
    }
    c->times = c->merged || c->packed ? 0 : q->batch;
    // On the CPU sequences may be calls of their own.
    return c->merged || (c->q.device < 0 ? !c->packed : follow);
}

/* ---- Results --------------------------------------------------------------
 */

static PyObject *tuple_of(const Py_ssize_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; i < count && tuple; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, i, number)) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

/* The address of a tensor that was just created, NULL if it is not on that
 * device. */
static void *address_of(PyObject *object, int device)
{
    dl_tensor dl;
    if (exchange) {
        if (exchange->read(object, &dl) ||
            (device >= 0 && dl.device.number != device))
            return NULL;
        return dl.data;
    }
    PyObject *address = call_method(object, DATA_PTR);
    void *data = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    return data;
}

/* An empty tensor by torch.empty_strided. */
static PyObject *empty_strided(const tensor *like, PyObject *dtype,
                               PyObject *size, PyObject *stride)
{
    PyObject *device = PyObject_GetAttr(like->object, names[DEVICE]);
    PyObject *args = PyTuple_Pack(2, size, stride), *keywords = PyDict_New();
    PyObject *result = NULL;
    if (device && args && keywords &&
        !PyDict_SetItem(keywords, names[DTYPE], dtype) &&
        !PyDict_SetItem(keywords, names[DEVICE], device))
        result = PyObject_Call(torch[EMPTY_STRIDED], args, keywords);
    Py_XDECREF(device);
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    return result;
}

/* An empty tensor of float32, or of the type of `like`, on its device, and its
 * address. The reference is new; NULL and an exception without memory.
 *
 * The functions that compiled graphs allocate with take half the time of
 * torch.empty_strided. The one for CUDA takes the current GPU, which may be
 * another one than that of the tensors: then the result is dropped. */
static PyObject *tensor_new(void **data, const tensor *like, bool f32, int rank,
                            const Py_ssize_t *sizes, const Py_ssize_t *strides)
{
    PyObject *size = tuple_of(sizes, rank), *stride = tuple_of(strides, rank);
    PyObject *dtype = torch[!f32 && like->bfloat16 ? BFLOAT16 : FLOAT32];
    PyObject *fast = torch[like->device < 0 ? EMPTY_CPU : EMPTY_CUDA];
    PyObject *result = NULL;
    *data = NULL;
    if (size && stride && exchange && fast != Py_None) {
        result = PyObject_CallFunctionObjArgs(fast, size, stride, dtype, NULL);
        *data = result ? address_of(result, like->device) : NULL;
        if (result && !*data)
            Py_CLEAR(result);
    }
    if (size && stride && !result && !PyErr_Occurred()) {
        result = empty_strided(like, dtype, size, stride);
        *data = result ? address_of(result, like->device) : NULL;
        if (result && !*data)
            Py_CLEAR(result);
    }
    Py_XDECREF(size);
    Py_XDECREF(stride);
    return result;
}

/* The tensor of an array in the axes of the caller's, without the last one for
 * lse. */
static PyObject *result_new(const tensor_call *c, array *a, bool lse)
{
    Py_ssize_t sizes[4], strides[4];
    int rank = 0;
    if (c->q.rank == 4) {
        sizes[0] = (Py_ssize_t)a->batch;
        sizes[1] = (Py_ssize_t)a->heads;
        sizes[2] = (Py_ssize_t)a->tokens;
        strides[0] = (Py_ssize_t)a->batch_stride;
        strides[1] = (Py_ssize_t)a->head_stride;
        strides[2] = (Py_ssize_t)a->token_stride;
        rank = 3;
    } else {
        sizes[0] = (Py_ssize_t)a->tokens;
        sizes[1] = (Py_ssize_t)a->heads;
        strides[0] = (Py_ssize_t)a->token_stride;
        strides[1] = (Py_ssize_t)a->head_stride;
        rank = 2;
    }
    if (!lse) {
        sizes[rank] = (Py_ssize_t)a->dim;
        strides[rank++] = 1;
    }
    return tensor_new(&a->data, &c->q, lse, rank, sizes, strides);
}

/* out has the axes of q in the same order in memory as far as one call can
 * write it, so that the heads of a projection stay together. lse is in memory
 * as one call writes it. */
static void results_layout(const tensor_call *c, array *out, array *lse)
{
    const array *q = &c->q.array;
    size_t batch = q->batch, heads = q->heads, tokens = q->tokens;
    size_t dim = c->v.array.dim;
    bool heads_inside =
        heads > 1 && tokens > 1 && q->head_stride < q->token_stride;
    *out =
        (array){ .batch = batch, .heads = heads, .tokens = tokens, .dim = dim };
    *lse =
        (array){ .batch = batch, .heads = heads, .tokens = tokens, .dim = 1 };
    lse->head_stride = 1;
    lse->batch_stride = c->merged ? heads : tokens * heads;
    lse->token_stride = c->merged ? batch * heads : heads;
    if (c->merged && heads_inside) { // (tokens, batch, heads, dim)
        out->batch_stride = heads * dim;
        out->head_stride = dim;
        out->token_stride = batch * heads * dim;
    } else if (c->merged || (c->q.device < 0 && !heads_inside)) {
        out->batch_stride = heads * tokens * dim;
        out->head_stride = tokens * dim;
        out->token_stride = dim;
    } else { // (batch, tokens, heads, dim)
        out->batch_stride = tokens * heads * dim;
        out->head_stride = dim;
        out->token_stride = heads * dim;
    }
}

/* Strides of axes of one element, as the library accepts them. */
static void single_axes(array *a)
{
    if (a->batch <= 1)
        a->batch_stride = 0;
    if (a->heads <= 1)
        a->head_stride = a->dim;
    if (a->tokens <= 1)
        a->token_stride = a->heads * a->head_stride;
}

/* ---- Running --------------------------------------------------------------
 */

static bool plan_serves(const mask_gpu_plan *plan, const tensor_call *c,
                        const void *stream)
{
    const bauta_attention_shape *shape = &c->call.shape;
    return plan->stream == stream && plan->device == c->q.device &&
           plan->times == c->times && plan->bfloat16 == c->q.bfloat16 &&
           plan->heads == shape->heads && plan->kv_heads == shape->kv_heads &&
           plan->head_dim == shape->head_dim &&
           plan->value_dim == shape->value_dim;
}

/* A plan from bauta/torch.py. */
static int plan_new(mask_gpu_plan *to, const tensor_call *c, void *stream)
{
    const bauta_attention_shape *shape = &c->call.shape;
    *to = (mask_gpu_plan){
        .stream = stream,
        .device = c->q.device,
        .bfloat16 = c->q.bfloat16,
        .times = c->times,
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .value_dim = shape->value_dim,
    };
    to->owner = PyObject_CallFunction(
        torch[PLAN], "OniKnnnnO", c->mask, (Py_ssize_t)c->times, c->q.device,
        (unsigned long long)(uintptr_t)stream, (Py_ssize_t)shape->heads,
        (Py_ssize_t)shape->kv_heads, (Py_ssize_t)shape->head_dim,
        (Py_ssize_t)shape->value_dim,
        c->q.bfloat16 ? torch[BFLOAT16] : torch[FLOAT32]);
    if (to->owner)
        to->context = PyObject_GetAttr(to->owner, names[PLAN_CONTEXT]);
    if (to->context)
        to->plan = PyObject_GetAttr(to->owner, names[PLAN_HANDLE]);
    if (to->plan)
        return 0;
    mask_gpu_plan_release(to);
    return -1;
}

/* The plan for this call, with references of its own, since another thread may
 * drop it while this one computes. It comes to the front of the mask's list;
 * the last one of a full list is dropped. */
static int plan_take(mask_gpu_plan *to, tensor_call *c, void *stream)
{
    mask_box *box = c->box;
    mask_gpu_plan *plans = box->gpu_plans, dropped = { 0 };
    size_t i = 0;
    while (i < box->gpu_plan_count && !plan_serves(&plans[i], c, stream))
        i++;
    if (i < box->gpu_plan_count) {
        *to = plans[i];
    } else {
        if (plan_new(to, c, stream))
            return -1;
        // That ran other code, which may have changed the list.
        i = box->gpu_plan_count;
        if (i == MASK_GPU_PLANS)
            dropped = plans[--i];
        else
            box->gpu_plan_count++;
    }
    Py_INCREF(to->owner);
    Py_INCREF(to->context);
    Py_INCREF(to->plan);
    memmove(&plans[1], &plans[0], i * sizeof(*plans));
    plans[0] = *to;
    mask_gpu_plan_release(&dropped);
    return 0;
}

static int run_gpu(tensor_call *c)
{
    mask_gpu_plan plan;
    void *stream = NULL;
    if (exchange) {
        if (exchange->stream(DL_CUDA, c->q.device, &stream))
            return -1;
    } else {
        PyObject *number =
            PyObject_CallFunction(torch[STREAM], "i", c->q.device);
        stream = number ? PyLong_AsVoidPtr(number) : NULL;
        Py_XDECREF(number);
        if (!stream && PyErr_Occurred())
            return -1;
    }
    if (plan_take(&plan, c, stream))
        return -1;
    int failed = gpu_run(plan.context, plan.plan, &c->call);
    mask_gpu_plan_release(&plan);
    return failed;
}

static int run_cpu(tensor_call *c)
{
    const bauta_plan *plan = mask_plan(c->box);
    context_lease lease = { 0 };
    bias_args none = { 0 };
    bauta_error err;
    if (!plan || context_take(&lease))
        return -1;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status =
        attention_run(lease.context, &c->call, &none, &plan, true, &err);
    PyEval_RestoreThread(thread);
    context_give(&lease);
    if (status)
        raise_error(status, &err);
    return status ? -1 : 0;
}

/* All arrays of the call are set. */
static int run(tensor_call *c)
{
    attention_call *call = &c->call;
    array *all[] = { &call->q,    &call->k,  &call->v,  &call->out, &call->lse,
                     &call->dout, &call->dq, &call->dk, &call->dv };
    size_t count = call->backward ? 9 : 5;
    for (size_t i = 0; i < count; i++) {
        if (c->q.device >= 0 && !c->merged)
            as_tokens(all[i]);
        single_axes(all[i]);
    }
    if (attention_call_finish(call, c->scale, !c->packed || c->q.device >= 0))
        return -1;
    return c->q.device >= 0 ? run_gpu(c) : run_cpu(c);
}

/* out, and lse if it is wanted, in a tensor_call whose inputs are read. Returns
 * 1, 0 if it is not for this file, or -1 and sets an exception. */
static int forward(tensor_call *c, bool with_lse, PyObject **out,
                   PyObject **lse)
{
    const array *const inputs[] = { &c->q.array, &c->k.array, &c->v.array };
    attention_call *call = &c->call;
    *out = *lse = NULL;
    if (!layout_choose(c, inputs, 3))
        return 0;
    call->q = c->q.array;
    call->k = c->k.array;
    call->v = c->v.array;
    results_layout(c, &call->out, &call->lse);
    *out = result_new(c, &call->out, false);
    if (*out && with_lse)
        *lse = result_new(c, &call->lse, true);
    call->has_lse = with_lse;
    if (!*out || (with_lse && !*lse) || run(c)) {
        Py_CLEAR(*out);
        Py_CLEAR(*lse);
        return -1;
    }
    return 1;
}

/* ---- Functions ------------------------------------------------------------
 */

/* None, in place of an exception that bauta/torch.py raises again. */
static PyObject *not_here(void)
{
    PyErr_Clear();
    return none_new();
}

/* torch_forward(q, k, v, mask, scale, packed, with_lse): (out, lse), in which
 * lse is None if it is not wanted. */
static PyObject *torch_forward(PyObject *self, PyObject *const *args,
                               Py_ssize_t count)
{
    tensor_call c;
    PyObject *out, *lse;
    (void)self;
    if (count != 7)
        return raise_argument("%zd arguments, not 7", count);
    if (!inputs_read(&c, args, args[3], args[4], args[5] == Py_True))
        return not_here();
    int result = forward(&c, args[6] == Py_True, &out, &lse);
    if (result <= 0)
        return result ? NULL : not_here();
    PyObject *pair = PyTuple_Pack(2, out, lse ? lse : Py_None);
    Py_DECREF(out);
    Py_XDECREF(lse);
    return pair;
}

/* Leave to autograd what the backward pass needs, in its context object, and
 * return what forward() of a torch.autograd.Function returns. */
static PyObject *context_fill(PyObject *ctx, PyObject *const *args,
                              PyObject *out, PyObject *lse, bool return_lse)
{
    // What save_for_backward() does, which is a function of Python.
    PyObject *saved = PyTuple_Pack(5, args[0], args[1], args[2], out, lse);
    int failed = !saved || PyObject_SetAttr(ctx, names[SAVE], saved) ||
                 PyObject_SetAttr(ctx, names[CALL], args[3]);
    Py_XDECREF(saved);
    if (!failed && return_lse) {
        PyObject *done =
            PyObject_CallMethodObjArgs(ctx, names[MARK], lse, NULL);
        Py_XDECREF(done);
        if (done)
            done = PyObject_CallMethodObjArgs(ctx, names[MATERIALIZE], Py_False,
                                              NULL);
        Py_XDECREF(done);
        failed = !done;
    }
    if (failed)
        return NULL;
    if (return_lse)
        return PyTuple_Pack(2, out, lse);
    Py_INCREF(out);
    return out;
}

/* torch_function_forward(ctx, q, k, v, (mask, scale, return_lse)): forward() of
 * the torch.autograd.Function. They are one argument because PyTorch takes a
 * quarter of a microsecond for each. Several masks and tensors that have to be
 * copied are for bauta/torch.py. */
static PyObject *torch_function_forward(PyObject *self, PyObject *const *args,
                                        Py_ssize_t count)
{
    tensor_call c;
    PyObject *out, *lse;
    (void)self;
    if (count != 5 || !PyTuple_Check(args[4]) || PyTuple_Size(args[4]) != 3)
        return raise_argument("not (ctx, q, k, v, (mask, scale, return_lse))");
    PyObject *mask = PyTuple_GetItem(args[4], 0);
    PyObject *scale = PyTuple_GetItem(args[4], 1);
    bool return_lse = PyTuple_GetItem(args[4], 2) == Py_True;
    int result = inputs_read(&c, args + 1, mask, scale, false)
                     ? forward(&c, true, &out, &lse)
                     : 0;
    if (result < 0)
        return NULL;
    if (result == 0) {
        PyErr_Clear();
        return PyObject_CallFunctionObjArgs(torch[FORWARD], args[0], args[1],
                                            args[2], args[3], args[4], NULL);
    }
    PyObject *returned = context_fill(args[0], args + 1, out, lse, return_lse);
    Py_DECREF(out);
    Py_DECREF(lse);
    return returned;
}

/* Whether nothing but autograd has to see a call: no mode, transform or
 * autocast. */
static bool nothing_watches(void)
{
    return torch_is(DISPATCH_MODES) == 0 && torch_is(TRANSFORMS) == 0 &&
           torch_is(AUTOCAST) == 0;
}

/* Whether autograd records a call; -1 for an exception. */
static int recorded(PyObject *const *tensors)
{
    int needs = 0;
    for (int i = 0; i < 3 && !needs; i++)
        needs = truth_of(PyObject_GetAttr(tensors[i], names[REQUIRES_GRAD]));
    return needs > 0 ? torch_is(GRAD_ENABLED) : needs;
}

/* torch_attention(q, k, v, mask, scale, return_lse): out or (out, lse), with
 * autograd. */
static PyObject *torch_attention(PyObject *self, PyObject *const *args,
                                 Py_ssize_t count)
{
    tensor_call c;
    PyObject *out, *lse;
    (void)self;
    if (count != 6)
        return raise_argument("%zd arguments, not 6", count);
    if (!torch[TENSOR] || !plain_type(args[0]) || !plain_type(args[1]) ||
        !plain_type(args[2]) || !nothing_watches())
        return not_here();
    int record = recorded(args);
    if (record < 0 || (PyObject *)Py_TYPE(args[3]) != torch[MASK])
        return not_here();
    if (record) {
        PyObject *rest = PyTuple_Pack(3, args[3], args[4], args[5]);
        out = rest ? PyObject_CallFunctionObjArgs(torch[APPLY], args[0],
                                                  args[1], args[2], rest, NULL)
                   : NULL;
        Py_XDECREF(rest);
        return out;
    }
    if (!inputs_read(&c, args, args[3], args[4], false))
        return not_here();
    bool with_lse = args[5] == Py_True;
    int result = forward(&c, with_lse, &out, &lse);
    if (result <= 0)
        return result ? NULL : not_here();
    if (!with_lse)
        return out;
    PyObject *pair = PyTuple_Pack(2, out, lse);
    Py_DECREF(out);
    Py_DECREF(lse);
    return pair;
}

/* The gradient of a tensor, empty and of the same strides. */
static PyObject *gradient_new(const tensor *of, array *to)
{
    *to = of->array;
    return tensor_new(&to->data, of, false, of->rank, of->sizes, of->strides);
}

/* Whether the tensors of a backward pass are laid out as its forward pass made
 * them. */
static bool backward_fits(tensor_call *c)
{
    array out, lse;
    const array *const arrays[] = { &c->q.array, &c->k.array, &c->v.array,
                                    &c->out.array };
    if (!in_place(&c->out.array) || !is_dense(&c->q) || !is_dense(&c->k) ||
        !is_dense(&c->v) || !layout_choose(c, arrays, 4))
        return false;
    results_layout(c, &out, &lse);
    single_axes(&lse);
    return c->out.device == c->q.device && c->dout.device == c->q.device &&
           c->lse.device == c->q.device && c->out.bfloat16 == c->q.bfloat16 &&
           c->dout.bfloat16 == c->q.bfloat16 && !c->lse.bfloat16 &&
           out.batch == c->out.array.batch && out.heads == c->out.array.heads &&
           out.tokens == c->out.array.tokens && out.dim == c->out.array.dim &&
           same_layout(&c->out.array, &c->dout.array) &&
           same_layout(&lse, &c->lse.array);
}

/* torch_backward(q, k, v, mask, scale, packed, out, lse, dout): (dq, dk, dv).
 */
static PyObject *torch_backward(PyObject *self, PyObject *const *args,
                                Py_ssize_t count)
{
    tensor_call c;
    PyObject *made[3] = { NULL }, *result = NULL;
    (void)self;
    if (count != 9)
        return raise_argument("%zd arguments, not 9", count);
    if (!inputs_read(&c, args, args[3], args[4], args[5] == Py_True) ||
        !tensor_read(&c.out, args[6], c.q.rank, true) ||
        !tensor_read(&c.lse, args[7], c.q.rank - 1, false) ||
        !tensor_read(&c.dout, args[8], c.q.rank, true) || !backward_fits(&c))
        return not_here();
    attention_call *call = &c.call;
    call->backward = call->has_lse = true;
    call->q = c.q.array;
    call->k = c.k.array;
    call->v = c.v.array;
    call->out = c.out.array;
    call->lse = c.lse.array;
    call->dout = c.dout.array;
    made[0] = gradient_new(&c.q, &call->dq);
    if (made[0])
        made[1] = gradient_new(&c.k, &call->dk);
    if (made[1])
        made[2] = gradient_new(&c.v, &call->dv);
    if (made[2] && !run(&c))
        result = PyTuple_Pack(3, made[0], made[1], made[2]);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(made[i]);
    return result;
}

/* In the stable ABI since Python 3.10, and the same before. */
#define BAUTA_METH_FASTCALL 0x0080
#define FAST(function) \
    (PyCFunction)(void (*)(void)) function, BAUTA_METH_FASTCALL, NULL

PyMethodDef tensor_methods[] = {
    { "torch_setup", torch_setup, METH_VARARGS, NULL },
    { "torch_attention", FAST(torch_attention) },
    { "torch_forward", FAST(torch_forward) },
    { "torch_function_forward", FAST(torch_function_forward) },
    { "torch_backward", FAST(torch_backward) },
    { NULL, NULL, 0, NULL },
};
