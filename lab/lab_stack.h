/* SPDX-License-Identifier: Apache-2.0 */
/* lab_stack.h - bauta lab layers: a stack of layers of attention, each with a
 * residual connection and a mask of its own.
 *
 * What reaches what is asked twice: of the masks alone, by composing them, and
 * of the stack as it runs, by changing one token after another and looking
 * which outputs change, to the bit. */
#ifndef LAB_STACK_H
#define LAB_STACK_H

#include "lab.h"

enum { LAYERS_MAX = 5, TOKENS_MAX = 16 };

typedef struct stack {
    const lab *l;
    size_t tokens, layers;
    bauta_mask *causal, *all, *own; /* own: a token sees itself alone */
    float *weights;                 /* (layers, 3, width, width) */
    uint64_t random;
} stack;

/* One way to mask the layers, and what came of it. */
typedef struct trial {
    const bauta_mask *masks[LAYERS_MAX]; /* the lowest first */
    bauta_mask *reach[LAYERS_MAX];       /* behind each layer, by the masks */
    bauta_mask *ran;                     /* behind the last, as it ran */
    size_t knowing[LAYERS_MAX + 1];      /* tokens that changed with the last
                                            one, behind each layer; as it ran */
    bool leaks;                          /* as bauta_audit_masks() has it */
    bauta_leak leak;
    size_t proved, found; /* pairs that leak, by the masks and as it ran */
    bool agree;           /* reach and ran are the same */
} trial;

/* Returns CLI_OK, or CLI_FAILED after a sentence; release in any case. */
int stack_init(stack *s, const lab *l);
void stack_release(stack *s);

/* The causal mask in all layers but one, from 0 on, which has another; in all
 * for any other number. As above. */
int trial_run(trial *t, stack *s, size_t layer, const bauta_mask *other);
void trial_release(trial *t);

#endif
