/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - plans of attention on a GPU, attention, its gradient, and
 * attention over pages.
 *
 * The kernels' lists depend on the type and on the heads, which a mask knows
 * nothing of. So plan_build() keeps the mask, and the lists are made by the
 * first attention of the plan. They are kept as long as type and heads stay the
 * same, and their memory from one build of the plan to the next; a plan that
 * has had bfloat16 lists gets them at once, for the same heads. A plan of
 * decoding keeps what the rows of its sequences see, which is less than a
 * mask.
 *
 * Decoding. The list of a step counts blocks of 64 keys of its sequences, 0, 1,
 * 2, ..., in the order of the batch. It serves all layers. What a layer needs
 * are pages, so a kernel makes a copy of the list for every layer, with pages
 * in place of blocks (kv_renumber.cu). */
#include "backend/block_table.h"
#include "backend/cuda/bias.h"
#include "backend/cuda/decode.h"
#include "backend/cuda/rows.h"
#include "backend/cuda/step_graph.h"
#include "backend/cuda/stream.h"
#include "base/array.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask_builder.h"

/* A sequence of a step. */
typedef struct plan_part {
    bt_row_visibility rule;
    bauta_mask *mask;   /* of its rows, while lists are made */
    size_t keys;        /* up to the last that a row sees */
    size_t blocks;      /* of all its keys */
    size_t first_block; /* its place among those of the step */
} plan_part;

typedef struct plan {
    bt_attention_plan base;
    int number; /* of the GPU */
    bt_plan_use use;
    bool stale_bf16, stale_f32; /* the lists are not of the mask */
    bt_cuda_rows *rows;         /* float32 */
    /* For bfloat16, and for the heads of this shape. */
    bauta_attention_shape shape;
    bool biased; /* the lists are for attention with a bias */
    bt_cuda_plan *lists;
    bauta_mask *mask;
    /* Of decoding instead: */
    bt_cuda_decode *decode;
    plan_part *parts;
    size_t part_count, part_capacity;
    bt_decode_sequence *sequences; /* with rows, for making lists */
    size_t sequence_capacity;
    uint32_t *blocks; /* (block_count) 0, 1, 2, ...: block tables */
    size_t block_count, block_capacity;
    uint64_t version;          /* of the step that `renumbered` is for */
    bauta_dtype renumbered_as; /* the type of that list */
    bt_cuda_block renumbered;
    size_t tile_words, table_words; /* of a layer */
} plan;

/* Plans are constant to their users, and hold what launches write on the
 * side. */
static plan *plan_of(const bt_attention_plan *base)
{
    return (plan *)(uintptr_t)base;
}

/* ---- Building ---------------------------------------------------------- */

int bt_cuda_attention_plan_number(const bt_attention_plan *base)
{
    return plan_of(base)->number;
}

static void mask_free(plan *p)
{
    bauta_mask_free(p->mask);
    p->mask = NULL;
}

static void lists_free(plan *p)
{
    bt_cuda_plan_free(p->lists);
    bt_cuda_decode_free(p->decode);
    bt_cuda_rows_free(p->rows);
    p->lists = NULL;
    p->decode = NULL;
    p->rows = NULL;
}

void bt_cuda_attention_plan_free(bt_attention_plan *base)
{
    plan *p = plan_of(base);
    if (!p)
        return;
    mask_free(p);
    lists_free(p);
    bt_cuda_block_release(&p->renumbered);
    bt_free(p->parts);
    bt_free(p->sequences);
    bt_free(p->blocks);
    bt_free(p);
}

/* One sequence of a batch; its keys are counted from 0. */
static plan_part part_of(const bt_batch_mask *batch, size_t i, size_t block)
{
    bt_row_visibility rule = bt_row_visibility_of(batch, i);
    // From row to row the end of the keys does not decrease.
    return (plan_part){ .rule = rule,
                        .keys = rule.rows ? bt_row_span(&rule, rule.rows - 1).hi
                                          : 0,
                        .blocks = bt_kv_page_count(rule.keys),
                        .first_block = block };
}

