/* SPDX-License-Identifier: Apache-2.0 */
/* cross_kv.c - encoding sources and keeping their keys and values for
 * cross-attention. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"
#include "runtime/context.h"

#include <string.h>

bt_cross_kv *bt_cross_kv_retain(bt_cross_kv *cross_kv)
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
