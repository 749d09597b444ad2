/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - the element types of tensors, and conversion to and from float32.
 */
#ifndef BT_DTYPE_H
#define BT_DTYPE_H

#include "bauta.h"

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

#endif
