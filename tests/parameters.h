/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.h - tensors that a test owns, and a tape for them. */
#ifndef BT_TEST_PARAMETERS_H
#define BT_TEST_PARAMETERS_H

#include "autograd/tape.h"
#include "guard_page.h"

/* A parameter: random data, and a gradient that is not zero, as from an earlier
 * part of the batch. */
static inline bt_tensor parameter_create(test_random *r, size_t rows,
                                         size_t columns)
{
    bt_tensor t = { .rows = rows,
                    .columns = columns,
                    .stride = columns,
                    .requires_grad = true };
    t.data = malloc(rows * columns * sizeof(float) + 1);
    t.grad = malloc(rows * columns * sizeof(float) + 1);
    assert_true(t.data && t.grad);
    floats_fill(r, t.data, rows * columns);
    floats_fill(r, t.grad, rows * columns);
    return t;
}

/* An input: the same without a gradient of its own; the tape creates one on
 * demand. */
static inline bt_tensor input_create(test_random *r, size_t rows,
                                     size_t columns)
{
    bt_tensor t = parameter_create(r, rows, columns);
    free(t.grad);
    t.grad = NULL;
    return t;
}

static inline size_t tensor_count(const bt_tensor *t)
{
    return t->rows * t->columns;
}

/* The same numbers in memory of their own. */
static inline bt_tensor parameter_copy(const bt_tensor *from)
{
    size_t bytes = tensor_count(from) * sizeof(float);
    bt_tensor t = *from;
    t.data = malloc(bytes + 1);
    assert_non_null(t.data);
    memcpy(t.data, from->data, bytes);
    if (from->grad) {
        t.grad = malloc(bytes + 1);
        assert_non_null(t.grad);
        memcpy(t.grad, from->grad, bytes);
    }
    return t;
}

static inline void parameter_free(bt_tensor *t)
{
    free(t->data);
    free(t->grad);
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
    t.data += first;
    t.grad += first;
    return t;
}

/* Copy a matrix and its gradient over columns of a larger one. */
static inline void matrix_put(bt_tensor *whole, size_t first,
                              const bt_tensor *part)
{
    bt_tensor to = matrix_part(whole, first, part->columns);
    for (size_t row = 0; row < part->rows; row++) {
        size_t bytes = part->columns * sizeof(float);
        memcpy(to.data + row * to.stride, part->data + row * part->stride,
               bytes);
        memcpy(to.grad + row * to.stride, part->grad + row * part->stride,
               bytes);
    }
}

static inline bt_tape *test_tape(const char *isa, int threads, bool recording)
{
    bt_tape *tape = NULL;
    assert_int_equal(bt_tape_create(&tape, bt_kernels_get(isa), threads, NULL),
                     0);
    bt_tape_rewind(tape, recording);
    return tape;
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
