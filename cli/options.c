/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - a command line, read by a table; see options.h. */
#include "options.h"

#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int words_add(const char *verb, words *w, const char *word)
{
    const char **more = realloc(w->at, (w->count + 1) * sizeof(*more));
    if (!more)
        return cli_fail(verb, "out of memory");
    w->at = more;
    w->at[w->count++] = word;
    return CLI_OK;
}

void words_release(words *w)
{
    free(w->at);
    *w = (words){ 0 };
}

/* ---- values ------------------------------------------------------------ */

static int range_check(const char *verb, const option *o, const char *text,
                       double value)
{
    if (value >= o->low && value <= o->high)
        return CLI_OK;
    if (isinf(o->high))
        return cli_usage(verb, "%s is %s, and must be at least %g", o->name,
                         text, o->low);
    return cli_usage(verb, "%s is %s, not from %g to %g", o->name, text, o->low,
                     o->high);
}

static int whole_read(const char *verb, const option *o, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return cli_usage(verb, "%s is '%s', not a whole number", o->name, text);
    if (o->kind == OPTION_SEED) {
        *(uint64_t *)o->value = value;
        return CLI_OK;
    }
    *(size_t *)o->value = (size_t)value;
    return range_check(verb, o, text, (double)value);
}

static int real_read(const char *verb, const option *o, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || fabs(value) > 1e30)
        return cli_usage(verb, "%s is '%s', not a number", o->name, text);
    *(float *)o->value = (float)value;
    return range_check(verb, o, text, value);
}

static int choice_read(const char *verb, const option *o, const char *text)
{
    char all[160] = "";
    int count = 0;
    for (; o->choices[count]; count++) {
        size_t used = strlen(all);
        const char *between =
            count == 0 ? "" : (o->choices[count + 1] ? ", " : " or ");
        if (strcmp(text, o->choices[count]) == 0) {
            *(int *)o->value = count;
            return CLI_OK;
        }
        snprintf(all + used, sizeof(all) - used, "%s%s", between,
                 o->choices[count]);
    }
    const char *near = cli_nearest(text, o->choices, count);
    return cli_usage(verb, "%s is '%s', not %s%s%s%s", o->name, text, all,
                     near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

static int value_read(const char *verb, const option *o, const char *text)
{
    switch (o->kind) {
    case OPTION_ON:
    case OPTION_OFF:
        *(bool *)o->value = o->kind == OPTION_ON;
        return CLI_OK;
    case OPTION_TEXT:
        *(const char **)o->value = text;
        return CLI_OK;
    case OPTION_TEXTS:
        return words_add(verb, o->value, text);
    case OPTION_WHOLE:
    case OPTION_SEED:
        return whole_read(verb, o, text);
    case OPTION_REAL:
        return real_read(verb, o, text);
    default:
        return choice_read(verb, o, text);
    }
}

/* ---- the command line -------------------------------------------------- */

static int option_unknown(const char *verb, const option *table, size_t count,
                          const char *word)
{
    const char *near = NULL;
    const char **names = calloc(count, sizeof(*names));
    for (size_t i = 0; names && i < count; i++)
        names[i] = table[i].name;
    if (names && word[1] == '-') // "-x" is near to everything that is short
        near = cli_nearest(word, names, (int)count);
    free(names);
    return cli_usage(verb, "there is no option '%s'%s%s%s", word,
                     near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

static const option *option_find(const option *table, size_t count,
                                 const char *word, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(table[i].name) == length &&
            strncmp(table[i].name, word, length) == 0)
            return &table[i];
    return NULL;
}

/* Returns in *used how many words were read. */
static int option_read(const char *verb, const option *table, size_t count,
                       char **argv, int *used)
{
    const char *equal = strchr(argv[0], '=');
    size_t length = equal ? (size_t)(equal - argv[0]) : strlen(argv[0]);
    const option *o = option_find(table, count, argv[0], length);
    *used = 1;
    if (!o)
        return option_unknown(verb, table, count, argv[0]);
    bool bare = o->kind == OPTION_ON || o->kind == OPTION_OFF;
    if (bare && equal)
        return cli_usage(verb, "%s takes no value", o->name);
    if (!bare && !equal && !argv[1])
        return cli_usage(verb, "%s needs a value", o->name);
    *used = bare || equal ? 1 : 2;
    if (o->given)
        *o->given = true;
    return value_read(verb, o, equal ? equal + 1 : argv[1]);
}

int options_parse(const char *verb, const option *table, size_t count, int argc,
                  char **argv, words *rest)
{
    bool ended = false;
    int failed = CLI_OK;
    for (int i = 1, used; i < argc && !failed; i += used) {
        used = 1;
        if (!ended && strcmp(argv[i], "--") == 0)
            ended = true;
        else if (ended || argv[i][0] != '-' || !argv[i][1])
            failed = words_add(verb, rest, argv[i]);
        else
            failed = option_read(verb, table, count, argv + i, &used);
    }
    return failed;
}
