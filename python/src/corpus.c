/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.c - corpora, and the perplexity of a model over one. */
#include "module.h"

#include <stdlib.h>

static void corpus_release(void *corpus)
{
    bauta_corpus_free(corpus);
}

static PyObject *corpus_wrap(bauta_corpus *corpus, bauta_status status,
                             const bauta_error *err)
{
    if (status)
        return raise_error(status, err);
    return box_new(CORPUS_BOX, corpus, corpus_release, (context_lease){ 0 },
                   NULL);
}

static const field corpus_fields[] = {
    FIELD(bauta_corpus_options, BOOL, lines),
    FIELD(bauta_corpus_options, BOOL, skip_invalid),
    FIELD(bauta_corpus_options, SIZE, memory_bytes),
    { NULL, FIELD_SIZE, 0, NULL },
};

static PyObject *corpus_load(PyObject *self, PyObject *args)
{
    PyObject *capsule, *list, *dict, *result = NULL;
    const char **files = NULL;
    size_t *lengths = NULL, count;
    bauta_corpus_options options = BAUTA_CORPUS_OPTIONS_INIT;
    bauta_corpus *corpus = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!O!", &capsule, &PyList_Type, &list,
                          &PyDict_Type, &dict) ||
        fields_read(&options, corpus_fields, dict))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    if (tokenizer && !texts_get(list, &files, &lengths, &count)) {
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status =
            bauta_corpus_load(&corpus, tokenizer, files, count, &options, &err);
        PyEval_RestoreThread(thread);
        result = corpus_wrap(corpus, status, &err);
    }
    free(files);
    free(lengths);
    return result;
}

static PyObject *corpus_load_pairs(PyObject *self, PyObject *args)
{
    PyObject *capsule, *dict;
    const char *source, *target;
    bauta_corpus_options options = BAUTA_CORPUS_OPTIONS_INIT;
    bauta_corpus *corpus = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OszO!", &capsule, &source, &target,
                          &PyDict_Type, &dict) ||
        fields_read(&options, corpus_fields, dict))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    if (!tokenizer)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_corpus_load_pairs(&corpus, tokenizer, source,
                                                  target, &options, &err);
    PyEval_RestoreThread(thread);
    return corpus_wrap(corpus, status, &err);
}

static PyObject *corpus_create(PyObject *self, PyObject *none)
{
    bauta_corpus *corpus = NULL;
    bauta_error err;
    (void)self;
    (void)none;
    bauta_status status = bauta_corpus_create(&corpus, &err);
    return corpus_wrap(corpus, status, &err);
}

static PyObject *corpus_add(PyObject *self, PyObject *args)
{
    PyObject *capsule, *tokens, *source, *result = NULL;
    Py_buffer view = { 0 }, source_view = { 0 };
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &tokens, &source))
        return NULL;
    bauta_corpus *corpus = object_of(capsule, CORPUS_BOX);
    if (!corpus || buffer_get(&view, tokens, sizeof(uint32_t), false))
        return NULL;
    if (source == Py_None ||
        !buffer_get(&source_view, source, sizeof(uint32_t), false)) {
        bauta_status status = bauta_corpus_add(
            corpus, view.buf, (size_t)view.len / sizeof(uint32_t),
            source_view.buf, (size_t)source_view.len / sizeof(uint32_t), &err);
        result = none_or_error(status, &err);
    }
    buffer_release(&view);
    buffer_release(&source_view);
    return result;
}

static PyObject *corpus_split(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    double share;
    bauta_corpus *rest = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "Od", &capsule, &share))
        return NULL;
    bauta_corpus *corpus = object_of(capsule, CORPUS_BOX);
    if (!corpus)
        return NULL;
    bauta_status status = bauta_corpus_split(corpus, share, &rest, &err);
    return corpus_wrap(rest, status, &err);
}

