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

/* ---- names ------------------------------------------------------------- */

/* Names that other programs have for our options. One applies to a verb that
 * has the option itself and no option of the alias's name. */
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
    { "--do-sample", "--sample" },
    { "--num-beams", "--beams" },
    { "--num-return-sequences", "--nbest" },
    { "--repetition-penalty", "--repeat-penalty" },
    { "--no-repeat-ngram-size", "--no-repeat-ngram" },
    // transformers: TrainingArguments
    { "--lr", "--learning-rate" },
    { "--max-steps", "--steps" },
    { "--num-train-epochs", "--epochs" },
    { "--warmup-steps", "--warmup" },
    { "--lr-scheduler-type", "--schedule" },
    { "--per-device-train-batch-size", "--batch-size" },
    { "--gradient-accumulation-steps", "--accumulate" },
    { "--adam-beta1", "--beta1" },
    { "--adam-beta2", "--beta2" },
    { "--adam-epsilon", "--epsilon" },
    { "--max-grad-norm", "--clip" },
    { "--label-smoothing-factor", "--label-smoothing" },
    { "--mlm-probability", "--mask-rate" },
    { "--eval-steps", "--eval-every" },
    { "--save-steps", "--save-every" },
    { "--save-total-limit", "--keep" },
    { "--vocab-size", "--pieces" },
};

enum { NAME_ROOM = 64 };

/* A name as it is typed, less its hyphens. */
static const char *bare(const char *name)
{
    return name + strspn(name, "-");
}

static bool name_is(const char *name, const char *word, size_t length)
{
    size_t skip = name[0] == '-' ? 0 : 2; // "steps" is "--steps"
    return length > skip && strlen(name) == length - skip &&
           (!skip || strncmp(word, "--", 2) == 0) &&
           strncmp(name, word + skip, length - skip) == 0;
}

static size_t name_find(const char *const *names, size_t count,
                        const char *word, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (name_is(names[i], word, length))
            return i;
    for (size_t a = 0; a < sizeof(aliases) / sizeof(aliases[0]); a++)
        if (name_is(aliases[a].alias, word, length))
            for (size_t i = 0; i < count; i++)
                if (name_is(names[i], aliases[a].name, strlen(aliases[a].name)))
                    return i;
    return count;
}

static int option_unknown(const char *verb, const char *const *names,
                          size_t count, const char *word)
{
    const char *near = NULL;
    const char **known = calloc(count, sizeof(*known));
    for (size_t i = 0; known && i < count; i++)
        known[i] = bare(names[i]);
    if (known && strlen(bare(word)) > 1) // "-x" is near to all short names
        near = cli_nearest(bare(word), known, (int)count);
    free(known);
    return cli_usage(verb, "there is no option '%s'%s%s%s", word,
                     near ? "; did you mean '--" : "", near ? near : "",
                     near ? "'?" : "");
}

int option_match(const char *verb, const char *const *names, size_t count,
                 const char *word, size_t *index, const char **value)
{
    char name[NAME_ROOM];
    size_t length = strcspn(word, "=");
    *value = word[length] ? word + length + 1 : NULL;
    snprintf(name, sizeof(name), "%.*s", (int)length, word);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    *index =
        length < sizeof(name) ? name_find(names, count, name, length) : count;
    if (*index == count && word[1] != '-' && length > 2 && *value == NULL) {
        char whole[NAME_ROOM + 1]; // "-temp" is no "-t" with "emp"
        snprintf(whole, sizeof(whole), "-%s", name);
        if (name_find(names, count, whole, strlen(whole)) == count)
            *index = name_find(names, count, name, 2); // "-n5"
        *value = word + 2;
    }
    return *index < count ? CLI_OK : option_unknown(verb, names, count, word);
}

/* ---- completion -------------------------------------------------------- */

bool option_list_wanted(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], "--list-options") == 0;
}

void option_list(const char *name, bool takes_value, const char *const *choices)
{
    printf("%s%s%s", name[0] == '-' ? "" : "--", name, takes_value ? "=" : "");
    for (size_t i = 0; choices && choices[i]; i++)
        printf("%s%s", i ? " " : "", choices[i]);
    putchar('\n');
}

static bool takes_value(const option *o)
{
    return o->kind != OPTION_ON && o->kind != OPTION_OFF &&
           o->kind != OPTION_SET;
}

/* ---- values ------------------------------------------------------------ */

