/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - what a model says while it is trained: the likeliest tokens. */
#include "train.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPT = 12, LONGEST = 48 };

/* Tokens as text on one line. */
static char *line_of(const workshop *w, const uint32_t *ids, size_t count,
                     bool source)
{
    bauta_decode_options how = BAUTA_DECODE_OPTIONS_INIT;
    char *text = NULL, *line;
    size_t length = 0;
    how.source = source;
    if (bauta_tokenizer_decode(w->tokenizer, ids, count, &how, &text, &length,
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
    char *all =
        first && second ? text_of("%s%s%s", first, between, second) : NULL;
    free(first);
    free(second);
    return all;
}

/* The likeliest tokens, until the end; NULL where it fails. */
static bauta_result *speak(const workshop *w, bauta_request *request,
                           size_t most)
{
    bauta_generate_options how = BAUTA_GENERATE_OPTIONS_INIT;
    bauta_result *result = NULL;
    how.max_tokens = most;
    how.start = w->start;
    how.ends[0] = bauta_tokenizer_token(w->tokenizer, BAUTA_TOKEN_EOS);
    how.end_count = how.ends[0] != BAUTA_NO_TOKEN;
    request->options = &how;
    bauta_generate(w->context, w->model, w->tokenizer, request, &result, NULL);
    return result;
}

/* What was said, behind what it was said to. */
static char *said(const workshop *w, char *to, const char *between,
                  bauta_result *result)
{
    const bauta_hypothesis *h = result ? &result->hypotheses[0] : NULL;
    char *answer =
        h ? line_of(w, h->tokens, h->count - (h->finish == BAUTA_FINISH_END),
                    false)
          : NULL;
    bauta_result_free(result);
    return joined(to, between, answer);
}

static char *continuation(const workshop *w, const uint32_t *tokens,
                          size_t count)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    size_t most = bauta_model_positions(w->model) / 2;
    size_t prompt = count / 2 < PROMPT ? count / 2 + 1 : PROMPT;
    prompt = prompt > most ? most : prompt;
    if (prompt == 0 || prompt > count)
        return NULL;
    request.tokens = tokens;
    request.count = prompt;
    return said(w, line_of(w, tokens, prompt, false), " | ",
                speak(w, &request, LONGEST));
}

static char *translation(const workshop *w, const uint32_t *source,
                         size_t count)
{
    bauta_request request = BAUTA_REQUEST_INIT;
    size_t most = 2 * count + 3; // a translation is not much longer
    if (w->start == BAUTA_NO_TOKEN || count > 4 * LONGEST)
        return NULL;
    request.source = source;
    request.source_count = count;
    return said(w, line_of(w, source, count, true), " => ",
                speak(w, &request, most < LONGEST ? most : LONGEST));
}

/* The likeliest token of a row. */
static uint32_t likeliest(const workshop *w, const float *logits)
{
    size_t vocabulary = bauta_model_vocabulary(w->model);
    size_t known = bauta_tokenizer_size(w->tokenizer), best = 0;
    for (size_t i = 1; i < vocabulary && i < known; i++)
        if (logits[i] > logits[best])
            best = i;
    return (uint32_t)best;
}

/* What an encoder makes of the hidden token; BAUTA_NO_TOKEN where it fails. */
static uint32_t guess(const workshop *w, const uint32_t *ids, size_t count,
                      size_t at)
{
    bauta_batch batch = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    size_t vocabulary = bauta_model_vocabulary(w->model);
    uint32_t token = BAUTA_NO_TOKEN;
    float *logits = calloc(count * vocabulary, sizeof(*logits));
    batch.count = 1;
    batch.lengths = &count;
    batch.ids = ids;
    outputs.logits = logits;
    if (logits && !bauta_model_forward(w->context, w->model, &batch, NULL,
                                       &outputs, NULL))
        token = likeliest(w, logits + at * vocabulary);
    free(logits);
    return token;
}

/* The middle token of a text is hidden and guessed. */
static char *gap(const workshop *w, const uint32_t *tokens, size_t count)
{
    const bauta_tokenizer *t = w->tokenizer;
    uint32_t mask = bauta_tokenizer_token(t, BAUTA_TOKEN_MASK);
    uint32_t ids[PROMPT + LONGEST];
    char *text = NULL;
    count = count < PROMPT + LONGEST ? count : PROMPT + LONGEST;
    if (count > bauta_model_positions(w->model))
        count = bauta_model_positions(w->model);
    size_t at = count / 2;
    if (count < 3 || mask == BAUTA_NO_TOKEN)
        return NULL;
    memcpy(ids, tokens, count * sizeof(*tokens));
    ids[at] = mask;
    uint32_t guessed = guess(w, ids, count, at);
    const char *was = bauta_tokenizer_piece(t, tokens[at], NULL);
    const char *is = bauta_tokenizer_piece(t, guessed, NULL);
    char *before = line_of(w, ids, at, false);
    char *behind = line_of(w, ids + at + 1, count - at - 1, false);
    if (before && behind && was && is)
        text = text_of("%s [%s => %s] %s", before, was, is, behind);
    free(before);
    free(behind);
    return text;
}

char *sample_text(const workshop *w)
{
    const bauta_corpus *corpus = w->valid ? w->valid : w->corpus;
    const uint32_t *source = NULL;
    size_t count = 0, source_count = 0;
    if (bauta_corpus_documents(corpus) == 0)
        return NULL;
    const uint32_t *tokens =
        bauta_corpus_document(corpus, 0, &count, &source, &source_count);
    if (bauta_model_kind_of(w->model) == BAUTA_ENCODER_ONLY)
        return gap(w, tokens, count);
    return source ? translation(w, source, source_count)
                  : continuation(w, tokens, count);
}
