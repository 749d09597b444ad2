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

#include <string.h>

/* Fewest tokens of a thread for which it pays to read all weights. */
enum { SHARE_TOKENS = 32 };

/* ---- One forward pass --------------------------------------------------- */

/* One call. Its arrays are in the tape's memory. */
typedef struct worker_batch {
    const bt_decode_session *session;
    bt_decode_worker *worker;
    bt_tape *tape;
    const bt_decode_input *inputs;
    size_t count;
    bt_forward_input forward;
    bt_tensor ids; /* of the forward pass, if they are on the device */
    bt_kv_batch self_kv, cross_kv_batch;
} worker_batch;

void bt_decode_worker_release(bt_decode_worker *worker)
{
    bt_tape_free(worker->tape);
    for (size_t i = 0; i < BT_SLOT_COUNT; i++)
        if (worker->plans[i])
            worker->plans[i]->backend->plan_free(worker->plans[i]);
    if (worker->stream)
        worker->stream->backend->stream_free(worker->stream);
}

/* ---- inputs ------------------------------------------------------------ */

/* Pack the rows of all inputs back to back. */
static bool rows_pack(worker_batch *b)
{
    size_t rows = 0, row = 0;
    for (size_t i = 0; i < b->count; i++)
        rows += b->inputs[i].count;
    b->forward.tokens = rows;
    uint32_t *ids = bt_tape_alloc(b->tape, rows, sizeof(*ids));
    uint32_t *positions = bt_tape_alloc(b->tape, rows, sizeof(*positions));
    bt_kv_sequence *tables = bt_tape_alloc(b->tape, b->count, sizeof(*tables));
    if (!tables)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        const bt_decode_input *input = &b->inputs[i];
        bt_block_table *block_table = &input->sequence->block_table;
        if (input->ids)
            memcpy(ids + row, input->ids, input->count * sizeof(*ids));
        for (size_t t = 0; t < input->count; t++)
            positions[row + t] = (uint32_t)(block_table->tokens + t);
        tables[i] = (bt_kv_sequence){ block_table, row, input->count };
        row += input->count;
    }
    b->self_kv = (bt_kv_batch){ b->count, tables };
    b->forward.ids = ids;
    if (b->inputs[0].ids_tensor) {
        b->ids =
            bt_tensor_rows(b->inputs[0].ids_tensor, b->inputs[0].ids_row, rows);
        b->forward.ids_tensor = &b->ids;
    }
    b->forward.positions = positions;
    b->forward.self_kv = &b->self_kv;
    return true;
}

/* Adjacent inputs with the same source share one entry: all their rows see all
 * its keys, so beams read them once. */
static bool sources_pack(worker_batch *b)
{
    size_t count = 0;
    const bt_cross_kv *last = NULL;
    bt_kv_sequence *tables = bt_tape_alloc(b->tape, b->count, sizeof(*tables));
    for (size_t i = 0; tables && i < b->count; i++) {
        bt_cross_kv *cross_kv = b->inputs[i].sequence->cross_kv;
        if (cross_kv != last)
            tables[count++] = (bt_kv_sequence){ &cross_kv->block_table, 0, 0 };
        last = cross_kv;
    }
    b->cross_kv_batch = (bt_kv_batch){ count, tables };
    b->forward.cross_kv = &b->cross_kv_batch;
    return tables;
}

/* ---- plans ------------------------------------------------------------- */

bauta_status bt_decode_worker_plans(bt_decode_worker *worker, bt_stream *stream,
                                    bt_forward_input *forward,
                                    const bt_model_config *config,
                                    bauta_attention_kind attention,
                                    const bt_batch_mask *batch,
                                    bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    bt_plan_use use =
        attention == BAUTA_ATTENTION_ENCODER ? BT_PLAN_FORWARD : BT_PLAN_DECODE;
    for (size_t l = 0;
         l < bt_attention_layer_count(config, attention) && !status; l++) {
        bt_attention_slot slot = bt_layer_slot(config, attention, l);
        if (forward->plans[slot])
            continue;
        bt_batch_mask mask = bt_layer_mask(config, attention, l, batch);
        status = stream->backend->plan_build(stream, &worker->plans[slot],
                                             &mask, use, err);
        forward->plans[slot] = worker->plans[slot];
    }
    return status;
}

static bauta_status self_plans(worker_batch *b, bauta_error *err)
{
    size_t *rows = bt_tape_alloc(b->tape, b->count, sizeof(*rows));
    size_t *keys = bt_tape_alloc(b->tape, b->count, sizeof(*keys));
    size_t *windows = bt_tape_alloc(b->tape, b->count, sizeof(*windows));
    bauta_status status = bt_tape_status(b->tape, err);
    if (status)
        return status;
    for (size_t i = 0; i < b->count; i++) {
        rows[i] = b->inputs[i].count;
        keys[i] = b->inputs[i].sequence->block_table.tokens + rows[i];
        windows[i] = b->inputs[i].sequence->window;
    }
    bt_batch_mask batch = { .queries = { b->count, rows, 0 },
                            .keys = { b->count, keys, 0 },
                            .windows = windows };
    return bt_decode_worker_plans(b->worker, bt_tape_stream(b->tape),
                                  &b->forward, &b->session->model->config,
                                  BAUTA_ATTENTION_DECODER, &batch, err);
}

