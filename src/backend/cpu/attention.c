/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - plans of the CPU, and attention on tensors. */
#include "backend/cpu/attention.h"

#include "base/error.h"

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
    size_t bytes = bt_size_round(count * sizeof(bt_kv_page *), BT_ALIGN);
    if (bt_arena_reserve(&cpu->pages, bytes))
        return bt_fail_memory(err, "a list of pages", bytes);
    bt_kv_page **pages =
        bt_arena_alloc(&cpu->pages, count, sizeof(bt_kv_page *));
    gather_pages(pages, args->batch, args->layer);
    status = bt_attention_paged_cpu(cpu, plan, &shape, bt_cpu_f32(args->q),
                                    pages, bt_cpu_f32(args->out), NULL, &why);
    return status ? fail_attention(status, why.message, err) : BAUTA_OK;
}
