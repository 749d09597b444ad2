/* SPDX-License-Identifier: Apache-2.0 */
/* lab_train.h - bauta lab: declarations shared by the experiments that train a
 * model. */
#ifndef LAB_TRAIN_H
#define LAB_TRAIN_H

#include "lab.h"

/* As lab_corpus_make(), but with word tokens: each sentence is a document, in
 * lower case, with BERT's special tokens around it. */
int lab_corpus_make_words(lab_corpus *t, size_t sentences, uint64_t seed);

/* A new model: a preset for this tokenizer, with overrides as a JSON object. */
int lab_model_make(bauta_model **out, const char *preset, const char *overrides,
                   const bauta_tokenizer *tokenizer, uint64_t seed);

/* The cross-entropy of a row of logits against a token, in nats; *right, unless
 * NULL, receives whether the token is the most likely one. */
double lab_cross_entropy(const float *logits, size_t count, uint32_t token,
                         bool *right);

/* The greedy continuation of a prompt, on one line, for free(); NULL after a
 * message. */
char *lab_continue(const lab *l, const bauta_model *model,
                   const lab_corpus *text, const char *prompt, size_t tokens);

/* Train a model with teacher forcing, and measure its loss on held-out texts
 * with the true prefix, its own output, and another text as prefix: means over
 * the second half of the texts. Adds a plot and a table. */
typedef struct lab_exposure_bias_result {
    double true_prefix, own, other;
    double own_early; /* over the first characters of its own output */
} lab_exposure_bias_result;
int lab_exposure_bias(const lab *l, report *r, const lab_corpus *text,
                      lab_exposure_bias_result *found);

#endif
