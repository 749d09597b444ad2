/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.c - sampling and beam selection on a GPU.
 *
 * What the kernels need to know of each row (options, and lists of tokens) goes
 * to the GPU in one copy; tokens and scores come back in another. */
#include "backend/cuda/stream.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <string.h>

enum { CHOICES_MAX = 1024, CANDIDATES_MAX = 2048 }; /* of bt_cuda_beam() */

/* ---- Lists of tokens ----------------------------------------------------- */

/* Runs twice: with host NULL it only counts. */
typedef struct token_lists {
    uint32_t *host;         /* what is copied */
    const uint32_t *device; /* where it will be */
    size_t count;
} token_lists;

/* Append tokens; returns where they will be. */
static const uint32_t *tokens_put(token_lists *l, const uint32_t *tokens,
                                  size_t count)
{
    const uint32_t *at = l->device ? l->device + l->count : NULL;
    if (l->host && count)
        memcpy(l->host + l->count, tokens, count * sizeof(*tokens));
    l->count += count;
    return at;
}

/* Tokens that are masked whatever came before. */
static void masked_put(bt_cuda_processors *p, token_lists *l,
                       const bauta_generate_options *o,
                       const bt_token_history *h)
{
    size_t before = l->count;
    p->masked = tokens_put(l, o->suppress_tokens, o->suppress_token_count);
    for (size_t i = 0; i < o->bad_word_count; i++) {
        const bauta_token_seq *word = &o->bad_words[i];
        if (word->count == 1 && !bt_is_eos_token(o, word->tokens[0]))
            tokens_put(l, word->tokens, 1);
    }
    if (bt_logits_too_short(o, h))
        tokens_put(l, o->eos_token_ids, o->eos_token_count);
    p->masked_count = (uint32_t)(l->count - before);
}

/* Bad words of several tokens: the words, then where each ends. */
static void bad_words_put(bt_cuda_processors *p, token_lists *l,
                          const bauta_generate_options *o)
{
    p->bad_words = tokens_put(l, NULL, 0);
    for (size_t i = 0; i < o->bad_word_count; i++)
        if (o->bad_words[i].count > 1)
            tokens_put(l, o->bad_words[i].tokens, o->bad_words[i].count);
    uint32_t end = 0;
    p->bad_ends = tokens_put(l, NULL, 0);
    for (size_t i = 0; i < o->bad_word_count; i++)
        if (o->bad_words[i].count > 1) {
            end += (uint32_t)o->bad_words[i].count;
            tokens_put(l, &end, 1);
            p->bad_word_count++;
        }
}

/* The tokens, then the bits of their biases. */
static void bias_put(bt_cuda_processors *p, token_lists *l,
                     const bauta_generate_options *o)
{
    p->bias_tokens = tokens_put(l, NULL, 0);
    for (size_t i = 0; i < o->logit_bias_count; i++)
        tokens_put(l, &o->logit_bias[i].token, 1);
    p->biases = tokens_put(l, NULL, 0);
    for (size_t i = 0; i < o->logit_bias_count; i++) {
        uint32_t bits;
        memcpy(&bits, &o->logit_bias[i].bias, sizeof(bits));
        tokens_put(l, &bits, 1);
    }
    p->bias_count = (uint32_t)o->logit_bias_count;
}

static bt_cuda_processors processors_of(token_lists *l,
                                        const bauta_generate_options *o,
                                        const bt_token_history *h)
{
    bt_cuda_processors p = {
        .repetition_penalty = o->repetition_penalty,
        .presence_penalty = o->presence_penalty,
        .frequency_penalty = o->frequency_penalty,
        .no_repeat_ngram_size = (uint32_t)o->no_repeat_ngram_size,
    };
    if (bt_logits_processors_need_history(o)) {
        p.history = tokens_put(l, h->ids, h->count);
        p.history_count = (uint32_t)h->count;
    }
    if (bt_logits_counts_penalized(o)) {
        p.new_tokens = p.history ? p.history + h->prompt : NULL;
        p.new_count = (uint32_t)(h->count - h->prompt);
    }
    bias_put(&p, l, o);
    masked_put(&p, l, o, h);
    bad_words_put(&p, l, o);
    p.forces = bt_logits_forced_token(o, h, &p.forced);
    return p;
}

/* ---- Memory -------------------------------------------------------------- */

/* One block on the GPU: input that is copied there, then results and scratch.
 */
