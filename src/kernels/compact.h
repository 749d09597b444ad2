/* SPDX-License-Identifier: Apache-2.0 */
/* compact.h - a weight matrix laid out so that a product reads it as one stream
 * and without packing, in as many bytes as float32 has or in fewer.
 *
 * Outputs lie in panels of BT_ABREAST side by side, and a panel runs along the
 * inputs:
 *
 *     panel 0    [ input 0: outputs 0 ... 47 ][ input 1: 0 ... 47 ] ...
 *     panel 1    [ input 0: outputs 48 ... 95 ] ...
 *
 * So a vector of lanes is a vector of outputs, each of which is one chain over
 * the inputs, as kernels/gemm.h defines the product. The last panel has its
 * full width too; what lies there beyond the outputs enters nothing.
 *
 * An element stands for a number that float32 holds exactly, and the chain is
 * that of this number:
 *
 *     float32     the weight itself
 *     bfloat16    the weight rounded to nearest, ties to even
 *     int8        q = weight / scale, rounded so, from -127 to 127;
 *                 scale = max |weight| / 127 over the inputs of the output
 *
 * The scale of int8 multiplies the finished chain, before bias and all else.
 * All types are thus float32 arithmetic to the last bit, and bfloat16 gives the
 * very bits of a float32 model whose weights were rounded. */
#ifndef BT_COMPACT_H
#define BT_COMPACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* As many as the widest register tile has columns, see kernels/x86/gemm.h, and
 * whole tiles of the others. */
enum { BT_ABREAST = 48 };

typedef enum bt_compact_type {
    BT_COMPACT_F32,
    BT_COMPACT_BF16,
    BT_COMPACT_INT8
} bt_compact_type;

typedef struct bt_compact {
    bt_compact_type type;
    size_t outputs, inputs;
    void *panels;  /* (panels, inputs, BT_ABREAST), aligned to BT_ALIGN */
    float *scales; /* (outputs rounded up to BT_ABREAST) of int8, else NULL */
} bt_compact;

/* Panels of a matrix, and bytes of all of them. */
size_t bt_compact_panels(size_t outputs);
size_t bt_compact_bytes(bt_compact_type type, size_t outputs, size_t inputs);

/* Fill one panel, and its scales, from a float32 matrix (outputs, inputs) or,
 * if `turned`, (inputs, outputs) with rows `stride` apart. Outputs that do not
 * exist become 0. False where int8 meets a weight that is not finite; what the
 * panel holds is then of no use. */
bool bt_compact_pack(const bt_compact *compact, size_t panel, const float *w,
                     size_t stride, bool turned);

/* The weights of one output, times `scale`: a row of an embedding's table. */
void bt_compact_row(float *to, const bt_compact *compact, size_t output,
                    float scale);

static inline size_t bt_compact_size(bt_compact_type type)
{
    return type == BT_COMPACT_F32    ? sizeof(float)
           : type == BT_COMPACT_BF16 ? sizeof(uint16_t)
                                     : sizeof(int8_t);
}

static inline float bt_bf16_widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The number that an element stands for, without its scale. */
static inline float bt_compact_at(const bt_compact *c, size_t output,
                                  size_t input)
{
    size_t at = (output / BT_ABREAST * c->inputs + input) * BT_ABREAST +
                output % BT_ABREAST;
    if (c->type == BT_COMPACT_F32)
        return ((const float *)c->panels)[at];
    if (c->type == BT_COMPACT_BF16)
        return bt_bf16_widen(((const uint16_t *)c->panels)[at]);
    return (float)((const int8_t *)c->panels)[at];
}

#endif
