/* SPDX-License-Identifier: Apache-2.0 */
/* demo.h - bauta demo: declarations shared by its files.
 *
 *   demo.c            the verb: options, and the parts of the demo in order
 *   demo_train.c      the corpus as files, and calls of `bauta train`
 *   demo_generate.c   translations and their accuracy; samples of the
 *                     character model
 *   demo_attention.c  attention weights of the translator
 *   grammar.h         the source of the sentences */
#ifndef DEMO_H
#define DEMO_H

#include "grammar.h"

#include <bauta.h>

/* The sizes of a run. */
typedef struct demo_sizes {
    size_t train, valid, held;           /* pairs */
    const char *translator, *char_model; /* options of `bauta train` */
    size_t translator_steps, char_model_steps;
    size_t sentences; /* to sample from the character model */
} demo_sizes;

/* Pairs of the grammar. The first ones are held out, "I love you" among them.
 */
typedef struct corpus {
    pairs all;
    pair *valid, *held, *train; /* parts of all */
} corpus;

int corpus_draw(corpus *c, const demo_sizes *s, uint64_t seed);
void corpus_release(corpus *c);
/* DIR/train.tsv, valid.tsv, held-out.tsv, and german.txt for the character
 * model. */
int corpus_write(const corpus *c, const demo_sizes *s, const char *folder);

enum { DEMO_PATH = 2048 }; /* longest name of the folder */

/* A call of `bauta train`: options, and files in the folder. */
typedef struct training {
    const char *options, *files, *name;
    size_t steps;
    uint64_t seed;
} training;

/* Print the command and run it; the model is FOLDER/name. */
int training_call(const training *t, const char *folder);

/* A model with its tokenizer. */
typedef struct demo_model {
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
} demo_model;

int demo_model_open(demo_model *t, const char *folder);
void demo_model_close(demo_model *t);
/* Encode a text, with EOS. */
int demo_model_read(const demo_model *t, const char *text, bool target,
                    uint32_t *ids, size_t room, size_t *count);
/* Translate the English side of `count` pairs; *right receives the number of
 * exact matches with the German side. Prints the first `shown` translations and
 * some of the wrong ones. */
int translations_check(const demo_model *t, const pair *from, size_t count,
                       size_t shown, size_t *right);
/* Draw the cross-attention weights of the decoder, and with `self` its
 * self-attention weights before. */
int attention_show(const demo_model *t, const pair *p, bool self);

/* Sample sentences from the character model; those of its training text, in
 * `from`, are marked. */
int char_model_sample(const char *folder, size_t count, uint64_t seed,
                      const pair *from, size_t from_count);

/* Print the library's message; returns CLI_FAILED. */
int demo_failed(const bauta_error *err);

#endif