typedef struct sampling_block {
    size_t rows, lists, input, results, work, workspace, bytes; /* offsets */
    unsigned char *host;                                        /* (input) */
    unsigned char *device;
} sampling_block;

static size_t place(size_t *bytes, size_t size)
{
    size_t at = *bytes;
    *bytes = bt_size_round(bt_size_add(at, size), 256);
    return at;
}

static bauta_status block_take(sampling_block *b, bt_cuda_stream *stream,
                               bauta_error *err)
{
    void *memory;
    bauta_status status =
        bt_cuda_stream_scratch(stream, &memory, b->bytes, err);
    if (status)
        return status;
    b->device = memory;
    b->host = bt_alloc_zero(1, b->input);
    return b->host ? BAUTA_OK : bt_fail_memory(err, "sampling", b->input);
}

static size_t work_bytes(size_t rows, size_t vocab)
{
    return bt_size_mul(rows, bt_size_round(vocab, 8) * sizeof(float));
}

/* ---- Sampling ------------------------------------------------------------ */

static bt_cuda_sample_row row_of(token_lists *l, const bt_sample_item *item)
{
    const bauta_generate_options *o = item->options;
    return (bt_cuda_sample_row){
        .processors = processors_of(l, o, &item->history),
        .do_sample = o->do_sample && o->temperature > 0,
        .temperature = o->temperature > 0 ? o->temperature : 1.0f,
        .top_k = (uint32_t)bt_size_min(o->top_k, UINT32_MAX),
        .top_p = o->top_p,
        .min_p = o->min_p,
        .seed = o->seed,
        .position = item->history.count,
    };
}

static void items_write(const sampling_block *b, const bt_sample_item *items,
                        size_t count)
{
    bt_cuda_sample_row *rows = (void *)(b->host + b->rows);
    token_lists l = { (void *)(b->host + b->lists),
                      (const void *)(b->device + b->lists), 0 };
    for (size_t i = 0; i < count; i++)
        rows[i] = row_of(&l, &items[i]);
}

static void items_read(bt_sample_item *items, const bt_cuda_sampled *results,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const bt_cuda_sampled *r = &results[i];
        items[i].status = (bt_sample_status)r->status;
        items[i].token = (bt_sampled_token){ r->token, r->logprob, r->score };
    }
}

/* Whether a row's token is simply the most likely one: the processors that the
 * kernel looks for are all off. */
static bool is_greedy(const bt_cuda_sample_row *row)
{
    const bt_cuda_processors *p = &row->processors;
    return !row->do_sample && p->repetition_penalty == 1.0f && !p->bias_count &&
           !p->new_count && !p->no_repeat_ngram_size && !p->masked_count &&
           !p->bad_word_count && !p->forces;
}

/* ---- Sampling, with results in two places ---------------------------------
 */

int bt_cuda_sampling_number(const bt_sampling *sampling)
{
    return ((const bt_cuda_sampling *)sampling)->number;
}

void bt_cuda_sampling_release(bt_cuda_sampling *sampling)
{
    bt_cuda_block block = { sampling->sampled.memory, sampling->bytes };
    bt_cuda_block_release(&block);
    bt_cuda_block_release(&sampling->inputs);
    cudaFreeHost(sampling->landing);
    if (sampling->landed)
        cudaEventDestroy((cudaEvent_t)sampling->landed);
    *sampling =
        (bt_cuda_sampling){ sampling->base, .number = sampling->number };
}

void bt_cuda_sampling_free(bt_sampling *base)
{
    bt_cuda_sampling_release((bt_cuda_sampling *)base);
    bt_free(base);
}

/* Room for `count` results. */
static bauta_status sampling_reserve(bt_cuda_sampling *sampling, size_t count,
                                     bauta_error *err)
{
    size_t bytes = bt_size_mul(count, sizeof(bt_cuda_sampled));
    bt_cuda_block block = { 0 };
    if (bytes <= sampling->bytes)
        return BAUTA_OK;
    bt_cuda_sampling_release(sampling);
    bauta_status status = bt_cuda_block_reserve(&block, bytes, NULL, err);
    if (status)
        return status;
    sampling->sampled =
        (bt_buffer){ &bt_cuda_backend, block.memory, block.bytes };
    cudaError_t error = cudaMallocHost(&sampling->landing, block.bytes);
    if (error)
        sampling->landing = NULL;
    else
        error = cudaEventCreateWithFlags((cudaEvent_t *)&sampling->landed,
                                         cudaEventDisableTiming);
    if (error) {
        bt_cuda_sampling_release(sampling);
        return bt_cuda_failed(error, "cannot allocate pinned memory", err);
    }
    sampling->bytes = block.bytes;
    return BAUTA_OK;
}

