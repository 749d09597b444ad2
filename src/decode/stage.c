/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - a decode session: its page pool, and checks of its calls. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"
#include "model/handle.h"
#include "ops/context.h"

static bauta_status pool_create(bt_stage *session, uint64_t bytes,
                                bauta_error *err)
{
    bt_shape s;
    const bt_blueprint *config = &session->model->print;
    bauta_attention shape = BAUTA_ATTENTION_INIT;
    shape.heads = config->decoder.heads;
    shape.kv_heads = config->decoder.kv_heads;
    shape.head_dim = config->head_dim;
    bauta_status status = bt_shape_resolve(&s, &shape, err);
    return status ? status : bt_pool_create(&session->pool, &s, bytes, err);
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
                       "an encoder-only model cannot generate text");
    bt_stage *session = bt_alloc_zero(1, sizeof(*session));
    if (!session)
        return bt_fail_memory(err, "a decode session", sizeof(*session));
    session->context = context;
    session->model = model->folder->model;
    bauta_status status = pool_create(session, bytes, err);
    if (status)
        bt_stage_free(session);
    else
        *out = session;
    return status;
}

void bt_stage_free(bt_stage *session)
{
    if (!session)
        return;
    bt_pool_drop(session->pool);
    bt_lane_release(&session->whole);
    for (int l = 0; session->workers && l < session->context->threads; l++)
        bt_lane_release(&session->workers[l]);
    bt_free(session->workers);
    bt_free(session);
}

/* Every sequence counts all of its pages, shared or not. A page that is copied
 * on write is then covered by the cost of the other sequences that hold it. */
uint64_t bt_stage_cost(const bt_stage *session, size_t tokens, size_t source)
{
    size_t pages = bt_size_add(bt_page_count(tokens), bt_page_count(source));
    size_t layers = session->model->print.decoder.layers;
    return bt_size_mul(bt_size_mul(pages, layers), session->pool->bytes);
}

uint64_t bt_stage_used(const bt_stage *session)
{
    return (uint64_t)session->pool->taken * session->pool->bytes;
}

uint64_t bt_stage_bound(const bt_stage *session)
{
    return session->pool->bound;
}

/* ---- for the session's calls ------------------------------------------- */

bauta_status bt_stage_tape(bt_stage *session, bt_tape **out, bauta_error *err)
{
    bauta_context *context = session->context;
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

bauta_status bt_stage_positions(const bt_stage *session, const char *what,
                                size_t number, size_t tokens, bauta_error *err)
{
    const bt_blueprint *config = &session->model->print;
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

bauta_status bt_stage_ids(const bt_stage *session, const char *what,
                          size_t number, const uint32_t *ids, size_t count,
                          bauta_error *err)
{
    size_t vocab = session->model->print.vocab;
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
