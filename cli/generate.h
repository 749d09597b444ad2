/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h - bauta generate: declarations shared by its files.
 *
 *   cmd_generate.c          the verb, and many prompts in a batch
 *   generate_options.c      the command line, --help, the generation options
 *   generate_interactive.c  one prompt, streamed to the terminal; and prompts
 *                           that a user types */
#ifndef GENERATE_H
#define GENERATE_H

#include "batch_generate.h"

#define VERB "generate"

typedef struct settings {
    string_list rest;      /* the folder, and the prompt */
    string_list stops;     /* must outlive the requests */
    string_list bad_words; /* as typed */
    string_list biases;    /* of --logit-bias, as typed */
    const char *file, *prompts;
    bauta_generate_options sampling; /* those of its fields that `has` names */
    struct {
        bool temperature, top_k, top_p, min_p, repetition_penalty,
            presence_penalty, frequency_penalty, seed, min_tokens,
            sliding_window;
    } has;
    model_options model;
    search_options search;
    batch_limits limits;
    size_t ranks;
    bool greedy, do_sample, ignore_eos, logprobs, echo, json, quiet, help;
} settings;

int settings_read(settings *s, int argc, char **argv);
int generate_help(void);
/* The folder's options, overridden by those of the command line. Returns
 * CLI_OK, or a status after a message. */
int settings_apply(const settings *s, const opened_model *m,
                   bauta_generate_options *out);

/* Stop strings and banned token sequences: the folder's, followed by those of
 * the command line; and the biases of tokens. `out` points into it. */
typedef struct token_filters {
    string_list stops;
    bauta_token_seq *bad_words;
    size_t bad_count, bad_borrowed; /* the first ones belong to the folder */
    bauta_token_bias *biases;
} token_filters;

/* Returns CLI_OK, or a status after a message. Release in any case. */
int token_filters_init(token_filters *f, const settings *s,
                       const opened_model *m, bauta_generate_options *out);
void token_filters_release(token_filters *f);

/* A hint on stderr if a text ended at the model's context or outgrew it.
 * `count` is the number of tokens, with the prompt's. */
void context_note(const bauta_generate_options *options, const opened_model *m,
                  bauta_finish finish, size_t count);
/* The options as one line on stderr. */
void settings_print(const bauta_generate_options *options,
                    const opened_model *m);

typedef struct generate_job {
    const settings *s;
    const opened_model *model;
    const bauta_generate_options *options;
} generate_job;

/* Generate from one prompt and print the text as it comes. */
int generate_one(const generate_job *job, const char *text, size_t length);
/* Read prompts from the terminal until end of file. */
int generate_interactive(const generate_job *job);
/* From now on the first Ctrl-C ends the text being generated, and a second one
 * the program. */
void interrupts_catch(void);
/* After a Ctrl-C, die of it, so that a shell's loop ends, too. */
void interrupts_reraise(void);

/* Replace "\\n" and "\\\\" in a line by what they stand for, in place; returns
 * the new length. escaped_print() is the reverse, to stdout. */
size_t unescape_line(char *line, size_t length);
void escaped_print(const char *text, size_t length);
/* Print a result as one line of JSON. */
int result_json(const bauta_generate_options *options, const bauta_result *r,
                const char *prompt, size_t length, double seconds);

#endif
