/* SPDX-License-Identifier: Apache-2.0 */
/* lab_stack.h - bauta lab layers: a stack of attention layers, each with a
 * residual connection and its own mask.
 *
 * Which token reaches which output is determined twice: from the masks, by
 * composing them, and by experiment, by changing one token after another and
 * comparing the outputs bit for bit. */
#ifndef LAB_STACK_H
#define LAB_STACK_H

#include "lab.h"

enum { LAYERS_MAX = 5, TOKENS_MAX = 16 };

typedef struct stack {
    const lab *l;
    size_t tokens, layers;
    bauta_mask *causal, *all, *own; /* own: a token sees only itself */
    float *weights;                 /* (layers, 3, width, width) */
    uint64_t random;
} stack;

/* An assignment of masks to layers, and the result. */
typedef struct trial {
    const bauta_mask *masks[LAYERS_MAX]; /* the lowest first */
    bauta_mask *reach[LAYERS_MAX];       /* after each layer, by the masks */
    bauta_mask *measured;                /* after the last, measured */
    size_t affected[LAYERS_MAX + 1];     /* tokens that changed with the last
                                           one, after each layer; measured */
    bool leaks;                          /* by bauta_audit_masks() */
    bauta_leak leak;
    size_t proved, found; /* leaking pairs, by the masks and measured */
    bool agree;           /* whether both are equal */
} trial;

/* Returns CLI_OK, or CLI_FAILED after a message; release in any case. */
int stack_init(stack *s, const lab *l);
void stack_release(stack *s);

/* Use the causal mask in all layers but `layer`, from 0, which has `other`; in
 * all if there is no such layer. */
int trial_run(trial *t, stack *s, size_t layer, const bauta_mask *other);
void trial_release(trial *t);

#endif
