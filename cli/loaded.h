/* SPDX-License-Identifier: Apache-2.0 */
/* loaded.h - a model with its tokenizer, ready to run. */
#ifndef LOADED_H
#define LOADED_H

#include <bauta.h>

typedef struct loaded {
    const char *verb, *folder;
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
} loaded;

/* What --weights may say, by the values of bauta_weights. */
extern const char *const loaded_weights[];

/* What the command line says of it. */
typedef struct loaded_wish {
    const char *tokenizer; /* NULL: the folder's */
    size_t threads;
    int weights;
} loaded_wish;

/* The rows of the table of options that all verbs with a model have; their
 * settings have a file, json and help. */
/* clang-format off */
#define LOADED_OPTIONS(s, wish)                                               \
    { "--file", OPTION_TEXT, &(s)->file, NULL, 0, 0, NULL },                  \
    { "--json", OPTION_ON, &(s)->json, NULL, 0, 0, NULL },                    \
    { "--tokenizer", OPTION_TEXT, &(wish)->tokenizer, NULL, 0, 0, NULL },     \
    { "--weights", OPTION_CHOICE, &(wish)->weights, NULL, 0, 0,               \
      loaded_weights },                                                       \
    { "--threads", OPTION_WHOLE, &(wish)->threads, NULL, 0, 4096, NULL },     \
    { "--help", OPTION_ON, &(s)->help, NULL, 0, 0, NULL },                    \
    { "-h", OPTION_ON, &(s)->help, NULL, 0, 0, NULL }
/* clang-format on */

/* A model of another kind is refused, with the verb that it is for. Functions
 * return CLI_OK, or CLI_FAILED after a sentence. Close in any case. */
enum { LOADED_ANY = -1 };
int loaded_open(loaded *l, const char *verb, const char *folder,
                const loaded_wish *wish, int kind);
void loaded_close(loaded *l);

/* Tokens in malloc'd memory. */
typedef struct ids {
    uint32_t *at;
    size_t count;
} ids;

/* How a text ends, or what it is made of where it has no tokens. */
typedef enum ids_ending {
    IDS_OPEN,  /* nothing: a text that goes on; but at least one token */
    IDS_ENDED, /* the token that ends a text, as in training */
    IDS_BARE   /* nothing, and nothing around it: the beginning of a target */
} ids_ending;

/* `place` is where the text is, for sentences. Release with free(ids.at). */
int ids_read(ids *out, const loaded *l, const char *place, const char *text,
             size_t length, ids_ending ending);

#endif
