/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h - tensors that a test owns. */
#ifndef BT_TEST_PARAMETERS_H
#define BT_TEST_PARAMETERS_H

#include "guard_page.h"
#include "host_tensors.h"

/* A buffer in memory of its own. */
static inline const bt_buffer *host_buffer_create(size_t floats)
{
    bt_buffer *buffer = malloc(sizeof(*buffer));
    float *memory = malloc(floats * sizeof(float) + 1);
    assert_true(buffer && memory);
    *buffer = bt_buffer_of_host(memory, floats * sizeof(float));
    return buffer;
}

/* NULL is allowed. */
static inline void host_buffer_free(const bt_buffer *buffer)
{
    if (buffer)
        free(buffer->memory);
    free((void *)(uintptr_t)buffer);
}

/* A parameter: random data, and a gradient that is not zero, as from an earlier
 * part of the batch. */
static inline bt_tensor parameter_create(test_random *r, size_t rows,
                                         size_t columns)
{
    bt_tensor t = bt_tensor_of(host_buffer_create(rows * columns),
                               BAUTA_FLOAT32, rows, columns);
    t.grad = host_buffer_create(rows * columns);
    t.requires_grad = true;
    floats_fill(r, tensor_data(&t), rows * columns);
    floats_fill(r, tensor_gradient(&t), rows * columns);
    return t;
}

/* Free the gradient, so that the tape creates one on demand. */
static inline void parameter_drop_gradient(bt_tensor *t)
{
    host_buffer_free(t->grad);
    t->grad = NULL;
}

/* An input: the same without a gradient of its own. */
static inline bt_tensor input_create(test_random *r, size_t rows,
                                     size_t columns)
{
    bt_tensor t = parameter_create(r, rows, columns);
    parameter_drop_gradient(&t);
    return t;
}

static inline size_t tensor_count(const bt_tensor *t)
{
    return t->rows * t->columns;
}

/* The same numbers in memory of their own. */
static inline bt_tensor parameter_copy(const bt_tensor *from)
{
    size_t count = tensor_count(from);
    bt_tensor t = *from;
    t.buffer = host_buffer_create(count);
    t.offset = 0;
    memcpy(tensor_data(&t), tensor_data(from), count * sizeof(float));
    if (from->grad) {
        t.grad = host_buffer_create(count);
        t.grad_offset = 0;
        memcpy(tensor_gradient(&t), tensor_gradient(from),
               count * sizeof(float));
    }
    return t;
}

static inline void parameter_free(bt_tensor *t)
{
    host_buffer_free(t->buffer);
    host_buffer_free(t->grad);
    *t = (bt_tensor){ 0 };
}

static inline void input_free(bt_tensor *t)
{
    t->grad = NULL; // it was the tape's
    parameter_free(t);
}

/* Columns first to first + columns - 1 of a matrix, as a tensor. */
static inline bt_tensor matrix_part(const bt_tensor *whole, size_t first,
                                    size_t columns)
{
    bt_tensor t = *whole;
    t.columns = columns;
    t.offset += first;
    t.grad_offset += first;
    return t;
}

/* Rows first to first + rows - 1 with their gradient. */
static inline bt_tensor rows_part(const bt_tensor *whole, size_t first,
                                  size_t rows)
{
    bt_tensor t = *whole;
    t.rows = rows;
    t.offset += first * t.stride;
    t.grad_offset += first * t.stride;
    return t;
}

/* Copy a matrix and its gradient over columns of a larger one. */
static inline void matrix_put(bt_tensor *whole, size_t first,
                              const bt_tensor *part)
{
    bt_tensor to = matrix_part(whole, first, part->columns);
    for (size_t row = 0; row < part->rows; row++) {
        size_t bytes = part->columns * sizeof(float);
        memcpy(tensor_data(&to) + row * to.stride,
               tensor_data(part) + row * part->stride, bytes);
        memcpy(tensor_gradient(&to) + row * to.stride,
               tensor_gradient(part) + row * part->stride, bytes);
    }
}

static inline void assert_tape_fails(const bt_tape *tape, const char *message)
{
    bauta_error err = { 0 };
    assert_int_equal(bt_tape_status(tape, &err), BAUTA_ERR_ARGUMENT);
    assert_string_equal(err.message, message);
}

/* The bound of n roundings in a row, as a factor: Higham, Accuracy and
 * Stability of Numerical Algorithms, 3.1; with some room for the double
 * precision that it is measured in. */
static inline double gamma_n(size_t n)
{
    double nu = (double)n * 0x1p-24;
    return nu / (1.0 - nu) * (1.0 + 0x1p-20);
}

#endif
