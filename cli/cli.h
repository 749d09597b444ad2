/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - declarations shared by the verbs of the program.
 *
 * Results go to stdout, everything else to stderr. The exit status is 0 for
 * success, 1 for a failure, 2 for an invalid command line. */
#ifndef CLI_H
#define CLI_H

#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };
/* Nothing is left to do; main() turns it into CLI_OK. */
enum { CLI_DONE = -1 };

/* A verb: argv[0] is its name. */
typedef int cli_verb(int argc, char **argv);

/* In lab/: see demo.h and lab.h. */
cli_verb demo_main;
cli_verb lab_main;
/* Also called as score --perplexity. */
cli_verb perplexity_main;
cli_verb audit_main, chat_main, embed_main, fill_main, forecast_main;
cli_verb generate_main, inspect_main, look_main;
cli_verb score_main, serve_main, tokenize_main, tokenizer_main, train_main;
cli_verb translate_main;

/* Print "bauta VERB: message" to stderr, and how to get help; returns
 * CLI_USAGE.
 */
int cli_usage(const char *verb, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Print the message alone; returns CLI_FAILED. */
int cli_fail(const char *verb, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Where cli_fail() prints if it is not stderr, and what before the message: see
 * ranks.h. `last` is the last message. */
extern struct cli_speaker {
    FILE *errors;
    char name[96], last[512];
} cli_speaker;
/* Print each line as a warning on stderr. */
void cli_warn(const char *verb, const char *lines);
/* Flush stdout; a write error, such as a full disk, is a failure. */
int cli_finish(const char *verb);

/* The values of --isa, for completion. */
extern const char *const cli_isas[];

#endif
