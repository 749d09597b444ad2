/* SPDX-License-Identifier: Apache-2.0 */
/* reference_backend.c - the operations, their checks, and their memory; see
 * reference_backend.h. */
#include "reference_backend.h"

#include "backend/block_table.h"
#include "backend/cpu/sampling.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/size.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Memory ------------------------------------------------------------ */

enum { ALIGNMENT = 64, POISON = 0xff };

#define REGION_BYTES ((size_t)1 << 32)

/* A part of the region, in use or free. All parts are in a list in the order of
 * their offsets and cover the region. */
typedef struct region_part {
    size_t offset, size; /* size: a multiple of ALIGNMENT */
    size_t bytes;        /* that were asked for */
    bool used;
    struct region_part *next;
} region_part;

/* Buffers have addresses in `addresses`, which cannot be accessed; their
 * contents are at the same offset of `contents`. */
static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    unsigned char *addresses, *contents; /* NULL: they could not be mapped */
    region_part *parts;
    size_t used;
} region = { .lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT };

static atomic_size_t calls[BT_OP_COUNT];

static void *map_region(int protection)
{
    void *at = mmap(NULL, REGION_BYTES, protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void region_init(void)
{
    static region_part whole = { .size = REGION_BYTES };
    region.parts = &whole;
    region.addresses = map_region(PROT_NONE);
    region.contents = map_region(PROT_READ | PROT_WRITE);
}

/* The first free part that is large enough, cut to `size`; NULL: there is
 * none. */
static region_part *region_take(size_t size)
{
    region_part *part = region.parts;
    while (part && (part->used || part->size < size))
        part = part->next;
    if (!part)
        return NULL;
    if (part->size > size) {
        region_part *rest = malloc(sizeof(*rest));
        if (!rest)
            return NULL;
        *rest = (region_part){ .offset = part->offset + size,
                               .size = part->size - size,
                               .next = part->next };
        part->size = size;
        part->next = rest;
    }
    part->used = true;
    return part;
}

/* Merge every free part with the free ones after it. */
static void region_merge(void)
{
    for (region_part *part = region.parts; part; part = part->next)
        while (!part->used && part->next && !part->next->used) {
            region_part *gone = part->next;
            part->size += gone->size;
            part->next = gone->next;
            free(gone);
        }
}

/* The part of a live buffer; NULL: it is not one. The lock is held. */
static region_part *region_find(const bt_buffer *buffer)
{
    region_part *part = region.parts;
    if (buffer->backend != &bt_reference_backend || !buffer->memory)
        return NULL;
    while (part && region.addresses + part->offset != buffer->memory)
        part = part->next;
    return part && part->used && part->bytes == buffer->bytes ? part : NULL;
}

/* Where the contents of a live buffer are; NULL: it is not one. */
static unsigned char *buffer_contents(const bt_buffer *buffer)
{
    if (!buffer)
        return NULL;
    pthread_mutex_lock(&region.lock);
    const region_part *part = region_find(buffer);
    unsigned char *at = part ? region.contents + part->offset : NULL;
    pthread_mutex_unlock(&region.lock);
    return at;
}

/* A table of this backend: also a copy, in which a test has changed entries. */
static bool is_reference(const bt_backend *backend)
{
    return backend->alloc == bt_reference_backend.alloc;
}

static bauta_status check_stream(const bt_stream *stream, const char *what,
                                 bauta_error *err)
{
    if (stream && is_reference(stream->backend))
        return BAUTA_OK;
    return bt_fail(err, BAUTA_ERR_ARGUMENT,
                   "%s: the stream is not of the reference backend", what);
}

static bauta_status memory_alloc(bt_stream *stream, bt_buffer *out,
                                 size_t bytes, bauta_error *err)
{
    bauta_status status = check_stream(stream, "alloc", err);
    *out = (bt_buffer){ 0 };
    if (status)
        return status;
    pthread_once(&region.once, region_init);
    if (!region.addresses || !region.contents)
        return bt_fail_memory(err, "the memory of the reference backend",
                              REGION_BYTES);
    size_t size = bt_size_round(bt_size_max(bytes, 1), ALIGNMENT);
    pthread_mutex_lock(&region.lock);
    region_part *part = region_take(size);
    if (part) {
        part->bytes = bytes;
        region.used++;
    }
    pthread_mutex_unlock(&region.lock);
    if (!part)
        return bt_fail_memory(err, "a buffer of the reference backend", bytes);
    memset(region.contents + part->offset, POISON, size);
    *out = (bt_buffer){ &bt_reference_backend, region.addresses + part->offset,
                        bytes };
    return BAUTA_OK;
}

/* Freeing something else than a live buffer is a mistake of the caller that
 * cannot be reported. */
static void memory_free(bt_buffer *buffer)
{
    if (!buffer || !buffer->memory)
        return;
    pthread_mutex_lock(&region.lock);
    region_part *part = region_find(buffer);
    if (!part) {
        fprintf(stderr, "reference backend: free of a buffer that is not "
                        "alive\n");
        abort();
    }
    memset(region.contents + part->offset, POISON, part->size);
    part->used = false;
    region.used--;
    region_merge();
    pthread_mutex_unlock(&region.lock);
    *buffer = (bt_buffer){ 0 };
}

/* The contents of bytes [offset, offset + bytes) of a buffer. */
static bauta_status memory_range(unsigned char **out, const char *what,
                                 const bt_stream *stream,
                                 const bt_buffer *buffer, size_t offset,
                                 size_t bytes, bauta_error *err)
{
    bauta_status status = check_stream(stream, what, err);
    unsigned char *at = status ? NULL : buffer_contents(buffer);
    if (status)
        return status;
    if (!at)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: this is no live buffer of the reference backend",
                       what);
    if (bt_size_add(offset, bytes) > buffer->bytes)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s: %zu bytes at %zu, the buffer has %zu", what, bytes,
                       offset, buffer->bytes);
    *out = at + offset;
    return BAUTA_OK;
}

static bauta_status memory_upload(bt_stream *stream, const bt_buffer *to,
                                  size_t offset, const void *from, size_t bytes,
                                  bauta_error *err)
{
    unsigned char *at = NULL;
    bauta_status status =
        memory_range(&at, "upload", stream, to, offset, bytes, err);
    if (!status && bytes)
        memcpy(at, from, bytes);
    return status;
}

static bauta_status memory_download(bt_stream *stream, void *to,
                                    const bt_buffer *from, size_t offset,
                                    size_t bytes, bauta_error *err)
{
    unsigned char *at = NULL;
    bauta_status status =
        memory_range(&at, "download", stream, from, offset, bytes, err);
    if (!status && bytes)
        memcpy(to, at, bytes);
    return status;
}

static bauta_status memory_fill(bt_stream *stream, const bt_buffer *to,
                                size_t offset, unsigned char value,
                                size_t bytes, bauta_error *err)
{
    unsigned char *at = NULL;
    bauta_status status =
        memory_range(&at, "fill", stream, to, offset, bytes, err);
    if (!status)
        memset(at, value, bytes);
    return status;
}

size_t reference_backend_live_buffers(void)
{
    pthread_mutex_lock(&region.lock);
    size_t used = region.used;
    pthread_mutex_unlock(&region.lock);
    return used;
}

size_t reference_backend_calls(bt_op op)
{
    return atomic_load(&calls[op]);
}

/* ---- Operands ---------------------------------------------------------- */

enum { OPERANDS_MAX = 16 };

#define ANY SIZE_MAX /* a size that is not checked */

/* The bytes of a tensor: rows of `row` bytes, `step` apart. */
typedef struct operand {
    const char *name;
    size_t start, row, step, rows;
    bool written;
} operand;

/* An operation while its operands are collected and checked. The first failure
 * stays. */
typedef struct op_call {
    bt_stream *stream;
    bt_op op;
    bauta_error *err;
    bauta_status status;
    operand operands[OPERANDS_MAX];
    size_t count;
} op_call;

/* The contents of a float32 tensor. */
typedef struct matrix {
    float *at;
    size_t rows, columns, stride;
} matrix;

static op_call call_begin(bt_stream *stream, bt_op op, bauta_error *err)
{
    op_call c = { .stream = stream, .op = op, .err = err };
    atomic_fetch_add(&calls[op], 1);
    c.status = check_stream(stream, bt_op_name(op), err);
    return c;
}

#define CALL_FAIL(c, ...)                                                 \
    do {                                                                  \
        if (!(c)->status) {                                               \
            char text[160];                                               \
            snprintf(text, sizeof(text), __VA_ARGS__);                    \
            (c)->status = bt_fail((c)->err, BAUTA_ERR_ARGUMENT, "%s: %s", \
                                  bt_op_name((c)->op), text);             \
        }                                                                 \
    } while (0)

static void call_unsupported(op_call *c, bauta_dtype dtype)
{
    if (!c->status)
        c->status = bt_unsupported(c->stream, c->op, dtype, c->err);
}

static bool is_float(bauta_dtype dtype)
{
    return dtype == BAUTA_FLOAT32 || dtype == BAUTA_FLOAT64 ||
           dtype == BAUTA_FLOAT16 || dtype == BAUTA_BFLOAT16;
}

static void check_type(op_call *c, const char *name, const bt_tensor *t,
                       bauta_dtype dtype)
{
    if (t->packed ||
        (t->dtype != dtype && is_float(t->dtype) && is_float(dtype)))
        call_unsupported(c, t->dtype);
    else if (t->dtype != dtype)
        CALL_FAIL(c, "%s is of type %s, not %s", name, bt_dtype_name(t->dtype),
                  bt_dtype_name(dtype));
}

static void check_shape(op_call *c, const char *name, const bt_tensor *t,
                        size_t rows, size_t columns)
{
    if (rows != ANY && t->rows != rows)
        CALL_FAIL(c, "%s has %zu rows, not %zu", name, t->rows, rows);
    if (columns != ANY && t->columns != columns)
        CALL_FAIL(c, "%s has %zu columns, not %zu", name, t->columns, columns);
    if (t->rows > 1 && t->stride < t->columns)
        CALL_FAIL(c, "%s has %zu columns and a stride of %zu", name, t->columns,
                  t->stride);
}

static void operand_add(op_call *c, const char *name, const bt_tensor *t,
                        const unsigned char *at, bool written)
{
    size_t size = bt_dtype_size(t->dtype);
    assert(c->count < OPERANDS_MAX);
    c->operands[c->count++] =
        (operand){ .name = name,
                   .start = (size_t)(at - region.contents) + t->offset * size,
                   .row = t->columns * size,
                   .step = t->stride * size,
                   .rows = t->rows,
                   .written = written };
}

/* The contents of a tensor from its first element on, after all checks. NULL if
 * the call has failed or the tensor has no elements. */
