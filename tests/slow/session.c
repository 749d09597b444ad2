/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - a decode session without a KV cache: every append runs the model
 * over the whole sequence from its first token on, alone. The real session must
 * equal it to the bit; rename.h lets both live in one program. */
#include "decode/session.h"

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <assert.h>
#include <string.h>

/* The cost of a token here, an arbitrary number. */
enum { TOKEN_BYTES = 1000 };

struct bt_decode_session {
    bauta_context *context;
    const bauta_model *model;
    uint64_t bytes, used;
};

struct bt_cross_kv {
    bt_decode_session *session;
    size_t users, count;
    uint32_t *ids;
};

struct bt_sequence {
    bt_decode_session *session;
    bt_cross_kv *cross;
    size_t count;
    uint32_t *ids;
    size_t window; /* 0: none */
};

bauta_status bt_decode_session_create(bt_decode_session **out,
                                      bauta_context *context,
                                      const bauta_model *model, uint64_t bytes,
                                      bauta_error *err)
{
    *out = bt_alloc_zero(1, sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "a session", sizeof(**out));
    **out = (bt_decode_session){ context, model, bytes, 0 };
    return BAUTA_OK;
}

void bt_decode_session_free(bt_decode_session *session)
{
    bt_free(session);
}

uint64_t bt_decode_session_cost(const bt_decode_session *session, size_t tokens,
                                size_t source)
{
    (void)session;
    return ((uint64_t)tokens + source) * TOKEN_BYTES;
}

uint64_t bt_decode_session_used(const bt_decode_session *session)
{
    return session->used;
}

uint64_t bt_decode_session_limit(const bt_decode_session *session)
{
    return session->bytes;
}

/* ---- sources ----------------------------------------------------------- */

static bauta_status ids_copy(uint32_t **out, const uint32_t *ids, size_t count,
                             bauta_error *err)
{
    *out = bt_alloc(count * sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "tokens", count * sizeof(**out));
    if (count)
        memcpy(*out, ids, count * sizeof(**out));
    return BAUTA_OK;
}

void bt_cross_kv_release(bt_cross_kv *cross)
{
    if (!cross || --cross->users)
        return;
    cross->session->used -= cross->count * TOKEN_BYTES;
    bt_free(cross->ids);
    bt_free(cross);
}

bauta_status bt_decode_session_encode(bt_decode_session *session, size_t count,
                                      const uint32_t *const *ids,
                                      const size_t *lengths, bt_cross_kv **out,
                                      bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < count; i++)
        out[i] = NULL;
    for (size_t i = 0; i < count && !status; i++) {
        bt_cross_kv *m = bt_alloc_zero(1, sizeof(*m));
        status = m ? ids_copy(&m->ids, ids[i], lengths[i], err)
                   : bt_fail_memory(err, "a source", sizeof(*m));
        if (status) {
            bt_free(m);
            break;
        }
        m->session = session;
        m->users = 1;
        m->count = lengths[i];
        session->used += m->count * TOKEN_BYTES;
        out[i] = m;
    }
    for (size_t i = 0; i < count && status; i++) {
        bt_cross_kv_release(out[i]);
        out[i] = NULL;
    }
    return status;
}

/* ---- sequences --------------------------------------------------------- */

static bauta_status sequence_make(bt_sequence **out, bt_decode_session *session,
                                  bt_cross_kv *cross, const uint32_t *ids,
                                  size_t count, bauta_error *err)
{
    *out = NULL;
    bt_sequence *s = bt_alloc_zero(1, sizeof(*s));
    if (!s)
        return bt_fail_memory(err, "a sequence", sizeof(*s));
    bauta_status status = ids_copy(&s->ids, ids, count, err);
    if (status) {
        bt_free(s);
        return status;
    }
    s->session = session;
    s->cross = cross;
    s->count = count;
    if (cross)
        cross->users++;
    session->used += count * TOKEN_BYTES;
    *out = s;
    return BAUTA_OK;
}

bauta_status bt_sequence_create(bt_sequence **out, bt_decode_session *session,
                                bt_cross_kv *cross, bauta_error *err)
{
    return sequence_make(out, session, cross, NULL, 0, err);
}