/* The most likely tokens, which many blocks find for each row; the bits are
 * those of queue_sampled(). */
static bauta_status queue_greedy(bt_cuda_stream *stream,
                                 const bt_cuda_sampling *to, const bt_tensor *z,
                                 bauta_error *err)
{
    void *memory;
    bauta_status status = bt_cuda_stream_scratch(
        stream, &memory, bt_cuda_row_stats_workspace(z->rows, z->columns), err);
    return status
               ? status
               : bt_cuda_sample_greedy(z->rows, z->columns, z->dtype,
                                       bt_cuda_read(z), to->sampled.memory,
                                       to->landing, memory, stream->queue, err);
}

/* In a step uploads happen early, so what is uploaded is in memory of its
 * own. */
static bauta_status queue_sampled(bt_cuda_stream *stream, bt_cuda_sampling *to,
                                  const bt_tensor *z,
                                  const bt_sample_item *items, size_t lists,
                                  bauta_error *err)
{
    sampling_block b = { 0 };
    void *work;
    b.rows = place(&b.bytes, z->rows * sizeof(bt_cuda_sample_row));
    b.lists = place(&b.bytes, lists * sizeof(uint32_t));
    bauta_status status =
        bt_cuda_block_reserve(&to->inputs, b.bytes, NULL, err);
    if (!status)
        status = bt_cuda_stream_scratch(stream, &work,
                                        work_bytes(z->rows, z->columns), err);
    if (status)
        return status;
    b.device = to->inputs.memory;
    b.host = bt_alloc_zero(1, b.bytes);
    if (!b.host)
        return bt_fail_memory(err, "sampling", b.bytes);
    items_write(&b, items, z->rows);
    status = bt_cuda_stream_upload(stream, b.device, b.host, b.bytes, err);
    if (!status)
        status = bt_cuda_sample(z->rows, z->columns, z->dtype, bt_cuda_read(z),
                                (const void *)(b.device + b.rows),
                                to->sampled.memory, to->landing, work,
                                stream->queue, err);
    bt_free(b.host);
    return status;
}

/* Queue items whose rows are consecutive. */
static bauta_status sampling_begin(bt_cuda_stream *stream, bt_cuda_sampling *to,
                                   const bt_tensor *logits,
                                   const bt_sample_item *items, size_t count,
                                   bauta_error *err)
{
    token_lists l = { NULL, NULL, 0 };
    bt_tensor z = bt_tensor_rows(logits, items[0].row, count);
    bool greedy = true;
    for (size_t i = 0; i < count; i++) {
        bt_cuda_sample_row row = row_of(&l, &items[i]);
        greedy = greedy && is_greedy(&row);
    }
    bauta_status status = sampling_reserve(to, count, err);
    if (!status)
        status = greedy ? queue_greedy(stream, to, &z, err)
                        : queue_sampled(stream, to, &z, items, l.count, err);
    if (status)
        return status;
    stream->unmarked = to;
    return bt_cuda_stepping(stream->queue) ? BAUTA_OK
                                           : bt_cuda_sampling_mark(stream, err);
}

bauta_status bt_cuda_sampling_mark(bt_cuda_stream *stream, bauta_error *err)
{
    bt_cuda_sampling *sampling = stream->unmarked;
    if (!sampling)
        return BAUTA_OK;
    stream->unmarked = NULL;
    sampling->step = bt_cuda_steps_last(stream->steps);
    cudaError_t error = cudaEventRecord((cudaEvent_t)sampling->landed,
                                        (cudaStream_t)stream->queue);
    return error ? bt_cuda_failed(error, "cannot record an event", err)
                 : BAUTA_OK;
}

/* Wait for the results. */
static bauta_status sampling_end(bt_cuda_stream *stream,
                                 const bt_cuda_sampling *sampling,
                                 bt_sample_item *items, size_t count,
                                 bauta_error *err)
{
    cudaError_t error = cudaEventSynchronize((cudaEvent_t)sampling->landed);
    if (error)
        return bt_cuda_failed(error, "the GPU's work failed", err);
    bt_cuda_steps_done(stream->steps, sampling->step);
    items_read(items, sampling->landing, count);
    return BAUTA_OK;
}