static void *operand_of(op_call *c, const char *name, const bt_tensor *t,
                        bauta_dtype dtype, size_t rows, size_t columns,
                        bool written)
{
    if (!t)
        CALL_FAIL(c, "%s is NULL", name);
    if (c->status)
        return NULL;
    check_type(c, name, t, dtype);
    check_shape(c, name, t, rows, columns);
    if (c->status || t->rows == 0 || t->columns == 0)
        return NULL;
    unsigned char *at = buffer_contents(t->buffer);
    size_t end =
        bt_size_add(bt_size_add(t->offset, bt_size_mul(t->rows - 1, t->stride)),
                    t->columns);
    if (!at)
        CALL_FAIL(c, "%s is not in a live buffer of this backend", name);
    else if (end > t->buffer->bytes / bt_dtype_size(dtype))
        CALL_FAIL(c, "%s ends at element %zu, its buffer has %zu", name, end,
                  t->buffer->bytes / bt_dtype_size(dtype));
    if (c->status)
        return NULL;
    operand_add(c, name, t, at, written);
    return at + t->offset * bt_dtype_size(dtype);
}

/* ---- bfloat16 ---------------------------------------------------------- */

/* On a stream of bfloat16, operands may be bfloat16: an operation has a float32
 * copy of such a tensor, which is rounded back when the operation is done. */
typedef struct widened {
    struct widened *before;
    uint16_t *from; /* the contents of the tensor */
    size_t rows, columns, stride;
    bool written;
    float floats[]; /* (rows, columns) */
} widened;

static _Thread_local widened *widened_last;

static matrix widen(const bt_tensor *t, void *from, bool written)
{
    size_t count = from ? t->rows * t->columns : 0;
    widened *w = malloc(sizeof(*w) + count * sizeof(float));
    if (!w)
        abort();
    *w = (widened){ .before = widened_last,
                    .from = from,
                    .rows = t->rows,
                    .columns = t->columns,
                    .stride = t->stride,
                    .written = written };
    for (size_t i = 0; count && i < w->rows; i++)
        bt_convert_f32(w->floats + i * w->columns, w->from + i * w->stride,
                       BAUTA_BFLOAT16, w->columns);
    widened_last = w;
    return (matrix){ count ? w->floats : NULL, t->rows, t->columns,
                     t->columns };
}

/* In the order in which they were widened, so that the last one stays. */
static void widened_round(widened *w, bool store)
{
    if (!w)
        return;
    widened_round(w->before, store);
    for (size_t i = 0; store && w->written && w->from && i < w->rows; i++)
        bt_convert_from_f32(w->from + i * w->stride, BAUTA_BFLOAT16,
                            w->floats + i * w->columns, w->columns);
    free(w);
}

static bauta_status operation_end(bauta_status status)
{
    widened_round(widened_last, !status);
    widened_last = NULL;
    return status;
}

static matrix matrix_of(op_call *c, const char *name, const bt_tensor *t,
                        size_t rows, size_t columns, bool written)
{
    bool wide = t && t->dtype == BAUTA_BFLOAT16 && !c->status &&
                c->stream->dtype == BAUTA_BFLOAT16;
    void *at = operand_of(c, name, t, wide ? BAUTA_BFLOAT16 : BAUTA_FLOAT32,
                          rows, columns, written);
    if (c->status)
        return (matrix){ 0 };
    if (wide)
        return widen(t, at, written);
    return (matrix){ at, t->rows, t->columns, t->stride };
}

/* Operands that may have a stride, and those that are dense. Outputs include
 * what is read and written. */
static matrix input_view(op_call *c, const char *name, const bt_tensor *t,
                         size_t rows, size_t columns)
{
    return matrix_of(c, name, t, rows, columns, false);
}

static matrix output_view(op_call *c, const char *name, const bt_tensor *t,
                          size_t rows, size_t columns)
{
    return matrix_of(c, name, t, rows, columns, true);
}

static void check_dense(op_call *c, const char *name, const bt_tensor *t)
{
    if (!c->status && !bt_tensor_dense(t))
        CALL_FAIL(c, "%s has %zu columns and a stride of %zu", name, t->columns,
                  t->stride);
}

static matrix input(op_call *c, const char *name, const bt_tensor *t,
                    size_t rows, size_t columns)
{
    matrix m = matrix_of(c, name, t, rows, columns, false);
    check_dense(c, name, t);
    return m;
}

static matrix output(op_call *c, const char *name, const bt_tensor *t,
                     size_t rows, size_t columns)
{
    matrix m = matrix_of(c, name, t, rows, columns, true);
    check_dense(c, name, t);
    return m;
}

/* A tensor of one column, dense. */
static void *column_of(op_call *c, const char *name, const bt_tensor *t,
                       bauta_dtype dtype, size_t rows, bool written)
{
    void *at = operand_of(c, name, t, dtype, rows, 1, written);
    check_dense(c, name, t);
    return at;
}

/* Whether a byte is in both. Two tensors of one stride may be different columns
 * of a larger matrix. */
static bool operands_overlap(const operand *a, const operand *b)
{
    size_t a_end = a->start + (a->rows - 1) * a->step + a->row;
    size_t b_end = b->start + (b->rows - 1) * b->step + b->row;
    size_t step = a->rows > 1 ? a->step : b->step;
    if (a_end <= b->start || b_end <= a->start)
        return false;
    if (b->rows > 1 && b->step != step)
        return true;
    if (step == 0)
        return true;
    // How far a row of b begins after one of a.
    size_t after = (b->start % step + step - a->start % step) % step;
    return after < a->row || step - after < b->row;
}

/* True if an operand was wrong or an output overlaps another operand. */
static bool call_failed(op_call *c)
{
    for (size_t i = 0; i < c->count; i++)
        for (size_t j = i + 1; j < c->count; j++) {
            const operand *a = &c->operands[i], *b = &c->operands[j];
            if ((a->written || b->written) && operands_overlap(a, b))
                CALL_FAIL(c, "%s and %s overlap", a->name, b->name);
        }
    return c->status != BAUTA_OK;
}

static double get(const matrix *m, size_t row, size_t column)
{
    return (double)m->at[row * m->stride + column];
}

/* The one rounding of a result. */
static void put(const matrix *m, size_t row, size_t column, double value,
                bool add)
{
    float *at = &m->at[row * m->stride + column];
    *at = (float)(add ? (double)*at + value : value);
}

/* Zeros for sums in double; NULL, and the call has failed, without memory. */
static double *sums_create(op_call *c, size_t rows, size_t columns)
{
    double *sums = calloc(rows * columns + 1, sizeof(double));
    if (!sums)
        c->status = bt_fail_memory(c->err, "sums of the reference backend",
                                   rows * columns * sizeof(double));
    return sums;
}

static void put_all(const matrix *to, const double *values, bool add)
{
    for (size_t i = 0; i < to->rows; i++)
        for (size_t j = 0; j < to->columns; j++)
            put(to, i, j, values[i * to->columns + j], add);
}

/* ---- Functions of activations ------------------------------------------ */

#define TWO_ROOT_TWO_OVER_PI 1.5957691216057308
#define ROOT_HALF 0.7071067811865476
#define ROOT_TWO_PI 2.5066282746310002

/* Beyond this an activation is x or 0 in double, and infinity times 0 does not
 * occur. NaN stays. */
static double limited(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* GELU by tanh is x sigmoid(w). */
static double gelu_tanh_w(double x, double *slope)
{
    const double k0 = TWO_ROOT_TWO_OVER_PI, k1 = 0.044715 * k0;
    *slope = k0 + 3 * k1 * x * x;
    return x * (k0 + k1 * x * x);
}

static double act_value(bt_act act, double x)
{
    double slope, low = limited(x, -1000, INFINITY);
    switch (act) {
    case BT_ACT_RELU:
        return x < 0 ? 0 : x;
    case BT_ACT_GELU_ERF:
        return low * 0.5 * erfc(-low * ROOT_HALF);
    case BT_ACT_GELU_TANH:
        return low * sigmoid(gelu_tanh_w(limited(low, -1000, 1000), &slope));
    case BT_ACT_SILU:
        return low * sigmoid(low);
    }
    return NAN;
}

static double act_slope(bt_act act, double x)
{
    double v = limited(x, -1000, 1000), w, s, slope;
    switch (act) {
    case BT_ACT_RELU:
        return x > 0 ? 1 : x <= 0 ? 0 : x;
    case BT_ACT_GELU_ERF:
        return 0.5 * erfc(-v * ROOT_HALF) + v * exp(-0.5 * v * v) / ROOT_TWO_PI;
    case BT_ACT_GELU_TANH:
        w = gelu_tanh_w(v, &slope);
        return sigmoid(w) + v * slope * sigmoid(w) * sigmoid(-w);
    case BT_ACT_SILU:
        s = sigmoid(v);
        return s + v * s * sigmoid(-v);
    }
    return NAN;
}

/* ---- Products ---------------------------------------------------------- */

/* W as (outputs, inputs). */
static double weight_at(const matrix *w, bool transposed, size_t out, size_t in)
{
    return transposed ? get(w, in, out) : get(w, out, in);
}

static void linear_layer(const matrix *x, const matrix *w, bool transposed,
                         const matrix *bias, const matrix *y)
{
    for (size_t i = 0; i < y->rows; i++)
        for (size_t o = 0; o < y->columns; o++) {
            double sum = bias->at ? get(bias, 0, o) : 0.0;
            for (size_t k = 0; k < x->columns; k++)
                sum += get(x, i, k) * weight_at(w, transposed, o, k);
            put(y, i, o, sum, false);
        }
}

static bauta_status op_linear(bt_stream *stream, const bt_linear_args *a,
                              bauta_error *err)
{
    matrix w[BT_LINEAR_LAYERS_MAX], y[BT_LINEAR_LAYERS_MAX];
    matrix bias[BT_LINEAR_LAYERS_MAX] = { 0 }, pre = { 0 };
    op_call c = call_begin(stream, BT_OP_linear, err);
    matrix x = input_view(&c, "x", a->x, ANY, ANY);
    if (a->count > BT_LINEAR_LAYERS_MAX)
        CALL_FAIL(&c, "%zu layers, and %d are the most", a->count,
                  BT_LINEAR_LAYERS_MAX);
    for (size_t l = 0; l < a->count && !c.status; l++) {
        const bt_linear_layer *layer = &a->layers[l];
        w[l] = input_view(&c, "w", layer->w, a->transposed ? x.columns : ANY,
                          a->transposed ? ANY : x.columns);
        size_t outputs = a->transposed ? w[l].columns : w[l].rows;
        if (layer->bias)
            bias[l] = input(&c, "bias", layer->bias, 1, outputs);
        y[l] = output_view(&c, "y", layer->y, x.rows, outputs);
    }
    if (a->has_act && a->count != 1)
        CALL_FAIL(&c, "%zu layers with an activation", a->count);
    if (a->pre && !c.status)
        pre = output_view(&c, "pre", a->pre, x.rows, y[0].columns);
    if (call_failed(&c))
        return c.status;
    for (size_t l = 0; l < a->count; l++)
        linear_layer(&x, &w[l], a->transposed, &bias[l], &y[l]);
    for (size_t i = 0; i < x.rows && a->has_act; i++)
        for (size_t o = 0; o < y[0].columns; o++) {
            double v = get(&y[0], i, o);
            if (a->pre)
                put(&pre, i, o, v, false);
            put(&y[0], i, o, act_value(a->act, v), false);
        }
    return BAUTA_OK;
}

static bauta_status op_linear_dx(bt_stream *stream, const bt_linear_dx_args *a,
                                 bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_linear_dx, err);
    matrix dy = input_view(&c, "dy", a->dy, ANY, ANY);
    matrix w = input_view(&c, "w", a->w, a->transposed ? ANY : dy.columns,
                          a->transposed ? dy.columns : ANY);
    matrix dx = output_view(&c, "dx", a->dx, dy.rows,
                            a->transposed ? w.rows : w.columns);
    matrix slope = { 0 };
    if (a->slope)
        slope = input_view(&c, "slope", a->slope, dx.rows, dx.columns);
    if (a->slope && a->add)
        CALL_FAIL(&c, "a slope, and the result is added");
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < dx.rows; i++)
        for (size_t k = 0; k < dx.columns; k++) {
            double sum = 0.0;
            for (size_t o = 0; o < dy.columns; o++)
                sum += get(&dy, i, o) * weight_at(&w, a->transposed, o, k);
            put(&dx, i, k, sum, a->add);
            if (a->slope)
                put(&dx, i, k,
                    act_slope(a->act, get(&slope, i, k)) * get(&dx, i, k),
                    false);
        }
    return BAUTA_OK;
}

