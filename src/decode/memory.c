/* SPDX-License-Identifier: Apache-2.0 */
/* cross_kv.c - encoding sources and keeping their keys and values for
 * cross-attention. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"

#include <string.h>

bt_memory *bt_memory_hold(bt_memory *cross_kv)
{
    if (cross_kv)
        cross_kv->references++;
    return cross_kv;
}

void bt_memory_drop(bt_memory *cross_kv)
{
    if (!cross_kv || --cross_kv->references)
        return;
    bt_book_release(&cross_kv->block_table);
    bt_free(cross_kv);
}

static bauta_status cross_kv_create(bt_memory **out, bt_stage *session,
                                    size_t tokens, bauta_error *err)
{
    bt_memory *cross_kv = bt_alloc_zero(1, sizeof(*cross_kv));
    if (!cross_kv)
        return bt_fail_memory(err, "the keys and values of a source",
                              sizeof(*cross_kv));
    *cross_kv = (bt_memory){ .session = session, .references = 1 };
    bt_book_init(&cross_kv->block_table, session->pool,
                 session->model->print.decoder.layers);
    bauta_status status = bt_book_reserve(&cross_kv->block_table, tokens, err);
    if (status)
        bt_memory_drop(cross_kv);
    else
        *out = cross_kv;
    return status;
}

/* ---- encoding ---------------------------------------------------------- */

static bauta_status sources_check(const bt_stage *session, size_t count,
                                  const uint32_t *const *ids,
                                  const size_t *lengths, bauta_error *err)
{
    size_t rows = 0;
    bauta_status status = BAUTA_OK;
    if (session->model->print.stacks != BT_ENCODER_DECODER)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a decoder-only model does not read a source");
    for (size_t i = 0; i < count && !status; i++) {
        if (lengths[i] == 0)
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "source %zu is empty", i);
        status = bt_stage_positions(session, "source", i, lengths[i], err);
        if (!status)
            status =
                bt_stage_ids(session, "source", i, ids[i], lengths[i], err);
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
static bool rows_pack(bt_tape *tape, bt_input *input, bt_part *tables,
                      size_t count, const uint32_t *const *ids,
                      const size_t *lengths, bt_memory *const *cross_kvs)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        tables[i] = (bt_part){ &cross_kvs[i]->block_table, rows, lengths[i] };
        rows += lengths[i];
    }
    uint32_t *all = bt_tape_take(tape, rows, sizeof(*all));
    uint32_t *positions = bt_tape_take(tape, rows, sizeof(*positions));
    if (!positions)
        return false;
    for (size_t i = 0; i < count; i++) {
        memcpy(all + tables[i].row, ids[i], lengths[i] * sizeof(*all));
        for (size_t t = 0; t < lengths[i]; t++)
            positions[tables[i].row + t] = (uint32_t)t;
    }
    *input = (bt_input){ .tokens = rows, .ids = all, .positions = positions };
    return true;
}

static bauta_status sources_run(bt_stage *session, size_t count,
                                const uint32_t *const *ids,
                                const size_t *lengths,
                                bt_memory *const *cross_kvs, bauta_error *err)
{
    bt_tape *tape;
    bt_input input;
    bauta_status status = bt_stage_tape(session, &tape, err);
    if (status)
        return status;
    bt_part *tables = bt_tape_take(tape, count, sizeof(*tables));
    if (!tables ||
        !rows_pack(tape, &input, tables, count, ids, lengths, cross_kvs))
        return bt_tape_status(tape, err);
    bt_axis axis = { count, lengths, 0 };
    status = bt_lane_plans(
        &session->whole, &input, &session->model->print, BAUTA_LOOK_ENCODER,
        &(bt_batch_mask){ .queries = axis, .keys = axis }, err);
    if (status)
        return status;
    bt_tensor *states = bt_transformer_encode(tape, session->model, &input);
    bt_transformer_remember(tape, session->model, states,
                            &(bt_past){ count, tables });
    return bt_tape_status(tape, err);
}

bauta_status bt_stage_encode(bt_stage *session, size_t count,
                             const uint32_t *const *ids, const size_t *lengths,
                             bt_memory **out, bauta_error *err)
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
            bt_book_advance(&out[i]->block_table, lengths[i]);
            continue;
        }
        bt_memory_drop(out[i]);
        out[i] = NULL;
    }
    return status;
}
