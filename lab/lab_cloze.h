/* SPDX-License-Identifier: Apache-2.0 */
/* lab_cloze.h - bauta lab mlm: a cloze test for an encoder and a decoder. */
#ifndef LAB_CLOZE_H
#define LAB_CLOZE_H

#include "lab_train.h"

typedef enum cloze_place {
    CLOZE_FIRST,
    CLOZE_MIDDLE, /* at random, neither the first nor the last word */
    CLOZE_LAST,
    CLOZE_TESTS
} cloze_place;

/* Held-out sentences with one word each to predict. */
typedef struct cloze {
    size_t count, rows;
    size_t *lengths;  /* (count) */
    size_t *asked;    /* (count) the rows of these words */
    uint32_t *ids;    /* (rows) unchanged */
    uint32_t *masked; /* (rows) with these words masked */
} cloze;

typedef struct cloze_result {
    double loss, accuracy; /* loss in nats */
} cloze_result;

int cloze_make(cloze *x, const lab_corpus *text, cloze_place place, size_t most,
               uint64_t seed);
void cloze_release(cloze *x);

/* An encoder sees the sentence without the word, a decoder the words before it.
 */
int cloze_evaluate(const cloze *x, const lab *l, const bauta_model *model,
                   cloze_result *result);
/* Add a table of some sentences and both predictions. */
int cloze_examples(const cloze *x, const lab *l, report *r,
                   const bauta_tokenizer *tokenizer, const bauta_model *encoder,
                   const bauta_model *decoder);

/* Every word of some of the sentences as a blank, and what both models put
 * there: for the page. */
int cloze_toy(const cloze *x, const lab *l, report *r,
              const bauta_tokenizer *tokenizer, const bauta_model *encoder,
              const bauta_model *decoder);

#endif
