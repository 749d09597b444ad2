/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - sources, read by the encoder once and seen by many. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"

#include <string.h>

bt_memory *bt_memory_hold(bt_memory *memory)
{
    if (memory)
        memory->holders++;
    return memory;
}

void bt_memory_drop(bt_memory *memory)
{
    if (!memory || --memory->holders)
        return;
    bt_book_release(&memory->book);
    bt_free(memory);
}

static bauta_status memory_create(bt_memory **out, bt_stage *stage,
                                  size_t tokens, bauta_error *err)
{
    bt_memory *memory = bt_alloc_zero(1, sizeof(*memory));
    if (!memory)
        return bt_fail_memory(err, "the memory of a source", sizeof(*memory));
    *memory = (bt_memory){ .stage = stage, .holders = 1 };
    bt_book_init(&memory->book, stage->pool,
                 stage->model->print.decoder.layers);
    bauta_status status = bt_book_reserve(&memory->book, tokens, err);
    if (status)
        bt_memory_drop(memory);
    else
        *out = memory;
    return status;
}

/* ---- encoding ---------------------------------------------------------- */

static bauta_status sources_check(const bt_stage *stage, size_t count,
                                  const uint32_t *const *ids,
                                  const size_t *lengths, bauta_error *err)
{
    size_t rows = 0;
    bauta_status status = BAUTA_OK;
    if (stage->model->print.stacks != BT_ENCODER_DECODER)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a decoder-only model does not read a source");
    for (size_t i = 0; i < count && !status; i++) {
        if (lengths[i] == 0)
            return bt_fail(err, BAUTA_ERR_ARGUMENT, "source %zu is empty", i);
        status = bt_stage_positions(stage, "source", i, lengths[i], err);
        if (!status)
            status = bt_stage_ids(stage, "source", i, ids[i], lengths[i], err);
        rows = bt_size_add(rows, lengths[i]);
    }
    if (!status && rows > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu sources have %zu tokens, and %zu are the most",
                       count, rows, BT_AXIS_MAX);
    return status;
}

/* The rows of all sources on the tape, one behind the other, and a part for
 * each; false when the tape has failed. */
static bool rows_take(bt_tape *tape, bt_input *input, bt_part *parts,
                      size_t count, const uint32_t *const *ids,
                      const size_t *lengths, bt_memory *const *memories)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        parts[i] = (bt_part){ &memories[i]->book, rows, lengths[i] };
        rows += lengths[i];
    }
    uint32_t *all = bt_tape_take(tape, rows, sizeof(*all));
    uint32_t *positions = bt_tape_take(tape, rows, sizeof(*positions));
    if (!positions)
        return false;
    for (size_t i = 0; i < count; i++) {
        memcpy(all + parts[i].row, ids[i], lengths[i] * sizeof(*all));
        for (size_t t = 0; t < lengths[i]; t++)
            positions[parts[i].row + t] = (uint32_t)t;
    }
    *input = (bt_input){ .tokens = rows, .ids = all, .positions = positions };
    return true;
}

static bauta_status sources_run(bt_stage *stage, size_t count,
                                const uint32_t *const *ids,
                                const size_t *lengths,
                                bt_memory *const *memories, bauta_error *err)
{
    bt_tape *tape;
    bt_input input;
    bauta_status status = bt_stage_tape(stage, &tape, err);
    if (status)
        return status;
    bt_part *parts = bt_tape_take(tape, count, sizeof(*parts));
    if (!parts ||
        !rows_take(tape, &input, parts, count, ids, lengths, memories))
        return bt_tape_status(tape, err);
    bt_axis axis = { count, lengths, 0 };
    status = bt_lane_plans(
        &stage->whole, &input, &stage->model->print, BAUTA_LOOK_ENCODER,
        &(bt_batch_mask){ .queries = axis, .keys = axis }, err);
    if (status)
        return status;
    bt_tensor *states = bt_transformer_encode(tape, stage->model, &input);
    bt_transformer_remember(tape, stage->model, states,
                            &(bt_past){ count, parts });
    return bt_tape_status(tape, err);
}

bauta_status bt_stage_encode(bt_stage *stage, size_t count,
                             const uint32_t *const *ids, const size_t *lengths,
                             bt_memory **out, bauta_error *err)
{
    for (size_t i = 0; i < count; i++)
        out[i] = NULL;
    bauta_status status = sources_check(stage, count, ids, lengths, err);
    for (size_t i = 0; i < count && !status; i++)
        status = memory_create(&out[i], stage, lengths[i], err);
    if (!status && count)
        status = sources_run(stage, count, ids, lengths, out, err);
    for (size_t i = 0; i < count; i++) {
        if (!status) {
            bt_book_advance(&out[i]->book, lengths[i]);
            continue;
        }
        bt_memory_drop(out[i]);
        out[i] = NULL;
    }
    return status;
}
