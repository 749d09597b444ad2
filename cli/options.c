/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - command-line options, parsed by a table; see options.h. */
#include "options.h"

#include "cli.h"

#include <bauta.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int string_list_add(const char *verb, string_list *list, const char *string)
{
    const char **more = realloc(list->at, (list->count + 1) * sizeof(*more));
    if (!more)
        return cli_fail(verb, "out of memory");
    list->at = more;
    list->at[list->count++] = string;
    return CLI_OK;
}

void string_list_release(string_list *list)
{
    free(list->at);
    *list = (string_list){ 0 };
}

/* ---- names and aliases ------------------------------------------------- */

/* Short forms, names that other programs use, and former names. An alias
 * applies if the verb has the option and no option of the alias's own name. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    { "-f", "--file" },
    { "-h", "--help" },
    { "-m", "--model" },
    { "-n", "--max-tokens" },
    { "-o", "--out" },
    { "-p", "--prompt" },
    { "-t", "--threads" },
    { "--output", "--out" },
    { "--output-dir", "--out" },
    // transformers: GenerationConfig
    { "--temperature", "--temp" },
    { "--max-new-tokens", "--max-tokens" },
    { "--min-new-tokens", "--min-tokens" },
    { "--repetition-penalty", "--repeat-penalty" },
    // transformers: TrainingArguments
    { "--lr", "--learning-rate" },
    { "--max-steps", "--steps" },
    { "--num-train-epochs", "--epochs" },
    { "--lr-scheduler-type", "--schedule" },
    { "--per-device-train-batch-size", "--batch-size" },
    { "--adam-beta1", "--beta1" },
    { "--adam-beta2", "--beta2" },
    { "--adam-epsilon", "--epsilon" },
    { "--label-smoothing-factor", "--label-smoothing" },
    { "--eval-steps", "--eval-every" },
    { "--save-steps", "--save-every" },
    { "--save-total-limit", "--keep" },
    { "--vocab-size", "--pieces" },
    // names of version 0.1
    { "--sample", "--do-sample" },
    { "--beams", "--num-beams" },
    { "--nbest", "--num-return-sequences" },
    { "--no-repeat-ngram", "--no-repeat-ngram-size" },
    { "--warmup", "--warmup-steps" },
    { "--accumulate", "--gradient-accumulation-steps" },
    { "--clip", "--max-grad-norm" },
    { "--mask-rate", "--mlm-probability" },
    { "--pass-tokens", "--microbatch-tokens" },
    { "--sampled", "--scheduled-sampling" },
    { "--ema", "--ema-decay" },
};
enum { ALIASES = sizeof(aliases) / sizeof(aliases[0]), NAME_ROOM = 64 };

const char *option_alias(const char *name, size_t i)
{
    for (size_t a = 0; a < ALIASES; a++)
        if (strcmp(aliases[a].name, name) == 0 && i-- == 0)
            return aliases[a].alias;
    return NULL;
}

static size_t name_find(const option *table, size_t count, const char *name)
{
    size_t i = 0;
    while (i < count && strcmp(table[i].name, name) != 0)
        i++;
    return i;
}

size_t option_find(const option *table, size_t count, const char *name)
{
    char typed[NAME_ROOM];
    const char *hyphens = name[0] == '-' ? "" : "--";
    if (snprintf(typed, sizeof(typed), "%s%s", hyphens, name) >= NAME_ROOM)
        return count;
    for (char *c = typed; *c; c++)
        *c = *c == '_' ? '-' : *c;
    size_t found = name_find(table, count, typed);
    for (size_t a = 0; a < ALIASES && found == count; a++)
        if (strcmp(aliases[a].alias, typed) == 0)
            found = name_find(table, count, aliases[a].name);
    return found;
}

static const char *without_hyphens(const char *name)
{
    return name + strspn(name, "-");
}

/* The name or alias of the table that is most like the one typed, or NULL. */
static const char *name_nearest(const option *table, size_t count,
                                const char *typed)
{
    const char **known = calloc(count + ALIASES, sizeof(*known));
    const char *near = NULL;
    size_t names = 0;
    for (size_t i = 0; known && i < count; i++)
        known[names++] = without_hyphens(table[i].name);
    for (size_t a = 0; known && a < ALIASES; a++)
        if (aliases[a].alias[1] == '-' &&
            name_find(table, count, aliases[a].name) < count)
            known[names++] = without_hyphens(aliases[a].alias);
    if (known && strlen(without_hyphens(typed)) > 1) // all short names are near
        near = bauta_closest_word(without_hyphens(typed), known, names);
    free(known);
    return near;
}

