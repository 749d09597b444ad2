/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - command-line options, parsed by a table.
 *
 * "--name value" or "--name=value"; "-n 5" or "-n5". Nothing after "--" is an
 * option. Underscores count as hyphens, and many options have aliases, such as
 * --temperature for --temp; see options.c. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct string_list {
    const char **at;
    size_t count;
} string_list;

typedef enum option_kind {
    OPTION_FLAG,     /* bool: no value, becomes true */
    OPTION_NO_FLAG,  /* bool: no value, becomes false */
    OPTION_CONSTANT, /* int: no value, becomes `min` */
    OPTION_STRING,   /* const char *; choices, if any, are for completion */
    OPTION_STRINGS,  /* string_list: may be repeated */
    OPTION_SIZE,     /* size_t, below 2^63 */
    OPTION_SEED,     /* uint64_t; below 2^63 unless `max` is 0 */
    OPTION_FLOAT,    /* float */
    OPTION_DOUBLE,   /* double */
    OPTION_CHOICE,   /* int: the index in `choices` */
    OPTION_MODEL,    /* stored nowhere: becomes the first positional argument */
    OPTION_PROMPT    /* likewise, becomes the last one */
} option_kind;

typedef struct option {
    const char *name; /* "--top-k" */
    option_kind kind;
    void *value;
    bool *seen;      /* set to true if it occurs; or NULL */
    double min, max; /* of a number; a max of INFINITY allows "2e3" for
                        whole numbers, too */
    const char *const *choices; /* NULL-terminated */
} option;

/* Parse the command line. Positional arguments go to *rest. Returns CLI_OK;
 * CLI_USAGE after a message; or CLI_DONE after "--list-options", which prints
 * the table for shell completion. Release *rest and every string_list of the
 * table with string_list_release() in any case. */
int options_parse(const char *verb, const option *table, size_t count, int argc,
                  char **argv, string_list *rest);

/* The same, but call `handle` for each option instead of storing its value.
 * *o is the option's row, with the name as it was typed; `value` is NULL for
 * an option without one. */
typedef int option_handler(void *user, size_t index, const option *o,
                           const char *value);
int options_scan(const char *verb, const option *table, size_t count, int argc,
                 char **argv, string_list *rest, option_handler *handle,
                 void *user);
/* Parse `text` and store it in o->value. A flag may have the value "false". */
int option_store(const char *verb, const option *o, const char *text);
/* The index of the option with this name or alias ("steps" or "--steps");
 * `count` if there is none. */
size_t option_find(const option *table, size_t count, const char *name);
/* Alias number i, from 0, of an option ("--warmup-steps"); NULL after the last.
 */
const char *option_alias(const char *name, size_t i);

/* Append a string, which must outlive the list. CLI_FAILED after a message. */
int string_list_add(const char *verb, string_list *list, const char *string);
void string_list_release(string_list *list);

#endif
