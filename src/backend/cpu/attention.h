/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - masked attention on the CPU: the computations of the public
 * calls, and what they share. */
#ifndef BT_CPU_ATTENTION_H
#define BT_CPU_ATTENTION_H

#include "backend/block_table.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels/lanes.h"
#include "base/size.h"
#include "mask/plan.h"

/* ---- Additive masks and softcaps ---------------------------------------- */

/* Which biases a step of the kernels reads, and the gradients of the biases.
 *
 * The kernels get a pointer to 64 biases for each row of a step. They point
 * into the tensor of the caller; or into the table by distance, which is
 * transposed once so that consecutive keys are neighbours; or, where the
 * distance is beyond the table and for slopes, to numbers that are computed for
 * the step. Nothing of the size queries x keys is stored. */
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

/* ---- Attention ---------------------------------------------------------- */

/* A plan of a whole batch is built from its mask; one of a decoding step from
 * the spans of its rows, in memory that is kept. */
typedef struct bt_cpu_plan {
    bt_attention_plan base;
    bauta_plan *batch; /* NULL: decode has the plan */
    bt_decode_plan decode;
} bt_cpu_plan;

/* The layout of a page: for each key head its keys, transposed, then its values
 * in panels of columns.
 *
 *     head 0: kt (head_dim * 64), v (64 * value_pad);  head 1: ... */
static inline float *bt_kv_page_data(const bt_kv_page *page)
{
    return (float *)((char *)page->buffer->memory + page->offset);
}

/* Floats of one key head in a page: keys and values. */
static inline size_t bt_kv_page_head(const bt_attention_shape *shape)
{
    return (shape->head_dim + shape->value_pad) * BT_BLOCK;
}

/* Keys and values of all key heads in blocks of 64, as the kernels read them:
 * in pages, one for each block of the plan; or, if pages is NULL, in
 * kt (kv_heads, blocks, head_dim * 64) and v (kv_heads, blocks, 64 *
 * value_pad), the values in panels of columns. */
typedef struct bt_packed_kv {
    bt_kv_page *const
        *pages; /* of the backend CPU; only those of visited blocks are read */
    float *kt, *v;
    size_t blocks; /* per head */
} bt_packed_kv;

static inline float *bt_packed_kv_keys(const bt_packed_kv *p,
                                       const bt_attention_shape *s,
                                       size_t kv_head, size_t block)
{
    if (p->pages)
        return bt_kv_page_data(p->pages[block]) + kv_head * bt_kv_page_head(s);
    return p->kt + (kv_head * p->blocks + block) * s->head_dim * BT_BLOCK;
}

static inline float *bt_packed_kv_values(const bt_packed_kv *p,
                                         const bt_attention_shape *s,
                                         size_t kv_head, size_t block)
{
    if (p->pages)
        return bt_packed_kv_keys(p, s, kv_head, block) + s->head_dim * BT_BLOCK;
    return p->v + (kv_head * p->blocks + block) * BT_BLOCK * s->value_pad;
}

/* Rows are far apart, so the hardware prefetcher misses the next one. */
static inline void bt_rows_prefetch(const float *from, size_t stride,
                                    size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c += BT_LANES)
            __builtin_prefetch(from + r * stride + c);
}

/* to (pad) = from (columns) * factor; padding is zero. */
static inline void bt_row_copy(float *restrict to, size_t pad,
                               const float *restrict from, size_t columns,
                               float factor)
{
    for (size_t c = 0; c < columns; c++)
        to[c] = from[c] * factor;
    for (size_t c = columns; c < pad; c++)
        to[c] = 0.0f;
}

/* to (rows, pad) = from (rows, columns) * factor, rows `stride` apart; padding
 * is zero. A factor of 1 changes no bit. */
static inline void bt_rows_copy(float *to, size_t pad, const float *from,
                                size_t stride, size_t rows, size_t columns,
                                float factor)
{
    enum { DISTANCE = 12 };
    for (size_t r = 0; r < rows; r++) {
        if (r + DISTANCE < rows)
            bt_rows_prefetch(from + (r + DISTANCE) * stride, 0, 1, columns);
        bt_row_copy(to + r * pad, pad, from + r * stride, columns, factor);
    }
}

/* Masked attention. lse may be NULL. Strides of what is written must not
 * overlap (op_types.h). Fails only when there is no memory for the
 * workspace. */
bauta_status bt_attention_forward_cpu(bt_cpu *cpu, const bauta_plan *plan,
                                      const bt_attention_shape *shape,
                                      const float *q, const float *k,
                                      const float *v, float *out, float *lse,
                                      bauta_error *err);
bauta_status bt_attention_backward_cpu(bt_cpu *cpu, const bauta_plan *plan,
                                       const bt_attention_shape *shape,
                                       const float *q, const float *k,
                                       const float *v, const float *out,
                                       const float *lse, const float *dout,
                                       float *dq, float *dk, float *dv,
                                       bauta_error *err);

/* Attention over pages, one for each block of the plan, in the same order.
 * Pages of blocks that are not visited may be NULL. `writer` (or NULL) has
 * tokens that are written to them first. */
struct bt_kv_writer;
bauta_status bt_attention_paged_cpu(bt_cpu *cpu, const bauta_plan *plan,
                                    const bt_attention_shape *shape,
                                    const float *q, bt_kv_page *const *pages,
                                    const struct bt_kv_writer *writer,
                                    float *out, float *lse, bauta_error *err);

#endif