static int option_unknown(const char *verb, const option *table, size_t count,
                          const char *typed)
{
    const char *near = name_nearest(table, count, typed);
    return cli_usage(verb, "there is no option '%s'%s%s%s", typed,
                     near ? "; did you mean '--" : "", near ? near : "",
                     near ? "'?" : "");
}

/* The row that an argument names, or `count`. *value is the value attached to
 * it with "=", or directly to a short name; else NULL. */
static size_t option_match(const option *table, size_t count,
                           const char *argument, const char **value)
{
    char name[NAME_ROOM];
    size_t length = strcspn(argument, "=");
    *value = argument[length] ? argument + length + 1 : NULL;
    snprintf(name, sizeof(name), "%.*s", (int)length, argument);
    size_t found = option_find(table, count, name);
    bool short_name = argument[1] != '-' && length > 2 && !*value;
    if (found < count || !short_name)
        return found;
    // "-n5" is "-n 5", but "-temp" is not "-t emp".
    if (option_find(table, count, name + 1) < count)
        return count;
    *value = argument + 2;
    name[2] = '\0';
    return option_find(table, count, name);
}

/* ---- shell completion -------------------------------------------------- */

static bool takes_value(const option *o)
{
    return o->kind != OPTION_FLAG && o->kind != OPTION_NO_FLAG &&
           o->kind != OPTION_CONSTANT;
}

/* "--json", "--seed=" or "--isa=c avx2 avx512". */
static void option_list(const option *o)
{
    printf("%s%s", o->name, takes_value(o) ? "=" : "");
    for (size_t i = 0; o->choices && o->choices[i]; i++)
        printf("%s%s", i ? " " : "", o->choices[i]);
    putchar('\n');
}

/* ---- values ------------------------------------------------------------ */

/* "2000", or if `exponent`, "2e3". */
static bool whole_parse(const char *text, bool exponent, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (!*end && !errno)
        return true;
    if (!exponent || text[strspn(text, "0123456789.eE+")])
        return false;
    double real = strtod(text, &end);
    if (*end || real >= 1e15 || real != floor(real))
        return false;
    *out = (uint64_t)real;
    return true;
}

static int whole_store(const char *verb, const option *o, const char *text)
{
    uint64_t value = 0;
    bool seed = o->kind == OPTION_SEED;
    bool good = whole_parse(text, isinf(o->max), &value);
    if (!(seed && o->max == 0))
        good = good && value <= INT64_MAX;
    if (!seed)
        good = good && (double)value >= o->min && (double)value <= o->max;
    if (good && seed)
        *(uint64_t *)o->value = value;
    else if (good)
        *(size_t *)o->value = (size_t)value;
    if (good)
        return CLI_OK;
    if (seed || isinf(o->max))
        return cli_usage(verb, "%s is '%s', not a whole number", o->name, text);
    return cli_usage(verb, "%s is '%s', not a whole number from %.0f to %.0f",
                     o->name, text, o->min, o->max);
}

static int real_store(const char *verb, const option *o, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    bool fits = o->kind == OPTION_DOUBLE || fabs(value) <= 1e30;
    if (end == text || *end || !isfinite(value) || !fits)
        return cli_usage(verb, "%s is '%s', not a number", o->name, text);
    if (o->kind == OPTION_DOUBLE)
        *(double *)o->value = value;
    else
        *(float *)o->value = (float)value;
    if (value >= o->min && value <= o->max)
        return CLI_OK;
    return cli_usage(verb, "%s is %s, not from %g to %g", o->name, text, o->min,
                     o->max);
}

/* "a, b or c". */
static void choices_list(char *to, size_t size, const char *const *choices)
{
    size_t used = 0;
    for (size_t i = 0; choices[i] && used < size; i++)
        used += (size_t)snprintf(to + used, size - used, "%s%s",
                                 i == 0           ? ""
                                 : choices[i + 1] ? ", "
                                                  : " or ",
                                 choices[i]);
}

