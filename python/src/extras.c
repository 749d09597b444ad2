/* SPDX-License-Identifier: Apache-2.0 */
/* extras.c - audits and pictures. */
#include "module.h"

#include <stdlib.h>

/* ---- Audits -------------------------------------------------------------- */

static PyObject *audit_json(bauta_audit *audit, bauta_status status,
                            const bauta_error *err)
{
    if (status)
        return raise_error(status, err);
    size_t length = bauta_audit_json(audit, NULL, 0);
    char *text = malloc(length + 1);
    PyObject *result = NULL;
    if (text) {
        bauta_audit_json(audit, text, length + 1);
        result = text_new(text, length);
    } else {
        PyErr_NoMemory();
    }
    free(text);
    bauta_audit_free(audit);
    return result;
}

static const field audit_fields[] = {
    FIELD(bauta_audit_options, SIZE, probes),
    FIELD(bauta_audit_options, UINT64, seed),
    { NULL, FIELD_SIZE, 0, NULL },
};

/* The bits of a list of names; an empty one is all. */
static int checks_get(PyObject *list, uint32_t *bits)
{
    const char **names = NULL;
    size_t *lengths = NULL, count;
    int failed = texts_get(list, &names, &lengths, &count);
    for (size_t i = 0; !failed && i < count; i++) {
        const char *words[BAUTA_CHECKS];
        uint32_t bit = 0;
        for (int c = 0; c < BAUTA_CHECKS; c++) {
            words[c] = bauta_check_name((bauta_check)c);
            if (PyUnicode_CompareWithASCIIString(
                    PyList_GetItem(list, (Py_ssize_t)i), words[c]) == 0)
                bit = UINT32_C(1) << c;
        }
        *bits |= bit;
        if (!bit) {
            const char *closest =
                bauta_closest_word(names[i], words, BAUTA_CHECKS);
            raise_argument("there is no check '%s'; did you mean '%s'?",
                           names[i], closest ? closest : words[0]);
            failed = -1;
        }
    }
    free(names);
    free(lengths);
    return failed;
}

/* (model, source, target, checks, dict) */
static PyObject *audit_model(PyObject *self, PyObject *args)
{
    PyObject *capsule, *source, *target, *checks, *dict, *result = NULL;
    batch_args from = { 0 }, to = { 0 };
    bauta_audit_options options = BAUTA_AUDIT_OPTIONS_INIT;
    context_lease lease = { 0 };
    bauta_audit *audit = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO!O!", &capsule, &source, &target,
                          &PyList_Type, &checks, &PyDict_Type, &dict) ||
        checks_get(checks, &options.checks) ||
        fields_read(&options, audit_fields, dict))
        return NULL;
    bauta_model *model = object_of(capsule, MODEL_BOX);
    if (model && !batch_get(&from, source) && !batch_get(&to, target) &&
        !context_take_for(&lease, capsule)) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_audit_create(
            &audit, lease.context, model, from.given, to.given, &options, &err);
        PyEval_RestoreThread(thread);
        context_give(&lease);
        result = audit_json(audit, status, &err);
    }
    batch_release(&from);
    batch_release(&to);
    return result;
}

static PyObject *audit_trainer(PyObject *self, PyObject *args)
{
    PyObject *capsule, *checks, *dict;
    bauta_audit_options options = BAUTA_AUDIT_OPTIONS_INIT;
    bauta_audit *audit = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!O!", &capsule, &PyList_Type, &checks,
                          &PyDict_Type, &dict) ||
        checks_get(checks, &options.checks) ||
        fields_read(&options, audit_fields, dict))
        return NULL;
    bauta_trainer *trainer = object_of(capsule, TRAINER_BOX);
    if (!trainer)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_audit_trainer(&audit, trainer, &options, &err);
    PyEval_RestoreThread(thread);
    return audit_json(audit, status, &err);
}

/* ---- Pictures ------------------------------------------------------------ */

/* What a picture points to. */
typedef struct picture_args {
    Py_buffer weights;
    const char **rows, **columns;
    size_t *row_lengths, *column_lengths;
} picture_args;

static int labels_get(PyObject *list, size_t wanted, const char ***out,
                      size_t **lengths)
{
    size_t count;
    if (list == Py_None)
        return 0;
    if (texts_get(list, out, lengths, &count))
        return -1;
    if (count == wanted)
        return 0;
    raise_argument("there are %zu labels, not %zu", count, wanted);
    return -1;
}

/* (attention, layer, head, rows, columns, weights, row labels, column labels),
 * where labels may be None. */
static int picture_get(picture_args *args, bauta_picture *to, PyObject *tuple)
{
    PyObject *weights, *row_labels, *column_labels;
    int attention;
    *to = (bauta_picture)BAUTA_PICTURE_INIT;
    if (!PyArg_ParseTuple(tuple, "iO&O&O&O&OOO", &attention, size_convert,
                          &to->layer, size_convert, &to->head, size_convert,
                          &to->rows, size_convert, &to->columns, &weights,
                          &row_labels, &column_labels) ||
        buffer_get_count(&args->weights, weights, sizeof(float),
                         to->rows * to->columns, false) ||
        labels_get(row_labels, to->rows, &args->rows, &args->row_lengths) ||
        labels_get(column_labels, to->columns, &args->columns,
                   &args->column_lengths))
        return -1;
    to->attention = (bauta_attention_kind)attention;
    to->weights = args->weights.buf;
    to->row_labels = args->rows;
    to->column_labels = args->columns;
    return 0;
}

static void pictures_free(picture_args *list, size_t count)
{
    for (size_t i = 0; list && i < count; i++) {
        buffer_release(&list[i].weights);
        free(list[i].rows);
        free(list[i].columns);
        free(list[i].row_lengths);
        free(list[i].column_lengths);
    }
    free(list);
}

/* (path, title or None, pictures) */
static PyObject *picture_save(PyObject *self, PyObject *args)
{
    PyObject *list, *result = NULL;
    const char *path;
    bauta_picture_options options = BAUTA_PICTURE_OPTIONS_INIT;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "szO!", &path, &options.title, &PyList_Type,
                          &list))
        return NULL;
    size_t count = (size_t)PyList_Size(list);
    picture_args *parts = calloc(count + 1, sizeof(*parts));
    bauta_picture *pictures = calloc(count + 1, sizeof(*pictures));
    bool ready = parts && pictures;
    if (!ready)
        PyErr_NoMemory();
    for (size_t i = 0; i < count && ready; i++)
        ready = !picture_get(&parts[i], &pictures[i],
                             PyList_GetItem(list, (Py_ssize_t)i));
    if (ready) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status =
            bauta_picture_save(path, pictures, count, &options, &err);
        PyEval_RestoreThread(thread);
        result = none_or_error(status, &err);
    }
    pictures_free(parts, count);
    free(pictures);
    return result;
}

PyMethodDef extras_methods[] = {
    { "audit_model", audit_model, METH_VARARGS, NULL },
    { "audit_trainer", audit_trainer, METH_VARARGS, NULL },
    { "picture_save", picture_save, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