static bauta_status op_linear_dw(bt_stream *stream, const bt_linear_dw_args *a,
                                 bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_linear_dw, err);
    matrix x = input_view(&c, "x", a->x, ANY, ANY);
    matrix dy = input_view(&c, "dy", a->dy, x.rows, ANY);
    // The rows of dW belong to the columns of one of them.
    const matrix *down = a->transposed ? &x : &dy;
    const matrix *across = a->transposed ? &dy : &x;
    matrix dw = output_view(&c, "dw", a->dw, down->columns, across->columns);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < dw.rows; i++)
        for (size_t j = 0; j < dw.columns; j++) {
            double sum = 0.0;
            for (size_t row = 0; row < x.rows; row++)
                sum += get(down, row, i) * get(across, row, j);
            put(&dw, i, j, sum, a->add);
        }
    return BAUTA_OK;
}

static bauta_status op_sum_rows(bt_stream *stream, const bt_sum_rows_args *a,
                                bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_sum_rows, err);
    matrix x = input_view(&c, "x", a->x, ANY, ANY);
    matrix to = output(&c, "to", a->to, 1, x.columns);
    if (call_failed(&c))
        return c.status;
    for (size_t j = 0; j < x.columns; j++) {
        double sum = 0.0;
        for (size_t i = 0; i < x.rows; i++)
            sum += get(&x, i, j);
        put(&to, 0, j, sum, a->add);
    }
    return BAUTA_OK;
}

/* ---- Rows by index ----------------------------------------------------- */

/* The call fails if an index is not below `below`, unless it is `except`. */
static const uint32_t *indices_of(op_call *c, const char *name,
                                  const bt_tensor *t, size_t rows, size_t below,
                                  const uint32_t *except)
{
    const uint32_t *at = column_of(c, name, t, BAUTA_UINT32, rows, false);
    for (size_t i = 0; !c->status && i < rows; i++)
        if (at[i] >= below && !(except && at[i] == *except))
            CALL_FAIL(c, "%s[%zu] is %u, not below %zu", name, i,
                      (unsigned)at[i], below);
    return at;
}

static bauta_status op_embedding(bt_stream *stream, const bt_embedding_args *a,
                                 bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_embedding, err);
    matrix table = input_view(&c, "table", a->table, ANY, ANY);
    matrix y = output(&c, "y", a->y, ANY, table.columns);
    const uint32_t *ids =
        indices_of(&c, "ids", a->ids, y.rows, table.rows, NULL);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < y.rows; i++)
        for (size_t j = 0; j < y.columns; j++)
            put(&y, i, j, get(&table, ids[i], j) * (double)a->scale, false);
    return BAUTA_OK;
}

static bauta_status op_embedding_grad(bt_stream *stream,
                                      const bt_embedding_grad_args *a,
                                      bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_embedding_grad, err);
    matrix dy = input(&c, "dy", a->dy, ANY, ANY);
    matrix dtable = output_view(&c, "dtable", a->dtable, ANY, dy.columns);
    const uint32_t *ids =
        indices_of(&c, "ids", a->ids, dy.rows, dtable.rows, &a->padding_id);
    if (call_failed(&c))
        return c.status;
    double *sums = sums_create(&c, dtable.rows, dtable.columns);
    if (!sums)
        return c.status;
    for (size_t i = 0; i < dy.rows; i++)
        for (size_t j = 0; j < dy.columns && ids[i] != a->padding_id; j++)
            sums[ids[i] * dy.columns + j] += get(&dy, i, j) * (double)a->scale;
    put_all(&dtable, sums, a->add);
    free(sums);
    return BAUTA_OK;
}

static bauta_status op_scatter_add(bt_stream *stream,
                                   const bt_scatter_add_args *a,
                                   bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_scatter_add, err);
    matrix x = input(&c, "x", a->x, ANY, ANY);
    matrix to = output(&c, "to", a->to, ANY, x.columns);
    const uint32_t *index =
        indices_of(&c, "index", a->index, x.rows, to.rows, NULL);
    for (size_t i = 0; i < x.rows && !c.status; i++)
        for (size_t k = 0; k < i; k++)
            if (index[i] == index[k])
                CALL_FAIL(&c, "the index %u is there twice",
                          (unsigned)index[i]);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < x.rows; i++)
        for (size_t j = 0; j < x.columns; j++)
            put(&to, index[i], j, get(&x, i, j), true);
    return BAUTA_OK;
}

/* ---- Norms ------------------------------------------------------------- */

static size_t head_size(op_call *c, size_t columns, size_t heads)
{
    if (!c->status && (heads == 0 || columns % heads))
        CALL_FAIL(c, "%zu columns are not %zu heads", columns, heads);
    return c->status ? 0 : columns / heads;
}

static bauta_status op_norm(bt_stream *stream, const bt_norm_args *a,
                            bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_norm, err);
    matrix x = input_view(&c, "x", a->x, ANY, ANY), bias = { 0 };
    size_t n = head_size(&c, x.columns, a->heads), lines = x.rows * a->heads;
    matrix gain = input(&c, "gain", a->gain, 1, n);
    if (a->bias)
        bias = input(&c, "bias", a->bias, 1, n);
    matrix y = output_view(&c, "y", a->y, x.rows, x.columns);
    matrix means = output(&c, "mean", a->mean, lines, 1);
    matrix scales = output(&c, "scale", a->scale, lines, 1);
    matrix residual = { 0 }, sum = { 0 };
    if (a->residual) {
        residual = input_view(&c, "residual", a->residual, x.rows, x.columns);
        sum = output_view(&c, "sum", a->sum, x.rows, x.columns);
    }
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < sum.rows; i++)
        for (size_t j = 0; j < sum.columns; j++)
            put(&sum, i, j, get(&x, i, j) + get(&residual, i, j), false);
    x = a->residual ? sum : x;
    for (size_t line = 0; line < lines; line++) {
        size_t row = line / a->heads, first = line % a->heads * n;
        double mean = 0.0, square = 0.0;
        for (size_t j = 0; j < n && a->kind == BT_NORM_LAYER; j++)
            mean += get(&x, row, first + j) / (double)n;
        for (size_t j = 0; j < n; j++) {
            double d = get(&x, row, first + j) - mean;
            square += d * d / (double)n;
        }
        double scale = 1.0 / sqrt(square + (double)a->epsilon);
        for (size_t j = 0; j < n; j++) {
            double h = (get(&x, row, first + j) - mean) * scale;
            put(&y, row, first + j,
                h * get(&gain, 0, j) + (bias.at ? get(&bias, 0, j) : 0.0),
                false);
        }
        put(&means, line, 0, mean, false);
        put(&scales, line, 0, scale, false);
    }
    return BAUTA_OK;
}

/* The inputs of a norm's gradient; row and column are those of x. */
typedef struct norm_inputs {
    bt_norm_kind kind;
    size_t heads, n;
    matrix x, gain, mean, scale, dy;
} norm_inputs;

static double norm_h(const norm_inputs *in, size_t row, size_t column)
{
    size_t line = row * in->heads + column / in->n;
    return (get(&in->x, row, column) - get(&in->mean, line, 0)) *
           get(&in->scale, line, 0);
}

static double norm_g(const norm_inputs *in, size_t row, size_t column)
{
    return get(&in->dy, row, column) * get(&in->gain, 0, column % in->n);
}

/* dx = s (g - mean of g - h (mean of g h)), see kernels/norm.h. */
static void norm_dx(const norm_inputs *in, const matrix *dx, bool add,
                    size_t row, size_t head)
{
    size_t first = head * in->n;
    double g_mean = 0.0, gh_mean = 0.0;
    double scale = get(&in->scale, row * in->heads + head, 0);
    for (size_t j = first; j < first + in->n; j++) {
        double g = norm_g(in, row, j);
        if (in->kind == BT_NORM_LAYER)
            g_mean += g / (double)in->n;
        gh_mean += g * norm_h(in, row, j) / (double)in->n;
    }
    for (size_t j = first; j < first + in->n; j++)
        put(dx, row, j,
            scale *
                (norm_g(in, row, j) - g_mean - norm_h(in, row, j) * gh_mean),
            add);
}

/* The sum over all rows and heads of dy h, or with `plain` of dy. */
static void norm_column_sums(const norm_inputs *in, const matrix *to, bool add,
                             bool plain)
{
    for (size_t j = 0; j < in->n; j++) {
        double sum = 0.0;
        for (size_t row = 0; row < in->x.rows; row++)
            for (size_t k = j; k < in->x.columns; k += in->n)
                sum += get(&in->dy, row, k) * (plain ? 1 : norm_h(in, row, k));
        put(to, 0, j, sum, add);
    }
}

