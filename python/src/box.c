/* SPDX-License-Identifier: Apache-2.0 */
/* box.c - objects of the library as capsules, and the buffers and lists that
 * calls take. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

/* ---- Boxes --------------------------------------------------------------- */

static void box_free(PyObject *capsule)
{
    object_box *b = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (!b)
        return;
    b->release(b->object);
    context_give(&b->lease);
    bauta_context_free(b->device);
    for (size_t i = 0; i < BOX_KEPT; i++)
        Py_XDECREF(b->kept[i]);
    free(b);
}

PyObject *box_new(const char *name, void *object, void (*release)(void *),
                  context_lease lease, PyObject *const *kept)
{
    object_box *b = calloc(1, sizeof(*b));
    PyObject *capsule = NULL;
    if (b) {
        *b = (object_box){ .object = object,
                           .release = release,
                           .lease = lease };
        capsule = PyCapsule_New(b, name, box_free);
    } else {
        PyErr_NoMemory();
    }
    if (!capsule) {
        release(object);
        context_give(&lease);
        free(b);
        return NULL;
    }
    for (size_t i = 0; kept && i < BOX_KEPT && kept[i]; i++) {
        Py_INCREF(kept[i]);
        b->kept[i] = kept[i];
    }
    return capsule;
}

object_box *box_of(PyObject *capsule, const char *name)
{
    return PyCapsule_GetPointer(capsule, name);
}

void *object_of(PyObject *capsule, const char *name)
{
    object_box *b = box_of(capsule, name);
    return b ? b->object : NULL;
}

int object_or_none(PyObject *capsule, const char *name, void *to)
{
    void *object = NULL;
    if (capsule != Py_None) {
        object = object_of(capsule, name);
        if (!object)
            return -1;
    }
    memcpy(to, &object, sizeof(object));
    return 0;
}

PyObject *none_new(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

PyObject *text_new(const char *text, size_t length)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
}

PyObject *list_steal(PyObject *list, Py_ssize_t index, PyObject *item)
{
    if (item && PyList_SetItem(list, index, item) == 0)
        return list;
    Py_DECREF(list);
    return NULL;
}

/* ---- Buffers and lists --------------------------------------------------- */

int size_convert(PyObject *object, void *to)
{
    size_t size = PyLong_AsSize_t(object);
    *(size_t *)to = size;
    return size != (size_t)-1 || !PyErr_Occurred();
}

int buffer_get(Py_buffer *view, PyObject *object, size_t item, bool writable)
{
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : 0)) {
        view->obj = NULL;
        return -1;
    }
    if (view->len == 0 ||
        ((size_t)view->len % item == 0 && (uintptr_t)view->buf % item == 0))
        return 0;
    raise_argument("a buffer has %zd bytes, not a multiple of %zu", view->len,
                   item);
    buffer_release(view);
    return -1;
}

int buffer_get_count(Py_buffer *view, PyObject *object, size_t item,
                     size_t count, bool writable)
{
    if (buffer_get(view, object, item, writable))
        return -1;
    if ((size_t)view->len / item == count)
        return 0;
    raise_argument("a buffer has %zu elements, not %zu",
                   (size_t)view->len / item, count);
    buffer_release(view);
    return -1;
}

void buffer_release(Py_buffer *view)
{
    if (view->obj)
        PyBuffer_Release(view);
    view->obj = NULL;
}

int sizes_get(PyObject *list, size_t **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    if (list == Py_None)
        return 0;
    Py_ssize_t length = PyList_Size(list);
    if (length < 0)
        return -1;
    size_t *sizes = calloc((size_t)length + 1, sizeof(*sizes));
    if (!sizes) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        if (!size_convert(PyList_GetItem(list, i), &sizes[i])) {
            free(sizes);
            return -1;
        }
    }
    *out = sizes;
    *count = (size_t)length;
    return 0;
}

int texts_get(PyObject *list, const char ***out, size_t **lengths,
              size_t *count)
{
    Py_ssize_t length = PyList_Size(list), size;
    *out = NULL;
    *lengths = NULL;
    if (length < 0)
        return -1;
    *count = (size_t)length;
    *out = calloc(*count + 1, sizeof(**out));
    *lengths = calloc(*count + 1, sizeof(**lengths));
    if (!*out || !*lengths) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        (*out)[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), &size);
        if (!(*out)[i])
            return -1;
        (*lengths)[i] = (size_t)size;
    }
    return 0;
}
