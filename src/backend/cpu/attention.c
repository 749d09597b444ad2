/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - plans of the CPU, attention on tensors, and the biases and
 * softcap of an attention. */
#include "backend/cpu/attention.h"

#include "backend/cpu/kernels/exp2.h"
#include "backend/cpu/kv_pages.h"
#include "base/error.h"

#include <string.h>

/* ---- Plans -------------------------------------------------------------- */

static const bauta_plan *plan_of(const bt_attention_plan *plan)
{
    const bt_cpu_plan *p = (const bt_cpu_plan *)plan;
    return p->batch ? p->batch : &p->decode.plan;
}

void bt_cpu_plan_free(bt_attention_plan *plan)
{
    bt_cpu_plan *p = (bt_cpu_plan *)plan;
    if (!p)
        return;
    bauta_plan_free(p->batch);
    bt_decode_plan_release(&p->decode);
    bt_free(p);
}

static bauta_status batch_build(bt_cpu_plan *p, const bt_batch_mask *mask,
                                bauta_error *err)
{
    bauta_mask *whole = NULL;
    bauta_status status = bt_batch_mask_create(&whole, mask, err);
    if (!status)
        status = bauta_plan_create(&p->batch, whole, 0, whole->queries, err);
    bauta_mask_free(whole);
    return status;
}

bauta_status bt_cpu_plan_build(bt_stream *stream, bt_attention_plan **plan,
                               const bt_batch_mask *mask, bt_plan_use use,
                               bauta_error *err)
{
    (void)stream;
    bt_cpu_plan *p = (bt_cpu_plan *)*plan;
    if (!p)
        p = bt_alloc_zero(1, sizeof(*p));
    if (!p)
        return bt_fail_memory(err, "a plan", sizeof(*p));
    *plan = &p->base;
    p->base = (bt_attention_plan){ .backend = &bt_cpu_backend };
    bauta_plan_free(p->batch);
    p->batch = NULL;
    bauta_status status = use == BT_PLAN_DECODE
                              ? bt_decode_plan_build(&p->decode, mask, err)
                              : batch_build(p, mask, err);
    if (status)
        return status;
    p->base.rows = plan_of(*plan)->rows;
    p->base.keys = plan_of(*plan)->keys;
    return BAUTA_OK;
}

/* ---- Attention ---------------------------------------------------------- */

/* The bias in host memory; its gradient is of no concern yet. */
static bauta_attention_bias bias_of(const bt_attention_bias *from)
{
    bauta_attention_bias bias = BAUTA_ATTENTION_BIAS_INIT;
    bias.softcap = from->softcap;
    if (from->slopes)
        bias.slopes = bt_cpu_f32(from->slopes);
    if (from->table) {
        bias.table = bt_cpu_f32(from->table);
        bias.distances = from->table->rows;
        bias.first_distance = from->first_distance;
    }
    if (from->positions)
        bias.positions = bt_tensor_host(from->positions);
    return bias;
}

static bauta_status shape_of(bt_attention_shape *out, size_t head_dim,
                             size_t value_dim, size_t heads, size_t kv_heads,
                             float scale, const bt_attention_bias *from,
                             bauta_error *err)
{
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    bauta_attention_bias bias;
    if (from) {
        bias = bias_of(from);
        shape.bias = &bias;
    }
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = head_dim;
    shape.value_dim = value_dim;
    shape.scale = scale;
    return bt_attention_shape_resolve(out, &shape, err);
}

static bauta_status fail_attention(bauta_status status, const char *message,
                                   bauta_error *err)
{
    return bt_fail(err, status, "attention: %s", message);
}

bauta_status bt_cpu_attention(bt_stream *stream, const bt_attention_args *args,
                              bauta_error *err)
{
    bt_attention_shape shape;
    bauta_error why;
    BT_CPU_CHECK(stream, attention, err, args->q, args->k, args->v, args->out,
                 args->lse);
    bauta_status status =
        shape_of(&shape, args->q->columns / args->heads,
                 args->v->columns / args->kv_heads, args->heads, args->kv_heads,
                 args->scale, args->bias, &why);
    if (!status)
        status = bt_attention_forward_cpu(
            bt_cpu_of(stream), plan_of(args->plan), &shape, bt_cpu_f32(args->q),
            bt_cpu_f32(args->k), bt_cpu_f32(args->v), bt_cpu_f32(args->out),
            bt_cpu_f32(args->lse), &why);
    return status ? fail_attention(status, why.message, err) : BAUTA_OK;
}