static bauta_status build_parts(plan *p, const bt_batch_mask *mask,
                                bauta_error *err)
{
    size_t count = mask->queries.count, blocks = 0;
    p->part_count = 0;
    if (mask->extra)
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "attention: decoding with an extra mask");
    if (BT_ARRAY_RESERVE(p->parts, p->part_capacity, 0, count) ||
        BT_ARRAY_RESERVE(p->sequences, p->sequence_capacity, 0, count))
        return bt_fail_memory(err, "the plan of a step",
                              bt_size_mul(count, sizeof(*p->parts)));
    for (size_t i = 0; i < count; i++) {
        p->parts[i] = part_of(mask, i, blocks);
        blocks += p->parts[i].blocks;
    }
    p->part_count = count;
    if (blocks > p->block_count &&
        BT_ARRAY_RESERVE(p->blocks, p->block_capacity, p->block_count,
                         blocks - p->block_count))
        return bt_fail_memory(err, "the plan of a step",
                              bt_size_mul(blocks, sizeof(*p->blocks)));
    for (size_t i = p->block_count; i < blocks; i++)
        p->blocks[i] = (uint32_t)i;
    p->block_count = bt_size_max(p->block_count, blocks);
    return BAUTA_OK;
}

static size_t total(const bt_token_axis *axis)
{
    size_t sum = 0;
    for (size_t i = 0; i < axis->count; i++)
        sum += axis->lengths[i];
    return sum;
}

static bauta_status update_bf16(bt_cuda_stream *stream, plan *p,
                                bauta_error *err)
{
    bauta_status status = bt_cuda_plan_update(
        p->lists, p->mask, 0, p->base.rows, 0, stream->queue, err);
    p->stale_bf16 = status != BAUTA_OK;
    return status;
}

bauta_status bt_cuda_attention_plan_build(bt_cuda_stream *stream,
                                          bt_attention_plan **out,
                                          const bt_batch_mask *mask,
                                          bt_plan_use use, bauta_error *err)
{
    plan *p = plan_of(*out);
    if (!p) {
        p = bt_alloc_zero(1, sizeof(*p));
        if (!p)
            return bt_fail_memory(err, "a plan", sizeof(*p));
        p->number = stream->number;
        p->use = use;
        *out = &p->base;
    }
    mask_free(p);
    if (p->use != use)
        lists_free(p);
    p->use = use;
    p->version = 0;
    p->stale_bf16 = p->stale_f32 = true;
    p->base = (bt_attention_plan){ &bt_cuda_backend, 0, 0 };
    bauta_status status = use == BT_PLAN_DECODE
                              ? build_parts(p, mask, err)
                              : bt_batch_mask_create(&p->mask, mask, err);
    if (status)
        return status;
    p->base.rows = total(&mask->queries);
    p->base.keys = total(&mask->keys);
    if (p->lists)
        status = update_bf16(stream, p, err);
    if (p->lists && !status)
        status = bt_cuda_plan_complete(p->lists, stream->queue, err);
    return status;
}

/* ---- Lists ------------------------------------------------------------- */

static bool heads_match(const bauta_attention_shape *a,
                        const bauta_attention_shape *b)
{
    return a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->head_dim == b->head_dim;
}

static bauta_status make_bf16(bt_cuda_stream *stream, plan *p,
                              const bauta_attention_shape *shape,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    // With a bias no document is dense, see bt_cuda_plan_create().
    if (p->lists && (!heads_match(&p->shape, shape) ||
                     p->biased != bt_cuda_biased(shape))) {
        bt_cuda_plan_free(p->lists);
        p->lists = NULL;
    }
    if (p->lists && !p->stale_bf16)
        return BAUTA_OK;
    if (!p->lists)
        status = bt_cuda_plan_create(&p->lists, shape,
                                     p->use == BT_PLAN_BACKWARD, err);
    p->shape = *shape;
    p->shape.bias = NULL;
    p->biased = bt_cuda_biased(shape);
    return status ? status : update_bf16(stream, p, err);
}