static bauta_status cross_plan(worker_batch *b, bauta_error *err)
{
    size_t documents = 0;
    const bt_cross_kv *last = NULL;
    size_t *rows = bt_tape_alloc(b->tape, b->count, sizeof(*rows));
    size_t *keys = bt_tape_alloc(b->tape, b->count, sizeof(*keys));
    bauta_status status = bt_tape_status(b->tape, err);
    for (size_t i = 0; i < b->count && !status; i++) {
        const bt_cross_kv *cross_kv = b->inputs[i].sequence->cross_kv;
        if (cross_kv != last) {
            rows[documents] = 0;
            keys[documents++] = cross_kv->block_table.tokens;
        }
        rows[documents - 1] += b->inputs[i].count;
        last = cross_kv;
    }
    bt_batch_mask batch = { .queries = { documents, rows, 0 },
                            .keys = { documents, keys, 0 } };
    if (!status)
        status = bt_decode_worker_plans(b->worker, bt_tape_stream(b->tape),
                                        &b->forward, &b->session->model->config,
                                        BAUTA_ATTENTION_CROSS, &batch, err);
    return status;
}

static bauta_status prepare(worker_batch *b, bauta_error *err)
{
    bool cross_kv_batch =
        b->session->model->config.stacks == BT_ENCODER_DECODER;
    if (!rows_pack(b) || (cross_kv_batch && !sources_pack(b)))
        return bt_tape_status(b->tape, err);
    bauta_status status = self_plans(b, err);
    if (!status && cross_kv_batch)
        status = cross_plan(b, err);
    return status;
}

/* ---- logits ------------------------------------------------------------ */

static bool wants_logits(const bt_decode_input *input)
{
    return input->logits || input->logits_tensor;
}

/* The last rows of the inputs that want logits, in order. */
static bt_tensor *rows_with_logits(const worker_batch *b, bt_tensor *x,
                                   size_t *wanted)
{
    size_t count = 0, row = 0;
    uint32_t *rows = bt_tape_alloc(b->tape, b->count, sizeof(*rows));
    *wanted = 0;
    if (!x || !rows)
        return NULL;
    for (size_t i = 0; i < b->count; i++) {
        row += b->inputs[i].count;
        if (wants_logits(&b->inputs[i]))
            rows[count++] = (uint32_t)(row - 1);
    }
    *wanted = count;
    if (count == 0 || count == x->rows)
        return x;
    return bt_op_embedding(b->tape, x, rows, count, 1.0f, BT_IGNORE_INDEX);
}

/* Whether the logits of an input follow `count` rows after those of the first.
 */
static bool logits_follow(const bt_decode_input *input,
                          const bt_decode_input *first, size_t count,
                          size_t vocab)
{
    if (first->logits_tensor)
        return input->logits_tensor == first->logits_tensor &&
               input->logits_row == first->logits_row + count;
    return input->logits == first->logits + count * vocab;
}

/* The number of inputs, from `from` on, whose logits are contiguous. *next
 * becomes the first input that breaks the run. */
static size_t logits_contiguous(const worker_batch *b, size_t from,
                                size_t *next)
{
    size_t vocab = b->session->model->config.vocab_size, count = 0;
    const bt_decode_input *first = &b->inputs[from];
    for (; from < b->count; from++) {
        const bt_decode_input *input = &b->inputs[from];
        if (wants_logits(input) && !logits_follow(input, first, count, vocab))
            break;
        count += wants_logits(input);
    }
    *next = from;
    return count;
}

/* The logits of rows x, to where an input and those after it want them. */
static bool logits_run(const worker_batch *b, const bt_tensor *x,
                       const bt_decode_input *input)
{
    bt_model *model = b->session->model;
    if (!input->logits_tensor)
        return bt_transformer_logits_to_host(b->tape, model, x, input->logits);
    bt_tensor to =
        bt_tensor_rows(input->logits_tensor, input->logits_row, x->rows);
    return bt_linear_forward(b->tape, x, bt_transformer_head_weight(model),
                             false, bt_transformer_head_bias(model), &to) &&
           bt_softcap_logits(b->tape, &to, model->config.head_softcap);
}

/* Write logits directly to where the callers want them. */
static void logits_write(const worker_batch *b, const bt_tensor *x)
{
    size_t row = 0, next;
    for (size_t i = 0; i < b->count; i = next) {
        next = i + 1;
        if (!wants_logits(&b->inputs[i]))
            continue;
        size_t count = logits_contiguous(b, i, &next);
        bt_tensor part = bt_tensor_rows(x, row, count);
        if (!logits_run(b, &part, &b->inputs[i]))
            return;
        row += count;
    }
}

