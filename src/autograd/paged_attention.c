/* SPDX-License-Identifier: Apache-2.0 */
/* paged_attention.c - KV cache writes and paged attention on the tape.
 *
 * The pages of all sequences are listed in the order of the plan's blocks, so
 * one call serves all sequences, and its tasks are the tiles and heads of all
 * of them. */
#include "autograd/paged_attention.h"

#include "backend/cpu/attention.h"
#include "base/error.h"
#include "base/threads.h"

/* Floats to write below which more threads do not pay. */
enum { SMALL_WRITE = 1 << 12 };

/* ---- Writing ----------------------------------------------------------- */

typedef struct kv_write {
    const bt_kv_batch *batch;
    size_t layer;
    const bt_kernels *kernels;
    bt_attention_shape shape;
    const float *k, *v;
} kv_write;

/* A single token's key is spread over as many cache lines as the head has
 * dimensions. Prefetch those of the task after the next. */
static void write_prefetch(const kv_write *w, size_t task)
{
    size_t part = (task + 2) / w->shape.kv_heads;
    if (part < w->batch->count && w->batch->sequences[part].rows == 1)
        bt_block_table_prefetch(w->batch->sequences[part].table, w->layer,
                                &w->shape, (task + 2) % w->shape.kv_heads);
}

/* One key head of one sequence. */
static void write_task(void *job, size_t task, int thread)
{
    (void)thread;
    const kv_write *w = job;
    const bt_attention_shape *s = &w->shape;
    const bt_kv_sequence *part = &w->batch->sequences[task / s->kv_heads];
    size_t head = task % s->kv_heads;
    write_prefetch(w, task);
    bt_block_table_write(part->table, w->layer, w->kernels, s, head,
                         part->table->tokens, part->rows,
                         w->k + part->row * s->k.token + head * s->k.head,
                         w->v + part->row * s->v.token + head * s->v.head);
}

bool bt_op_kv_write(bt_tape *tape, const bt_kv_batch *batch, size_t layer,
                    const bt_tensor *k, const bt_tensor *v, size_t kv_heads)
{
    if (!k || !v || !batch->count)
        return !bt_tape_status(tape, NULL);
    kv_write w = { .batch = batch,
                   .layer = layer,
                   .kernels = bt_tape_kernels(tape),
                   .shape = batch->sequences[0].table->pool->shape,
                   .k = k->data,
                   .v = v->data };
    bt_attention_shape *s = &w.shape;
    if (s->kv_heads != kv_heads || k->columns != kv_heads * s->head_dim ||
        v->columns != kv_heads * s->value_dim)
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "kv_write: k has %zu columns and v %zu, the pages "
                            "%zu heads of %zu and %zu",
                            k->columns, v->columns, s->kv_heads, s->head_dim,
                            s->value_dim);
    s->k = (bt_attention_strides){ k->stride, s->head_dim };
    s->v = (bt_attention_strides){ v->stride, s->value_dim };
    bool small = k->rows * (k->columns + v->columns) < SMALL_WRITE;
    bt_parallel_for(small ? 1 : bt_tape_threads(tape),
                    batch->count * s->kv_heads, write_task, &w);
    return true;
}

/* ---- Attention --------------------------------------------------------- */

static size_t part_blocks(const bt_kv_sequence *part)
{
    return bt_kv_page_count(part->table->tokens + part->rows);
}

/* The pages of a layer of all sequences, concatenated; NULL if the tape has
 * failed. */
static bt_kv_page *const *pages_gather(bt_tape *tape, const bt_kv_batch *batch,
                                       size_t layer, const bauta_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        count += part_blocks(&batch->sequences[i]);
    if (count != plan->block_count)
        return bt_tape_fail(tape, BAUTA_ERR_ARGUMENT,
                            "attention: the plan has %zu blocks, the block "
                            "tables have %zu pages",
                            plan->block_count, count);
    bt_kv_page **pages = bt_tape_alloc(tape, count, sizeof(*pages));
    bt_kv_page **to = pages;
    for (size_t i = 0; pages && i < batch->count; i++)
        for (size_t b = 0; b < part_blocks(&batch->sequences[i]); b++)
            *to++ = bt_block_table_page(batch->sequences[i].table, layer, b);
    return pages;
}

bt_tensor *bt_op_paged_attention(bt_tape *tape, bt_tensor *q,
                                 const bt_kv_batch *batch, size_t layer,
                                 const bauta_plan *plan, size_t heads,
                                 size_t kv_heads, size_t value_dim, float scale)
{
    bt_attention_shape s;
    bauta_error err;
    if (!q)
        return NULL;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = q->columns / heads;
    shape.value_dim = value_dim;
    shape.scale = scale;
    bt_kv_page *const *pages = pages_gather(tape, batch, layer, plan);
    bt_tensor *out = bt_tape_output(tape, q->rows, heads * value_dim, false);
    if (!out)
        return NULL;
    bauta_status status = bt_attention_shape_resolve(&s, &shape, &err);
    bt_cpu cpu = bt_tape_cpu(tape);
    if (!status)
        status = bt_attention_paged_cpu(&cpu, plan, &s, q->data, pages,
                                        out->data, NULL, &err);
    if (status)
        return bt_tape_fail(tape, status, "attention: %s", err.message);
    return out;
}
