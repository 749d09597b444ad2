/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - generation options and generators. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#define OPTIONS_BOX "bauta.generate_options"
#define GENERATOR_BOX "bauta.generator"

/* ---- Options ------------------------------------------------------------- */

/* Options with the arrays that they point to. */
typedef struct options_store {
    bauta_generate_options options;
    const char **strings;
    size_t *lengths;
    bauta_token_seq *words;
    Py_buffer *word_views;
    size_t word_count;
} options_store;

static void options_release(void *object)
{
    options_store *store = object;
    for (size_t i = 0; i < store->word_count; i++)
        buffer_release(&store->word_views[i]);
    free(store->strings);
    free(store->lengths);
    free(store->words);
    free(store->word_views);
    free(store);
}

static const char *const early_stoppings[] = { "no", "yes", "never", NULL };
static const field generate_fields[] = {
    FIELD(bauta_generate_options, SIZE, max_new_tokens),
    FIELD(bauta_generate_options, SIZE, max_length),
    FIELD(bauta_generate_options, SIZE, min_new_tokens),
    FIELD(bauta_generate_options, SIZE, min_length),
    FIELD(bauta_generate_options, FLOAT, repetition_penalty),
    FIELD(bauta_generate_options, SIZE, no_repeat_ngram_size),
    FIELD(bauta_generate_options, BOOL, do_sample),
    FIELD(bauta_generate_options, FLOAT, temperature),
    FIELD(bauta_generate_options, SIZE, top_k),
    FIELD(bauta_generate_options, FLOAT, top_p),
    FIELD(bauta_generate_options, FLOAT, min_p),
    FIELD(bauta_generate_options, UINT64, seed),
    FIELD(bauta_generate_options, SIZE, num_beams),
    FIELD(bauta_generate_options, FLOAT, length_penalty),
    FIELD_CHOICES(bauta_generate_options, early_stopping, early_stoppings),
    FIELD(bauta_generate_options, SIZE, num_return_sequences),
    FIELD(bauta_generate_options, BOOL, renormalize_logits),
    FIELD(bauta_generate_options, TOKEN, decoder_start_token_id),
    FIELD(bauta_generate_options, TOKEN, forced_bos_token_id),
    FIELD(bauta_generate_options, TOKEN, forced_eos_token_id),
    FIELD(bauta_generate_options, SIZE, sliding_window),
    { NULL, FIELD_SIZE, 0, NULL },
};

/* A buffer of ids into an array of a fixed size; None leaves it. */
static int tokens_set(uint32_t *to, size_t *count, size_t max, PyObject *ids,
                      const char *name)
{
    Py_buffer view = { 0 };
    if (ids == Py_None)
        return 0;
    if (buffer_get(&view, ids, sizeof(*to), false))
        return -1;
    size_t given = (size_t)view.len / sizeof(*to);
    if (given > max)
        raise_argument("there are %zu %s, at most %zu are supported", given,
                       name, max);
    else if (given)
        memcpy(to, view.buf, given * sizeof(*to));
    buffer_release(&view);
    *count = given;
    return given > max ? -1 : 0;
}

static int words_set(options_store *store, PyObject *list)
{
    if (list == Py_None)
        return 0;
    Py_ssize_t count = PyList_Size(list);
    if (count < 0)
        return -1;
    store->words = calloc((size_t)count + 1, sizeof(*store->words));
    store->word_views = calloc((size_t)count + 1, sizeof(*store->word_views));
    if (!store->words || !store->word_views) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_buffer *view = &store->word_views[i];
        if (buffer_get(view, PyList_GetItem(list, i), sizeof(uint32_t), false))
            return -1;
        store->word_count++;
        store->words[i] =
            (bauta_token_seq){ (size_t)view->len / sizeof(uint32_t),
                               view->buf };
    }
    store->options.bad_words = store->words;
    store->options.bad_word_count = (size_t)count;
    return 0;
}

