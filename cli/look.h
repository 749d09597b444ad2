/* SPDX-License-Identifier: Apache-2.0 */
/* look.h - bauta look: declarations shared by its files.
 *
 *   cmd_look.c      the verb: the command line, and masks without a model
 *   look_input.c    the model and its input: tokens, labels
 *   look_weights.c  the selected attentions and their weights
 *   look_output.c   output to the terminal, as JSON, to a file */
#ifndef LOOK_H
#define LOOK_H

#include "device_options.h"

#include <bauta.h>

enum { LOOK_NONE = -1 }; /* an option that was not given */

typedef struct look_options {
    const char *model, *text, *source;
    const char *mask, *out;
    long layer, head;     /* or LOOK_NONE */
    int at;               /* of bauta_attention_kind, or LOOK_NONE */
    size_t queries, keys; /* of a mask without a model */
    size_t generate;
    device_options device;
    bool all, json, help, sized;
} look_options;

/* A model and its input. */
typedef struct look_input {
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
    bauta_model_kind kind;
    uint32_t *source, *target; /* inputs of the stacks; NULL: no such stack */
    size_t source_count, target_count;
    size_t generated;  /* tokens at the end of the target */
    uint32_t *outputs; /* (target_count) encoder-decoder: the token that each
                          row of the target predicts */
    bauta_mask *extra; /* --mask, over the target or an encoder's input */
    char **source_labels, **target_labels, **output_labels;
} look_input;

int look_input_open(look_input *s, const look_options *o);
void look_input_close(look_input *s);

/* The selected attentions with their weights and masks. */
typedef struct look_weights {
    size_t count;
    bauta_picture *pictures; /* (count) */
    float *weights;          /* of all of them */
    bauta_mask **masks; /* (count) NULL if it is shared with the previous one */
} look_weights;

int look_weights_compute(look_weights *v, const look_input *s,
                         const look_options *o);
void look_weights_release(look_weights *v);

int look_output(const look_input *s, const look_weights *v,
                const look_options *o);
/* A mask without a model. */
int look_output_mask(const bauta_mask *mask, const look_options *o);

/* "encoder", "decoder" or "cross". */
const char *attention_name(bauta_attention_kind at);

#endif