static bauta_status op_norm_grad(bt_stream *stream, const bt_norm_grad_args *a,
                                 bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_norm_grad, err);
    norm_inputs in = { .kind = a->kind, .heads = a->heads };
    matrix dx = { 0 }, dgain = { 0 }, dbias = { 0 };
    in.x = input_view(&c, "x", a->x, ANY, ANY);
    in.n = head_size(&c, in.x.columns, a->heads);
    in.gain = input(&c, "gain", a->gain, 1, in.n);
    in.mean = input(&c, "mean", a->mean, in.x.rows * a->heads, 1);
    in.scale = input(&c, "scale", a->scale, in.x.rows * a->heads, 1);
    in.dy = input_view(&c, "dy", a->dy, in.x.rows, in.x.columns);
    if (a->dx)
        dx = output_view(&c, "dx", a->dx, in.x.rows, in.x.columns);
    if (a->dgain)
        dgain = output(&c, "dgain", a->dgain, 1, in.n);
    if (a->dbias)
        dbias = output(&c, "dbias", a->dbias, 1, in.n);
    if (call_failed(&c))
        return c.status;
    for (size_t row = 0; row < in.x.rows && dx.at; row++)
        for (size_t head = 0; head < a->heads; head++)
            norm_dx(&in, &dx, a->add_dx, row, head);
    if (dgain.at)
        norm_column_sums(&in, &dgain, a->add_dgain, false);
    if (dbias.at)
        norm_column_sums(&in, &dbias, a->add_dbias, true);
    return BAUTA_OK;
}

/* ---- Activations ------------------------------------------------------- */

static bauta_status op_act(bt_stream *stream, const bt_act_args *a,
                           bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_act, err);
    matrix x = input_view(&c, "x", a->x, ANY, ANY), up = { 0 };
    if (a->up)
        up = input_view(&c, "up", a->up, x.rows, x.columns);
    matrix y = output_view(&c, "y", a->y, x.rows, x.columns);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < x.rows; i++)
        for (size_t j = 0; j < x.columns; j++)
            put(&y, i, j,
                act_value(a->act, get(&x, i, j)) *
                    (up.at ? get(&up, i, j) : 1.0),
                false);
    return BAUTA_OK;
}

/* dx and dup are the same tensor if a gate multiplies itself: dx is complete
 * before dup is added to it. */
static bool same_tensor(const bt_tensor *a, const bt_tensor *b)
{
    return a && b && a->buffer == b->buffer && a->offset == b->offset;
}

static bauta_status op_act_grad(bt_stream *stream, const bt_act_grad_args *a,
                                bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_act_grad, err);
    matrix x = input_view(&c, "x", a->x, ANY, ANY), up = { 0 };
    matrix dx = { 0 }, dup = { 0 };
    if (a->up)
        up = input_view(&c, "up", a->up, x.rows, x.columns);
    matrix dy = input_view(&c, "dy", a->dy, x.rows, x.columns);
    if (a->dx)
        dx = output_view(&c, "dx", a->dx, x.rows, x.columns);
    if (a->dup && same_tensor(a->dup, a->dx) && a->add_dup)
        dup = dx;
    else if (a->dup)
        dup = output_view(&c, "dup", a->dup, x.rows, x.columns);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < x.rows && dx.at; i++)
        for (size_t j = 0; j < x.columns; j++)
            put(&dx, i, j,
                act_slope(a->act, get(&x, i, j)) * get(&dy, i, j) *
                    (up.at ? get(&up, i, j) : 1.0),
                a->add_dx);
    for (size_t i = 0; i < x.rows && dup.at; i++)
        for (size_t j = 0; j < x.columns; j++)
            put(&dup, i, j, act_value(a->act, get(&x, i, j)) * get(&dy, i, j),
                a->add_dup);
    return BAUTA_OK;
}

/* ---- Elements ---------------------------------------------------------- */

static void rotate(const matrix *x, const matrix *y, const uint32_t *positions,
                   const matrix *frequencies, bool back, bool add)
{
    size_t half = frequencies->columns;
    for (size_t i = 0; i < x->rows; i++)
        for (size_t column = 0; column < x->columns; column++) {
            size_t j = column % (2 * half);
            if (j >= half)
                continue;
            double angle = (double)positions[i] * get(frequencies, 0, j);
            double sine = back ? -sin(angle) : sin(angle);
            double p = get(x, i, column), q = get(x, i, column + half);
            put(y, i, column, p * cos(angle) - q * sine, add);
            put(y, i, column + half, q * cos(angle) + p * sine, add);
        }
}

static bauta_status op_rotary(bt_stream *stream, const bt_rotary_args *a,
                              bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_rotary, err);
    matrix x = input_view(&c, "x", a->x, ANY, ANY);
    matrix y = output_view(&c, "y", a->y, x.rows, x.columns);
    size_t dim = head_size(&c, x.columns, a->heads), half = dim / 2;
    const uint32_t *positions =
        column_of(&c, "positions", a->positions, BAUTA_UINT32, x.rows, false);
    matrix frequencies = input(&c, "frequencies", a->frequencies, 1, half);
    if (!c.status && dim % 2)
        CALL_FAIL(&c, "a head has %zu columns, which are not pairs", dim);
    if (call_failed(&c))
        return c.status;
    rotate(&x, &y, positions, &frequencies, a->back, a->add);
    return BAUTA_OK;
}

static bauta_status op_add(bt_stream *stream, const bt_add_args *args,
                           bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_add, err);
    matrix a = input(&c, "a", args->a, ANY, ANY);
    matrix b = input(&c, "b", args->b, a.rows, a.columns);
    matrix y = output(&c, "y", args->y, a.rows, a.columns);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < y.rows; i++)
        for (size_t j = 0; j < y.columns; j++)
            put(&y, i, j, get(&a, i, j) + get(&b, i, j), false);
    return BAUTA_OK;
}

static bool converts(bauta_dtype dtype)
{
    return dtype == BAUTA_FLOAT32 || dtype == BAUTA_FLOAT16 ||
           dtype == BAUTA_BFLOAT16;
}

/* Between any two of float32, float16 and bfloat16; a sum rounds once to
 * float32 and then to the type. */
static bauta_status op_scale(bt_stream *stream, const bt_scale_args *a,
                             bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_scale, err);
    matrix y = output(&c, "y", a->y, ANY, ANY);
    matrix x = input(&c, "x", a->x, y.rows, y.columns);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < y.rows; i++)
        for (size_t j = 0; j < y.columns; j++)
            put(&y, i, j, get(&x, i, j) * (double)a->factor, a->add);
    return BAUTA_OK;
}

static bauta_status op_softcap(bt_stream *stream, const bt_softcap_args *a,
                               bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_softcap, err);
    matrix y = output_view(&c, "y", a->y, ANY, ANY);
    matrix x = a->x == a->y ? y // in place
                            : input_view(&c, "x", a->x, y.rows, y.columns);
    double cap = (double)a->cap;
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < y.rows; i++)
        for (size_t j = 0; j < y.columns; j++)
            put(&y, i, j, cap * tanh(get(&x, i, j) / cap), false);
    return BAUTA_OK;
}

static bauta_status op_softcap_grad(bt_stream *stream,
                                    const bt_softcap_grad_args *a,
                                    bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_softcap_grad, err);
    matrix dx = output_view(&c, "dx", a->dx, ANY, ANY);
    matrix y = input_view(&c, "y", a->y, dx.rows, dx.columns);
    matrix dy = a->dy == a->dx
                    ? dx // in place
                    : input_view(&c, "dy", a->dy, dx.rows, dx.columns);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < y.rows; i++)
        for (size_t j = 0; j < y.columns; j++) {
            double t = get(&y, i, j) / (double)a->cap;
            put(&dx, i, j, get(&dy, i, j) * (1.0 - t * t), a->add);
        }
    return BAUTA_OK;
}

static bauta_status op_accumulate(bt_stream *stream,
                                  const bt_accumulate_args *a, bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_accumulate, err);
    for (int i = 0; i < 2; i++) {
        const bt_tensor *t = i ? a->to : a->x;
        if (t && !converts(t->dtype))
            call_unsupported(&c, t->dtype);
    }
    const unsigned char *x = operand_of(
        &c, "x", a->x, a->x ? a->x->dtype : BAUTA_FLOAT32, ANY, ANY, false);
    unsigned char *to = operand_of(
        &c, "to", a->to, a->to ? a->to->dtype : BAUTA_FLOAT32,
        c.status ? ANY : a->x->rows, c.status ? ANY : a->x->columns, true);
    if (call_failed(&c))
        return c.status;
    size_t x_size = bt_dtype_size(a->x->dtype);
    size_t to_size = bt_dtype_size(a->to->dtype);
    for (size_t i = 0; i < a->x->rows; i++)
        for (size_t j = 0; j < a->x->columns; j++) {
            unsigned char *at = to + (i * a->to->stride + j) * to_size;
            float value, old = 0.0f;
            bt_convert_f32(&value, x + (i * a->x->stride + j) * x_size,
                           a->x->dtype, 1);
            if (a->add) {
                bt_convert_f32(&old, at, a->to->dtype, 1);
                value = (float)((double)old + (double)value);
            }
            bt_convert_from_f32(at, a->to->dtype, &value, 1);
        }
    return BAUTA_OK;
}

/* The numbers of kernels/pointwise.h. */
static bool dropout_keeps(const bt_dropout_args *a, uint64_t token,
                          size_t column)
{
    const uint32_t key[] = { (uint32_t)a->seed, (uint32_t)(a->seed >> 32) };
    const uint32_t counter[] = { (uint32_t)(column / 64 * 16 + column % 16),
                                 a->site, (uint32_t)token,
                                 (uint32_t)(token >> 32) };
    uint32_t words[4];
    bt_philox(words, counter, key);
    return words[column % 64 / 16] >= (uint32_t)((double)a->rate * 0x1p32);
}

static bauta_status op_dropout(bt_stream *stream, const bt_dropout_args *a,
                               bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_dropout, err);
    matrix x = input(&c, "x", a->x, ANY, ANY);
    matrix y = output(&c, "y", a->y, x.rows, x.columns);
    const uint64_t *tokens =
        column_of(&c, "tokens", a->tokens, BAUTA_UINT64, x.rows, false);
    if (!(a->rate >= 0 && a->rate < 1))
        CALL_FAIL(&c, "the rate %g is not in [0, 1)", (double)a->rate);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < x.rows; i++)
        for (size_t j = 0; j < x.columns; j++) {
            double kept = get(&x, i, j) / (1.0 - (double)a->rate);
            put(&y, i, j, dropout_keeps(a, tokens[i], j) ? kept : 0.0, a->add);
        }
    return BAUTA_OK;
}

/* ---- Plans ------------------------------------------------------------- */

/* The mask of the whole batch, row by row. */
typedef struct reference_plan {
    bt_attention_plan base;
    const bt_stream *stream;
    bt_plan_use use;
    bauta_mask *mask;
    size_t count;        /* sequences */
    size_t *rows, *keys; /* (count) */
} reference_plan;

