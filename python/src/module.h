/* SPDX-License-Identifier: Apache-2.0 */
/* module.h - shared by the sources of the extension module bauta._core.
 *
 * The module is a thin layer for the package's own Python code: masks are
 * capsules, arrays are buffers or (address, shape, strides), and arguments have
 * the types that the package passes. Users see python/bauta/. It uses the
 * stable ABI of Python 3.9, so one binary serves all later versions. */
#ifndef BAUTA_PYTHON_MODULE_H
#define BAUTA_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <bauta.h>

/* Buffers joined the stable ABI with Python 3.11. Their functions and the
 * layout of the struct are the same in 3.9 and 3.10, which are closed. */
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} Py_buffer;
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
PyAPI_FUNC(int)
    PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
/* In the stable ABI since Python 3.10, and the same before. */
PyAPI_FUNC(const char *)
    PyUnicode_AsUTF8AndSize(PyObject *text, Py_ssize_t *size);

/* Set the exception that belongs to a status, with the library's message, and
 * return NULL. */
PyObject *raise_error(bauta_status status, const bauta_error *err);
/* The same for BAUTA_ERR_ARGUMENT and a message of the module's own. */
PyObject *raise_argument(const char *format, ...);
/* raise_error() after a failure, else None. */
PyObject *none_or_error(bauta_status status, const bauta_error *err);

/* ---- Contexts ------------------------------------------------------------ */

/* A context that belongs to one call, or to an object that keeps it. */
typedef struct context_lease {
    bauta_context *context;
    unsigned generation;
    bool of_model; /* the context of a model, which keeps it */
} context_lease;

/* A context of the CPU. Returns 0, or -1 and sets an exception. Giving back
 * nothing is no error. */
int context_take(context_lease *lease);
/* The context for calls of a model. One on a device has its own, which serves
 * one call at a time: the package holds the model's lock during a call. */
int context_take_for(context_lease *lease, PyObject *model);
void context_give(context_lease *lease);
/* Options with the number of threads, for a context of a device. */
bauta_options context_options(const char *device, bauta_dtype dtype);

/* ---- Boxes --------------------------------------------------------------- */

enum { BOX_KEPT = 4 };

/* What a capsule of an object points to: the object, the context that it needs,
 * and the capsules that must outlive it. */
typedef struct object_box {
    void *object;
    void (*release)(void *object);
    context_lease lease;
    bauta_context *device; /* of a model that is not on the CPU, or NULL */
    PyObject *kept[BOX_KEPT];
} object_box;

/* The names of capsules. */
#define TOKENIZER_BOX "bauta.tokenizer"
#define MODEL_BOX "bauta.model"
#define CORPUS_BOX "bauta.corpus"
#define TRAINER_BOX "bauta.trainer"
#define RUN_BOX "bauta.run"

/* A capsule that owns the object and the lease, and releases both if it cannot
 * be created. `kept` ends with NULL; it may be NULL. */
PyObject *box_new(const char *name, void *object, void (*release)(void *),
                  context_lease lease, PyObject *const *kept);
/* NULL and an exception if the capsule has another name. */
object_box *box_of(PyObject *capsule, const char *name);
void *object_of(PyObject *capsule, const char *name);
/* The same for a pointer `to`, with NULL for None. */
int object_or_none(PyObject *capsule, const char *name, void *to);

PyObject *none_new(void);
PyObject *text_new(const char *text, size_t length);
/* Set an item of a new list; without an item, or on failure, drop the list and
 * return NULL. */
PyObject *list_steal(PyObject *list, Py_ssize_t index, PyObject *item);

/* ---- Arguments ----------------------------------------------------------- */

/* A converter for PyArg_ParseTuple(): O& with a size_t *. */
int size_convert(PyObject *object, void *to);

/* A contiguous buffer of elements of `item` bytes. Returns 0, or -1 and sets an
 * exception; a failed or zeroed buffer may be released, too. */
int buffer_get(Py_buffer *view, PyObject *object, size_t item, bool writable);
int buffer_get_count(Py_buffer *view, PyObject *object, size_t item,
                     size_t count, bool writable);
void buffer_release(Py_buffer *view);

/* The numbers of a list, for free(). None gives NULL. */
int sizes_get(PyObject *list, size_t **out, size_t *count);
/* The texts of a list of str, which must outlive them; both arrays are for
 * free(), after a failure, too. */
int texts_get(PyObject *list, const char ***out, size_t **lengths,
              size_t *count);

/* A member of a struct of options or of a report. Tables end with a NULL
 * name. */
typedef enum field_kind {
    FIELD_SIZE,
    FIELD_UINT64,
    FIELD_TOKEN, /* uint32_t; None is BAUTA_NO_TOKEN */
    FIELD_BOOL,
    FIELD_CHOICE, /* an enum, by name */
    FIELD_FLOAT,
    FIELD_DOUBLE
} field_kind;
typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset;
    const char *const *choices; /* names of 0, 1, ...; ends with NULL */
} field;
#define FIELD(type, kind, member)                           \
    {                                                       \
#member, FIELD_##kind, offsetof(type, member), NULL \
    }
#define FIELD_CHOICES(type, member, names)                   \
    {                                                        \
#member, FIELD_CHOICE, offsetof(type, member), names \
    }

/* Set the members that a dictionary names. */
int fields_read(void *to, const field *table, PyObject *dict);
PyObject *fields_dict(const void *from, const field *table);

