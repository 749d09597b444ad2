/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - tokenizers, their training, and chat templates. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

static void tokenizer_release(void *tokenizer)
{
    bauta_tokenizer_free(tokenizer);
}

static PyObject *tokenizer_wrap(bauta_tokenizer *tokenizer, bauta_status status,
                                const bauta_error *err)
{
    if (status)
        return raise_error(status, err);
    return box_new(TOKENIZER_BOX, tokenizer, tokenizer_release,
                   (context_lease){ 0 }, NULL);
}

static PyObject *tokenizer_load(PyObject *self, PyObject *args)
{
    const char *path;
    bauta_tokenizer *tokenizer = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_tokenizer_load(&tokenizer, path, &err);
    PyEval_RestoreThread(thread);
    return tokenizer_wrap(tokenizer, status, &err);
}

static PyObject *tokenizer_bytes(PyObject *self, PyObject *none)
{
    bauta_tokenizer *tokenizer = NULL;
    bauta_error err;
    (void)self;
    (void)none;
    bauta_status status = bauta_tokenizer_bytes(&tokenizer, &err);
    return tokenizer_wrap(tokenizer, status, &err);
}

static PyObject *tokenizer_characters(PyObject *self, PyObject *args)
{
    const char *text;
    Py_ssize_t length;
    bauta_tokenizer *tokenizer = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "s#", &text, &length))
        return NULL;
    bauta_status status =
        bauta_tokenizer_characters(&tokenizer, text, (size_t)length, &err);
    return tokenizer_wrap(tokenizer, status, &err);
}

static PyObject *tokenizer_save(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    const char *folder;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os", &capsule, &folder))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    if (!tokenizer)
        return NULL;
    return none_or_error(bauta_tokenizer_save(tokenizer, folder, &err), &err);
}

/* ---- Vocabulary ---------------------------------------------------------- */

static PyObject *tokenizer_vocab_size(PyObject *self, PyObject *capsule)
{
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    (void)self;
    return tokenizer ? PyLong_FromSize_t(bauta_tokenizer_vocab_size(tokenizer))
                     : NULL;
}

static PyObject *tokenizer_piece(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    unsigned id;
    size_t length = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OI", &capsule, &id))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    if (!tokenizer)
        return NULL;
    const char *piece = bauta_tokenizer_piece(tokenizer, id, &length);
    return piece ? text_new(piece, length) : none_new();
}

static PyObject *token_new(uint32_t id)
{
    return id == BAUTA_NO_TOKEN ? none_new() : PyLong_FromUnsignedLong(id);
}

static PyObject *tokenizer_find(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    const char *piece;
    Py_ssize_t length;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os#", &capsule, &piece, &length))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    return tokenizer ? token_new(bauta_tokenizer_find(tokenizer, piece,
                                                      (size_t)length))
                     : NULL;
}

/* The ids in the order of bauta_special_token. */
static PyObject *tokenizer_special(PyObject *self, PyObject *capsule)
{
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    (void)self;
    if (!tokenizer)
        return NULL;
    PyObject *list = PyList_New(BAUTA_TOKEN_COUNT);
    for (int i = 0; list && i < BAUTA_TOKEN_COUNT; i++)
        list = list_steal(list, i,
                          token_new(bauta_tokenizer_special_token(
                              tokenizer, (bauta_special_token)i)));
    return list;
}

static PyObject *tokenizer_is_special(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    unsigned id;
    (void)self;
    if (!PyArg_ParseTuple(args, "OI", &capsule, &id))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    return tokenizer
               ? PyBool_FromLong(bauta_tokenizer_is_special(tokenizer, id))
               : NULL;
}

/* ---- Encoding and decoding ----------------------------------------------- */

/* (ids, types, starts, ends) as bytes: the first two of uint32, the others of
 * size_t. Offsets count bytes of UTF-8. */
static PyObject *tokens_new(const bauta_tokens *tokens)
{
    Py_ssize_t count = (Py_ssize_t)tokens->count;
    return Py_BuildValue(
        "y#y#y#y#", (const char *)tokens->ids, count * 4,
        (const char *)tokens->types, count * 4, (const char *)tokens->starts,
        count * (Py_ssize_t)sizeof(size_t), (const char *)tokens->ends,
        count * (Py_ssize_t)sizeof(size_t));
}

static const bauta_tokens no_tokens = { 0, (uint32_t[]){ 0 }, (uint32_t[]){ 0 },
                                        (size_t[]){ 0 }, (size_t[]){ 0 } };

static PyObject *tokenizer_encode(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    const char *text, *pair;
    Py_ssize_t length, pair_length;
    int special, split, target;
    bauta_encode_options options = BAUTA_ENCODE_OPTIONS_INIT;
    bauta_tokens tokens = { 0 };
    bauta_status status;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os#z#ppp", &capsule, &text, &length, &pair,
                          &pair_length, &special, &split, &target))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    if (!tokenizer)
        return NULL;
    options.no_special_tokens = !special;
    options.split_special_tokens = split;
    options.target = target;
    PyThreadState *thread = PyEval_SaveThread();
    if (pair)
        status = bauta_tokenizer_encode_pair(tokenizer, text, (size_t)length,
                                             pair, (size_t)pair_length,
                                             &options, &tokens, &err);
    else
        status = bauta_tokenizer_encode(tokenizer, text, (size_t)length,
                                        &options, &tokens, &err);
    PyEval_RestoreThread(thread);
    if (status)
        return raise_error(status, &err);
    PyObject *result = tokens_new(tokens.count ? &tokens : &no_tokens);
    bauta_tokens_release(&tokens);
    return result;
}

