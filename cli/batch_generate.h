/* SPDX-License-Identifier: Apache-2.0 */
/* batch_generate.h - many texts through one generator, with the results in the
 * order of the texts.
 *
 * The generator runs a window of texts, read ahead while others run. A result
 * is printed as soon as all before it have been. */
#ifndef BATCH_GENERATE_H
#define BATCH_GENERATE_H

#include "opened_model.h"
#include "text_input.h"

/* One text of the batch. */
typedef struct batch_item {
    size_t number; /* from 1 */
    char *text;    /* NUL-terminated */
    size_t length;
    bauta_result *result; /* NULL: no request was made, or it failed */
    char error[320];      /* why it failed, or "" */
    bool done;
    double begun, seconds;
} batch_item;

/* The verb's part. */
typedef struct batch_callbacks {
    /* Make a request of a text. The tokens it points to go to *tokens, which is
     * freed later; leave that empty to make no request. CLI_FAILED after a
     * message. */
    int (*request)(void *user, const batch_item *item, bauta_request *request,
                   token_ids *tokens);
    /* Print the result. CLI_FAILED after a message. */
    int (*report)(void *user, const batch_item *item);
    void *user;
} batch_callbacks;

/* Totals, for a summary. */
typedef struct batch_totals {
    size_t texts, prompt, tokens;
    double seconds;
} batch_totals;

/* How many sequences run together, and MiB of KV cache; 0: the default. */
typedef struct batch_limits {
    size_t sequences, cache_mb;
} batch_limits;

/* ---- options of generate and translate --------------------------------- */

typedef struct search_options {
    size_t num_beams, num_return_sequences, max_tokens, no_repeat_ngram_size;
    float length_penalty;
    int early_stopping; /* of bauta_early_stopping */
    bool has_beams, has_max, has_ngram, has_penalty, has_early;
} search_options;

/* Their settings have `search` and `limits`. */
/* clang-format off */
#define SEARCH_OPTIONS(s)                                                     \
    { "--num-beams", OPTION_SIZE, &(s)->search.num_beams,                     \
      &(s)->search.has_beams, 1, 1024, NULL },                                \
    { "--num-return-sequences", OPTION_SIZE,                                  \
      &(s)->search.num_return_sequences, NULL, 1, 1024, NULL },               \
    { "--length-penalty", OPTION_FLOAT, &(s)->search.length_penalty,          \
      &(s)->search.has_penalty, -100, 100, NULL },                            \
    { "--early-stopping", OPTION_CHOICE, &(s)->search.early_stopping,         \
      &(s)->search.has_early, 0, 0, early_stopping_names },                   \
    { "--no-repeat-ngram-size", OPTION_SIZE,                                  \
      &(s)->search.no_repeat_ngram_size, &(s)->search.has_ngram, 0, 1e6,      \
      NULL },                                                                 \
    { "--max-tokens", OPTION_SIZE, &(s)->search.max_tokens,                   \
      &(s)->search.has_max, 0, 1e9, NULL },                                   \
    { "--sequences", OPTION_SIZE, &(s)->limits.sequences, NULL, 1, 4096,      \
      NULL },                                                                 \
    { "--cache-mb", OPTION_SIZE, &(s)->limits.cache_mb, NULL, 0, 1e9, NULL }
/* clang-format on */
extern const char *const early_stopping_names[];

/* Override the folder's settings with those of the command line. */
int search_options_apply(const char *verb, const search_options *o,
                         bauta_generate_options *out);

/* ---- running ----------------------------------------------------------- */

/* A text that fails is reported and the others go on; the status is then
 * CLI_FAILED. */
int batch_generate(const opened_model *model, text_input *in,
                   const batch_callbacks *calls, const batch_limits *limits,
                   batch_totals *totals);

#endif
