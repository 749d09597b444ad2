/* SPDX-License-Identifier: Apache-2.0 */
/* perplexity.c - how well a model predicts a corpus.
 *
 * Documents are read in windows of the context length. Each begins `stride`
 * tokens after the one before, and only tokens that were not predicted yet
 * count. So every token is predicted once, and those after the first window
 * with at least context - stride tokens of context. Windows are collected into
 * batches; the sum of losses is taken batch by batch, in order. With several
 * ranks, each runs every so-many-th batch. */
#include "base/memory.h"
#include "base/size.h"
#include "base/sized.h"
#include "data/corpus.h"
#include "model/api.h"
#include "runtime/context.h"

#include <math.h>
#include <string.h>

enum { BATCH_TOKENS = 4096 }; /* at most, unless a single window has more */

typedef struct perplexity_job {
    bauta_context *context;
    bauta_model model; /* a read-only view: no gradients are computed */
    const bauta_tokenizer *tokenizer;
    const bauta_corpus *corpus;
    bauta_perplexity_options options; /* with defaults resolved */
    uint32_t mask_token, decoder_start_token;
    /* The current batch. */
    uint32_t *ids, *labels;           /* (capacity) */
    uint32_t *source;                 /* (capacity) of seq2seq */
    size_t *lengths, *source_lengths; /* (capacity) */
    size_t count, rows, source_rows, capacity;
    uint64_t read, all; /* tokens of the corpus, for progress */
    /* Batches in turn, one for each rank: the loss and the tokens of each. */
    size_t batches;
    double turn[2 * BT_RANKS_MAX];
    bauta_perplexity_result *result;
} perplexity_job;

/* ---- a batch ----------------------------------------------------------- */

static bauta_status fail_not_finite(perplexity_job *j,
                                    const bauta_batch *source,
                                    const bauta_batch *target, bauta_error *err)
{
    bauta_status status =
        bauta_model_check_finite(j->context, &j->model, source, target, err);
    if (status)
        return status;
    return bt_fail(err, BAUTA_ERR_NOT_FINITE,
                   "the loss is infinite: the model gives a token of the text "
                   "the probability 0");
}

/* Add the batches since the last turn, in order. */
static bauta_status turn_end(perplexity_job *j, bauta_error *err)
{
    bt_comm *comm = j->context->comm;
    size_t ranks = (size_t)comm->count;
    bauta_status status = bt_comm_sum(comm, j->turn, 2 * ranks, err);
    for (size_t i = 0; !status && i < ranks; i++) {
        j->result->total_loss += j->turn[2 * i];
        j->result->tokens += (uint64_t)j->turn[2 * i + 1];
        j->turn[2 * i] = j->turn[2 * i + 1] = 0.0;
    }
    return status;
}

/* The loss of the batch, summed over its tokens. */
static bauta_status batch_loss(perplexity_job *j, double out[2],
                               bauta_error *err)
{
    bauta_objective kind = j->options.objective;
    bauta_batch text = BAUTA_BATCH_INIT, source = BAUTA_BATCH_INIT;
    double loss = 0.0;
    size_t counted = 0;
    text.count = source.count = j->count;
    text.lengths = j->lengths;
    text.ids = j->ids;
    source.lengths = j->source_lengths;
    source.ids = j->source;
    const bauta_batch *encoder = kind == BAUTA_OBJECTIVE_MASKED    ? &text
                                 : kind == BAUTA_OBJECTIVE_SEQ2SEQ ? &source
                                                                   : NULL;
    const bauta_batch *decoder = kind == BAUTA_OBJECTIVE_MASKED ? NULL : &text;
    bauta_status status =
        bauta_model_loss(j->context, &j->model, encoder, decoder, j->labels,
                         NULL, &loss, &counted, err);
    if (!status && !isfinite(loss))
        status = fail_not_finite(j, encoder, decoder, err);
    out[0] = loss * (double)counted;
    out[1] = (double)counted;
    return status;
}

static bauta_status batch_run(perplexity_job *j, bauta_error *err)
{
    const bt_comm *comm = j->context->comm;
    size_t owner = j->batches % (size_t)comm->count;
    bauta_status status = BAUTA_OK;
    if (j->count == 0)
        return BAUTA_OK;
    if (owner == (size_t)comm->rank)
        status = batch_loss(j, &j->turn[2 * owner], err);
    j->batches++;
    if (!status && owner + 1 == (size_t)comm->count)
        status = turn_end(j, err);
    j->count = j->rows = j->source_rows = 0;
    bt_corpus_unload(j->corpus);
    if (!status && j->options.progress)
        j->options.progress(j->options.user, j->read, j->all);
    return status;
}

/* Run the batch if it has no room for another sequence. */
static bauta_status batch_room(perplexity_job *j, size_t rows,
                               size_t source_rows, bauta_error *err)
{
    if (j->rows + rows <= j->capacity &&
        j->source_rows + source_rows <= j->capacity)
        return BAUTA_OK;
    return batch_run(j, err);
}

