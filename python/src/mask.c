/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c - masks as capsules: constructors, algebra and questions. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

static const char mask_name[] = "bauta.mask";

void mask_gpu_plan_release(mask_gpu_plan *plan)
{
    Py_XDECREF(plan->plan);
    Py_XDECREF(plan->context);
    Py_XDECREF(plan->owner);
}

static void mask_capsule_free(PyObject *capsule)
{
    mask_box *box = PyCapsule_GetPointer(capsule, mask_name);
    if (box) {
        for (size_t i = 0; i < box->gpu_plan_count; i++)
            mask_gpu_plan_release(&box->gpu_plans[i]);
        bauta_plan_free(box->plan);
        bauta_mask_free(box->mask);
        free(box);
    }
}

mask_box *mask_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, mask_name);
}

/* A converter for PyArg_ParseTuple(): O& with a const bauta_mask **. */
static int mask_convert(PyObject *object, void *to)
{
    mask_box *box = mask_of(object);
    if (box)
        *(const bauta_mask **)to = box->mask;
    return box != NULL;
}

/* Owns the mask, or raises the error of the call that made none. */
static PyObject *mask_wrap(bauta_mask *mask, bauta_status status,
                           const bauta_error *err)
{
    if (status)
        return raise_error(status, err);
    mask_box *box = calloc(1, sizeof(*box));
    PyObject *capsule = NULL;
    if (box) {
        box->mask = mask;
        capsule = PyCapsule_New(box, mask_name, mask_capsule_free);
    } else {
        PyErr_NoMemory();
    }
    if (!capsule) {
        bauta_mask_free(mask);
        free(box);
    }
    return capsule;
}

const bauta_plan *mask_plan(mask_box *box)
{
    bauta_plan *plan = NULL;
    bauta_status status;
    bauta_error err;
    if (box->plan)
        return box->plan;
    Py_BEGIN_ALLOW_THREADS status = bauta_plan_create(
        &plan, box->mask, 0, bauta_mask_queries(box->mask), &err);
    Py_END_ALLOW_THREADS if (status)
    {
        raise_error(status, &err);
        return NULL;
    }
    /* Another thread may have been faster. */
    if (box->plan)
        bauta_plan_free(plan);
    else
        box->plan = plan;
    return box->plan;
}

/* ---- Constructors -------------------------------------------------------- */

static bauta_status mask_all(bauta_mask **out, size_t queries, size_t keys,
                             size_t unused, bauta_error *err)
{
    (void)unused;
    return bauta_mask_all(out, queries, keys, err);
}

static bauta_status mask_causal(bauta_mask **out, size_t queries, size_t keys,
                                size_t unused, bauta_error *err)
{
    (void)unused;
    return bauta_mask_causal(out, queries, keys, err);
}

static const struct {
    const char *name;
    bauta_status (*create)(bauta_mask **out, size_t queries, size_t keys,
                           size_t number, bauta_error *err);
} positional[] = {
    { "all", mask_all },
    { "causal", mask_causal },
    { "window", bauta_mask_window },
    { "prefix", bauta_mask_prefix },
    { "sinks", bauta_mask_sinks },
};

static PyObject *mask_positional(PyObject *self, PyObject *args)
{
    const char *name;
    size_t queries, keys, number;
    (void)self;
    if (!PyArg_ParseTuple(args, "sO&O&O&", &name, size_convert, &queries,
                          size_convert, &keys, size_convert, &number))
        return NULL;
    for (size_t i = 0; i < sizeof(positional) / sizeof(positional[0]); i++) {
        if (strcmp(name, positional[i].name) == 0) {
            bauta_mask *mask = NULL;
            bauta_error err;
            bauta_status status;
            Py_BEGIN_ALLOW_THREADS status =
                positional[i].create(&mask, queries, keys, number, &err);
            Py_END_ALLOW_THREADS return mask_wrap(mask, status, &err);
        }
    }
    return raise_argument("there is no mask '%s'", name);
}

