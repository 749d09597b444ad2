/* SPDX-License-Identifier: Apache-2.0 */
/* lab_train.h - bauta lab: what the experiments that train a model share.
 *
 *   lab_corpus.c    the text
 *   lab_train.c   the optimizer, and small things
 *   lab_exposure_bias.c   the part of lab_parallel.c in which a model is on its
 * own lab_cloze.c    the part of lab_mlm.c in which both are asked the same
 *   compare_modes.c       the modes of training, which `bauta train` compares,
 * too */
#ifndef LAB_TRAIN_H
#define LAB_TRAIN_H

#include "lab.h"

/* As lab_text_make(), but of words: each sentence is a document of its own, in
 * lower case, between the tokens that BERT puts around a text. */
int lab_words_make(lab_text *t, size_t sentences, uint64_t seed);

/* A new model: a preset for this tokenizer, of which a JSON object replaces
 * parts. */
int lab_model_make(bauta_model **out, const char *preset, const char *overrides,
                   const bauta_tokenizer *tokenizer, uint64_t seed);

/* SplitMix64, so that an experiment is the same everywhere: a number below
 * `count`. */
size_t lab_draw(uint64_t *state, size_t count);

/* The cross-entropy of a row of logits against a token, in nats; *right, when
 * given, receives whether the token is the likeliest. */
double lab_surprise(const float *logits, size_t count, uint32_t token,
                    bool *right);

/* What a decoder says behind a prompt when it always takes the likeliest token,
 * on one line, for free(); NULL without memory, or after a sentence. */
char *lab_continue(const lab *l, const bauta_model *model, const lab_text *text,
                   const char *prompt, size_t tokens);

/* How a model that learned with the true past fares with its own, and with that
 * of another text: the mean loss over the later half of held-out texts. Fills a
 * plot and a table. */
typedef struct lab_exposure_bias_result {
    double given, own, other;
    double own_early; /* over the first characters that it reads of its own */
} lab_exposure_bias_result;
int lab_exposure_bias(const lab *l, report *r, const lab_text *text,
                      lab_exposure_bias_result *found);

#endif
