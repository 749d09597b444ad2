/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - the extension module bauta._core and its errors. */
#include "module.h"

#include <stdarg.h>

/* bauta._errors.error_of(status, message) makes the exception. */
static PyObject *raise_text(bauta_status status, PyObject *text)
{
    PyObject *module = NULL, *error = NULL;
    if (text)
        module = PyImport_ImportModule("bauta._errors");
    if (module)
        error =
            PyObject_CallMethod(module, "error_of", "iO", (int)status, text);
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(module);
    Py_XDECREF(text);
    return NULL;
}

PyObject *raise_error(bauta_status status, const bauta_error *err)
{
    /* A message may quote a caller's text and cut a character at its end. */
    PyObject *text = PyUnicode_DecodeUTF8(
        err->message, (Py_ssize_t)strlen(err->message), "replace");
    return raise_text(status, text);
}

PyObject *raise_argument(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    return raise_text(BAUTA_ERR_ARGUMENT, text);
}

PyObject *none_or_error(bauta_status status, const bauta_error *err)
{
    return status ? raise_error(status, err) : none_new();
}

static PyObject *version(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyUnicode_FromString(bauta_version());
}

static PyMethodDef module_methods[] = {
    { "version", version, METH_NOARGS, "The version of the library." },
    { NULL, NULL, 0, NULL },
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "bauta._core",
    .m_doc = "The calls of the C library, for the package bauta.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__core(void)
{
    PyMethodDef *const files[] = {
        context_methods, mask_methods,  attention_methods, cache_methods,
        gpu_methods,     text_methods,  model_methods,     generate_methods,
        corpus_methods,  train_methods, extras_methods,    tensor_methods,
    };
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module && i < sizeof(files) / sizeof(files[0]); i++) {
        if (PyModule_AddFunctions(module, files[i])) {
            Py_DECREF(module);
            return NULL;
        }
    }
    return module;
}