static void plan_free(bt_attention_plan *plan)
{
    reference_plan *p = (reference_plan *)plan;
    if (!p)
        return;
    bauta_mask_free(p->mask);
    free(p->rows);
    free(p->keys);
    free(p);
}

static size_t *lengths_copy(const bt_token_axis *axis)
{
    size_t *copy = malloc((axis->count + 1) * sizeof(*copy));
    for (size_t i = 0; copy && i < axis->count; i++)
        copy[i] = axis->lengths[i];
    return copy;
}

static bauta_status plan_create(reference_plan **out, const bt_stream *stream,
                                const bt_batch_mask *mask, bt_plan_use use,
                                bauta_error *err)
{
    reference_plan *p = calloc(1, sizeof(*p));
    if (!p)
        return bt_fail_memory(err, "a plan", sizeof(*p));
    bauta_status status = bt_batch_mask_create(&p->mask, mask, err);
    if (!status) {
        p->base = (bt_attention_plan){ &bt_reference_backend,
                                       bauta_mask_queries(p->mask),
                                       bauta_mask_keys(p->mask) };
        p->stream = stream;
        p->use = use;
        p->count = mask->queries.count;
        p->rows = lengths_copy(&mask->queries);
        p->keys = lengths_copy(&mask->keys);
        if (!p->rows || !p->keys)
            status = bt_fail_memory(err, "a plan", p->count * sizeof(size_t));
    }
    if (status)
        plan_free(&p->base);
    else
        *out = p;
    return status;
}

static bauta_status plan_build(bt_stream *stream, bt_attention_plan **plan,
                               const bt_batch_mask *mask, bt_plan_use use,
                               bauta_error *err)
{
    reference_plan *built = NULL, *old = (reference_plan *)*plan;
    bauta_status status = check_stream(stream, "plan_build", err);
    if (!status && old && old->base.backend != &bt_reference_backend)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "plan_build: the plan is of another backend");
    if (!status && use == BT_PLAN_DECODE && mask->extra)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "plan_build: a plan for decoding has an extra mask");
    if (!status)
        status = plan_create(&built, stream, mask, use, err);
    if (status)
        return status;
    if (!old) {
        *plan = &built->base;
        return BAUTA_OK;
    }
    // The plan keeps its address.
    reference_plan swapped = *old;
    *old = *built;
    *built = swapped;
    plan_free(&built->base);
    return BAUTA_OK;
}

/* A plan that serves one of two uses. */
static const reference_plan *plan_of(op_call *c, const bt_attention_plan *plan,
                                     bt_plan_use use, bt_plan_use other)
{
    const reference_plan *p = (const reference_plan *)plan;
    if (!plan || plan->backend != &bt_reference_backend)
        CALL_FAIL(c, "the plan is not of the reference backend");
    else if (p->use != use && p->use != other)
        CALL_FAIL(c, "the plan was built for another use");
    else if (p->stream != c->stream)
        CALL_FAIL(c, "the plan was built for another stream");
    return c->status ? NULL : p;
}

/* ---- Attention --------------------------------------------------------- */

/* Where the keys and values of a row are: in matrices, or in the pages of a
 * block table, whose first token is key `first`. */
typedef struct kv_source {
    const matrix *k, *v;
    const bt_block_table *table;
    size_t layer, first;
} kv_source;

typedef struct attention_shape {
    size_t heads, kv_heads, head_dim, value_dim;
    double scale;
    /* Of the bias; what it has not is 0. */
    double softcap;
    matrix slopes, table;
    ptrdiff_t first_distance;
    const uint32_t *positions;
} attention_shape;

/* Read the bias of an attention of `rows` queries. */
static void bias_inputs(op_call *c, attention_shape *s,
                        const bt_attention_bias *bias, size_t rows)
{
    if (!bias || c->status)
        return;
    s->softcap = (double)bias->softcap;
    s->first_distance = bias->first_distance;
    if (bias->slopes && bias->table)
        CALL_FAIL(c, "the bias has slopes and a table");
    if (bias->slopes)
        s->slopes = input(c, "slopes", bias->slopes, 1, s->heads);
    if (bias->table)
        s->table = input(c, "table", bias->table, ANY, s->heads);
    if (bias->slopes || bias->table)
        s->positions =
            indices_of(c, "positions", bias->positions, rows, SIZE_MAX, NULL);
}

/* The distance from query i to key j. */
static ptrdiff_t distance_of(const attention_shape *s, const bauta_mask *mask,
                             size_t i, size_t j)
{
    return (ptrdiff_t)(j - bauta_mask_origin(mask, i)) -
           (ptrdiff_t)s->positions[i];
}

/* The row of the table for a distance. */
static size_t table_row_of(const attention_shape *s, ptrdiff_t distance)
{
    ptrdiff_t row = distance - s->first_distance;
    ptrdiff_t last = (ptrdiff_t)s->table.rows - 1;
    return (size_t)(row < 0 ? 0 : row > last ? last : row);
}

/* The score of query i and key j by their scaled product x. `slope`, which may
 * be NULL, receives its derivative by x. */
static double score_of(const attention_shape *s, const bauta_mask *mask,
                       size_t i, size_t j, size_t head, double x, double *slope)
{
    double t = s->softcap != 0.0 ? tanh(x / s->softcap) : 0.0;
    if (slope)
        *slope = 1.0 - t * t;
    if (s->softcap != 0.0)
        x = s->softcap * t;
    if (s->slopes.at)
        x += get(&s->slopes, 0, head) * (double)distance_of(s, mask, i, j);
    if (s->table.at)
        x += get(&s->table, table_row_of(s, distance_of(s, mask, i, j)), head);
    return x;
}

/* Pages of this backend: for every key head 64 keys, then 64 values. */
static size_t page_floats(const bt_attention_shape *shape)
{
    return bt_size_mul(bt_size_mul(shape->kv_heads, BT_BLOCK),
                       bt_size_add(shape->head_dim, shape->value_dim));
}

static size_t kv_page_bytes(const bt_attention_shape *shape, bauta_dtype dtype)
{
    return bt_size_mul(page_floats(shape), bt_dtype_size(dtype));
}

/* The contents of a page; NULL, and the call has failed, if it is none. */
static float *page_contents(op_call *c, const bt_kv_page *page,
                            const bt_attention_shape *shape)
{
    size_t bytes = kv_page_bytes(shape, BAUTA_FLOAT32);
    unsigned char *at = page ? buffer_contents(page->buffer) : NULL;
    if (!page)
        CALL_FAIL(c, "a page is NULL");
    else if (!at)
        CALL_FAIL(c, "a page is not in a live buffer of this backend");
    else if (page->offset % sizeof(float) ||
             bt_size_add(page->offset, bytes) > page->buffer->bytes)
        CALL_FAIL(c, "a page of %zu bytes is at %zu of a buffer of %zu", bytes,
                  page->offset, page->buffer->bytes);
    return c->status ? NULL : (float *)(void *)(at + page->offset);
}

static float *page_key(float *page, const bt_attention_shape *s, size_t head,
                       size_t token)
{
    return page + head * BT_BLOCK * (s->head_dim + s->value_dim) +
           token * s->head_dim;
}

static float *page_value(float *page, const bt_attention_shape *s, size_t head,
                         size_t token)
{
    return page_key(page, s, head, BT_BLOCK) + token * s->value_dim;
}

/* Token `token` of a table; its page has been checked. */
static float *table_page(const kv_source *from, size_t token)
{
    const bt_kv_page *page =
        bt_block_table_page(from->table, from->layer, token / BT_BLOCK);
    return (float *)(void *)(buffer_contents(page->buffer) + page->offset);
}

static const float *key_of(const kv_source *from, const attention_shape *s,
                           size_t key, size_t head)
{
    if (!from->table)
        return from->k->at + key * from->k->stride + head * s->head_dim;
    size_t token = key - from->first;
    return page_key(table_page(from, token), &from->table->pool->shape, head,
                    token % BT_BLOCK);
}

static const float *value_of(const kv_source *from, const attention_shape *s,
                             size_t key, size_t head)
{
    if (!from->table)
        return from->v->at + key * from->v->stride + head * s->value_dim;
    size_t token = key - from->first;
    return page_value(table_page(from, token), &from->table->pool->shape, head,
                      token % BT_BLOCK);
}

static double dot(const float *a, const float *b, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static size_t kv_head_of(const attention_shape *s, size_t head)
{
    return head / (s->heads / s->kv_heads);
}

/* One row of one head: scores of the visible keys, softmax, sum of values. A
 * row without a visible key, or with scores of -infinity only, is 0. Returns
 * the log-sum-exp. */
static double attend(const attention_shape *s, const bauta_mask *mask,
                     size_t row, const kv_source *from, const float *q,
                     size_t head, float *out, double *scores, double *sums)
{
    bt_spans spans = bt_mask_spans(mask, row);
    size_t kv = kv_head_of(s, head), n = 0;
    double max = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < spans.count; i++)
        for (size_t j = spans.at[i].lo; j < spans.at[i].hi; j++) {
            double x = s->scale * dot(q, key_of(from, s, j, kv), s->head_dim);
            scores[n] = score_of(s, mask, row, j, head, x, NULL);
            max = scores[n] > max ? scores[n] : max;
            n++;
        }
    memset(sums, 0, s->value_dim * sizeof(*sums));
    n = 0;
    for (size_t i = 0; i < spans.count; i++)
        for (size_t j = spans.at[i].lo; j < spans.at[i].hi; j++) {
            double p = exp(scores[n++] - (max == -INFINITY ? 0.0 : max));
            const float *v = value_of(from, s, j, kv);
            sum += p;
            for (size_t e = 0; e < s->value_dim; e++)
                sums[e] += p * (double)v[e];
        }
    for (size_t e = 0; e < s->value_dim; e++)
        out[e] = sum == 0.0 ? 0.0f : (float)(sums[e] / sum);
    return sum == 0.0 ? -INFINITY : max + log(sum);
}

static void check_heads(op_call *c, size_t heads, size_t kv_heads)
{
    if (!c->status && (heads == 0 || kv_heads == 0 || heads % kv_heads))
        CALL_FAIL(c, "%zu heads over %zu", heads, kv_heads);
}

static double scale_of(float given, size_t head_dim)
{
    return given != 0.0f ? (double)given : 1.0 / sqrt((double)head_dim);
}

/* The shape and the tensors that both passes have. */
typedef struct attention_inputs {
    attention_shape s;
    const reference_plan *plan;
    matrix q, k, v;
} attention_inputs;

