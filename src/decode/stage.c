/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c - the stage itself: its pool, and what its calls have in common. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"
#include "model/handle.h"
#include "ops/context.h"

static bauta_status pool_make(bt_stage *stage, uint64_t bytes, bauta_error *err)
{
    bt_shape s;
    const bt_blueprint *config = &stage->model->print;
    bauta_attention shape = BAUTA_ATTENTION_INIT;
    shape.heads = config->decoder.heads;
    shape.kv_heads = config->decoder.kv_heads;
    shape.head_dim = config->head_dim;
    bauta_status status = bt_shape_resolve(&s, &shape, err);
    return status ? status : bt_pool_create(&stage->pool, &s, bytes, err);
}

bauta_status bt_stage_create(bt_stage **out, bauta_context *context,
                             const bauta_model *model, uint64_t bytes,
                             bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED_CPU(context, err);
    BT_NEED(model, err);
    if (bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "an encoder-only model has nothing to generate with");
    bt_stage *stage = bt_alloc_zero(1, sizeof(*stage));
    if (!stage)
        return bt_fail_memory(err, "a stage", sizeof(*stage));
    stage->context = context;
    stage->model = model->folder->model;
    bauta_status status = pool_make(stage, bytes, err);
    if (status)
        bt_stage_free(stage);
    else
        *out = stage;
    return status;
}

void bt_stage_free(bt_stage *stage)
{
    if (!stage)
        return;
    bt_pool_drop(stage->pool);
    bt_lane_release(&stage->whole);
    for (int l = 0; stage->lanes && l < stage->context->threads; l++)
        bt_lane_release(&stage->lanes[l]);
    bt_free(stage->lanes);
    bt_free(stage);
}

/* Every sequence may have all its pages for itself. A page that is copied
 * because others hold it too is one of theirs, and counted there. */
uint64_t bt_stage_cost(const bt_stage *stage, size_t tokens, size_t source)
{
    size_t pages = bt_size_add(bt_page_count(tokens), bt_page_count(source));
    size_t layers = stage->model->print.decoder.layers;
    return bt_size_mul(bt_size_mul(pages, layers), stage->pool->bytes);
}

uint64_t bt_stage_used(const bt_stage *stage)
{
    return (uint64_t)stage->pool->taken * stage->pool->bytes;
}

uint64_t bt_stage_bound(const bt_stage *stage)
{
    return stage->pool->bound;
}

/* ---- for its calls ----------------------------------------------------- */

bauta_status bt_stage_tape(bt_stage *stage, bt_tape **out, bauta_error *err)
{
    bauta_context *context = stage->context;
    bauta_status status = BAUTA_OK;
    if (!context->tape)
        status = bt_tape_create(&context->tape, context->kernels,
                                context->threads, err);
    if (status)
        return status;
    bt_tape_rewind(context->tape, false);
    *out = context->tape;
    return BAUTA_OK;
}

bauta_status bt_stage_positions(const bt_stage *stage, const char *what,
                                size_t number, size_t tokens, bauta_error *err)
{
    const bt_blueprint *config = &stage->model->print;
    bool table = config->positions != BT_POSITIONS_ROTARY;
    if (table && tokens > config->max_positions)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s %zu has %zu tokens, the model has %zu positions",
                       what, number, tokens, config->max_positions);
    if (tokens > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s %zu has %zu tokens, and %zu is the most", what,
                       number, tokens, BT_AXIS_MAX);
    return BAUTA_OK;
}

bauta_status bt_stage_ids(const bt_stage *stage, const char *what,
                          size_t number, const uint32_t *ids, size_t count,
                          bauta_error *err)
{
    size_t vocab = stage->model->print.vocab;
    if (!ids && count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "%s %zu has no ids", what,
                       number);
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "%s %zu, token %zu: id %u is not in a vocabulary "
                           "of %zu",
                           what, number, i, (unsigned)ids[i], vocab);
    return BAUTA_OK;
}