/* Lengths of queries, which may be None, and of keys, of the same number. */
static int length_lists_get(PyObject *query_list, PyObject *key_list,
                            size_t **queries, size_t **keys, size_t *count)
{
    size_t query_count;
    *keys = NULL;
    if (sizes_get(query_list, queries, &query_count) ||
        sizes_get(key_list, keys, count))
        return -1;
    if (!*queries || query_count == *count)
        return 0;
    raise_argument("there are %zu query lengths and %zu key lengths",
                   query_count, *count);
    return -1;
}

static PyObject *mask_lengths(PyObject *self, PyObject *args)
{
    PyObject *query_list, *key_list, *result = NULL;
    size_t query_time, key_time, *queries = NULL, *keys = NULL, count;
    bauta_mask *mask = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&OO", size_convert, &query_time,
                          size_convert, &key_time, &query_list, &key_list))
        return NULL;
    if (!length_lists_get(query_list, key_list, &queries, &keys, &count)) {
        bauta_status status = bauta_mask_lengths(&mask, count, query_time,
                                                 key_time, queries, keys, &err);
        result = mask_wrap(mask, status, &err);
    }
    free(queries);
    free(keys);
    return result;
}

static PyObject *mask_documents(PyObject *self, PyObject *args)
{
    PyObject *query_list, *key_list, *result = NULL;
    size_t *queries = NULL, *keys = NULL, count;
    bauta_mask *mask = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &query_list, &key_list))
        return NULL;
    /* Here the keys are the ones that may be missing. */
    if (!length_lists_get(key_list, query_list, &keys, &queries, &count)) {
        bauta_status status =
            bauta_mask_documents(&mask, count, queries, keys, &err);
        result = mask_wrap(mask, status, &err);
    }
    free(queries);
    free(keys);
    return result;
}

static PyObject *mask_causal_documents(PyObject *self, PyObject *list)
{
    size_t *lengths = NULL, count;
    bauta_mask *mask = NULL;
    bauta_error err;
    (void)self;
    if (sizes_get(list, &lengths, &count))
        return NULL;
    bauta_status status =
        bauta_mask_causal_documents(&mask, count, lengths, &err);
    PyObject *result = mask_wrap(mask, status, &err);
    free(lengths);
    return result;
}

static PyObject *mask_pack(PyObject *self, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    bauta_mask *mask = NULL;
    bauta_error err;
    (void)self;
    if (count < 0)
        return NULL;
    const bauta_mask **parts = calloc((size_t)count + 1, sizeof(*parts));
    if (!parts)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!mask_convert(PyList_GetItem(list, i), &parts[i])) {
            free(parts);
            return NULL;
        }
    }
    bauta_status status = bauta_mask_pack(&mask, (size_t)count, parts, &err);
    free(parts);
    return mask_wrap(mask, status, &err);
}

/* A contiguous buffer of `bytes` bytes. Returns 0, or -1 and sets an
 * exception. */
static int bytes_get(Py_buffer *view, PyObject *object, size_t bytes,
                     int writable)
{
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : 0))
        return -1;
    if ((size_t)view->len == bytes)
        return 0;
    raise_argument("a buffer has %zd bytes, not %zu", view->len, bytes);
    PyBuffer_Release(view);
    return -1;
}

static PyObject *mask_dense(PyObject *self, PyObject *args)
{
    PyObject *object;
    size_t queries, keys;
    Py_buffer view;
    bauta_mask *mask = NULL;
    bauta_error err;
    bauta_status status;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO&O&", &object, size_convert, &queries,
                          size_convert, &keys))
        return NULL;
    if (keys && queries > SIZE_MAX / keys)
        return raise_argument("%zu queries of %zu keys exceed memory", queries,
                              keys);
    if (bytes_get(&view, object, queries * keys, 0))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status =
        bauta_mask_dense(&mask, queries, keys, view.buf, &err);
    Py_END_ALLOW_THREADS PyBuffer_Release(&view);
    return mask_wrap(mask, status, &err);
}

