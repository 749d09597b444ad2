/* SPDX-License-Identifier: Apache-2.0 */
/* attention_bias.h - the additive mask and the softcap of an attention on the
 * CPU: which biases a step of the kernels reads, and the gradients of the
 * biases.
 *
 * The kernels get a pointer to 64 biases for each row of a step. They point
 * into the tensor of the caller; or into the table by distance, which is
 * transposed once so that consecutive keys are neighbours; or, where the
 * distance is beyond the table and for slopes, to numbers that are computed for
 * the step. Nothing of the size queries x keys is stored. */
#ifndef BT_CPU_ATTENTION_BIAS_H
#define BT_CPU_ATTENTION_BIAS_H

#include "backend/attention_shape.h"
#include "backend/cpu/kernels/attention.h"
#include "base/memory.h"
#include "mask/plan.h"

typedef struct bt_cpu_bias {
    const bauta_attention_bias *bias;
    const bauta_plan *plan;
    size_t heads;
    float *by_head; /* (heads, distances) the table, transposed */
    double *sums;   /* (heads, blocks, distances) of dtable, or NULL */
} bt_cpu_bias;

/* The biases of the rows of one step, of one thread. */
typedef struct bt_bias_scratch {
    const float **rows; /* (lines) */
    float *computed;    /* (lines, 64) */
    bt_score_terms terms;
} bt_bias_scratch;

/* Whether a shape has a softcap or a bias. */
static inline bool bt_attention_biased(const bt_attention_shape *shape)
{
    const bauta_attention_bias *b = &shape->bias;
    return b->softcap != 0.0f || b->tensor || b->slopes || b->table;
}

/* Take memory from the arena, which may be measuring; then fill it.
 * `backward`: with the sums of dtable, if that is wanted. */
void bt_cpu_bias_prepare(bt_cpu_bias *b, const bauta_plan *plan,
                         const bt_attention_shape *shape, bool backward,
                         bt_arena *arena);
bt_bias_scratch bt_cpu_bias_scratch(const bt_attention_shape *shape,
                                    size_t lines, bt_arena *arena);

/* What queries are multiplied by before the products, and the gradients of keys
 * after them. */
float bt_cpu_bias_query_factor(const bt_attention_shape *shape);
float bt_cpu_bias_key_factor(const bt_attention_shape *shape);

/* The biases of the rows of a tile for one head and a block, as lines from
 * `line` on. */
void bt_cpu_bias_lines(const bt_cpu_bias *b, const bt_bias_scratch *x,
                       const bt_tile *tile, size_t head, size_t block,
                       size_t line);

/* Add the gradients ds (rows, 64) of a tile and a block to those of the biases.
 * words: as in the kernels. */
void bt_cpu_bias_grad(const bt_cpu_bias *b, const bt_tile *tile, size_t head,
                      size_t block, const float *ds, const uint64_t *words);
/* Add the sums of dtable to it. */
void bt_cpu_bias_finish(const bt_cpu_bias *b);

#endif
