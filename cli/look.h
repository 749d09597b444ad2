/* SPDX-License-Identifier: Apache-2.0 */
/* look.h - bauta look: what its files share.
 *
 *   cmd_look.c          the verb, and masks alone
 *   look_options.c  the command line
 *   look_input.c    a model and what it reads: tokens, labels
 *   look_weights.c    the attentions that were asked for, with their weights
 *   look_output.c     to the terminal, as JSON, to a file */
#ifndef LOOK_H
#define LOOK_H

#include <bauta.h>

enum { LOOK_NONE = -1 }; /* a number that was not given */

typedef struct look_options {
    const char *model, *text, *source;
    const char *mask, *out;
    long layer, head;     /* or LOOK_NONE */
    int at;               /* of bauta_look_at, or LOOK_NONE */
    size_t queries, keys; /* of a mask alone */
    size_t generate, threads;
    bool all, json, help, sized;
} look_options;

/* A model, and the tokens that it reads. */
typedef struct look_input {
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_model_kind kind;
    uint32_t *source, *target; /* what the stacks read; NULL: no such stack */
    size_t source_count, target_count;
    size_t written;    /* tokens at the end of the target that were generated */
    uint32_t *writes;  /* (target_count) of an encoder-decoder what each row of
                          the target writes */
    bauta_mask *extra; /* --mask, over the target or an encoder's text */
    char **source_labels, **target_labels, **write_labels;
} look_input;

int look_input_open(look_input *s, const look_options *o);
void look_input_close(look_input *s);

/* Attentions with their weights, and the masks that they share. */
typedef struct look_weights {
    size_t count;
    bauta_picture *pictures; /* (count) */
    float *weights;          /* of all of them */
    bauta_mask **masks;      /* (count) NULL where it is another one's */
} look_weights;

int look_weights_compute(look_weights *v, const look_input *s,
                         const look_options *o);
void look_weights_release(look_weights *v);

int look_output(const look_input *s, const look_weights *v,
                const look_options *o);
/* A mask alone. */
int look_output_mask(const bauta_mask *mask, const look_options *o);

/* "encoder", "decoder" or "cross". */
const char *attention_name(bauta_look_at at);

#endif
