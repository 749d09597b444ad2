/* SPDX-License-Identifier: Apache-2.0 */
/* lab_corpus.c - bauta lab: sentences of the grammar as tokens.
 *
 * All sentences are different, so the validation part of a split is unseen. */
#include "../cli/cli.h"
#include "grammar.h"
#include "lab_train.h"

#include <stdlib.h>
#include <string.h>

/* ---- passages ---------------------------------------------------------- */

enum { VALID_SHARE = 10 }; /* one sentence in ten is for validation */

/* Sentences, one per line; those after `cut` are for validation. */
typedef struct passage {
    char *text;
    size_t length, cut;
} passage;

/* Add the full stop that the grammar mostly leaves out. */
static size_t line_write(char *to, const char *words)
{
    size_t length = strlen(words);
    memcpy(to, words, length);
    if (length && !strchr(".?", words[length - 1]))
        to[length++] = '.';
    to[length++] = '\n';
    return length;
}

static int passage_make(passage *p, size_t sentences, uint64_t seed)
{
    pairs drawn;
    *p = (passage){ .text = malloc(sentences * (SENTENCE_MAX + 2) + 1) };
    int failed = pairs_draw(&drawn, sentences, seed);
    for (size_t i = 0; p->text && !failed && i < sentences; i++) {
        if (i == sentences - sentences / VALID_SHARE)
            p->cut = p->length;
        p->length += line_write(p->text + p->length, drawn.at[i].english);
    }
    pairs_release(&drawn);
    return p->text && !failed ? CLI_OK : cli_fail("lab", "out of memory");
}

/* ---- tokens ------------------------------------------------------------ */

/* The training or the validation part. */
typedef struct part {
    uint32_t *ids;
    size_t count;
    bauta_corpus *corpus;
} part;

static void part_release(part *s)
{
    free(s->ids);
    bauta_corpus_free(s->corpus);
}

static int part_add(part *s, const uint32_t *ids, size_t count)
{
    bauta_error err;
    uint32_t *grown = realloc(s->ids, (s->count + count + 1) * sizeof(*grown));
    if (!grown)
        return cli_fail("lab", "out of memory");
    s->ids = grown;
    memcpy(s->ids + s->count, ids, count * sizeof(*ids));
    s->count += count;
    if (bauta_corpus_add(s->corpus, ids, count, NULL, 0, &err))
        return lab_failed(&err);
    return CLI_OK;
}

static int document_add(part *s, const bauta_tokenizer *tokenizer,
                        const char *text, size_t length)
{
    bauta_error err;
    bauta_tokens tokens;
    if (bauta_tokenizer_encode(tokenizer, text, length, NULL, &tokens, &err))
        return lab_failed(&err);
    int failed = part_add(s, tokens.ids, tokens.count);
    bauta_tokens_release(&tokens);
    return failed;
}

/* One document per line, or a single one. */
static int part_fill(part *s, const bauta_tokenizer *tokenizer,
                     const char *text, size_t length, bool lines)
{
    bauta_error err;
    *s = (part){ .ids = NULL };
    if (bauta_corpus_create(&s->corpus, &err))
        return lab_failed(&err);
    if (!lines)
        return document_add(s, tokenizer, text, length);
    int failed = CLI_OK;
    for (const char *end = text + length; text < end && !failed;) {
        const char *next = memchr(text, '\n', (size_t)(end - text));
        failed = document_add(s, tokenizer, text, (size_t)(next - text));
        text = next + 1;
    }
    return failed;
}

/* ---- texts ------------------------------------------------------------- */

static bauta_status tokenizer_make(bauta_tokenizer **out, const passage *p,
                                   bool words, bauta_error *err)
{
    // More pieces than the grammar has words, so that each word is one token.
    bauta_tokenizer_trainer_options o = BAUTA_TOKENIZER_TRAINER_OPTIONS_INIT;
    const char *text = p->text;
    o.kind = BAUTA_TOKENIZER_WORDPIECE;
    o.lowercase = true;
    o.min_frequency = 1;
    return words ? bauta_tokenizer_train(out, &o, &text, &p->length, 1, err)
                 : bauta_tokenizer_characters(out, text, p->length, err);
}

static int text_fill(lab_corpus *t, const passage *p, bool words)
{
    bauta_error err;
    part train = { .ids = NULL }, valid = { .ids = NULL };
    if (tokenizer_make(&t->tokenizer, p, words, &err))
        return lab_failed(&err);
    int failed = part_fill(&train, t->tokenizer, p->text, p->cut, words);
    if (!failed)
        failed = part_fill(&valid, t->tokenizer, p->text + p->cut,
                           p->length - p->cut, words);
    if (failed) {
        part_release(&train);
        part_release(&valid);
        return failed;
    }
    t->train = train.ids;
    t->train_count = train.count;
    t->train_corpus = train.corpus;
    t->valid = valid.ids;
    t->valid_count = valid.count;
    t->valid_corpus = valid.corpus;
    return CLI_OK;
}

static int text_make(lab_corpus *t, size_t sentences, uint64_t seed, bool words)
{
    passage p;
    *t = (lab_corpus){ .tokenizer = NULL };
    int failed = passage_make(&p, sentences, seed);
    if (!failed)
        failed = text_fill(t, &p, words);
    free(p.text);
    if (failed)
        lab_corpus_release(t);
    return failed;
}

int lab_corpus_make(lab_corpus *t, size_t sentences, uint64_t seed)
{
    return text_make(t, sentences, seed, false);
}

int lab_corpus_make_words(lab_corpus *t, size_t sentences, uint64_t seed)
{
    return text_make(t, sentences, seed, true);
}

void lab_corpus_release(lab_corpus *t)
{
    free(t->train);
    free(t->valid);
    bauta_corpus_free(t->train_corpus);
    bauta_corpus_free(t->valid_corpus);
    bauta_tokenizer_free(t->tokenizer);
    *t = (lab_corpus){ .tokenizer = NULL };
}
