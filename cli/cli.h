/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - what the verbs of the program share.
 *
 * Results go to stdout and everything else to stderr. The exit status is 0
 * when all went well, 1 when something failed, 2 when the command line cannot
 * be understood. */
#ifndef CLI_H
#define CLI_H

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };
/* Nothing is left to do; main() makes CLI_OK of it. */
enum { CLI_DONE = -1 };

/* A verb: argv[0] is its name. */
typedef int cli_verb(int argc, char **argv);

/* The others together, see demo.h. */
cli_verb demo_main;
/* Masked attention by experiment, see lab.h. */
cli_verb lab_main;
/* Also as score --perplexity. */
cli_verb perplexity_main;
cli_verb audit_main, embed_main, fill_main, generate_main, inspect_main;
cli_verb look_main;
cli_verb score_main, tokenize_main, tokenizer_main, train_main, translate_main;

/* "bauta VERB: sentence" to stderr, and where help is; returns CLI_USAGE. */
int cli_usage(const char *verb, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The sentence alone; returns CLI_FAILED. */
int cli_fail(const char *verb, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Each line of a text as a warning on stderr. */
void cli_warn(const char *verb, const char *lines);
/* A result that cannot be written, as to a full disk, is a failure. */
int cli_finish(const char *verb);

/* Before anything else: threads that wait shall sleep soon. See waiting.c. */
void cli_wait_shortly(char **argv);

/* The one of `count` words that `word` was most likely meant to be, or NULL. */
const char *cli_nearest(const char *word, const char *const *words, int count);

/* What --isa may be, for completion. */
extern const char *const cli_isas[];

#endif
