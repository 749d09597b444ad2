/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - a command line, read by a table.
 *
 * "--name value" or "--name=value"; behind "--" nothing is an option. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct words {
    const char **at;
    size_t count;
} words;

typedef enum option_kind {
    OPTION_ON,    /* bool: no value, becomes true */
    OPTION_OFF,   /* bool: no value, becomes false */
    OPTION_TEXT,  /* const char * */
    OPTION_TEXTS, /* words: may be given again */
    OPTION_WHOLE, /* size_t */
    OPTION_SEED,  /* uint64_t */
    OPTION_REAL,  /* float */
    OPTION_CHOICE /* int: the index of the word */
} option_kind;

typedef struct option {
    const char *name; /* "--top-k" */
    option_kind kind;
    void *value;
    bool *given;                /* whether it was there; or NULL */
    double low, high;           /* of a number */
    const char *const *choices; /* NULL behind the last */
} option;

/* Read all of it; what is no option goes to *rest. Returns CLI_OK, or
 * CLI_USAGE after a sentence. Release the rest, and words of options, with
 * words_release(), in any case. */
int options_parse(const char *verb, const option *table, size_t count, int argc,
                  char **argv, words *rest);
void words_release(words *w);
/* A word more, which must live as long. CLI_FAILED after a sentence. */
int words_add(const char *verb, words *w, const char *word);

#endif