/* ---- windows ----------------------------------------------------------- */

/* Tokens [begin, end) of a text, of which those from `fresh` on are new. */
typedef struct window {
    const uint32_t *tokens;
    size_t begin, end, fresh;
} window;

/* Each new token predicts the one after it. */
static bauta_status causal_add(perplexity_job *j, const window *w,
                               bauta_error *err)
{
    bauta_status status = batch_room(j, w->end - w->begin, 0, err);
    for (size_t i = w->begin; !status && i < w->end; i++) {
        j->ids[j->rows] = w->tokens[i];
        j->labels[j->rows++] = i >= w->fresh ? w->tokens[i + 1] : BAUTA_IGNORE;
    }
    if (!status)
        j->lengths[j->count++] = w->end - w->begin;
    return status;
}

/* A sequence for each new token, in which it is masked. */
static bauta_status masked_add(perplexity_job *j, const window *w,
                               bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t m = w->fresh; !status && m < w->end; m++) {
        if (bauta_tokenizer_is_special(j->tokenizer, w->tokens[m]))
            continue;
        status = batch_room(j, w->end - w->begin, 0, err);
        for (size_t i = w->begin; !status && i < w->end; i++) {
            j->ids[j->rows] = i == m ? j->mask_token : w->tokens[i];
            j->labels[j->rows++] = i == m ? w->tokens[i] : BAUTA_IGNORE;
        }
        if (!status)
            j->lengths[j->count++] = w->end - w->begin;
    }
    return status;
}

static bauta_status text_run(perplexity_job *j, const uint32_t *tokens,
                             size_t count, bauta_error *err)
{
    const bauta_perplexity_options *o = &j->options;
    bool masked = o->objective == BAUTA_OBJECTIVE_MASKED;
    // In a causal model the last token has no successor.
    size_t inputs = masked || count == 0 ? count : count - 1;
    bauta_status status = BAUTA_OK;
    window w = { .tokens = tokens };
    for (; !status && w.fresh < inputs; w.begin += o->stride) {
        w.end = bt_size_min(w.begin + o->context_length, inputs);
        status = masked ? masked_add(j, &w, err) : causal_add(j, &w, err);
        w.fresh = w.end;
    }
    return status;
}

static bauta_status pair_run(perplexity_job *j, const uint32_t *tokens,
                             size_t count, const uint32_t *source,
                             size_t source_count, bauta_error *err)
{
    size_t context = j->options.context_length;
    if (count == 0)
        return BAUTA_OK;
    if (count > context || source_count > context) {
        j->result->skipped++;
        return BAUTA_OK;
    }
    bauta_status status = batch_room(j, count, source_count, err);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++) {
        j->ids[j->rows] = i ? tokens[i - 1] : j->decoder_start_token;
        j->labels[j->rows++] = tokens[i];
    }
    if (source_count)
        memcpy(j->source + j->source_rows, source,
               source_count * sizeof(*source));
    j->source_rows += source_count;
    j->lengths[j->count] = count;
    j->source_lengths[j->count++] = source_count;
    return BAUTA_OK;
}

static bauta_status corpus_run(perplexity_job *j, bauta_error *err)
{
    bauta_status status = BAUTA_OK;
    for (size_t i = 0; !status && i < j->corpus->documents && j->read < j->all;
         i++) {
        size_t count, source_count;
        const uint32_t *source,
            *tokens = bauta_corpus_document(j->corpus, i, &count, &source,
                                            &source_count);
        count = bt_size_min(count, (size_t)(j->all - j->read));
        status = j->corpus->pairs
                     ? pair_run(j, tokens, count, source, source_count, err)
                     : text_run(j, tokens, count, err);
        j->read += count;
    }
    if (!status)
        status = batch_run(j, err);
    return status ? status : turn_end(j, err);
}

/* ---- options ----------------------------------------------------------- */

static bauta_status objective_resolve(perplexity_job *j, bauta_error *err)
{
    static const bauta_objective of_kind[] = {
        [BAUTA_DECODER_ONLY] = BAUTA_OBJECTIVE_CAUSAL,
        [BAUTA_ENCODER_ONLY] = BAUTA_OBJECTIVE_MASKED,
        [BAUTA_ENCODER_DECODER] = BAUTA_OBJECTIVE_SEQ2SEQ,
    };
    bauta_model_kind kind = bauta_model_kind_of(&j->model);
    bauta_objective *objective = &j->options.objective;
    if (*objective == BAUTA_OBJECTIVE_AUTO)
        *objective = of_kind[kind];
    if (*objective != of_kind[kind])
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "there is no perplexity with objective %d of a model "
                       "that is %s",
                       (int)*objective, bauta_model_kind_text(kind));
    if (j->corpus->pairs != (kind == BAUTA_ENCODER_DECODER))
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the model is %s, so its perplexity needs a corpus of "
                       "%s",
                       bauta_model_kind_text(kind),
                       j->corpus->pairs ? "texts" : "pairs");
    return BAUTA_OK;
}