static int stops_set(options_store *store, PyObject *list)
{
    size_t count;
    if (list == Py_None)
        return 0;
    if (texts_get(list, &store->strings, &store->lengths, &count))
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (strlen(store->strings[i]) != store->lengths[i]) {
            raise_argument("stop string %zu contains NUL", i);
            return -1;
        }
    }
    store->options.stop_strings = store->strings;
    store->options.stop_string_count = count;
    return 0;
}

/* (model, dict, eos, suppress, stop strings, bad words): the model's options
 * with changes; all but model and dict may be None. */
static PyObject *generate_options(PyObject *self, PyObject *args)
{
    PyObject *capsule, *dict, *eos, *suppress, *stops, *words;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!OOOO", &capsule, &PyDict_Type, &dict, &eos,
                          &suppress, &stops, &words))
        return NULL;
    bauta_model *model = object_of(capsule, MODEL_BOX);
    if (!model)
        return NULL;
    options_store *store = calloc(1, sizeof(*store));
    if (!store)
        return PyErr_NoMemory();
    bauta_generate_options *o = &store->options;
    *o = (bauta_generate_options)BAUTA_GENERATE_OPTIONS_INIT;
    bauta_status status = bauta_generate_options_load(o, model, &err);
    if (status)
        raise_error(status, &err);
    if (status || fields_read(o, generate_fields, dict) ||
        tokens_set(o->eos_token_ids, &o->eos_token_count, BAUTA_EOS_TOKENS_MAX,
                   eos, "end tokens") ||
        tokens_set(o->suppress_tokens, &o->suppress_token_count,
                   BAUTA_SUPPRESS_TOKENS_MAX, suppress, "suppressed tokens") ||
        stops_set(store, stops) || words_set(store, words)) {
        options_release(store);
        return NULL;
    }
    /* Stop strings are read in place, and the model owns those of its file. */
    PyObject *kept[] = { capsule, stops, NULL };
    return box_new(OPTIONS_BOX, store, options_release, (context_lease){ 0 },
                   kept);
}

static PyObject *generate_options_json(PyObject *self, PyObject *capsule)
{
    options_store *store = object_of(capsule, OPTIONS_BOX);
    (void)self;
    if (!store)
        return NULL;
    size_t length = bauta_generate_options_json(&store->options, NULL, 0);
    char *text = malloc(length + 1);
    if (!text)
        return PyErr_NoMemory();
    bauta_generate_options_json(&store->options, text, length + 1);
    PyObject *result = text_new(text, length);
    free(text);
    return result;
}

/* ---- Generators ---------------------------------------------------------- */

/* A token that a step chose, with the text that became final. */
typedef struct event {
    uint64_t tag;
    uint32_t token;
    float logprob;
    char *text; /* for free(); NULL without a tokenizer */
    size_t length;
} event;

typedef struct generator_store generator_store;

/* The `user` of a request that is streamed. */
typedef struct listener {
    generator_store *store;
    uint64_t tag;
    struct listener *next;
} listener;

struct generator_store {
    bauta_generator *generator;
    event *events; /* since the last step */
    size_t count, capacity;
    bool failed; /* memory ran out */
    listener *listeners;
    PyObject *options; /* {tag: options} of unfinished requests */
};

static void events_clear(generator_store *store)
{
    for (size_t i = 0; i < store->count; i++)
        free(store->events[i].text);
    store->count = 0;
}

