/* SPDX-License-Identifier: Apache-2.0 */
/* packed_weight.c - packs weights into panels, and unpacks a row. */
#include "backend/cpu/kernels/packed_weight.h"

#include "base/size.h"

#include <math.h>

/* Inputs that are gathered at once: a cache line of floats. */
enum { BLOCK = 16 };

size_t bt_packed_weight_panels(size_t outputs)
{
    return outputs / BT_PANEL_COLUMNS + (outputs % BT_PANEL_COLUMNS != 0);
}

size_t bt_packed_weight_bytes(bauta_dtype type, size_t outputs, size_t inputs)
{
    size_t panel =
        bt_size_mul(inputs, BT_PANEL_COLUMNS * bt_packed_element_size(type));
    return bt_size_mul(bt_packed_weight_panels(outputs), panel);
}

/* ---- One weight -------------------------------------------------------- */

/* Rounded to nearest, ties to even. NaN keeps its upper bits and stays NaN. */
static uint16_t bf16_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Adding 1.5 * 2^23 leaves no fraction bits, so the sum is rounded to an
 * integer, ties to even. A subnormal scale has lost bits and can give quotients
 * beyond 127. */
static int8_t int8_round(float x, float scale)
{
    const float magic = 0x1.8p23f;
    float q = scale > 0 ? x / scale : 0.0f;
    q = q < -127.0f ? -127.0f : q > 127.0f ? 127.0f : q;
    return (int8_t)((q + magic) - magic);
}

/* ---- A panel ----------------------------------------------------------- */

/* The outputs of a panel in a float32 matrix. */
typedef struct weight_source {
    const float *w;
    size_t stride, first, outputs; /* outputs: without padding */
    bool transposed;
} weight_source;

/* Some inputs of a panel, (count, BT_PANEL_COLUMNS), with zeros as padding. */
static void gather(float to[BLOCK * BT_PANEL_COLUMNS], const weight_source *s,
                   size_t input, size_t count)
{
    memset(to, 0, sizeof(float) * BLOCK * BT_PANEL_COLUMNS);
    if (s->transposed) {
        for (size_t p = 0; p < count; p++)
            memcpy(to + p * BT_PANEL_COLUMNS,
                   s->w + (input + p) * s->stride + s->first,
                   s->outputs * sizeof(float));
        return;
    }
    for (size_t j = 0; j < s->outputs; j++) {
        const float *row = s->w + (s->first + j) * s->stride + input;
        for (size_t p = 0; p < count; p++)
            to[p * BT_PANEL_COLUMNS + j] = row[p];
    }
}

/* The scale of each output; false if a weight is not finite. Magnitudes are
 * compared as integers, which order the same way, infinity and NaN last. */
static bool scales_find(float scales[BT_PANEL_COLUMNS], const weight_source *s,
                        size_t inputs)
{
    float block[BLOCK * BT_PANEL_COLUMNS];
    int32_t max[BT_PANEL_COLUMNS] = { 0 };
    for (size_t p = 0; p < inputs; p += BLOCK) {
        gather(block, s, p, bt_size_min(BLOCK, inputs - p));
        for (size_t i = 0; i < BLOCK; i++)
            for (size_t j = 0; j < BT_PANEL_COLUMNS; j++) {
                int32_t bits;
                memcpy(&bits, &block[i * BT_PANEL_COLUMNS + j], sizeof(bits));
                bits &= INT32_MAX;
                max[j] = bits > max[j] ? bits : max[j];
            }
    }
    memcpy(scales, max, sizeof(max));
    for (size_t j = 0; j < BT_PANEL_COLUMNS; j++) {
        if (!isfinite(scales[j]))
            return false;
        scales[j] /= 127.0f;
    }
    return true;
}

static void store_bf16(uint16_t *to, const float *block, size_t count)
{
    for (size_t i = 0; i < count * BT_PANEL_COLUMNS; i++)
        to[i] = bf16_round(block[i]);
}

static void store_int8(int8_t *to, const float *block, const float *scales,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < BT_PANEL_COLUMNS; j++)
            to[i * BT_PANEL_COLUMNS + j] =
                int8_round(block[i * BT_PANEL_COLUMNS + j], scales[j]);
}

static void store(const bt_packed_weight *c, size_t at, const float *block,
                  const float *scales, size_t count)
{
    if (c->type == BAUTA_FLOAT32)
        memcpy((float *)c->panels + at, block,
               count * BT_PANEL_COLUMNS * sizeof(float));
    else if (c->type == BAUTA_BFLOAT16)
        store_bf16((uint16_t *)c->panels + at, block, count);
    else
        store_int8((int8_t *)c->panels + at, block, scales, count);
}

bool bt_packed_weight_pack(const bt_packed_weight *packed, size_t panel,
                           const float *w, size_t stride, bool transposed)
{
    float block[BLOCK * BT_PANEL_COLUMNS], *scales = NULL;
    size_t first = panel * BT_PANEL_COLUMNS, inputs = packed->inputs;
    weight_source s = { w, stride, first,
                        bt_size_min(BT_PANEL_COLUMNS, packed->outputs - first),
                        transposed };
    if (packed->scales) {
        scales = packed->scales + first;
        if (!scales_find(scales, &s, inputs))
            return false;
    }
    for (size_t p = 0; p < inputs; p += BLOCK) {
        size_t count = bt_size_min(BLOCK, inputs - p);
        size_t at = (panel * inputs + p) * BT_PANEL_COLUMNS;
        gather(block, &s, p, count);
        store(packed, at, block, scales, count);
    }
    return true;
}

void bt_packed_weight_row(float *to, const bt_packed_weight *packed,
                          size_t output, float scale)
{
    float own = packed->scales ? packed->scales[output] : 1.0f;
    for (size_t p = 0; p < packed->inputs; p++)
        to[p] = bt_packed_weight_at(packed, output, p) * own * scale;
}