bauta_status bt_sequence_fork(bt_sequence **out, const bt_sequence *s,
                              bauta_error *err)
{
    bauta_status status =
        sequence_make(out, s->session, s->cross, s->ids, s->count, err);
    if (!status)
        (*out)->window = s->window;
    return status;
}

void bt_sequence_set_window(bt_sequence *s, size_t window)
{
    s->window = window;
}

void bt_sequence_free(bt_sequence *s)
{
    if (!s)
        return;
    s->session->used -= s->count * TOKEN_BYTES;
    bt_cross_kv_release(s->cross);
    bt_free(s->ids);
    bt_free(s);
}

size_t bt_sequence_tokens(const bt_sequence *s)
{
    return s->count;
}

bool bt_sequence_truncate(bt_sequence *s, size_t tokens)
{
    s->session->used -= (s->count - tokens) * TOKEN_BYTES;
    s->count = tokens;
    return true;
}

/* ---- reading ----------------------------------------------------------- */

static bauta_status forward_all(const bt_sequence *s, const uint32_t *ids,
                                size_t count, float *logits, bauta_error *err)
{
    size_t vocab = bauta_model_vocab_size(s->session->model);
    bauta_batch target = BAUTA_BATCH_INIT, source = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    size_t source_count = s->cross ? s->cross->count : 0;
    float *all = bt_alloc(bt_size_mul(count, vocab * sizeof(float)));
    if (!all)
        return bt_fail_memory(err, "logits", count * vocab);
    target.count = source.count = 1;
    target.lengths = &count;
    target.ids = ids;
    source.lengths = &source_count;
    source.ids = s->cross ? s->cross->ids : NULL;
    outputs.logits = all;
    bauta_mask *window = NULL;
    bauta_status status =
        s->window ? bauta_mask_window(&window, count, count, s->window, err)
                  : BAUTA_OK;
    target.mask = window;
    if (!status)
        status = bauta_model_forward(s->session->context, s->session->model,
                                     s->cross ? &source : NULL, &target,
                                     &outputs, err);
    bauta_mask_free(window);
    if (!status)
        memcpy(logits, all + (count - 1) * vocab, vocab * sizeof(float));
    bt_free(all);
    return status;
}

/* Where the logits of an input go, in host memory; NULL: nowhere. */
static float *logits_of(const bt_decode_input *input)
{
    if (!input->logits_tensor)
        return input->logits;
    bt_tensor row = bt_tensor_rows(input->logits_tensor, input->logits_row, 1);
    return bt_tensor_host(&row);
}

static bauta_status append_one(const bt_decode_input *input, uint32_t **out,
                               bauta_error *err)
{
    const bt_sequence *s = input->sequence;
    size_t count = s->count + input->count;
    uint32_t *ids = bt_alloc(count * sizeof(*ids));
    bauta_status status = BAUTA_OK;
    *out = ids;
    if (!ids)
        return bt_fail_memory(err, "tokens", count * sizeof(*ids));
    if (s->count)
        memcpy(ids, s->ids, s->count * sizeof(*ids));
    assert(input->ids); // the CPU knows its tokens at once
    memcpy(ids + s->count, input->ids, input->count * sizeof(*ids));
    if (logits_of(input))
        status = forward_all(s, ids, count, logits_of(input), err);
    return status;
}

bauta_status bt_decode_session_append(bt_decode_session *session,
                                      const bt_decode_input *inputs,
                                      size_t count, bt_decode_then_fn *then,
                                      void *user, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    uint32_t **longer = bt_alloc_zero(count, sizeof(*longer));
    if (!longer)
        return bt_fail_memory(err, "feeds", count * sizeof(*longer));
    for (size_t i = 0; i < count && !status; i++)
        status = append_one(&inputs[i], &longer[i], err);
    if (!status && then)
        status = then(user, err);
    for (size_t i = 0; i < count; i++) {
        bt_sequence *s = inputs[i].sequence;
        if (status) {
            bt_free(longer[i]);
            continue;
        }
        bt_free(s->ids);
        s->ids = longer[i];
        s->count += inputs[i].count;
        session->used += inputs[i].count * TOKEN_BYTES;
    }
    bt_free(longer);
    return status;
}