static bauta_status make_f32(plan *p, bauta_error *err)
{
    if (p->rows && !p->stale_f32)
        return BAUTA_OK;
    bt_cuda_rows_free(p->rows);
    bauta_status status =
        bt_cuda_rows_create(&p->rows, p->mask, 0, p->base.rows, err);
    p->stale_f32 = status != BAUTA_OK;
    return status;
}

static bauta_status part_mask(plan_part *part, bauta_error *err)
{
    const bt_row_visibility *rule = &part->rule;
    bt_batch_mask one = { .queries = { 1, &rule->rows, 0 },
                          .keys = { 1, &rule->keys, 0 },
                          .prefixes = &rule->prefix,
                          .causal = true,
                          .window = rule->window };
    return bt_batch_mask_create(&part->mask, &one, err);
}

/* One mask of all sequences, the rows of one after those of the other, each
 * over keys that are counted from 0. */
static bauta_status stacked_mask(plan *p, bauta_error *err)
{
    bt_band_builder builder;
    size_t keys = 0;
    for (size_t i = 0; i < p->part_count; i++)
        keys = bt_size_max(keys, p->parts[i].rule.keys);
    bauta_status status =
        bt_band_builder_begin(&builder, p->base.rows, keys, p->part_count, err);
    for (size_t i = 0; i < p->part_count && !status; i++) {
        const bt_row_visibility *rule = &p->parts[i].rule;
        status = bt_band_builder_add_causal(&builder, rule->rows, rule->keys,
                                            rule->window, rule->prefix, err);
    }
    return bt_band_builder_end(&builder, &p->mask, status, err);
}

/* Whether no sequence has more than a row, as in most steps. */
static bool single_rows(const plan *p)
{
    bool single = true;
    for (size_t i = 0; i < p->part_count; i++)
        single = single && p->parts[i].rule.rows <= 1;
    return single;
}

static void sequences_release(plan *p)
{
    mask_free(p);
    for (size_t i = 0; i < p->part_count; i++) {
        bauta_mask_free(p->parts[i].mask);
        p->parts[i].mask = NULL;
    }
}

/* The sequences of the step that have rows, for making lists. With `stacked`
 * they share a mask, which is cheaper than one for each. They are to be
 * released, whatever the result. */
static bauta_status sequences_take(plan *p, bool stacked, size_t *count,
                                   bauta_error *err)
{
    bauta_status status = stacked ? stacked_mask(p, err) : BAUTA_OK;
    *count = 0;
    for (size_t i = 0, row = 0; i < p->part_count && !status; i++) {
        plan_part *part = &p->parts[i];
        const uint32_t *blocks = p->blocks + part->first_block;
        if (!part->rule.rows)
            continue;
        if (!stacked)
            status = part_mask(part, err);
        p->sequences[(*count)++] =
            (bt_decode_sequence){ stacked ? p->mask : part->mask,
                                  stacked ? row : 0, part->rule.rows, blocks };
        row += part->rule.rows;
    }
    return status;
}

static bauta_status make_decode_bf16(bt_cuda_stream *stream, plan *p,
                                     const bauta_attention_shape *shape,
                                     bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    size_t count;
    if (p->decode && !heads_match(&p->shape, shape)) {
        bt_cuda_decode_free(p->decode);
        p->decode = NULL;
    }
    if (p->decode && !p->stale_bf16)
        return BAUTA_OK;
    p->version = 0;
    if (!p->decode)
        status = bt_cuda_decode_create(&p->decode, shape, BT_BLOCK, err);
    p->shape = *shape;
    if (!status)
        status = sequences_take(p, single_rows(p), &count, err);
    if (!status)
        status = bt_cuda_decode_step(p->decode, p->sequences, count,
                                     stream->queue, err);
    sequences_release(p);
    p->stale_bf16 = status != BAUTA_OK;
    return status;
}

