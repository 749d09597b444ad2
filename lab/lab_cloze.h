/* SPDX-License-Identifier: Apache-2.0 */
/* lab_cloze.h - bauta lab mlm: the same words asked of an encoder and of a
 * decoder. */
#ifndef LAB_CLOZE_H
#define LAB_CLOZE_H

#include "lab_train.h"

typedef enum exam_place {
    EXAM_FIRST,
    EXAM_MIDDLE, /* at random, neither the first nor the last word */
    EXAM_LAST,
    EXAMS
} exam_place;

/* Held-out sentences, of each of which one word is asked for. */
typedef struct exam {
    size_t count, rows;
    size_t *lengths; /* (count) */
    size_t *asked;   /* (count) the rows of the words */
    uint32_t *ids;   /* (rows) as they are */
    uint32_t *blind; /* (rows) with the words hidden */
} exam;

typedef struct exam_result {
    double loss, right; /* in nats; a share */
} exam_result;

int exam_make(exam *x, const lab_text *text, exam_place place, size_t most,
              uint64_t seed);
void exam_release(exam *x);

/* An encoder sees the sentence without the word; a decoder what lies before. */
int exam_take(const exam *x, const lab *l, const bauta_model *model,
              exam_result *result);
/* A table of some sentences and what both say. */
int exam_show(const exam *x, const lab *l, report *r,
              const bauta_tokenizer *tokenizer, const bauta_model *encoder,
              const bauta_model *decoder);

#endif