static void generator_release(void *object)
{
    generator_store *store = object;
    bauta_generator_free(store->generator);
    events_clear(store);
    free(store->events);
    for (listener *l = store->listeners, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    Py_XDECREF(store->options);
    free(store);
}

/* Runs within a step, without the GIL. */
static bool on_token(void *user, uint32_t token, float logprob,
                     const char *text, size_t length)
{
    listener *l = user;
    generator_store *store = l->store;
    char *copy = NULL;
    if (store->count == store->capacity) {
        size_t capacity = store->capacity ? 2 * store->capacity : 16;
        event *events = realloc(store->events, capacity * sizeof(*events));
        if (events) {
            store->events = events;
            store->capacity = capacity;
        }
    }
    if (text)
        copy = malloc(length + 1);
    if (store->count == store->capacity || (text && !copy)) {
        free(copy);
        store->failed = true;
        return false;
    }
    if (text)
        memcpy(copy, text, length);
    store->events[store->count++] =
        (event){ l->tag, token, logprob, copy, length };
    return true;
}

static const field generator_fields[] = {
    FIELD(bauta_generator_options, SIZE, max_sequences),
    FIELD(bauta_generator_options, SIZE, max_batched_tokens),
    FIELD(bauta_generator_options, UINT64, cache_bytes),
    FIELD(bauta_generator_options, SIZE, cached_sequences),
    { NULL, FIELD_SIZE, 0, NULL },
};

static PyObject *generator_create(PyObject *self, PyObject *args)
{
    PyObject *model, *tokenizer, *dict;
    bauta_tokenizer *text = NULL;
    bauta_generator_options options = BAUTA_GENERATOR_OPTIONS_INIT;
    context_lease lease = { 0 };
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO!", &model, &tokenizer, &PyDict_Type,
                          &dict) ||
        fields_read(&options, generator_fields, dict) ||
        object_or_none(tokenizer, TOKENIZER_BOX, &text))
        return NULL;
    bauta_model *weights = object_of(model, MODEL_BOX);
    if (!weights || context_take_for(&lease, model))
        return NULL;
    generator_store *store = calloc(1, sizeof(*store));
    PyObject *requests = PyDict_New();
    bauta_status status = BAUTA_OK;
    if (store && requests) {
        status = bauta_generator_create(&store->generator, lease.context,
                                        weights, text, &options, &err);
        store->options = requests;
    }
    if (!store || !requests || status) {
        context_give(&lease);
        Py_XDECREF(requests);
        free(store);
        return status ? raise_error(status, &err) : PyErr_NoMemory();
    }
    PyObject *kept[] = { model, tokenizer, NULL };
    return box_new(GENERATOR_BOX, store, generator_release, lease, kept);
}

static listener *listener_new(generator_store *store, uint64_t tag)
{
    listener *l = calloc(1, sizeof(*l));
    if (l) {
        *l = (listener){ store, tag, store->listeners };
        store->listeners = l;
    }
    return l;
}

/* (generator, options, tag, tokens, source or None, stream) */
static PyObject *generator_add(PyObject *self, PyObject *args)
{
    PyObject *capsule, *options, *tokens, *source, *result = NULL;
    PyObject *key = NULL;
    unsigned long long tag;
    int stream;
    Py_buffer view = { 0 }, source_view = { 0 };
    bauta_request request = BAUTA_REQUEST_INIT;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOKOOp", &capsule, &options, &tag, &tokens,
                          &source, &stream))
        return NULL;
    generator_store *store = object_of(capsule, GENERATOR_BOX);
    options_store *how = store ? object_of(options, OPTIONS_BOX) : NULL;
    if (!how || buffer_get(&view, tokens, sizeof(uint32_t), false))
        return NULL;
    if (source != Py_None &&
        buffer_get(&source_view, source, sizeof(uint32_t), false))
        goto done;
    request.count = (size_t)view.len / sizeof(uint32_t);
    request.tokens = view.buf;
    request.source_count = (size_t)source_view.len / sizeof(uint32_t);
    request.source = source_view.buf;
    request.options = &how->options;
    request.tag = tag;
    if (stream) {
        request.user = listener_new(store, tag);
        request.on_token = on_token;
    }
    key = PyLong_FromUnsignedLongLong(tag);
    if (!key || (stream && !request.user) ||
        PyDict_SetItem(store->options, key, options)) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        goto done;
    }
    bauta_status status = bauta_generator_add(store->generator, &request, &err);
    result = none_or_error(status, &err);