static bauta_status special_tokens_find(perplexity_job *j, bauta_error *err)
{
    size_t vocab_size = bauta_model_vocab_size(&j->model);
    if (j->options.objective == BAUTA_OBJECTIVE_SEQ2SEQ) {
        size_t start = bt_config_reader_size_or(
            j->model.store->reader, "decoder_start_token_id", SIZE_MAX);
        j->decoder_start_token = (uint32_t)start;
        if (start >= vocab_size)
            return bt_fail(err, BAUTA_ERR_ARGUMENT,
                           "the model's config has no decoder_start_token_id");
    }
    if (j->options.objective != BAUTA_OBJECTIVE_MASKED)
        return BAUTA_OK;
    if (j->tokenizer)
        j->mask_token =
            bauta_tokenizer_special_token(j->tokenizer, BAUTA_TOKEN_MASK);
    if (!j->tokenizer || j->mask_token >= vocab_size)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the perplexity of an encoder-only model needs a "
                       "tokenizer with a mask token");
    return BAUTA_OK;
}

static bauta_status windows_resolve(perplexity_job *j, bauta_error *err)
{
    bauta_perplexity_options *o = &j->options;
    size_t positions = bauta_model_max_positions(&j->model);
    if (o->context_length == 0)
        o->context_length = positions;
    if (o->stride == 0)
        o->stride = (o->context_length + 1) / 2;
    if (o->context_length > positions || o->stride > o->context_length)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "a context of %zu and a stride of %zu are invalid: the "
                       "model has %zu positions, and the stride is at most the "
                       "context",
                       o->context_length, o->stride, positions);
    j->all = bauta_corpus_tokens(j->corpus);
    if (o->max_tokens && o->max_tokens < j->all)
        j->all = o->max_tokens;
    return BAUTA_OK;
}

/* ---- the call ---------------------------------------------------------- */

static bauta_status arrays_create(perplexity_job *j, bauta_error *err)
{
    size_t n = bt_size_max(j->options.context_length, BATCH_TOKENS);
    j->capacity = n;
    j->ids = bt_alloc_zero(n, sizeof(*j->ids));
    j->labels = bt_alloc_zero(n, sizeof(*j->labels));
    j->source = bt_alloc_zero(n, sizeof(*j->source));
    j->lengths = bt_alloc_zero(n, sizeof(*j->lengths));
    j->source_lengths = bt_alloc_zero(n, sizeof(*j->source_lengths));
    return j->ids && j->labels && j->source && j->lengths && j->source_lengths
               ? BAUTA_OK
               : bt_fail_memory(err, "a batch", bt_size_mul(n, 4));
}

static void arrays_release(perplexity_job *j)
{
    bt_free(j->ids);
    bt_free(j->labels);
    bt_free(j->source);
    bt_free(j->lengths);
    bt_free(j->source_lengths);
}

static bauta_status perplexity(perplexity_job *j, bauta_error *err)
{
    bauta_perplexity_result *result = j->result;
    bauta_status status;
    (void)((status = objective_resolve(j, err)) ||
           (status = special_tokens_find(j, err)) ||
           (status = windows_resolve(j, err)) ||
           (status = arrays_create(j, err)) || (status = corpus_run(j, err)));
    arrays_release(j);
    if (status)
        return status;
    if (result->tokens == 0)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "the texts have nothing to predict");
    result->loss = result->total_loss / (double)result->tokens;
    result->perplexity = exp(result->loss);
    result->context_length = j->options.context_length;
    result->stride = j->options.stride;
    return BAUTA_OK;
}

bauta_status bauta_perplexity(bauta_context *context, const bauta_model *model,
                              const bauta_tokenizer *tokenizer,
                              const bauta_corpus *corpus,
                              const bauta_perplexity_options *options,
                              bauta_perplexity_result *result, bauta_error *err)
{
    bauta_perplexity_options chosen;
    bauta_perplexity_result full = BAUTA_PERPLEXITY_RESULT_INIT;
    BT_NEED(context, err);
    BT_NEED(model, err);
    BT_NEED(corpus, err);
    BT_NEED(result, err);
    bauta_status status = BT_SIZED_READ(&chosen, BAUTA_PERPLEXITY_OPTIONS_INIT,
                                        options, "options", err);
    if (!status)
        status =
            BT_SIZED_CHECK(result, BAUTA_PERPLEXITY_RESULT_INIT, "result", err);
    if (status)
        return status;
    perplexity_job job = { .context = context,
                           .model = *model,
                           .tokenizer = tokenizer,
                           .corpus = corpus,
                           .options = chosen,
                           .result = &full };
    job.model.trainable = false;
    status = perplexity(&job, err);
    BT_SIZED_WRITE(result, &full);
    return status;
}
