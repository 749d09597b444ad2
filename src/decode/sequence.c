/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.c - one sequence of a decode session: create, fork, truncate. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/memory.h"

#include <assert.h>

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
    sequence->cross_kv = bt_cross_kv_retain(cross_kv);
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
