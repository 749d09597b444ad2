/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - the element types of tensors, and conversion to and from float32.
 */
#ifndef BT_DTYPE_H
#define BT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/* Every type and its element size in bytes. The order is the one by which
 * safetensors files are sorted; the last type comes first there. */
#define BT_DTYPE_MAP(X) \
    X(BOOL, 1)          \
    X(U8, 1)            \
    X(I8, 1)            \
    X(F8_E5M2, 1)       \
    X(F8_E4M3, 1)       \
    X(I16, 2)           \
    X(U16, 2)           \
    X(F16, 2)           \
    X(BF16, 2)          \
    X(I32, 4)           \
    X(U32, 4)           \
    X(F32, 4)           \
    X(F64, 8)           \
    X(I64, 8)           \
    X(U64, 8)

#define BT_DTYPE_ENUM(name, size) BT_##name,
typedef enum bt_dtype { BT_DTYPE_MAP(BT_DTYPE_ENUM) BT_DTYPES } bt_dtype;

/* "F32" */
const char *bt_dtype_name(bt_dtype dtype);
size_t bt_dtype_size(bt_dtype dtype);
/* False if no type has this name. */
bool bt_dtype_find(bt_dtype *out, const char *name);

/* Convert `count` elements to float32, exactly. NaNs keep their sign and
 * payload. `from` may be unaligned and must not overlap `to`. Returns false and
 * writes nothing unless the type is F32, F16 or BF16. */
bool bt_convert_f32(float *to, const void *from, bt_dtype dtype, size_t count);

/* Convert from float32: rounded to nearest, ties to even. Values that are too
 * large become infinite, and NaN stays NaN. `to` may be unaligned. */
bool bt_convert_from_f32(void *to, bt_dtype dtype, const float *from,
                         size_t count);

#endif
