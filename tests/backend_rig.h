/* SPDX-License-Identifier: Apache-2.0 */
/* backend_rig.h - a stream of a backend, and guarded tensors on it.
 *
 * Every tensor lies in the middle of a buffer that is filled with 0xff, NaN as
 * float32. An operation that reads beside an input gets NaN, and rig_clear()
 * fails if an input has changed, or anything beside an output. */
#ifndef BT_TEST_BACKEND_RIG_H
#define BT_TEST_BACKEND_RIG_H

#include "backend/backend.h"
#include "base/error.h"
#include "testing.h"

#include <math.h>
#include <string.h>

enum { RIG_TENSORS = 64, RIG_MEMORY = 256, RIG_GUARD = 64 };

typedef struct rig_tensor {
    bt_buffer buffer;
    bt_tensor tensor;
    unsigned char *start; /* the first contents of the buffer */
    bool output;
} rig_tensor;

typedef struct rig {
    bt_stream *stream;
    const bt_backend *backend;
    test_random random;
    rig_tensor tensors[RIG_TENSORS];
    size_t count;
    void *memory[RIG_MEMORY]; /* of the host, freed by rig_clear() */
    size_t memory_count;
    const char *what; /* the case that runs, for messages */
    bauta_error err;
} rig;

/* A call that gets &r->err and must succeed. */
#define RIG_MUST(r, call)                                         \
    do {                                                          \
        if (call)                                                 \
            fail_msg("%s, %s: %s", (r)->backend->name, (r)->what, \
                     (r)->err.message);                           \
    } while (0)

