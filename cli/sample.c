/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - what a model says while it is trained: the likeliest tokens, by
 * plain passes over short texts. */
#include "train.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPT = 12, LONGEST = 48 };

typedef struct speaker {
    const workshop *w;
    uint32_t ids[PROMPT + LONGEST];
    size_t count;
    const uint32_t *source; /* of a translation */
    size_t source_count;
    float *logits;
} speaker;

/* The likeliest token of a row; special ones only where they may be. */
static uint32_t likeliest(const speaker *s, size_t row)
{
    size_t vocabulary = bauta_model_vocabulary(s->w->model);
    size_t known = bauta_tokenizer_size(s->w->tokenizer);
    const float *z = s->logits + row * vocabulary;
    size_t best = 0;
    for (size_t i = 1; i < vocabulary && i < known; i++)
        if (z[i] > z[best])
            best = i;
    return (uint32_t)best;
}

/* One pass over what there is; false where it fails. */
static bool pass(speaker *s)
{
    bauta_batch batch = BAUTA_BATCH_INIT, source = BAUTA_BATCH_INIT;
    bauta_outputs outputs = BAUTA_OUTPUTS_INIT;
    const bauta_batch *from = NULL, *to = &batch;
    batch.count = source.count = 1;
    batch.lengths = &s->count;
    batch.ids = s->ids;
    source.lengths = &s->source_count;
    source.ids = s->source;
    if (bauta_model_kind_of(s->w->model) == BAUTA_ENCODER_ONLY)
        from = &batch, to = NULL;
    else if (s->source)
        from = &source;
    outputs.logits = s->logits;
    return bauta_model_forward(s->w->context, s->w->model, from, to, &outputs,
                               NULL) == BAUTA_OK;
}

/* Add tokens until the end. */
static bool speak(speaker *s)
{
    uint32_t end = bauta_tokenizer_token(s->w->tokenizer, BAUTA_TOKEN_EOS);
    size_t most = bauta_model_positions(s->w->model);
    if (most > PROMPT + LONGEST)
        most = PROMPT + LONGEST;
    if (s->source && most > 2 * s->source_count + 4)
        most = 2 * s->source_count + 4; // a translation is not much longer
    while (s->count < most) {
        if (!pass(s))
            return false;
        uint32_t next = likeliest(s, s->count - 1);
        if (next == end)
            break;
        s->ids[s->count++] = next;
    }
    return true;
}

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

static char *continuation(speaker *s, const uint32_t *tokens, size_t count)
{
    size_t prompt = count / 2 < PROMPT ? count / 2 + 1 : PROMPT;
    size_t most = bauta_model_positions(s->w->model);
    prompt = prompt > most / 2 ? most / 2 : prompt;
    if (prompt == 0 || prompt > count)
        return NULL;
    memcpy(s->ids, tokens, prompt * sizeof(*tokens));
    s->count = prompt;
    if (!speak(s))
        return NULL;
    return joined(line_of(s->w, s->ids, prompt, false), " | ",
                  line_of(s->w, s->ids + prompt, s->count - prompt, false));
}

static char *translation(speaker *s)
{
    if (s->w->start == BAUTA_NO_TOKEN || s->source_count > 4 * LONGEST)
        return NULL;
    s->ids[0] = s->w->start;
    s->count = 1;
    if (!speak(s))
        return NULL;
    return joined(line_of(s->w, s->source, s->source_count, true), " => ",
                  line_of(s->w, s->ids + 1, s->count - 1, false));
}

/* The middle token of a text is hidden and guessed. */
static char *gap(speaker *s, const uint32_t *tokens, size_t count)
{
    const bauta_tokenizer *t = s->w->tokenizer;
    uint32_t mask = bauta_tokenizer_token(t, BAUTA_TOKEN_MASK);
    char *text = NULL;
    s->count = count < PROMPT + LONGEST ? count : PROMPT + LONGEST;
    if (s->count > bauta_model_positions(s->w->model))
        s->count = bauta_model_positions(s->w->model);
    size_t at = s->count / 2;
    if (s->count < 3 || mask == BAUTA_NO_TOKEN)
        return NULL;
    memcpy(s->ids, tokens, s->count * sizeof(*tokens));
    s->ids[at] = mask;
    if (!pass(s))
        return NULL;
    const char *was = bauta_tokenizer_piece(t, tokens[at], NULL);
    const char *said = bauta_tokenizer_piece(t, likeliest(s, at), NULL);
    char *before = line_of(s->w, s->ids, at, false);
    char *behind = line_of(s->w, s->ids + at + 1, s->count - at - 1, false);
    if (before && behind && was && said)
        text = text_of("%s [%s => %s] %s", before, was, said, behind);
    free(before);
    free(behind);
    return text;
}

char *sample_text(const workshop *w)
{
    const bauta_corpus *corpus = w->valid ? w->valid : w->corpus;
    speaker s = { .w = w };
    size_t count = 0;
    if (bauta_corpus_documents(corpus) == 0)
        return NULL;
    const uint32_t *tokens =
        bauta_corpus_document(corpus, 0, &count, &s.source, &s.source_count);
    s.logits =
        calloc((size_t)(PROMPT + LONGEST) * bauta_model_vocabulary(w->model),
               sizeof(float));
    char *text = NULL;
    if (s.logits && bauta_model_kind_of(w->model) == BAUTA_ENCODER_ONLY)
        text = gap(&s, tokens, count);
    else if (s.logits)
        text = s.source ? translation(&s) : continuation(&s, tokens, count);
    free(s.logits);
    return text;
}
