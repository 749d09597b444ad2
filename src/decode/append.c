/* SPDX-License-Identifier: Apache-2.0 */
/* append.c - appending tokens to many sequences, with one forward pass, or with
 * one for each thread.
 *
 * Pages are reserved first, and sequences advance last. A failure in between
 * only leaves unused pages, which are released.
 *
 * With enough tokens, each thread runs the whole model for a share of the
 * sequences, so that threads synchronize once in a call instead of at every
 * product. The bits are the same, since they never depend on the other inputs
 * of a call. */
#include "decode/session_internal.h"

#include "base/error.h"
#include "base/size.h"
#include "mask/mask.h"
#include "runtime/context.h"

/* Fewest tokens of a thread for which it pays to read all weights. */
enum { SHARE_TOKENS = 32 };

typedef struct append_batch {
    bt_decode_session *session;
    const bt_decode_input *inputs;
    size_t count, tokens;
    bt_decode_then_fn *then; /* or NULL */
    void *user;
} append_batch;

/* ---- checks ------------------------------------------------------------ */

static bauta_status input_check(bt_decode_session *session,
                                const bt_decode_input *input, size_t number,
                                bauta_error *err)
{
    bt_sequence *sequence = input->sequence;
    if (!sequence || sequence->session != session)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       sequence ? "the sequence of input %zu belongs to "
                                  "another session"
                                : "input %zu has no sequence",
                       number);
    if (sequence->call == session->calls)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the sequence of input %zu is given twice", number);
    sequence->call = session->calls;
    if (input->count == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "input %zu has no tokens",
                       number);
    bauta_status status = bt_decode_session_check_length(
        session, "the sequence of input", number,
        bt_size_add(sequence->block_table.tokens, input->count), err);
    if (status || input->ids_tensor)
        return status;
    return bt_decode_session_check_ids(session, "input", number, input->ids,
                                       input->count, err);
}

static bauta_status inputs_check(append_batch *b, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    b->session->calls++;
    for (size_t i = 0; i < b->count && !status; i++) {
        status = input_check(b->session, &b->inputs[i], i, err);
        if (!status)
            b->tokens = bt_size_add(b->tokens, b->inputs[i].count);
    }
    if (!status && b->tokens > BT_AXIS_MAX)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%zu inputs have %zu tokens, and %zu are the most",
                       b->count, b->tokens, BT_AXIS_MAX);
    return status;
}

/* ---- pages ------------------------------------------------------------- */

static bauta_status pages_reserve(const append_batch *b, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; i < b->count && !status; i++)
        status = bt_block_table_alloc(&b->inputs[i].sequence->block_table,
                                      b->session->context->stream,
                                      b->inputs[i].count, err);
    return status;
}

/* Copy-on-write, for some sequences at a time. */
static bauta_status pages_commit(const append_batch *b, bauta_error *err)
{
    enum { SOME = 64 };
    bt_block_table *tables[SOME];
    bauta_status status = BAUTA_OK;
    for (size_t first = 0; first < b->count && !status; first += SOME) {
        size_t count = bt_size_min(SOME, b->count - first);
        for (size_t i = 0; i < count; i++)
            tables[i] = &b->inputs[first + i].sequence->block_table;
        status = bt_block_tables_commit(tables, count,
                                        b->session->context->stream, err);
    }
    return status;
}

static void pages_release(const append_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        bt_block_table *block_table = &b->inputs[i].sequence->block_table;
        bt_block_table_truncate(block_table, block_table->tokens);
    }
}

/* Count the new tokens, and release pages that no later token sees. */
static void sequences_advance(const append_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        bt_block_table *block_table = &b->inputs[i].sequence->block_table;
        bt_block_table_advance(block_table, b->inputs[i].count);
        for (size_t l = 0; l < block_table->layers; l++) {
            size_t seen = bt_sequence_first_key(b->inputs[i].sequence, l,
                                                block_table->tokens);
            bt_block_table_free_before(block_table, l,
                                       bt_size_min(seen, block_table->tokens));
        }
    }
}

/* ---- shares ------------------------------------------------------------ */

/* Inputs with the same source stay together, so that it is read once. */
static bool same_source(const bt_decode_input *input)
{
    const bt_cross_kv *cross_kv = input->sequence->cross_kv;
    return cross_kv && cross_kv == input[-1].sequence->cross_kv;
}

/* Split the inputs into shares with about the same number of tokens. False if
 * that is impossible because one input is too long. */
static bool split_by_tokens(const append_batch *b)
{
    size_t workers = (size_t)b->session->context->threads, at = 0,
           left = b->tokens;
    for (size_t l = 0; l < workers; l++) {
        size_t fair = left / (workers - l), tokens = 0, first = at;
        while (at < b->count &&
               (tokens < fair || (at > first && same_source(&b->inputs[at]))))
            tokens += b->inputs[at++].count;
        if (tokens == 0 || tokens > fair + fair / 4)
            return false;
        b->session->workers[l].inputs = b->inputs + first;
        b->session->workers[l].count = at - first;
        left -= tokens;
    }
    return true;
}