static void attention_inputs_of(op_call *c, attention_inputs *in,
                                const reference_plan *plan, size_t heads,
                                size_t kv_heads, float scale,
                                const bt_tensor *q, const bt_tensor *k,
                                const bt_tensor *v,
                                const bt_attention_bias *bias)
{
    in->plan = plan;
    check_heads(c, heads, kv_heads);
    if (c->status)
        return;
    in->q = input_view(c, "q", q, plan->base.rows, ANY);
    in->s.heads = heads;
    in->s.kv_heads = kv_heads;
    in->s.head_dim = head_size(c, in->q.columns, heads);
    in->k = input_view(c, "k", k, plan->base.keys, in->s.head_dim * kv_heads);
    in->v = input_view(c, "v", v, plan->base.keys, ANY);
    in->s.value_dim = head_size(c, in->v.columns, kv_heads);
    in->s.scale = scale_of(scale, in->s.head_dim);
    bias_inputs(c, &in->s, bias, in->q.rows);
}

static bauta_status op_attention(bt_stream *stream, const bt_attention_args *a,
                                 bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_attention, err);
    attention_inputs in = { 0 };
    matrix lse = { 0 };
    const reference_plan *plan =
        plan_of(&c, a->plan, BT_PLAN_FORWARD, BT_PLAN_BACKWARD);
    attention_inputs_of(&c, &in, plan, a->heads, a->kv_heads, a->scale, a->q,
                        a->k, a->v, a->bias);
    const attention_shape *s = &in.s;
    matrix out =
        output_view(&c, "out", a->out, in.q.rows, a->heads * s->value_dim);
    if (a->lse)
        lse = output(&c, "lse", a->lse, in.q.rows, a->heads);
    if (call_failed(&c))
        return c.status;
    double *scores = sums_create(&c, 1, in.k.rows + s->value_dim);
    if (!scores)
        return c.status;
    kv_source from = { .k = &in.k, .v = &in.v };
    for (size_t i = 0; i < in.q.rows; i++)
        for (size_t h = 0; h < a->heads; h++) {
            double row_lse =
                attend(s, plan->mask, i, &from,
                       in.q.at + i * in.q.stride + h * s->head_dim, h,
                       out.at + i * out.stride + h * s->value_dim, scores,
                       scores + in.k.rows);
            if (lse.at)
                put(&lse, i, h, row_lse, false);
        }
    free(scores);
    return BAUTA_OK;
}

/* The operands of the backward pass and the sums of its gradients, which are
 * dense. */
typedef struct attention_gradient {
    attention_inputs in;
    matrix out, lse, dout;
    double *dq, *dk, *dv;
    double *dtable; /* or NULL */
} attention_gradient;

/* The contribution of one row of one head and one key. */
static void attend_pair_grad(attention_gradient *g, size_t i, size_t h,
                             size_t j, double delta)
{
    const attention_shape *s = &g->in.s;
    kv_source from = { .k = &g->in.k, .v = &g->in.v };
    size_t kv = kv_head_of(s, h);
    const float *q = g->in.q.at + i * g->in.q.stride + h * s->head_dim;
    const float *dout = g->dout.at + i * g->dout.stride + h * s->value_dim;
    const float *k = key_of(&from, s, j, kv), *v = value_of(&from, s, j, kv);
    double *dq = g->dq + (i * s->heads + h) * s->head_dim;
    double *dk = g->dk + (j * s->kv_heads + kv) * s->head_dim;
    double *dv = g->dv + (j * s->kv_heads + kv) * s->value_dim;
    double slope, x = s->scale * dot(q, k, s->head_dim);
    const bauta_mask *mask = g->in.plan->mask;
    double score = score_of(s, mask, i, j, h, x, &slope);
    double p = exp(score - get(&g->lse, i, h));
    double raw = p * (dot(dout, v, s->value_dim) - delta);
    double ds = s->scale * slope * raw;
    if (g->dtable)
        g->dtable[table_row_of(s, distance_of(s, mask, i, j)) * s->heads + h] +=
            raw;
    for (size_t d = 0; d < s->head_dim; d++) {
        dq[d] += ds * (double)k[d];
        dk[d] += ds * (double)q[d];
    }
    for (size_t e = 0; e < s->value_dim; e++)
        dv[e] += p * (double)dout[e];
}

static void attend_row_grad(attention_gradient *g, size_t i, size_t h)
{
    const attention_shape *s = &g->in.s;
    bt_spans spans = bt_mask_spans(g->in.plan->mask, i);
    if (get(&g->lse, i, h) == -INFINITY)
        return; // nothing was attended to
    double delta =
        dot(g->dout.at + i * g->dout.stride + h * s->value_dim,
            g->out.at + i * g->out.stride + h * s->value_dim, s->value_dim);
    for (size_t n = 0; n < spans.count; n++)
        for (size_t j = spans.at[n].lo; j < spans.at[n].hi; j++)
            attend_pair_grad(g, i, h, j, delta);
}

static bauta_status op_attention_grad(bt_stream *stream,
                                      const bt_attention_grad_args *a,
                                      bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_attention_grad, err);
    attention_gradient g = { 0 };
    const attention_inputs *in = &g.in;
    const reference_plan *plan =
        plan_of(&c, a->plan, BT_PLAN_BACKWARD, BT_PLAN_BACKWARD);
    attention_inputs_of(&c, &g.in, plan, a->heads, a->kv_heads, a->scale, a->q,
                        a->k, a->v, a->bias);
    size_t out_columns = a->heads * in->s.value_dim;
    g.out = input_view(&c, "out", a->out, in->q.rows, out_columns);
    g.lse = input(&c, "lse", a->lse, in->q.rows, a->heads);
    g.dout = input_view(&c, "dout", a->dout, in->q.rows, out_columns);
    matrix dq = output_view(&c, "dq", a->dq, in->q.rows, in->q.columns);
    matrix dk = output_view(&c, "dk", a->dk, in->k.rows, in->k.columns);
    matrix dv = output_view(&c, "dv", a->dv, in->v.rows, in->v.columns);
    matrix dtable = { 0 };
    if (a->dtable && !in->s.table.at && !c.status)
        CALL_FAIL(&c, "dtable without a table");
    if (a->dtable)
        dtable = output(&c, "dtable", a->dtable, in->s.table.rows, a->heads);
    if (call_failed(&c))
        return c.status;
    g.dq = sums_create(&c, dq.rows, dq.columns);
    g.dk = sums_create(&c, dk.rows, dk.columns);
    g.dv = sums_create(&c, dv.rows, dv.columns);
    if (a->dtable)
        g.dtable = sums_create(&c, dtable.rows, dtable.columns);
    if (!c.status) {
        for (size_t i = 0; i < in->q.rows; i++)
            for (size_t h = 0; h < a->heads; h++)
                attend_row_grad(&g, i, h);
        put_all(&dq, g.dq, false);
        put_all(&dk, g.dk, false);
        put_all(&dv, g.dv, false);
        if (a->dtable)
            put_all(&dtable, g.dtable, a->add_dtable);
    }
    free(g.dtable);
    free(g.dq);
    free(g.dk);
    free(g.dv);
    return c.status;
}

/* ---- The KV cache ------------------------------------------------------ */

/* The pool of a batch; NULL if it has no sequence or the call has failed. */
static const bt_kv_pool *pool_of(op_call *c, const bt_kv_batch *batch,
                                 size_t layer)
{
    const bt_kv_pool *pool =
        batch->count ? batch->sequences[0].table->pool : NULL;
    for (size_t i = 0; i < batch->count; i++) {
        const bt_block_table *table = batch->sequences[i].table;
        if (table->pool != pool)
            CALL_FAIL(c, "the block tables have different pools");
        if (layer >= table->layers)
            CALL_FAIL(c, "layer %zu of a block table of %zu", layer,
                      table->layers);
    }
    if (pool && !is_reference(pool->backend))
        CALL_FAIL(c, "the pages are of another backend");
    if (pool && pool->dtype != BAUTA_FLOAT32)
        call_unsupported(c, pool->dtype);
    return c->status ? NULL : pool;
}

/* Page of a token; NULL, and the call has failed, if there is none. */
static float *page_of_token(op_call *c, const bt_block_table *table,
                            size_t layer, size_t token)
{
    size_t block = token / BT_BLOCK;
    if (block >= table->blocks) {
        CALL_FAIL(c, "token %zu of a block table of %zu blocks", token,
                  table->blocks);
        return NULL;
    }
    return page_contents(c, bt_block_table_page(table, layer, block),
                         &table->pool->shape);
}

static void write_token(op_call *c, const bt_block_table *table, size_t layer,
                        size_t token, const float *k, const float *v)
{
    const bt_attention_shape *s = &table->pool->shape;
    float *page = page_of_token(c, table, layer, token);
    for (size_t h = 0; page && h < s->kv_heads; h++) {
        memcpy(page_key(page, s, h, token % BT_BLOCK), k + h * s->head_dim,
               s->head_dim * sizeof(float));
        memcpy(page_value(page, s, h, token % BT_BLOCK), v + h * s->value_dim,
               s->value_dim * sizeof(float));
    }
}

/* Rotated keys, which the caller frees, and the rotated queries where they
 * belong. */
static matrix rotate_for_pages(op_call *c, const bt_kv_write_args *a,
                               const matrix *k, size_t dim)
{
    matrix turned = { NULL, k->rows, k->columns, k->columns };
    matrix q = input_view(c, "q", a->q, k->rows, a->heads * dim);
    matrix q_out = output_view(c, "q_out", a->q_out, k->rows, a->heads * dim);
    const uint32_t *positions =
        column_of(c, "positions", a->positions, BAUTA_UINT32, k->rows, false);
    matrix frequencies = input(c, "frequencies", a->frequencies, 1, dim / 2);
    if (call_failed(c))
        return turned;
    turned.at = malloc((k->rows * k->columns + 1) * sizeof(float));
    if (!turned.at) {
        CALL_FAIL(c, "no memory for %zu keys", k->rows);
        return turned;
    }
    rotate(&q, &q_out, positions, &frequencies, false, false);
    rotate(k, &turned, positions, &frequencies, false, false);
    return turned;
}

static bauta_status op_kv_write(bt_stream *stream, const bt_kv_write_args *a,
                                bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_kv_write, err);
    const bt_kv_pool *pool = pool_of(&c, a->batch, a->layer);
    if (c.status || !pool)
        return c.status;
    const bt_attention_shape *s = &pool->shape;
    matrix k = input_view(&c, "k", a->k, ANY, s->kv_heads * s->head_dim);
    matrix v = input_view(&c, "v", a->v, k.rows, s->kv_heads * s->value_dim);
    matrix turned = { 0 };
    if (a->q)
        turned = rotate_for_pages(&c, a, &k, s->head_dim);
    if (call_failed(&c)) {
        free(turned.at);
        return c.status;
    }
    k = a->q ? turned : k;
    for (size_t i = 0; i < a->batch->count; i++) {
        const bt_kv_sequence *part = &a->batch->sequences[i];
        if (bt_size_add(part->row, part->rows) > k.rows)
            CALL_FAIL(&c, "sequence %zu has rows %zu to %zu, k has %zu", i,
                      part->row, part->row + part->rows, k.rows);
        for (size_t r = 0; r < part->rows && !c.status; r++)
            write_token(&c, part->table, a->layer, part->table->tokens + r,
                        k.at + (part->row + r) * k.stride,
                        v.at + (part->row + r) * v.stride);
    }
    free(turned.at);
    return c.status;
}

