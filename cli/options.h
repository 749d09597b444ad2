/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - a command line, read by a table.
 *
 * "--name value" or "--name=value"; "-n 5" or "-n5". After "--" nothing is an
 * option. Underscores count as hyphens, and the names that other programs use
 * (--temperature for --temp) are aliases: see options.c. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct words {
    const char **at;
    size_t count;
} words;

typedef enum option_kind {
    OPTION_ON,     /* bool: no value, becomes true */
    OPTION_OFF,    /* bool: no value, becomes false */
    OPTION_SET,    /* int: no value, becomes `low` */
    OPTION_TEXT,   /* const char *; choices, if any, are for completion */
    OPTION_TEXTS,  /* words: may be given again */
    OPTION_WHOLE,  /* size_t */
    OPTION_SEED,   /* uint64_t */
    OPTION_REAL,   /* float */
    OPTION_CHOICE, /* int: the index of the word */
    OPTION_MODEL,  /* no place of its own: the first word of the rest */
    OPTION_PROMPT  /* likewise, the last word */
} option_kind;

typedef struct option {
    const char *name; /* "--top-k" */
    option_kind kind;
    void *value;
    bool *given;                /* whether it was there; or NULL */
    double low, high;           /* of a number */
    const char *const *choices; /* NULL after the last */
} option;

/* Read all of it; words that are no options go to *rest. Returns CLI_OK;
 * CLI_USAGE after a sentence; or CLI_DONE after "--list-options", which prints
 * the table for shell completion. Release the rest, and words of options, with
 * words_release(), in any case. */
int options_parse(const char *verb, const option *table, size_t count, int argc,
                  char **argv, words *rest);
void words_release(words *w);
/* Append a word, which must live as long. CLI_FAILED after a sentence. */
int words_add(const char *verb, words *w, const char *word);

/* ---- for a command line that is read by another table ------------------- */

/* Which of `count` names ("--steps", or "steps" for short) the word means.
 * *value is what is glued to it, or NULL. CLI_USAGE after a sentence that
 * suggests the nearest name. */
int option_match(const char *verb, const char *const *names, size_t count,
                 const char *word, size_t *index, const char **value);
/* A line for shell completion: "--json", "--seed=", "--isa=c avx2 avx512". */
void option_list(const char *name, bool takes_value,
                 const char *const *choices);
bool option_list_wanted(int argc, char **argv);

#endif
