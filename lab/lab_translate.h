/* SPDX-License-Identifier: Apache-2.0 */
/* lab_translate.h - bauta lab translate: what its files share.
 *
 *   lab_translator.c     the model and its sentences
 *   lab_translate.c      the experiment
 *   lab_translate_toy.c  its numbers for the pictures of the page */
#ifndef LAB_TRANSLATE_H
#define LAB_TRANSLATE_H

#include "lab_translator.h"

#include <jansson.h>

enum { PADS = 4 }; /* the most tokens of padding that are tried */

/* Predictions with teacher forcing and without, after some steps of training:
 * for the page. */
int toy_snapshot(const translator *t, const translation *s, double loss,
                 json_t *list);
/* Tokens, weights of all attentions, candidates, with and without the mask. */
int toy_sentence(const translator *t, const translation *s, json_t *list);
/* One logit of each row, in bits, from the three ways to compute it. */
json_t *toy_bits(const translator *t, const translation *s,
                 const float *parallel, const float *decoded,
                 const float *unmasked);

/* The probability of each target token, (target_count), from its logits. */
void target_probabilities(const translator *t, const translation *s,
                          const float *logits, double *p);

#endif