/* ---- the forward pass -------------------------------------------------- */

static bauta_status worker_run(bt_decode_worker *worker, bt_tape *tape,
                               const bt_decode_session *session,
                               const bt_decode_input *inputs, size_t count,
                               bauta_error *err)
{
    worker_batch b = { .session = session,
                       .worker = worker,
                       .tape = tape,
                       .inputs = inputs,
                       .count = count };
    size_t wanted;
    bauta_status status = prepare(&b, err);
    if (status)
        return status;
    bt_tensor *x =
        bt_transformer_decode(tape, session->model, &b.forward, NULL);
    x = rows_with_logits(&b, x, &wanted);
    if (x && wanted) {
        x = bt_transformer_head_transform(tape, session->model, x);
        if (x)
            logits_write(&b, x);
    }
    return bt_tape_status(tape, err);
}

/* ---- Inputs and pages --------------------------------------------------- */

typedef struct append_batch {
    bt_decode_session *session;
    const bt_decode_input *inputs;
    size_t count, tokens;
    bt_decode_then_fn *then; /* or NULL */
    void *user;
} append_batch;

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
static bauta_status pages_commit(const bt_decode_input *inputs, size_t count,
                                 bt_stream *stream, bauta_error *err)
{
    enum { SOME = 64 };
    bt_block_table *tables[SOME];
    bauta_status status = BAUTA_OK;
    for (size_t first = 0, some; first < count && !status; first += some) {
        some = bt_size_min(SOME, count - first);
        for (size_t i = 0; i < some; i++)
            tables[i] = &inputs[first + i].sequence->block_table;
        status = bt_block_tables_commit(tables, some, stream, err);
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

/* Split the inputs into shares with about the same number of tokens. False if
 * that is impossible because one input is too long. */
static bool split_by_tokens(const append_batch *b)
{
    size_t workers = (size_t)b->session->context->threads, at = 0,
           left = b->tokens;
    for (size_t l = 0; l < workers; l++) {
        size_t fair = left / (workers - l), tokens = 0, first = at;
        while (at < b->count && tokens < fair)
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

/* A worker copies the pages of its own share, which are in the caches of its
 * core. No token is written meanwhile. */
static void commit_task(void *job, size_t task, int thread)
{
    (void)thread;
    const bt_decode_session *session = job;
    bt_decode_worker *worker = &session->workers[task];
    worker->status = pages_commit(worker->inputs, worker->count, worker->stream,
                                  &worker->err);
}

static void worker_task(void *job, size_t task, int thread)
{
    (void)thread;
    const bt_decode_session *session = job;
    bt_decode_worker *worker = &session->workers[task];
    bt_tape_rewind(worker->tape, false);
    worker->status = worker_run(worker, worker->tape, session, worker->inputs,
                                worker->count, &worker->err);
}

static bauta_status run_then(const append_batch *b, bauta_error *err)
{
    return b->then ? b->then(b->user, err) : BAUTA_OK;
}

/* Run a task for each worker. */
static bauta_status workers_do(bt_decode_session *session, bt_task_fn *task,
                               bauta_error *err)
{
    int workers = session->context->threads;
    bt_parallel_for(session->context->pool, (size_t)workers, task, session);
    for (int l = 0; l < workers; l++)
        if (session->workers[l].status) {
            if (err)
                *err = session->workers[l].err;
            return session->workers[l].status;
        }
    return BAUTA_OK;
}

static bauta_status workers_run(const append_batch *b, bauta_error *err)
{
    bauta_status status = workers_do(b->session, worker_task, err);
    return status ? status : run_then(b, err);
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
    bauta_status status = worker_run(&session->whole, session->context->tape,
                                     session, b->inputs, b->count, err);
    if (!status)
        status = run_then(b, err);
    bauta_status ended =
        step ? stream->backend->step_end(stream, status ? NULL : err)
             : BAUTA_OK;
    return status ? status : ended;
}

/* Long inputs are worth a pass of its own for each thread. */
static bool worth_workers(const append_batch *b)
{
    const bauta_context *context = b->session->context;
    size_t threads = (size_t)context->threads;
    return context->stream->backend->stream_fork && threads > 1 &&
           b->tokens / threads >= SHARE_TOKENS;
}

bauta_status bt_decode_session_append(bt_decode_session *session,
                                      const bt_decode_input *inputs,
                                      size_t count, bt_decode_then_fn *then,
                                      void *user, bauta_error *err)
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
    bool shared = false;
    if (!status && worth_workers(&b)) {
        status = workers_create(session, err);
        shared = !status && split_by_tokens(&b);
    }
    // Also after a failure: pages that were reserved have no tokens yet.
    bauta_status copied =
        shared ? workers_do(session, commit_task, err)
               : pages_commit(inputs, count, session->context->stream,
                              status ? NULL : err);
    if (!status)
        status = copied;
    if (!status)
        status = shared ? workers_run(&b, err) : whole_run(&b, err);
    if (status)
        pages_release(&b);
    else
        sequences_advance(&b);
    return status;
}