static bauta_status make_decode_f32(bt_cuda_stream *stream, plan *p,
                                    bauta_error *err)
{
    if (p->rows && !p->stale_f32)
        return BAUTA_OK;
    p->version = 0;
    size_t count;
    bauta_status status = sequences_take(p, false, &count, err);
    if (!status)
        status = bt_cuda_rows_next_step(&p->rows, p->sequences, count, BT_BLOCK,
                                        stream->queue, err);
    sequences_release(p);
    p->stale_f32 = status != BAUTA_OK;
    return status;
}

/* ---- Softcap and bias --------------------------------------------------- */

/* The table in float32, as the kernels read it: a model in bfloat16 has it in
 * its own type. */
static bauta_status table_take(bt_cuda_stream *stream, bauta_attention_bias *to,
                               const bt_tensor *table, bt_op op,
                               bauta_error *err)
{
    void *memory = NULL;
    to->distances = table->rows;
    if (!bt_tensor_dense(table))
        return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                       "%s: the table of the bias has rows %zu apart",
                       bt_op_name(op), table->stride);
    to->table = bt_cuda_address(table);
    if (table->dtype == BAUTA_FLOAT32)
        return BAUTA_OK;
    bauta_status status = bt_cuda_stream_scratch(
        stream, &memory,
        bt_size_mul(table->rows, table->columns * sizeof(float)), err);
    if (!status)
        status =
            bt_cuda_copy(table->rows, table->columns,
                         (bt_cuda_out){ memory, table->columns }, BAUTA_FLOAT32,
                         bt_cuda_read(table), table->dtype, stream->queue, err);
    to->table = memory;
    return status;
}

/* The bias of an attention in the GPU's memory, for its shape. */
static bauta_status bias_take(bt_cuda_stream *stream, bauta_attention_bias *to,
                              bauta_attention_shape *shape,
                              const bt_attention_bias *from, bt_op op,
                              bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (!from)
        return BAUTA_OK;
    const bt_tensor *const here[] = { from->slopes, from->table,
                                      from->positions };
    *to = (bauta_attention_bias)BAUTA_ATTENTION_BIAS_INIT;
    to->softcap = from->softcap;
    to->first_distance = from->first_distance;
    status = bt_cuda_need_here(stream, op, here, BT_LEN(here), err);
    if (!status)
        status = bt_cuda_need_f32(stream, op, from->slopes, err);
    if (!status && from->table)
        status = table_take(stream, to, from->table, op, err);
    if (from->slopes)
        to->slopes = bt_cuda_address(from->slopes);
    if (from->positions)
        to->positions = bt_cuda_address(from->positions);
    shape->bias = to;
    return status;
}

/* The gradient of the table, which the kernels add to. */
static bauta_status dtable_take(bt_cuda_stream *stream,
                                bauta_attention_bias *to,
                                const bt_attention_grad_args *args,
                                bauta_error *err)
{
    const bt_tensor *dtable = args->dtable;
    if (!args->bias || !dtable)
        return BAUTA_OK;
    bauta_status status =
        bt_cuda_need_f32(stream, BT_OP_attention_grad, dtable, err);
    if (!status && !args->add_dtable)
        status = bt_cuda_stream_fill(
            stream, bt_cuda_address(dtable), 0,
            bt_size_mul(dtable->rows, dtable->columns * sizeof(float)), err);
    to->dtable = bt_cuda_address(dtable);
    return status;
}

/* ---- Attention --------------------------------------------------------- */