static PyObject *mask_parse(PyObject *self, PyObject *args)
{
    const char *text;
    size_t queries, keys;
    bauta_mask *mask = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "sO&O&", &text, size_convert, &queries,
                          size_convert, &keys))
        return NULL;
    bauta_status status = bauta_mask_parse(&mask, text, queries, keys, &err);
    return mask_wrap(mask, status, &err);
}

/* ---- Masks from spans ---------------------------------------------------- */

/* The rows of a mask as arrays, for pickling and slicing: row i has the spans
 * start[i] to start[i + 1] - 1, each two numbers, and an origin. */
typedef struct span_rows {
    size_t queries, keys;
    const uint64_t *start;       /* (queries + 1) */
    const uint32_t *spans;       /* (start[queries], 2) */
    const uint32_t *origins;     /* (queries); NULL: 0 */
    size_t first_row, first_key; /* of the part that row_read() reads */
} span_rows;

static size_t row_read(void *user, size_t query, bauta_span *spans,
                       size_t capacity)
{
    const span_rows *rows = user;
    uint64_t start = rows->start[rows->first_row + query];
    uint64_t end = rows->start[rows->first_row + query + 1];
    size_t count = (size_t)(end - start);
    for (size_t i = 0; i < count && i < capacity; i++) {
        const uint32_t *span = rows->spans + 2 * (start + i);
        spans[i].lo = span[0] - rows->first_key;
        spans[i].hi = span[1] - rows->first_key;
    }
    return count;
}

/* The first row after `row` that has another origin. */
static size_t group_end(const span_rows *rows, size_t row)
{
    size_t end = row + 1;
    while (end < rows->queries && rows->origins[end] == rows->origins[row])
        end++;
    return end;
}

static size_t group_keys_end(const span_rows *rows, size_t group_end)
{
    return group_end < rows->queries ? rows->origins[group_end] : rows->keys;
}

/* Whether the rows of each origin see only keys from there to the next origin.
 * Then they are documents. */
static bool are_documents(const span_rows *rows)
{
    size_t at = 0;
    for (size_t row = 0; row < rows->queries;) {
        size_t end = group_end(rows, row);
        size_t lo = rows->origins[row], hi = group_keys_end(rows, end);
        if (lo < at || hi < lo || hi > rows->keys)
            return false;
        for (uint64_t s = rows->start[row]; s < rows->start[end]; s++)
            if (rows->spans[2 * s] < lo || rows->spans[2 * s + 1] > hi)
                return false;
        at = lo;
        row = end;
    }
    return true;
}

/* A document for each origin, and a first one without rows for the keys before
 * all of them. */
static bauta_status pack_documents(bauta_mask **out, span_rows *rows,
                                   bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t count = 0, capacity = 1;
    bauta_mask **parts = NULL;

    for (size_t row = 0; row < rows->queries; row = group_end(rows, row))
        capacity++;
    parts = calloc(capacity, sizeof(*parts));
    if (!parts) {
        *err = (bauta_error){ BAUTA_ERR_NOMEM, "out of memory" };
        return BAUTA_ERR_NOMEM;
    }
    status = bauta_mask_all(&parts[count++], 0, rows->origins[0], err);
    for (size_t row = 0; row < rows->queries && !status;) {
        size_t end = group_end(rows, row);
        rows->first_row = row;
        rows->first_key = rows->origins[row];
        status = bauta_mask_rows(&parts[count++], end - row,
                                 group_keys_end(rows, end) - rows->first_key,
                                 row_read, rows, err);
        row = end;
    }
    if (!status)
        status =
            bauta_mask_pack(out, count, (const bauta_mask *const *)parts, err);
    for (size_t i = 0; i < count; i++)
        bauta_mask_free(parts[i]);
    free(parts);
    return status;
}

