/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - a decode session: its page pool, its sequences, and the encoded
 * sources that they share. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "mask/mask.h"
#include "model/api.h"
#include "runtime/context.h"

#include <assert.h>
#include <string.h>

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

/* ---- Sources ------------------------------------------------------------ */

static bt_cross_kv *cross_kv_retain(bt_cross_kv *cross_kv)
{
    if (cross_kv)
        cross_kv->references++;
    return cross_kv;
}

void bt_cross_kv_release(bt_cross_kv *cross_kv)
{
    if (!cross_kv || --cross_kv->references)
        return;
    bt_block_table_release(&cross_kv->block_table);
    bt_free(cross_kv);
}

static bauta_status cross_kv_create(bt_cross_kv **out,
                                    bt_decode_session *session, size_t tokens,
                                    bauta_error *err)
{
    bt_cross_kv *cross_kv = bt_alloc_zero(1, sizeof(*cross_kv));
    if (!cross_kv)
        return bt_fail_memory(err, "the keys and values of a source",
                              sizeof(*cross_kv));
    *cross_kv = (bt_cross_kv){ .session = session, .references = 1 };
    bt_block_table_init(&cross_kv->block_table, session->pool,
                        session->model->config.decoder.layers);
    bauta_status status = bt_block_table_reserve(
        &cross_kv->block_table, session->context->stream, tokens, err);
    if (status)
        bt_cross_kv_release(cross_kv);
    else
        *out = cross_kv;
    return status;
}

/* ---- encoding ---------------------------------------------------------- */

static bauta_status sources_check(const bt_decode_session *session,
                                  size_t count, const uint32_t *const *ids,
                                  const size_t *lengths, bauta_error *err)
{
    size_t rows = 0;
    bauta_status status = BAUTA_OK;
    if (session->model->config.stacks != BT_ENCODER_DECODER)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a decoder-only model does not read a source");
    for (size_t i = 0; i < count && !status; i++) {
        if (lengths[i] == 0)
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "source %zu is empty", i);
        status = bt_decode_session_check_length(session, "source", i,
                                                lengths[i], err);
        if (!status)
            status = bt_decode_session_check_ids(session, "source", i, ids[i],
                                                 lengths[i], err);
        rows = bt_size_add(rows, lengths[i]);
    }
    if (!status && rows > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu sources have %zu tokens, and %zu are the most",
                       count, rows, BT_AXIS_MAX);
    return status;
}

/* Pack the rows of all sources back to back on the tape, with a block table for
 * each. False when the tape has failed. */
static bool rows_pack(bt_tape *tape, bt_forward_input *input,
                      bt_kv_sequence *tables, size_t count,
                      const uint32_t *const *ids, const size_t *lengths,
                      bt_cross_kv *const *cross_kvs)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        tables[i] =
            (bt_kv_sequence){ &cross_kvs[i]->block_table, rows, lengths[i] };
        rows += lengths[i];
    }
    uint32_t *all = bt_tape_alloc(tape, rows, sizeof(*all));
    uint32_t *positions = bt_tape_alloc(tape, rows, sizeof(*positions));
    if (!positions)
        return false;
    for (size_t i = 0; i < count; i++) {
        memcpy(all + tables[i].row, ids[i], lengths[i] * sizeof(*all));
        for (size_t t = 0; t < lengths[i]; t++)
            positions[tables[i].row + t] = (uint32_t)t;
    }
    *input = (bt_forward_input){ .tokens = rows,
                                 .ids = all,
                                 .positions = positions };
    return true;
}

static bauta_status sources_run(bt_decode_session *session, size_t count,
                                const uint32_t *const *ids,
                                const size_t *lengths,
                                bt_cross_kv *const *cross_kvs, bauta_error *err)
{
    bt_tape *tape = session->context->tape;
    bt_forward_input input;
    bt_tape_rewind(tape, false);
    bt_kv_sequence *tables = bt_tape_alloc(tape, count, sizeof(*tables));
    if (!tables ||
        !rows_pack(tape, &input, tables, count, ids, lengths, cross_kvs))
        return bt_tape_status(tape, err);
    bt_token_axis axis = { count, lengths, 0 };
    bauta_status status = bt_decode_worker_plans(
        &session->whole, session->context->stream, &input,
        &session->model->config, BAUTA_ATTENTION_ENCODER,
        &(bt_batch_mask){ .queries = axis, .keys = axis }, err);
    if (status)
        return status;
    bt_tensor *states = bt_transformer_encode(tape, session->model, &input);
    bt_transformer_write_cross_kv(tape, session->model, states,
                                  &(bt_kv_batch){ count, tables });
    return bt_tape_status(tape, err);
}