static bauta_attention_shape shape_of(size_t heads, size_t kv_heads,
                                      float scale, const bt_tensor *q,
                                      const bt_tensor *out)
{
    bauta_attention_shape s = BAUTA_ATTENTION_SHAPE_INIT;
    s.heads = heads;
    s.kv_heads = kv_heads;
    s.head_dim = q->columns / heads;
    s.value_dim = out->columns / heads;
    s.scale = scale;
    s.q_token = q->stride;
    s.q_head = s.head_dim;
    s.out_token = out->stride;
    s.out_head = s.value_dim;
    return s;
}

static void shape_add_kv(bauta_attention_shape *s, const bt_tensor *k,
                         const bt_tensor *v)
{
    s->k_token = k->stride;
    s->k_head = s->head_dim;
    s->v_token = v->stride;
    s->v_head = s->value_dim;
}

static bauta_status plan_check(const plan *p, bool decode, size_t rows,
                               bauta_error *err)
{
    if (p->base.backend != &bt_cuda_backend ||
        (p->use == BT_PLAN_DECODE) != decode)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "attention: the plan was built for another use");
    if (p->base.rows != rows)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "attention: q has %zu rows, the plan %zu", rows,
                       p->base.rows);
    return BAUTA_OK;
}

bauta_status bt_cuda_op_attention(bt_cuda_stream *stream,
                                  const bt_attention_args *args,
                                  bauta_error *err)
{
    plan *p = plan_of(args->plan);
    const bt_tensor *q = args->q, *k = args->k, *v = args->v;
    bauta_attention_shape shape =
        shape_of(args->heads, args->kv_heads, args->scale, q, args->out);
    bauta_attention_bias bias;
    BT_CUDA_NEED_SAME(stream, err, attention, q, k, v, args->out);
    BT_CUDA_NEED_F32(stream, err, attention, args->lse);
    shape_add_kv(&shape, k, v);
    bauta_status status = plan_check(p, false, q->rows, err);
    if (!status)
        status =
            bias_take(stream, &bias, &shape, args->bias, BT_OP_attention, err);
    if (status)
        return status;
    if (q->dtype == BAUTA_FLOAT32) {
        status = make_f32(p, err);
        return status ? status
                      : bt_attention_forward_f32_cuda(
                            p->rows, &shape, bt_cuda_address(q),
                            bt_cuda_address(k), bt_cuda_address(v),
                            bt_cuda_address(args->out),
                            bt_cuda_address(args->lse), stream->queue, err);
    }
    status = make_bf16(stream, p, &shape, err);
    return status
               ? status
               : bt_attention_forward_bf16_cuda(
                     p->lists, &shape, bt_cuda_address(q), bt_cuda_address(k),
                     bt_cuda_address(v), bt_cuda_address(args->out),
                     bt_cuda_address(args->lse), stream->queue, err);
}

/* Gradients lie as what they are the gradients of. */
static bauta_status strides_check(const bt_attention_grad_args *a,
                                  bauta_error *err)
{
    const bt_tensor *const pairs[][2] = {
        { a->q, a->dq }, { a->k, a->dk }, { a->v, a->dv }, { a->out, a->dout }
    };
    for (size_t i = 0; i < BT_LEN(pairs); i++)
        if (pairs[i][0]->stride != pairs[i][1]->stride)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "attention_grad: rows %zu apart, and %zu of the "
                           "gradient",
                           pairs[i][0]->stride, pairs[i][1]->stride);
    return BAUTA_OK;
}