/* Run an operation through the table: RIG_RUN(r, add, .a = a, ...). */
#define RIG_RUN(r, op, ...)                                              \
    RIG_MUST(r, (r)->backend->op((r)->stream,                            \
                                 &(const bt_##op##_args){ __VA_ARGS__ }, \
                                 &(r)->err))

/* ---- Host memory ------------------------------------------------------- */

static inline void *rig_memory(rig *r, size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    assert_non_null(memory);
    assert_true(r->memory_count < RIG_MEMORY);
    r->memory[r->memory_count++] = memory;
    return memory;
}

/* Random numbers in [-size, size). */
static inline float *rig_random(rig *r, size_t count, float size)
{
    float *x = rig_memory(r, count, sizeof(float));
    for (size_t i = 0; i < count; i++)
        x[i] = test_float(&r->random) * size;
    return x;
}

/* ---- Tensors ----------------------------------------------------------- */

static inline const bt_tensor *rig_place(rig *r, bauta_dtype dtype, size_t rows,
                                         size_t columns, size_t extra,
                                         const void *data, bool output)
{
    assert_true(r->count < RIG_TENSORS);
    rig_tensor *t = &r->tensors[r->count++];
    size_t size = bt_dtype_size(dtype), stride = columns + extra;
    size_t offset = RIG_GUARD / size + extra / 2;
    size_t bytes = (offset + rows * stride) * size + RIG_GUARD;
    t->output = output;
    t->start = malloc(bytes);
    assert_non_null(t->start);
    memset(t->start, 0xff, bytes);
    for (size_t i = 0; data && columns && i < rows; i++)
        memcpy(t->start + (offset + i * stride) * size,
               (const char *)data + i * columns * size, columns * size);
    RIG_MUST(r, r->backend->alloc(r->stream, &t->buffer, bytes, &r->err));
    RIG_MUST(r, r->backend->upload(r->stream, &t->buffer, 0, t->start, bytes,
                                   &r->err));
    t->tensor = bt_tensor_of(&t->buffer, dtype, rows, columns);
    t->tensor.stride = stride;
    t->tensor.offset = offset;
    return &t->tensor;
}

static inline const bt_tensor *rig_input(rig *r, const float *data, size_t rows,
                                         size_t columns)
{
    return rig_place(r, BAUTA_FLOAT32, rows, columns, 0, data, false);
}

/* Some columns of a matrix with `extra` more. */
static inline const bt_tensor *rig_input_view(rig *r, const float *data,
                                              size_t rows, size_t columns,
                                              size_t extra)
{
    return rig_place(r, BAUTA_FLOAT32, rows, columns, extra, data, false);
}

/* `start` is there before; NULL: NaN. */
static inline const bt_tensor *rig_output(rig *r, const float *start,
                                          size_t rows, size_t columns)
{
    return rig_place(r, BAUTA_FLOAT32, rows, columns, 0, start, true);
}

static inline const bt_tensor *rig_output_view(rig *r, const float *start,
                                               size_t rows, size_t columns,
                                               size_t extra)
{
    return rig_place(r, BAUTA_FLOAT32, rows, columns, extra, start, true);
}

/* Ids, positions, labels. */
static inline const bt_tensor *rig_ids(rig *r, const uint32_t *ids, size_t rows)
{
    return rig_place(r, BAUTA_UINT32, rows, 1, 0, ids, false);
}

/* The elements of a tensor, dense. */
static inline void *rig_fetch(rig *r, const bt_tensor *t)
{
    void *to = rig_memory(r, t->rows * t->columns, bt_dtype_size(t->dtype));
    RIG_MUST(r, bt_tensor_download(r->stream, to, t, &r->err));
    return to;
}

/* Whether byte `at` of the buffer is part of the tensor. */
static inline bool rig_inside(const bt_tensor *t, size_t at)
{
    size_t element = at / bt_dtype_size(t->dtype);
    if (element < t->offset || t->stride == 0)
        return false;
    element -= t->offset;
    return element / t->stride < t->rows && element % t->stride < t->columns;
}

static inline void rig_check_guards(rig *r, rig_tensor *t, size_t index)
{
    unsigned char *now = malloc(t->buffer.bytes);
    assert_non_null(now);
    RIG_MUST(r, r->backend->download(r->stream, now, &t->buffer, 0,
                                     t->buffer.bytes, &r->err));
    for (size_t i = 0; i < t->buffer.bytes; i++)
        if (now[i] != t->start[i] && !(t->output && rig_inside(&t->tensor, i)))
            fail_msg("%s, %s: byte %zu of tensor %zu has changed",
                     r->backend->name, r->what, i, index);
    free(now);
}

/* Check and free everything of a case. */
static inline void rig_clear(rig *r)
{
    for (size_t i = 0; i < r->count; i++) {
        rig_check_guards(r, &r->tensors[i], i);
        r->backend->free(&r->tensors[i].buffer);
        free(r->tensors[i].start);
    }
    for (size_t i = 0; i < r->memory_count; i++)
        free(r->memory[i]);
    r->count = r->memory_count = 0;
}

/* ---- Comparison -------------------------------------------------------- */

/* The bound of n roundings in a row, relative to the sum of the magnitudes of
 * all terms: Higham, Accuracy and Stability of Numerical Algorithms, 3.1. The
 * factor covers the double precision of the expected value. */
static inline double rig_roundings(size_t n)
{
    double nu = (double)n * 0x1p-24;
    return nu / (1.0 - nu) * (1.0 + 0x1p-20);
}

/* Any NaN is as good as another. 2^-120 is where float32 runs out of
 * exponents. */
static inline void rig_within(const rig *r, const char *name, size_t at,
                              double got, double want, double bound)
{
    if (got == want || (isnan(got) && isnan(want)))
        return;
    if (!(fabs(got - want) <= bound + 0x1p-120))
        fail_msg("%s, %s: %s[%zu] is %.9g, want %.9g within %.3g",
                 r->backend->name, r->what, name, at, got, want, bound);
}

static inline void rig_same(const rig *r, const char *name, const float *got,
                            const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], &want[i], sizeof(float)) &&
            !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s, %s: %s[%zu] is %a, want %a", r->backend->name,
                     r->what, name, i, (double)got[i], (double)want[i]);
}

#endif