/* A batch of tokens: None, or a tuple (ids, lengths, stride, count,
 * token_types, mask, cross_mask, prefix_lengths), in which all but ids, stride
 * and count may be None. */
typedef struct batch_args {
    bauta_batch batch;
    const bauta_batch *given; /* &batch, or NULL for None */
    size_t rows;
    size_t *lengths, *prefixes;
    Py_buffer ids, types;
} batch_args;
int batch_get(batch_args *args, PyObject *tuple);
void batch_release(batch_args *args);

/* ---- Masks --------------------------------------------------------------- */

enum { MASK_GPU_PLANS = 8 };

/* A plan on a GPU, for a stream, for heads, and for the mask or for so many
 * repetitions of it. */
typedef struct mask_gpu_plan {
    void *stream;
    int device;
    bool bfloat16;
    size_t times; /* 0: the mask itself */
    size_t heads, kv_heads, head_dim, value_dim;
    PyObject *owner, *context, *plan; /* the last two are capsules */
} mask_gpu_plan;

/* What a mask capsule points to. The plan for all rows is created by the first
 * attention that needs it, and lives as long as the mask. Plans on GPUs come
 * from bauta/torch.py, the last one used first. */
typedef struct mask_box {
    bauta_mask *mask;
    bauta_plan *plan;
    mask_gpu_plan gpu_plans[MASK_GPU_PLANS];
    size_t gpu_plan_count;
} mask_box;

/* Both return NULL and set an exception if they cannot. */
mask_box *mask_of(PyObject *capsule);
const bauta_plan *mask_plan(mask_box *box);
/* Drops its references, which may be NULL. */
void mask_gpu_plan_release(mask_gpu_plan *plan);

/* ---- Arrays -------------------------------------------------------------- */

/* An array (batch, heads, tokens, dim) of the caller, or (batch, heads, tokens)
 * with dim 1. Strides count elements; that of an axis of size 1 is set to what
 * the library accepts. */
typedef struct array {
    void *data;
    size_t batch, heads, tokens, dim;
    size_t batch_stride, head_stride, token_stride;
    Py_buffer buffer; /* obj is NULL if the caller gave an address */
} array;

/* `object` is a float32 buffer or a tuple (address, shape, strides), which is
 * trusted. Returns 0, or -1 and sets an exception. A zeroed or failed array
 * may be released, too. */
int array_get(array *a, PyObject *object, const char *name, int rank,
              bool writable);
void array_release(array *a);
/* Set sizes and strides, in elements, of an array of `rank` axes, of which the
 * first three are batch, heads and tokens. */
int array_set_axes(array *a, const char *name, int rank,
                   const Py_ssize_t *sizes, const Py_ssize_t *strides);
/* Whether the sequences of the batch follow each other as heads do. */
bool array_merges(const array *a);
int array_check(const array *a, const char *name, size_t batch, size_t heads,
                size_t tokens, size_t dim);
int array_same_layout(const array *a, const array *of, const char *name,
                      const char *of_name);

/* The tensors of an attention, with those of the backward pass or without. */
typedef struct attention_call {
    array q, k, v, out, lse;
    array dout, dq, dk, dv;
    bool has_lse, backward;
    /* The sequences of the batch are further heads, so one call of the library
     * serves all of them. */
    bool merged;
    bauta_attention_shape shape;
} attention_call;

/* `objects` holds q, k, v, out, lse (which may be None in the forward pass)
 * and, for the backward pass, dout, dq, dk, dv. Checks that their shapes agree.
 * Returns 0, or -1 and sets an exception; release it in both cases. */
int attention_call_get(attention_call *call, PyObject *const *objects,
                       bool backward, double scale, bool one_mask);
void attention_call_release(attention_call *call);
/* The same for a call whose arrays, `backward` and `has_lse` are set. */
int attention_call_finish(attention_call *call, double scale, bool one_mask);

/* A softcap and a bias of the scores, from a tuple (softcap, bias,
 * alibi_slopes, positions, dbias), of which all but the first may be None. bias
 * and dbias are (batch, heads, queries, keys), with 1 where they are broadcast,
 * alibi_slopes (1, 1, 1, heads), and positions a buffer of uint32 (queries). */
typedef struct bias_args {
    bauta_attention_bias bias; /* tensor and dtensor are not set */
    array tensor, dtensor, slopes;
    Py_buffer positions;
} bias_args;

/* `args` is zeroed. Checks that the bias has what rows of the masks read.
 * Returns 0, or -1 and sets an exception; release it in both cases. */
int bias_get(bias_args *args, PyObject *tuple, const array *q, PyObject *masks);
void bias_release(bias_args *args);

/* Attention on the CPU, with one plan for all sequences or one for each, and a
 * bias that may be zeroed. Without the GIL. */
bauta_status attention_run(bauta_context *context, attention_call *call,
                           bias_args *bias, const bauta_plan **plans,
                           bool one_plan, bauta_error *err);
/* Attention on a GPU, in one call. Returns 0, or -1 and sets an exception. */
int gpu_run(PyObject *context, PyObject *plan, const attention_call *call);

/* ---- Functions by file --------------------------------------------------- */

extern PyMethodDef context_methods[], mask_methods[], attention_methods[],
    cache_methods[], gpu_methods[], text_methods[], model_methods[],
    generate_methods[], corpus_methods[], train_methods[], extras_methods[],
    tensor_methods[];

#endif
