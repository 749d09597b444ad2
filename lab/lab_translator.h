/* SPDX-License-Identifier: Apache-2.0 */
/* lab_translator.h - bauta lab translate: a small translator from English to
 * German, and sentences to run through it. */
#ifndef LAB_TRANSLATOR_H
#define LAB_TRANSLATOR_H

#include "grammar.h"
#include "lab_train.h"

enum { SENTENCE_TOKENS = 32, TOKEN_TEXT = 32 };

/* A sentence and a translation as tokens. The decoder reads `read`, the target
 * shifted by one: row i predicts target[i]. */
typedef struct translation {
    uint32_t source[SENTENCE_TOKENS], target[SENTENCE_TOKENS],
        read[SENTENCE_TOKENS];
    size_t source_count, target_count;
} translation;

typedef struct translator {
    const lab *l;
    pairs sentences; /* the first `held` are held out, "I love you" first */
    size_t held;
    bauta_tokenizer *tokenizer;
    bauta_corpus *corpus;
    bauta_model *model;
    bauta_trainer *trainer;
    size_t steps; /* of the whole training */
    uint32_t start, end;
} translator;

/* Sentences, tokenizer and an untrained model. */
int translator_make(translator *t, const lab *l);
void translator_release(translator *t);
/* Train up to step `until`; *loss receives the loss of the last step. */
int translator_train(translator *t, size_t until, double *loss);

/* The tokens of a pair. */
int translation_read(const translator *t, const char *english,
                     const char *german, translation *s);
/* The tokens of a sentence and the greedy translation of it; *text, unless
 * NULL, receives that as a text for free(). */
int translation_write(const translator *t, const char *english, translation *s,
                      char **text);
/* The label of a token; `size` is TOKEN_TEXT. */
void translation_label(const translator *t, uint32_t token, char *to);

/* The batches of a translation. `pads` tokens of padding follow the source:
 * hidden, or with `visible` read as if they were words. */
typedef struct translation_batch {
    bauta_batch source, target;
    uint32_t ids[2 * SENTENCE_TOKENS];
    size_t source_length, target_length;
} translation_batch;
void translation_batch_set(translation_batch *b, const translator *t,
                           const translation *s, size_t pads, bool visible);
/* The decoder sees its whole input, the future included. */
void translation_batch_unmask(translation_batch *b);

/* Logits of all rows of the target, for free(); NULL after a message. */
float *translation_logits(const translator *t, const translation_batch *b);
/* The same, one token at a time through the KV cache. */
float *translation_logits_decoded(const translator *t, const translation *s);

#endif