/* The public calls give origins to documents only. Other masks with origins
 * keep their pairs and get the origin 0. */
static bauta_status mask_from_rows(bauta_mask **out, span_rows *rows,
                                   bauta_error *err)
{
    bool origins = false;
    for (size_t i = 0; rows->origins && i < rows->queries; i++)
        origins = origins || rows->origins[i];
    if (origins && are_documents(rows))
        return pack_documents(out, rows, err);
    rows->first_row = rows->first_key = 0;
    return bauta_mask_rows(out, rows->queries, rows->keys, row_read, rows, err);
}

/* start must increase to the number of spans; the library checks the spans. */
static bool starts_valid(const span_rows *rows, size_t spans)
{
    if (rows->start[0] != 0 || rows->start[rows->queries] != spans)
        return false;
    for (size_t i = 0; i < rows->queries; i++)
        if (rows->start[i] > rows->start[i + 1])
            return false;
    return true;
}

static PyObject *mask_from_spans(PyObject *self, PyObject *args)
{
    span_rows rows = { 0 };
    PyObject *origins;
    const char *start, *spans;
    char *origin_bytes = NULL;
    Py_ssize_t start_size, spans_size, origin_size = 0;
    bauta_mask *mask = NULL;
    bauta_error err;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&y#y#O", size_convert, &rows.queries,
                          size_convert, &rows.keys, &start, &start_size, &spans,
                          &spans_size, &origins))
        return NULL;
    if (origins != Py_None &&
        PyBytes_AsStringAndSize(origins, &origin_bytes, &origin_size))
        return NULL;
    /* A bytes object holds its data at a multiple of 8 bytes. */
    rows.start = (const uint64_t *)(const void *)start;
    rows.spans = (const uint32_t *)(const void *)spans;
    rows.origins = (const uint32_t *)(void *)origin_bytes;
    if (rows.queries >= INT32_MAX ||
        (size_t)start_size != (rows.queries + 1) * sizeof(uint64_t) ||
        !starts_valid(&rows, (size_t)spans_size / 8) ||
        (origin_bytes &&
         (size_t)origin_size != rows.queries * sizeof(uint32_t)))
        return raise_argument("the spans of %zu rows are malformed",
                              rows.queries);
    bauta_status status = mask_from_rows(&mask, &rows, &err);
    return mask_wrap(mask, status, &err);
}

/* Rows as arrays. Owned, for span_arrays_free(). */
typedef struct span_arrays {
    uint64_t *start;
    uint32_t *spans, *origins;
} span_arrays;

static void span_arrays_free(span_arrays *arrays)
{
    free(arrays->start);
    free(arrays->spans);
    free(arrays->origins);
}

/* The rows [row, row + rows.queries) and keys [key, key + rows.keys) of a mask.
 * Returns 0, or -1 if memory runs out. */
static int rows_cut(span_rows *rows, span_arrays *arrays,
                    const bauta_mask *mask, size_t row, size_t key)
{
    size_t total = 0, used = 0, count;
    for (size_t i = 0; i < rows->queries; i++) {
        bauta_mask_row(mask, row + i, &count);
        total += count;
    }
    arrays->start = calloc(rows->queries + 1, sizeof(uint64_t));
    arrays->spans = calloc(total + 1, 2 * sizeof(uint32_t));
    arrays->origins = calloc(rows->queries + 1, sizeof(uint32_t));
    if (!arrays->start || !arrays->spans || !arrays->origins)
        return -1;
    for (size_t i = 0; i < rows->queries; i++) {
        const bauta_span *spans = bauta_mask_row(mask, row + i, &count);
        size_t origin = bauta_mask_origin(mask, row + i);
        origin = origin < key ? 0 : origin - key;
        arrays->origins[i] =
            (uint32_t)(origin < rows->keys ? origin : rows->keys);
        for (size_t s = 0; s < count; s++) {
            size_t lo = spans[s].lo < key ? 0 : spans[s].lo - key;
            size_t hi = spans[s].hi < key ? 0 : spans[s].hi - key;
            hi = hi < rows->keys ? hi : rows->keys;
            if (lo >= hi)
                continue;
            arrays->spans[2 * used] = (uint32_t)lo;
            arrays->spans[2 * used + 1] = (uint32_t)hi;
            used++;
        }
        arrays->start[i + 1] = used;
    }
    rows->start = arrays->start;
    rows->spans = arrays->spans;
    rows->origins = arrays->origins;
    return 0;
}

