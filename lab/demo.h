/* SPDX-License-Identifier: Apache-2.0 */
/* demo.h - bauta demo: what its files share.
 *
 *   demo.c            the verb: options, and the story from top to bottom
 *   demo_corpus.c     pairs of the grammar, split, as files
 *   demo_train.c      calls of `bauta train`
 *   demo_translate.c  translations, and how many are exactly right
 *   demo_attention.c       what the decoder looks at
 *   demo_generate.c      a model of letters that speaks
 *   grammar.h         where the sentences come from */
#ifndef DEMO_H
#define DEMO_H

#include "grammar.h"

#include <bauta.h>

/* How large everything is. */
typedef struct sizes {
    size_t train, valid, held;        /* pairs */
    const char *translator, *speaker; /* options of `bauta train` */
    size_t translator_steps, speaker_steps;
    size_t sentences; /* that are spoken */
} sizes;

/* All of the grammar that is used; held out are the first of them, and "I love
 * you" is the very first. */
typedef struct corpus {
    pairs all;
    pair *valid, *held, *train; /* parts of all */
} corpus;

int corpus_draw(corpus *c, const sizes *s, uint64_t seed);
void corpus_release(corpus *c);
/* DIR/train.tsv, valid.tsv, held-out.tsv, and german.txt for the speaker. */
int corpus_write(const corpus *c, const sizes *s, const char *folder);

enum { DEMO_PATH = 2048 }; /* the longest name of the folder */

/* A call of `bauta train`: options, and files of the folder. */
typedef struct training {
    const char *options, *files, *name;
    size_t steps;
    uint64_t seed;
} training;

/* Say the command and run it; the model is FOLDER/name. */
int training_call(const training *t, const char *folder);

/* A model with its tokenizer. */
typedef struct translator {
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
} translator;

int translator_open(translator *t, const char *folder);
void translator_close(translator *t);
/* The tokens of a text as the model reads it, with the one that ends it. */
int translator_read(const translator *t, const char *text, bool target,
                    uint32_t *ids, size_t room, size_t *count);
/* Translate the English side of `count` pairs; *right receives how many came
 * out exactly as the German side. The first `shown` are printed, and some of
 * those that went wrong. */
int translations_check(const translator *t, const pair *from, size_t count,
                       size_t shown, size_t *right);
/* Draw what the decoder looks at in the English while it writes the German,
 * and before that what it sees of the German. */
int attention_show(const translator *t, const pair *p, bool self);

/* A model of letters says some sentences; those that it has read, in `from`,
 * are marked. */
int char_model_sample(const char *folder, size_t count, uint64_t seed,
                      const pair *from, size_t from_count);

/* A sentence of the library, and CLI_FAILED. */
int demo_failed(const bauta_error *err);

#endif