bauta_status bt_cuda_op_attention_grad(bt_cuda_stream *stream,
                                       const bt_attention_grad_args *args,
                                       bauta_error *err)
{
    plan *p = plan_of(args->plan);
    const bt_tensor *q = args->q, *k = args->k, *v = args->v;
    bauta_attention_shape shape =
        shape_of(args->heads, args->kv_heads, args->scale, q, args->out);
    bauta_attention_bias bias;
    BT_CUDA_NEED_SAME(stream, err, attention_grad, q, k, v, args->out,
                      args->dout, args->dq, args->dk, args->dv);
    BT_CUDA_NEED_F32(stream, err, attention_grad, args->lse);
    shape_add_kv(&shape, k, v);
    bauta_status status = plan_check(p, false, q->rows, err);
    if (!status)
        status = strides_check(args, err);
    if (!status && p->use != BT_PLAN_BACKWARD)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "attention_grad: the plan was built for another use");
    if (!status)
        status = bias_take(stream, &bias, &shape, args->bias,
                           BT_OP_attention_grad, err);
    if (!status)
        status = dtable_take(stream, &bias, args, err);
    if (status)
        return status;
    if (q->dtype == BAUTA_FLOAT32) {
        status = make_f32(p, err);
        return status
                   ? status
                   : bt_attention_backward_f32_cuda(
                         p->rows, &shape, bt_cuda_address(q),
                         bt_cuda_address(k), bt_cuda_address(v),
                         bt_cuda_address(args->out), bt_cuda_address(args->lse),
                         bt_cuda_address(args->dout), bt_cuda_address(args->dq),
                         bt_cuda_address(args->dk), bt_cuda_address(args->dv),
                         stream->queue, err);
    }
    status = make_bf16(stream, p, &shape, err);
    return status
               ? status
               : bt_attention_backward_bf16_cuda(
                     p->lists, &shape, bt_cuda_address(q), bt_cuda_address(k),
                     bt_cuda_address(v), bt_cuda_address(args->out),
                     bt_cuda_address(args->lse), bt_cuda_address(args->dout),
                     bt_cuda_address(args->dq), bt_cuda_address(args->dk),
                     bt_cuda_address(args->dv), stream->queue, err);
}

/* ---- Attention over pages ---------------------------------------------- */

/* The plan's sequences must have as many blocks as those of the batch. */
static bauta_status blocks_check(const plan *p, const bt_kv_batch *batch,
                                 bauta_error *err)
{
    if (p->part_count != batch->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "attention: the plan has %zu sequences, the batch %zu",
                       p->part_count, batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        const bt_kv_sequence *s = &batch->sequences[i];
        size_t blocks = bt_kv_page_count(s->table->tokens + s->rows);
        if (p->parts[i].blocks != blocks)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "attention: sequence %zu of the plan has %zu "
                           "blocks, its block table %zu pages",
                           i, p->parts[i].blocks, blocks);
    }
    return BAUTA_OK;
}

/* A part of the step's list, with blocks that become pages. */
typedef struct numbered {
    const void *from;
    size_t count;
    int stride; /* words */
} numbered;

/* The parts of bfloat16: the tiles of decoding, and the pages of prefill. */
static void parts_bf16(numbered *tiles, numbered *table,
                       const bt_cuda_decode *d)
{
    // Pieces of one block of memory; what rounds them up is zero.
    size_t bytes = (size_t)((char *)d->bits - (char *)d->tiles);
    *tiles = (numbered){ d->tiles, bytes / sizeof(bt_decode_tile), 2 };
    *table = (numbered){ d->table, (size_t)(d->start - d->table), 1 };
    if (!d->item_count)
        tiles->count = 0;
}

/* The one of float32. */
static numbered part_f32(const plan *p)
{
    size_t count = 0;
    for (size_t i = 0; i < p->part_count; i++)
        count += bt_kv_page_count(p->parts[i].keys);
    return (numbered){ p->rows->device.pages, count, 1 };
}