static PyObject *mask_slice(PyObject *self, PyObject *args)
{
    const bauta_mask *whole;
    size_t row, row_end, key, key_end;
    span_arrays arrays = { 0 };
    bauta_mask *mask = NULL;
    bauta_error err = { BAUTA_ERR_NOMEM, "out of memory" };
    bauta_status status = BAUTA_ERR_NOMEM;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&", mask_convert, &whole,
                          size_convert, &row, size_convert, &row_end,
                          size_convert, &key, size_convert, &key_end))
        return NULL;
    if (row > row_end || row_end > bauta_mask_queries(whole) || key > key_end ||
        key_end > bauta_mask_keys(whole))
        return raise_argument("a slice exceeds the mask");
    Py_BEGIN_ALLOW_THREADS span_rows rows = { .queries = row_end - row,
                                              .keys = key_end - key };
    if (!rows_cut(&rows, &arrays, whole, row, key))
        status = mask_from_rows(&mask, &rows, &err);
    span_arrays_free(&arrays);
    Py_END_ALLOW_THREADS return mask_wrap(mask, status, &err);
}

static PyObject *mask_spans(PyObject *self, PyObject *capsule)
{
    const bauta_mask *mask;
    span_arrays arrays = { 0 };
    PyObject *result = NULL;
    (void)self;
    if (!mask_convert(capsule, &mask))
        return NULL;
    span_rows rows = { .queries = bauta_mask_queries(mask),
                       .keys = bauta_mask_keys(mask) };
    if (rows_cut(&rows, &arrays, mask, 0, 0))
        PyErr_NoMemory();
    else
        result = Py_BuildValue(
            "y#y#y#", (const char *)arrays.start,
            (Py_ssize_t)((rows.queries + 1) * sizeof(uint64_t)),
            (const char *)arrays.spans,
            (Py_ssize_t)(rows.start[rows.queries] * 2 * sizeof(uint32_t)),
            (const char *)arrays.origins,
            (Py_ssize_t)(rows.queries * sizeof(uint32_t)));
    span_arrays_free(&arrays);
    return result;
}

/* ---- Algebra ------------------------------------------------------------- */

typedef bauta_status combine_fn(bauta_mask **out, const bauta_mask *a,
                                const bauta_mask *b, bauta_error *err);

static PyObject *combine(PyObject *args, combine_fn *function)
{
    const bauta_mask *a, *b;
    bauta_mask *mask = NULL;
    bauta_error err;
    bauta_status status;
    if (!PyArg_ParseTuple(args, "O&O&", mask_convert, &a, mask_convert, &b))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = function(&mask, a, b, &err);
    Py_END_ALLOW_THREADS return mask_wrap(mask, status, &err);
}

static PyObject *mask_and(PyObject *self, PyObject *args)
{
    (void)self;
    return combine(args, bauta_mask_and);
}

static PyObject *mask_or(PyObject *self, PyObject *args)
{
    (void)self;
    return combine(args, bauta_mask_or);
}

static PyObject *mask_compose(PyObject *self, PyObject *args)
{
    (void)self;
    return combine(args, bauta_mask_compose);
}