done:
    Py_XDECREF(key);
    buffer_release(&view);
    buffer_release(&source_view);
    return result;
}

static PyObject *event_new(const event *e)
{
    PyObject *token = e->token == BAUTA_NO_TOKEN
                          ? none_new()
                          : PyLong_FromUnsignedLong(e->token);
    PyObject *text = e->text ? text_new(e->text, e->length) : none_new();
    return Py_BuildValue("KNdN", (unsigned long long)e->tag, token,
                         (double)e->logprob, text);
}

/* One step: (unfinished requests, [(tag, token or None, logprob, text)]). */
static PyObject *generator_step(PyObject *self, PyObject *capsule)
{
    generator_store *store = object_of(capsule, GENERATOR_BOX);
    size_t left = 0;
    bauta_error err;
    (void)self;
    if (!store)
        return NULL;
    events_clear(store);
    PyThreadState *thread = PyEval_SaveThread();
    bauta_status status = bauta_generator_step(store->generator, &left, &err);
    PyEval_RestoreThread(thread);
    if (status)
        return raise_error(status, &err);
    if (store->failed)
        return PyErr_NoMemory();
    PyObject *list = PyList_New((Py_ssize_t)store->count);
    for (size_t i = 0; list && i < store->count; i++)
        list = list_steal(list, (Py_ssize_t)i, event_new(&store->events[i]));
    return list ? Py_BuildValue("nN", (Py_ssize_t)left, list) : NULL;
}

/* (tokens, logprobs, score, finish, text or None), the first two as bytes. */
static PyObject *hypothesis_new(const bauta_hypothesis *h)
{
    Py_ssize_t bytes = (Py_ssize_t)(h->count * 4);
    PyObject *text = h->text ? text_new(h->text, h->text_length) : none_new();
    return Py_BuildValue("y#y#dsN", h->count ? (const char *)h->tokens : "",
                         bytes, h->count ? (const char *)h->logprobs : "",
                         bytes, h->score, bauta_finish_text(h->finish), text);
}

static PyObject *result_new(const bauta_result *r)
{
    PyObject *list = PyList_New((Py_ssize_t)r->count);
    for (size_t i = 0; list && i < r->count; i++)
        list =
            list_steal(list, (Py_ssize_t)i, hypothesis_new(r->hypotheses[i]));
    if (!list)
        return NULL;
    return Py_BuildValue(
        "KnnisN", (unsigned long long)r->tag, (Py_ssize_t)r->prompt_tokens,
        (Py_ssize_t)r->cached_tokens, (int)r->status, r->message, list);
}

/* The next result (tag, prompt tokens, cached tokens, status, message,
 * hypotheses), or None. */
static PyObject *generator_take(PyObject *self, PyObject *capsule)
{
    generator_store *store = object_of(capsule, GENERATOR_BOX);
    (void)self;
    if (!store)
        return NULL;
    bauta_result *result = bauta_generator_take(store->generator);
    if (!result)
        return none_new();
    PyObject *tuple = result_new(result);
    PyObject *key = PyLong_FromUnsignedLongLong(result->tag);
    if (tuple && (!key || PyDict_DelItem(store->options, key))) {
        Py_DECREF(tuple);
        tuple = NULL;
    }
    Py_XDECREF(key);
    bauta_result_free(result);
    return tuple;
}

PyMethodDef generate_methods[] = {
    { "generate_options", generate_options, METH_VARARGS, NULL },
    { "generate_options_json", generate_options_json, METH_O, NULL },
    { "generator_create", generator_create, METH_VARARGS, NULL },
    { "generator_add", generator_add, METH_VARARGS, NULL },
    { "generator_step", generator_step, METH_O, NULL },
    { "generator_take", generator_take, METH_O, NULL },
    { NULL, NULL, 0, NULL },
};