static int choice_store(const char *verb, const option *o, const char *text)
{
    char all[160] = "";
    int count = 0;
    for (; o->choices[count]; count++)
        if (strcmp(text, o->choices[count]) == 0) {
            *(int *)o->value = count;
            return CLI_OK;
        }
    choices_list(all, sizeof(all), o->choices);
    const char *near = bauta_closest_word(text, o->choices, (size_t)count);
    return cli_usage(verb, "%s is '%s', not %s%s%s%s", o->name, text, all,
                     near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

int option_store(const char *verb, const option *o, const char *text)
{
    switch (o->kind) {
    case OPTION_FLAG:
    case OPTION_NO_FLAG:
        *(bool *)o->value =
            (o->kind == OPTION_FLAG) == !(text && strcmp(text, "false") == 0);
        return CLI_OK;
    case OPTION_CONSTANT:
        *(int *)o->value = (int)o->min;
        return CLI_OK;
    case OPTION_STRING:
        *(const char **)o->value = text;
        return CLI_OK;
    case OPTION_STRINGS:
        return string_list_add(verb, o->value, text);
    case OPTION_SIZE:
    case OPTION_SEED:
        return whole_store(verb, o, text);
    case OPTION_FLOAT:
    case OPTION_DOUBLE:
        return real_store(verb, o, text);
    default:
        return choice_store(verb, o, text);
    }
}

/* ---- the command line -------------------------------------------------- */

typedef struct parser {
    const char *verb;
    const option *table;
    size_t count;
    string_list *rest;
    option_handler *handle;
    void *user;
    const char *model, *prompt; /* given as options */
} parser;

/* A positional argument that was given as an option. */
static int positional_set(const parser *p, const option *o, const char **at,
                          const char *text)
{
    if (*at)
        return cli_usage(p->verb, "%s is given twice: '%s' and '%s'", o->name,
                         *at, text);
    *at = text;
    return CLI_OK;
}

static int value_missing(const parser *p, const option *o)
{
    char all[256] = "";
    if (o->choices)
        choices_list(all, sizeof(all), o->choices);
    return cli_usage(p->verb, "%s needs a value%s%s", o->name, *all ? ": " : "",
                     all);
}

/* Handle argv[0], and argv[1] if that is its value; *used counts them. */
static int option_parse(parser *p, char **argv, int *used)
{
    const char *value;
    char typed[NAME_ROOM]; // messages show the name that was typed
    size_t index = option_match(p->table, p->count, argv[0], &value);
    *used = 1;
    if (index == p->count)
        return option_unknown(p->verb, p->table, p->count, argv[0]);
    option o = p->table[index];
    snprintf(typed, sizeof(typed), "%.*s",
             argv[0][1] == '-' ? (int)strcspn(argv[0], "=") : 2, argv[0]);
    o.name = typed;
    if (!takes_value(&o) && value)
        return cli_usage(p->verb, "%s takes no value", o.name);
    if (takes_value(&o) && !value) {
        value = argv[1];
        *used = 2;
        if (!value)
            return value_missing(p, &o);
    }
    if (o.seen)
        *o.seen = true;
    if (o.kind == OPTION_MODEL)
        return positional_set(p, &o, &p->model, value);
    if (o.kind == OPTION_PROMPT)
        return positional_set(p, &o, &p->prompt, value);
    return p->handle(p->user, index, &o, value);
}

/* Insert --model and --prompt among the positional arguments. */
static int rest_complete(parser *p)
{
    int failed = CLI_OK;
    if (p->model) {
        failed = string_list_add(p->verb, p->rest, p->model);
        for (size_t i = p->rest->count; !failed && --i > 0;)
            p->rest->at[i] = p->rest->at[i - 1];
        if (!failed)
            p->rest->at[0] = p->model;
    }
    if (!failed && p->prompt)
        failed = string_list_add(p->verb, p->rest, p->prompt);
    return failed;
}

int options_scan(const char *verb, const option *table, size_t count, int argc,
                 char **argv, string_list *rest, option_handler *handle,
                 void *user)
{
    parser p = { verb, table, count, rest, handle, user, NULL, NULL };
    bool ended = false;
    int failed = CLI_OK;
    if (argc == 2 && strcmp(argv[1], "--list-options") == 0) {
        for (size_t i = 0; i < count; i++)
            option_list(&table[i]);
        return CLI_DONE;
    }
    for (int i = 1, used; i < argc && !failed; i += used) {
        used = 1;
        if (!ended && strcmp(argv[i], "--") == 0)
            ended = true;
        else if (ended || argv[i][0] != '-' || !argv[i][1])
            failed = string_list_add(verb, rest, argv[i]);
        else
            failed = option_parse(&p, argv + i, &used);
    }
    return failed ? failed : rest_complete(&p);
}

static int value_store(void *user, size_t index, const option *o,
                       const char *value)
{
    (void)index;
    return option_store(user, o, value);
}

int options_parse(const char *verb, const option *table, size_t count, int argc,
                  char **argv, string_list *rest)
{
    // The handler's user data is the verb, which it only reads.
    return options_scan(verb, table, count, argc, argv, rest, value_store,
                        (void *)(uintptr_t)verb);
}