static PyObject *mask_not(PyObject *self, PyObject *capsule)
{
    const bauta_mask *a;
    bauta_mask *mask = NULL;
    bauta_error err;
    bauta_status status;
    (void)self;
    if (!mask_convert(capsule, &a))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = bauta_mask_not(&mask, a, &err);
    Py_END_ALLOW_THREADS return mask_wrap(mask, status, &err);
}

static PyObject *mask_reach(PyObject *self, PyObject *args)
{
    const bauta_mask *a;
    size_t layers;
    bauta_mask *mask = NULL;
    bauta_error err;
    bauta_status status;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", mask_convert, &a, size_convert,
                          &layers))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = bauta_mask_reach(&mask, a, layers, &err);
    Py_END_ALLOW_THREADS return mask_wrap(mask, status, &err);
}

/* ---- Questions ----------------------------------------------------------- */

static PyObject *mask_shape(PyObject *self, PyObject *capsule)
{
    const bauta_mask *mask;
    (void)self;
    if (!mask_convert(capsule, &mask))
        return NULL;
    return Py_BuildValue("nn", (Py_ssize_t)bauta_mask_queries(mask),
                         (Py_ssize_t)bauta_mask_keys(mask));
}

static PyObject *mask_pairs(PyObject *self, PyObject *capsule)
{
    const bauta_mask *mask;
    (void)self;
    if (!mask_convert(capsule, &mask))
        return NULL;
    return PyLong_FromUnsignedLongLong(bauta_mask_pairs(mask));
}

static int query_check(const bauta_mask *mask, size_t query)
{
    if (query < bauta_mask_queries(mask))
        return 0;
    PyErr_Format(PyExc_IndexError, "query %zu of a mask with %zu queries",
                 query, bauta_mask_queries(mask));
    return -1;
}

static PyObject *mask_visible(PyObject *self, PyObject *args)
{
    const bauta_mask *mask;
    size_t query, key;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&", mask_convert, &mask, size_convert,
                          &query, size_convert, &key) ||
        query_check(mask, query))
        return NULL;
    if (key >= bauta_mask_keys(mask))
        return PyErr_Format(PyExc_IndexError, "key %zu of a mask with %zu keys",
                            key, bauta_mask_keys(mask));
    return PyBool_FromLong(bauta_mask_visible(mask, query, key));
}

static PyObject *mask_row(PyObject *self, PyObject *args)
{
    const bauta_mask *mask;
    size_t query, count;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", mask_convert, &mask, size_convert,
                          &query) ||
        query_check(mask, query))
        return NULL;
    const bauta_span *spans = bauta_mask_row(mask, query, &count);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *span = Py_BuildValue("nn", (Py_ssize_t)spans[i].lo,
                                       (Py_ssize_t)spans[i].hi);
        if (!span || PyList_SetItem(list, (Py_ssize_t)i, span)) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *mask_origin(PyObject *self, PyObject *args)
{
    const bauta_mask *mask;
    size_t query;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", mask_convert, &mask, size_convert,
                          &query) ||
        query_check(mask, query))
        return NULL;
    return PyLong_FromSize_t(bauta_mask_origin(mask, query));
}

