/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c - structs of options and reports as dictionaries, by tables. */
#include "module.h"

#include <string.h>

enum { FIELDS_MAX = 64 };

static const field *field_find(const field *table, const char *name)
{
    for (const field *f = table; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

static int field_unknown(const field *table, const char *name)
{
    const char *words[FIELDS_MAX];
    size_t count = 0;
    for (const field *f = table; f->name && count < FIELDS_MAX; f++)
        words[count++] = f->name;
    const char *closest = bauta_closest_word(name, words, count);
    if (closest)
        PyErr_Format(PyExc_TypeError,
                     "there is no option '%s'; did you mean '%s'?", name,
                     closest);
    else
        PyErr_Format(PyExc_TypeError, "there is no option '%s'", name);
    return -1;
}

/* Whole numbers of any type that has __index__(), such as NumPy's. */
static int whole_read(PyObject *value, uint64_t *out)
{
    PyObject *number = PyNumber_Index(value);
    if (!number)
        return -1;
    *out = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return *out == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static int choice_read(const field *f, PyObject *value, int *out)
{
    const char *name =
        PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    for (int i = 0; name && f->choices[i]; i++) {
        if (strcmp(name, f->choices[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return -1;
}

static int number_read(const field *f, PyObject *value, void *to)
{
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred())
        return -1;
    if (f->kind == FIELD_FLOAT)
        *(float *)to = (float)number;
    else
        *(double *)to = number;
    return 0;
}

static int value_read(const field *f, PyObject *value, void *to)
{
    uint64_t whole = 0;
    switch (f->kind) {
    case FIELD_SIZE:
    case FIELD_UINT64:
        if (whole_read(value, &whole))
            return -1;
        if (f->kind == FIELD_SIZE)
            *(size_t *)to = (size_t)whole;
        else
            *(uint64_t *)to = whole;
        return 0;
    case FIELD_TOKEN:
        if (value == Py_None)
            whole = BAUTA_NO_TOKEN;
        else if (whole_read(value, &whole) || whole >= BAUTA_NO_TOKEN)
            return -1;
        *(uint32_t *)to = (uint32_t)whole;
        return 0;
    case FIELD_BOOL:
        *(bool *)to = value == Py_True;
        return PyBool_Check(value) ? 0 : -1;
    case FIELD_CHOICE:
        return choice_read(f, value, to);
    case FIELD_FLOAT:
    case FIELD_DOUBLE:
        return number_read(f, value, to);
    }
    return -1;
}

static const char *kind_text(const field *f)
{
    switch (f->kind) {
    case FIELD_SIZE:
    case FIELD_UINT64:
        return "a whole number from 0 on";
    case FIELD_TOKEN:
        return "the id of a token or None";
    case FIELD_BOOL:
        return "True or False";
    case FIELD_CHOICE:
        return "one of its names";
    case FIELD_FLOAT:
    case FIELD_DOUBLE:
        break;
    }
    return "a number";
}

int fields_read(void *to, const field *table, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        if (!name)
            return -1;
        const field *f = field_find(table, name);
        if (!f)
            return field_unknown(table, name);
        if (value_read(f, value, (char *)to + f->offset)) {
            PyErr_Clear();
            raise_argument("%s is %R, not %s", name, value, kind_text(f));
            return -1;
        }
    }
    return 0;
}

static PyObject *value_new(const field *f, const void *from)
{
    switch (f->kind) {
    case FIELD_SIZE:
        return PyLong_FromSize_t(*(const size_t *)from);
    case FIELD_UINT64:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)from);
    case FIELD_TOKEN:
        if (*(const uint32_t *)from == BAUTA_NO_TOKEN)
            return none_new();
        return PyLong_FromUnsignedLong(*(const uint32_t *)from);
    case FIELD_BOOL:
        return PyBool_FromLong(*(const bool *)from);
    case FIELD_CHOICE:
        return PyUnicode_FromString(f->choices[*(const int *)from]);
    case FIELD_FLOAT:
        return PyFloat_FromDouble((double)*(const float *)from);
    case FIELD_DOUBLE:
        break;
    }
    return PyFloat_FromDouble(*(const double *)from);
}

PyObject *fields_dict(const void *from, const field *table)
{
    PyObject *dict = PyDict_New();
    for (const field *f = table; dict && f->name; f++) {
        PyObject *value = value_new(f, (const char *)from + f->offset);
        if (!value || PyDict_SetItemString(dict, f->name, value)) {
            Py_DECREF(dict);
            dict = NULL;
        }
        Py_XDECREF(value);
    }
    return dict;
}
