/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - what the forward pass, the backward pass and the cache share.
 */
#ifndef BT_OPS_ATTENTION_H
#define BT_OPS_ATTENTION_H

#include "base/size.h"
#include "base/threads.h"
#include "kernels/lanes.h"
#include "mask/plan.h"
#include "ops/context.h"
#include "ops/pages.h"
#include "ops/shape.h"

/* Keys and values of all key heads, packed in blocks of 64 as the kernels read
 * them: in pages, one for each block of the plan; or, pages being NULL, kt
 * (kv_heads, blocks, head_dim, 64) and v (kv_heads, blocks, 64 * value_pad),
 * the values in panels of columns. */
typedef struct bt_packed {
    bt_page *const *pages; /* only those of blocks that are visited are read */
    float *kt, *v;
    size_t blocks; /* that fit: the distance from head to head */
} bt_packed;

static inline float *bt_packed_keys(const bt_packed *p, const bt_shape *s,
                                    size_t kv_head, size_t block)
{
    if (p->pages)
        return p->pages[block]->data + kv_head * bt_page_head(s);
    return p->kt + (kv_head * p->blocks + block) * s->head_dim * BT_BLOCK;
}

static inline float *bt_packed_values(const bt_packed *p, const bt_shape *s,
                                      size_t kv_head, size_t block)
{
    if (p->pages)
        return bt_packed_keys(p, s, kv_head, block) + s->head_dim * BT_BLOCK;
    return p->v + (kv_head * p->blocks + block) * BT_BLOCK * s->value_pad;
}

/* Rows are far apart, so the hardware does not foresee the next one. */
static inline void bt_rows_prefetch(const float *from, size_t stride,
                                    size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c += BT_LANES)
            __builtin_prefetch(from + r * stride + c);
}

/* to (rows, pad) = from (rows, columns) * factor, rows `stride` apart; the pad
 * is zero. A factor of 1 changes no bit. */
static inline void bt_rows_copy(float *to, size_t pad, const float *from,
                                size_t stride, size_t rows, size_t columns,
                                float factor)
{
    enum { AHEAD = 12 };
    for (size_t r = 0; r < rows; r++) {
        if (r + AHEAD < rows)
            bt_rows_prefetch(from + (r + AHEAD) * stride, 0, 1, columns);
        for (size_t c = 0; c < columns; c++)
            to[r * pad + c] = from[r * stride + c] * factor;
        for (size_t c = columns; c < pad; c++)
            to[r * pad + c] = 0.0f;
    }
}

/* The forward pass. Keys and values are either in pages, packed already
 * (`source` is NULL), or plain; then tasks pack what they need when they first
 * need it, into `slots` key heads' worth of blocks. lse may be NULL. */
typedef struct bt_source {
    const float *k, *v;
    size_t slots;
    bt_once *blocks;       /* (slots, blocks) */
    bt_progress *finished; /* (kv_heads) tasks that have ended */
} bt_source;

typedef struct bt_forward {
    const bauta_plan *plan;
    bt_shape shape;
    const bt_kernels *kernels;
    const float *q;
    bt_source *source;
    bt_packed packed;
    float *out, *lse;
    int threads;
    size_t together; /* heads of a group that share one step */
    struct bt_forward_scratch *scratch; /* (threads) */
} bt_forward;

/* Take the scratch of all threads from the arena, which may be measuring. */
void bt_forward_prepare(bt_forward *forward, bt_arena *arena, int threads);
void bt_forward_run(bt_forward *forward, int threads);

/* Attention over pages, which lie as the blocks of the plan do; all that the
 * plan visits are there. */
bauta_status bt_attention_pages(bauta_context *context, const bauta_plan *plan,
                                const bt_shape *shape, const float *q,
                                bt_page *const *pages, float *out, float *lse,
                                bauta_error *err);

#endif