/* The first pair of a query and a later key, or None. */
static PyObject *mask_future(PyObject *self, PyObject *capsule)
{
    const bauta_mask *mask;
    size_t query, key;
    (void)self;
    if (!mask_convert(capsule, &mask))
        return NULL;
    if (!bauta_mask_is_causal(mask, &query, &key))
        return Py_BuildValue("nn", (Py_ssize_t)query, (Py_ssize_t)key);
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *written_text(PyObject *capsule,
                              size_t (*write)(const bauta_mask *, char *,
                                              size_t))
{
    const bauta_mask *mask;
    if (!mask_convert(capsule, &mask))
        return NULL;
    size_t length = write(mask, NULL, 0);
    char *text = malloc(length + 1);
    if (!text)
        return PyErr_NoMemory();
    write(mask, text, length + 1);
    PyObject *result = PyUnicode_FromStringAndSize(text, (Py_ssize_t)length);
    free(text);
    return result;
}

static PyObject *mask_text(PyObject *self, PyObject *capsule)
{
    (void)self;
    return written_text(capsule, bauta_mask_text);
}

static PyObject *mask_json(PyObject *self, PyObject *capsule)
{
    (void)self;
    return written_text(capsule, bauta_mask_json);
}

static PyObject *mask_fill(PyObject *self, PyObject *args)
{
    const bauta_mask *mask;
    PyObject *object;
    Py_buffer view;
    size_t count;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O", mask_convert, &mask, &object))
        return NULL;
    size_t queries = bauta_mask_queries(mask), keys = bauta_mask_keys(mask);
    if (bytes_get(&view, object, queries * keys, 1))
        return NULL;
    Py_BEGIN_ALLOW_THREADS memset(view.buf, 0, queries * keys);
    for (size_t i = 0; i < queries; i++) {
        const bauta_span *spans = bauta_mask_row(mask, i, &count);
        for (size_t s = 0; s < count; s++)
            memset((char *)view.buf + i * keys + spans[s].lo, 1,
                   spans[s].hi - spans[s].lo);
    }
    Py_END_ALLOW_THREADS PyBuffer_Release(&view);
    Py_INCREF(Py_None);
    return Py_None;
}

/* Add the keys of a span to the cells of a row of `columns` cells. */
static void density_add(double *cells, size_t columns, size_t keys,
                        bauta_span span)
{
    for (size_t c = span.lo * columns / keys; c < columns; c++) {
        /* Cell c holds the keys from c * keys / columns, rounded up. */
        size_t lo = (c * keys + columns - 1) / columns;
        size_t hi = ((c + 1) * keys + columns - 1) / columns;
        lo = lo > span.lo ? lo : span.lo;
        hi = hi < span.hi ? hi : span.hi;
        if (lo < hi)
            cells[c] += (double)(hi - lo);
        if (hi >= span.hi)
            break;
    }
}

/* The share of visible pairs in each cell of a grid over the mask, for
 * pictures: a list of rows * columns numbers. The grid has no more rows and
 * columns than the mask. */
static PyObject *mask_density(PyObject *self, PyObject *args)
{
    const bauta_mask *mask;
    size_t rows, columns, count;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&O&", mask_convert, &mask, size_convert,
                          &rows, size_convert, &columns))
        return NULL;
    size_t queries = bauta_mask_queries(mask), keys = bauta_mask_keys(mask);
    if (rows < 1 || rows > queries || columns < 1 || columns > keys)
        return raise_argument("a grid of %zu x %zu cells over %zu queries and "
                              "%zu keys",
                              rows, columns, queries, keys);
    double *cells = calloc(rows * columns, sizeof(*cells));
    if (!cells)
        return PyErr_NoMemory();
    for (size_t i = 0; i < queries; i++) {
        const bauta_span *spans = bauta_mask_row(mask, i, &count);
        for (size_t s = 0; s < count; s++)
            density_add(cells + i * rows / queries * columns, columns, keys,
                        spans[s]);
    }
    PyObject *list = PyList_New((Py_ssize_t)(rows * columns));
    for (size_t i = 0; list && i < rows * columns; i++) {
        size_t r = i / columns, c = i % columns;
        size_t high = ((r + 1) * queries + rows - 1) / rows -
                      (r * queries + rows - 1) / rows;
        size_t wide = ((c + 1) * keys + columns - 1) / columns -
                      (c * keys + columns - 1) / columns;
        PyObject *share =
            PyFloat_FromDouble(cells[i] / ((double)high * (double)wide));
        if (!share || PyList_SetItem(list, (Py_ssize_t)i, share)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    free(cells);
    return list;
}

static bool masks_equal(const bauta_mask *a, const bauta_mask *b)
{
    if (bauta_mask_queries(a) != bauta_mask_queries(b) ||
        bauta_mask_keys(a) != bauta_mask_keys(b) ||
        bauta_mask_pairs(a) != bauta_mask_pairs(b))
        return false;
    for (size_t i = 0; i < bauta_mask_queries(a); i++) {
        size_t count, other_count;
        const bauta_span *spans = bauta_mask_row(a, i, &count);
        const bauta_span *others = bauta_mask_row(b, i, &other_count);
        /* Spans are merged where they touch, so a row has one list. */
        if (count != other_count)
            return false;
        for (size_t s = 0; s < count; s++)
            if (spans[s].lo != others[s].lo || spans[s].hi != others[s].hi)
                return false;
    }
    return true;
}

static PyObject *mask_equal(PyObject *self, PyObject *args)
{
    const bauta_mask *a, *b;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", mask_convert, &a, mask_convert, &b))
        return NULL;
    return PyBool_FromLong(masks_equal(a, b));
}

/* FNV-1a over the numbers of the mask. */
static uint64_t hash_add(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * UINT64_C(0x100000001b3);
}

static PyObject *mask_hash(PyObject *self, PyObject *capsule)
{
    const bauta_mask *mask;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    size_t count;
    (void)self;
    if (!mask_convert(capsule, &mask))
        return NULL;
    hash = hash_add(hash, bauta_mask_queries(mask));
    hash = hash_add(hash, bauta_mask_keys(mask));
    for (size_t i = 0; i < bauta_mask_queries(mask); i++) {
        const bauta_span *spans = bauta_mask_row(mask, i, &count);
        hash = hash_add(hash, count);
        for (size_t s = 0; s < count; s++)
            hash = hash_add(hash_add(hash, spans[s].lo), spans[s].hi);
    }
    return PyLong_FromUnsignedLongLong(hash >> 3);
}

PyMethodDef mask_methods[] = {
    { "mask_positional", mask_positional, METH_VARARGS, NULL },
    { "mask_lengths", mask_lengths, METH_VARARGS, NULL },
    { "mask_documents", mask_documents, METH_VARARGS, NULL },
    { "mask_causal_documents", mask_causal_documents, METH_O, NULL },
    { "mask_pack", mask_pack, METH_O, NULL },
    { "mask_dense", mask_dense, METH_VARARGS, NULL },
    { "mask_parse", mask_parse, METH_VARARGS, NULL },
    { "mask_from_spans", mask_from_spans, METH_VARARGS, NULL },
    { "mask_slice", mask_slice, METH_VARARGS, NULL },
    { "mask_and", mask_and, METH_VARARGS, NULL },
    { "mask_or", mask_or, METH_VARARGS, NULL },
    { "mask_not", mask_not, METH_O, NULL },
    { "mask_compose", mask_compose, METH_VARARGS, NULL },
    { "mask_reach", mask_reach, METH_VARARGS, NULL },
    { "mask_shape", mask_shape, METH_O, NULL },
    { "mask_pairs", mask_pairs, METH_O, NULL },
    { "mask_visible", mask_visible, METH_VARARGS, NULL },
    { "mask_row", mask_row, METH_VARARGS, NULL },
    { "mask_origin", mask_origin, METH_VARARGS, NULL },
    { "mask_future", mask_future, METH_O, NULL },
    { "mask_text", mask_text, METH_O, NULL },
    { "mask_json", mask_json, METH_O, NULL },
    { "mask_fill", mask_fill, METH_VARARGS, NULL },
    { "mask_density", mask_density, METH_VARARGS, NULL },
    { "mask_spans", mask_spans, METH_O, NULL },
    { "mask_equal", mask_equal, METH_VARARGS, NULL },
    { "mask_hash", mask_hash, METH_O, NULL },
    { NULL, NULL, 0, NULL },
};