static PyObject *tokenizer_decode(PyObject *self, PyObject *args)
{
    PyObject *capsule, *ids, *result;
    int skip, source;
    Py_buffer view = { 0 };
    bauta_decode_options options = BAUTA_DECODE_OPTIONS_INIT;
    bauta_error err;
    char *text = NULL;
    size_t length = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOpp", &capsule, &ids, &skip, &source))
        return NULL;
    bauta_tokenizer *tokenizer = object_of(capsule, TOKENIZER_BOX);
    if (!tokenizer || buffer_get(&view, ids, sizeof(uint32_t), false))
        return NULL;
    options.keep_special_tokens = !skip;
    options.source = source;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_tokenizer_decode(
        tokenizer, view.buf, (size_t)view.len / sizeof(uint32_t), &options,
        &text, &length, &err);
    PyEval_RestoreThread(thread);
    buffer_release(&view);
    if (status)
        return raise_error(status, &err);
    result = text_new(text, length);
    bauta_text_free(text);
    return result;
}

/* ---- Training ------------------------------------------------------------ */

static const char *const kinds[] = { "bpe", "wordpiece", "unigram",
                                     "characters", NULL };
static const field trainer_fields[] = {
    FIELD_CHOICES(bauta_tokenizer_trainer_options, kind, kinds),
    FIELD(bauta_tokenizer_trainer_options, SIZE, vocab_size),
    FIELD(bauta_tokenizer_trainer_options, SIZE, min_frequency),
    FIELD(bauta_tokenizer_trainer_options, BOOL, lowercase),
    FIELD(bauta_tokenizer_trainer_options, BOOL, prefer_greatest),
    { NULL, FIELD_SIZE, 0, NULL },
};

static PyObject *tokenizer_train(PyObject *self, PyObject *args)
{
    PyObject *dict, *texts_list, *special_list, *result = NULL;
    bauta_tokenizer_trainer_options options =
        BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    const char **texts = NULL, **special = NULL;
    size_t *lengths = NULL, *special_lengths = NULL, count, special_count;
    bauta_tokenizer *tokenizer = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyDict_Type, &dict, &PyList_Type,
                          &texts_list, &PyList_Type, &special_list) ||
        fields_read(&options, trainer_fields, dict))
        return NULL;
    if (!texts_get(texts_list, &texts, &lengths, &count) &&
        !texts_get(special_list, &special, &special_lengths, &special_count)) {
        options.special_tokens = special_count ? special : NULL;
        options.special_token_count = special_count;
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_tokenizer_train(&tokenizer, &options, texts,
                                                    lengths, count, &err);
        PyEval_RestoreThread(thread);
        result = tokenizer_wrap(tokenizer, status, &err);
    }
    free(texts);
    free(lengths);
    free(special);
    free(special_lengths);
    return result;
}

/* ---- Chat templates ------------------------------------------------------ */

static PyObject *chat_render(PyObject *self, PyObject *args)
{
    const char *folder, *name, *variables;
    Py_ssize_t size;
    bauta_chat_template *chat_template = NULL;
    char *text = NULL;
    size_t length = 0;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "szs#", &folder, &name, &variables, &size))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status =
        bauta_chat_template_load(&chat_template, folder, name, &err);
    if (!status)
        status = bauta_chat_template_render(chat_template, variables,
                                            (size_t)size, &text, &length, &err);
    PyEval_RestoreThread(thread);
    PyObject *result =
        status ? raise_error(status, &err) : text_new(text, length);
    bauta_text_free(text);
    bauta_chat_template_free(chat_template);
    return result;
}

PyMethodDef text_methods[] = {
    { "tokenizer_load", tokenizer_load, METH_VARARGS, NULL },
    { "tokenizer_bytes", tokenizer_bytes, METH_NOARGS, NULL },
    { "tokenizer_characters", tokenizer_characters, METH_VARARGS, NULL },
    { "tokenizer_train", tokenizer_train, METH_VARARGS, NULL },
    { "tokenizer_save", tokenizer_save, METH_VARARGS, NULL },
    { "tokenizer_vocab_size", tokenizer_vocab_size, METH_O, NULL },
    { "tokenizer_piece", tokenizer_piece, METH_VARARGS, NULL },
    { "tokenizer_find", tokenizer_find, METH_VARARGS, NULL },
    { "tokenizer_special", tokenizer_special, METH_O, NULL },
    { "tokenizer_is_special", tokenizer_is_special, METH_VARARGS, NULL },
    { "tokenizer_encode", tokenizer_encode, METH_VARARGS, NULL },
    { "tokenizer_decode", tokenizer_decode, METH_VARARGS, NULL },
    { "chat_render", chat_render, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
