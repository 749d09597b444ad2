/* SPDX-License-Identifier: Apache-2.0 */
/* packed_weight.h - weight matrices packed in advance, in float32, bfloat16 or
 * int8.
 *
 * A product reads packed weights sequentially and needs no packing of its own.
 * Outputs are grouped into panels of BT_PANEL_COLUMNS, and a panel is stored
 * input by input:
 *
 *     panel 0    [ input 0: outputs 0 ... 47 ][ input 1: 0 ... 47 ] ...
 *     panel 1    [ input 0: outputs 48 ... 95 ] ...
 *
 * So a vector of lanes is a vector of outputs, each of which is one chain over
 * the inputs, as gemm.h defines the product. The last panel is padded to its
 * full width; the padding is not used.
 *
 * An element represents a number that float32 holds exactly, and the chain is
 * computed with that number:
 *
 *     float32     the weight itself
 *     bfloat16    the weight rounded to nearest, ties to even
 *     int8        q = weight / scale, rounded the same way, from -127 to 127;
 *                 scale = max |weight| / 127 over the inputs of the output
 *
 * The int8 scale multiplies the finished chain, before the bias. All types thus
 * use float32 arithmetic, and bfloat16 gives exactly the bits of a float32
 * model whose weights were rounded. */
#ifndef BT_PACKED_WEIGHT_H
#define BT_PACKED_WEIGHT_H

#include "tensor/tensor.h"

#include <stdint.h>
#include <string.h>

/* The columns of the widest register tile (x86/gemm.h), and a multiple of the
 * others. */
enum { BT_PANEL_COLUMNS = 48 };

typedef struct bt_packed_weight {
    bauta_dtype type;
    size_t outputs, inputs;
    void *panels;  /* (panels, inputs, BT_PANEL_COLUMNS), aligned to BT_ALIGN */
    float *scales; /* (outputs rounded up to BT_PANEL_COLUMNS) of int8, else
                      NULL */
} bt_packed_weight;

/* Number of panels of a matrix, and their size in bytes. */
size_t bt_packed_weight_panels(size_t outputs);
size_t bt_packed_weight_bytes(bauta_dtype type, size_t outputs, size_t inputs);

/* Fill one panel and its scales from a float32 matrix (outputs, inputs) or, if
 * `transposed`, (inputs, outputs), with rows `stride` apart. Padding becomes 0.
 * False if the type is int8 and a weight is not finite; the panel is then
 * undefined. */
bool bt_packed_weight_pack(const bt_packed_weight *packed, size_t panel,
                           const float *w, size_t stride, bool transposed);

/* The weights of one output times `scale`: a row of an embedding table. */
void bt_packed_weight_row(float *to, const bt_packed_weight *packed,
                          size_t output, float scale);

static inline size_t bt_packed_element_size(bauta_dtype type)
{
    return type == BAUTA_FLOAT32    ? sizeof(float)
           : type == BAUTA_BFLOAT16 ? sizeof(uint16_t)
                                    : sizeof(int8_t);
}

static inline float bt_bf16_widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The number that an element represents, without its scale. */
static inline float bt_packed_weight_at(const bt_packed_weight *c,
                                        size_t output, size_t input)
{
    size_t at =
        (output / BT_PANEL_COLUMNS * c->inputs + input) * BT_PANEL_COLUMNS +
        output % BT_PANEL_COLUMNS;
    if (c->type == BAUTA_FLOAT32)
        return ((const float *)c->panels)[at];
    if (c->type == BAUTA_BFLOAT16)
        return bt_bf16_widen(((const uint16_t *)c->panels)[at]);
    return (float)((const int8_t *)c->panels)[at];
}

#endif
