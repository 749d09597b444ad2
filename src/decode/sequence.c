/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.c - what a decoder has read. */
#include "decode/session_internal.h"

#include "base/error.h"

#include <assert.h>

static bauta_status memory_check(const bt_stage *stage, const bt_memory *memory,
                                 bauta_error *err)
{
    bool needs = stage->model->print.stacks == BT_ENCODER_DECODER;
    if (needs && !memory)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a sequence of an encoder-decoder needs the memory of "
                       "its source");
    if (!needs && memory)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a sequence of a decoder-only model has no source");
    if (memory && memory->stage != stage)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the memory belongs to another stage");
    return BAUTA_OK;
}

static bauta_status sequence_new(bt_sequence **out, bt_stage *stage,
                                 bt_memory *memory, bauta_error *err)
{
    bt_sequence *sequence = bt_alloc_zero(1, sizeof(*sequence));
    if (!sequence)
        return bt_fail_memory(err, "a sequence", sizeof(*sequence));
    sequence->stage = stage;
    sequence->memory = bt_memory_hold(memory);
    bt_book_init(&sequence->book, stage->pool,
                 stage->model->print.decoder.layers);
    *out = sequence;
    return BAUTA_OK;
}

bauta_status bt_sequence_create(bt_sequence **out, bt_stage *stage,
                                bt_memory *memory, bauta_error *err)
{
    *out = NULL;
    bauta_status status = memory_check(stage, memory, err);
    return status ? status : sequence_new(out, stage, memory, err);
}

bauta_status bt_sequence_fork(bt_sequence **out, const bt_sequence *sequence,
                              bauta_error *err)
{
    bt_book pages;
    *out = NULL;
    bauta_status status = bt_book_fork(&pages, &sequence->book, err);
    if (status)
        return status;
    status = sequence_new(out, sequence->stage, sequence->memory, err);
    if (status)
        bt_book_release(&pages);
    else
        (*out)->book = pages;
    if (!status)
        (*out)->window = sequence->window;
    return status;
}

void bt_sequence_slide(bt_sequence *sequence, size_t window)
{
    assert(sequence->book.tokens == 0);
    sequence->window = window;
}

void bt_sequence_free(bt_sequence *sequence)
{
    if (!sequence)
        return;
    bt_book_release(&sequence->book);
    bt_memory_drop(sequence->memory);
    bt_free(sequence);
}

size_t bt_sequence_tokens(const bt_sequence *sequence)
{
    return sequence->book.tokens;
}

size_t bt_sequence_first_key(const bt_sequence *sequence, size_t layer,
                             size_t tokens)
{
    const size_t rows = 1, keys = tokens + 1;
    const bt_batch_mask batch = { .queries = { 1, &rows, 0 },
                                  .keys = { 1, &keys, 0 },
                                  .windows = &sequence->window };
    bt_batch_mask mask = bt_layer_mask(&sequence->stage->model->print,
                                       BAUTA_LOOK_DECODER, layer, &batch);
    bt_row_rule rule = bt_row_rule_of(&mask, 0);
    return bt_row_span(&rule, 0).lo;
}

/* Whether all keys are there that the token behind `tokens` tokens sees. */
static bool window_there(const bt_sequence *sequence, size_t tokens)
{
    for (size_t l = 0; l < sequence->book.layers; l++) {
        size_t begin = bt_sequence_first_key(sequence, l, tokens);
        if (begin < tokens &&
            !bt_book_page(&sequence->book, l, begin / BT_BLOCK))
            return false;
    }
    return true;
}

bool bt_sequence_truncate(bt_sequence *sequence, size_t tokens)
{
    if (tokens >= sequence->book.tokens)
        return true;
    if (!window_there(sequence, tokens))
        return false;
    bt_book_truncate(&sequence->book, tokens);
    return true;
}
