/* SPDX-License-Identifier: Apache-2.0 */
/* train_sample.c - sample output during training, decoded greedily.
 */
#include "format.h"
#include "train.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPT = 12, LONGEST = 48 };

/* Tokens as text on one line. */
static char *line_of(const train_job *job, const uint32_t *ids, size_t count,
                     bool source)
{
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    char *text = NULL, *line;
    size_t length = 0;
    how.source = source;
    if (bauta_tokenizer_decode(job->tokenizer, ids, count, &how, &text, &length,
                               NULL))
        return NULL;
    line = malloc(2 * length + 1);
    size_t at = 0;
    for (size_t i = 0; line && i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') {
            line[at++] = '\\';
            line[at++] = 'n';
        } else if (c >= 0x20 && c != 0x7F) {
            line[at++] = (char)c;
        }
    }
    if (line)
        line[at] = '\0';
    bauta_text_free(text);
    return line;
}

static char *joined(char *first, const char *between, char *second)
{
    char *all = first && second
                    ? format_string("%s%s%s", first, between, second)
                    : NULL;
    free(first);
    free(second);
    return all;
}

/* Greedy decoding; NULL if it fails. */
static bauta_result *decode(const train_job *job, bauta_request *request,
                            size_t most)
{
    bauta_generate_options how = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_result *result = NULL;
    how.max_new_tokens = most;
    how.decoder_start_token_id = job->start;
    how.eos_token_ids[0] =
        bauta_tokenizer_special_token(job->tokenizer, BAUTA_TOKEN_EOS);
    how.eos_token_count = how.eos_token_ids[0] != BAUTA_NO_TOKEN;
    request->options = &how;
    bauta_generate(job->context, job->model, job->tokenizer, request, &result,
                   NULL);
    return result;
}

/* The prompt and the generated text. */
static char *with_output(const train_job *job, char *to, const char *between,
                         bauta_result *result)
{
    const bauta_hypothesis *h = result ? result->hypotheses[0] : NULL;
    char *answer =
        h ? line_of(job, h->tokens, h->count - (h->finish == BAUTA_FINISH_END),
                    false)
          : NULL;
    bauta_result_free(result);
    return joined(to, between, answer);
}

static char *continuation(const train_job *job, const uint32_t *tokens,
                          size_t count)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    size_t most = bauta_model_max_positions(job->model) / 2;
    size_t prompt = count / 2 < PROMPT ? count / 2 + 1 : PROMPT;
    prompt = prompt > most ? most : prompt;
    if (prompt == 0 || prompt > count)
        return NULL;
    request.tokens = tokens;
    request.count = prompt;
    return with_output(job, line_of(job, tokens, prompt, false), " | ",
                       decode(job, &request, LONGEST));
}

static char *translation(const train_job *job, const uint32_t *source,
                         size_t count)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    size_t most = 2 * count + 3; // usually enough for a translation
    if (job->start == BAUTA_NO_TOKEN || count > 4 * LONGEST)
        return NULL;
    request.source = source;
    request.source_count = count;
    return with_output(job, line_of(job, source, count, true), " => ",
                       decode(job, &request, most < LONGEST ? most : LONGEST));
}

/* The most likely token of a row of logits. */
static uint32_t most_likely(const train_job *job, const float *logits)
{
    size_t vocabulary = bauta_model_vocab_size(job->model);
    size_t known = bauta_tokenizer_vocab_size(job->tokenizer), best = 0;
    for (size_t i = 1; i < vocabulary && i < known; i++)
        if (logits[i] > logits[best])
            best = i;
    return (uint32_t)best;
}

/* An encoder's prediction for row `at`; BAUTA_NO_TOKEN if it fails. */
static uint32_t predict(const train_job *job, const uint32_t *ids, size_t count,
                        size_t at)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    size_t vocabulary = bauta_model_vocab_size(job->model);
    uint32_t token = BAUTA_NO_TOKEN;
    float *logits = calloc(count * vocabulary, sizeof(*logits));
    batch.count = 1;
    batch.lengths = &count;
    batch.ids = ids;
    outputs.logits = logits;
    if (logits && !bauta_model_forward(job->context, job->model, &batch, NULL,
                                       &outputs, NULL))
        token = most_likely(job, logits + at * vocabulary);
    free(logits);
    return token;
}

/* Mask the middle token of a text and predict it. */
static char *masked_token(const train_job *job, const uint32_t *tokens,
                          size_t count)
{
    const bauta_tokenizer *t = job->tokenizer;
    uint32_t mask = bauta_tokenizer_special_token(t, BAUTA_TOKEN_MASK);
    uint32_t ids[PROMPT + LONGEST];
    char *text = NULL;
    count = count < PROMPT + LONGEST ? count : PROMPT + LONGEST;
    if (count > bauta_model_max_positions(job->model))
        count = bauta_model_max_positions(job->model);
    size_t at = count / 2;
    if (count < 3 || mask == BAUTA_NO_TOKEN)
        return NULL;
    memcpy(ids, tokens, count * sizeof(*tokens));
    ids[at] = mask;
    uint32_t predicted = predict(job, ids, count, at);
    const char *was = bauta_tokenizer_piece(t, tokens[at], NULL);
    const char *is = bauta_tokenizer_piece(t, predicted, NULL);
    char *before = line_of(job, ids, at, false);
    char *after = line_of(job, ids + at + 1, count - at - 1, false);
    if (before && after && was && is)
        text = format_string("%s [%s => %s] %s", before, was, is, after);
    free(before);
    free(after);
    return text;
}

char *sample_text(const train_job *job)
{
    if (job->codec)
        return NULL; // numbers, not a text
    const bauta_corpus *corpus = job->valid ? job->valid : job->corpus;
    const uint32_t *source = NULL;
    size_t count = 0, source_count = 0;
    if (bauta_corpus_documents(corpus) == 0)
        return NULL;
    const uint32_t *tokens =
        bauta_corpus_document(corpus, 0, &count, &source, &source_count);
    if (bauta_model_kind_of(job->model) == BAUTA_ENCODER_ONLY)
        return masked_token(job, tokens, count);
    return source ? translation(job, source, source_count)
                  : continuation(job, tokens, count);
}