static PyObject *corpus_properties(PyObject *self, PyObject *capsule)
{
    bauta_corpus *c = object_of(capsule, CORPUS_BOX);
    (void)self;
    if (!c)
        return NULL;
    return Py_BuildValue(
        "{s:N,s:n,s:K,s:K,s:n,s:K}", "pairs",
        PyBool_FromLong(bauta_corpus_pairs(c)), "documents",
        (Py_ssize_t)bauta_corpus_documents(c), "tokens",
        (unsigned long long)bauta_corpus_tokens(c), "bytes",
        (unsigned long long)bauta_corpus_bytes(c), "skipped",
        (Py_ssize_t)bauta_corpus_skipped(c), "unknown",
        (unsigned long long)bauta_corpus_unknown(c, NULL, NULL, NULL));
}

/* (tokens, source) as bytes; source is None in a corpus of texts. */
static PyObject *corpus_document(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    size_t index, count = 0, source_count = 0;
    const uint32_t *source = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO&", &capsule, size_convert, &index))
        return NULL;
    bauta_corpus *corpus = object_of(capsule, CORPUS_BOX);
    if (!corpus)
        return NULL;
    if (index >= bauta_corpus_documents(corpus))
        return raise_argument("there is no document %zu of %zu", index,
                              bauta_corpus_documents(corpus));
    const uint32_t *tokens =
        bauta_corpus_document(corpus, index, &count, &source, &source_count);
    return Py_BuildValue("y#y#", count ? (const char *)tokens : "",
                         (Py_ssize_t)(count * 4), (const char *)source,
                         (Py_ssize_t)(source_count * 4));
}

/* ---- Perplexity ---------------------------------------------------------- */

static const field perplexity_fields[] = {
    FIELD(bauta_perplexity_options, SIZE, context_length),
    FIELD(bauta_perplexity_options, SIZE, stride),
    FIELD(bauta_perplexity_options, SIZE, max_tokens),
    { NULL, FIELD_SIZE, 0, NULL },
};
static const field perplexity_results[] = {
    FIELD(bauta_perplexity_result, DOUBLE, loss),
    FIELD(bauta_perplexity_result, DOUBLE, perplexity),
    FIELD(bauta_perplexity_result, DOUBLE, total_loss),
    FIELD(bauta_perplexity_result, UINT64, tokens),
    FIELD(bauta_perplexity_result, SIZE, skipped),
    FIELD(bauta_perplexity_result, SIZE, context_length),
    FIELD(bauta_perplexity_result, SIZE, stride),
    { NULL, FIELD_SIZE, 0, NULL },
};

static PyObject *perplexity(PyObject *self, PyObject *args)
{
    PyObject *model, *tokenizer, *documents, *dict;
    bauta_tokenizer *text = NULL;
    bauta_perplexity_options options = BAUTA_PERPLEXITY_OPTIONS_INIT;
    bauta_perplexity_result result = BAUTA_PERPLEXITY_RESULT_INIT;
    context_lease lease = { 0 };
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO!", &model, &tokenizer, &documents,
                          &PyDict_Type, &dict) ||
        fields_read(&options, perplexity_fields, dict) ||
        object_or_none(tokenizer, TOKENIZER_BOX, &text))
        return NULL;
    bauta_model *weights = object_of(model, MODEL_BOX);
    bauta_corpus *corpus = weights ? object_of(documents, CORPUS_BOX) : NULL;
    if (!corpus || context_take_for(&lease, model))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_perplexity(lease.context, weights, text, corpus,
                                           &options, &result, &err);
    PyEval_RestoreThread(thread);
    context_give(&lease);
    return status ? raise_error(status, &err)
                  : fields_dict(&result, perplexity_results);
}

PyMethodDef corpus_methods[] = {
    { "corpus_load", corpus_load, METH_VARARGS, NULL },
    { "corpus_load_pairs", corpus_load_pairs, METH_VARARGS, NULL },
    { "corpus_create", corpus_create, METH_NOARGS, NULL },
    { "corpus_add", corpus_add, METH_VARARGS, NULL },
    { "corpus_split", corpus_split, METH_VARARGS, NULL },
    { "corpus_properties", corpus_properties, METH_O, NULL },
    { "corpus_document", corpus_document, METH_VARARGS, NULL },
    { "perplexity", perplexity, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
