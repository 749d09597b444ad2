/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - data types, and buffers and matrices on any device.
 *
 * A buffer is memory of a backend. Its address means something to the backend
 * alone: data enters and leaves by upload and download (backend.h). A tensor is
 * a matrix in a buffer, or in a part of one. */
#ifndef BT_TENSOR_H
#define BT_TENSOR_H

#include "bauta.h"

#include <stdint.h>

/* ---- Data types --------------------------------------------------------- */

/* Every type with its name in files and its element size in bytes. The order is
 * the one by which safetensors files are sorted; the last type comes first
 * there. */
#define BT_DTYPE_MAP(X)          \
    X(BOOL, "BOOL", 1)           \
    X(UINT8, "U8", 1)            \
    X(INT8, "I8", 1)             \
    X(FLOAT8_E5M2, "F8_E5M2", 1) \
    X(FLOAT8_E4M3, "F8_E4M3", 1) \
    X(INT16, "I16", 2)           \
    X(UINT16, "U16", 2)          \
    X(FLOAT16, "F16", 2)         \
    X(BFLOAT16, "BF16", 2)       \
    X(INT32, "I32", 4)           \
    X(UINT32, "U32", 4)          \
    X(FLOAT32, "F32", 4)         \
    X(FLOAT64, "F64", 8)         \
    X(INT64, "I64", 8)           \
    X(UINT64, "U64", 8)

#define BT_DTYPE_ONE(type, name, size) +1
enum { BT_DTYPE_COUNT = 0 BT_DTYPE_MAP(BT_DTYPE_ONE) };

/* "F32" */
const char *bt_dtype_name(bauta_dtype dtype);
size_t bt_dtype_size(bauta_dtype dtype);
/* Its place in the list above. */
int bt_dtype_order(bauta_dtype dtype);
/* False if no type has this name. */
bool bt_dtype_find(bauta_dtype *out, const char *name);

/* Convert `count` elements to float32, exactly. NaNs keep their sign and
 * payload. `from` may be unaligned and must not overlap `to`. Returns false and
 * writes nothing unless the type is F32, F16 or BF16. */
bool bt_convert_f32(float *to, const void *from, bauta_dtype dtype,
                    size_t count);

/* Convert from float32: rounded to nearest, ties to even. Values that are too
 * large become infinite, and NaN stays NaN. `to` may be unaligned. */
bool bt_convert_from_f32(void *to, bauta_dtype dtype, const float *from,
                         size_t count);

/* ---- Tensors ------------------------------------------------------------ */

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
void bt_tensor_init(bt_tensor *t, const bt_buffer *buffer, bauta_dtype dtype,
                    size_t rows, size_t columns);
bt_tensor bt_tensor_of(const bt_buffer *buffer, bauta_dtype dtype, size_t rows,
                       size_t columns);

/* The gradient of a tensor as a tensor of its own. */
bt_tensor bt_tensor_grad(const bt_tensor *t);

/* Rows first to first + count - 1, without the gradient. */
bt_tensor bt_tensor_rows(const bt_tensor *t, size_t first, size_t count);

bool bt_tensor_dense(const bt_tensor *t);

#endif