static bauta_status op_kv_copy(bt_stream *stream, const bt_kv_copy_args *a,
                               bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_kv_copy, err);
    const bt_attention_shape *s = &a->pool->shape;
    if (a->pool->dtype != BAUTA_FLOAT32)
        call_unsupported(&c, a->pool->dtype);
    for (size_t i = 0; i < a->count && !c.status; i++) {
        const bt_kv_copy_item *item = &a->items[i];
        float *from = page_contents(&c, item->from, s);
        float *to = page_contents(&c, item->to, s);
        if (!c.status && from == to)
            CALL_FAIL(&c, "item %zu copies a page to itself", i);
        if (item->tokens > BT_BLOCK)
            CALL_FAIL(&c, "item %zu copies %zu tokens", i, item->tokens);
        for (size_t h = 0; h < s->kv_heads && !c.status; h++) {
            memcpy(page_key(to, s, h, 0), page_key(from, s, h, 0),
                   item->tokens * s->head_dim * sizeof(float));
            memcpy(page_value(to, s, h, 0), page_value(from, s, h, 0),
                   item->tokens * s->value_dim * sizeof(float));
        }
    }
    return c.status;
}

/* The plan's sequences are the tables, in order, and as long; every page that
 * a row sees exists. */
static void check_tables(op_call *c, const reference_plan *plan,
                         const bt_kv_batch *batch, size_t layer)
{
    size_t row = 0, key = 0;
    if (plan->count != batch->count)
        CALL_FAIL(c, "the plan has %zu sequences, there are %zu block tables",
                  plan->count, batch->count);
    for (size_t i = 0; i < batch->count && !c->status; i++) {
        const bt_kv_sequence *part = &batch->sequences[i];
        size_t tokens = part->table->tokens + part->rows;
        if (plan->keys[i] != tokens)
            CALL_FAIL(c, "sequence %zu has %zu keys in the plan and %zu tokens",
                      i, plan->keys[i], tokens);
        for (size_t r = row; r < row + plan->rows[i]; r++) {
            bt_spans spans = bt_mask_spans(plan->mask, r);
            for (size_t n = 0; n < spans.count; n++)
                for (size_t j = spans.at[n].lo;
                     j < spans.at[n].hi && !c->status; j++)
                    page_of_token(c, part->table, layer, j - key);
        }
        row += plan->rows[i];
        key += plan->keys[i];
    }
}

static void attend_sequence(const attention_shape *s,
                            const reference_plan *plan, const kv_source *from,
                            size_t row, size_t rows, const matrix *q,
                            const matrix *out, double *scores)
{
    for (size_t i = row; i < row + rows; i++)
        for (size_t h = 0; h < s->heads; h++)
            attend(s, plan->mask, i, from,
                   q->at + i * q->stride + h * s->head_dim, h,
                   out->at + i * out->stride + h * s->value_dim, scores,
                   scores + plan->base.keys);
}

static bauta_status op_paged_attention(bt_stream *stream,
                                       const bt_paged_attention_args *a,
                                       bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_paged_attention, err);
    const reference_plan *plan =
        plan_of(&c, a->plan, BT_PLAN_DECODE, BT_PLAN_DECODE);
    const bt_kv_pool *pool = pool_of(&c, a->batch, a->layer);
    check_heads(&c, a->heads, a->kv_heads);
    if (!c.status)
        check_tables(&c, plan, a->batch, a->layer);
    if (c.status || !pool)
        return c.status;
    const bt_attention_shape *p = &pool->shape;
    if (p->kv_heads != a->kv_heads)
        CALL_FAIL(&c, "%zu key heads, the pages have %zu", a->kv_heads,
                  p->kv_heads);
    attention_shape s = { .heads = a->heads,
                          .kv_heads = a->kv_heads,
                          .head_dim = p->head_dim,
                          .value_dim = p->value_dim,
                          .scale = scale_of(a->scale, p->head_dim) };
    bias_inputs(&c, &s, a->bias, plan->base.rows);
    matrix q =
        input_view(&c, "q", a->q, plan->base.rows, a->heads * p->head_dim);
    matrix out =
        output_view(&c, "out", a->out, q.rows, a->heads * p->value_dim);
    double *scores = call_failed(&c)
                         ? NULL
                         : sums_create(&c, 1, plan->base.keys + p->value_dim);
    if (!scores)
        return c.status;
    kv_source from = { .layer = a->layer };
    for (size_t i = 0, row = 0; i < plan->count; row += plan->rows[i++]) {
        from.table = a->batch->sequences[i].table;
        attend_sequence(&s, plan, &from, row, plan->rows[i], &q, &out, scores);
        from.first += plan->keys[i];
    }
    free(scores);
    return BAUTA_OK;
}

/* ---- Loss -------------------------------------------------------------- */

/* After an operation that leaves a tensor undefined nobody may use it. */
static void poison(const matrix *m)
{
    for (size_t i = 0; i < m->rows; i++)
        memset(m->at + i * m->stride, POISON, m->columns * sizeof(float));
}

/* The loss of a row, and its gradient in place of the logits, as in
 * autograd/cross_entropy.c. */
static double cross_entropy_row(const bt_cross_entropy_args *a,
                                const matrix *logits, size_t row, size_t label,
                                double weight)
{
    double n = (double)logits->columns, s = a->smoothing;
    double max = -INFINITY, sum = 0.0, mean = 0.0;
    double picked = get(logits, row, label), share = a->share * weight;
    for (size_t j = 0; j < logits->columns; j++)
        max = get(logits, row, j) > max ? get(logits, row, j) : max;
    for (size_t j = 0; j < logits->columns; j++) {
        sum += exp(get(logits, row, j) - max);
        mean += get(logits, row, j) / n;
    }
    double lse = max + log(sum), value = lse - picked;
    for (size_t j = 0; j < logits->columns && a->gradient; j++) {
        double p = exp(get(logits, row, j) - max) / sum;
        double target = s / n + (j == label ? 1.0 - s : 0.0);
        put(logits, row, j, share * (p - target), false);
    }
    return weight * (s > 0.0 ? (1.0 - s) * value + s * (lse - mean) : value);
}

static bauta_status op_cross_entropy(bt_stream *stream,
                                     const bt_cross_entropy_args *a,
                                     bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_cross_entropy, err);
    matrix logits = output_view(&c, "logits", a->logits, ANY, ANY),
           weights = { 0 };
    const uint32_t *labels =
        indices_of(&c, "labels", a->labels, logits.rows, logits.columns, NULL);
    if (a->weights)
        weights = input(&c, "weights", a->weights, logits.rows, 1);
    double *losses =
        column_of(&c, "losses", a->losses, BAUTA_FLOAT64, logits.rows, true);
    if (!(a->smoothing >= 0.0 && a->smoothing <= 1.0))
        CALL_FAIL(&c, "smoothing is %g", a->smoothing);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < logits.rows; i++)
        losses[i] = cross_entropy_row(a, &logits, i, labels[i],
                                      weights.at ? get(&weights, i, 0) : 1.0);
    if (!a->gradient)
        poison(&logits);
    return BAUTA_OK;
}

/* The bits are defined by cpu/sampling.h. */
static bauta_status op_logprobs(bt_stream *stream, const bt_logprobs_args *a,
                                bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_logprobs, err);
    matrix logits = output_view(&c, "logits", a->logits, ANY, ANY);
    const uint32_t *labels =
        indices_of(&c, "labels", a->labels, logits.rows, logits.columns, NULL);
    float *logprobs = column_of(&c, "logprobs", a->logprobs, BAUTA_FLOAT32,
                                logits.rows, true);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < logits.rows; i++) {
        float *z = logits.at + i * logits.stride, picked = z[labels[i]];
        logprobs[i] =
            picked -
            bt_row_stats_of(bt_kernels_get("c"), z, logits.columns, z).lse;
    }
    poison(&logits);
    return BAUTA_OK;
}

/* ---- Sampling ---------------------------------------------------------- */

/* The bits are defined by cpu/sampling.h. */
static bt_sampler_scratch scratch_create(size_t vocab, size_t choices,
                                         size_t beams)
{
    size_t capacity = choices > vocab ? choices : vocab;
    bt_sampler_scratch s = { .kernels = bt_kernels_get("c"), .vocab = vocab };
    s.work = calloc(vocab + 1, sizeof(float));
    s.exps = calloc(vocab + 1, sizeof(float));
    s.maxima = calloc(vocab / BT_TOPK_BLOCK + 1, sizeof(float));
    s.marks = calloc(vocab + 1, 1);
    s.topk = calloc(capacity + 1, sizeof(*s.topk));
    s.lse = calloc(beams + 1, sizeof(float));
    s.topk_capacity = capacity;
    if (!s.work || !s.exps || !s.maxima || !s.marks || !s.topk || !s.lse)
        abort();
    return s;
}

static void scratch_free(bt_sampler_scratch *s)
{
    free(s->work);
    free(s->exps);
    free(s->maxima);
    free(s->marks);
    free(s->topk);
    free(s->lse);
}

static bauta_status op_sample(bt_stream *stream, const bt_sample_args *a,
                              bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_sample, err);
    matrix logits = input_view(&c, "logits", a->logits, ANY, ANY);
    if (call_failed(&c))
        return c.status;
    bt_sampler_scratch s = scratch_create(logits.columns, 0, 0);
    for (size_t i = 0; i < a->count; i++) {
        bt_sample_item *item = &a->items[i];
        item->status =
            bt_sample(&item->token, &s, logits.at + item->row * logits.stride,
                      item->options, &item->history);
    }
    scratch_free(&s);
    return BAUTA_OK;
}

static bauta_status op_beam(bt_stream *stream, const bt_beam_args *a,
                            bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_beam, err);
    matrix logits = input_view(&c, "logits", a->logits, ANY, ANY);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < a->count; i++) {
        bt_beam_item *item = &a->items[i];
        bt_sampler_scratch s =
            scratch_create(logits.columns, item->want, item->beams);
        bt_beam_rows rows = { .beams = item->beams,
                              .rows = logits.at + item->row * logits.stride,
                              .stride = logits.stride,
                              .scores = item->scores,
                              .options = item->options,
                              .histories = item->histories,
                              .want = item->want,
                              .choices = item->choices };
        item->status = bt_beam_rows_select(&rows, &s);
        item->count = rows.count;
        scratch_free(&s);
    }
    return BAUTA_OK;
}

