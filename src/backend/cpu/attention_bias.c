/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bias.c - biases and softcap of attention; see attention_bias.h.
 *
 * The gradient of the table is summed in double: each block of keys of each
 * head has sums of its own, over its rows in their order, and at the end the
 * blocks are added in order. So no sum depends on threads. */
#include "backend/cpu/attention_bias.h"

#include "backend/cpu/kernels/exp2.h"
#include "base/size.h"

#include <string.h>

void bt_cpu_bias_prepare(bt_cpu_bias *b, const bauta_plan *plan,
                         const bt_attention_shape *shape, bool backward,
                         bt_arena *arena)
{
    const bauta_attention_bias *bias = &shape->bias;
    *b = (bt_cpu_bias){ .bias = bias, .plan = plan, .heads = shape->heads };
    if (!bias->table)
        return;
    size_t count = bt_size_mul(shape->heads, bias->distances);
    size_t sums = bt_size_mul(count, plan->block_count);
    b->by_head = bt_arena_alloc(arena, count, sizeof(float));
    if (backward && bias->dtable)
        b->sums = bt_arena_alloc(arena, sums, sizeof(double));
    if (!b->by_head)
        return;
    for (size_t d = 0; d < bias->distances; d++)
        for (size_t h = 0; h < shape->heads; h++)
            b->by_head[h * bias->distances + d] =
                bias->table[d * shape->heads + h];
    if (b->sums)
        memset(b->sums, 0, sums * sizeof(double));
}

bt_bias_scratch bt_cpu_bias_scratch(const bt_attention_shape *shape,
                                    size_t lines, bt_arena *arena)
{
    const bauta_attention_bias *bias = &shape->bias;
    bt_bias_scratch x = { .terms.cap =
                              (float)((double)bias->softcap * BT_LOG2E) };
    if (bias->tensor || bias->slopes || bias->table) {
        x.rows = bt_arena_alloc(arena, lines, sizeof(*x.rows));
        x.terms.bias = x.rows;
    }
    if (bias->slopes || bias->table)
        x.computed = bt_arena_alloc(arena, lines * BT_BLOCK, sizeof(float));
    return x;
}

float bt_cpu_bias_query_factor(const bt_attention_shape *shape)
{
    double scale = (double)shape->scale, cap = (double)shape->bias.softcap;
    return (float)(cap != 0.0 ? scale / cap : scale * BT_LOG2E);
}

float bt_cpu_bias_key_factor(const bt_attention_shape *shape)
{
    return shape->bias.softcap != 0.0f ? shape->bias.softcap : (float)BT_LN2;
}

/* ---- Biases ------------------------------------------------------------ */

/* The first key of a block, counted from the origin of the tile. */
static size_t block_key(const bt_tile *tile, size_t block)
{
    return (block - tile->grid) * BT_BLOCK;
}

/* The distance from a row to the first key of a block. */
static ptrdiff_t block_distance(const bt_cpu_bias *b, const bt_tile *tile,
                                size_t row, size_t block)
{
    ptrdiff_t position;
    if (b->bias->positions)
        position = (ptrdiff_t)b->bias->positions[row];
    else
        position = b->plan->first_position + (ptrdiff_t)row -
                   (ptrdiff_t)b->plan->blocks[tile->grid].key;
    return (ptrdiff_t)block_key(tile, block) - position;
}

/* The element of the tensor for a row and the first key of a block. */
static size_t tensor_at(const bt_cpu_bias *b, const bt_tile *tile, size_t row,
                        size_t head, size_t block)
{
    const bauta_attention_bias *bias = b->bias;
    size_t at = bias->tensor_rows ? bias->tensor_rows[row] : row;
    return at * bias->tensor_row + head * bias->tensor_head +
           block_key(tile, block);
}

/* The row of the table for a distance. */
static size_t table_row(const bauta_attention_bias *bias, ptrdiff_t distance)
{
    ptrdiff_t row = distance - bias->first_distance;
    if (row < 0)
        return 0;
    return bt_size_min((size_t)row, bias->distances - 1);
}

/* Whether the distances of all keys of a block are in the table. */
static bool table_holds(const bauta_attention_bias *bias, ptrdiff_t distance)
{
    ptrdiff_t row = distance - bias->first_distance;
    return row >= 0 && (size_t)row + BT_BLOCK <= bias->distances;
}

static const float *table_line(const bt_cpu_bias *b, float *computed,
                               size_t head, ptrdiff_t distance)
{
    const bauta_attention_bias *bias = b->bias;
    const float *table = b->by_head + head * bias->distances;
    if (table_holds(bias, distance))
        return table + (distance - bias->first_distance);
    for (ptrdiff_t j = 0; j < BT_BLOCK; j++)
        computed[j] = table[table_row(bias, distance + j)];
    return computed;
}

static const float *slope_line(float *computed, float slope, ptrdiff_t distance)
{
    for (ptrdiff_t j = 0; j < BT_BLOCK; j++)
        computed[j] = slope * (float)(distance + j);
    return computed;
}

void bt_cpu_bias_lines(const bt_cpu_bias *b, const bt_bias_scratch *x,
                       const bt_tile *tile, size_t head, size_t block,
                       size_t line)
{
    const bauta_attention_bias *bias = b->bias;
    for (size_t r = 0; r < tile->rows && x->rows; r++) {
        size_t row = tile->row + r;
        if (bias->tensor) {
            x->rows[line + r] =
                bias->tensor + tensor_at(b, tile, row, head, block);
            continue;
        }
        float *computed = x->computed + (line + r) * BT_BLOCK;
        ptrdiff_t distance = block_distance(b, tile, row, block);
        x->rows[line + r] =
            bias->slopes ? slope_line(computed, bias->slopes[head], distance)
                         : table_line(b, computed, head, distance);
    }
}

/* ---- Gradients --------------------------------------------------------- */

static void table_grad(const bauta_attention_bias *bias, double *sums,
                       ptrdiff_t distance, const float *ds, uint64_t word)
{
    for (ptrdiff_t j = 0; j < BT_BLOCK; j++)
        if (word >> j & 1)
            sums[table_row(bias, distance + j)] += (double)ds[j];
}

static void tensor_grad(float *to, const float *ds, uint64_t word)
{
    for (size_t j = 0; j < BT_BLOCK; j++)
        if (word >> j & 1)
            to[j] += ds[j];
}

void bt_cpu_bias_grad(const bt_cpu_bias *b, const bt_tile *tile, size_t head,
                      size_t block, const float *ds, const uint64_t *words)
{
    const bauta_attention_bias *bias = b->bias;
    for (size_t r = 0; r < tile->rows; r++, ds += BT_BLOCK) {
        size_t row = tile->row + r;
        uint64_t word = words ? words[r] : ~(uint64_t)0;
        if (b->sums)
            table_grad(bias,
                       b->sums + (head * b->plan->block_count + block) *
                                     bias->distances,
                       block_distance(b, tile, row, block), ds, word);
        if (bias->dtensor)
            tensor_grad(bias->dtensor + tensor_at(b, tile, row, head, block),
                        ds, word);
    }
}

void bt_cpu_bias_finish(const bt_cpu_bias *b)
{
    size_t distances = b->bias->distances, blocks = b->plan->block_count;
    for (size_t d = 0; d < distances && b->sums; d++)
        for (size_t h = 0; h < b->heads; h++) {
            double sum = 0;
            for (size_t k = 0; k < blocks; k++)
                sum += b->sums[(h * blocks + k) * distances + d];
            b->bias->dtable[d * b->heads + h] += (float)sum;
        }
}