static int whole_read(const char *verb, const option *o, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool whole = *text >= '0' && *text <= '9' && !*end && !errno;
    if (o->kind == OPTION_SEED) {
        *(uint64_t *)o->value = value;
        return whole ? CLI_OK
                     : cli_usage(verb, "%s is '%s', not a whole number",
                                 o->name, text);
    }
    *(size_t *)o->value = (size_t)value;
    if (whole && (double)value >= o->low && (double)value <= o->high)
        return CLI_OK;
    return cli_usage(verb, "%s is '%s', not a whole number from %.0f to %.0f",
                     o->name, text, o->low, o->high);
}

static int real_read(const char *verb, const option *o, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || fabs(value) > 1e30)
        return cli_usage(verb, "%s is '%s', not a number", o->name, text);
    *(float *)o->value = (float)value;
    if (value >= o->low && value <= o->high)
        return CLI_OK;
    return cli_usage(verb, "%s is %s, not from %g to %g", o->name, text, o->low,
                     o->high);
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
    case OPTION_SET:
        *(int *)o->value = (int)o->low;
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

typedef struct reader {
    const char *verb;
    const option *table;
    const char **names; /* (count) of the table */
    size_t count;
    words *rest;
    const char *model, *prompt; /* given as options */
} reader;

/* One of the two words that may be given as an option. */
static int word_take(const reader *r, const option *o, const char **at,
                     const char *text)
{
    if (*at)
        return cli_usage(r->verb, "%s is given twice: '%s' and '%s'", o->name,
                         *at, text);
    *at = text;
    return CLI_OK;
}

/* Returns in *used how many words were read. */
static int option_read(reader *r, char **argv, int *used)
{
    size_t index;
    const char *value;
    *used = 1;
    int usage =
        option_match(r->verb, r->names, r->count, argv[0], &index, &value);
    if (usage)
        return usage;
    char typed[NAME_ROOM]; // sentences have the name that was typed
    option as_typed = r->table[index];
    const option *o = &as_typed;
    snprintf(typed, sizeof(typed), "%.*s",
             argv[0][1] == '-' ? (int)strcspn(argv[0], "=") : 2, argv[0]);
    as_typed.name = typed;
    if (!takes_value(o) && value)
        return cli_usage(r->verb, "%s takes no value", o->name);
    if (takes_value(o) && !value) {
        value = argv[1];
        *used = 2;
        if (!value)
            return cli_usage(r->verb, "%s needs a value", o->name);
    }
    if (o->given)
        *o->given = true;
    if (o->kind == OPTION_MODEL)
        return word_take(r, o, &r->model, value);
    if (o->kind == OPTION_PROMPT)
        return word_take(r, o, &r->prompt, value);
    return value_read(r->verb, o, value);
}

/* The words that were given as options take their places in the rest. */
static int rest_complete(reader *r)
{
    int failed = CLI_OK;
    if (r->model) {
        failed = words_add(r->verb, r->rest, r->model);
        for (size_t i = r->rest->count; !failed && --i > 0;)
            r->rest->at[i] = r->rest->at[i - 1];
        if (!failed)
            r->rest->at[0] = r->model;
    }
    if (!failed && r->prompt)
        failed = words_add(r->verb, r->rest, r->prompt);
    return failed;
}

static int words_read(reader *r, int argc, char **argv)
{
    bool ended = false;
    int failed = CLI_OK;
    for (int i = 1, used; i < argc && !failed; i += used) {
        used = 1;
        if (!ended && strcmp(argv[i], "--") == 0)
            ended = true;
        else if (ended || argv[i][0] != '-' || !argv[i][1])
            failed = words_add(r->verb, r->rest, argv[i]);
        else
            failed = option_read(r, argv + i, &used);
    }
    return failed ? failed : rest_complete(r);
}

int options_parse(const char *verb, const option *table, size_t count, int argc,
                  char **argv, words *rest)
{
    reader r = { .verb = verb, .table = table, .count = count, .rest = rest };
    if (option_list_wanted(argc, argv)) {
        for (size_t i = 0; i < count; i++)
            option_list(table[i].name, takes_value(&table[i]),
                        table[i].choices);
        return CLI_DONE;
    }
    r.names = calloc(count, sizeof(*r.names));
    if (!r.names)
        return cli_fail(verb, "out of memory");
    for (size_t i = 0; i < count; i++)
        r.names[i] = table[i].name;
    int failed = words_read(&r, argc, argv);
    free(r.names);
    return failed;
}