/* ---- Optimizer --------------------------------------------------------- */

typedef struct adamw_operands {
    matrix p, m, v, g;
    matrix copy; /* of p: the parameter, if it has a master */
} adamw_operands;

/* The operands of one parameter. */
static adamw_operands adamw_slot_of(op_call *c, const bt_adamw_slot *slot)
{
    adamw_operands o = { 0 };
    c->count = 0;
    o.p = output(c, "parameter", slot->parameter, ANY, ANY);
    if (c->status)
        return o;
    bt_tensor gradient = bt_tensor_grad(slot->parameter);
    o.g = input(c, "gradient", &gradient, o.p.rows, o.p.columns);
    if (slot->master.buffer) {
        o.copy = o.p;
        o.p = output(c, "master", &slot->master, o.copy.rows, o.copy.columns);
    }
    o.m = output(c, "first moment", &slot->first, o.p.rows, o.p.columns);
    o.v = output(c, "second moment", &slot->second, o.p.rows, o.p.columns);
    call_failed(c);
    return o;
}

/* Of elements `from` to `from + count - 1`, row by row. */
static double sum_of_squares(const matrix *m, size_t from, size_t count)
{
    double sum = 0.0;
    for (size_t k = from; k < from + count; k++) {
        double x = get(m, k / m->columns, k % m->columns);
        sum += x * x;
    }
    return sum;
}

/* The squares of all pieces of the gradients; the caller frees them. */
static double *piece_squares(op_call *c, const bt_adamw_args *a, size_t *count)
{
    double *squares = NULL;
    *count = 0;
    for (size_t i = 0; i < a->count && !c->status; i++) {
        adamw_operands o = adamw_slot_of(c, &a->slots[i]);
        size_t all = c->status ? 0 : o.g.rows * o.g.columns;
        size_t pieces = (all + BT_ADAMW_PIECE - 1) / BT_ADAMW_PIECE;
        squares = realloc(squares, (*count + pieces + 1) * sizeof(*squares));
        if (!squares)
            abort();
        for (size_t from = 0; from < all; from += BT_ADAMW_PIECE) {
            size_t left = all - from;
            squares[(*count)++] = sum_of_squares(
                &o.g, from, left < BT_ADAMW_PIECE ? left : BT_ADAMW_PIECE);
        }
    }
    return squares;
}

/* The sum of all squares, of other ranks among them. */
static double square_sum(op_call *c, const bt_adamw_args *a)
{
    size_t count;
    double sum = 0.0, *squares = piece_squares(c, a, &count);
    if (!c->status && a->square_sum)
        c->status = a->square_sum->add(a->square_sum->user, squares, count,
                                       &sum, c->err);
    for (size_t i = 0; !a->square_sum && i < count; i++)
        sum += squares[i];
    free(squares);
    return sum;
}

/* As kernels/pointwise.h, in double. */
static void adamw_update(const adamw_operands *o, const bt_adamw_args *a,
                         double clip, double decay)
{
    const bt_optimizer_options *options = a->options;
    double t = (double)a->step, w1 = 1.0 - options->beta1;
    double root = sqrt(1.0 - pow(options->beta2, t));
    double step = a->learning_rate / (1.0 - pow(options->beta1, t));
    for (size_t i = 0; i < o->p.rows; i++)
        for (size_t j = 0; j < o->p.columns; j++) {
            double g = get(&o->g, i, j) * clip, old = get(&o->m, i, j);
            double m = old + w1 * (g - old);
            double v = get(&o->v, i, j) * options->beta2 +
                       (1.0 - options->beta2) * g * g;
            double p = get(&o->p, i, j) * (1.0 - a->learning_rate * decay);
            put(&o->p, i, j, p - step * m / (sqrt(v) / root + options->epsilon),
                false);
            if (o->copy.at)
                put(&o->copy, i, j, get(&o->p, i, j), false);
            put(&o->m, i, j, m, false);
            put(&o->v, i, j, v, false);
        }
}

static bauta_status op_adamw(bt_stream *stream, const bt_adamw_args *a,
                             bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_adamw, err);
    double squares = 0.0;
    if (!a->norm || !a->options || a->step == 0)
        CALL_FAIL(&c, "norm, options or the number of the step are missing");
    if (!c.status)
        squares = square_sum(&c, a);
    if (c.status)
        return c.status;
    double norm = sqrt(squares), clip = 1.0, most = a->options->max_grad_norm;
    *a->norm = norm;
    if (!isfinite(norm))
        return BAUTA_OK;
    if (most > 0.0 && most / (norm + 1e-6) < 1.0)
        clip = most / (norm + 1e-6);
    for (size_t i = 0; i < a->count && !c.status; i++) {
        adamw_operands o = adamw_slot_of(&c, &a->slots[i]);
        adamw_update(&o, a, clip,
                     a->slots[i].decay ? a->options->weight_decay : 0.0);
    }
    return c.status;
}

static bauta_status op_ema(bt_stream *stream, const bt_ema_args *a,
                           bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_ema, err);
    matrix average = output(&c, "average", a->average, ANY, ANY);
    matrix x = input(&c, "x", a->x, average.rows, average.columns);
    if (call_failed(&c))
        return c.status;
    for (size_t i = 0; i < x.rows; i++)
        for (size_t j = 0; j < x.columns; j++)
            put(&average, i, j,
                (double)a->keep * get(&average, i, j) +
                    (double)a->take * get(&x, i, j),
                false);
    return BAUTA_OK;
}

/* Of any type. */
static bauta_status op_swap(bt_stream *stream, const bt_swap_args *args,
                            bauta_error *err)
{
    op_call c = call_begin(stream, BT_OP_swap, err);
    const bt_tensor *a = args->a, *b = args->b;
    bauta_dtype dtype = a ? a->dtype : BAUTA_FLOAT32;
    unsigned char *x = operand_of(&c, "a", a, dtype, ANY, ANY, true);
    unsigned char *y = operand_of(&c, "b", b, dtype, c.status ? ANY : a->rows,
                                  c.status ? ANY : a->columns, true);
    if (call_failed(&c))
        return c.status;
    size_t size = bt_dtype_size(dtype);
    for (size_t i = 0; i < a->rows; i++)
        for (size_t j = 0; j < a->columns * size; j++) {
            unsigned char *p = x + i * a->stride * size + j, kept = *p;
            unsigned char *q = y + i * b->stride * size + j;
            *p = *q;
            *q = kept;
        }
    return BAUTA_OK;
}

/* ---- Streams and the table --------------------------------------------- */

static bauta_status stream_create(bt_stream **out, bauta_error *err)
{
    bt_stream *stream = calloc(1, sizeof(*stream));
    *out = NULL;
    if (!stream)
        return bt_fail_memory(err, "a stream", sizeof(*stream));
    stream->backend = &bt_reference_backend;
    stream->dtype = BAUTA_FLOAT32;
    snprintf(stream->device, sizeof(stream->device), "reference");
    *out = stream;
    return BAUTA_OK;
}

static bauta_status stream_fork(bt_stream **out, bt_stream *stream,
                                bauta_error *err)
{
    bauta_status status = check_stream(stream, "stream_fork", err);
    *out = NULL;
    if (!status)
        status = stream_create(out, err);
    if (!status)
        (*out)->dtype = stream->dtype;
    return status;
}

static void stream_free(bt_stream *stream)
{
    free(stream);
}

static bauta_status stream_sync(bt_stream *stream, bauta_error *err)
{
    return check_stream(stream, "sync", err);
}

static bool supports(const bt_stream *stream, bt_op op, bauta_dtype dtype,
                     const bt_op_shape *shape)
{
    if (op == BT_OP_swap)
        return true;
    if (op == BT_OP_accumulate)
        return converts(dtype);
    if (op == BT_OP_rotary && shape && shape->head_dim % 2)
        return false;
    return dtype == BAUTA_FLOAT32 || dtype == stream->dtype;
}

#define ENTRY(name)                                                        \
    static bauta_status run_##name(                                        \
        bt_stream *stream, const bt_##name##_args *args, bauta_error *err) \
    {                                                                      \
        return operation_end(op_##name(stream, args, err));                \
    }
BT_OP_MAP(ENTRY)

#define SLOT(name) .name = run_##name,
const bt_backend bt_reference_backend = {
    .name = "reference",
    .host_visible = false,
    .logits_rows = 7, /* small, so that tests have several parts */
    .strided = true,
    .fusions = BT_FUSE_LINEAR_ACT | BT_FUSE_ADD_NORM | BT_FUSE_ROTARY_KV_WRITE,
    .stream_fork = stream_fork,
    .stream_free = stream_free,
    .sync = stream_sync,
    .alloc = memory_alloc,
    .free = memory_free,
    .upload = memory_upload,
    .download = memory_download,
    .fill = memory_fill,
    .plan_build = plan_build,
    .plan_free = plan_free,
    .kv_page_bytes = kv_page_bytes,
    .supports = supports,
    BT_OP_MAP(SLOT)
};

static bauta_status driver_open(bt_stream **out, int number,
                                const bauta_options *options, bauta_error *err)
{
    *out = NULL;
    if (number > 0) // -1: no number was given
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there is no device reference:%d", number);
    bauta_status status = stream_create(out, err);
    if (!status && options && options->dtype == BAUTA_BFLOAT16)
        (*out)->dtype = BAUTA_BFLOAT16;
    return status;
}

const bt_device_driver bt_reference_driver = { "reference", driver_open };

/* ---- Host access ------------------------------------------------------- */

static sigjmp_buf after_fault;

static void on_fault(int number)
{
    (void)number;
    siglongjmp(after_fault, 1);
}

static bool access_faults(volatile unsigned char *at, bool write)
{
    if (sigsetjmp(after_fault, 1))
        return true;
    if (write)
        *at = 0;
    else
        (void)*at;
    return false;
}

bool reference_backend_catches_host_access(void)
{
    struct sigaction catch = { .sa_handler = on_fault }, before[2];
    bt_stream *stream = NULL;
    bt_buffer buffer = { 0 };
    bool caught = false;
    if (stream_create(&stream, NULL))
        return false;
    if (!memory_alloc(stream, &buffer, 100, NULL)) {
        sigaction(SIGSEGV, &catch, &before[0]);
        sigaction(SIGBUS, &catch, &before[1]);
        caught = access_faults(buffer.memory, false) &&
                 access_faults(buffer.memory, true) &&
                 access_faults((unsigned char *)buffer.memory + 99, false);
        sigaction(SIGSEGV, &before[0], NULL);
        sigaction(SIGBUS, &before[1], NULL);
    }
    memory_free(&buffer);
    stream_free(stream);
    return caught;
}