/* The list of every layer of a step. */
static bauta_status renumber(bt_cuda_stream *stream, plan *p,
                             const bt_cuda_kv_step *step, bauta_dtype dtype,
                             bauta_error *err)
{
    numbered tiles = { 0 }, table = { 0 };
    if (p->version == step->version && p->renumbered_as == dtype)
        return BAUTA_OK;
    if (dtype == BAUTA_FLOAT32)
        table = part_f32(p);
    else
        parts_bf16(&tiles, &table, p->decode);
    p->tile_words = bt_size_round(2 * tiles.count, 64);
    p->table_words = bt_size_round(table.count, 64);
    size_t words = bt_size_mul(step->layers, p->tile_words + p->table_words);
    p->version = 0;
    bauta_status status = bt_cuda_block_reserve(
        &p->renumbered, bt_size_mul(words + 1, sizeof(int32_t)), NULL, err);
    int32_t *to = p->renumbered.memory;
    if (!status)
        status = bt_cuda_kv_renumber(to, p->tile_words, tiles.from, tiles.count,
                                     2, bt_cuda_kv_numbers(step), step->layers,
                                     step->stride, stream->queue, err);
    if (!status)
        status = bt_cuda_kv_renumber(to + step->layers * p->tile_words,
                                     p->table_words, table.from, table.count, 1,
                                     bt_cuda_kv_numbers(step), step->layers,
                                     step->stride, stream->queue, err);
    // Attention may begin to read its list before the kernel before it ends,
    // but not before this is done.
    if (!status)
        status =
            bt_cuda_stream_fill(stream, to + words, 0, sizeof(int32_t), err);
    if (status)
        return status;
    p->version = step->version;
    p->renumbered_as = dtype;
    return BAUTA_OK;
}

static bauta_status paged_f32(bt_cuda_stream *stream, plan *p,
                              const bt_cuda_kv_step *step,
                              const bt_paged_attention_args *args,
                              const bauta_attention_shape *shape,
                              const bt_cuda_pages *pages, bauta_error *err)
{
    const int32_t *tables = p->renumbered.memory;
    bt_cuda_rows layer = *p->rows;
    (void)step;
    layer.device.pages = tables + args->layer * p->table_words;
    layer.page_count = bt_size_min(layer.page_count, 1);
    return bt_attention_decode_f32_cuda(&layer, shape, bt_cuda_address(args->q),
                                        pages, bt_cuda_address(args->out), NULL,
                                        stream->queue, err);
}

static bauta_status paged_bf16(bt_cuda_stream *stream, plan *p,
                               const bt_cuda_kv_step *step,
                               const bt_paged_attention_args *args,
                               const bauta_attention_shape *shape,
                               const bt_cuda_pages *pages, bauta_error *err)
{
    int32_t *tiles = p->renumbered.memory;
    int32_t *tables = tiles + step->layers * p->tile_words;
    bt_cuda_decode layer = *p->decode;
    layer.tiles = (bt_decode_tile *)(tiles + args->layer * p->tile_words);
    layer.table = tables + args->layer * p->table_words;
    layer.pages = bt_size_min(layer.pages, 1);
    return bt_attention_decode_bf16_cuda(
        &layer, shape, bt_cuda_address(args->q), pages,
        bt_cuda_address(args->out), NULL, stream->queue, err);
}

/* Whether each sequence of the step has one query, and each of the batch one
 * new row: that of the same number. */
static bool rows_follow(const plan *p, const bt_kv_batch *batch)
{
    bool follow = true;
    for (size_t i = 0; i < batch->count && follow; i++)
        follow = p->parts[i].rule.rows == 1 && batch->sequences[i].rows == 1 &&
                 batch->sequences[i].row == i;
    return follow;
}

/* Attention that writes the new rows on its way, if there is a kernel for it;
 * else *done is false. */
