/* SPDX-License-Identifier: Apache-2.0 */
/* session_api.c - the public decode session: sequences by number, over
 * bt_decode_session. */
#include "decode/session.h"

#include "base/array.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"

struct bauta_decode_session {
    bt_decode_session *session;
    bt_sequence **sequences; /* (count) NULL: the number is not in use */
    size_t count, capacity;
    bt_decode_input *inputs; /* (input_capacity) scratch of append */
    size_t input_capacity;
};

bauta_status bauta_decode_session_create(bauta_decode_session **out,
                                         bauta_context *context,
                                         const bauta_model *model,
                                         bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    bauta_decode_session *s = bt_alloc_zero(1, sizeof(*s));
    if (!s)
        return bt_fail_memory(err, "a decode session", sizeof(*s));
    bauta_status status =
        bt_decode_session_create(&s->session, context, model, 0, err);
    if (status)
        bauta_decode_session_free(s);
    else
        *out = s;
    return status;
}

void bauta_decode_session_free(bauta_decode_session *session)
{
    if (!session)
        return;
    for (size_t i = 0; i < session->count; i++)
        bt_sequence_free(session->sequences[i]);
    bt_free(session->sequences);
    bt_free(session->inputs);
    bt_decode_session_free(session->session);
    bt_free(session);
}

/* ---- sequences --------------------------------------------------------- */

static bt_sequence *find(const bauta_decode_session *s, size_t sequence)
{
    return sequence < s->count ? s->sequences[sequence] : NULL;
}

static bauta_status fail_unknown(size_t sequence, bauta_error *err)
{
    return bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no sequence %zu",
                   sequence);
}

/* The smallest number that is not in use, with room for its sequence. */
static bauta_status number_reserve(bauta_decode_session *s, size_t *number,
                                   bauta_error *err)
{
    size_t i = 0;
    while (i < s->count && s->sequences[i])
        i++;
    if (i == s->count &&
        BT_ARRAY_RESERVE(s->sequences, s->capacity, s->count, 1))
        return bt_fail_memory(err, "sequences", sizeof(*s->sequences));
    *number = i;
    return BAUTA_OK;
}

static void number_set(bauta_decode_session *s, size_t number,
                       bt_sequence *sequence)
{
    s->sequences[number] = sequence;
    s->count = bt_size_max(s->count, number + 1);
}

bauta_status bauta_decode_session_open(bauta_decode_session *session,
                                       const uint32_t *source,
                                       size_t source_count, size_t *sequence,
                                       bauta_error *err)
{
    BT_NEED(session, err);
    BT_NEED(sequence, err);
    size_t number = 0;
    bt_cross_kv *cross_kv = NULL;
    bt_sequence *opened = NULL;
    bauta_status status = number_reserve(session, &number, err);
    if (!status && (source || source_count))
        status = bt_decode_session_encode(session->session, 1, &source,
                                          &source_count, &cross_kv, err);
    if (!status)
        status = bt_sequence_create(&opened, session->session, cross_kv, err);
    bt_cross_kv_release(cross_kv); // the sequence holds a reference
    if (status)
        return status;
    number_set(session, number, opened);
    *sequence = number;
    return BAUTA_OK;
}

bauta_status bauta_decode_session_fork(bauta_decode_session *session,
                                       size_t sequence, size_t *copy,
                                       bauta_error *err)
{
    BT_NEED(session, err);
    BT_NEED(copy, err);
    size_t number = 0;
    bt_sequence *fork, *from = find(session, sequence);
    if (!from)
        return fail_unknown(sequence, err);
    bauta_status status = number_reserve(session, &number, err);
    if (!status)
        status = bt_sequence_fork(&fork, from, err);
    if (status)
        return status;
    number_set(session, number, fork);
    *copy = number;
    return BAUTA_OK;
}

bauta_status bauta_decode_session_truncate(bauta_decode_session *session,
                                           size_t sequence, size_t tokens,
                                           bauta_error *err)
{
    BT_NEED(session, err);
    bt_sequence *found = find(session, sequence);
    if (!found)
        return fail_unknown(sequence, err);
    if (tokens > bt_sequence_tokens(found))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "sequence %zu has %zu tokens, of which %zu are to be "
                       "kept",
                       sequence, bt_sequence_tokens(found), tokens);
    if (!bt_sequence_truncate(found, tokens))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "sequence %zu cannot be truncated to %zu tokens: its "
                       "sliding window has released keys that the next token "
                       "sees",
                       sequence, tokens);
    return BAUTA_OK;
}

void bauta_decode_session_close(bauta_decode_session *session, size_t sequence)
{
    if (!session || !find(session, sequence))
        return;
    bt_sequence_free(session->sequences[sequence]);
    session->sequences[sequence] = NULL;
}

size_t bauta_decode_session_tokens(const bauta_decode_session *session,
                                   size_t sequence)
{
    const bt_sequence *found = session ? find(session, sequence) : NULL;
    return found ? bt_sequence_tokens(found) : 0;
}

/* ---- appending --------------------------------------------------------- */

static bauta_status inputs_set(bauta_decode_session *s,
                               const bauta_decode_input *inputs, size_t count,
                               bauta_error *err)
{
    for (size_t i = 0; i < count; i++) {
        bauta_decode_input input;
        bauta_status status = BT_SIZED_ELEMENT(&input, BAUTA_DECODE_INPUT_INIT,
                                               inputs, i, "inputs", err);
        if (status)
            return status;
        bt_sequence *sequence = find(s, input.sequence);
        if (!sequence)
            return fail_unknown(input.sequence, err);
        s->inputs[i] = (bt_decode_input){ .sequence = sequence,
                                          .count = input.count,
                                          .ids = input.tokens,
                                          .logits = input.logits };
    }
    return BAUTA_OK;
}

bauta_status bauta_decode_session_append(bauta_decode_session *session,
                                         const bauta_decode_input *inputs,
                                         size_t count, bauta_error *err)
{
    BT_NEED(session, err);
    if (count > session->count)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there are %zu inputs for %zu sequences", count,
                       session->count);
    if (count)
        BT_NEED(inputs, err);
    if (BT_ARRAY_RESERVE(session->inputs, session->input_capacity, 0, count))
        return bt_fail_memory(err, "inputs",
                              bt_size_mul(count, sizeof(*session->inputs)));
    bauta_status status = inputs_set(session, inputs, count, err);
    return status ? status
                  : bt_decode_session_append(session->session, session->inputs,
                                             count, NULL, NULL, err);
}
