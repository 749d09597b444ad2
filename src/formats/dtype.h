/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - the element types of stored tensors, and float32 from them. */
#ifndef BT_DTYPE_H
#define BT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/* Every type and the bytes of an element, in the order by which safetensors
 * files are sorted (the last type comes first there). */
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
/* False where no type has this name. */
bool bt_dtype_find(bt_dtype *out, const char *name);

/* `count` elements of a type as float32, exactly. NaNs keep their sign and
 * payload. `from` may be unaligned; it and `to` do not overlap. False, and
 * nothing is written, unless the type is F32, F16 or BF16. */
bool bt_convert_f32(float *to, const void *from, bt_dtype dtype, size_t count);

/* The way back: rounded to nearest, ties to even; what is too large becomes
 * infinite, NaN stays NaN. `to` may be unaligned. */
bool bt_convert_from_f32(void *to, bt_dtype dtype, const float *from,
                         size_t count);

#endif
