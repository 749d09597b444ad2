/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - a decode session: its page pool, and checks of its calls. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"
#include "model/api.h"
#include "runtime/context.h"

static bauta_status pool_create(bt_decode_session *session, uint64_t bytes,
                                bauta_error *err)
{
    bt_attention_shape s;
    const bt_model_config *config = &session->model->config;
    bauta_attention_shape shape = BAUTA_ATTENTION_SHAPE_INIT;
    shape.heads = config->decoder.heads;
    shape.kv_heads = config->decoder.kv_heads;
    shape.head_dim = config->head_dim;
    bauta_status status = bt_attention_shape_resolve(&s, &shape, err);
    return status
               ? status
               : bt_kv_pool_create(&session->pool,
                                   session->context->stream->backend, &s,
                                   session->context->stream->dtype, bytes, err);
}

bauta_status bt_decode_session_create(bt_decode_session **out,
                                      bauta_context *context,
                                      const bauta_model *model, uint64_t bytes,
                                      bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    BT_NEED(context, err);
    BT_NEED(model, err);
    bauta_status status = bt_model_check_device(model, context, err);
    if (status)
        return status;
    if (bauta_model_kind_of(model) == BAUTA_ENCODER_ONLY)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "an encoder-only model cannot generate text");
    bt_decode_session *session = bt_alloc_zero(1, sizeof(*session));
    if (!session)
        return bt_fail_memory(err, "a decode session", sizeof(*session));
    session->context = context;
    session->model = model->store->model;
    status = pool_create(session, bytes, err);
    if (status)
        bt_decode_session_free(session);
    else
        *out = session;
    return status;
}

void bt_decode_session_free(bt_decode_session *session)
{
    if (!session)
        return;
    bt_kv_pool_release(session->pool);
    bt_decode_worker_release(&session->whole);
    for (int l = 0; session->workers && l < session->context->threads; l++)
        bt_decode_worker_release(&session->workers[l]);
    bt_free(session->workers);
    bt_free(session);
}

/* Every sequence counts all of its pages, shared or not. A page that is copied
 * on write is then covered by the cost of the other sequences that hold it. */
uint64_t bt_decode_session_cost(const bt_decode_session *session, size_t tokens,
                                size_t source)
{
    size_t pages =
        bt_size_add(bt_kv_page_count(tokens), bt_kv_page_count(source));
    size_t layers = session->model->config.decoder.layers;
    return bt_size_mul(bt_size_mul(pages, layers), session->pool->bytes);
}

uint64_t bt_decode_session_used(const bt_decode_session *session)
{
    return (uint64_t)session->pool->used * session->pool->bytes;
}

uint64_t bt_decode_session_limit(const bt_decode_session *session)
{
    return session->pool->max_bytes;
}

/* ---- for the session's calls ------------------------------------------- */

bauta_status bt_decode_session_check_length(const bt_decode_session *session,
                                            const char *what, size_t number,
                                            size_t tokens, bauta_error *err)
{
    const bt_model_config *config = &session->model->config;
    bool table = bt_positions_in_table(config->position_kind);
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

bauta_status bt_decode_session_check_ids(const bt_decode_session *session,
                                         const char *what, size_t number,
                                         const uint32_t *ids, size_t count,
                                         bauta_error *err)
{
    size_t vocab = session->model->config.vocab_size;
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