static bauta_status paged_write(bt_cuda_stream *stream, plan *p,
                                const bt_cuda_kv_step *step,
                                const bt_paged_attention_args *args,
                                const bauta_attention_shape *shape,
                                const bt_cuda_pages *pages, bool *done,
                                bauta_error *err)
{
    const bt_kv_write_args *write = args->write;
    const bt_kv_pool *pool = args->batch->sequences[0].table->pool;
    const bt_tensor *q = write->q ? write->q : args->q;
    bauta_attention_shape own = *shape;
    *done = false;
    if (args->q->dtype != BAUTA_BFLOAT16 || !rows_follow(p, args->batch) ||
        step->rows != q->rows || step->rows != write->k->rows)
        return BAUTA_OK;
    bt_cuda_page_out to =
        bt_cuda_kv_write_pages(step->base, &pool->shape, pool->dtype);
    bt_cuda_decode_rows rows = {
        .k = bt_cuda_address(write->k),
        .v = bt_cuda_address(write->v),
        .k_token = write->k->stride,
        .v_token = write->v->stride,
        .positions = bt_cuda_address(write->positions),
        .frequencies = bt_cuda_address(write->frequencies),
        .places = bt_cuda_kv_places(step) + args->layer * step->rows,
        .k_pages = to.k,
        .v_pages = to.v,
        .page = to.page,
        .head = to.head,
        .token = to.token,
        .numbers = bt_cuda_kv_numbers(step) + args->layer * step->stride,
    };
    if (!bt_cuda_decode_takes_rows(p->decode, &rows))
        return BAUTA_OK;
    bt_cuda_decode layer = *p->decode;
    layer.pages = bt_size_min(layer.pages, 1);
    own.q_token = q->stride;
    *done = true;
    return bt_attention_decode_short_bf16_cuda(
        &layer, &own, bt_cuda_address(q), &rows, true, pages,
        bt_cuda_address(args->out), NULL, stream->queue, err);
}

bauta_status bt_cuda_op_paged_attention(bt_cuda_stream *stream,
                                        const bt_paged_attention_args *args,
                                        bauta_error *err)
{
    plan *p = plan_of(args->plan);
    const bt_kv_batch *batch = args->batch;
    bauta_dtype dtype = args->q->dtype;
    bt_cuda_kv_step *step = NULL;
    bool done = false;
    bauta_attention_shape shape =
        shape_of(args->heads, args->kv_heads, args->scale, args->q, args->out);
    bauta_attention_bias bias;
    BT_CUDA_NEED_SAME(stream, err, paged_attention, args->q, args->out);
    bauta_status status = plan_check(p, true, args->q->rows, err);
    if (!status)
        status = blocks_check(p, batch, err);
    if (status || !args->q->rows)
        return status;
    const bt_kv_pool *pool = batch->sequences[0].table->pool;
    if (pool->dtype != dtype || pool->shape.kv_heads != args->kv_heads ||
        pool->shape.head_dim != shape.head_dim ||
        pool->shape.value_dim != shape.value_dim)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "attention: %s heads of %zu and %zu over pages of %s "
                       "heads of %zu and %zu",
                       bt_dtype_name(dtype), shape.head_dim, shape.value_dim,
                       bt_dtype_name(pool->dtype), pool->shape.head_dim,
                       pool->shape.value_dim);
    status = dtype == BAUTA_FLOAT32 ? make_decode_f32(stream, p, err)
                                    : make_decode_bf16(stream, p, &shape, err);
    if (!status)
        status = bt_cuda_kv_step_of(stream, &step, batch, args->layer, err);
    if (!status)
        status = bias_take(stream, &bias, &shape, args->bias,
                           BT_OP_paged_attention, err);
    if (status)
        return status;
    bt_cuda_pages pages = bt_cuda_kv_read_pages(step, &pool->shape, dtype);
    // All that a step writes to pages are its own tokens.
    pages.early_reads = bt_cuda_stepping(stream->queue);
    if (args->write) {
        status = bt_cuda_kv_write_check(stream, args->write, err);
        if (!status)
            status =
                paged_write(stream, p, step, args, &shape, &pages, &done, err);
        if (!status && !done)
            status = bt_cuda_op_kv_write(stream, args->write, err);
    }
    if (status || done)
        return status;
    status = renumber(stream, p, step, dtype, err);
    if (status)
        return status;
    return dtype == BAUTA_FLOAT32
               ? paged_f32(stream, p, step, args, &shape, &pages, err)
               : paged_bf16(stream, p, step, args, &shape, &pages, err);
}