static bauta_status worker_create(bt_decode_worker *worker, bt_stream *stream,
                                  bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    if (!worker->stream)
        status = stream->backend->stream_fork(&worker->stream, stream, err);
    if (!status && !worker->tape)
        status = bt_tape_create(&worker->tape, worker->stream, err);
    return status;
}

static bauta_status workers_create(bt_decode_session *session, bauta_error *err)
{
    bauta_context *context = session->context;
    size_t count = (size_t)context->threads;
    bauta_status status = BAUTA_OK;
    if (!session->workers)
        session->workers = bt_alloc_zero(count, sizeof(*session->workers));
    if (!session->workers)
        return bt_fail_memory(err, "decode workers",
                              count * sizeof(*session->workers));
    for (size_t l = 0; l < count && !status; l++)
        status = worker_create(&session->workers[l], context->stream, err);
    return status;
}

static void worker_task(void *job, size_t task, int thread)
{
    (void)thread;
    const bt_decode_session *session = job;
    bt_decode_worker *worker = &session->workers[task];
    bt_tape_rewind(worker->tape, false);
    worker->status =
        bt_decode_worker_run(worker, worker->tape, session, worker->inputs,
                             worker->count, &worker->err);
}

static bauta_status workers_run(bt_decode_session *session, bauta_error *err)
{
    int workers = session->context->threads;
    bt_parallel_for(session->context->pool, (size_t)workers, worker_task,
                    session);
    for (int l = 0; l < workers; l++)
        if (session->workers[l].status) {
            if (err)
                *err = session->workers[l].err;
            return session->workers[l].status;
        }
    return BAUTA_OK;
}

/* ---- the call ---------------------------------------------------------- */

/* Steps of the same number of sequences are of one kind, if their tokens come
 * from the same place: of two steps in a row that get them from the device, the
 * second is prepared while the first runs. */
static uint64_t step_kind(const append_batch *b)
{
    const bt_tensor *ids = b->inputs[0].ids_tensor;
    uint64_t from = ids ? (uint64_t)(uintptr_t)ids->buffer->memory : 0;
    return ((uint64_t)(uintptr_t)b->session + from * 40503u) * 2654435761u +
           b->count;
}

static bauta_status run_then(const append_batch *b, bauta_error *err)
{
    return b->then ? b->then(b->user, err) : BAUTA_OK;
}

/* A pass on all threads. One token for each sequence is a step that comes
 * again, with other tokens. */
static bauta_status whole_run(const append_batch *b, bauta_error *err)
{
    bt_decode_session *session = b->session;
    bt_stream *stream = session->context->stream;
    bool step = stream->backend->step_begin && b->tokens == b->count;
    bt_tape_rewind(session->context->tape, false);
    if (step)
        stream->backend->step_begin(stream, step_kind(b));
    bauta_status status =
        bt_decode_worker_run(&session->whole, session->context->tape, session,
                             b->inputs, b->count, err);
    if (!status)
        status = run_then(b, err);
    bauta_status ended =
        step ? stream->backend->step_end(stream, status ? NULL : err)
             : BAUTA_OK;
    return status ? status : ended;
}

static bauta_status run(const append_batch *b, bauta_error *err)
{
    bt_decode_session *session = b->session;
    bauta_status status = BAUTA_OK;
    size_t threads = (size_t)session->context->threads;
    if (session->context->stream->backend->stream_fork && threads > 1 &&
        b->tokens / threads >= SHARE_TOKENS) {
        status = workers_create(session, err);
        if (!status && split_by_tokens(b)) {
            status = workers_run(session, err);
            return status ? status : run_then(b, err);
        }
    }
    return status ? status : whole_run(b, err);
}

bauta_status bt_decode_session_append_then(bt_decode_session *session,
                                           const bt_decode_input *inputs,
                                           size_t count,
                                           bt_decode_then_fn *then, void *user,
                                           bauta_error *err)
{
    append_batch b = { .session = session,
                       .inputs = inputs,
                       .count = count,
                       .then = then,
                       .user = user };
    if (count == 0)
        return BAUTA_OK;
    bauta_status status = inputs_check(&b, err);
    if (status)
        return status;
    status = pages_reserve(&b, err);
    bauta_status copied = pages_commit(&b, status ? NULL : err);
    if (!status)
        status = copied;
    if (!status)
        status = run(&b, err);
    if (status)
        pages_release(&b);
    else
        sequences_advance(&b);
    return status;
}

bauta_status bt_decode_session_append(bt_decode_session *session,
                                      const bt_decode_input *inputs,
                                      size_t count, bauta_error *err)
{
    return bt_decode_session_append_then(session, inputs, count, NULL, NULL,
                                         err);
}
