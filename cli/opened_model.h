/* SPDX-License-Identifier: Apache-2.0 */
/* opened_model.h - a model with its tokenizer, ready to run. */
#ifndef OPENED_MODEL_H
#define OPENED_MODEL_H

#include "device_options.h"
#include "options.h"

#include <bauta.h>

typedef struct opened_model {
    const char *verb, *folder;
    const struct model_options *options;
    bauta_context *context;
    bauta_model *model;
    bauta_tokenizer *tokenizer;
} opened_model;

/* The values of --weights, in the order of bauta_dtype. */
extern const char *const weight_formats[];

typedef struct model_options {
    const char *tokenizer; /* NULL: the folder's */
    int weights;
    device_options device;
} model_options;

/* The options of all verbs that run a model on texts. Their settings have
 * `file`, `json`, `help` and `model`, a model_options. */
/* clang-format off */
#define MODEL_OPTIONS(s)                                                      \
    { "--file", OPTION_STRING, &(s)->file, NULL, 0, 0, NULL },                \
    { "--json", OPTION_FLAG, &(s)->json, NULL, 0, 0, NULL },                  \
    { "--tokenizer", OPTION_STRING, &(s)->model.tokenizer, NULL, 0, 0,        \
      NULL },                                                                 \
    { "--weights", OPTION_CHOICE, &(s)->model.weights, NULL, 0, 0,            \
      weight_formats },                                                       \
    DEVICE_OPTIONS(&(s)->model.device),                                       \
    { "--model", OPTION_MODEL, NULL, NULL, 0, 0, NULL },                      \
    { "--help", OPTION_FLAG, &(s)->help, NULL, 0, 0, NULL }
/* clang-format on */

/* Check positional arguments that are a model folder and texts, the latter not
 * beside --file. */
int model_args_check(const char *verb, const string_list *rest,
                     const char *file);

/* Load everything and move the model to the device. A model of another kind is
 * an error, which names the verb for it. Returns CLI_OK, or CLI_FAILED after a
 * message. Close in any case. */
enum { MODEL_KIND_ANY = -1 };
int opened_model_open(opened_model *m, const char *verb, const char *folder,
                      const model_options *options, int kind);
void opened_model_close(opened_model *m);

/* Token ids in malloc'd memory. */
typedef struct token_ids {
    uint32_t *at;
    size_t count;
} token_ids;

/* What follows the tokens of a text. */
typedef enum text_ending {
    ENDING_OPEN, /* nothing: the text continues. BOS or EOS if it is empty */
    ENDING_EOS,  /* EOS, as in training */
    ENDING_NONE  /* nothing, and no special tokens: the start of a target */
} text_ending;

/* `place` is where the text is, for messages. Release with free(out->at). */
int encode_text(token_ids *out, const opened_model *m, const char *place,
                const char *text, size_t length, text_ending ending);

#endif
