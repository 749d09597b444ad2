/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - names and sizes of types, conversions with integer arithmetic, and
 * views of tensors.
 *
 *     float32   1 sign   8 exponent (bias 127)   23 mantissa
 *     BF16      1        8          (bias 127)    7
 *     F16       1        5          (bias 15)    10
 *
 * There are no floating point operations, so rounding modes and the flushing of
 * subnormals cannot change the result. Elements are copied with memcpy, since a
 * file may store them unaligned. */
#include "tensor/tensor.h"

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "stored tensors are little endian and are read in place");

static const struct {
    const char *name;
    size_t size;
} dtypes[BT_DTYPE_COUNT] = {
#define DTYPE_ROW(type, name, size) [BAUTA_##type] = { name, size },
    BT_DTYPE_MAP(DTYPE_ROW)
};

const char *bt_dtype_name(bauta_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t bt_dtype_size(bauta_dtype dtype)
{
    return dtypes[dtype].size;
}

int bt_dtype_order(bauta_dtype dtype)
{
    static const bauta_dtype order[] = {
#define DTYPE_TYPE(type, name, size) BAUTA_##type,
        BT_DTYPE_MAP(DTYPE_TYPE)
    };
    int at = 0;
    while (order[at] != dtype)
        at++;
    return at;
}

bool bt_dtype_find(bauta_dtype *out, const char *name)
{
    for (int i = 0; i < BT_DTYPE_COUNT; i++)
        if (!strcmp(dtypes[i].name, name)) {
            *out = (bauta_dtype)i;
            return true;
        }
    return false;
}

/* ---- One element --------------------------------------------------------- */

static uint32_t from_bf16(uint16_t h)
{
    return (uint32_t)h << 16;
}

static uint32_t from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;
    if (exponent == 0x1f) // infinity, NaN
        return sign | 0x7f800000 | mantissa << 13;
    if (exponent > 0)
        return sign | (exponent + 127 - 15) << 23 | mantissa << 13;
    if (mantissa == 0)
        return sign;
    // Subnormal: mantissa * 2^-24. Its leading bit becomes the hidden one.
    unsigned top = 31 - (unsigned)__builtin_clz(mantissa);
    return sign | (top + 127 - 24) << 23 | (mantissa << (23 - top) & 0x7fffff);
}

/* x / 2^shift, rounded to nearest, ties to even; 1 <= shift <= 31. */
static uint32_t round_shift(uint32_t x, unsigned shift)
{
    uint32_t half = 1u << (shift - 1), odd = x >> shift & 1;
    return (x + half - 1 + odd) >> shift;
}

static uint16_t to_bf16(uint32_t x)
{
    if ((x & 0x7fffffff) > 0x7f800000) // NaN, kept from becoming infinite
        return (uint16_t)(x >> 16 | 0x40);
    return (uint16_t)round_shift(x, 16); // carries into infinity as it should
}

static uint16_t to_f16(uint32_t x)
{
    uint32_t sign = x >> 16 & 0x8000, size = x & 0x7fffffff;
    uint32_t exponent = size >> 23, mantissa = size & 0x7fffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | mantissa >> 13);
    if (exponent >= 127 + 16)
        return (uint16_t)(sign | 0x7c00);
    if (exponent >= 127 - 14) // a carry out of the mantissa is right here too
        return (uint16_t)(sign | round_shift(size - (112u << 23), 13));
    if (exponent < 127 - 25) // below half of the smallest, 2^-24
        return (uint16_t)sign;
    // Subnormal: in units of 2^-24.
    return (uint16_t)(sign | round_shift(mantissa | 0x800000, 126 - exponent));
}

/* ---- Arrays -------------------------------------------------------------- */

/* memcpy reads unaligned data at no cost. */
#define WIDEN(to, from, count, convert)              \
    for (size_t i = 0; i < (count); i++) {           \
        uint16_t half;                               \
        memcpy(&half, (from) + 2 * i, sizeof(half)); \
        uint32_t word = convert(half);               \
        memcpy((to) + i, &word, sizeof(word));       \
    }
#define NARROW(to, from, count, convert)           \
    for (size_t i = 0; i < (count); i++) {         \
        uint32_t word;                             \
        memcpy(&word, (from) + i, sizeof(word));   \
        uint16_t half = convert(word);             \
        memcpy((to) + 2 * i, &half, sizeof(half)); \
    }

bool bt_convert_f32(float *to, const void *from, bauta_dtype dtype,
                    size_t count)
{
    const unsigned char *bytes = from;
    if (dtype == BAUTA_FLOAT32) {
        if (count > 0)
            memcpy(to, bytes, count * sizeof(float));
    } else if (dtype == BAUTA_BFLOAT16) {
        WIDEN(to, bytes, count, from_bf16)
    } else if (dtype == BAUTA_FLOAT16) {
        WIDEN(to, bytes, count, from_f16)
    } else {
        return false;
    }
    return true;
}

bool bt_convert_from_f32(void *to, bauta_dtype dtype, const float *from,
                         size_t count)
{
    unsigned char *bytes = to;
    if (dtype == BAUTA_FLOAT32) {
        if (count > 0)
            memcpy(bytes, from, count * sizeof(float));
    } else if (dtype == BAUTA_BFLOAT16) {
        NARROW(bytes, from, count, to_bf16)
    } else if (dtype == BAUTA_FLOAT16) {
        NARROW(bytes, from, count, to_f16)
    } else {
        return false;
    }
    return true;
}

/* ---- Tensors ------------------------------------------------------------ */

void bt_tensor_init(bt_tensor *t, const bt_buffer *buffer, bauta_dtype dtype,
                    size_t rows, size_t columns)
{
    *t = (bt_tensor){ .rows = rows,
                      .columns = columns,
                      .stride = columns,
                      .dtype = dtype,
                      .grad_dtype = dtype,
                      .buffer = buffer };
}

bt_tensor bt_tensor_of(const bt_buffer *buffer, bauta_dtype dtype, size_t rows,
                       size_t columns)
{
    bt_tensor t;
    bt_tensor_init(&t, buffer, dtype, rows, columns);
    return t;
}

bt_tensor bt_tensor_grad(const bt_tensor *t)
{
    return (bt_tensor){ .rows = t->rows,
                        .columns = t->columns,
                        .stride = t->stride,
                        .dtype = t->grad_dtype,
                        .buffer = t->grad,
                        .offset = t->grad_offset };
}

bt_tensor bt_tensor_rows(const bt_tensor *t, size_t first, size_t count)
{
    bt_tensor part = *t;
    part.rows = count;
    part.offset += first * t->stride;
    part.grad = NULL;
    part.requires_grad = false;
    part.whole = NULL;
    return part;
}

bool bt_tensor_dense(const bt_tensor *t)
{
    return t->stride == t->columns || t->rows <= 1;
}
