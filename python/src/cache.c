/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - KV caches, and attention over them. */
#include "module.h"

#define CACHE_BOX "bauta.kv_cache"

static void cache_release(void *cache)
{
    bauta_kv_cache_free(cache);
}

static PyObject *cache_wrap(bauta_kv_cache *cache, bauta_status status,
                            const bauta_error *err)
{
    if (status)
        return raise_error(status, err);
    return box_new(CACHE_BOX, cache, cache_release, (context_lease){ 0 }, NULL);
}

/* (heads, head dim, value dim, capacity) */
static PyObject *cache_create(PyObject *self, PyObject *args)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    size_t capacity;
    bauta_kv_cache *cache = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&O&", size_convert, &shape.heads,
                          size_convert, &shape.head_dim, size_convert,
                          &shape.value_dim, size_convert, &capacity))
        return NULL;
    bauta_status status = bauta_kv_cache_create(&cache, &shape, capacity, &err);
    return cache_wrap(cache, status, &err);
}

static PyObject *cache_fork(PyObject *self, PyObject *capsule)
{
    bauta_kv_cache *cache = object_of(capsule, CACHE_BOX), *fork = NULL;
    bauta_error err;
    (void)self;
    if (!cache)
        return NULL;
    bauta_status status = bauta_kv_cache_fork(&fork, cache, &err);
    return cache_wrap(fork, status, &err);
}

static PyObject *cache_tokens(PyObject *self, PyObject *capsule)
{
    bauta_kv_cache *cache = object_of(capsule, CACHE_BOX);
    (void)self;
    return cache ? PyLong_FromSize_t(bauta_kv_cache_tokens(cache)) : NULL;
}

/* (cache, tokens, evict): keep the first tokens, or evict them. */
static PyObject *cache_cut(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    size_t tokens;
    int evict;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO&p", &capsule, size_convert, &tokens,
                          &evict))
        return NULL;
    bauta_kv_cache *cache = object_of(capsule, CACHE_BOX);
    if (!cache)
        return NULL;
    bauta_status status = evict ? bauta_kv_cache_evict(cache, tokens, &err)
                                : bauta_kv_cache_truncate(cache, tokens, &err);
    return none_or_error(status, &err);
}

/* (cache, k, v) of one sequence, (1, heads, tokens, dim) */
static PyObject *cache_append(PyObject *self, PyObject *args)
{
    PyObject *capsule, *keys, *values, *result = NULL;
    array k = { 0 }, v = { 0 };
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &keys, &values))
        return NULL;
    bauta_kv_cache *cache = object_of(capsule, CACHE_BOX);
    if (!cache)
        return NULL;
    if (!array_get(&k, keys, "k", 4, false) &&
        !array_get(&v, values, "v", 4, false) &&
        !array_check(&k, "k", 1, k.heads, k.tokens, k.dim) &&
        !array_check(&v, "v", 1, k.heads, k.tokens, v.dim)) {
        shape.heads = k.heads;
        shape.head_dim = k.dim;
        shape.value_dim = v.dim;
        shape.k_token = k.token_stride;
        shape.k_head = k.head_stride;
        shape.v_token = v.token_stride;
        shape.v_head = v.head_stride;
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_kv_cache_append(cache, &shape, k.tokens,
                                                    k.data, v.data, &err);
        PyEval_RestoreThread(thread);
        result = none_or_error(status, &err);
    }
    array_release(&k);
    array_release(&v);
    return result;
}

/* (cache, mask, scale, kv heads, q, out), arrays (1, heads, tokens, dim) */
static PyObject *attention_cached(PyObject *self, PyObject *args)
{
    PyObject *capsule, *mask, *queries, *to, *result = NULL;
    array q = { 0 }, out = { 0 };
    double scale;
    context_lease lease = { 0 };
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOdO&OO", &capsule, &mask, &scale,
                          size_convert, &shape.kv_heads, &queries, &to))
        return NULL;
    bauta_kv_cache *cache = object_of(capsule, CACHE_BOX);
    mask_box *box = cache ? mask_of(mask) : NULL;
    const bauta_plan *plan = box ? mask_plan(box) : NULL;
    if (!plan)
        return NULL;
    if (!array_get(&q, queries, "q", 4, false) &&
        !array_get(&out, to, "out", 4, true) &&
        !array_check(&q, "q", 1, q.heads, bauta_mask_queries(box->mask),
                     q.dim) &&
        !array_check(&out, "out", 1, q.heads, q.tokens, out.dim) &&
        !context_take(&lease)) {
        shape.heads = q.heads;
        shape.head_dim = q.dim;
        shape.value_dim = out.dim;
        shape.scale = (float)scale;
        shape.q_token = q.token_stride;
        shape.q_head = q.head_stride;
        shape.out_token = out.token_stride;
        shape.out_head = out.head_stride;
        PyThreadState *thread = PyEval_SaveThread();
        bauta_status status = bauta_attention_cached(
            lease.context, plan, &shape, q.data, cache, out.data, NULL, &err);
        PyEval_RestoreThread(thread);
        context_give(&lease);
        result = none_or_error(status, &err);
    }
    array_release(&q);
    array_release(&out);
    return result;
}

PyMethodDef cache_methods[] = {
    { "cache_create", cache_create, METH_VARARGS, NULL },
    { "cache_fork", cache_fork, METH_O, NULL },
    { "cache_tokens", cache_tokens, METH_O, NULL },
    { "cache_cut", cache_cut, METH_VARARGS, NULL },
    { "cache_append", cache_append, METH_VARARGS, NULL },
    { "attention_cached", attention_cached, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