bauta_status bt_cpu_attention_grad(bt_stream *stream,
                                   const bt_attention_grad_args *args,
                                   bauta_error *err)
{
    bt_attention_shape shape;
    bauta_error why;
    BT_CPU_CHECK(stream, attention_grad, err, args->q, args->k, args->v,
                 args->out, args->lse, args->dout, args->dq, args->dk,
                 args->dv);
    bauta_status status =
        shape_of(&shape, args->q->columns / args->heads,
                 args->v->columns / args->kv_heads, args->heads, args->kv_heads,
                 args->scale, args->bias, &why);
    if (!status && args->dtable) {
        if (!args->add_dtable)
            status = bt_tensor_zero(stream, args->dtable, &why);
        shape.bias.dtable = bt_cpu_f32(args->dtable);
    }
    if (!status)
        status = bt_attention_backward_cpu(
            bt_cpu_of(stream), plan_of(args->plan), &shape, bt_cpu_f32(args->q),
            bt_cpu_f32(args->k), bt_cpu_f32(args->v), bt_cpu_f32(args->out),
            bt_cpu_f32(args->lse), bt_cpu_f32(args->dout), bt_cpu_f32(args->dq),
            bt_cpu_f32(args->dk), bt_cpu_f32(args->dv), &why);
    return status ? fail_attention(status, why.message, err) : BAUTA_OK;
}

/* ---- Paged attention ---------------------------------------------------- */

static size_t sequence_blocks(const bt_kv_sequence *sequence)
{
    return bt_kv_page_count(sequence->table->tokens + sequence->rows);
}

static size_t batch_blocks(const bt_kv_batch *batch)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        count += sequence_blocks(&batch->sequences[i]);
    return count;
}

/* The pages of a layer of all sequences, in the order of the plan's blocks. */
static void gather_pages(bt_kv_page **to, const bt_kv_batch *batch,
                         size_t layer)
{
    for (size_t i = 0; i < batch->count; i++)
        for (size_t b = 0; b < sequence_blocks(&batch->sequences[i]); b++)
            *to++ = bt_block_table_page(batch->sequences[i].table, layer, b);
}

/* New tokens whose keys have to be rotated are written now, others by the
 * writer. */
static bauta_status write_begin(bt_stream *stream,
                                const bt_kv_write_args *write,
                                bt_kv_writer *writer, bauta_error *err)
{
    if (!write)
        return BAUTA_OK;
    if (write->q)
        return bt_cpu_kv_write(stream, write, err);
    BT_CPU_CHECK(stream, kv_write, err, write->k, write->v);
    *writer = bt_kv_writer_of(bt_cpu_of(stream), write);
    return BAUTA_OK;
}

/* One call serves all sequences, and its tasks are the tiles and heads of all
 * of them. */
bauta_status bt_cpu_paged_attention(bt_stream *stream,
                                    const bt_paged_attention_args *args,
                                    bauta_error *err)
{
    bt_cpu *cpu = bt_cpu_of(stream);
    const bauta_plan *plan = plan_of(args->plan);
    size_t count = batch_blocks(args->batch);
    bt_attention_shape shape;
    bt_kv_writer writer;
    bauta_error why;
    BT_CPU_CHECK(stream, paged_attention, err, args->q, args->out);
    if (count != plan->block_count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "attention: the plan has %zu blocks, the block tables "
                       "have %zu pages",
                       plan->block_count, count);
    bauta_status status =
        shape_of(&shape, args->q->columns / args->heads,
                 args->out->columns / args->heads, args->heads, args->kv_heads,
                 args->scale, args->bias, &why);
    if (status)
        return fail_attention(status, why.message, err);
    bool fused = args->write && !args->write->q;
    status = write_begin(stream, args->write, &writer, err);
    if (status)
        return status;
    size_t bytes = bt_size_round(count * sizeof(bt_kv_page *), BT_ALIGN);
    if (bt_arena_reserve(&cpu->pages, bytes))
        return bt_fail_memory(err, "a list of pages", bytes);
    bt_kv_page **pages =
        bt_arena_alloc(&cpu->pages, count, sizeof(bt_kv_page *));
    gather_pages(pages, args->batch, args->layer);
    status = bt_attention_paged_cpu(cpu, plan, &shape, bt_cpu_f32(args->q),
                                    pages, fused ? &writer : NULL,
                                    bt_cpu_f32(args->out), NULL, &why);
    return status ? fail_attention(status, why.message, err) : BAUTA_OK;
}

/* ---- Biases ------------------------------------------------------------- */

/* The gradient of the table is summed in double: each block of keys of each
 * head has sums of its own, over its rows in their order, and at the end the
 * blocks are added in order. So no sum depends on threads. */

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