bauta_status bt_cuda_sample_queue(bt_cuda_stream *stream, bt_sampling **out,
                                  const bt_sample_args *args, bt_tensor *tokens,
                                  bauta_error *err)
{
    bt_cuda_sampling *sampling = (bt_cuda_sampling *)*out;
    BT_CUDA_NEED_HERE(stream, err, sample, args->logits);
    if (!sampling) {
        sampling = bt_alloc_zero(1, sizeof(*sampling));
        if (!sampling)
            return bt_fail_memory(err, "sampled tokens", sizeof(*sampling));
        sampling->base.backend = &bt_cuda_backend;
        sampling->number = stream->number;
        *out = &sampling->base;
    }
    bauta_status status = sampling_begin(stream, sampling, args->logits,
                                         args->items, args->count, err);
    *tokens = bt_tensor_of(&sampling->sampled, BAUTA_UINT32, args->count, 1);
    tokens->stride = sizeof(bt_cuda_sampled) / sizeof(uint32_t);
    tokens->offset = offsetof(bt_cuda_sampled, token) / sizeof(uint32_t);
    return status;
}

bauta_status bt_cuda_sample_read(bt_cuda_stream *stream, bt_sampling *sampling,
                                 const bt_sample_args *args, bauta_error *err)
{
    return sampling_end(stream, (const bt_cuda_sampling *)sampling, args->items,
                        args->count, err);
}

bauta_status bt_cuda_op_sample(bt_cuda_stream *stream,
                               const bt_sample_args *args, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    BT_CUDA_NEED_HERE(stream, err, sample, args->logits);
    for (size_t first = 0, next; first < args->count && !status; first = next) {
        for (next = first + 1;
             next < args->count &&
             args->items[next].row == args->items[next - 1].row + 1;)
            next++;
        status = sampling_begin(stream, &stream->sampling, args->logits,
                                &args->items[first], next - first, err);
        if (!status)
            status = sampling_end(stream, &stream->sampling,
                                  &args->items[first], next - first, err);
    }
    return status;
}

/* ---- Beams --------------------------------------------------------------- */

static bt_cuda_beam_row beam_row_of(token_lists *l, const bt_beam_item *item,
                                    size_t beam)
{
    return (bt_cuda_beam_row){
        .processors = processors_of(l, item->options, &item->histories[beam]),
        .renormalize = item->options->renormalize_logits,
        .score = item->scores[beam],
    };
}

/* Beam searches whose rows follow each other and that want as many
 * continuations: one launch. */
typedef struct beam_run {
    bt_beam_item *items;
    size_t count, rows, want;
    size_t most_beams; /* of an item */
} beam_run;

static beam_run beam_run_of(bt_beam_item *items, size_t count)
{
    beam_run run = { items, 0, 0, items[0].want, 0 };
    while (run.count < count && items[run.count].want == run.want &&
           items[run.count].row == items[0].row + run.rows) {
        run.rows += items[run.count].beams;
        run.most_beams = bt_size_max(run.most_beams, items[run.count].beams);
        run.count++;
    }
    return run;
}

/* Results of a run on the GPU. */
typedef struct beam_results {
    int32_t *status;              /* (count) */
    uint32_t *counts;             /* (count) */
    bt_cuda_beam_choice *choices; /* (count, want) */
} beam_results;

static size_t results_cut(beam_results *r, void *memory, const beam_run *run)
{
    size_t choices = bt_size_round(2 * run->count * sizeof(uint32_t), 16);
    char *at = memory;
    if (r)
        *r = (beam_results){ memory, (void *)(at + run->count * 4),
                             (void *)(at + choices) };
    return choices + run->count * run->want * sizeof(bt_cuda_beam_choice);
}

static void choices_read(bt_beam_item *item, int32_t status, uint32_t count,
                         const bt_cuda_beam_choice *choices)
{
    item->status = (bt_sample_status)status;
    item->count = count;
    for (size_t i = 0; i < count; i++)
        item->choices[i] =
            (bt_beam_choice){ choices[i].score, choices[i].beam,
                              choices[i].token, choices[i].logprob };
    if (!item->status && !item->count)
        item->status = BT_SAMPLE_ALL_MASKED;
}

