/* SPDX-License-Identifier: Apache-2.0 */
/* look.h - bauta look: what its files share.
 *
 *   look.c          the verb, and masks alone
 *   look_options.c  the command line
 *   look_scene.c    a model and what it reads: tokens, labels
 *   look_views.c    the attentions that were asked for, with their weights
 *   look_show.c     to the terminal, as JSON, to a file */
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

int look_options_read(look_options *o, int argc, char **argv);
int look_help(void);

/* A model, and the tokens that it reads. */
typedef struct look_scene {
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
} look_scene;

int look_scene_open(look_scene *s, const look_options *o);
void look_scene_close(look_scene *s);

/* Attentions with their weights, and the masks that they share. */
typedef struct look_views {
    size_t count;
    bauta_picture *pictures; /* (count) */
    float *weights;          /* of all of them */
    bauta_mask **masks;      /* (count) NULL where it is another one's */
} look_views;

int look_views_make(look_views *v, const look_scene *s, const look_options *o);
void look_views_release(look_views *v);

int look_show(const look_scene *s, const look_views *v, const look_options *o);
/* A mask alone. */
int look_show_mask(const bauta_mask *mask, const look_options *o);

/* "encoder", "decoder" or "cross". */
const char *look_at_text(bauta_look_at at);

#endif
