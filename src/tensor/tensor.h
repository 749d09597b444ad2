/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - buffers and matrices, on any device.
 *
 * A buffer is memory of a backend. Its address means something to the backend
 * alone: data enters and leaves by upload and download (backend.h). A tensor is
 * a matrix in a buffer, or in a part of one. */
#ifndef BT_TENSOR_H
#define BT_TENSOR_H

#include "tensor/dtype.h"

#include <stdint.h>

typedef struct bt_buffer {
    const struct bt_backend *backend; /* that it belongs to */
    void *memory;                     /* the backend's address of it */
    size_t bytes;
} bt_buffer;

/* A matrix: element (i, j) is element offset + i * stride + j of its buffer.
 * Outputs of ops are dense, except columns of one that several layers made
 * together; a parameter may be a view of some columns of a larger one. The
 * gradient has the same shape and stride. That of a parameter accumulates from
 * step to step. */
typedef struct bt_tensor {
    size_t rows, columns, stride;
    bauta_dtype dtype, grad_dtype;
    const bt_buffer *buffer; /* NULL: there is no data */
    size_t offset;
    const bt_buffer *grad; /* NULL until there is a gradient */
    size_t grad_offset;
    bool requires_grad; /* requires a gradient: a parameter, or computed from
                           one */
    /* The output of which this is some columns, whose gradient has this one's
     * at the same place; or NULL. */
    struct bt_tensor *whole;
    /* Packed weights of a parameter that is only read, possibly rounded;
     * `buffer` is then NULL. */
    const struct bt_packed_weight *packed;
} bt_tensor;

/* A dense tensor at the start of a buffer. */
static inline void bt_tensor_init(bt_tensor *t, const bt_buffer *buffer,
                                  bauta_dtype dtype, size_t rows,
                                  size_t columns)
{
    *t = (bt_tensor){ .rows = rows,
                      .columns = columns,
                      .stride = columns,
                      .dtype = dtype,
                      .grad_dtype = dtype,
                      .buffer = buffer };
}

static inline bt_tensor bt_tensor_of(const bt_buffer *buffer, bauta_dtype dtype,
                                     size_t rows, size_t columns)
{
    bt_tensor t;
    bt_tensor_init(&t, buffer, dtype, rows, columns);
    return t;
}

/* The gradient of a tensor as a tensor of its own. */
static inline bt_tensor bt_tensor_grad(const bt_tensor *t)
{
    return (bt_tensor){ .rows = t->rows,
                        .columns = t->columns,
                        .stride = t->stride,
                        .dtype = t->grad_dtype,
                        .buffer = t->grad,
                        .offset = t->grad_offset };
}

/* Rows first to first + count - 1, without the gradient. */
static inline bt_tensor bt_tensor_rows(const bt_tensor *t, size_t first,
                                       size_t count)
{
    bt_tensor part = *t;
    part.rows = count;
    part.offset += first * t->stride;
    part.grad = NULL;
    part.requires_grad = false;
    part.whole = NULL;
    return part;
}

static inline bool bt_tensor_dense(const bt_tensor *t)
{
    return t->stride == t->columns || t->rows <= 1;
}

#endif