/* The rows and groups of a run; without a block only tokens are counted. */
static void beams_write(const sampling_block *b, token_lists *l,
                        const beam_run *run, size_t groups)
{
    size_t row = 0;
    for (size_t i = 0; i < run->count; i++) {
        const bt_beam_item *item = &run->items[i];
        if (b)
            ((bt_cuda_beam_group *)(void *)(b->host + groups))[i] =
                (bt_cuda_beam_group){ (uint32_t)row, (uint32_t)item->beams };
        for (size_t k = 0; k < item->beams; k++, row++) {
            bt_cuda_beam_row one = beam_row_of(l, item, k);
            if (b)
                ((bt_cuda_beam_row *)(void *)(b->host + b->rows))[row] = one;
        }
    }
}

static bauta_status beams_queue(bt_cuda_stream *stream, const sampling_block *b,
                                const bt_tensor *logits, const beam_run *run,
                                size_t groups, bauta_error *err)
{
    bt_tensor z = bt_tensor_rows(logits, run->items[0].row, run->rows);
    beam_results to;
    results_cut(&to, b->device + b->results, run);
    bt_cuda_beam_args own = { .rows = run->rows,
                              .vocab = logits->columns,
                              .groups = run->count,
                              .want = run->want,
                              .most_beams = run->most_beams,
                              .dtype = logits->dtype,
                              .logits = bt_cuda_read(&z),
                              .how = (const void *)(b->device + b->rows),
                              .group = (const void *)(b->device + groups),
                              .choices = to.choices,
                              .counts = to.counts,
                              .status = to.status,
                              .work = (void *)(b->device + b->work),
                              .workspace = b->device + b->workspace };
    return bt_cuda_beam(&own, stream->queue, err);
}

static bauta_status beams_run(bt_cuda_stream *stream, const bt_tensor *logits,
                              const beam_run *run, bauta_error *err)
{
    sampling_block b = { 0 };
    token_lists l = { NULL, NULL, 0 };
    beam_results r;
    beams_write(NULL, &l, run, 0);
    b.rows = place(&b.bytes, run->rows * sizeof(bt_cuda_beam_row));
    size_t groups = place(&b.bytes, run->count * sizeof(bt_cuda_beam_group));
    b.lists = place(&b.bytes, l.count * sizeof(uint32_t));
    b.input = b.bytes;
    size_t bytes = results_cut(NULL, NULL, run);
    b.results = place(&b.bytes, bytes);
    b.work = place(&b.bytes, work_bytes(run->rows, logits->columns));
    b.workspace = place(&b.bytes, bt_cuda_beam_workspace(run->rows, run->want));
    void *results = bt_alloc(bytes);
    bauta_status status =
        results ? block_take(&b, stream, err)
                : bt_fail_memory(err, "continuations of beams", bytes);
    if (!status) {
        l = (token_lists){ (void *)(b.host + b.lists),
                           (const void *)(b.device + b.lists), 0 };
        beams_write(&b, &l, run, groups);
        status = bt_cuda_stream_upload(stream, b.device, b.host, b.input, err);
    }
    if (!status)
        status = beams_queue(stream, &b, logits, run, groups, err);
    if (!status)
        status = bt_cuda_stream_download(stream, results, b.device + b.results,
                                         bytes, err);
    if (!status) {
        results_cut(&r, results, run);
        for (size_t i = 0; i < run->count; i++)
            choices_read(&run->items[i], r.status[i], r.counts[i],
                         r.choices + i * run->want);
    }
    bt_free(b.host);
    bt_free(results);
    return status;
}

bauta_status bt_cuda_op_beam(bt_cuda_stream *stream, const bt_beam_args *args,
                             bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    BT_CUDA_NEED_HERE(stream, err, beam, args->logits);
    for (size_t i = 0; i < args->count; i++) {
        const bt_beam_item *item = &args->items[i];
        if (item->want > CHOICES_MAX ||
            item->beams * item->want > CANDIDATES_MAX)
            return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                           "%zu beams with %zu continuations are more than the "
                           "GPU's beam search supports",
                           item->beams, item->want);
    }
    for (size_t i = 0; i < args->count && !status;) {
        beam_run run = beam_run_of(&args->items[i], args->count - i);
        status = beams_run(stream, args->logits, &run, err);
        i += run.count;
    }
    return status;
}