bauta_status bt_decode_session_encode(bt_decode_session *session, size_t count,
                                      const uint32_t *const *ids,
                                      const size_t *lengths, bt_cross_kv **out,
                                      bauta_error *err)
{
    for (size_t i = 0; i < count; i++)
        out[i] = NULL;
    bauta_status status = sources_check(session, count, ids, lengths, err);
    for (size_t i = 0; i < count && !status; i++)
        status = cross_kv_create(&out[i], session, lengths[i], err);
    if (!status && count)
        status = sources_run(session, count, ids, lengths, out, err);
    for (size_t i = 0; i < count; i++) {
        if (!status) {
            bt_block_table_advance(&out[i]->block_table, lengths[i]);
            continue;
        }
        bt_cross_kv_release(out[i]);
        out[i] = NULL;
    }
    return status;
}

/* ---- Sequences ---------------------------------------------------------- */

static bauta_status cross_kv_check(const bt_decode_session *session,
                                   const bt_cross_kv *cross_kv,
                                   bauta_error *err)
{
    bool needs = session->model->config.stacks == BT_ENCODER_DECODER;
    if (needs && !cross_kv)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a sequence of an encoder-decoder needs a source");
    if (!needs && cross_kv)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a sequence of a decoder-only model has no source");
    if (cross_kv && cross_kv->session != session)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the source belongs to another session");
    return BAUTA_OK;
}

static bauta_status sequence_new(bt_sequence **out, bt_decode_session *session,
                                 bt_cross_kv *cross_kv, bauta_error *err)
{
    bt_sequence *sequence = bt_alloc_zero(1, sizeof(*sequence));
    if (!sequence)
        return bt_fail_memory(err, "a sequence", sizeof(*sequence));
    sequence->session = session;
    sequence->cross_kv = cross_kv_retain(cross_kv);
    bt_block_table_init(&sequence->block_table, session->pool,
                        session->model->config.decoder.layers);
    *out = sequence;
    return BAUTA_OK;
}

bauta_status bt_sequence_create(bt_sequence **out, bt_decode_session *session,
                                bt_cross_kv *cross_kv, bauta_error *err)
{
    *out = NULL;
    bauta_status status = cross_kv_check(session, cross_kv, err);
    return status ? status : sequence_new(out, session, cross_kv, err);
}

bauta_status bt_sequence_fork(bt_sequence **out, const bt_sequence *sequence,
                              bauta_error *err)
{
    bt_block_table pages;
    *out = NULL;
    bauta_status status =
        bt_block_table_fork(&pages, &sequence->block_table, err);
    if (status)
        return status;
    status = sequence_new(out, sequence->session, sequence->cross_kv, err);
    if (status)
        bt_block_table_release(&pages);
    else
        (*out)->block_table = pages;
    if (!status)
        (*out)->window = sequence->window;
    return status;
}

void bt_sequence_set_window(bt_sequence *sequence, size_t window)
{
    assert(sequence->block_table.tokens == 0);
    sequence->window = window;
}

void bt_sequence_free(bt_sequence *sequence)
{
    if (!sequence)
        return;
    bt_block_table_release(&sequence->block_table);
    bt_cross_kv_release(sequence->cross_kv);
    bt_free(sequence);
}

size_t bt_sequence_tokens(const bt_sequence *sequence)
{
    return sequence->block_table.tokens;
}

size_t bt_sequence_first_key(const bt_sequence *sequence, size_t layer,
                             size_t tokens)
{
    const size_t rows = 1, keys = tokens + 1;
    const bt_batch_mask batch = { .queries = { 1, &rows, 0 },
                                  .keys = { 1, &keys, 0 },
                                  .windows = &sequence->window };
    bt_batch_mask mask = bt_layer_mask(&sequence->session->model->config,
                                       BAUTA_ATTENTION_DECODER, layer, &batch);
    bt_row_visibility rule = bt_row_visibility_of(&mask, 0);
    return bt_row_span(&rule, 0).lo;
}

/* Whether all keys that the token at position `tokens` sees are still cached.
 */
static bool window_cached(const bt_sequence *sequence, size_t tokens)
{
    for (size_t l = 0; l < sequence->block_table.layers; l++) {
        size_t begin = bt_sequence_first_key(sequence, l, tokens);
        if (begin < tokens &&
            !bt_block_table_page(&sequence->block_table, l, begin / BT_BLOCK))
            return false;
    }
    return true;
}

bool bt_sequence_truncate(bt_sequence *sequence, size_t tokens)
{
    if (tokens >= sequence->block_table.tokens)
        return true;
    if (!window_cached(sequence, tokens))
        return false;
    bt_block_table_truncate(&sequence->block_table, tokens);
    return true;
}
